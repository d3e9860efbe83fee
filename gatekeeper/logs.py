"""Structured logs, one record on one line. Text from outside stands only inside JSON strings, never at the start of a line."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, TextIO

import structlog
from structlog.typing import Processor


def configure(stream: TextIO | None = None, *, as_json: bool = True, level: int = logging.INFO) -> None:
    """Send every log record of this process to ``stream`` (standard error), as JSON lines or as plain lines for a person.

    Records of the standard library's ``logging`` (web server, database, PyGithub) go the same way.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, json_line if as_json else plain_line],
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = name != "uvicorn.access"  # requests are logged once, by the application itself
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


@contextmanager
def carrying(**values: str | int | None) -> Iterator[None]:
    """Bind values (a delivery id, a job id) to every record that is logged inside the block; None values are left out."""
    with structlog.contextvars.bound_contextvars(**{key: value for key, value in values.items() if value is not None}):
        yield


def json_line(_logger: Any, _method: str, record: MutableMapping[str, Any]) -> str:
    """Render a record as one line of ASCII JSON: newlines and control characters are escaped by the encoding itself."""
    ordered = {key: record[key] for key in ("timestamp", "level", "event") if key in record}
    return json.dumps({**ordered, **record}, ensure_ascii=True, default=str)


def plain_line(_logger: Any, _method: str, record: MutableMapping[str, Any]) -> str:
    """Render a record as ``time level event key="value"``; every value is quoted as JSON, so it cannot end the line."""
    values = dict(record)
    time = str(values.pop("timestamp", ""))[:19]
    level = str(values.pop("level", "info"))
    event = json.dumps(str(values.pop("event", "")), ensure_ascii=True)[1:-1]
    rest = " ".join(f"{key}={json.dumps(value, ensure_ascii=True, default=str)}" for key, value in values.items())
    return f"{time} {level:<8}{event} {rest}".rstrip()
