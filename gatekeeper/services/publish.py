"""Publish: show the latest verdict of a pull request, whatever verdict woke the job.

Because the job is named after publisher and pull request and always shows the newest verdict, a slow older job cannot overwrite
a newer answer.
"""

from __future__ import annotations

from gatekeeper.context import Context
from gatekeeper.domain.errors import Rejected
from gatekeeper.domain.jobs import Claim


def run(ctx: Context, claim: Claim) -> None:
    """Run the publisher that ``claim.key`` names as ``<publisher>:<repository id>:<pull request number>``.

    Raises:
        Retryable: if the place where verdicts are shown cannot be reached.
    """
    name, repository_id, number = claim.key.rsplit(":", 2)
    publisher = next((each for each in ctx.publishers if each.name == name), None)
    if publisher is None:
        known = ", ".join(each.name for each in ctx.publishers)
        raise Rejected("no such publisher", code="PUBLISHER_UNKNOWN", expected=known, found=name)
    where = (name, int(repository_id), int(number))
    with ctx.store.read() as uow:
        current = uow.latest_snapshot(where[1], where[2])
        latest = uow.latest_verdict(current[0]) if current else None
        shown = uow.published(*where)
    if current is None or latest is None:
        return
    external = publisher.publish(current[1], latest[0], latest[1], shown.external if shown else {})
    with ctx.store.begin() as uow:
        uow.mark_published(
            *where, snapshot=current[0], verdict=latest[0], head_sha=current[1].key.head_sha, external=external
        )
