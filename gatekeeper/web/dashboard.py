"""The pages. Each reads the store, makes a view and renders one template; none writes anything."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse

from gatekeeper.domain.policy import Outcome
from gatekeeper.web import reading
from gatekeeper.web.bars import bars
from gatekeeper.web.filters import PullFilter, pull_filter
from gatekeeper.web.options import WebContext
from gatekeeper.web.pages import render

Filters = Annotated[PullFilter, Depends(pull_filter)]


def router(ctx: WebContext) -> APIRouter:
    """Return the pages."""
    routes = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

    @routes.get("/")
    def pulls(filters: Filters) -> HTMLResponse:
        """List pull requests."""
        with ctx.store.read() as uow:
            found = reading.pull_list(uow, filters)
        return render("pulls.html", {"page": found, "filters": filters, "outcomes": list(Outcome)})

    @routes.get("/pulls/{owner}/{repo}/{number}")
    def pull(owner: str, repo: str, number: int) -> HTMLResponse:
        """Show one pull request."""
        with ctx.store.read() as uow:
            page = reading.pull_page(uow, owner, repo, number)
        return render("pull.html", {"page": page, "bars": bars})

    @routes.get("/races/{race}")
    def race(race: str) -> HTMLResponse:
        """Show one race."""
        with ctx.store.read() as uow:
            found = reading.race_page(uow, race)
        return render("race.html", {"race": found, "bars": bars})

    return routes
