"""The command line: one module a command, loaded only when it is called."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from gatekeeper.cli.faults import from_system, printable
from gatekeeper.domain.errors import GatekeeperError

WRONG_USAGE = 64
COULD_NOT_DECIDE = 3

COMMANDS = {
    "approve": "gatekeeper.cli.decisions:approve",
    "check": "gatekeeper.cli.check:check",
    "decisions": "gatekeeper.cli.decisions:list_decisions",
    "demo": "gatekeeper.cli.demo:demo",
    "evaluate": "gatekeeper.cli.evaluate:evaluate",
    "init": "gatekeeper.cli.init:init",
    "migrate": "gatekeeper.cli.serve:migrate",
    "models": "gatekeeper.cli.installed:models",
    "policies": "gatekeeper.cli.installed:policies",
    "race": "gatekeeper.cli.race:race",
    "reset-budget": "gatekeeper.cli.decisions:reset_budget",
    "retry": "gatekeeper.cli.decisions:retry",
    "selftest": "gatekeeper.cli.selftest:selftest",
    "serve": "gatekeeper.cli.serve:serve",
    "targets": "gatekeeper.cli.installed:targets",
    "waive": "gatekeeper.cli.decisions:waive",
    "withdraw": "gatekeeper.cli.decisions:withdraw",
    "worker": "gatekeeper.cli.serve:worker",
}


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is looked up, so that ``--help`` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the base class names it
        """Return the command names in alphabetical order."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return a command, or None if there is none of that name."""
        where = COMMANDS.get(cmd_name)
        if where is None:
            return None
        module, attribute = where.split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List every command with the whole first sentence of its help, folded where the terminal is narrow and never cut."""
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None:
                rows.append((name, command.get_short_help_str(limit=1000)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="gatekeeper")
def root() -> None:
    """Gate GPU kernel pull requests: four checks, one of them a race of candidate against baseline."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    0 passed, 1 failed, 2 pending, 3 could not decide, 64 wrong usage, 130 interrupted (see the README). A fault of our own is 3
    as well, with its traceback: Python's own status for it is 1, which would read as "failed".
    """
    try:
        return _run(arguments)
    except click.exceptions.Exit as stop:
        return int(stop.exit_code)
    except click.UsageError as error:
        error.show(file=sys.stderr)
        return WRONG_USAGE
    except click.ClickException as error:
        error.show(file=sys.stderr)
        return COULD_NOT_DECIDE
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    except GatekeeperError as error:
        click.echo(f"gatekeeper: {printable(str(error))}", err=True)
        return COULD_NOT_DECIDE
    except Exception as error:
        traceback.print_exc()
        click.echo(f"gatekeeper: a fault of gatekeeper itself, please report it: {type(error).__name__}", err=True)
        return COULD_NOT_DECIDE


def _run(arguments: Sequence[str] | None) -> int:
    try:
        answer: Any = root.main(args=None if arguments is None else list(arguments), standalone_mode=False)
    except OSError as error:
        raise from_system(error) from error
    return answer if isinstance(answer, int) else 0
