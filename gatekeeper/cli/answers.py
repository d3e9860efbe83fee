"""What the commands share when they answer in JSON: the flag, the findings, and the document of an error."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import click

from gatekeeper.cli.faults import from_system
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
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # not an error of the command: wrong usage, an end that was asked for, a reader that has enough
        except GatekeeperError as error:
            self._tell(ctx, error)
            raise
        except OSError as error:
            told = from_system(error)
            self._tell(ctx, told)
            raise told from error
        except Exception as error:
            self._tell(ctx, GatekeeperError(f"{type(error).__name__}: {error}", code="INTERNAL_ERROR"))
            raise

    def _tell(self, ctx: click.Context, error: GatekeeperError) -> None:
        if ctx.params.get("json_wanted"):
            click.echo(json.dumps(error_document(error), indent=2))


def error_document(error: GatekeeperError) -> dict[str, Any]:
    """Return the JSON document of a command that could not decide: outcome ``error`` and the error as its one finding."""
    finding = Finding(code=error.code, message=error.message, expected=error.expected, found=error.found)
    return {"outcome": Outcome.ERROR.value, "findings": findings_document([finding])}


def findings_document(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return findings as ``--json`` prints them."""
    return [finding.model_dump(mode="json", include=OF_A_FINDING) for finding in findings]
