"""What the demonstration shows: how far each pull request is while it runs, and its verdicts at the end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gatekeeper.cli.faults import printable
from gatekeeper.demo.pulls import sample_pulls
from gatekeeper.demo.run import LONGEST_SECONDS, Answer, Page, findings, settled

WIDE = 110
"""Columns from which expected and found fit beside each other; below they stand under each other."""
SHOWN_LETTERS = 240
"""Of one expected or found: the page and ``--json`` tell all."""
SHOWN_FINDINGS = 2
"""Of one check."""
STYLE = {
    "passed": "green",
    "failed": "red",
    "pending": "yellow",
    "error": "magenta",
    "running": "bold",
    "waiting": "dim",
}
WIDTHS = (2, 7, 19, 5)
"""Columns of the progress: number, state, work, time. What is left is the title's."""
SHORTEST_TITLE = 12
WORK = {
    "intake": "reading it from git",
    "evaluate": "policies",
    "probe": "probe",
    "race": "race",
    "publish": "showing it",
}

Row = tuple[str, str, str, str, str]
"""Check, outcome, reason code, expected, found."""


class Progress:
    """Where each pull request is: a table that redraws itself on a terminal, a line for each change elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console, self._began = console, time.monotonic()
        self._states: dict[int, tuple[str, str, float]] = {}
        """State, work and when both began, by pull request."""

    def show(self, pages: dict[int, Page]) -> None:
        """Take what the service says now."""
        now = time.monotonic()
        for number, page in pages.items():
            found = state_of(page)
            if self._states.get(number, ())[:2] != found:
                self._states[number] = (*found, now)
                if not self._console.is_terminal:
                    said = ": ".join(word for word in found if word)
                    self._console.print(f"{now - self._began:4.0f} s  #{number}: {said}", highlight=False)

    def __rich__(self) -> Table:
        """Return the table as it is now; asked again for each frame, so that the times run on."""
        now = time.monotonic()
        table = Table(
            box=None, padding=(0, 2, 0, 0), show_header=False, title=f"{clock(now - self._began)} since the first webhook",
            title_justify="left", title_style="dim",
        )  # fmt: skip
        room = self._console.width - sum(WIDTHS) - 2 * (len(WIDTHS) + 1)
        title = max(min(room, max(len(pull.title) for pull in sample_pulls())), SHORTEST_TITLE)
        for width in (WIDTHS[0], title, *WIDTHS[1:]):
            table.add_column(no_wrap=True, width=width, overflow="ellipsis")
        for pull in sample_pulls():
            state, work, since = self._states.get(pull.number, ("waiting", "", self._began))
            spent = "" if state not in ("running", "waiting") else clock(now - since)
            table.add_row(f"#{pull.number}", pull.title, Text(state, style=STYLE[state]), work, spent)
        return table


def clock(seconds: float) -> str:
    """Return minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def state_of(page: Page) -> tuple[str, str]:
    """Return a pull request's outcome, or whether it is worked on or waits, and for what."""
    if settled(page):
        return page["outcome"], ""
    jobs = [job for job in page.get("jobs", ()) if job["state"] in ("running", "queued")]
    jobs.sort(key=lambda job: job["state"] != "running")
    if not jobs:
        return "waiting", ""
    return ("running" if jobs[0]["state"] == "running" else "waiting"), WORK.get(jobs[0]["kind"], jobs[0]["kind"])


def verdicts(answers: Iterable[Answer], width: int) -> Iterator[RenderableType]:
    """Yield the verdicts: a line for each pull request, and below it what its checks say. A reason code is never broken."""
    told = [(answer, telling(answer.page)) for answer in answers]
    code_width = max((len(row[2]) for _, rows in told for row in rows), default=0)
    for answer, rows in told:
        yield Text()
        yield _head(answer)
        yield from _beside(rows, code_width) if width >= WIDE else _stacked(rows)


def _head(answer: Answer) -> Text:
    outcome = answer.outcome.value
    line = Text(f"#{answer.pull.number} {answer.pull.title}: ", style="bold").append(outcome, style=STYLE[outcome])
    if answer.as_expected:
        return line.append(", as expected", style="green not bold")
    return line.append(f", expected {answer.pull.expected}", style="red")


def _beside(rows: list[Row], code_width: int) -> Iterator[RenderableType]:
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    for width in (15, 7, code_width):
        table.add_column(no_wrap=True, width=width)
    for _ in ("expected", "found"):
        table.add_column(overflow="fold", ratio=1)
    for check, outcome, code, expected, found in rows:
        wanted = _labelled("expected", expected) if code else Text()
        table.add_row(
            check, Text(outcome, style=STYLE[outcome]), code, wanted, _labelled("found" if code else "", found)
        )
    yield Padding(table, (0, 0, 0, 2))


def _stacked(rows: list[Row]) -> Iterator[RenderableType]:
    for check, outcome, code, expected, found in rows:
        line = Text(f"  {check} ").append(outcome, style=STYLE[outcome]).append(f" {code}" if code else "")
        yield line
        if code:
            yield Padding(_labelled("expected", expected), (0, 0, 0, 6))
        yield Padding(_labelled("found" if code else "", found), (0, 0, 0, 6))


def _labelled(label: str, text: str) -> Text:
    """Return a text that may quote a contributor; very long ones are cut."""
    shown = printable(text)
    shown = shown if len(shown) <= SHOWN_LETTERS else f"{shown[:SHOWN_LETTERS]} ..."
    return Text(f"{label} " if label else "", style="dim").append(shown, style="not dim")


def telling(page: Page) -> list[Row]:
    """Return the checks that are not passed with their first findings; for a pull request that passed, one line that says so."""
    rows: list[Row] = []
    for check in page.get("checks", ()):
        if check["outcome"] == "passed":
            continue
        told = [item for policy in check["policies"] for item in policy["findings"] if item["effect"] != "note"]
        # Two policies of one check may say the same of a pull request, and one the same of several configurations.
        told = list({(item["code"], item["expected"], item["found"]): item for item in told}.values())
        first = list({item["code"]: item for item in reversed(told)}.values())[
            ::-1
        ]  # other codes tell more than more of one
        shown = first[:SHOWN_FINDINGS] if len(first) > 1 else told[:SHOWN_FINDINGS]
        rows += [(check["check"], check["outcome"], item["code"], item["expected"], _found(item)) for item in shown]
        if not told:
            rows.append((check["check"], check["outcome"], "", "", check["summary"]))
    if not settled(page):
        rows.append(("verdict", "pending", "", "", f"not decided within {LONGEST_SECONDS:g} s"))
    return rows or [("verdict", page["outcome"], "", "", page["headline"])]


def _found(item: dict[str, Any]) -> str:
    path = item.get("path")
    if not path or path in item["found"] or path in item["expected"]:
        return str(item["found"])
    return f"{item['found']} ({path}:{item['line']})" if item.get("line") else f"{item['found']} ({path})"


def surprises(answers: Iterable[Answer]) -> Iterator[str]:
    """Yield what came instead, in full, of each pull request that was not judged as expected."""
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
