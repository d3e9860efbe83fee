"""``/api/v1``: the JSON twins of the pages. Read-only; every list has a limit."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path
from fastapi.responses import Response

from gatekeeper.web import reading
from gatekeeper.web.filters import PullFilter, pull_filter
from gatekeeper.web.options import WebContext
from gatekeeper.web.views import PullList, PullPage, RaceView

Filters = Annotated[PullFilter, Depends(pull_filter)]
Owner = Annotated[str, Path(description="owner of the repository, as GitHub spells it")]
Repo = Annotated[str, Path(description="name of the repository, without its owner")]
Number = Annotated[int, Path(description="number of the pull request")]
VerdictDigest = Annotated[str, Path(description="digest of the verdict, with or without its sha256: in front")]
RaceDigest = Annotated[str, Path(description="digest of the race's request, with or without its sha256: in front")]
INVALID: dict[int | str, dict[str, Any]] = {422: {"description": "a parameter is not valid"}}
ABSENT: dict[int | str, dict[str, Any]] = {404: {"description": "nothing there"}, **INVALID}


def router(ctx: WebContext) -> APIRouter:
    """Return the read-only JSON routes."""
    routes = APIRouter(prefix="/api/v1", tags=["verdicts"])

    @routes.get(
        "/pulls",
        summary="Pull requests, last changed first",
        response_description="a page of the list",
        responses=INVALID,
    )
    def pulls(filters: Filters) -> PullList:
        """Return a page of pull requests that fit the filters."""
        with ctx.store.read() as uow:
            return reading.pull_list(uow, filters)

    @routes.get(
        "/pulls/{owner}/{repo}/{number}",
        summary="Everything about one pull request",
        response_description="what its page shows",
        responses=ABSENT,
    )
    def pull(owner: Owner, repo: Repo, number: Number) -> PullPage:
        """Return verdict, findings, evidence, races, verdict chain and open jobs."""
        with ctx.store.read() as uow:
            return reading.pull_page(uow, owner, repo, number)

    @routes.get(
        "/pulls/{owner}/{repo}/{number}/bundle",
        summary="What a verdict rests on",
        response_description="all documents that the verdict was decided from",
        responses=ABSENT,
    )
    def bundle(owner: Owner, repo: Repo, number: Number) -> Response:
        """Return snapshot, configuration, evidence and verdict: ``gatekeeper evaluate`` decides them again, offline."""
        with ctx.store.read() as uow:
            document = reading.bundle(uow, owner, repo, number)
        return Response(document.canonical_json(), media_type="application/json")

    @routes.get(
        "/verdicts/{digest}",
        summary="A verdict as it was hashed",
        response_description="the document",
        responses=ABSENT,
    )
    def verdict(digest: VerdictDigest) -> Response:
        """Return the canonical JSON of a verdict: its SHA-256 is its name."""
        with ctx.store.read() as uow:
            document = reading.verdict_document(uow, digest)
        # A document never changes under its name, so it may be kept for good.
        headers = {"ETag": f'"{document.digest()}"', "Cache-Control": "public, max-age=31536000, immutable"}
        return Response(document.canonical_json(), media_type="application/json", headers=headers)

    @routes.get(
        "/races/{race}",
        summary="A race by the digest of its request",
        response_description="what its page shows",
        responses=ABSENT,
    )
    def race(race: RaceDigest) -> RaceView:
        """Return the figures of a race, recomputed from its raw samples."""
        with ctx.store.read() as uow:
            return reading.race_page(uow, race)

    return routes
