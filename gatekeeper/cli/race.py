"""``gatekeeper race``: one race here and now, in a process of its own, since the service never imports the GPU side."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from gatekeeper.backends.machine import Machine
from gatekeeper.catalog import ROOT, load_catalog
from gatekeeper.cli.faults import writable
from gatekeeper.domain.boundary_pool import branching_contexts
from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.decision import Decision
from gatekeeper.domain.errors import GatekeeperError, Postponed, Retryable
from gatekeeper.domain.race import (
    ENTRY_POINT,
    CodeSource,
    InstalledSource,
    LocalSource,
    RaceOrder,
    RaceOutcome,
    RaceRequest,
    RaceResult,
    RaceRules,
)
from gatekeeper.domain.race_decision import decide_race

EXIT = {RaceOutcome.BETTER: 0, RaceOutcome.HELD: 2, RaceOutcome.VOID: 3}
"""Every other outcome exits with 1."""
VERDICT = {0: "passed", 1: "failed", 2: "pending", 3: "error"}
RULES = RaceRules(
    looks=(4, 6, 10),
    nominal_p=(0.002, 0.003, 0.006),
    groups=6,
    trim=0.25,
    steps=8,
    margin=0.05,
    control_blocks=2,
    guard_configurations=0,
    guard_loss=0.02,
    checked_share=0.25,
    plausible_ratio=3.0,
    margin_cap=0.08,
    raceable_block_sd=0.05,
)
"""A race of about half a minute for somebody who waits. A verdict's rules come from the policy set instead."""


def source(spec: str) -> CodeSource:
    """Return the code that ``module:attribute`` or ``PATH::module:attribute`` names."""
    path, _, entry_point = spec.rpartition("::")
    if not re.match(ENTRY_POINT, entry_point):
        raise click.UsageError(f"expected module:attribute or PATH::module:attribute; found {spec!r}")
    if path:
        return LocalSource(path=str(Path(path).absolute()), entry_point=entry_point)
    return InstalledSource(entry_point=entry_point)


def row_counts(text: str) -> list[int]:
    """Return the numbers of a list such as ``1,8``."""
    parts = text.split(",")
    if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise click.UsageError(f"expected --rows as positive whole numbers between commas; found {text!r}")
    return sorted({int(part) for part in parts})


@click.command()
@click.option("--model", required=True, help="A model under test; see `gatekeeper models`.")
@click.option("--problem", help="Problem size of the model; its default if left out.")
@click.option("--target", default="cpu", show_default=True, help="Hardware target of this machine.")
@click.option(
    "--candidate",
    help="module:attribute of what is installed, or PATH::module:attribute below a directory that modules are "
    "looked for in, such as a checkout; the house candidate if left out.",
)  # fmt: skip
@click.option("--baseline", help="The same for the baseline; the stock path if left out.")
@click.option("--rows", default="1,8", show_default=True, help="Token rows of the configurations raced.")
@click.option("--context", default=256, show_default=True, type=click.IntRange(min=1), help="Tokens of a request.")
@click.option("--page-size", default=8, show_default=True, type=click.IntRange(min=1), help="Tokens of a cache page.")
@click.option("--dcp", default=1, show_default=True, type=click.IntRange(min=1), help="Ranks of context parallelism.")
@click.option(
    "--groups", default=RULES.groups, show_default=True, type=click.IntRange(min=1), help="Groups of a block."
)
@click.option(
    "--boundaries", default=0, show_default=True, type=click.IntRange(0, 1024),
    help="Configurations at page and shard edges up to --context that are tried untimed.",
)  # fmt: skip
@click.option(
    "--long-steps", default=0, show_default=True, type=click.IntRange(0, 100_000),
    help="Steps of one long chain, with states carried from run to run.",
)  # fmt: skip
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, allow_dash=True), help="Write outcome and result here."
)
def race(
    model: str,
    problem: str | None,
    target: str,
    candidate: str | None,
    baseline: str | None,
    rows: str,
    context: int,
    page_size: int,
    dcp: int,
    groups: int,
    boundaries: int,
    long_steps: int,
    json_file: str | None,
) -> int:
    """Race a candidate against the baseline on this machine.

    Exit status: 0 better; 1 wrong, not better, worse, inconclusive or declined; 2 held for a person; 3 void.
    """
    if json_file not in (None, "-") and not writable(Path(str(json_file))):
        raise click.UsageError(
            f"expected --json as a file in an existing directory that may be written; found {json_file!r}"
        )
    catalog = load_catalog()
    if model not in catalog.models:
        raise click.UsageError(f"expected --model as one of {sorted(catalog.models)}; found {model!r}")
    if target not in catalog.targets:
        raise click.UsageError(f"expected --target as one of {sorted(catalog.targets)}; found {target!r}")
    chosen = catalog.models[model]
    request = RaceRequest(
        purpose="local",
        model=model,
        problem=problem or chosen.default_problem,
        suite=chosen.suite,
        target=catalog.targets[target],
        candidate=source(candidate or chosen.candidate),
        baseline=source(baseline or chosen.baseline),
        configurations=tuple(
            Configuration(rows=count, context=context, page_size=page_size, decode_context_parallel=dcp)
            for count in row_counts(rows)
        ),
        boundary_pool=edges_of(row_counts(rows), context, page_size, dcp) if boundaries else (),
        rules=RULES.model_copy(update={"groups": groups, "boundary_points": boundaries, "long_steps": long_steps}),
    )
    with quiet_machine(Machine()):
        result = run(RaceOrder(request=request, alpha=0.01))
    decision = decide_race(request, result, 0.01)
    outcome = decision.outcome or RaceOutcome.VOID
    status = EXIT.get(outcome, 1)
    if json_file:
        write_json(json_file, outcome, status, result, decision)
    if json_file != "-":
        show(outcome, decision, result)
    return status


def edges_of(rows: Sequence[int], context: int, page_size: int, ranks: int) -> tuple[Configuration, ...]:
    """Return what a boundary search up to ``context`` draws from: contexts that code may branch on, each with one number of rows."""
    marks = [mark for mark in branching_contexts(1, context, page_size, ranks) if mark != context]
    return tuple(
        Configuration(rows=rows[index % len(rows)], context=mark, page_size=page_size, decode_context_parallel=ranks)
        for index, mark in enumerate(marks)
    )


@contextmanager
def quiet_machine(machine: Machine) -> Iterator[None]:
    """Hold this machine for a race as the service's own races do: wait while a probe runs, and let none begin."""
    with ExitStack() as held:
        told = False
        while True:
            try:
                held.enter_context(machine.racing())
                break
            except Postponed as taken:
                if not told:
                    click.echo(f"waiting: {taken.found} on this machine", err=True)
                told = True
                time.sleep(0.5)
        yield


def run(order: RaceOrder) -> RaceResult:
    """Run the harness in a process of its own and show its progress.

    Raises:
        Retryable: if it ends without a result.
        GatekeeperError: if it refuses the order.
    """
    # Files, not pipes: a harness that writes while nobody reads would stand still.
    process = subprocess.Popen(
        [sys.executable, "-m", "workers.race"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin and process.stdout and process.stderr
    last: dict[str, Any] = {}
    try:
        process.stdin.write(order.model_dump_json().encode())
        process.stdin.close()
        with _bar() as bar:
            most = order.request.rules.looks[-1] + order.request.rules.control_blocks
            task = bar.add_task("scope and correctness", total=most)
            for line in process.stderr:
                last = _event(line) or last
                bar.update(task, completed=int(last.get("done", 0)), description=_described(last))
        text = process.stdout.read()
        code = process.wait()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if code != 0:
        kind = Retryable if code == 3 else GatekeeperError
        raise kind(
            str(last.get("message", f"the harness ended with status {code}")),
            code=str(last.get("code", "RACE_HARNESS")),
            expected=str(last.get("expected", "")),
            found=str(last.get("found", "")),
        )
    return RaceResult.model_validate_json(text)


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=Console(stderr=True), transient=True
    )


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _described(event: dict[str, Any]) -> str:
    if event.get("event") == "look":
        return " ".join(f"{label}: {ratio}" for label, ratio in dict(event.get("estimate", {})).items())
    return "A/A control" if event.get("control") else str(event.get("event", "starting"))


def write_json(file: str, outcome: RaceOutcome, status: int, result: RaceResult, decision: Decision) -> None:
    """Write one JSON document with the outcome, findings, figures and the whole result."""
    findings = [
        {
            "policy": "kernel_is_faster" if reason.code.startswith(("BENCH", "TIM")) else "kernel_is_right",
            "code": reason.code,
            "severity": "blocking" if reason.outcome else "advisory",
            "path": None,
            "line": None,
            "expected": reason.expected,
            "found": reason.found,
            "message": f"{reason.where}: {reason.message}",
        }
        for reason in decision.reasons
    ]
    document = {
        "outcome": VERDICT[status],
        "race": outcome.value,
        "findings": findings,
        "figures": [figure.model_dump(mode="json") for figure in decision.figures],
        "result": result.model_dump(mode="json"),
    }
    with click.open_file(file, "w", encoding="utf-8") as stream:
        stream.write(json.dumps(document, indent=2) + "\n")


def show(outcome: RaceOutcome, decision: Decision, result: RaceResult) -> None:
    """Print the outcome, the figures of each configuration and every reason."""
    console = Console()
    console.print(f"[bold]{outcome.value.replace('_', ' ').upper()}[/bold]  (jail: {result.jail.value})")
    if decision.figures:
        table = Table("configuration", "blocks", "ratio", "lower", "upper", "margin", "baseline us", "candidate us")
        for f in decision.figures:
            bounds = ["-" if value is None else f"{value:.3f}" for value in (f.lower, f.upper)]
            times = [f"{ns / 1000:.1f}" for ns in (f.baseline_ns, f.candidate_ns)]
            table.add_row(f.label, str(f.blocks), f"{f.ratio:.3f}", *bounds, f"{f.margin:.3f}", *times)
        console.print(table)
    for reason in decision.reasons:
        text = f"{reason.code} at {reason.where}: {reason.message}; expected {reason.expected}; found {reason.found}"
        console.print(text, markup=False, highlight=False)
