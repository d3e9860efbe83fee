"""Is one arm's run right: cheap checks on every run, and the oracle on some, gathered for both arms and held against limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gatekeeper.domain.correctness import error_limits, routing_limits
from gatekeeper.domain.race import RaceRules
from gatekeeper.domain.samples import (
    Arm,
    ConstantRecord,
    ErrorFigures,
    ErrorLimits,
    ErrorRecord,
    FaultEffect,
    RaceFault,
    RoutingRecord,
    SelfProof,
    Shortfall,
)
from kernels_under_test.contract import EXPERT_IDS, OUT, Role, Shape, StepOracle, TensorSpec, Trace
from workers import inspection, proof
from workers.constants import Constants
from workers.figures import Errors
from workers.loop.follow_on import LONG, RESUMED
from workers.loop.runs import STRESS, Snapshot
from workers.models import Model

FLOORS = {
    "output": ErrorLimits(rms=4e-3, median_row=3e-3, gain=3e-4, element=1.0),
    "state": ErrorLimits(rms=6e-3, median_row=6e-3, gain=3e-4, element=1.0),
}
"""Least limits: one or two roundings of bf16 (2**-9), which every path has, whatever the dtype of a state that it feeds.
The gain's is five times the systematic one that honest arms showed (5.6e-5, ``benchmarks/honest_errors.py``); a log decay that
is 1 % too strong showed 9.6e-4 and more. An element may be off by its row's root mean square: honest arms
showed up to 0.38 in 500 rows, the candidate three times as much as stock over the same seeds."""
SHORT_GAIN = 2e-3
"""The gain's in other regimes and in resumed chains, whose runs have one or four steps. From zero states at one row, the noisiest,
120 honest sets of eight requests had a standard deviation of 3.5e-4 and reached 1.05e-3."""
STRESS_GAIN = 1e-3
"""In single steps over stressed data, where sixteen honest requests reached 0.2 of the limit: rounded router logits are seen by it."""
ROUTING_FLOOR = Shortfall(mean=1e-4, largest=8e-2)
"""Scores differ by bf16 rounding of their inputs: swaps of near ties are no fault. An honest candidate showed one of 0.048 beside
the stock path's largest of 0.006 (1,024 choices); wrong routing shows in the mean."""

Key = tuple[str, str, str, str]
"""Check, regime, tensor and part."""


def blame(arm: Arm) -> FaultEffect:
    """Return what a wrong answer of this arm does: the candidate's makes it wrong, the baseline's makes the race void."""
    return FaultEffect.WRONG if arm is Arm.CANDIDATE else FaultEffect.VOID


@dataclass(frozen=True)
class Followed:
    """A run that the oracle has followed."""

    x: Tensor
    trace: Trace
    rows: Mapping[str, tuple[Tensor, Tensor]]
    """By tensor: the arm's rows and the oracle's, both [rows, width]; of a state those that the run may write."""
    touched: Mapping[str, Tensor]
    """By tensor: which of its rows these are, [all rows] bool."""


class Judge:
    """Judges all runs at one configuration."""

    def __init__(self, model: Model, shape: Shape, rules: RaceRules) -> None:
        self._model, self._shape, self._rules = model, shape, rules
        self._specs: dict[str, TensorSpec] = {spec.name: spec for spec in model.problem.tensors(shape)}
        self._errors: dict[Key, dict[Arm, Errors]] = {}
        self._floors: dict[Key, ErrorLimits] = {}
        self._shortfalls: dict[tuple[str, str], dict[Arm, list[Tensor]]] = {}
        self._misordered: dict[tuple[str, str], dict[Arm, int]] = {}
        self._steps = model.oracle if isinstance(model.oracle, StepOracle) else None
        self._constants: dict[str, Constants] = {}
        self._carried: dict[Arm, Mapping[str, Tensor]] = {}
        """By arm: the oracle's states at the end of the last run of a long chain."""
        self._long_sequences: dict[Arm, int] = {}
        self.proofs: list[SelfProof] = []

    def inspect(self, shot: Snapshot) -> list[RaceFault]:
        """Return the faults that any run shows without an oracle: stray writes, left poison, values that are not finite."""
        found = inspection.inspect(self._model.problem, self._shape, shot)
        return [self._fault(shot, *seen) for seen in found]

    def follow(self, shot: Snapshot, check: str, regime: str = "normal", *, prove: bool = False) -> list[RaceFault]:
        """Let the oracle follow a run that :meth:`inspect` found nothing wrong with, and take in its errors.

        With ``prove`` the oracle is also shown planted wrong answers in place of this run's outputs.
        """
        followed = self._followed(shot)
        if isinstance(followed, RaceFault):
            return [followed]
        self._take_in(shot, followed, check, regime)
        if prove:
            plants = proof.plants(shot.histories[OUT].double(), followed.x.double())
            self.proofs.extend(proof.proofs(plants, shot.histories[OUT], followed.trace.outputs[OUT], self._refuses))
        return []

    def follow_long(self, shot: Snapshot, *, first: bool, counted: bool) -> list[RaceFault]:
        """Let the oracle follow one run of a long chain, from its own end states of the arm's run before: what an arm's states lose
        or gain from run to run adds up. ``counted``: take the errors in."""
        if first:
            self._carried.pop(shot.arm, None)
            self._long_sequences[shot.arm] = self._shape.requests
        followed = self._followed(shot, self._carried.get(shot.arm, {}))
        if isinstance(followed, RaceFault):
            return [followed]
        self._carried[shot.arm] = followed.trace.states
        if counted:
            # All runs of a chain belong to the same requests.
            self._take_in(shot, followed, LONG, "normal", sequences=self._long_sequences[shot.arm])
            self._long_sequences[shot.arm] = 0
        return []

    def one_step(self, baseline: Snapshot, candidate: Snapshot, check: str, *, constants: bool) -> list[RaceFault]:
        """Take in one single step of both arms over the same stressed data; see ``contract.StepOracle``.

        Besides the errors of every output and state: rows that are nearly exact, held against floors of their own, and, with
        ``constants``, what the errors say of each constant of the model.

        Raises:
            TypeError: if the model's oracle does not offer single steps.
        """
        if self._steps is None:
            raise TypeError("expected an oracle with the methods of contract.StepOracle; found none of them")
        shots = {Arm.BASELINE: baseline, Arm.CANDIDATE: candidate}
        followed: dict[Arm, Followed] = {}
        for arm, shot in shots.items():
            found = self._followed(shot)
            if isinstance(found, RaceFault):
                return [found]
            followed[arm] = found
            self._take_in(shot, found, check, STRESS)
            for exact in self._steps.exact(self._model.problem, self._shape, shot.data.initial):
                mine, wanted = found.rows[exact.tensor]
                where = exact.where.reshape(-1)[found.touched[exact.tensor]]
                key = (check, STRESS, exact.tensor, exact.name)
                self._floors[key] = ErrorLimits(rms=exact.floor, median_row=exact.floor, gain=exact.floor)
                self._take(key, shot, mine[where], wanted[where])
        if constants:
            made = Constants(self._model, self._shape, self._steps.left_out)
            self._constants.setdefault(check, made).add(
                baseline.data.initial,
                followed[Arm.BASELINE].x,
                {arm: shot.histories[EXPERT_IDS] for arm, shot in shots.items()},
                {arm: found.rows for arm, found in followed.items()},
                followed[Arm.BASELINE].touched,
                self._owners(baseline, followed[Arm.BASELINE]),
            )
        return []

    def _owners(self, shot: Snapshot, followed: Followed) -> dict[str, Tensor]:
        """Return for each tensor the request that each of the followed rows of a single step belongs to."""
        assert self._steps is not None
        found = dict(self._steps.owners(self._model.problem, self._shape, shot.data.initial))
        found[OUT] = torch.arange(self._shape.rows) // self._shape.query_tokens
        return {name: found[name].reshape(-1)[followed.touched[name]] for name in followed.rows}

    def _followed(self, shot: Snapshot, carried: Mapping[str, Tensor] | None = None) -> Followed | RaceFault:
        """Let the oracle follow a run, from the states before it or from those ``carried``."""
        x, problem = shot.inputs(), self._model.problem
        initial = {**shot.data.initial, **(carried or {})}
        try:
            trace = self._model.oracle.follow(problem, self._shape, initial, x, shot.histories[EXPERT_IDS])
        except ValueError as error:
            return self._fault(shot, "COR_ROUTING", EXPERT_IDS, "ids in range, each once in a row", str(error)[:200])
        rows, touched = {}, {}
        for name, wanted in trace.outputs.items():
            found = shot.histories[name]
            touched[name] = torch.ones(wanted.shape[:-1].numel(), dtype=torch.bool, device=wanted.device)
            rows[name] = (found.reshape(-1, found.shape[-1]), wanted.reshape(-1, wanted.shape[-1]))
        masks = problem.untouched(self._shape, shot.data.initial, shot.data.steps)
        for name, wanted in trace.states.items():
            touched[name] = (~masks[name]).reshape(-1, wanted.shape[-1]).any(dim=1)
            pair = [t.reshape(-1, wanted.shape[-1])[touched[name]] for t in (shot.states[name], wanted)]
            rows[name] = (pair[0], pair[1])
        blank = [name for name, (_, wanted) in rows.items() if not bool(torch.isfinite(wanted).all())]
        if blank:
            # What cannot be compared is not passed, and no candidate may lead the oracle where it sees nothing.
            found_text = f"NaN or infinity in {', '.join(blank)}"
            return self._fault(shot, "COR_NO_REFERENCE", blank[0], "an oracle with finite values", found_text)
        return Followed(x, trace, rows, touched)

    def _take_in(
        self, shot: Snapshot, followed: Followed, check: str, regime: str, *, sequences: int | None = None
    ) -> None:
        """Take in errors and shortfalls; ``sequences`` where they are not the run's own requests."""
        for name, (found, wanted) in followed.rows.items():
            self._take((check, regime, name, ""), shot, found, wanted, sequences)
        pair = self._shortfalls.setdefault((check, regime), {arm: [] for arm in Arm})
        pair[shot.arm].append(followed.trace.shortfall.reshape(-1))
        if self._steps is not None:
            ids = shot.histories[EXPERT_IDS]
            count = self._steps.misordered(self._model.problem, shot.data.initial, ids)
            self._misordered.setdefault((check, regime), dict.fromkeys(Arm, 0))[shot.arm] += count

    def _take(self, key: Key, shot: Snapshot, found: Tensor, wanted: Tensor, sequences: int | None = None) -> None:
        if wanted.numel():
            kind = self._kind(key[2])
            pair = self._errors.setdefault(key, {arm: Errors(kind) for arm in Arm})
            counted = self._shape.requests if sequences is None else sequences
            pair[shot.arm].add(found, wanted, shot.data.steps, counted)

    def _kind(self, name: str) -> Literal["output", "state"]:
        return "output" if self._specs[name].role is Role.OUTPUT else "state"

    def _refuses(self, honest: ErrorFigures, found: ErrorFigures) -> bool:
        sequences = self._shape.requests
        record = self._record(("proof", "normal", OUT, ""), honest, found, steps=1, rows=1, sequences=sequences)
        return proof.exceeds(found, record.limits)

    def _record(
        self, key: Key, baseline: ErrorFigures, candidate: ErrorFigures, *, steps: int, rows: int, sequences: int
    ) -> ErrorRecord:
        check, regime, name, part = key
        kind = self._kind(name)
        floors = self._floors.get(key, FLOORS[kind])
        if (regime != "normal" or check == RESUMED) and not part:
            floors = floors.model_copy(update={"gain": STRESS_GAIN if regime == STRESS else SHORT_GAIN})
        record = ErrorRecord(
            tensor=name,
            kind=kind,
            check=check,
            part=part,
            regime=regime,
            steps=steps,
            rows=rows,
            sequences=sequences,
            candidate=candidate,
            baseline=baseline,
            floors=floors,
            limits=floors,
        )
        return record.model_copy(update={"limits": error_limits(record, self._rules)})

    def errors(self) -> tuple[ErrorRecord, ...]:
        """Return the error records of everything taken in for both arms so far."""
        return tuple(
            self._record(
                key, pair[Arm.BASELINE].figures(), pair[Arm.CANDIDATE].figures(),
                steps=pair[Arm.CANDIDATE].steps, rows=pair[Arm.CANDIDATE].count,
                sequences=pair[Arm.CANDIDATE].sequences,
            )
            for key, pair in self._errors.items()
            if pair[Arm.BASELINE].count and pair[Arm.CANDIDATE].count
        )  # fmt: skip

    def constants(self) -> tuple[ConstantRecord, ...]:
        """Return what the single steps taken in so far say of the model's constants, check by check."""
        return tuple(one for check, found in self._constants.items() for one in found.records(check, self._rules))

    def routing(self) -> tuple[RoutingRecord, ...]:
        """Return the routing records of everything taken in for both arms so far."""
        records = []
        for (check, regime), pair in self._shortfalls.items():
            if not all(pair.values()):
                continue
            both = {arm: torch.cat(parts).clamp_min(0) for arm, parts in pair.items()}
            counts = self._misordered.get((check, regime), dict.fromkeys(Arm, 0))
            figures = {
                arm: Shortfall(mean=float(v.mean()), largest=float(v.max()), misordered=counts[arm])
                for arm, v in both.items()
            }
            record = RoutingRecord(
                check=check,
                regime=regime,
                steps=sum(len(part) for part in pair[Arm.CANDIDATE]),
                rows=self._shape.rows,
                candidate=figures[Arm.CANDIDATE],
                baseline=figures[Arm.BASELINE],
                floors=ROUTING_FLOOR,
                limits=ROUTING_FLOOR,
            )
            records.append(record.model_copy(update={"limits": routing_limits(record, self._rules)}))
        return tuple(records)

    def _fault(self, shot: Snapshot, code: str, tensor: str, expected: str, found: str) -> RaceFault:
        where = f"{tensor}, run of {shot.data.steps} steps, seed {shot.data.seed:032x}"
        return RaceFault(code=code, effect=blame(shot.arm), arm=shot.arm, where=where, expected=expected, found=found)
