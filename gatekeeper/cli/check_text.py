"""The results of a check for people: grouped on a terminal, one finding a line elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gatekeeper.cli.checked import Checked
from gatekeeper.cli.faults import printable
from gatekeeper.domain.policy import Effect, Finding, Outcome

STYLE = {Outcome.PASSED: "green", Outcome.FAILED: "bold red", Outcome.PENDING: "yellow", Outcome.ERROR: "bold magenta"}
_EFFECT_STYLE = {Effect.FAIL: "bold red", Effect.HOLD: "yellow", Effect.NOTE: "dim"}
SHOWN_NOTES = 3
"""Notes alike that are spelt out: a shared module has dozens of importers, and what matters would drown in them."""
SHOWN_PLACES = 25
"""Places of one group on a terminal. A change of a whole tree has hundreds, which is no news after the first."""
SHOWN_OWNERS = 3
SHOWN_UNCOMMITTED = 5
_NEEDS = {
    "scope_is_probed": "needs a probe: --probe runs it here",
    "kernel_is_right": "needs a race: `gatekeeper race` runs one here",
    "kernel_is_faster": "needs a race: `gatekeeper race` runs one here",
}
_TELLS_ALL = "--json tells all"


def show(checked: Checked, console: Console) -> None:
    """Print the results for people: grouped on a terminal, plain lines otherwise."""
    if console.is_terminal:
        _show_groups(checked, console)
    else:
        for line in plain_lines(checked):
            click.echo(line)


def plain_lines(checked: Checked) -> Sequence[str]:
    """Return the results as lines of printable characters, one finding a line; of notes alike only the first few."""
    lines = []
    for result in checked.results:
        shown = checked.shown(result)
        lines.append(f"{shown.value if shown else 'nothing to judge'}: {result.policy}: {result.summary}")
        lines.extend(f"  {line}" for line in _finding_lines(result.findings))
    lines.extend(f"not checked here: {name}: {_needs(name)}" for name in checked.not_checked)
    lines.extend(f"how to fix {name}: {text}" for name, text in _remedies(checked))
    lines.extend(_not_looked_at(checked))
    lines.append(f"outcome: {checked.outcome.value}")
    return [printable(line) for line in lines]


def _not_looked_at(checked: Checked) -> Iterator[str]:
    shown, more = checked.uncommitted[:SHOWN_UNCOMMITTED], len(checked.uncommitted) - SHOWN_UNCOMMITTED
    if shown:
        yield f"not committed, so not checked: {', '.join(shown)}{f' and {more} more' if more > 0 else ''}"


def _needs(policy: str) -> str:
    return _NEEDS.get(policy, "needs evidence")


def _finding_lines(findings: Sequence[Finding]) -> Iterator[str]:
    notes: Counter[str] = Counter()
    for finding in findings:
        if finding.effect is Effect.NOTE:
            notes[finding.code] += 1
            if notes[finding.code] > SHOWN_NOTES:
                continue
        place = f" {_place(finding)}" if finding.path else ""
        detail = f" (expected {finding.expected}; found {finding.found})" if finding.expected or finding.found else ""
        yield f"{finding.code}{place}: {finding.message}{detail} [{_mark(finding)}]"
    for code, number in notes.items():
        if number > SHOWN_NOTES:
            yield f"{code}: {number - SHOWN_NOTES} more notes of this code; {_TELLS_ALL} [note]"


def _remedies(checked: Checked) -> Iterator[tuple[str, str]]:
    for result in checked.results:
        text = checked.remedies.get(result.policy, "")
        if text and checked.shown(result) in (Outcome.FAILED, Outcome.PENDING):
            yield result.policy, text


def _mark(finding: Finding) -> str:
    """Say what a finding does, and who could let it pass."""
    people = _people(finding.waivable_by)
    if finding.effect is Effect.FAIL:
        return f"fails unless waived by {people}" if people else "fails"
    if finding.effect is Effect.HOLD:
        return f"waits for {people or 'a person'}"
    return "note"


def _people(owners: Sequence[str]) -> str:
    """Any one of the owners is enough, so a few are named: CODEOWNERS may list twenty for a path."""
    named = " or ".join(owners[:SHOWN_OWNERS])
    return f"{named} or {len(owners) - SHOWN_OWNERS} others" if len(owners) > SHOWN_OWNERS else named


def _place(finding: Finding) -> str:
    return f"{finding.path}:{finding.line}" if finding.line else finding.path or ""


def _show_groups(checked: Checked, console: Console) -> None:
    table = Table(box=None, header_style="bold")
    for column in ("check", "policy", "outcome", "what it says"):
        table.add_column(column, overflow="fold")
    for result in checked.results:
        shown = checked.shown(result)
        outcome = Text(shown.value, style=STYLE[shown]) if shown else Text("nothing to judge", style="dim")
        table.add_row(result.check.value, result.policy, outcome, Text(printable(result.summary)))
    for name in checked.not_checked:
        table.add_row("", name, Text("not checked here", style="dim"), Text(_needs(name), style="dim"))
    console.print(table)
    for result in checked.results:
        for group in _groups(result.findings):
            _show_group(group, console)
    for name, text in _remedies(checked):
        console.print(Text(f"\nhow to fix {name}: {text}"))
    for line in _not_looked_at(checked):
        console.print(Text(f"\n{printable(line)}", style="yellow"))
    console.print(Text(f"\noutcome: {checked.outcome.value}", style=STYLE[checked.outcome]))


def _groups(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Gather findings that say the same about different places. What is found may be the place itself."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for one in findings:
        found = "" if one.found == one.path else one.found
        key = (one.effect, one.code, one.message, one.expected, found, one.waivable_by)
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def _show_group(group: Sequence[Finding], console: Console) -> None:
    first = group[0]
    head = Text(f"\n{_mark(first)}", style=_EFFECT_STYLE[first.effect])
    console.print(head.append(f"  {first.code}  ", style="bold").append(printable(first.message), style="not bold"))
    for label, value in (("expected", first.expected), ("found", first.found if first.found != first.path else "")):
        if value:
            console.print(Padding(Text(f"{label}: {printable(value)}"), (0, 0, 0, 2)))
    most = SHOWN_NOTES if first.effect is Effect.NOTE else SHOWN_PLACES
    for one in group[:most]:
        if one.path:
            # Never folded: a path is there to be copied.
            console.print(Text(f"    {printable(_place(one))}"), soft_wrap=True)
    if len(group) > most:
        console.print(Text(f"    and {len(group) - most} more places; {_TELLS_ALL}", style="dim"))
