"""Read-only projections for pages: rows joined and narrowed in one statement, always with a limit."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, ColumnElement, Select, and_, cast, func, or_, select, type_coerce

from gatekeeper.domain.documents import Value
from gatekeeper.domain.evidence import Evidence
from gatekeeper.store.tables import evidence, pulls, repositories, verdicts
from gatekeeper.store.unit_of_work import ReadUnit

CHECK_COLUMNS = {
    "isolation": verdicts.c.isolation,
    "scope": verdicts.c.scope,
    "benchmarks": verdicts.c.benchmarks,
    "contributor-log": verdicts.c.contributor_log,
}


class PullLine(Value):
    """A pull request with its repository's present name and the outcome of each check, where there is a verdict."""

    repository: str
    number: int
    title: str
    author: str
    base_ref: str
    head_sha: str
    open: bool
    draft: bool
    outcome: str | None
    verdict: str | None
    checks: dict[str, str]
    unjudged: tuple[str, ...]
    """Checks that passed because no policy of theirs applied."""
    updated_at: datetime


def pull_lines(
    uow: ReadUnit,
    *,
    limit: int,
    offset: int,
    open: bool | None = None,
    outcome: str | None = None,
    repository: str | None = None,
    text: str | None = None,
) -> tuple[int, list[PullLine]]:
    """Return how many pull requests fit, and the lines of one page of them, last changed first.

    ``text`` is looked for literally, whatever wildcards it holds, in title and author. ``outcome`` ``pending`` includes pull
    requests that have no verdict yet.
    """
    conditions: list[ColumnElement[bool]] = []
    if open is not None:
        conditions.append(pulls.c.open.is_(open))
    if outcome is not None:
        unjudged = pulls.c.outcome.is_(None) if outcome == "pending" else None
        conditions.append(pulls.c.outcome == outcome if unjudged is None else or_(pulls.c.outcome == outcome, unjudged))
    if repository:
        conditions.append(repositories.c.full_name == repository)
    if text:
        conditions.append(
            or_(
                func.lower(pulls.c.title).contains(text.lower(), autoescape=True),
                func.lower(pulls.c.author_login).contains(text.lower(), autoescape=True),
            )
        )
    where = and_(True, *conditions)
    joined = pulls.join(repositories, repositories.c.id == pulls.c.repository_id)
    total = uow.connection.scalar(select(func.count()).select_from(joined).where(where)) or 0
    statement = _lines(uow).where(where).limit(limit).offset(offset)
    return total, [_line(row._mapping) for row in uow.connection.execute(statement)]


def _lines(uow: ReadUnit) -> Select[tuple[object, ...]]:
    joined = pulls.join(repositories, repositories.c.id == pulls.c.repository_id)
    joined = joined.outerjoin(verdicts, verdicts.c.digest == pulls.c.verdict)
    checks: list[ColumnElement[Any]] = [column.label(f"check:{name}") for name, column in CHECK_COLUMNS.items()]
    # A part of the document and not the whole: findings may be long. SQLite reads JSON from text as it is.
    text = verdicts.c.body
    body = cast(text, JSON) if uow.connection.dialect.name == "postgresql" else type_coerce(text, JSON)
    checks.append(body["checks"].label("parts"))
    return (
        select(pulls, repositories.c.full_name, *checks)
        .select_from(joined)
        .order_by(pulls.c.updated_at.desc(), pulls.c.repository_id, pulls.c.number.desc())
    )


def _line(row: object) -> PullLine:
    values = dict(row)  # type: ignore[call-overload]
    return PullLine(
        repository=values["full_name"],
        number=values["number"],
        title=values["title"],
        author=values["author_login"],
        base_ref=values["base_ref"],
        head_sha=values["head_sha"],
        open=values["open"],
        draft=values["draft"],
        outcome=values["outcome"],
        verdict=values["verdict"],
        checks={name: values[f"check:{name}"] for name in CHECK_COLUMNS if values[f"check:{name}"]},
        unjudged=tuple(
            part["check"] for part in values["parts"] or () if part["outcome"] == "passed" and not part["policies"]
        ),
        updated_at=values["updated_at"],
    )


def evidence_of_request(uow: ReadUnit, request: str) -> tuple[str, Evidence] | None:
    """Return digest and evidence of the latest answer to a race or probe request, or None."""
    digest = uow.connection.scalar(
        select(evidence.c.digest).where(evidence.c.request == request).order_by(evidence.c.recorded_at.desc()).limit(1)
    )
    return None if digest is None else (digest, uow.evidence(digest))
