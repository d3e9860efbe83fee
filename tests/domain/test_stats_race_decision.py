"""Every outcome is reached from raw samples, and each trick has an honest twin that passes."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from gatekeeper.domain.catalog import Noise
from gatekeeper.domain.decision import Decision
from gatekeeper.domain.race import RaceOutcome, RaceResult, RaceStatus
from gatekeeper.domain.race_decision import decide_race, judge_times, pooled, should_stop
from gatekeeper.domain.samples import ArmRecord, FaultEffect, RaceFault, SelfProof, SupportAnswer
from tests import race_samples as make


def decide(result: RaceResult, **changes: object) -> Decision:
    return decide_race(make.request(**changes), result, 0.01)  # type: ignore[arg-type]


def codes(decision: Decision) -> set[str]:
    return {reason.code for reason in decision.reasons}


def test_an_honest_gain_is_better() -> None:
    decision = decide(make.result())
    assert decision.outcome is RaceOutcome.BETTER and not decision.reasons
    figures = decision.figures[0]
    assert figures.crossed_at == 10 and figures.units == 5 and figures.blocks == 10
    assert figures.ratio == pytest.approx(1.2214, rel=0.02) and figures.lower is not None and figures.lower > 1.01


@pytest.mark.parametrize(
    ("effect", "sd", "outcome", "code"),
    [
        (-0.1, 0.005, RaceOutcome.WORSE, "BENCH_WORSE"),
        (0.003, 0.001, RaceOutcome.NOT_BETTER, "BENCH_NOT_FASTER"),
        (0.03, 0.06, RaceOutcome.INCONCLUSIVE, "BENCH_NOT_PROVEN"),
    ],
)
def test_times_that_do_not_pass(effect: float, sd: float, outcome: RaceOutcome, code: str) -> None:
    decision = decide(make.result(make.record(timed=make.blocks(20, effect, sd, seed=3))))
    assert decision.outcome is outcome and code in codes(decision)


def test_a_look_that_can_only_end_a_race_names_no_p() -> None:
    (slow,) = [
        each
        for each in decide(make.result(make.record(timed=make.blocks(6, -0.1, 0.002)))).reasons
        if "BENCH" in each.code
    ]
    assert slow.code == "BENCH_WORSE" and slow.expected == "a lower bound above 1.0100"
    assert ", no lower bound over 3 units" in slow.found and "none" not in slow.found
    later = decide(make.result(make.record(timed=make.blocks(20, 0.03, 0.06, seed=3)))).reasons
    assert any(each.expected.startswith("a lower bound above 1.0100 at p 0.0") for each in later)


def test_one_losing_configuration_fails_all() -> None:
    slow = make.record(1, timed=make.blocks(20, 0.0, 0.002))
    decision = decide(make.result(make.record(), slow), rows=(8, 1))
    assert decision.outcome is RaceOutcome.NOT_BETTER
    assert [reason.where for reason in decision.reasons] == [make.configuration(1).label]


def test_the_harness_learns_when_to_go_on() -> None:
    request = make.request()
    six = make.record(timed=make.blocks(6, 0.2, 0.005))
    decision = judge_times(request, [six], [], 0.01)
    assert decision.outcome is None and decision.next_look == 10 and decision.undecided == (six.configuration.label,)
    assert not should_stop(request, [six], [], 0.01)
    assert judge_times(request, [make.record(timed=())], [], 0.01).next_look == 6
    assert judge_times(request, [], [], 0.01).outcome is None
    assert should_stop(request, [make.record()], [], 0.01)


def test_tim_bimodal_is_held() -> None:
    fast = make.blocks(20, 0.1, 0.004, groups=12)
    tricked = tuple(
        block.model_copy(update={"groups": (*block.groups[1:], make.group(make.STEP_NS, 6 * make.STEP_NS))})
        for block in fast
    )
    decision = decide(make.result(make.record(timed=tricked)))
    assert decision.outcome is RaceOutcome.HELD and "TIM_BIMODAL" in codes(decision)
    assert decision.figures[0].ratio > 1.05 > 1 > decision.figures[0].ratio_of_sums
    assert decide(make.result(make.record(timed=fast))).outcome is RaceOutcome.BETTER


def test_a_gain_that_few_groups_make_is_held() -> None:
    """A quarter of the runs is followed: one hollow run in each block escapes that in one race of eighteen."""
    same = make.blocks(20, 0.0, 0.002, groups=8)
    hollow = tuple(
        block.model_copy(update={"groups": (*block.groups[1:], make.group(make.STEP_NS, make.STEP_NS / 2))})
        for block in same
    )
    decision = decide(make.result(make.record(timed=hollow)))
    assert decision.outcome is RaceOutcome.HELD and "TIM_BIMODAL" in codes(decision)
    assert decision.figures[0].lower is not None and decision.figures[0].lower > 1.05
    assert decide(make.result(make.record(timed=make.blocks(20, 0.08, 0.01, groups=8)))).outcome is RaceOutcome.BETTER


@pytest.mark.parametrize(
    ("steps", "scale", "held"),
    [((1, 1), 1, True), ((1, 1), 400, False), ((1, 2), 400, False), ((8, 12), 1, False)],
    ids=["one short step", "one long step", "long steps", "many steps"],
)
def test_a_gain_that_starting_and_ending_a_run_may_explain_is_held(
    steps: tuple[int, int], scale: int, held: bool
) -> None:
    fast = make.blocks(20, 0.2, 0.005, steps=steps)
    longer = tuple(
        block.model_copy(update={"groups": tuple(
            group.model_copy(update={"runs": tuple(
                run.model_copy(update={"nanoseconds": scale * run.nanoseconds}) for run in group.runs
            )}) for group in block.groups
        )}) for block in fast
    )  # fmt: skip
    decision = decide(make.result(make.record(timed=longer)))
    assert ("TIM_SHORT_RUN" in codes(decision)) is held
    assert decision.outcome is (RaceOutcome.HELD if held else RaceOutcome.BETTER)


@pytest.mark.parametrize("needed", [1_000_000_000, 1_000])
def test_tim_floor_and_underflow(needed: int) -> None:
    decision = decide(make.result(make.record(bytes_needed=needed)))
    below = needed > 1_000_000
    assert ("TIM_BELOW_FLOOR" in codes(decision)) is below
    assert decision.outcome is (RaceOutcome.HELD if below else RaceOutcome.BETTER)


def test_tim_underflow_one_shape_cannot_carry_the_others() -> None:
    tiny = make.record(1, timed=make.blocks(20, 11.0, 0.001))
    slow = make.record(timed=make.blocks(20, 0.0, 0.001))
    decision = decide(make.result(tiny, slow), rows=(1, 8))
    assert decision.outcome is RaceOutcome.NOT_BETTER and "TIM_TOO_GOOD" in codes(decision)


def test_tim_unequal_mode_gives_no_ratio() -> None:
    graph = ArmRecord(mode="graph", communication="shard")
    decision = decide(make.result(make.record(candidate=graph)))
    assert decision.outcome is RaceOutcome.VOID and "TIM_UNEQUAL_MODE" in codes(decision) and not decision.figures
    assert decide(make.result(make.record(candidate=graph, baseline=graph))).outcome is RaceOutcome.BETTER


def test_tim_rerun_luck_pools_all_races() -> None:
    lost = [make.result(make.record(timed=make.blocks(20, 0.0, 0.01, seed=seed))) for seed in range(4)]
    lucky = make.result(make.record(timed=make.blocks(10, 0.05, 0.005)))
    assert decide(lucky).outcome is RaceOutcome.BETTER
    assert (
        decide_race(make.request(), pooled([*lost, lucky]), 0.00125, single_look=True).outcome is not RaceOutcome.BETTER
    )
    honest = [make.result(make.record(timed=make.blocks(20, 0.05, 0.01, seed=seed))) for seed in range(5)]
    assert decide_race(make.request(), pooled(honest), 0.00125, single_look=True).outcome is RaceOutcome.BETTER


@pytest.mark.parametrize(("share", "outcome"), [(0, RaceOutcome.BETTER), (1, RaceOutcome.VOID)])
def test_throttling(share: int, outcome: RaceOutcome) -> None:
    assert decide(make.result(make.record(timed=make.blocks(20, 0.2, 0.005, repeats=share)))).outcome is outcome


@pytest.mark.parametrize("wrong_first", [True, False])
def test_a_wrong_race_is_not_asked_away(wrong_first: bool) -> None:
    seen = make.record(timed=(), control=(), errors=(make.error(rms=0.5),))
    wrong = make.result(seen, status=RaceStatus.STOPPED, outcome=RaceOutcome.WRONG)
    races = [wrong, make.result(make.record())]
    found = pooled(races if wrong_first else races[::-1])
    decision = decide_race(make.request(), found, 0.005, single_look=True)
    assert decision.outcome is RaceOutcome.WRONG and "COR_MISMATCH" in codes(decision)


def test_an_aa_control_off_its_record_voids_the_race() -> None:
    decision = decide(make.result(make.record(control=make.blocks(2, 0.2, 0.001))))
    assert decision.outcome is RaceOutcome.VOID and "TIM_CONTROL" in codes(decision)
    assert decide(make.result(make.record(control=()))).outcome is RaceOutcome.VOID


@pytest.mark.parametrize(("sd", "bound", "recorded"), [(0.04, 0.002, 60), (0.01, 0.06, 60), (0.01, 0.002, 20)])
def test_a_target_that_cannot_decide(sd: float, bound: float, recorded: int) -> None:
    noise = Noise(block_sd=sd, mean_upper_95=bound, blocks=recorded, recorded="test")
    decision = decide(make.result(), target=make.target(noise=noise))
    assert decision.outcome is RaceOutcome.VOID and codes(decision) == {"TIM_NOT_RACEABLE"}


def test_a_gpu_asks_for_half_a_microsecond_a_layer() -> None:
    gpu = make.target(architecture="sm_90a")
    small = decide(make.result(make.record(layers=1000)), target=gpu)
    assert small.outcome is RaceOutcome.NOT_BETTER and "BENCH_GAIN_SMALL" in codes(small)
    assert decide(make.result(make.record(layers=2)), target=gpu).outcome is RaceOutcome.BETTER


@pytest.mark.parametrize(("effect", "outcome"), [(-0.05, RaceOutcome.WORSE), (-0.005, RaceOutcome.BETTER)])
def test_guard_configurations(effect: float, outcome: RaceOutcome) -> None:
    guard = make.record(16, timed=make.blocks(6, effect, 0.002), control=())
    assert decide(make.result(make.record(), guards=(guard,))).outcome is outcome


@pytest.mark.parametrize(
    ("bad", "code"),
    [({"rms": 0.02}, "COR_MISMATCH"), ({"median": 0.012}, "COR_MISMATCH"), ({"gain": -0.003}, "COR_GAIN")],
)
def test_a_figure_above_its_limit_is_wrong(bad: dict[str, float], code: str) -> None:
    decision = decide(make.result(make.record(errors=(make.error(**bad), make.error(check="timed")))))
    assert decision.outcome is RaceOutcome.WRONG and code in codes(decision)


def test_cor_nonpass_only_an_explicit_pass_passes() -> None:
    assert decide(make.result(make.record(errors=()))).outcome is RaceOutcome.VOID
    assert decide(make.result(make.record(self_proofs=()))).outcome is RaceOutcome.VOID
    blind = (SelfProof(name="zeros", refused=False, figure=0.0),)
    assert "COR_TRIVIAL_ACCEPTED" in codes(decide(make.result(make.record(self_proofs=blind))))
    crash = RaceFault(code="RUN_CRASH", effect=FaultEffect.WRONG, where="run 3", expected="done", found="exit 1")
    stopped = make.result(make.record(timed=(), control=()), status=RaceStatus.STOPPED, outcome=RaceOutcome.WRONG)
    assert decide(stopped).outcome is RaceOutcome.VOID, "a claim of wrong without a record proves nothing"
    assert decide(stopped.model_copy(update={"faults": (crash,)})).outcome is RaceOutcome.WRONG
    assert decide(make.result()).outcome is RaceOutcome.BETTER


def test_declined_and_not_refused() -> None:
    no = SupportAnswer(configuration=make.configuration(), asked_as="advertised", declined=True, reason="too big")
    decision = decide(make.result(supports=(no,)))
    assert decision.outcome is RaceOutcome.DECLINED and "too big" in decision.reasons[0].found
    yes = SupportAnswer(configuration=make.configuration(3), asked_as="refused", declined=False)
    assert "SCOPE_NOT_REFUSED" in codes(decide(make.result(supports=(yes,))))


def test_a_missing_configuration_voids_the_race() -> None:
    assert decide(make.result(), rows=(8, 64)).outcome is RaceOutcome.VOID


def test_times_exist_only_in_a_finished_race() -> None:
    with pytest.raises(ValidationError, match="times exist only in a finished race"):
        make.result(status=RaceStatus.ABANDONED, outcome=RaceOutcome.VOID)
    with pytest.raises(ValidationError, match="may end as"):
        make.result(make.record(timed=(), control=()), status=RaceStatus.STOPPED, outcome=RaceOutcome.BETTER)
