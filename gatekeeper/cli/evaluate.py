"""``gatekeeper evaluate FILE``: decide a stored snapshot again, offline, from its documents and a clone with its objects."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from rich.console import Console

from gatekeeper import engine
from gatekeeper.catalog import load_catalog
from gatekeeper.cli.answers import Answering, json_flag
from gatekeeper.cli.check import EXIT_STATUS, Checked, as_document, open_named_book, show
from gatekeeper.domain.bundle import Bundle
from gatekeeper.domain.errors import Rejected
from gatekeeper.domain.policy import PolicyInput, PolicyResult
from gatekeeper.domain.refusals import results_of
from gatekeeper.domain.snapshot import PullFacts
from gatekeeper.domain.verdict import Verdict, decide
from gatekeeper.engine import PolicyBook
from gatekeeper.git.local import LocalRepository
from gatekeeper.git.snapshots import build


@click.command(cls=Answering)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--repo", "directory", default=".", show_default=True, type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A clone or mirror that holds the pull request's commits; nothing is written into it.",
)  # fmt: skip
@json_flag
def evaluate(file: Path, directory: Path, json_wanted: bool) -> int:
    """Decide a stored snapshot again, offline.

    All policies run over FILE, the snapshot and its evidence as /api/v1/pulls/OWNER/REPO/N/bundle gives them.

    Exit status: 0 passed, 1 failed, 2 pending, 3 could not decide, 64 wrong usage.
    """
    bundle = read_bundle(file)
    verdict = decide_again(bundle, directory)
    checked = Checked(bundle.snapshot, verdict.results, (), decided=verdict.outcome)
    if json_wanted:
        stored = bundle.verdict.outcome.value if bundle.verdict else None
        said = as_document(checked) | {"verdict": verdict.digest(), "stored_outcome": stored}
        click.echo(json.dumps(said, indent=2))
    else:
        show(checked, Console(highlight=False))
        if bundle.verdict is not None and bundle.verdict.outcome is not verdict.outcome:
            click.echo(f"the stored verdict said {bundle.verdict.outcome.value} under {bundle.verdict.policy_set}")
    return EXIT_STATUS[verdict.outcome]


def read_bundle(file: Path) -> Bundle:
    """Read a bundle.

    Raises:
        Rejected: ``BUNDLE`` if the file is no bundle of a known version.
    """
    try:
        return Bundle.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise _no_bundle(file, error.errors(include_url=False)[0]) from error


def _no_bundle(file: Path, first: ErrorDetails) -> Rejected:
    """Return the first thing that is wrong with a bundle in words of the file, not of the library that reads it."""
    where = ".".join(str(part) for part in first["loc"])
    message, value = first["msg"], repr(first.get("input"))[:120]
    if first["type"] == "json_invalid":
        expected, found = "one JSON document", message.removeprefix("Invalid JSON: ")
    elif first["type"] == "extra_forbidden":
        expected, found = "a field of this schema", f"`{first['loc'][-1]}`"
    elif first["type"] == "missing":
        expected, found = "a value", "nothing"
    else:
        expected, found = message.removeprefix("Input should be ").removeprefix("String should "), value
    place = f" at {where}" if where else ""
    return Rejected(f"{file} is no bundle: it is wrong{place}", code="BUNDLE", expected=expected, found=found)


def decide_again(bundle: Bundle, directory: Path) -> Verdict:
    """Build the snapshot anew from the clone's objects, hold it against the stored one, and run every policy.

    A refused snapshot has no objects to build it from: what was refused is decided from the document alone.

    Raises:
        Rejected: ``BUNDLE_SNAPSHOT`` if the objects give another snapshot; ``LOCAL_REVISION`` if they are not there.
        ConfigurationError: if the policy set is not installed.
    """
    stored = bundle.snapshot
    now = bundle.verdict.decided_at if bundle.verdict else datetime.now(UTC)
    book = open_named_book(bundle.verdict.policy_set_name if bundle.verdict else bundle.configuration.policy_set)
    if stored.refusal is not None:
        return _decided(bundle, book, results_of(stored.refusal, book.digest), now)
    with LocalRepository(directory) as local:
        repository = local.repository
        for commit, ref in (
            (stored.key.head_sha, f"pull/{stored.key.number}/head"),
            (stored.key.base_sha, stored.base_ref),
        ):
            _demand(local, commit, ref)
        facts = PullFacts(
            number=stored.key.number,
            title=stored.title,
            author=stored.author,
            base_ref=stored.base_ref,
            draft=stored.draft,
            open=stored.open,
            opened_by_installation=stored.opened_by_installation,
        )
        snapshot = build(
            stored.key.repository_id,
            stored.repository,
            facts,
            repository,
            head_sha=stored.key.head_sha,
            base_sha=stored.key.base_sha,
            policy_set=stored.key.policy_set,
            configuration=bundle.configuration.digest(),
        )
        if snapshot != stored:
            raise Rejected(
                "the clone's objects give another snapshot than the bundle holds",
                code="BUNDLE_SNAPSHOT",
                expected=stored.digest(),
                found=snapshot.digest(),
            )
        subject = PolicyInput(
            snapshot=snapshot,
            configuration=bundle.configuration,
            catalog=load_catalog(),
            base=repository.tree(snapshot.base_tree),
            head=repository.tree(snapshot.head_tree),
            merged=repository.tree(snapshot.merge_tree) if snapshot.merge_tree else None,
            evidence=bundle.evidence,
            now=now,
        )
        results = engine.run(book, subject)
    return _decided(bundle, book, results, now)


def _demand(local: LocalRepository, commit: str, ref: str) -> None:
    try:
        local.resolve(commit)
    except Rejected as error:
        raise Rejected(
            "the clone does not hold a commit of the bundle", code=error.code, found=f"no commit {commit}",
            expected=f"--repo with a clone that holds it (there: git fetch origin {ref})",
        ) from error  # fmt: skip


def _decided(bundle: Bundle, book: PolicyBook, results: tuple[PolicyResult, ...], now: datetime) -> Verdict:
    return decide(
        snapshot=bundle.snapshot.digest(),
        policy_set=book.digest,
        policy_set_name=book.name,
        evidence=tuple(item.digest() for item in bundle.evidence),
        results=results,
        supersedes=None,
        now=now,
        mode=bundle.configuration.mode,
    )
