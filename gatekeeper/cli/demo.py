"""``gatekeeper demo``: the whole path on this machine, from signed webhooks to verdicts."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live
from rich.markup import escape

from gatekeeper.cli.demo_text import Progress, surprises, verdicts
from gatekeeper.cli.ending import ended_in_order
from gatekeeper.cli.faults import writable
from gatekeeper.demo import delivery
from gatekeeper.demo.pulls import sample_pulls
from gatekeeper.demo.run import Answer, deliver_all, findings, settled, staged, wait_for_verdicts

PLAIN_WIDTH = 150
"""Columns of the table where no terminal says how wide it is (a log, a pipe)."""


@click.command()
@click.option("--once", is_flag=True, help="End by itself; exit status 0 only if every verdict was the expected one.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the verdicts here.")
@ended_in_order()
def demo(once: bool, json_file: Path | None) -> int:
    """Run the service with a sample upstream, deliver signed webhooks and show the verdicts."""
    if json_file is not None and not writable(json_file):
        raise click.UsageError(
            f"expected --json as a file in an existing directory that may be written; found {str(json_file)!r}"
        )
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    began = time.monotonic()
    console.print("building the sample upstream and starting the service ...")
    with staged() as (service, upstream, secret):
        console.print(f"the dashboard is at [bold]{service.url}[/bold]")
        deliver_all(service, upstream, secret)
        racing = ", ".join(f"#{pull.number}" for pull in sample_pulls() if pull.races)
        console.print(
            f"{len(sample_pulls())} signed webhooks delivered; {racing} get as far as a race, one after the other",
            highlight=False,
        )
        progress = Progress(console)
        # One frame a second: what draws takes time from what races.
        with Live(progress, console=console, refresh_per_second=1, transient=True):
            answers = wait_for_verdicts(service, progress.show)
        for block in verdicts(answers, console.width):
            console.print(block, highlight=False)
        console.print()
        good = all(answer.as_expected for answer in answers)
        word = "every verdict is the expected one" if good else "[red]some verdicts are not the expected ones[/red]"
        for line in surprises(answers):
            console.print(escape(line))
        console.print(f"{word}; {time.monotonic() - began:.0f} s")
        if json_file is not None:
            json_file.write_text(json.dumps([_plain(answer) for answer in answers], indent=2))
        if not once:
            console.print(f"look at [bold]{service.url}[/bold]; Ctrl-C ends the demonstration")
            _wait_for_interrupt()
    return 0 if good else 1


def _plain(answer: Answer) -> dict[str, object]:
    return {
        "number": answer.pull.number,
        "title": answer.pull.title,
        "repository": delivery.REPOSITORY,
        "outcome": answer.outcome.value,
        "expected": answer.pull.expected.value,
        "as_expected": answer.as_expected,
        "settled": settled(answer.page),
        "checks": {check["check"]: check["outcome"] for check in answer.page.get("checks", ())},
        "findings": list(findings(answer.page)),
        "races": answer.page.get("races", []),
    }


def _wait_for_interrupt() -> None:
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        click.echo("stopping")
