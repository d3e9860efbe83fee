"""Publish: show the latest verdict of a pull request, whatever verdict woke the job.

Because the job is named after publisher and pull request and always shows the newest verdict, a slow older job cannot overwrite
a newer answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from gatekeeper.context import Context, HeadPublisher, Judged
from gatekeeper.domain.errors import Conflict, Postponed, Rejected
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.domain.jobs import Claim, JobKind
from gatekeeper.domain.snapshot import Snapshot
from gatekeeper.store.unit_of_work import ReadUnit, Store

LEFT = "left"
"""Under which name a publication keeps the earlier heads whose checks were finished."""
HEADS_LEFT = 10
"""Announced heads of a pull request that are remembered until their checks have been finished."""


def run(ctx: Context, claim: Claim) -> None:
    """Run the publisher that ``claim.key`` names as ``<publisher>:<repository id>:<pull request number>``.

    Where the other side asks for a pause that is longer than the queue's, the job comes back after it.

    Raises:
        Conflict: if somebody else took the job meanwhile; what was written last is then looked at once more.
        Retryable: if the place where verdicts are shown cannot be reached.
    """
    try:
        _publish(ctx, claim)
    except Postponed as error:
        pause = getattr(error, "retry_after", None)
        if pause is None:
            raise
        with ctx.store.begin() as uow:
            uow.enqueue(JobKind.PUBLISH, claim.key, run_after=uow.now + timedelta(seconds=pause))


def announce(
    store: Store, publisher: str, repository: RepositoryRef, number: int, head_sha: str, base_ref: str
) -> None:
    """Ask a :class:`HeadPublisher` to say that a head is being judged; what it said of an earlier one is then finished."""
    key = f"{publisher}:{repository.id}:{number}"
    with store.begin() as uow:
        job = uow.job_named(JobKind.PUBLISH, key)
        before = dict(job.payload) if job is not None else {}
        if (before.get("head"), before.get("base_ref")) == (head_sha, base_ref):
            return
        left = [*str(before.get("left") or "").split(), *([str(before["head"])] if "head" in before else [])]
        left = [head for head in dict.fromkeys(left) if head != head_sha][-HEADS_LEFT:]
        payload = {"head": head_sha, "base_ref": base_ref, "left": " ".join(left)}
        uow.enqueue(JobKind.PUBLISH, key, payload=payload, priority=1)


def _publish(ctx: Context, claim: Claim) -> None:
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
        judged = _same_head(uow, current[1]) if current else []
        known_as = uow.repository(where[1])
    before = shown.external if shown else {}
    if isinstance(publisher, HeadPublisher):
        if known_as is None:
            return
        repository = RepositoryRef(id=known_as.id, full_name=known_as.full_name)
        judged_now = current[1] if current and latest else None
        left, to_show = _announced(publisher, repository, where[2], claim, judged_now, before.get(LEFT, ()))
        if current is None or latest is None or not to_show:
            return
        external = {**publisher.show(repository, current[1].key.head_sha, judged), LEFT: left}
    elif current is None or latest is None:
        return
    else:
        external = dict(publisher.publish(current[1], latest[0], latest[1], before))
    with ctx.store.begin() as uow:
        if uow.owns(claim):
            uow.mark_published(
                *where, snapshot=current[0], verdict=latest[0], head_sha=current[1].key.head_sha, external=external
            )
            return
        # Somebody else has published since, and our older answer may have come after theirs.
        uow.enqueue(JobKind.PUBLISH, claim.key)
    raise Conflict("the job was taken by somebody else while it was published", code="JOB_FENCE", found=claim.key)


def _same_head(uow: ReadUnit, snapshot: Snapshot) -> list[Judged]:
    """Return every pull request whose current snapshot has this head: what is shown on a commit is shown on all of them."""
    found = []
    for digest in uow.snapshots_with_head(snapshot.key.repository_id, snapshot.key.head_sha):
        latest = uow.latest_verdict(digest)
        found.append(Judged(uow.snapshot(digest), *(latest or (None, None))))
    return found


def _announced(
    publisher: HeadPublisher,
    repository: RepositoryRef,
    number: int,
    claim: Claim,
    judged: Snapshot | None,
    finished: Sequence[str],
) -> tuple[list[str], bool]:
    """Finish what was announced of earlier heads, and announce the newest one unless it has been judged already.

    ``finished`` are the earlier heads of which that is known. Returns them with those of now, and whether what was judged is
    what was announced: nothing is begun any more at a head that was left, and no verdict is shown for another base branch.
    """
    head, base_ref = str(claim.payload.get("head") or ""), str(claim.payload.get("base_ref") or "")
    closed = judged is not None and not judged.open  # it is not announced, so what was announced last may be older
    newest = judged.key.head_sha if judged is not None and (closed or not head) else head
    done = [earlier for earlier in finished if earlier != newest]
    for earlier in [*str(claim.payload.get("left") or "").split(), head]:
        if earlier not in ("", newest, *done):
            publisher.leave(repository, number, earlier, newest)
            done.append(earlier)
    current = judged is not None and (judged.key.head_sha, judged.base_ref) == (head, base_ref)
    if head and not closed and not current:
        publisher.announce(repository, number, head, base_ref)
    return done[-HEADS_LEFT:], current or closed or not head
