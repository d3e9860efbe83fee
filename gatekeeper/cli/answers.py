"""What the commands share when they answer: the JSON of an error, and text that a terminal cannot be made to obey."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import click

from gatekeeper.domain.errors import GatekeeperError
from gatekeeper.domain.policy import Finding, Outcome

OF_A_FINDING = {"policy", "code", "severity", "path", "line", "expected", "found", "message", "effect", "waivable_by"}

json_flag = click.option("--json", "json_wanted", is_flag=True, help="Print one JSON document.")


class Answering(click.Command):
    """A command with :data:`json_flag` that keeps its promise when it cannot decide: one JSON document, outcome ``error``."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error is printed as JSON where that was asked for, and raised on for the exit status.

        Raises:
            GatekeeperError: whatever the command raised; an error of the operating system as ``OS_ERROR``.
        """
        try:
            try:
                return super().invoke(ctx)
            except BrokenPipeError:  # the reader has enough: no error of ours
                raise
            except OSError as error:
                raise from_system(error) from error
        except GatekeeperError as error:
            if ctx.params.get("json_wanted"):
                click.echo(json.dumps(error_document(error), indent=2))
            raise


def from_system(error: OSError) -> GatekeeperError:
    """Return an error of the operating system (no permission, no space left) as one that says what was being touched."""
    where = f": {error.filename}" if error.filename else ""
    return GatekeeperError(f"{error.strerror or error}{where}", code="OS_ERROR")


def error_document(error: GatekeeperError) -> dict[str, Any]:
    """Return the JSON document of a command that could not decide: outcome ``error`` and the error as its one finding."""
    finding = Finding(code=error.code, message=error.message, expected=error.expected, found=error.found)
    return {"outcome": Outcome.ERROR.value, "findings": findings_document([finding])}


def findings_document(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return findings as ``--json`` prints them."""
    return [finding.model_dump(mode="json", include=OF_A_FINDING) for finding in findings]


def printable(text: str) -> str:
    """Spell out control characters: a terminal must not obey what a repository or a pull request wrote."""
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in text)
