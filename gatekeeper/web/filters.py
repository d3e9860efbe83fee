"""What the list of pull requests may be narrowed to. Every value is checked here, before any of it reaches a query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import Query

from gatekeeper.domain.policy import Outcome
from gatekeeper.web.limits import PAGE_SIZE, Limit, Offset, clean_text

State = Literal["open", "closed", "all"]


@dataclass(frozen=True)
class PullFilter:
    """Filters and paging of the list. Empty texts and None mean: do not narrow."""

    state: State = "open"
    outcome: Outcome | None = None
    repository: str = ""
    text: str = ""
    limit: int = PAGE_SIZE
    offset: int = 0

    def query(self, offset: int) -> str:
        """Return the query string of the same list from another row on."""
        values = {"state": self.state, "outcome": self.outcome or "", "repository": self.repository, "q": self.text}
        kept = {name: str(value) for name, value in values.items() if value and (name, value) != ("state", "open")}
        if self.limit != PAGE_SIZE:
            kept["limit"] = str(self.limit)
        if offset:
            kept["offset"] = str(offset)
        return "?" + urlencode(kept) if kept else "?"


def pull_filter(
    state: Annotated[State, Query(description="open pull requests, closed ones, or all")] = "open",
    outcome: Annotated[Outcome | Literal[""], Query(description="outcome of the verdict; empty for any")] = "",
    repository: Annotated[str, Query(description="full name; empty for any")] = "",
    q: Annotated[str, Query(description="a part of the title or the author's login, taken literally")] = "",
    limit: Limit = PAGE_SIZE,
    offset: Offset = 0,
) -> PullFilter:
    """Read the filters from a query string.

    Raises:
        Rejected: ``TEXT`` for a text that cannot be looked for.
    """
    return PullFilter(
        state=state,
        outcome=Outcome(outcome) if outcome else None,
        repository=clean_text("repository", repository, longest=200),
        text=clean_text("q", q, longest=200),
        limit=limit,
        offset=offset,
    )
