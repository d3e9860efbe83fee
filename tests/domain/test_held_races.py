"""What a race holds for a person: a maintainer's waiver settles it, and settles nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from gatekeeper.domain.evidence import BudgetReset, Evidence, PullSubject, Waiver
from gatekeeper.domain.policy import Effect, Finding, Report
from gatekeeper.domain.race_judging import NOTHING_TO_RACE, _with_waivers, heeded, too_short
from tests import race_samples as make

HEAD = "a" * 40
POLICY = "kernel_is_faster"


def scene(body: Waiver | BudgetReset) -> Any:
    subject = PullSubject(repository_id=1, number=2, head_sha=HEAD)
    given = Evidence(subject=subject, recorded_at=datetime(2026, 1, 2, tzinfo=UTC), body=body)
    return SimpleNamespace(
        snapshot=SimpleNamespace(
            key=SimpleNamespace(repository_id=1, number=2, head_sha=HEAD), author=SimpleNamespace(login="ann")
        ),
        configuration=SimpleNamespace(maintainers=("@mira", "@ann"), teams={}),
        base=SimpleNamespace(entry=lambda path: None),
        evidence=(given,),
    )


def judged(finding: Finding, by: str, code: str = "TIM_IMPLAUSIBLE") -> list[Finding]:
    body = Waiver(policy=POLICY, code=code, by=by, reason="measured it by hand as well")
    return _with_waivers(scene(body), [finding], POLICY)


@pytest.mark.parametrize(("by", "counts"), [("mira", 1), ("@Mira", 1), ("ann", 0), ("stranger", 0)])
def test_only_a_maintainers_reset_of_the_budget_is_heeded(by: str, counts: int) -> None:
    assert len(heeded(scene(BudgetReset(by=by, reason="the noise was ours")))) == counts


def found(effect: Effect, code: str = "TIM_IMPLAUSIBLE") -> Finding:
    return Finding(code=code, message="cpu, rows=8: faster than its memory allows", effect=effect)


@pytest.mark.parametrize(("by", "waived"), [("mira", True), ("ann", False), ("stranger", False)])
def test_a_held_race_is_a_maintainers_to_waive(by: str, waived: bool) -> None:
    first, *notes = judged(found(Effect.HOLD), by)
    assert (first.effect, first.waived_by) == ((Effect.NOTE, by) if waived else (Effect.HOLD, None))
    assert first.waivable_by == ("@mira", "@ann")
    assert [note.code for note in notes] == ([] if waived else ["WAIVER_NO_RIGHT"])


@pytest.mark.parametrize(
    "finding", [found(Effect.FAIL), found(Effect.HOLD, "TIM_BIMODAL"), found(Effect.HOLD, NOTHING_TO_RACE)]
)
def test_a_failed_race_another_finding_and_a_race_that_never_was_are_not_settled_by_it(finding: Finding) -> None:
    code = finding.code if finding.code == NOTHING_TO_RACE else "TIM_IMPLAUSIBLE"
    first = judged(finding, "mira", code)[0]
    assert (first.effect, first.waived_by) == (finding.effect, None)


def test_a_waiver_of_a_whole_target_is_not_told_off_here() -> None:
    note = Finding(code="BENCH_NO_EVIDENCE", message="gb300: waived by mira", effect=Effect.NOTE)
    assert judged(note, "mira", "BENCH_NO_EVIDENCE") == [note]


@pytest.mark.parametrize(("contexts", "short"), [((1,), True), ((1, 7), True), ((8,), False), ((1, 64), False)])
def test_the_weakest_race_still_holds_a_whole_run(contexts: tuple[int, ...], short: bool) -> None:
    configurations = tuple(make.configuration(1).model_copy(update={"context": context}) for context in contexts)
    report = Report()
    assert too_short(report, make.request(configurations=configurations)) is short
    assert [(f.code, f.effect, f.found) for f in report.findings] == (
        [("BENCH_CONTEXT_SHORT", Effect.FAIL, f"at most {max(contexts)}")] if short else []
    )
