"""``gatekeeper demo``: the whole path on this machine, from signed webhooks to verdicts."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import click
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from gatekeeper.cli.faults import writable
from gatekeeper.demo import delivery
from gatekeeper.demo.pulls import sample_pulls
from gatekeeper.demo.run import (
    LONGEST_SECONDS,
    Answer,
    Page,
    deliver_all,
    findings,
    settled,
    staged,
    wait_for_verdicts,
)

PLAIN_WIDTH = 150
"""Columns of the table where no terminal says how wide it is (a log, a pipe)."""

STYLE = {"passed": "green", "failed": "red", "pending": "yellow", "error": "magenta"}


@click.command()
@click.option("--once", is_flag=True, help="End by itself; exit status 0 only if every verdict was the expected one.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the verdicts here.")
def demo(once: bool, json_file: Path | None) -> int:
    """Run the service with a sample upstream, deliver signed webhooks and show the verdicts."""
    if json_file is not None and not writable(json_file):
        raise click.UsageError(
            f"expected --json as a file in an existing directory that may be written; found {str(json_file)!r}"
        )
    _end_in_order()
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    began = time.monotonic()
    console.print("building the sample upstream and starting the service ...")
    with staged() as (service, upstream, secret):
        console.print(f"the dashboard is at [bold]{service.url}[/bold]")
        deliver_all(service, upstream, secret)
        console.print(
            f"{len(sample_pulls())} signed webhooks delivered; three of the pull requests race on this machine"
        )
        with Live(console=console, refresh_per_second=2, transient=True) as live:
            lines = _Lines(console, live)
            answers = wait_for_verdicts(service, lines.show)
        console.print(_table(answers))
        good = all(answer.as_expected for answer in answers)
        word = "every verdict is the expected one" if good else "[red]some verdicts are not the expected ones[/red]"
        for line in _surprises(answers):
            console.print(escape(line))
        console.print(f"{word}; {time.monotonic() - began:.0f} s")
        if json_file is not None:
            json_file.write_text(json.dumps([_plain(answer) for answer in answers], indent=2))
        if not once:
            console.print(f"look at [bold]{service.url}[/bold]; Ctrl-C ends the demonstration")
            _wait_for_interrupt()
    return 0 if good else 1


class _Lines:
    """Progress: a table that redraws itself on a terminal, a line for each change elsewhere."""

    def __init__(self, console: Console, live: Live) -> None:
        self._console, self._live = console, live
        self._said: dict[int, str] = {}

    def show(self, pages: dict[int, Page]) -> None:
        states = {number: _state(page) for number, page in pages.items()}
        if self._console.is_terminal:
            table = Table(box=None)
            for pull in sample_pulls():
                table.add_row(f"#{pull.number}", pull.title, states[pull.number])
            self._live.update(table)
            return
        for number, state in states.items():
            if self._said.get(number) != state:
                self._said[number] = state
                self._console.print(f"#{number}: {state}")


def _state(page: Page) -> str:
    if settled(page):
        return f"[{STYLE[page['outcome']]}]{page['outcome']}[/]"
    doing = [job["doing"] for job in page.get("jobs", ())]
    return doing[0] if doing else "waiting"


def _table(answers: tuple[Answer, ...]) -> Table:
    table = Table(title="Verdicts", header_style="bold", show_lines=True)
    for column in ("pull request", "check", "outcome", "reason", "expected", "found", ""):
        table.add_column(column, overflow="fold")
    for answer in answers:
        sign = "[green]as expected[/]" if answer.as_expected else f"[red]expected {answer.pull.expected}[/]"
        shown = _telling(answer.page)
        for number, (check, outcome, code, expected, found) in enumerate(shown):
            name = f"#{answer.pull.number} {answer.pull.title}" if number == 0 else ""
            styled = f"[{STYLE[outcome]}]{outcome}[/]"
            text = (escape(cell) for cell in (code, expected, found))  # reason texts may quote a contributor
            table.add_row(name, check, styled, *text, sign if number == 0 else "")
    return table


def _telling(page: Page) -> list[tuple[str, str, str, str, str]]:
    """The checks that are not passed with their first findings; for a pull request that passed, one line that says so."""
    rows = []
    for check in page.get("checks", ()):
        if check["outcome"] == "passed":
            continue
        told = [item for policy in check["policies"] for item in policy["findings"] if item["effect"] != "note"]
        # Two policies of one check may say the same of a pull request.
        told = list({(item["code"], item["expected"], item["found"]): item for item in told}.values())
        rows += [(check["check"], check["outcome"], item["code"], item["expected"], item["found"]) for item in told[:2]]
        if not told:
            rows.append((check["check"], check["outcome"], "", "", check["summary"]))
    if not settled(page):
        rows.append(("verdict", "pending", "", "", f"not decided within {LONGEST_SECONDS:g} s"))
    return rows or [("verdict", page["outcome"], "", "", page["headline"])]


def _surprises(answers: tuple[Answer, ...]) -> Iterator[str]:
    """What came instead, in full, of each pull request that was not judged as expected."""
    for answer in answers:
        if answer.as_expected:
            continue
        pull = answer.pull
        wanted = ", ".join([pull.expected, *sorted(pull.codes)])
        told = answer.page.get("headline", "no verdict")
        word = answer.outcome.value
        yield f"#{pull.number}: expected {wanted}; found {told if told.startswith(word) else f'{word}: {told}'}"
        for job in answer.page.get("jobs", ()):
            yield f"  job {job['kind']}, {job['state']}: {job['doing']}"
            if job.get("error"):
                yield f"    the last try: {job['error']}"
        for item in findings(answer.page):
            yield f"  {item['code']}: {item['message']}; expected {item['expected']}; found {item['found']}"
        for race in answer.page.get("races", ()):
            yield f"  race on {race['target']}: {race['outcome']}"
            for item in race["reasons"]:
                yield f"    {item['code']} at {item['where']}: expected {item['expected']}; found {item['found']}"


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


def _end_in_order() -> None:
    """Make every signal that asks for an end one that stops the service and removes its folder.

    A shell that starts a job with ``&`` lets it ignore SIGINT; it is listened to again, since "Ctrl-C ends the demonstration".
    SIGHUP, from a terminal that is closed, stays ignored where ``nohup`` made it so.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _interrupt)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    # A terminal that is closed sends it twice (kernel and shell): the second must not break off the end that is under way.
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _wait_for_interrupt() -> None:
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        click.echo("stopping")
