"""From the store to what is shown. Reads only: no service, no write, no call to GitHub."""

from __future__ import annotations

import re

from gatekeeper import texts
from gatekeeper.domain.bundle import Bundle
from gatekeeper.domain.errors import Rejected
from gatekeeper.domain.evidence import (
    Approval,
    BudgetReset,
    Evidence,
    ProbeEvidence,
    RaceEvidence,
    TreeSubject,
    Waiver,
    Withdrawal,
)
from gatekeeper.domain.policy import Outcome, Severity
from gatekeeper.domain.race import RaceRequest
from gatekeeper.domain.repository import RepositoryConfiguration
from gatekeeper.domain.snapshot import NULL_ID, Author, Snapshot
from gatekeeper.domain.verdict import CheckResult, Verdict
from gatekeeper.services import decided
from gatekeeper.services.evaluate import CONFIGURATION
from gatekeeper.store.projections import evidence_of_request, pull_lines
from gatekeeper.store.pulls import Pull, Repository
from gatekeeper.store.unit_of_work import ReadUnit
from gatekeeper.web.errors import NotFound
from gatekeeper.web.filters import PullFilter
from gatekeeper.web.race_views import RACE_REQUEST, ended, races_of, waiting
from gatekeeper.web.views import (
    ChainRow,
    CheckView,
    EvidenceRow,
    PolicyView,
    PublicationRow,
    PullList,
    PullPage,
    PullRow,
    RaceView,
)
from gatekeeper.web.work_views import PUBLISHERS, waiting_jobs

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_HEX = re.compile(r"[0-9a-f]{64}")


def pull_list(uow: ReadUnit, filters: PullFilter) -> PullList:
    """Return the page of the list that a filter asks for."""
    total, lines = pull_lines(
        uow,
        limit=filters.limit,
        offset=filters.offset,
        open=None if filters.state == "all" else filters.state == "open",
        outcome=filters.outcome.value if filters.outcome else None,
        repository=filters.repository or None,
        text=filters.text or None,
    )
    rows = tuple(
        PullRow.model_validate({**line.model_dump(), "outcome": line.outcome or Outcome.PENDING.value})
        for line in lines
    )
    return PullList(total=total, limit=filters.limit, offset=filters.offset, pulls=rows)


def _known_pull(uow: ReadUnit, owner: str, repo: str, number: int) -> tuple[Repository, Pull]:
    if not (_NAME.fullmatch(owner) and _NAME.fullmatch(repo)) or not 0 < number < 1 << 31:
        raise NotFound
    repository = uow.repository_named(f"{owner}/{repo}")
    pull = uow.pull(repository.id, number) if repository else None
    if repository is None or pull is None:
        raise NotFound
    return repository, pull


def bundle(uow: ReadUnit, owner: str, repo: str, number: int) -> Bundle:
    """Return the documents that a pull request's present verdict was decided from.

    Raises:
        NotFound: if there is no such pull request here, or no verdict yet.
    """
    _, pull = _known_pull(uow, owner, repo, number)
    if pull.snapshot is None or pull.verdict is None:
        raise NotFound
    snapshot, verdict = uow.snapshot(pull.snapshot), uow.verdict(pull.verdict)
    return Bundle(
        snapshot=snapshot,
        configuration=uow.document(CONFIGURATION, snapshot.configuration, RepositoryConfiguration),
        evidence=tuple(uow.evidence(digest) for digest in verdict.evidence),
        verdict=verdict,
    )


def pull_page(uow: ReadUnit, owner: str, repo: str, number: int) -> PullPage:
    """Return everything about a pull request.

    Raises:
        NotFound: if there is no such pull request here, or the names could not be names.
    """
    repository, pull = _known_pull(uow, owner, repo, number)
    snapshot = uow.snapshot(pull.snapshot) if pull.snapshot else None
    verdict = uow.verdict(pull.verdict) if pull.verdict else None
    evidence = [(digest, uow.evidence(digest)) for digest in verdict.evidence] if verdict else []
    earlier = _of_earlier_pushes(uow, pull, snapshot, evidence)
    now = [each for each in evidence if each[0] not in earlier]
    return PullPage(
        repository=repository.full_name,
        repository_id=repository.id,
        number=number,
        title=pull.title,
        author=snapshot.author if snapshot else Author(id=pull.author_id, login=pull.author_login),
        base_ref=pull.base_ref,
        head_sha=pull.head_sha,
        base_sha=snapshot.key.base_sha if snapshot and snapshot.key.base_sha != NULL_ID else None,
        merge_tree=snapshot.merge_tree if snapshot else None,
        open=pull.open,
        draft=pull.draft,
        outcome=verdict.outcome if verdict else Outcome.PENDING,
        headline=texts.verdict_title(verdict) if verdict else "not judged yet",
        snapshot=pull.snapshot,
        verdict=pull.verdict,
        decided_at=verdict.decided_at if verdict else None,
        policy_set=verdict.policy_set if verdict else None,
        policy_set_name=verdict.policy_set_name if verdict else None,
        mode=verdict.mode if verdict else None,
        changed_files=_changed_files(snapshot),
        checks=tuple(check_view(verdict, check) for check in verdict.checks) if verdict else (),
        races=tuple(races_of(uow, snapshot, verdict, now)) if snapshot and verdict else (),
        evidence=tuple(evidence_row(digest, item, earlier=digest in earlier) for digest, item in evidence),
        chain=chain(uow, pull.snapshot),
        jobs=tuple(waiting_jobs(uow, pull, snapshot, verdict)),
        published=publications(uow, pull),
        left=tuple(decided.left(uow, pull, snapshot, verdict)) if snapshot else (),
    )


def _changed_files(snapshot: Snapshot | None) -> int | None:
    if snapshot is None or snapshot.refusal is not None:
        return None
    return len({change.path for comparison in snapshot.proposed for change in comparison.changes})


def check_view(verdict: Verdict, result: CheckResult) -> CheckView:
    """Return a check with the policies behind it; policies that are switched off are left out."""
    policies = tuple(
        PolicyView(
            policy=policy.policy,
            title=policy.title,
            severity=policy.severity.value,
            outcome=policy.outcome,
            summary=policy.summary,
            findings=policy.findings,
            waits_for=tuple(texts.waits_for_plainly(requirement) for requirement in policy.requirements),
        )
        for policy in verdict.results
        if policy.check is result.check and policy.severity is not Severity.OFF
    )
    return CheckView(
        check=result.check.value,
        name=texts.CHECK_NAMES[result.check],
        question=texts.CHECK_QUESTIONS[result.check],
        outcome=result.outcome,
        judged=result.judged,
        summary=result.summary,
        policies=policies,
    )


def _of_earlier_pushes(
    uow: ReadUnit, pull: Pull, snapshot: Snapshot | None, evidence: list[tuple[str, Evidence]]
) -> frozenset[str]:
    """Races of trees that the pull request no longer has: they count against its budget and say nothing about this head."""
    if snapshot is None or pull.snapshot is None:
        return frozenset()
    left = uow.trees_left_behind(snapshot, pull.snapshot)
    return frozenset(
        digest for digest, item in evidence if isinstance(item.subject, TreeSubject) and item.subject.tree in left
    )


def evidence_row(digest: str, evidence: Evidence, *, earlier: bool = False) -> EvidenceRow:
    """Return one line about a piece of evidence; ``earlier`` says that it is about a push that has been replaced."""
    race = None
    match evidence.body:
        case RaceEvidence() as body:
            summary, race = texts.RACE_SENTENCES[body.result.outcome], body.request.removeprefix("sha256:")
        case ProbeEvidence() as body:
            faults = len(body.result.faults)
            summary = f"Probed {texts.JAIL_WORDS[body.result.jail]}: {texts.plural(faults, 'fault') if faults else 'no fault'}."
        case Waiver() as body:
            summary = f"{body.by} lets {body.code} of {body.policy} pass: {body.reason}"
        case Approval() as body:
            reason = f": {body.reason}" if body.reason else "."
            summary = f"{body.by} allows this head's code to be run in the jail{reason}"
        case BudgetReset() as body:
            summary = f"{body.by} lets the count of races begin anew: {body.reason}"
        case Withdrawal() as body:
            summary = f"{body.by} takes back the decision {body.of.removeprefix('sha256:')[:12]}: {body.reason}"
    return EvidenceRow(
        digest=digest,
        kind=evidence.body.kind,
        origin=evidence.origin.value,
        summary=f"An earlier push, which counts against the budget of races: {summary}" if earlier else summary,
        recorded_at=evidence.recorded_at,
        race=race,
    )


def chain(uow: ReadUnit, snapshot: str | None) -> tuple[ChainRow, ...]:
    """Return the verdicts of a snapshot, newest first."""
    if snapshot is None:
        return ()
    rows = [
        ChainRow(
            digest=digest,
            outcome=verdict.outcome,
            decided_at=verdict.decided_at,
            supersedes=verdict.supersedes,
            summary=texts.verdict_title(verdict),
        )
        for digest, verdict in uow.verdicts(snapshot)
    ]
    return tuple(reversed(rows))


def publications(uow: ReadUnit, pull: Pull) -> tuple[PublicationRow, ...]:
    """Return where a verdict of this pull request was shown last."""
    rows = [uow.published(name, pull.repository_id, pull.number) for name in PUBLISHERS]
    return tuple(PublicationRow(publisher=row.publisher, verdict=row.verdict, at=row.at) for row in rows if row)


def verdict_document(uow: ReadUnit, name: str) -> Verdict:
    """Return a verdict by its digest, with or without ``sha256:``. Raises :class:`NotFound`."""
    return uow.verdict(digest_of(name))


def race_page(uow: ReadUnit, name: str) -> RaceView:
    """Return a race by the digest of its request, whether it has ended or not. Raises :class:`NotFound`."""
    digest = digest_of(name)
    found = evidence_of_request(uow, digest)
    if found is not None and isinstance(found[1].body, RaceEvidence):
        return ended(uow, found[0], found[1], found[1].body)
    try:
        return waiting(uow, digest, uow.document(RACE_REQUEST, digest, RaceRequest))
    except Rejected:
        raise NotFound from None


def digest_of(name: str) -> str:
    """Return the full digest, or raise :class:`NotFound` for what cannot be one."""
    digits = name.removeprefix("sha256:")
    if not _HEX.fullmatch(digits):
        raise NotFound
    return f"sha256:{digits}"
