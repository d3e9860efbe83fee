"""Every error as an answer: the four families of ``domain.errors`` to a status, as JSON for machines and a page for people."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from structlog import get_logger

from gatekeeper.domain.errors import Conflict, GatekeeperError, Rejected, Retryable
from gatekeeper.web.pages import render

log = get_logger(__name__)

STATUS_OF_CODE = {
    "HOOK_SIGNATURE": 401,
    "HOOK_HEADERS": 401,
    "HOOK_EVENT": 400,
    "HOOK_JSON": 400,
    "HOOK_LENGTH": 400,
    "HOOK_MEDIA": 415,
    "HOOK_SIZE": 413,
    "HOOK_SLOW": 408,
    "HOOK_REPO": 403,
    "HOOK_QUOTA": 429,
    "HOST": 400,
    "NOT_FOUND": 404,
    "STORE_UNKNOWN_DOCUMENT": 404,
    "METHOD": 405,
}
"""Status of the codes that are not a 422."""

NOT_FOUND_TEXT = "There is nothing at this address, or you may not see it."
"""One text for everything that is absent, so that an answer does not tell what exists."""

MACHINE_PATHS = ("/api/", "/webhooks/", "/worker/", "/healthz", "/readyz", "/openapi.json")


class NotFound(Rejected):
    """No such document; the same text for every kind of absence."""

    def __init__(self) -> None:
        super().__init__(NOT_FOUND_TEXT, code="NOT_FOUND")


def status_of(error: GatekeeperError) -> int:
    """Return the HTTP status of an error of ours."""
    if isinstance(error, Rejected):
        return STATUS_OF_CODE.get(error.code, 422)
    if isinstance(error, Conflict):
        return 409
    return 503 if isinstance(error, Retryable) else 500


def answer(
    request: Request,
    status: int,
    code: str,
    message: str,
    *,
    expected: str = "",
    found: str = "",
    retry_after: int | None = None,
) -> Response:
    """Return the error as JSON below the machine paths and as a page elsewhere. ``retry_after`` is in seconds."""
    seconds = 10 if status == 503 and retry_after is None else retry_after
    headers = {} if seconds is None else {"Retry-After": str(seconds)}
    if request.url.path.startswith(MACHINE_PATHS):
        detail = {"code": code, "message": message}
        if expected or found:
            detail |= {"expected": expected, "found": found}
        return JSONResponse({"error": detail}, status_code=status, headers=headers)
    context = {"status": status, "code": code, "message": message, "expected": expected, "found": found}
    page = render("error.html", context, status_code=status)
    page.headers.update(headers)
    return page


def add_error_handlers(app: FastAPI) -> None:
    """Teach the application to answer every error in one form; a traceback never leaves the process."""
    app.add_exception_handler(GatekeeperError, _ours)
    app.add_exception_handler(HTTPException, _framework)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(Exception, _bug)


def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, GatekeeperError)
    status = status_of(error)
    level = log.error if status >= 500 else log.info
    level("request refused", code=error.code, status=status, path=request.url.path, detail=error.message)
    if status == 404:
        return answer(request, 404, "NOT_FOUND", NOT_FOUND_TEXT)
    if status == 401:  # no detail: it would only help whoever is trying signatures
        return answer(request, status, error.code, error.message)
    if status == 500:
        return answer(request, status, "ERROR", "The service could not answer. This is our fault and was logged.")
    return answer(
        request, status, error.code, error.message, expected=error.expected, found=error.found,
        retry_after=getattr(error, "retry_after", None),
    )  # fmt: skip


def _framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return answer(request, 404, "NOT_FOUND", NOT_FOUND_TEXT)
    if error.status_code == 405:
        reply = answer(request, 405, "METHOD", "This address does not take that method.")
        reply.headers.update(error.headers or {})
        return reply
    return answer(request, error.status_code, "REQUEST", str(error.detail))


def _validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["loc"][:1] == ("path",):  # an id of the wrong form names nothing
        return answer(request, 404, "NOT_FOUND", NOT_FOUND_TEXT)
    return answer(request, 422, "QUERY", "A parameter is not valid.", expected=str(first["msg"]), found=where)


def _bug(request: Request, error: Exception) -> Response:
    log.error("request failed", path=request.url.path, exc_info=error)
    return answer(request, 500, "ERROR", "The service could not answer. This is our fault and was logged.")
