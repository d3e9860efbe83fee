"""The boundary search by hand: ``python -m workers.boundary_runs --help``.

Exit status: 0 nothing wrong found, 1 something, 2 a bad command.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gatekeeper.domain.errors import GatekeeperError
from gatekeeper.domain.race import CodeSource, InstalledSource, LocalSource
from workers.asking import Asker, Names, command
from workers.boundaries import Space, search
from workers.environment import cores
from workers.jail import Limits, find_jail, process_jail
from workers.loop.blocks import Course
from workers.models import MODELS, load_model
from workers.protocol import ArmFailed
from workers.race import report
from workers.side import Runner
from workers.sources import ROOT, code_of


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
    names = Names(options.model, options.problem, options.candidate, options.baseline, options.seed)
    told: dict[str, Any] = {"event": "boundaries", "points": points, "found": None}
    if found is not None:
        told["found"] = {
            "configuration": found.configuration.label, "code": found.code, "text": found.text,
            "command": command(found.configuration, names),
        }  # fmt: skip
    report(told)
    return 0 if found is None else 1


def _settle_threads() -> None:
    import torch

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)


if __name__ == "__main__":
    sys.exit(main())
