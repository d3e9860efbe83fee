"""``/healthz``: the process lives. ``/readyz``: it could do its work now, and if not, what is wrong."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from structlog import get_logger

from gatekeeper.web.options import Readiness, WebOptions

log = get_logger(__name__)


def router(options: WebOptions) -> APIRouter:
    """Return the health routes."""
    routes = APIRouter(tags=["operations"])

    @routes.get("/healthz", summary="Whether the process lives", response_description="it does")
    def healthz() -> dict[str, str]:
        """Answer without touching anything."""
        return {"status": "ok"}

    @routes.get(
        "/readyz",
        summary="Whether the service could do its work now",
        response_description="ready",
        responses={503: {"description": "not ready"}},
    )
    def readyz() -> JSONResponse:
        """Run every readiness check; 503 with the reasons if one fails. Also tells how long the queue is."""
        results = {name: ask(name, check) for name, check in options.readiness.items()}
        ready = all(problem is None for problem in results.values())
        checks = {name: problem or "ok" for name, problem in results.items()}
        answer = {"status": "ready" if ready else "not ready", "checks": checks, "queue": queue(options)}
        return JSONResponse(answer, status_code=200 if ready else 503)

    return routes


def queue(options: WebOptions) -> dict[str, dict[str, Any]] | None:
    """Return how many jobs of each kind stand where; None where that cannot be told, which the check of the database says."""
    if options.queue is None:
        return None
    try:
        return {line.kind.value: line.model_dump(mode="json", exclude={"kind"}) for line in options.queue()}
    except Exception as error:
        log.warning("the queue could not be counted", exc_info=error)
        return None


def ask(name: str, check: Readiness) -> str | None:
    """Return what is wrong, or None. A check that raises is not ready; its traceback goes to the log only."""
    try:
        return check()
    except Exception as error:
        log.warning("readiness check failed", check=name, exc_info=error)
        return f"cannot be reached ({type(error).__name__})"


def directory_check(path: Path) -> Readiness:
    """Return a check that a directory exists and can be written to."""

    def check() -> str | None:
        if not path.is_dir():
            return "the directory does not exist"
        return None if os.access(path, os.W_OK | os.X_OK) else "the directory cannot be written to"

    return check


def alive_check(is_alive: Callable[[], bool], what: str) -> Readiness:
    """Return a check that a thread or process still runs."""
    return lambda: None if is_alive() else f"{what} has stopped"


def schema_check(current: Callable[[], str | None], wanted: str) -> Readiness:
    """Return a check that the database answers and stands at the wanted migration."""

    def check() -> str | None:
        found = current()
        return (
            None if found == wanted else f"the database is at migration {found or 'none'}, this version needs {wanted}"
        )

    return check
