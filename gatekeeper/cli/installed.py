"""``gatekeeper policies``, ``targets`` and ``models``: what is installed here."""

from __future__ import annotations

import json
from typing import Any

import click
from pydantic_core import to_jsonable_python
from rich.console import Console
from rich.table import Column, Table

from gatekeeper.catalog import load_catalog
from gatekeeper.cli.answers import Answering, json_flag
from gatekeeper.domain.policy import Outcome
from gatekeeper.engine import load_policies


@click.command(cls=Answering)
@click.argument("name", required=False)
@json_flag
def policies(name: str | None, json_wanted: bool) -> None:
    """List the installed policies, or explain one.

    With NAME of a policy: what it checks, why, how to fix what it finds, and its parameters. With NAME of a check: its policies.
    """
    known = load_policies()
    checks = sorted({policy.check.value for policy, _ in known.values()})
    if name is not None and name not in known and name not in checks:
        raise click.BadParameter(
            f"{name!r} is not installed; expected one of {', '.join(known)}, or a check: {', '.join(checks)}",
            param_hint="NAME",
        )
    rows: list[dict[str, Any]] = [
        {
            "id": policy.id,
            "check": f"gatekeeper/{policy.check}",
            "severity": policy.severity.value,
            "before_a_push": policy.static,
            "title": policy.title,
            "parameters": {
                name: {
                    "default": to_jsonable_python(field.get_default(call_default_factory=True)),
                    "help": field.description or "",
                }
                for name, field in policy.parameters.model_fields.items()
            },
            "explanation": explanation,
        }
        for policy, explanation in known.values()
        if name in (None, policy.id) or (name not in known and name == policy.check)
    ]
    if name in known and not json_wanted:
        click.echo("\n".join(_explained(rows[0])))
        others = [policy.id for policy, _ in known.values() if policy.check == name and policy.id != name]
        if others:
            click.echo(f"\nOther policies of the check gatekeeper/{name}: {', '.join(others)}")
        return
    _show("policies", rows, ("id", "check", "severity", "before_a_push", "title"), json_wanted)


@click.command(cls=Answering)
@json_flag
def targets(json_wanted: bool) -> None:
    """List the hardware targets that races can run on."""
    rows = [{**target.model_dump(mode="json"), "digest": target.digest()} for target in load_catalog().targets.values()]
    _show("targets", rows, ("name", "title", "architecture", "owned", "minimum_jail"), json_wanted)


@click.command(cls=Answering)
@json_flag
def models(json_wanted: bool) -> None:
    """List the models under test with their problems."""
    rows = [model.model_dump(mode="json") for model in load_catalog().models.values()]
    _show("models", rows, ("name", "title", "problems", "default_problem", "suite"), json_wanted)


def _explained(policy: dict[str, Any]) -> list[str]:
    lines = [f"{policy['id']} ({policy['check']}, {policy['severity']})", "", policy["explanation"]]
    if policy["parameters"]:
        lines += ["", "Parameters, set by the policy set:"]
    for name, about in policy["parameters"].items():
        lines.append(f"  {name} = {json.dumps(about['default'])}{about['help'] and '  # ' + about['help']}")
    return lines


def _show(what: str, rows: list[dict[str, Any]], columns: tuple[str, ...], json_wanted: bool) -> None:
    """Print a list: one JSON document, a table on a terminal, one line an entry and no word broken otherwise."""
    if json_wanted:
        document = {"outcome": Outcome.PASSED.value, "findings": [], what: rows}
        click.echo(json.dumps(document, indent=2))
        return
    titles = tuple(column.replace("_", " ") for column in columns)
    cells = [titles, *(tuple(_cell(row[column]) for column in columns) for row in rows)]
    console = Console()
    if not console.is_terminal:
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for line in cells:
            click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        return
    table = Table(*(Column(title, overflow="fold") for title in titles), box=None, header_style="bold")
    for line in cells[1:]:
        table.add_row(*line)
    console.print(table)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
