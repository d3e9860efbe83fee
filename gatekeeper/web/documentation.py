"""``/docs``: a plain page made from the same document as ``/openapi.json``; nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse

from gatekeeper.web.pages import render


@dataclass(frozen=True)
class Operation:
    """One route as the page shows it."""

    method: str
    path: str
    summary: str
    description: str
    parameters: tuple[tuple[str, str, str], ...]
    answers: tuple[tuple[str, str], ...]


def router(app: FastAPI) -> APIRouter:
    """Return the page that documents the routes of ``app``."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/docs", response_class=HTMLResponse)
    def docs() -> HTMLResponse:
        """Show every route of the API."""
        return render("docs.html", {"operations": list(operations(app.openapi()))})

    return routes


def operations(document: dict[str, Any]) -> Iterator[Operation]:
    """Yield the operations of an OpenAPI document in its order."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield Operation(
                method=method.upper(),
                path=path,
                summary=operation.get("summary", ""),
                description=operation.get("description", "").replace("``", "`"),
                parameters=tuple(
                    (item["name"], item["in"], item.get("description", "")) for item in operation.get("parameters", ())
                ),
                answers=tuple((status, item.get("description", "")) for status, item in operation["responses"].items()),
            )
