"""Decides a race from its raw samples. The harness calls this to know when to stop, the policies to recompute the outcome.

Strictly faster means: at *every* advertised configuration the lower bound lies above the margin (intersection-union, so no
correction for their number). A configuration that has crossed is done; the others go on to the next look. *Looks* count
blocks; the test counts units, which are pairs of blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gatekeeper.domain import plausibility
from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.correctness import BOUNDARY, judge_correctness
from gatekeeper.domain.decision import Decision, Reason
from gatekeeper.domain.race import RaceOutcome, RaceRequest, RaceResult, RaceStatus
from gatekeeper.domain.samples import Block, ConfigurationRecord
from gatekeeper.domain.sequential import next_look
from gatekeeper.domain.trial import Trial, guard_figures, guard_loss

_ORDER = (
    RaceOutcome.WORSE,
    RaceOutcome.NOT_BETTER,
    RaceOutcome.INCONCLUSIVE,
)


def decide_race(request: RaceRequest, result: RaceResult, alpha: float, *, single_look: bool = False) -> Decision:
    """Decide a race from its records, whatever outcome the result claims.

    An oracle or a machine that failed voids the race before anything else; then a wrong answer, then a refusal, then unusable
    samples; only then are the times compared, and a good time that is doubtful is held.
    """
    reasons = judge_correctness(request.rules, result)
    early = _first(reasons, (RaceOutcome.VOID, RaceOutcome.WRONG, RaceOutcome.DECLINED))
    communication = request.target.communication
    if early is None and result.status is not RaceStatus.FINISHED:
        reasons.append(_unfinished(result))
        early = RaceOutcome.VOID
    reasons.extend(_missing(request, result) if result.status is RaceStatus.FINISHED else ())
    early = early or _first(reasons, (RaceOutcome.VOID,))
    if early is not None:
        return Decision(outcome=early, alpha=alpha, reasons=tuple(reasons), communication=communication)
    timed = judge_times(request, result.configurations, result.guards, alpha, single_look=single_look)
    reasons.extend(timed.reasons)
    outcome = timed.outcome
    if outcome is RaceOutcome.BETTER and any(reason.outcome is RaceOutcome.HELD for reason in reasons):
        outcome = RaceOutcome.HELD
    return timed.model_copy(update={"outcome": outcome, "reasons": tuple(reasons)})


def judge_times(
    request: RaceRequest,
    records: Sequence[ConfigurationRecord],
    guards: Sequence[ConfigurationRecord],
    alpha: float,
    *,
    single_look: bool = False,
) -> Decision:
    """Decide on times alone: what the harness asks after each look. ``outcome`` is None while the race has to go on.

    A record with fewer than two blocks is undecided; the A/A control is judged by as many control blocks as there are. With
    ``single_look`` all blocks are one look at ``alpha``.
    """
    rules, target = request.rules, request.target
    reasons = list(plausibility.judge_target(target.noise, rules))
    for record, guard in [(r, False) for r in records] + [(g, True) for g in guards]:
        reasons.extend(plausibility.judge_samples(record, rules, target, guard=guard, tests=len(records)))
    if reasons:
        return Decision(
            outcome=RaceOutcome.VOID, alpha=alpha, reasons=tuple(reasons), communication=target.communication
        )
    trials = [Trial(request, record, alpha, single_look=single_look) for record in records if len(record.blocks) > 1]
    for trial in trials:
        reasons.extend(trial.reasons())
    guarded = [guard_figures(request, guard) for guard in guards if len(guard.blocks) > 1]
    reasons.extend(reason for figures in guarded for reason in guard_loss(figures, rules.guard_loss))
    done = {trial.figures.label for trial in trials if not trial.undecided}
    undecided = tuple(record.configuration.label for record in records if record.configuration.label not in done)
    failed = _first(reasons, _ORDER)
    outcome: RaceOutcome | None = failed
    if failed is None and records and not undecided:
        held = any(reason.outcome is RaceOutcome.HELD for reason in reasons)
        outcome = RaceOutcome.HELD if held else RaceOutcome.BETTER
    have = [len(record.blocks) for record in records if record.configuration.label in undecided]
    looks = [look for blocks in have if (look := next_look(rules, blocks)) is not None]
    return Decision(
        outcome=outcome,
        alpha=alpha,
        figures=(*(trial.figures for trial in trials), *guarded),
        reasons=tuple(reasons),
        communication=target.communication,
        undecided=undecided if outcome is None else (),
        next_look=min(looks) if outcome is None and looks else None,
    )


def should_stop(
    request: RaceRequest, records: Sequence[ConfigurationRecord], guards: Sequence[ConfigurationRecord], alpha: float
) -> bool:
    """Return whether the times so far decide the race, so that no further block is needed."""
    return judge_times(request, records, guards, alpha).outcome is not None


def _first(reasons: Sequence[Reason], order: Sequence[RaceOutcome]) -> RaceOutcome | None:
    found = {reason.outcome for reason in reasons}
    return next((outcome for outcome in order if outcome in found), None)


def _unfinished(result: RaceResult) -> Reason:
    return Reason(
        code="RACE_NOT_FINISHED",
        outcome=RaceOutcome.VOID,
        where="race",
        message="the race ended early and its records do not say that the candidate was at fault",
        expected="a finished race",
        found=f"{result.status.value}: {'; '.join(result.reasons) or 'no reason given'}"[:500],
    )


def _missing(request: RaceRequest, result: RaceResult) -> Iterator[Reason]:
    raced = {record.configuration.label for record in result.configurations}
    absent = [label for label in map(_label, request.configurations) if label not in raced]
    if absent:
        yield _void_missing("advertised configurations without a record", "all of them raced", "; ".join(absent[:5]))
    for record in result.configurations:
        if len(record.control) < request.rules.control_blocks:
            found = f"{len(record.control)} at {record.configuration.label}"
            yield _void_missing("the A/A control is missing", f"{request.rules.control_blocks} A/A blocks", found)
    if len(result.guards) < min(request.rules.guard_configurations, len(request.guard_pool)):
        wanted = min(request.rules.guard_configurations, len(request.guard_pool))
        yield _void_missing("guard configurations are missing", str(wanted), str(len(result.guards)))
    wanted = min(request.rules.boundary_points, len(request.boundary_pool))
    pool = set(map(_label, request.boundary_pool))
    tried = [
        r for r in result.boundaries if r.configuration.label in pool and any(e.check == BOUNDARY for e in r.errors)
    ]
    if len(tried) < wanted:
        yield _void_missing("boundary points are missing", f"{wanted} tried", str(len(tried)))
    answered = {a.configuration.label for a in result.supports if a.asked_as == "refused"}
    unasked = [label for label in map(_label, request.refused) if label not in answered]
    if unasked:
        yield _void_missing(
            "refused configurations that were not asked for", "all of them asked", "; ".join(unasked[:5])
        )


def _label(configuration: Configuration) -> str:
    return configuration.label


def _void_missing(message: str, expected: str, found: str) -> Reason:
    return Reason(
        code="RACE_INCOMPLETE", outcome=RaceOutcome.VOID, where="race", message=message, expected=expected, found=found
    )


def pooled(results: Sequence[RaceResult]) -> RaceResult:
    """Return several races of one subject as one: asking again adds samples and records, it never replaces them.

    Decide it with ``single_look``. A race that a wrong answer or a refusal stopped stands for all: no other race takes it back.
    An abandoned one adds nothing to the times.

    Raises:
        ValueError: if there is no result.
    """
    if not results:
        raise ValueError("expected at least one race; found none")
    stopped = next((result for result in results if result.status is RaceStatus.STOPPED), None)
    if stopped is not None:
        return stopped
    finished = [result for result in results if result.status is RaceStatus.FINISHED] or list(results[-1:])
    return finished[-1].model_copy(
        update={
            "configurations": _joined([result.configurations for result in finished]),
            "guards": _joined([result.guards for result in finished]),
            "boundaries": _joined([result.boundaries for result in finished]),
            "supports": tuple(answer for result in results for answer in result.supports),
            "faults": tuple(fault for result in results for fault in result.faults),
        }
    )


def _joined(races: Sequence[Sequence[ConfigurationRecord]]) -> tuple[ConfigurationRecord, ...]:
    by_label: dict[str, list[ConfigurationRecord]] = {}
    for record in (record for race in races for record in race):
        by_label.setdefault(record.configuration.label, []).append(record)
    return tuple(
        records[-1].model_copy(
            update={
                "errors": tuple(error for record in records for error in record.errors),
                "routing": tuple(routing for record in records for routing in record.routing),
                "constants": tuple(constant for record in records for constant in record.constants),
                "offered": tuple(sorted({check for record in records for check in record.offered})),
                "faults": tuple(fault for record in records for fault in record.faults),
                "self_proofs": tuple(proof for record in records for proof in record.self_proofs),
                "blocks": _renumbered([record.blocks for record in records]),
                "control": _renumbered([record.control for record in records]),
            }
        )
        for records in by_label.values()
    )


def _renumbered(races: Sequence[Sequence[Block]]) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for race in races:
        first = 1 + max((block.pair for block in blocks), default=-1)
        numbers = {pair: first + index for index, pair in enumerate(sorted({block.pair for block in race}))}
        blocks.extend(block.model_copy(update={"pair": numbers[block.pair]}) for block in race)
    return tuple(blocks)
