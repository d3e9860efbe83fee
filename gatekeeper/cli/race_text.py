"""What ``gatekeeper race`` answers: one JSON document, a table and its reasons for people."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gatekeeper.cli.faults import printable
from gatekeeper.domain.decision import Decision, Reason
from gatekeeper.domain.race import RaceOutcome, RaceResult

EXIT = {RaceOutcome.BETTER: 0, RaceOutcome.HELD: 2, RaceOutcome.VOID: 3}
"""Every other outcome exits with 1."""
_SEED = re.compile(r", seed [0-9a-f]+")
"""Runs that differ in nothing else say the same; ``--json`` has every seed."""
VERDICT = {0: "passed", 1: "failed", 2: "pending", 3: "error"}


def document(outcome: RaceOutcome, result: RaceResult, decision: Decision) -> dict[str, Any]:
    """Return the JSON document: outcome, findings, figures and the whole result."""
    findings = [
        {
            "policy": "kernel_is_faster" if reason.code.startswith(("BENCH", "TIM")) else "kernel_is_right",
            "code": reason.code,
            "severity": "blocking" if reason.outcome else "advisory",
            "path": None,
            "line": None,
            "expected": reason.expected,
            "found": reason.found,
            "message": f"{reason.where}: {message_of(reason)}",
        }
        for reason in decision.reasons
    ]
    return {
        "outcome": VERDICT[EXIT.get(outcome, 1)],
        "race": outcome.value,
        "findings": findings,
        "figures": [figure.model_dump(mode="json") for figure in decision.figures],
        "result": result.model_dump(mode="json"),
    }


def write_json(file: str, value: dict[str, Any]) -> None:
    """Write one JSON document to a file, or to standard output for ``-``."""
    with click.open_file(file, "w", encoding="utf-8") as stream:
        stream.write(json.dumps(value, indent=2) + "\n")


def message_of(reason: Reason) -> str:
    """Return a reason's message. In a race by hand no manifest speaks: the configurations are those of the command line."""
    if reason.code == "SCOPE_DECLINED":
        return reason.message.replace("that its manifest advertises", "that this race asks for")
    return reason.message


def show(outcome: RaceOutcome, decision: Decision, result: RaceResult) -> None:
    """Print the outcome, the figures of each configuration and every reason."""
    console = Console(highlight=False)
    word = outcome.value.replace("_", " ").upper()
    console.print(Text(word, style="bold").append(f"  (jail: {result.jail.value})", style="not bold"), soft_wrap=True)
    rows = list(_figures(decision))
    if len(rows) > 1 and console.is_terminal:
        table = Table(*rows[0])
        for row in rows[1:]:
            table.add_row(*row)
        console.print(table)
    elif len(rows) > 1:
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for line in reason_lines(decision.reasons):
        # A terminal wraps by itself what is too long for it; a pipe gets whole lines.
        console.print(Text(printable(line)), soft_wrap=True)


def _figures(decision: Decision) -> Iterator[tuple[str, ...]]:
    yield "configuration", "blocks", "ratio", "lower", "upper", "margin", "baseline us", "candidate us"
    for f in decision.figures:
        bounds = ["-" if value is None else f"{value:.3f}" for value in (f.lower, f.upper)]
        times = [f"{ns / 1000:.1f}" for ns in (f.baseline_ns, f.candidate_ns)]
        yield f.label, str(f.blocks), f"{f.ratio:.3f}", *bounds, f"{f.margin:.3f}", *times


def reason_lines(reasons: Iterable[Reason]) -> list[str]:
    """Return the reasons as lines: those of one code at one configuration together, with their number and the first of them."""
    groups: dict[tuple[str, str], list[Reason]] = {}
    for reason in reasons:
        groups.setdefault((reason.code, reason.where), []).append(reason)
    lines = []
    for (code, where), group in groups.items():
        first = group[0]
        lines.append(f"{code} at {where}: {message_of(first)}; expected {first.expected}; found {first.found}")
        if len(group) > 1:
            others = list(dict.fromkeys(_SEED.sub("", message_of(reason)) for reason in group))[1:]
            told = f": {'; '.join(others[:SHOWN_OTHERS])}" if others else ""
            more = f" and {len(others) - SHOWN_OTHERS} others" if len(others) > SHOWN_OTHERS else ""
            lines.append(f"  {len(group)} times in all{told}{more}; --json tells all")
    return lines


SHOWN_OTHERS = 3
"""Other messages of one code and configuration that are spelt out."""
