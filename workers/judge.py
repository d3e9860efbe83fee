"""Is one arm's run right: cheap checks on every run, and the oracle on some, gathered for both arms and held against limits."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from gatekeeper.domain.correctness import error_limits, routing_limits
from gatekeeper.domain.race import RaceRules
from gatekeeper.domain.samples import (
    Arm,
    ErrorFigures,
    ErrorLimits,
    ErrorRecord,
    FaultEffect,
    RaceFault,
    RoutingRecord,
    SelfProof,
    Shortfall,
)
from kernels_under_test.contract import EXPERT_IDS, OUT, Role, Shape, TensorSpec
from workers.arena import POISON_BYTE
from workers.figures import Errors
from workers.loop.runs import Snapshot
from workers.models import Model

FLOORS = {
    "output": ErrorLimits(rms=4e-3, median_row=3e-3, gain=3e-4),
    "state": ErrorLimits(rms=6e-3, median_row=6e-3, gain=3e-4),
}
"""Least limits: one or two roundings of bf16 (2**-9), which every path has, whatever the dtype of a state that it feeds.
The gain's is five times the systematic one that honest arms showed (5.6e-5, ``benchmarks/honest_errors.py``); a log decay that
is 1 % too strong showed 9.6e-4 and more."""
ROUTING_FLOOR = Shortfall(mean=1e-4, largest=2e-2)
"""Scores differ by bf16 rounding of their inputs: a swap among scores closer than this is a tie."""
PLANTED_ELEMENT = 16.0
"""How far the planted single wrong element lies off, in units of its row's root mean square."""


def blame(arm: Arm) -> FaultEffect:
    """Return what a wrong answer of this arm does: the candidate's makes it wrong, the baseline's makes the race void."""
    return FaultEffect.WRONG if arm is Arm.CANDIDATE else FaultEffect.VOID


class Judge:
    """Judges all runs at one configuration."""

    def __init__(self, model: Model, shape: Shape, rules: RaceRules) -> None:
        self._model, self._shape, self._rules = model, shape, rules
        self._specs: dict[str, TensorSpec] = {spec.name: spec for spec in model.problem.tensors(shape)}
        self._errors: dict[tuple[str, str, str], dict[Arm, Errors]] = {}
        self._shortfalls: dict[tuple[str, str], dict[Arm, list[Tensor]]] = {}
        self.proofs: list[SelfProof] = []

    def inspect(self, shot: Snapshot) -> list[RaceFault]:
        """Return the faults that any run shows without an oracle: stray writes, left poison, values that are not finite."""
        faults = [
            self._fault(
                shot, "COR_STRAY_WRITE", stray.tensor, "untouched guard bands", f"a write at byte {stray.offset}"
            )
            for stray in shot.strays
        ]
        for name, history in shot.histories.items():
            raw = history.contiguous().view(torch.uint8).reshape(shot.data.steps, -1)
            unwritten = (raw == POISON_BYTE).all(dim=1).nonzero()
            if len(unwritten):
                faults.append(
                    self._fault(shot, "COR_UNWRITTEN", name, "every step written", f"step {int(unwritten[0])} not")
                )
            elif history.is_floating_point() and not bool(torch.isfinite(history).all()):
                faults.append(self._fault(shot, "COR_NONFINITE", name, "finite values", _first_bad(history)))
        if not faults:
            faults.extend(self._of_states(shot))
        return faults

    def _of_states(self, shot: Snapshot) -> list[RaceFault]:
        faults = []
        masks = self._model.problem.untouched(self._shape, shot.data.initial, shot.data.steps)
        for name, state in shot.states.items():
            before, mask = shot.data.initial[name], masks[name]
            kept = _bits(state)[mask] == _bits(before)[mask]
            if not bool(kept.all()):
                found = f"{int((~kept).sum())} elements changed"
                faults.append(
                    self._fault(shot, "COR_STRAY_WRITE", name, "state that no step addresses unchanged", found)
                )
            elif not bool(torch.isfinite(state[~mask]).all()):
                faults.append(self._fault(shot, "COR_NONFINITE", name, "finite values", "NaN or infinity"))
        return faults

    def follow(self, shot: Snapshot, check: str, regime: str = "normal", *, prove: bool = False) -> list[RaceFault]:
        """Let the oracle follow a run that :meth:`inspect` found nothing wrong with, and take in its errors.

        With ``prove`` the oracle is also shown planted wrong answers in place of this run's outputs.
        """
        x = shot.inputs()
        try:
            trace = self._model.oracle.follow(
                self._model.problem, self._shape, shot.data.initial, x, shot.histories[EXPERT_IDS]
            )
        except ValueError as error:
            return [self._fault(shot, "COR_ROUTING", EXPERT_IDS, "ids in range, each once in a row", str(error)[:200])]
        steps = shot.data.steps
        taken = {name: (shot.histories[name], wanted) for name, wanted in trace.outputs.items()}
        masks = self._model.problem.untouched(self._shape, shot.data.initial, steps)
        for name, wanted in trace.states.items():
            touched = (~masks[name]).reshape(-1, wanted.shape[-1]).any(dim=1)
            rows = (t.reshape(-1, wanted.shape[-1])[touched] for t in (shot.states[name], wanted))
            taken[name] = (next(rows), next(rows))
        blank = [name for name, (_, wanted) in taken.items() if not bool(torch.isfinite(wanted).all())]
        if blank:
            # What cannot be compared is not passed, and no candidate may lead the oracle where it sees nothing.
            found = f"NaN or infinity in {', '.join(blank)}"
            return [self._fault(shot, "COR_NO_REFERENCE", blank[0], "an oracle with finite values", found)]
        for name, (found_rows, wanted) in taken.items():
            self._take(check, regime, name, shot, found_rows, wanted, steps)
        pair = self._shortfalls.setdefault((check, regime), {arm: [] for arm in Arm})
        pair[shot.arm].append(trace.shortfall.reshape(-1))
        if prove:
            self._prove(shot, x, trace.outputs[OUT])
        return []

    def _take(
        self, check: str, regime: str, name: str, shot: Snapshot, found: Tensor, wanted: Tensor, steps: int
    ) -> None:
        if wanted.numel():
            kind = self._kind(name)
            pair = self._errors.setdefault((check, regime, name), {arm: Errors(kind) for arm in Arm})
            pair[shot.arm].add(found, wanted, steps, self._shape.requests)

    def _kind(self, name: str) -> Literal["output", "state"]:
        return "output" if self._specs[name].role is Role.OUTPUT else "state"

    def _prove(self, shot: Snapshot, x: Tensor, wanted: Tensor) -> None:
        out = shot.histories[OUT].double()
        spoiled = out.clone()
        at = tuple(size // 2 for size in out.shape[:-1])
        row = spoiled[at]
        row[0] = row[0] + PLANTED_ELEMENT * row.square().mean().sqrt()
        plants = {
            "zeros": torch.zeros_like(out),
            "previous": torch.cat([out[:1], out[:-1]]),
            "echo": x.double(),
            "one_element": spoiled,
        }
        if shot.data.steps == 1:
            del plants["previous"]  # there is none
        honest = _figures_of(out, wanted)
        for name, planted in plants.items():
            figures = _figures_of(planted, wanted)
            self.proofs.append(SelfProof(name=name, refused=self._refuses(honest, figures), figure=figures.largest))

    def _refuses(self, honest: ErrorFigures, found: ErrorFigures) -> bool:
        record = self._record(("proof", "normal", OUT), honest, found, steps=1, rows=1, sequences=self._shape.requests)
        limits = record.limits
        return found.rms > limits.rms or found.median_row > limits.median_row or abs(found.gain) > limits.gain

    def _record(
        self,
        key: tuple[str, str, str],
        baseline: ErrorFigures,
        candidate: ErrorFigures,
        *,
        steps: int,
        rows: int,
        sequences: int,
    ) -> ErrorRecord:
        check, regime, name = key
        kind = self._kind(name)
        floors = FLOORS[kind]
        record = ErrorRecord(
            tensor=name,
            kind=kind,
            check=check,
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

    def routing(self) -> tuple[RoutingRecord, ...]:
        """Return the routing records of everything taken in for both arms so far."""
        records = []
        for (check, regime), pair in self._shortfalls.items():
            if not all(pair.values()):
                continue
            both = {arm: torch.cat(parts).clamp_min(0) for arm, parts in pair.items()}
            figures = {a: Shortfall(mean=float(v.mean()), largest=float(v.max())) for a, v in both.items()}
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


def _figures_of(found: Tensor, wanted: Tensor) -> ErrorFigures:
    errors = Errors()
    errors.add(found, wanted, found.shape[0], found.shape[1])
    return errors.figures()


def _bits(tensor: Tensor) -> Tensor:
    """Return the same shape as integers, so that NaN equals the same NaN."""
    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])


def _first_bad(history: Tensor) -> str:
    place = (~torch.isfinite(history)).nonzero()[0].tolist()
    return f"{float(history[tuple(place)])} at {place}"
