"""``gatekeeper race``: one race here and now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from gatekeeper.backends.machine import Machine
from gatekeeper.catalog import load_catalog
from gatekeeper.cli.answers import Answering, error_document
from gatekeeper.cli.faults import writable
from gatekeeper.cli.race_arguments import configurations, edges_of, known, parts_on, source
from gatekeeper.cli.race_harness import run
from gatekeeper.cli.race_text import EXIT, document, show, write_json
from gatekeeper.domain.errors import GatekeeperError, Postponed, Rejected
from gatekeeper.domain.race import RaceOrder, RaceOutcome, RaceRequest, RaceRules
from gatekeeper.domain.race_decision import decide_race

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
DEVICE_RULES = {"steps": 256, "margin": 0.01, "margin_cap": 0.05, "raceable_block_sd": 0.03}
"""What is otherwise on a device: steps take a hundred microseconds, and beginning and ending a run a millisecond that dilutes the
gain; blocks differ less (see each target's ``[noise]``)."""
DEVICE_CONTEXT = 1024
"""Tokens of a request on a device where nobody says otherwise: twice the steps of a run."""


class AnsweringInFile(Answering):
    """A command whose ``--json`` names a file: it is written however the command ends, also after wrong usage that it told itself."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; see :class:`Answering`."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            self._tell(ctx, GatekeeperError(error.format_message(), code="WRONG_USAGE"))
            raise

    def _tell(self, ctx: click.Context, error: GatekeeperError) -> None:
        file = ctx.params.get("json_file")
        if file and (file == "-" or writable(Path(file))):
            write_json(file, error_document(error))


@click.command(cls=AnsweringInFile)
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
@click.option(
    "--context", type=click.IntRange(min=1), help=f"Tokens of a request; 256 if left out, {DEVICE_CONTEXT} on a device."
)
@click.option(
    "--page-size", type=click.IntRange(min=1), help="Tokens of a cache page; what the model is raced with if left out."
)
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
    context: int | None,
    page_size: int | None,
    dcp: int,
    groups: int,
    boundaries: int,
    long_steps: int,
    json_file: str | None,
) -> int:
    """Race a candidate against the baseline on this machine.

    Exit status: 0 better; 1 wrong, not better, worse, inconclusive or declined; 2 held for a person; 3 void or could not
    decide; 64 wrong usage.
    """
    if json_file not in (None, "-") and not writable(Path(str(json_file))):
        raise click.UsageError(
            f"expected --json as a file in an existing directory that may be written; found {json_file!r}"
        )
    catalog = load_catalog()
    chosen = catalog.models[known("--model", model, catalog.models)]
    machine = catalog.targets[known("--target", target, catalog.targets)]
    parts, own = parts_on(chosen, machine), machine.architecture == "cpu"
    rules = RULES if own else RULES.model_copy(update=DEVICE_RULES)
    problem = known("--problem", problem or parts.default_problem, parts.problems)
    asked = configurations(
        chosen, parts, problem, rows=rows, context=context or (256 if own else DEVICE_CONTEXT),
        page_size=page_size or parts.page_size, ranks=dcp, steps=rules.steps,
    )  # fmt: skip
    request = RaceRequest(
        purpose="local",
        model=model,
        problem=problem,
        suite=chosen.suite,
        target=machine,
        candidate=source(candidate or parts.candidate),
        baseline=source(baseline or parts.baseline),
        configurations=asked,
        boundary_pool=edges_of(asked) if boundaries else (),
        rules=rules.model_copy(update={"groups": groups, "boundary_points": boundaries, "long_steps": long_steps}),
    )
    try:
        with quiet_machine(Machine()):
            result = run(RaceOrder(request=request, alpha=0.01))
    except Rejected as error:
        if error.code != "RACE_CONFIGURATION":
            raise
        # What the problem's file does not say in numbers: the harness asks the problem itself.
        raise click.UsageError(f"the problem {problem} has no such configuration; {error}") from error
    decision = decide_race(request, result, 0.01)
    outcome = decision.outcome or RaceOutcome.VOID
    if json_file:
        write_json(json_file, document(outcome, result, decision))
    if json_file != "-":
        show(outcome, decision, result)
    return EXIT.get(outcome, 1)


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
