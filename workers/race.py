"""The harness: ``python -m workers.race [--tree DIR] < order.json > result.json``.

Reads a ``RaceOrder``, writes a ``RaceResult``; progress goes to standard error, one JSON object a line. Exit status 0 means that
standard output holds a result, whatever its outcome; 2 that the order cannot be read; 3 that this machine cannot race it now.
With ``--lines`` it reads order after order, one a line, and answers each with a line: a result, or ``{"error": {...}}``; the
status is then 0. Baseline and candidate code is never imported here.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from gatekeeper.domain.errors import GatekeeperError, Rejected, Retryable
from gatekeeper.domain.race import RaceOrder, RaceRequest, RaceResult
from workers import cgroups
from workers.devices.find import find_device
from workers.devices.port import Device
from workers.environment import cores
from workers.jail import Jail, Limits, find_jail, process_jail
from workers.launch import PR_SET_PDEATHSIG
from workers.loop.blocks import Course
from workers.models import MODELS, Model, load_model, shape_of
from workers.session import Progress, Session
from workers.side import Runner
from workers.sources import ROOT, code_of

PR_SET_DUMPABLE = 4
SIGKILL = 9
LARGEST_ORDER = 4 << 20


def race(
    order: RaceOrder,
    *,
    tree: Path | None = None,
    models: Path = MODELS,
    root: Path = ROOT,
    jail: Jail | None = None,
    progress: Progress | None = None,
    device: Device | None = None,
) -> RaceResult:
    """Run one race in this process.

    ``device`` is where the tensors live, the target's if left out; whoever gives one closes it.

    Raises:
        Rejected: if the order names code, a model or a problem that is not there, or a configuration that the problem lacks.
        Retryable: if this machine cannot run it (no such device, no jail, files that are not the tree's).
    """
    request = order.request
    if device is None:
        with closing(find_device(request.target, root)) as found:
            return race(order, tree=tree, models=models, root=root, jail=jail, progress=progress, device=found)
    jail = jail or find_jail(request.target.minimum_jail)
    model = load_model(request.model, request.problem, models, request.target.architecture)
    _demand_defined(request, model)
    before = os.sched_getaffinity(0)
    usable = cores()
    runner = Runner(device.stub())
    try:
        course = Course(
            model=model,
            baseline=code_of(request.baseline, tree, root),
            candidate=code_of(request.candidate, tree, root),
            jail=jail,
            runner=runner,
            cores=usable,
            limits=Limits(cpus=usable.starting),
            device=device,
        )
        if course.cores.harness:
            os.sched_setaffinity(0, course.cores.harness)
        deadline = time.monotonic() + request.target.longest_race_seconds
        return Session(order, course, progress or (lambda _event: None), deadline=deadline).run()
    finally:
        os.sched_setaffinity(0, before)
        runner.close()


def _demand_defined(request: RaceRequest, model: Model) -> None:
    """Refuse what cannot be built before anything is started: the tensors of a configuration exist where its problem says so.

    Raises:
        Rejected: ``RACE_CONFIGURATION`` with the problem's own words.
    """
    for configuration in (*request.configurations, *request.guard_pool, *request.boundary_pool):
        reason = model.problem.check(shape_of(configuration))
        if reason is not None:
            raise Rejected(
                f"the problem {request.problem} does not define {configuration.label}", code="RACE_CONFIGURATION",
                expected="a configuration of the problem", found=reason,
            )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the race that standard input orders; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m workers.race", description="Race a candidate against a baseline.")
    parser.add_argument("--tree", type=Path, help="directory that holds the files of a tree source")
    parser.add_argument("--models", type=Path, default=MODELS, help="directory of the models under test")
    parser.add_argument("--jail", choices=("best", "process"), default="best", help="jail level to use")
    parser.add_argument(
        "--lines", action="store_true", help="read order after order, one a line; answer each with a line"
    )
    options = parser.parse_args(arguments)
    _settle()
    if options.lines:
        return _answer_lines(options)
    try:
        text = sys.stdin.buffer.read(LARGEST_ORDER + 1)
        if len(text) > LARGEST_ORDER:
            raise ValueError(f"expected an order of at most {LARGEST_ORDER} bytes; found more")
        order = RaceOrder.model_validate_json(text)
    except (ValidationError, ValueError) as error:
        report({"event": "error", "code": "RACE_ORDER", "message": str(error)[:2000]})
        return 2
    swept = cgroups.sweep()
    report({"event": "start", "model": order.request.model, "swept": swept})
    try:
        result = _ordered(order, options)
    except GatekeeperError as error:
        report({"event": "error", **_told(error)})
        return 3 if isinstance(error, Retryable) else 2
    sys.stdout.write(result.model_dump_json() + "\n")
    sys.stdout.flush()
    report({"event": "end", "outcome": result.outcome.value})
    return 0


def _ordered(order: RaceOrder, options: argparse.Namespace) -> RaceResult:
    jail = process_jail() if options.jail == "process" else None
    return race(order, tree=options.tree, models=options.models, jail=jail, progress=report)


def _answer_lines(options: argparse.Namespace) -> int:
    """Race what each line orders, one after the other: starting up costs as much as the untimed runs of a small problem."""
    cgroups.sweep()
    while line := sys.stdin.buffer.readline(LARGEST_ORDER + 1):
        try:
            if len(line) > LARGEST_ORDER:
                while line and not line.endswith(b"\n"):  # the rest of it is no order of its own
                    line = sys.stdin.buffer.readline(LARGEST_ORDER)
                raise ValueError(f"expected an order of at most {LARGEST_ORDER} bytes; found more")
            answer = _ordered(RaceOrder.model_validate_json(line), options).model_dump_json()
        except GatekeeperError as error:
            answer = json.dumps({"error": _told(error)})
        except ValueError as error:  # pydantic's are of this kind
            answer = json.dumps({"error": {"code": "RACE_ORDER", "message": str(error)[:2000]}})
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()
    return 0


def _told(error: GatekeeperError) -> dict[str, str]:
    return {"code": error.code, "message": error.message, "expected": error.expected, "found": error.found}


def _settle() -> None:
    """Make this process what a harness must be: it ends with its parent, shows its memory to nobody, and does not pause."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    gc.freeze()


def report(event: dict[str, Any]) -> None:
    """Write one line of progress."""
    sys.stderr.write(json.dumps(event) + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
