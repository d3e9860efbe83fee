"""``gatekeeper init``: a manifest skeleton in the specialised directory that a contributor works on."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click

from gatekeeper.catalog import load_catalog
from gatekeeper.cli import proposing
from gatekeeper.cli.answers import Answering, json_flag
from gatekeeper.cli.check import configuration_of, open_named_book
from gatekeeper.cli.faults import printable
from gatekeeper.cli.skeleton import Proposal, render
from gatekeeper.cli.started import Started, as_document, plain_lines
from gatekeeper.domain import manifest
from gatekeeper.domain.catalog import Catalog
from gatekeeper.domain.errors import Rejected
from gatekeeper.domain.policy import Finding, Outcome
from gatekeeper.domain.repository import CONFIGURATION_PATH, RepositoryConfiguration
from gatekeeper.domain.source import SourceTree
from gatekeeper.git.local import LocalRepository
from gatekeeper.git.worktree import WorkTree

EXIT_STATUS = {Outcome.PASSED: 0, Outcome.FAILED: 1}
USUAL_BASES = (
    "upstream/HEAD", "upstream/main", "upstream/master", "origin/HEAD", "origin/main", "origin/master", "main", "master",
)  # fmt: skip
"""Where the base branch is looked for, in this order: a fork's upstream first."""
TODO_CODE = "SCOPE_MANIFEST_TODO"


@dataclass(frozen=True)
class Wanted:
    """What the command line asked for. ``repo`` is any directory of the checkout; ``directory`` is relative to it."""

    repo: Path
    directory: Path | None = None
    base: str | None = None
    policy_file: Path | None = None
    problem: str | None = None
    targets: tuple[str, ...] = ()
    force: bool = False


@click.command(cls=Answering)
@click.argument("directory", required=False, type=click.Path(path_type=Path))
@click.option(
    "--repo", "repo", default=".", show_default=True, type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="The checkout; DIRECTORY is relative to it.",
)  # fmt: skip
@click.option(
    "--base", metavar="REV", help="The branch to merge into; if left out, the first that exists of upstream and origin."
)
@click.option(
    "--policy", "policy_file", type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help=f"A configuration file used instead of the base's {CONFIGURATION_PATH}.",
)  # fmt: skip
@click.option("--problem", metavar="NAME", help="The model under test that judges it; see `gatekeeper models`.")
@click.option("--target", "targets", metavar="NAME", multiple=True, help="A target to serve; see `gatekeeper targets`.")
@click.option("--force", is_flag=True, help="Overwrite a manifest that is there.")
@json_flag
def init(
    directory: Path | None,
    repo: Path,
    base: str | None,
    policy_file: Path | None,
    problem: str | None,
    targets: tuple[str, ...],
    force: bool,
    json_wanted: bool,
) -> int:
    """Write the skeleton of a manifest, fast_track.toml.

    DIRECTORY is the specialised directory, made if it is not there; if left out, the one that the checkout touches.
    What only you can decide is marked TODO, and `gatekeeper check` fails until all of it is decided.

    Exit status: 0 written, 1 not written, 3 could not decide, 64 wrong usage.
    """
    catalog = load_catalog()
    _known("--problem", (problem,) if problem else (), tuple(catalog.models))
    _known("--target", targets, tuple(catalog.targets))
    started = start(Wanted(repo, directory, base, policy_file, problem, tuple(dict.fromkeys(targets)), force), catalog)
    if json_wanted:
        click.echo(json.dumps(as_document(started), indent=2))
    else:
        for line in plain_lines(started, repo, policy_file):
            click.echo(printable(line))
    return EXIT_STATUS[started.outcome]


def start(wanted: Wanted, catalog: Catalog) -> Started:
    """Write the skeleton and say what was done, or say why nothing was written.

    Raises:
        Rejected: ``LOCAL_WORK_TREE``, ``LOCAL_REPOSITORY``, ``LOCAL_REVISION``, or ``INIT_BASE`` if no base is found.
        ConfigurationError: for a clone that lacks history or objects, or a configuration that is missing, faulty or names an
            unknown policy set.
        GatekeeperError: if git fails.
    """
    work = WorkTree(wanted.repo)
    # The block's end refuses what was read from a clone that lacks objects, so nothing is written before it.
    with LocalRepository(wanted.repo) as local:
        base, base_sha = _base(local, wanted.base)
        proposal = _proposal(local, work, wanted, catalog, base_sha)
    if isinstance(proposal, Finding):
        return Started(base, base_sha, findings=(proposal,))
    path = f"{proposal.directory}/{manifest.MANIFEST_NAME}"
    data = render(proposal).encode()
    _, findings = manifest.read(data, path)
    beyond = tuple(finding for finding in findings if finding.code != TODO_CODE)
    if beyond:  # a name that no manifest can hold: no skeleton made of it could ever become right
        return Started(base, base_sha, proposal.directory, findings=beyond)
    there = os.path.lexists(work.place(path))
    if there and (not wanted.force or work.read(path) is None):
        return Started(base, base_sha, proposal.directory, findings=(_in_the_way(work, path),))
    write(work.place(path), data, replace=there)
    return Started(base, base_sha, proposal.directory, (), there, proposal.hooks, tuple(findings))


def _proposal(
    local: LocalRepository, work: WorkTree, wanted: Wanted, catalog: Catalog, base_sha: str
) -> Proposal | Finding:
    """Return what the skeleton says, or why there can be none."""
    repository = local.repository
    merge_bases = repository.merge_bases(base_sha, local.resolve("HEAD"))
    if not merge_bases:
        return Finding(
            code="ISO_NO_MERGE_BASE", message="the checkout and the base share no history",
            expected="a branch that was made from the base", found="no common ancestor",
        )  # fmt: skip
    configuration = configuration_of(repository.tree(repository.commit_tree(base_sha)), wanted.policy_file)
    trees = tuple(repository.tree(repository.commit_tree(commit)) for commit in merge_bases)
    place = _place(configuration, work, trees, wanted)
    if isinstance(place, Finding):
        return place
    return proposing.propose(
        place,
        configuration=configuration,
        mandatory=_mandatory(configuration),
        catalog=catalog,
        work=work,
        bases=trees,
        problem=wanted.problem,
        targets=wanted.targets,
    )


def write(place: Path, data: bytes, *, replace: bool) -> None:
    """Write a new file, or replace one as a whole: a reader sees the old bytes or the new ones.

    Raises:
        FileExistsError: if a file came into being meanwhile and ``replace`` is false.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    if not replace:
        with place.open("xb") as new:
            new.write(data)
        return
    with tempfile.NamedTemporaryFile(dir=place.parent, prefix=f".{place.name}.", delete=False) as other:
        other.write(data)
    Path(other.name).chmod(place.stat().st_mode & 0o777)
    Path(other.name).replace(place)


def _known(option: str, wanted: tuple[str, ...], names: tuple[str, ...]) -> None:
    for name in wanted:
        if name not in names:
            raise click.BadParameter(
                f"{name!r} is not installed; expected one of {', '.join(names)}", param_hint=option
            )


def _base(local: LocalRepository, base: str | None) -> tuple[str, str]:
    """Return the base branch's name and its commit: the one that was named, or the first usual one that exists."""
    if base is not None:
        return base, local.resolve(base)
    for name in USUAL_BASES:
        try:
            return name, local.resolve(name)
        except Rejected:
            continue
    raise Rejected(
        "which branch is this to be merged into?",
        code="INIT_BASE",
        expected="--base REV",
        found=f"none of {', '.join(USUAL_BASES)}",
    )


def _mandatory(configuration: RepositoryConfiguration) -> tuple[str, ...]:
    """Return the features that the policy set and the repository demand, as ``features_are_declared`` judges them."""
    by_policy = getattr(open_named_book(configuration.policy_set).parameters("features_are_declared"), "mandatory", ())
    return tuple(dict.fromkeys((*by_policy, *configuration.mandatory_features)))


def _place(
    configuration: RepositoryConfiguration,
    work: WorkTree,
    bases: tuple[SourceTree, ...],
    wanted: Wanted,
) -> proposing.Place | Finding:
    free = ", ".join(proposing.free_patterns(configuration))
    if wanted.directory is None:
        touched = proposing.touched_directories(configuration, work, bases)
        if len(touched) != 1:
            found = f"{len(touched)} that the checkout touches: {', '.join(touched)}" if touched else "none is touched"
            return Finding(
                code="INIT_DIRECTORY", message="which specialised directory? name it: gatekeeper init DIRECTORY",
                expected=f"one of {', '.join(touched)}" if touched else f"a directory like {free}", found=found,
            )  # fmt: skip
        path: str | None = touched[0]
    else:
        path = work.shown(wanted.repo.resolve() / wanted.directory)
    shown = path or (str(wanted.directory) if path is None else "the repository's root")
    place = proposing.free_place(configuration, path) if path else None
    if place is None or not path:
        return Finding(
            code="INIT_DIRECTORY", message="no manifest can lie there: the directory is not free", found=shown,
            expected=f"a directory like {free}, which `free` of {wanted.policy_file or CONFIGURATION_PATH} says",
        )  # fmt: skip
    if (strange := proposing.unimportable(path)) is not None:
        return Finding(
            code="INIT_DIRECTORY", message="no manifest can lie there: Python cannot import a package of this name", found=strange,
            expected=f"letters, digits and underscores in each name of the path, like {free}",
        )  # fmt: skip
    if not work.holds(f"{path}/{manifest.MANIFEST_NAME}"):
        return Finding(
            code="INIT_DIRECTORY", message="no manifest can lie there: the directory is reached through a link, or not git's to hold",
            expected=f"a directory of the checkout itself, like {free}", found=shown,
        )  # fmt: skip
    if work.place(path).exists() and not work.place(path).is_dir():
        return Finding(code="INIT_DIRECTORY", message="no manifest can lie there", expected="a directory", found=path)
    return place


def _in_the_way(work: WorkTree, path: str) -> Finding:
    plain = work.read(path) is not None
    return Finding(
        code="INIT_EXISTS",
        message="there is a manifest already" if plain else "something else lies where the manifest belongs",
        expected="no file, or --force to overwrite it" if plain else "no file",
        found="a file" if plain else "a link or a directory",
        path=path,
    )
