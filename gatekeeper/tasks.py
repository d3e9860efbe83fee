"""The Celery entry point (``celery --app gatekeeper.tasks worker``): each task is one call into a service."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gatekeeper.backends.celery import RECONCILE, RUN_JOB, CeleryQueue
from gatekeeper.bootstrap import Service, build, configure_logs, load_settings
from gatekeeper.config import Settings
from gatekeeper.domain.errors import ConfigurationError


def build_worker(settings: Settings) -> Service:
    """Build the service of a worker process; see :func:`gatekeeper.bootstrap.build`.

    Raises:
        ConfigurationError: ``CONFIG_BROKER_URL`` if the settings name no broker; nothing was opened or migrated then.
    """
    if settings.broker_url is None:
        raise ConfigurationError(
            "workers need a broker; without one `gatekeeper serve` does the work itself",
            code="CONFIG_BROKER_URL", expected="redis://HOST:PORT/NUMBER", found="none",
        )  # fmt: skip
    return build(settings)


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
