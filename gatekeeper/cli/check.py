"""``gatekeeper check``: the policies that need no evidence, over two revisions of a local clone, before anything is pushed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from gatekeeper import engine
from gatekeeper.catalog import load_catalog
from gatekeeper.cli import probing
from gatekeeper.cli.answers import Answering, json_flag
from gatekeeper.cli.check_text import plain_lines, show
from gatekeeper.cli.checked import Checked, as_document
from gatekeeper.domain.errors import ConfigurationError, GatekeeperError
from gatekeeper.domain.policy import Outcome, PolicyInput
from gatekeeper.domain.repository import CONFIGURATION_PATH, RepositoryConfiguration, parse, read
from gatekeeper.domain.snapshot import Author, PullFacts
from gatekeeper.domain.source import SourceTree
from gatekeeper.git.local import LocalRepository
from gatekeeper.git.snapshots import build
from gatekeeper.git.worktree import WorkTree

__all__ = ["EXIT_STATUS", "Checked", "as_document", "check", "open_named_book", "plain_lines", "run_check", "show"]

EXIT_STATUS = {Outcome.PASSED: 0, Outcome.FAILED: 1, Outcome.PENDING: 2, Outcome.ERROR: 3}

EXAMPLE = "docs/gatekeeper.example.toml"


@click.command(cls=Answering)
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
@click.option("--probe", is_flag=True, help="Also import the code in a jail of this machine and ask its supports().")
@json_flag
def check(directory: Path, base: str, head: str, policy_file: Path | None, probe: bool, json_wanted: bool) -> int:
    """Run the static policies on a local repository, before pushing.

    With --probe the code of the merge result is run too, in a jail, as the service does it: scope_is_probed is judged as well.

    Exit status: 0 passed, 1 failed, 2 pending (a person decides), 3 could not decide, 64 wrong usage.
    """
    checked = run_check(directory, base, head, policy_file, probe=probe)
    if json_wanted:
        click.echo(json.dumps(as_document(checked), indent=2))
    else:
        show(checked, Console(highlight=False))
    return EXIT_STATUS[checked.outcome]


def run_check(
    directory: Path, base: str, head: str, policy_file: Path | None = None, *, probe: bool = False
) -> Checked:
    """Build the snapshot of ``base`` and ``head`` in a clone and run the static policies over it; with ``probe`` also the probe.

    Raises:
        Rejected: ``LOCAL_REPOSITORY`` or ``LOCAL_REVISION``.
        ConfigurationError: for a shallow clone or one that lacks objects, a missing or faulty configuration, or a policy set
            that is not installed.
        GatekeeperError: if git fails, or no probe can be run here.
    """
    with LocalRepository(directory) as local:
        return _run(local, base, head, policy_file, probe)


def _run(local: LocalRepository, base: str, head: str, policy_file: Path | None, probe: bool) -> Checked:
    base_sha, head_sha = local.resolve(base), local.resolve(head)
    repository = local.repository
    base_files = repository.tree(repository.commit_tree(base_sha))
    configuration = configuration_of(base_files, policy_file)
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
    results = probing.judge(book, subject, repository) if probe else engine.run(book, subject, static_only=True)
    judged = {result.policy for result in results}
    not_checked = tuple(policy.id for policy in engine.not_checked(book) if policy.id not in judged)
    return Checked(snapshot, results, not_checked, remedies(book), uncommitted_beside(local, head_sha))


def uncommitted_beside(local: LocalRepository, commit: str) -> tuple[str, ...]:
    """Return what the clone's work tree holds that is not committed, if ``commit`` is the one that is checked out."""
    try:
        return WorkTree(local.directory).uncommitted() if local.resolve("HEAD") == commit else ()
    except (
        GatekeeperError
    ):  # a bare repository, nothing checked out, a damaged index: a courtesy, and no reason to fail
        return ()


def configuration_of(base_files: SourceTree, policy_file: Path | None) -> RepositoryConfiguration:
    """Return the configuration of a base tree, or that of a file used instead.

    Raises:
        ConfigurationError: if it is missing or faulty.
    """
    if policy_file is not None:
        return parse(policy_file.read_bytes(), str(policy_file))
    configuration = read(base_files)
    try:
        configuration.demand_sound()
    except ConfigurationError as error:
        tried = f"{error.expected}; or another one by --policy FILE"
        if error.code == "CONFIG_MISSING":
            tried += f" ({EXAMPLE} of gatekeeper is one to begin with)"
        raise ConfigurationError(error.message, code=error.code, expected=tried, found=error.found) from error
    return configuration


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


def remedies(book: engine.PolicyBook) -> dict[str, str]:
    """Return what each policy's text says under "How to fix", as one line, by policy id."""
    told = {item.policy.id: item.explanation.partition("How to fix:")[2] for item in book.installed}
    return {name: " ".join(text.split()).replace("``", "`") for name, text in told.items()}
