"""What is asked of workers, when, and when it is taken back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from gatekeeper.domain.evidence import Evidence, RaceEvidence, TreeSubject
from gatekeeper.domain.jobs import JobKind, JobState
from gatekeeper.domain.policy import (
    ApprovalRequirement,
    Check,
    Finding,
    Outcome,
    PolicyResult,
    ProbeRequirement,
    RaceRequirement,
    Requirement,
    Severity,
)  # fmt: skip
from gatekeeper.domain.precedence import WAITS, race_waits_for
from gatekeeper.domain.race import ProbeRequest, TreeSource
from gatekeeper.domain.snapshot import Author, Snapshot
from gatekeeper.domain.verdict import Verdict, decide
from gatekeeper.services import needs
from gatekeeper.store.jobs import JobRow
from gatekeeper.store.unit_of_work import Store
from tests import race_samples
from tests.builders import DIGEST, NOW, sha, snapshot

SOURCE = TreeSource(repository_id=7, tree=sha("1"), directory="a/b", entry_point="a.b.gate:candidate")
RACE = RaceRequirement(request=race_samples.request(candidate=SOURCE))
PROBE = ProbeRequirement(request=ProbeRequest(source=SOURCE))
APPROVAL = ApprovalRequirement(head_sha=sha("a"), author="ada")
KEY = RACE.request.digest()


def race_of(tree: str, alpha: float = 0.01) -> RaceRequirement:
    source = SOURCE.model_copy(update={"tree": sha(tree)})
    return RaceRequirement(request=race_samples.request(candidate=source), alpha=alpha)


def result(check: Check, outcome: Outcome, *requirements: Requirement, blocking: bool = True) -> PolicyResult:
    return PolicyResult(
        policy=f"rule_{check.name.lower()}", check=check, outcome=outcome, title="a rule", summary="so it is",
        severity=Severity.BLOCKING if blocking else Severity.ADVISORY, requirements=requirements, parameters=DIGEST,
    )  # fmt: skip


def judged(
    of: str, *requirements: Requirement, isolation: Outcome = Outcome.PASSED, blocking: bool = True,
    evidence: Sequence[str] = (), supersedes: str | None = None,
) -> Verdict:  # fmt: skip
    results = (
        result(Check.ISOLATION, isolation, blocking=blocking),
        result(Check.SCOPE, Outcome.PASSED),
        result(Check.BENCHMARKS, Outcome.PENDING if requirements else Outcome.PASSED, *requirements),
        result(Check.CONTRIBUTOR_LOG, Outcome.PASSED),
    )
    return decide(
        snapshot=of, policy_set=DIGEST, policy_set_name="default", evidence=tuple(evidence), results=results,
        supersedes=supersedes, now=NOW,
    )  # fmt: skip


class Pull:
    """One pull request in a store, and the verdicts over it one after the other."""

    def __init__(self, store: Store, of: Snapshot | None = None, tree: str = "1") -> None:
        self.store, self.last = store, None
        self.show(of or snapshot(), tree)

    def show(self, of: Snapshot, tree: str = "1") -> None:
        self.of, self.before = of, None
        with self.store.begin() as uow:
            self.digest = uow.put_snapshot(of)
            uow.note_trees(self.digest, [sha(tree)])

    def judge(self, *requirements: Requirement, **facts: object) -> None:
        with self.store.begin() as uow:
            latest = uow.latest_verdict(self.digest)
            verdict = judged(self.digest, *requirements, supersedes=latest[0] if latest else None, **facts)  # type: ignore[arg-type]
            uow.put_verdict(verdict)
            needs.ask(uow, self.digest, self.of, latest[1] if latest else None, verdict, None)


@pytest.fixture
def pull(store: Store) -> Pull:
    return Pull(store)


def job(store: Store, key: str = KEY, kind: JobKind = JobKind.RACE) -> JobRow | None:
    with store.read() as uow:
        return uow.job_named(kind, key)


def ended(store: Store, state: JobState = JobState.SUCCEEDED, key: str = KEY, error: str | None = None) -> None:
    row = job(store, key)
    assert row is not None
    with store.begin() as uow:
        claim = uow.claim(row.id, timedelta(seconds=60))
        assert claim is not None
        uow.finish(claim, state, error)


def state_of(store: Store, key: str = KEY, kind: JobKind = JobKind.RACE) -> str | None:
    row = job(store, key, kind)
    if row is not None and row.state is JobState.FAILED:
        return "cancelled" if needs.was_cancelled(row) else "failed"
    return None if row is None else row.state.value


@pytest.mark.parametrize(
    ("requirements", "isolation", "blocking", "raced"),
    [
        ((RACE,), Outcome.PASSED, True, True),
        ((RACE,), Outcome.FAILED, True, False),
        ((RACE,), Outcome.FAILED, False, True),
        ((RACE,), Outcome.PENDING, True, True),
        ((RACE, PROBE), Outcome.PASSED, True, False),
        ((RACE, APPROVAL), Outcome.PASSED, True, False),
    ],
    ids=["nothing else", "failed statically", "only advised against", "held", "not probed", "not approved"],
)
def test_a_race_starts_only_when_the_cheap_facts_are_settled(
    pull: Pull, requirements: tuple[Requirement, ...], isolation: Outcome, blocking: bool, raced: bool
) -> None:
    pull.judge(*requirements, isolation=isolation, blocking=blocking)
    assert (state_of(pull.store) == "queued") is raced
    assert (state_of(pull.store, PROBE.request.digest(), JobKind.PROBE) == "queued") is (PROBE in requirements)
    with pull.store.read() as uow:
        verdict = uow.latest_verdict(pull.digest)
    assert verdict is not None
    benchmarks = next(check for check in verdict[1].checks if check.check is Check.BENCHMARKS)
    notes = [finding for each in verdict[1].results for finding in each.findings if finding.code == WAITS]
    assert benchmarks.outcome is Outcome.PENDING, "what was not raced does not pass"
    assert bool(notes) is ("not raced yet" in benchmarks.summary) is not raced


def test_the_check_says_what_its_race_waits_for(pull: Pull) -> None:
    verdict = judged(pull.digest, RACE, PROBE, isolation=Outcome.FAILED)
    summary = next(check.summary for check in verdict.checks if check.check is Check.BENCHMARKS)
    assert summary == (
        "not raced yet: waits for `rule_isolation`, which has failed, to pass and for the probe of its code"
    )


@pytest.mark.parametrize(
    ("owners", "told"),
    [((), "to pass"), (("@mira",), "to pass or to be waived"), (("@mira", ""), "to pass")],
    ids=["nobody may waive it", "somebody may", "one of two"],
)
def test_a_waiver_is_spoken_of_only_where_somebody_may_give_it(owners: tuple[str, ...], told: str) -> None:
    found = tuple(
        Finding(code="ISO_X", message="m", waivable_by=(owner,) if owner else ()) for owner in owners or ("",)
    )
    failed = result(Check.ISOLATION, Outcome.FAILED).model_copy(update={"findings": found})
    assert race_waits_for([failed]) == (f"`rule_isolation`, which has failed, {told}",)


def test_a_waiver_that_comes_and_goes_starts_the_race_and_takes_it_back(pull: Pull) -> None:
    pull.judge(RACE, isolation=Outcome.FAILED)
    pull.judge(RACE)
    assert state_of(pull.store) == "queued"
    pull.judge(RACE, isolation=Outcome.FAILED)
    assert state_of(pull.store) == "cancelled"
    pull.judge(RACE)
    assert state_of(pull.store) == "queued"


def test_a_running_race_is_taken_back_when_its_approval_is(pull: Pull) -> None:
    pull.judge(RACE)
    row = job(pull.store)
    assert row is not None
    with pull.store.begin() as uow:
        claim = uow.claim(row.id, timedelta(seconds=60))
    pull.judge(APPROVAL)
    assert state_of(pull.store) == "cancelled" and claim is not None
    with pull.store.read() as uow:
        assert not uow.owns(claim)


def test_a_closed_pull_request_asks_for_nothing_and_its_running_race_is_taken_back(pull: Pull) -> None:
    pull.judge(RACE)
    pull.show(pull.of.model_copy(update={"open": False}))
    pull.judge(RACE, PROBE)
    assert state_of(pull.store) == "cancelled"
    assert state_of(pull.store, PROBE.request.digest(), JobKind.PROBE) is None
    pull.show(pull.of.model_copy(update={"open": True}))
    pull.judge(RACE)
    assert state_of(pull.store) == "queued", "opened again it is raced after all"


def test_a_new_head_takes_back_the_race_of_the_old_one_also_past_a_head_that_was_never_judged(pull: Pull) -> None:
    pull.judge(RACE)
    pull.show(snapshot(head="9", merge_tree="8"), tree="3")
    pull.show(snapshot(head="f", merge_tree="7"), tree="2")
    assert state_of(pull.store) == "queued", "not before the new head is judged"
    pull.judge(race_of("2"))
    assert (state_of(pull.store), state_of(pull.store, race_of("2").request.digest())) == ("cancelled", "queued")


def test_a_moved_base_that_leaves_the_tree_alone_leaves_its_race_alone(pull: Pull) -> None:
    pull.judge(RACE)
    moved = pull.of.model_copy(update={"key": pull.of.key.model_copy(update={"base_sha": sha("9")})})
    pull.show(moved)
    pull.judge(RACE)
    row = job(pull.store)
    assert row is not None and (row.state, row.asked) == (JobState.QUEUED, 1)


def test_a_race_that_another_open_pull_request_needs_is_left_alone(pull: Pull) -> None:
    other = Pull(pull.store, snapshot(2))
    pull.judge(RACE)
    other.judge(RACE)
    pull.judge(RACE, isolation=Outcome.FAILED)
    assert state_of(pull.store) == "queued"
    other.show(other.of.model_copy(update={"open": False}))
    other.judge(RACE)
    pull.judge(RACE, isolation=Outcome.FAILED)
    assert state_of(pull.store) == "cancelled", "the one that is left may not have it"


def test_the_stricter_alpha_serves_both_while_the_race_waits(pull: Pull) -> None:
    pull.judge(race_of("1", 0.005))
    Pull(pull.store, snapshot(2)).judge(race_of("1", 0.01))
    pull.judge(race_of("1", 0.0025))
    row = job(pull.store)
    assert row is not None and row.payload == {"alpha": 0.0025, "author": 3}


def evidence(minutes: int) -> Evidence:
    subject = TreeSubject(
        tree=SOURCE.tree, directory=SOURCE.directory, suite=DIGEST, target="cpu", target_digest=DIGEST
    )
    body = RaceEvidence(request=KEY, result=race_samples.result())
    return Evidence(subject=subject, recorded_at=NOW + timedelta(minutes=minutes), body=body)


def test_a_race_that_succeeded_is_run_again_once_its_evidence_no_longer_counts(pull: Pull) -> None:
    pull.judge(RACE)
    with pull.store.begin() as uow:
        known = uow.put_evidence(evidence(0))
    ended(pull.store)
    pull.judge(RACE, evidence=())
    assert state_of(pull.store) == "succeeded", "this verdict has not seen the evidence yet"
    pull.judge(RACE, evidence=(known,))
    row = job(pull.store)
    assert row is not None and (row.state, row.attempt) == (JobState.QUEUED, 0)


def test_what_was_given_up_is_not_asked_for_again_by_itself(pull: Pull) -> None:
    pull.judge(RACE, PROBE)
    pull.judge(RACE)
    ended(pull.store, JobState.FAILED, error="RUN_REFUSED: the worker refuses the order")
    pull.judge(RACE)
    assert state_of(pull.store) == "failed"
    with pull.store.read() as uow:
        verdict = uow.latest_verdict(pull.digest)
        assert verdict is not None
        assert [(need.kind, row.error) for need, row in needs.given_up(uow, verdict[1])] == [
            ("race", "RUN_REFUSED: the worker refuses the order")
        ]


def test_probes_go_first_and_one_author_does_not_fill_the_queue(store: Store) -> None:
    trees = "0123456789"
    for number, tree in enumerate(trees, start=1):
        Pull(store, snapshot(number), tree).judge(race_of(tree))
    ben = snapshot(99).model_copy(update={"author": Author(id=5, login="ben")})
    Pull(store, ben, "b").judge(race_of("b"))
    Pull(store, snapshot(98)).judge(PROBE)
    with store.read() as uow:
        due = [uow.job(job_id) for job_id in uow.due_jobs(20, [JobKind.RACE, JobKind.PROBE])]
    rows = [row for row in due if row is not None]
    assert rows[0].kind is JobKind.PROBE
    assert [row.payload["author"] for row in rows[1:4]].count(5) == 1, "behind at most two of the ten that came before"
    assert len(rows) == 12
