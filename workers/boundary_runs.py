"""Asks real arms at configurations, for the boundary search: ``python -m workers.boundary_runs --help``.

One pair of processes builds a batch of configurations and runs each a few times: in unit normal data, and with a padded row
(the null slot, an empty request). Every run gives the requests other state slots and pages, so what one run leaves in a slot is
another request's in the next. The oracle follows every run. Exit status: 0 nothing wrong found, 1 something, 2 a bad command.
"""

from __future__ import annotations

import argparse
import hashlib
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.correctness import judge_record
from gatekeeper.domain.errors import GatekeeperError
from gatekeeper.domain.race import CodeSource, InstalledSource, LocalSource, RaceOutcome, RaceRules
from gatekeeper.domain.samples import Arm
from workers.boundaries import Finding, Space, search
from workers.environment import cores
from workers.jail import Limits, find_jail, process_jail
from workers.loop.blocks import ArmFault, BlockRun, Course, Pair, Plan
from workers.loop.runs import Interference
from workers.models import MODELS, load_model, shape_of
from workers.protocol import ArmFailed
from workers.race import report
from workers.records import Records
from workers.side import Runner, Side
from workers.sources import ROOT, code_of

STEPS = 6
REGIMES = ("normal", "padded", "normal")
PLAN = Plan(0, False, Arm.BASELINE)
RULES = RaceRules(
    looks=(2,), nominal_p=(0.009,), groups=1, steps=8, margin=0.05, control_blocks=0, guard_configurations=0,
    guard_loss=0.5, checked_share=1.0, plausible_ratio=50,
)  # fmt: skip
"""Nothing is timed here; of these only the factors of the errors count, and they are the default ones."""
LEAST_RACED = 8
"""Least context at which ``gatekeeper race`` races."""


@dataclass(frozen=True)
class Asker:
    """Asks a candidate, against the baseline, at batches of configurations. The same seed gives the same data."""

    course: Course
    seed: int

    def __call__(self, configurations: Sequence[Configuration]) -> list[Finding | None]:
        """Return what is wrong with the candidate at each configuration, None where nothing is or where it declines.

        Where an arm crashes or hangs, only the first such configuration is told.
        """
        defined = [c for c in configurations if self.course.model.problem.check(shape_of(c)) is None]
        served = self._served(defined)
        found = {finding.configuration.label: finding for finding in self._together(served)}
        return [found.get(configuration.label) for configuration in configurations]

    def _served(self, configurations: Sequence[Configuration]) -> list[Configuration]:
        if not configurations:
            return []
        course = self.course
        side = Side(Arm.CANDIDATE, course.candidate, course.jail, course.runner, course.limits)
        try:
            side.ready()
            answers = side.supports(course.model, [shape_of(c) for c in configurations])
        finally:
            side.close()
        return [c for c, reason in zip(configurations, answers, strict=True) if reason is None]

    def _together(self, configurations: Sequence[Configuration]) -> list[Finding]:
        """Ask at all of them with one pair of processes; where an arm fails, at the halves, to see where."""
        if not configurations:
            return []
        try:
            return self._run(configurations)
        except (ArmFault, Interference) as fault:
            if len(configurations) > 1:
                half = len(configurations) // 2
                return self._together(configurations[:half]) or self._together(configurations[half:])
            return self._failed(configurations[0], fault)

    def _failed(self, configuration: Configuration, fault: ArmFault | Interference) -> list[Finding]:
        if fault.arm is not Arm.CANDIDATE:
            return []  # the baseline's failure says nothing about the candidate
        code = fault.failed.code if isinstance(fault, ArmFault) else fault.code
        return [Finding(configuration, code, str(fault)[:300])]

    def _run(self, configurations: Sequence[Configuration]) -> list[Finding]:
        model = self.course.model
        regimes = [regime for regime in REGIMES if regime in model.problem.regimes]
        steps = [min(STEPS, c.context // c.query_tokens) for c in configurations]
        pairs: list[tuple[int, str, Pair]] = []
        block = BlockRun(self.course, PLAN, self.course.start(PLAN, perturb=True), data_seed=self.seed)
        with block:
            block.load([shape_of(c) for c in configurations], steps)
            for number, configuration in enumerate(configurations):
                for index, regime in enumerate(regimes):
                    seed = self._seed_of(configuration, index)
                    data = block.draw(number, steps[number], regime, seed=seed)
                    baseline, candidate = (block.shot(arm, number, data) for arm in Arm)
                    pairs.append((number, regime, Pair(baseline, candidate)))
        records = [Records(c, model, RULES, "shard") for c in configurations]
        for number, regime, pair in pairs:
            records[number].check(pair, "boundary", regime)
        return [finding for record in records if (finding := _finding(record)) is not None]

    def _seed_of(self, configuration: Configuration, index: int) -> int:
        text = f"{self.seed} {configuration.label} {index}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:16], "big")


def _finding(record: Records) -> Finding | None:
    for reason in judge_record(record.record(timed=False), RULES):
        if reason.outcome is RaceOutcome.WRONG:
            text = f"{reason.message}: expected {reason.expected}, found {reason.found}"
            return Finding(record.configuration, reason.code, text)
    return None


def command(finding: Finding, options: argparse.Namespace) -> str:
    """Return one command line that shows the finding again: a race where one can be run there, else this search at one point."""
    c = finding.configuration
    plain = (c.query_tokens, c.tensor_parallel, c.expert_parallel, c.dtypes) == (1, 1, 1, {})
    words = ["gatekeeper", "race"] if plain and c.context >= LEAST_RACED else [
        "python", "-m", "workers.boundary_runs", "--seed", str(options.seed), "--points", "1",
        "--query-tokens", str(c.query_tokens), "--tp", str(c.tensor_parallel), "--ep", str(c.expert_parallel),
    ]  # fmt: skip
    words += ["--model", options.model, "--problem", options.problem, "--candidate", options.candidate]
    words += ["--baseline", options.baseline, "--rows", str(c.rows), "--context", str(c.context)]
    words += ["--page-size", str(c.page_size), "--dcp", str(c.decode_context_parallel)]
    return shlex.join(words)


def course_of(options: argparse.Namespace, runner: Runner) -> Course:
    """Return the course that the options name. Raises GatekeeperError."""
    usable = cores()
    return Course(
        model=load_model(options.model, options.problem, options.models),
        baseline=code_of(source(options.baseline), None, ROOT),
        candidate=code_of(source(options.candidate), None, ROOT),
        jail=process_jail() if options.jail == "process" else find_jail(),
        runner=runner,
        cores=usable,
        limits=Limits(cpus=usable.starting),
    )


def source(spec: str) -> CodeSource:
    """Return the code that ``module:attribute`` or ``PATH::module:attribute`` names."""
    path, _, entry_point = spec.rpartition("::")
    if path:
        return LocalSource(path=str(Path(path).absolute()), entry_point=entry_point)
    return InstalledSource(entry_point=entry_point)


def numbers(text: str) -> tuple[int, ...]:
    """Return the positive whole numbers of a list such as ``1,8``, ascending."""
    return tuple(sorted({int(part) for part in text.split(",")}))


def parser() -> argparse.ArgumentParser:
    """Return the command's options."""
    made = argparse.ArgumentParser(prog="python -m workers.boundary_runs", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--model", required=True)
    made.add_argument("--problem", required=True)
    made.add_argument("--candidate", required=True, help="module:attribute or PATH::module:attribute")
    made.add_argument("--baseline", required=True)
    made.add_argument("--rows", type=numbers, default=(1, 8))
    made.add_argument("--row-thresholds", type=numbers, default=())
    made.add_argument("--query-tokens", type=numbers, default=(1,))
    made.add_argument("--context", default="1-256", help="one number, or least-largest")
    made.add_argument("--context-thresholds", type=numbers, default=())
    made.add_argument("--page-size", type=numbers, default=(8,))
    made.add_argument("--tp", type=numbers, default=(1,))
    made.add_argument("--dcp", type=numbers, default=(1,))
    made.add_argument("--ep", type=numbers, default=(1,))
    made.add_argument("--points", type=int, default=48)
    made.add_argument("--seconds", type=float, default=60.0)
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--jail", choices=("best", "process"), default="best")
    made.add_argument("--models", type=Path, default=MODELS)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Search and report, one JSON object on standard error; return the exit status."""
    options = parser().parse_args(arguments)
    low, _, high = options.context.partition("-")
    space = Space(
        rows=options.rows, page_sizes=options.page_size, least_context=int(low), largest_context=int(high or low),
        query_tokens=options.query_tokens, tensor_parallel=options.tp, decode_context_parallel=options.dcp,
        expert_parallel=options.ep,
        thresholds={"rows": options.row_thresholds, "context": options.context_thresholds},
    )  # fmt: skip
    _settle_threads()
    end = time.monotonic() + options.seconds
    runner = Runner()
    try:
        asker = Asker(course_of(options, runner), options.seed)
        found, points = search(
            space, asker, seed=options.seed, points=options.points, more=lambda: time.monotonic() < end
        )
    except (ArmFailed, GatekeeperError) as error:
        report({"event": "error", "message": str(error)[:2000]})
        return 2
    finally:
        runner.close()
    told: dict[str, Any] = {"event": "boundaries", "points": points, "found": None}
    if found is not None:
        told["found"] = {
            "configuration": found.configuration.label, "code": found.code, "text": found.text,
            "command": command(found, options),
        }  # fmt: skip
    report(told)
    return 0 if found is None else 1


def _settle_threads() -> None:
    import torch

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)


if __name__ == "__main__":
    sys.exit(main())
