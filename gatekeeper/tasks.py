"""The Celery entry point (``celery --app gatekeeper.tasks worker``): each task is one call into a service."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gatekeeper.backends.celery import RECONCILE, RUN_JOB, CeleryQueue
from gatekeeper.bootstrap import Service, build_worker, configure_logs, load_settings


def register(service: Service) -> Any:
    """Register the tasks on the Celery application of a service with a broker and return it."""
    app, queue = service.broker, service.ctx.queue
    assert isinstance(queue, CeleryQueue)

    @app.task(name=RUN_JOB)  # type: ignore[untyped-decorator]
    def run_job(job_id: str) -> None:
        ran, later = service.run_next(job_id)
        if later is not None:
            queue.send(ran, (later - datetime.now(UTC)).total_seconds())

    @app.task(name=RECONCILE)  # type: ignore[untyped-decorator]
    def reconcile() -> None:
        service.reconcile()

    return app


def make() -> Any:
    """Build everything from the environment and return the Celery application."""
    settings = load_settings()
    configure_logs(settings)
    return register(build_worker(settings))


def __getattr__(name: str) -> Any:
    # Celery looks for ``app``; building it at import would make every import of this module need a broker.
    if name == "app":
        globals()["app"] = built = make()
        return built
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
