"""Stored races: which count, at which alpha, what is asked for, and what the checks say."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from gatekeeper.domain.catalog import JailLevel
from gatekeeper.domain.errors import GatekeeperError
from gatekeeper.domain.evidence import BudgetReset, Evidence, PullSubject, RaceEvidence, TreeSubject, Waiver, Withdrawal
from gatekeeper.domain.policy import LogRequirement, Outcome, RaceRequirement, Report, outcome_of
from gatekeeper.domain.race import RaceOutcome, RaceRequest, RaceResult, TreeSource
from gatekeeper.domain.race_evidence import RaceParameters, ask, standing, waived
from gatekeeper.domain.race_findings import report_jail, report_rightness, report_speed, summary_of
from gatekeeper.domain.samples import FaultEffect, RaceFault
from policies.merge import kernel_is_right
from tests import race_samples as make

TREE, OTHER = "1" * 40, "2" * 40


def request(**changes: object) -> RaceRequest:
    source = TreeSource(repository_id=1, tree=TREE, directory="a/b", entry_point="m:c")
    return make.request(candidate=source, **changes)  # type: ignore[arg-type]


def evidence(
    result: RaceResult, *, tree: str = TREE, hours: int = 0, suite: str = make.SUITE, directory: str = "a/b",
    purpose: str = "verdict",
) -> Evidence:  # fmt: skip
    subject = TreeSubject(
        tree=tree, directory=directory, suite=suite, target="cpu", target_digest=make.target().digest()
    )
    body = RaceEvidence(request=make.SUITE, purpose=purpose, result=result)
    return Evidence(subject=subject, recorded_at=make.NOON + timedelta(hours=hours), body=body)


def reset(hours: int, *, head: str = OTHER) -> Evidence:
    subject = PullSubject(repository_id=1, number=1, head_sha=head)
    body = BudgetReset(by="@owner", reason="the noise was ours")
    return Evidence(subject=subject, recorded_at=make.NOON + timedelta(hours=hours), body=body)


def stand(*items: Evidence, days: float = 1, wanted: RaceRequest | None = None):  # type: ignore[no-untyped-def]
    return standing(wanted or request(), items, make.NOON + timedelta(days=days), RaceParameters())


def speed(*items: Evidence, claims: dict[str, float] | None = None) -> Report:
    report = Report()
    report_speed(report, stand(*items), claims or {})
    return report


@pytest.mark.parametrize(
    ("items", "days"),
    [((), 1.0), ((evidence(make.result()),), 40.0), ((evidence(make.result(), tree=OTHER),), 1.0),
     ((evidence(make.result(), suite="sha256:" + "b" * 64),), 1.0)],
)  # fmt: skip
def test_without_fitting_evidence_a_race_is_asked_for(items: tuple[Evidence, ...], days: float) -> None:
    report, found = Report(), stand(*items, days=days)
    assert ask(report, found, asked_for="being right") and outcome_of(report) is Outcome.PENDING
    assert isinstance(report.requirements[0], RaceRequirement) and found.decision is None
    assert not ask(Report(), stand(evidence(make.result())), asked_for="being right")


def test_a_target_that_we_do_not_own_needs_a_log_unless_waived_by_name() -> None:
    report, found = Report(), stand(wanted=request(target=make.target(owned=False)))
    assert ask(report, found, asked_for="being right") and report.requirements == [LogRequirement(target="cpu")]


@pytest.mark.parametrize(
    ("by", "target", "head", "number", "effect"),
    [("@owner", "cpu", OTHER, 1, True), ("@owner", "gb300", OTHER, 1, False), ("@owner", "cpu", TREE, 1, False),
     ("@owner", "cpu", OTHER, 2, False), ("@stranger", "cpu", OTHER, 1, False), ("@author", "cpu", OTHER, 1, False)],
)  # fmt: skip
def test_only_another_maintainer_waives_a_target_and_only_for_this_head(
    by: str, target: str, head: str, number: int, effect: bool
) -> None:
    pull = PullSubject(repository_id=1, number=number, head_sha=head)
    waiver = Waiver(policy="kernel_is_right", code="BENCH_NO_EVIDENCE", path="cpu", by=by, reason="no machine")
    item = Evidence(subject=pull, recorded_at=make.NOON, body=waiver)
    subject: Any = SimpleNamespace(
        evidence=(item,),
        base=SimpleNamespace(entry=lambda path: None),
        configuration=SimpleNamespace(maintainers=("@owner", "@author"), teams={}),
        snapshot=SimpleNamespace(
            author=SimpleNamespace(login="author"),
            key=SimpleNamespace(repository_id=1, number=1, head_sha=OTHER),
        ),
    )
    assert (waived(subject, target, "kernel_is_right") == by) is effect


def test_each_earlier_race_halves_alpha() -> None:
    earlier = [evidence(make.result(), tree=f"{index:040x}", hours=index) for index in range(3)]
    assert stand(*earlier).alpha == 0.00125
    assert stand(earlier[0], evidence(make.result(), hours=9)).alpha == 0.005
    assert stand(evidence(make.result())).alpha == 0.01


@pytest.mark.parametrize(
    ("earlier", "alpha"),
    [
        (evidence(make.result(), tree=OTHER, directory="a/renamed"), 0.005),
        (evidence(make.result(outcome=RaceOutcome.WORSE), tree=OTHER), 0.005),
        (evidence(make.result(), suite="sha256:" + "b" * 64), 0.005),
        (evidence(make.result(), tree=OTHER, purpose="audit"), 0.01),
        (evidence(make.result(outcome=RaceOutcome.VOID), tree=OTHER), 0.01),
        (evidence(make.result(), tree=OTHER, hours=12), 0.01),
    ],
    ids=["another directory", "a lost race", "an older suite", "our audit", "a void race", "a later race"],
)
def test_what_costs_a_pull_request_half_of_its_alpha(earlier: Evidence, alpha: float) -> None:
    assert stand(earlier, evidence(make.result(), hours=9)).alpha == alpha


def test_a_reset_forgets_earlier_races_at_any_later_head_but_never_changes_a_race_that_was_run() -> None:
    lost = [evidence(make.result(), tree=f"{index:040x}", hours=index) for index in range(3)]
    assert stand(*lost, reset(5)).alpha == 0.01
    assert stand(*lost, reset(5), evidence(make.result(), tree=OTHER, hours=6)).alpha == 0.005
    assert stand(*lost, evidence(make.result(), hours=4), reset(5)).alpha == 0.00125
    given = reset(5)
    withdrawal = Withdrawal(of=given.digest(), by="@owner", reason="the wrong pull request")
    back = Evidence(subject=given.subject, recorded_at=make.NOON + timedelta(hours=7), body=withdrawal)
    assert stand(*lost, given, back).alpha == 0.00125


def test_a_claimed_outcome_is_not_believed() -> None:
    liar = make.result(make.record(timed=make.blocks(20, -0.1, 0.005)), outcome=RaceOutcome.BETTER)
    assert {finding.code for finding in speed(evidence(liar)).findings if finding.effect == "fail"} == {"BENCH_WORSE"}
    assert outcome_of(speed(evidence(make.result()))) is Outcome.PASSED


@pytest.mark.parametrize(("claim", "outcome"), [(1.19, Outcome.PASSED), (1.21, Outcome.FAILED)])
def test_the_claim_is_compared_with_the_lower_bound(claim: float, outcome: Outcome) -> None:
    assert outcome_of(speed(evidence(make.result()), claims={"cpu": claim, "gb300": 9.0})) is outcome


def test_what_was_wrong_at_an_edge_comes_with_the_command_that_shows_it_again() -> None:
    wrong = make.result(make.record(errors=(make.error(rms=0.1), make.error(check="timed"))))
    how = RaceFault(
        code="COR_BOUNDARY", effect=FaultEffect.NOTE, where="rows=3", expected="right", found="gatekeeper race --rows 3"
    )
    report = Report()
    report_rightness(report, stand(evidence(wrong.model_copy(update={"faults": (how,)}))))
    (note,) = [finding for finding in report.findings if finding.code == "COR_BOUNDARY"]
    assert note.effect == "note" and note.found == "gatekeeper race --rows 3"


def test_a_wrong_candidate_fails_both_checks_and_an_honest_one_none() -> None:
    wrong = make.result(make.record(errors=(make.error(rms=0.1), make.error(check="timed"))))
    report = Report()
    report_rightness(report, stand(evidence(wrong)))
    finding = report.findings[0]
    assert finding.code == "COR_MISMATCH" and "at most 0.015" in finding.expected and finding.found == "0.1"
    assert make.configuration().label in finding.message
    assert outcome_of(speed(evidence(wrong))) is Outcome.FAILED
    honest = Report()
    report_rightness(honest, stand(evidence(make.result())))
    assert outcome_of(honest) is Outcome.PASSED


@pytest.mark.parametrize(("least", "outcome"), [(JailLevel.JAIL, Outcome.FAILED), (JailLevel.PROCESS, Outcome.PASSED)])
def test_the_jail_must_be_strong_enough(least: JailLevel, outcome: Outcome) -> None:
    report = Report()
    report_jail(report, stand(evidence(make.result())), least)
    assert outcome_of(report) is outcome


def test_only_void_races_are_an_error() -> None:
    with pytest.raises(GatekeeperError, match="BENCH_VOID"):
        stand(evidence(make.result(make.record(errors=()))))


EARLY = make.result(make.record(timed=make.blocks(6, 0.2, 0.005)))
VOID = make.result(make.record(errors=()))


def test_a_race_that_ends_too_early_for_its_alpha_is_pooled_with_a_second_one() -> None:
    found = stand(evidence(EARLY))
    assert found.decision is None and found.alpha == 0.005
    again = stand(evidence(EARLY), evidence(make.result(), hours=1))
    assert again.decision is not None and again.decision.outcome is RaceOutcome.BETTER
    assert again.alpha == 0.005 and again.decision.figures[0].blocks == 26


def test_a_void_race_after_one_that_ended_too_early_is_an_error_and_not_asked_for_for_ever() -> None:
    with pytest.raises(GatekeeperError, match="BENCH_VOID"):
        stand(evidence(EARLY), evidence(VOID, hours=1))


def test_the_summary_names_what_was_measured() -> None:
    assert summary_of(stand(evidence(make.result()))).startswith("on cpu: better, at least 1.195 ")
    assert "comm=shard" in summary_of(stand(evidence(make.result())))
    assert summary_of(stand()) == "on cpu: waits for a race"


@pytest.mark.parametrize(
    ("of", "told"),
    [
        (
            make.result(make.record(timed=make.blocks(20, -0.1, 0.005, seed=3))),
            "no wrong answer at 1 advertised configuration",
        ),
        (make.result(make.record(errors=(make.error(rms=0.9), make.error(check="timed")))), "wrong answers"),
    ],
    ids=["slower", "wrong"],
)
def test_whether_answers_are_right_is_told_without_the_times(
    monkeypatch: pytest.MonkeyPatch, of: RaceResult, told: str
) -> None:
    now = stand(evidence(of))

    def judged(_subject: Any, _parameters: Any, *, report_on: Any, **_named: Any) -> Report:
        report = Report()
        report_on(report, None, now)
        report.summary = f"{summary_of(now)}; on gb300: waits for a log"
        return report

    monkeypatch.setattr(kernel_is_right, "judge_races", judged)
    report = kernel_is_right.POLICY.judge(None, RaceParameters())  # type: ignore[arg-type]
    assert report.summary == f"on cpu: {told}; on gb300: waits for a log"
    assert report.fails() == (told == "wrong answers")
