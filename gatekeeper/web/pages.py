"""Templates: one environment that escapes in every file, whatever its name, and knows how to show times and outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gatekeeper import texts
from gatekeeper.web import grouping

TEMPLATES = Path(__file__).parent / "templates"
STATIC = Path(__file__).parent / "static"


def shown_time(moment: datetime) -> str:
    """Return ``2026-11-30 04:15 UTC`` for a person."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def machine_time(moment: datetime) -> str:
    """Return the value of a ``datetime`` attribute."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def short(digest: str) -> str:
    """Return the first 12 hexadecimal digits of a digest or object id."""
    return digest.removeprefix("sha256:")[:12]


def environment() -> Environment:
    """Return the environment of all pages. ``autoescape=True`` holds for every name; nothing may be marked as safe."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(shown_time=shown_time, machine_time=machine_time, short=short)
    made.globals.update(texts=texts, groups=grouping, version=version("gatekeeper"))
    return made


_ENVIRONMENT = environment()
DOCUMENTED: ContextVar[bool] = ContextVar("documented", default=False)
"""Whether the application that renders has a page about its API: set for each request, because there may be several."""


def render(template: str, context: Mapping[str, Any], *, status_code: int = 200) -> HTMLResponse:
    """Render a page from ``templates/``."""
    values = {"documented": DOCUMENTED.get(), **context}
    return HTMLResponse(_ENVIRONMENT.get_template(template).render(values), status_code=status_code)
