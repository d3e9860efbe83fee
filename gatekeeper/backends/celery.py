"""The Celery backend: messages carry job ids as JSON and nothing else; what there is to do stands in the database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from celery import Celery

RUN_JOB, RECONCILE = "gatekeeper.run_job", "gatekeeper.reconcile"
# Redis hands an unacknowledged message out again after this time: it must exceed the longest race.
VISIBILITY_SECONDS = 12 * 3600
JOBS, PROBES, RACE = "jobs", "probes", "race."
"""Names of the queues; a race's is ``race.<target>``."""


def make_app(broker_url: str, reconcile_seconds: float, folder: Path) -> Celery:
    """Return the Celery application: JSON only, acknowledged after the work, no result backend.

    The timer keeps its notes in ``folder``; by default Celery would write them wherever the process was started.
    """
    app = Celery("gatekeeper", broker=broker_url)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        broker_transport_options={"visibility_timeout": VISIBILITY_SECONDS},
        task_default_queue=JOBS,
        beat_schedule_filename=str(folder / "celerybeat-schedule"),
        beat_schedule={"reconcile": {"task": RECONCILE, "schedule": reconcile_seconds}},
    )
    return app


class CeleryQueue:
    """Sends ids to the queue that ``lane_of`` names: ``jobs``, ``probes``, or ``race.<target>``."""

    def __init__(self, app: Any, lane_of: Callable[[str], str]) -> None:
        self._app = app
        self._lane_of = lane_of

    def notify(self, job_ids: Sequence[str]) -> None:
        """Say that these jobs may be claimed.

        Raises:
            kombu.exceptions.OperationalError: if the broker is down; the store logs it and the reconciler repairs it.
        """
        for job_id in job_ids:
            self.send(job_id)

    def send(self, job_id: str, seconds: float = 0.0) -> None:
        """Send one id, to be delivered after some seconds."""
        self._app.send_task(RUN_JOB, args=[job_id], queue=self._lane_of(job_id), countdown=max(0.0, seconds))
