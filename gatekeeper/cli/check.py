"""``gatekeeper check``: the policies that need no evidence, over two revisions of a local clone, before anything is pushed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gatekeeper import engine
from gatekeeper.catalog import load_catalog
from gatekeeper.domain.errors import ConfigurationError
from gatekeeper.domain.policy import Effect, Finding, Outcome, PolicyInput, PolicyResult, Severity, worst
from gatekeeper.domain.repository import CONFIGURATION_PATH, parse, read
from gatekeeper.domain.snapshot import Author, PullFacts, Snapshot
from gatekeeper.git.local import LocalRepository
from gatekeeper.git.snapshots import build

EXIT_STATUS = {Outcome.PASSED: 0, Outcome.FAILED: 1, Outcome.PENDING: 2, Outcome.ERROR: 3}
_STYLE = {Outcome.PASSED: "green", Outcome.FAILED: "bold red", Outcome.PENDING: "yellow", Outcome.ERROR: "bold magenta"}
_MARK = {Effect.FAIL: "fails", Effect.HOLD: "waits for a person", Effect.NOTE: "note"}


@dataclass(frozen=True)
class Checked:
    """What the static policies said, and which policies could not be asked."""

    snapshot: Snapshot
    results: tuple[PolicyResult, ...]
    not_checked: tuple[str, ...]

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of the blocking policies. Requirements of evidence do not count here, findings do."""
        outcomes = [shown for result in self.results if (shown := shown_outcome(result)) and _blocks(result)]
        return worst(outcomes)


def _blocks(result: PolicyResult) -> bool:
    return result.severity is Severity.BLOCKING


def shown_outcome(result: PolicyResult) -> Outcome | None:
    """Return the result's outcome as far as it can be known before a push: a mere need of evidence holds nothing up."""
    if result.outcome is Outcome.PENDING and not any(finding.effect is Effect.HOLD for finding in result.findings):
        return Outcome.PASSED
    return result.outcome


@click.command()
@click.option(
    "--repo", "directory", required=True, type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A clone of the repository; nothing is written into it.",
)  # fmt: skip
@click.option("--base", required=True, metavar="REV", help="The branch or commit to merge into.")
@click.option("--head", required=True, metavar="REV", help="The branch or commit to be judged.")
@click.option(
    "--policy", "policy_file", type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help=f"A configuration file used instead of the base's {CONFIGURATION_PATH}.",
)  # fmt: skip
@click.option("--json", "json_wanted", is_flag=True, help="Print one JSON document.")
def check(directory: Path, base: str, head: str, policy_file: Path | None, json_wanted: bool) -> int:
    """Run the static policies on a local repository, before pushing.

    Exit status: 0 passed, 1 failed, 2 pending (a person decides), 3 could not decide, 64 wrong usage.
    """
    checked = run_check(directory, base, head, policy_file)
    if json_wanted:
        click.echo(json.dumps(as_document(checked), indent=2))
    else:
        show(checked, Console(highlight=False))
    return EXIT_STATUS[checked.outcome]


def run_check(directory: Path, base: str, head: str, policy_file: Path | None = None) -> Checked:
    """Build the snapshot of ``base`` and ``head`` in a clone and run the static policies over it.

    Raises:
        Rejected: ``LOCAL_REPOSITORY`` or ``LOCAL_REVISION``.
        ConfigurationError: for a shallow clone or one that lacks objects, a missing or faulty configuration, or a policy set
            that is not installed.
        GatekeeperError: if git fails.
    """
    with LocalRepository(directory) as local:
        return _run(local, base, head, policy_file)


def _run(local: LocalRepository, base: str, head: str, policy_file: Path | None) -> Checked:
    base_sha, head_sha = local.resolve(base), local.resolve(head)
    repository = local.repository
    base_files = repository.tree(repository.commit_tree(base_sha))
    configuration = parse(policy_file.read_bytes(), str(policy_file)) if policy_file else read(base_files)
    configuration.demand_sound()
    book = open_named_book(configuration.policy_set)
    facts = PullFacts(number=0, author=Author(id=0, login="local", trusted=True), base_ref=base[:255])
    snapshot = build(
        0,
        f"local/{local.directory.resolve().name}",
        facts,
        repository,
        head_sha=head_sha,
        base_sha=base_sha,
        policy_set=book.digest,
        configuration=configuration.digest(),
    )
    subject = PolicyInput(
        snapshot=snapshot,
        configuration=configuration,
        catalog=load_catalog(),
        base=base_files,
        head=repository.tree(snapshot.head_tree),
        merged=repository.tree(snapshot.merge_tree) if snapshot.merge_tree else None,
        evidence=(),
        now=datetime.now(UTC),
    )
    results = engine.run(book, subject, static_only=True)
    return Checked(snapshot, results, tuple(policy.id for policy in engine.not_checked(book)))


def open_named_book(name: str) -> engine.PolicyBook:
    """Return an installed policy set by its name.

    Raises:
        ConfigurationError: ``CONFIG_POLICY_SET`` if there is none of that name.
    """
    books = engine.open_installed_books()
    if name not in books:
        raise ConfigurationError(
            "the configuration names a policy set that is not installed",
            code="CONFIG_POLICY_SET",
            expected=", ".join(sorted(books)) or "an installed policy set",
            found=name,
        )
    return books[name]


def as_document(checked: Checked) -> dict[str, Any]:
    """Return the JSON document of ``--json``."""
    key = checked.snapshot.key
    return {
        "outcome": checked.outcome.value,
        "base": key.base_sha,
        "head": key.head_sha,
        "merge_tree": key.merge_tree,
        "policy_set": key.policy_set,
        "findings": [_finding(finding) for result in checked.results for finding in result.findings],
        "policies": [
            {
                "policy": result.policy,
                "check": result.check.value,
                "severity": result.severity.value,
                "outcome": shown.value if (shown := shown_outcome(result)) else None,
                "summary": result.summary,
            }
            for result in checked.results
        ],
        "not_checked": list(checked.not_checked),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return finding.model_dump(
        mode="json",
        include={"policy", "code", "severity", "path", "line", "expected", "found", "message", "effect", "waivable_by"},
    )


def show(checked: Checked, console: Console) -> None:
    """Print the results for people: coloured tables on a terminal, plain lines otherwise."""
    if console.is_terminal:
        _show_tables(checked, console)
    else:
        for line in plain_lines(checked):
            click.echo(line)


def plain_lines(checked: Checked) -> Sequence[str]:
    """Return the results as lines of printable ASCII apart from what policies say."""
    lines = []
    for result in checked.results:
        shown = shown_outcome(result)
        lines.append(f"{shown.value if shown else 'nothing to judge'}: {result.policy}: {result.summary}")
        lines.extend(f"  {_line(finding)}" for finding in result.findings)
    lines.extend(f"not checked here: {name}: needs evidence" for name in checked.not_checked)
    lines.append(f"outcome: {checked.outcome.value}")
    return [_printable(line) for line in lines]


def _line(finding: Finding) -> str:
    place = f" {_place(finding)}" if finding.path else ""
    detail = f" (expected {finding.expected}; found {finding.found})" if finding.expected or finding.found else ""
    return f"{finding.code}{place}: {finding.message}{detail} [{_MARK[finding.effect]}]"


def _place(finding: Finding) -> str:
    return f"{finding.path}:{finding.line}" if finding.line else finding.path or ""


def _printable(text: str) -> str:
    """A terminal must not obey what a pull request wrote: control characters are spelt out."""
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in text)


def _show_tables(checked: Checked, console: Console) -> None:
    table = Table(box=None, header_style="bold")
    for column in ("check", "policy", "outcome", "what it says"):
        table.add_column(column, overflow="fold")
    for result in checked.results:
        shown = shown_outcome(result)
        outcome = Text(shown.value, style=_STYLE[shown]) if shown else Text("nothing to judge", style="dim")
        table.add_row(result.check.value, result.policy, outcome, Text(_printable(result.summary)))
    for name in checked.not_checked:
        table.add_row("", name, Text("not checked here", style="dim"), Text("needs evidence", style="dim"))
    console.print(table)
    findings = [finding for result in checked.results for finding in result.findings]
    if findings:
        detail = Table(box=None, header_style="bold")
        for column in ("code", "where", "message", "expected", "found", "effect"):
            detail.add_column(column, overflow="fold")
        for finding in findings:
            cells = (
                finding.code,
                _place(finding),
                finding.message,
                finding.expected,
                finding.found,
                _MARK[finding.effect],
            )
            detail.add_row(*(Text(_printable(cell)) for cell in cells))
        console.print(detail)
    console.print(Text(f"outcome: {checked.outcome.value}", style=_STYLE[checked.outcome]))
