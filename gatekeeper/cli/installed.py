"""``gatekeeper policies``, ``targets`` and ``models``: what is installed here."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from gatekeeper.catalog import load_catalog
from gatekeeper.engine import load_policies

as_json = click.option("--json", "json_wanted", is_flag=True, help="Print one JSON document.")


@click.command()
@as_json
def policies(json_wanted: bool) -> None:
    """List the installed policies with their checks, severities and parameters."""
    rows: list[dict[str, Any]] = [
        {
            "id": policy.id,
            "check": f"gatekeeper/{policy.check}",
            "severity": policy.severity.value,
            "before a push": "yes" if policy.static else "needs evidence",
            "title": policy.title,
            "parameters": {
                name: {"default": field.get_default(call_default_factory=True), "help": field.description or ""}
                for name, field in policy.parameters.model_fields.items()
            },
            "explanation": explanation,
        }
        for policy, explanation in load_policies().values()
    ]
    _show(rows, ("id", "check", "severity", "before a push", "title"), json_wanted)


@click.command()
@as_json
def targets(json_wanted: bool) -> None:
    """List the hardware targets that races can run on."""
    rows = [
        {**target.model_dump(mode="json"), "owned here": "yes" if target.owned else "no", "digest": target.digest()}
        for target in load_catalog().targets.values()
    ]
    _show(rows, ("name", "title", "architecture", "owned here", "minimum_jail"), json_wanted)


@click.command()
@as_json
def models(json_wanted: bool) -> None:
    """List the models under test with their problems."""
    rows = [model.model_dump(mode="json") for model in load_catalog().models.values()]
    _show(rows, ("name", "title", "problems", "default_problem", "suite"), json_wanted)


def _show(rows: list[dict[str, Any]], columns: tuple[str, ...], json_wanted: bool) -> None:
    if json_wanted:
        click.echo(json.dumps(rows, indent=2, default=str))
        return
    table = Table(box=None, header_style="bold")
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(", ".join(cell) if isinstance(cell := row[name], list) else str(cell) for name in columns))
    Console().print(table)
