"""Runs ``gatekeeper check`` over merged changes of public repositories, chosen by a rule.

    python -m benchmarks.real_repositories vllm=/clones/vllm.git@COMMIT flashinfer=/clones/flashinfer.git

Each argument names a configuration of ``benchmarks/repositories``, a clone, and the newest commit to look at (default ``HEAD``).
Every commit of the first-parent line is taken for a pull request: its parent is the base, the commit is the head. Where the clone
holds ``refs/pull/N/head`` for the ``(#N)`` of a subject, what was really proposed is judged as well, against the same base. So are
the newest ``--unmerged`` proposals that no subject names, against the newest commit: conflicts and odd histories are among them.

The rule: the last ``--last`` commits are all judged within this process. For the sample, the line is searched back for ``--search``
commits; each kind of change (:func:`kinds`) gives its newest ``--take`` that no rarer kind gave before. The sample is judged by
the command itself, in a process of its own, as a contributor would.

git's own ``diff-tree`` is the witness for what changed, the forge's commit for what merging gives. Nothing is written into a clone.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gatekeeper.cli.check import as_document, run_check
from gatekeeper.domain.errors import GatekeeperError
from gatekeeper.domain.globs import covers
from gatekeeper.domain.repository import ModelRules, RepositoryConfiguration, parse
from gatekeeper.domain.snapshot import ChangedFile, ChangeKind
from gatekeeper.domain.zones import specialised_directory
from gatekeeper.git import plumbing
from gatekeeper.git.comparing import compare
from gatekeeper.git.local import LocalRepository

CONFIGURATIONS = Path(__file__).parent / "repositories"
NATIVE = (".cu", ".cuh", ".c", ".cc", ".cpp", ".h", ".hpp", ".inl", "CMakeLists.txt", ".cmake")
DOCUMENTATION = (".md", ".rst", ".png", ".jpg", ".po", ".ipynb")
HUGE = 100
"""Changed entries from which a change counts as huge."""

RAREST_FIRST = (
    "link or submodule", "binary", "mode", "huge", "several directories", "rename", "free and hooks", "native next to free",
    "free and core", "free only", "native", "core only", "documents",
)  # fmt: skip


@dataclass(frozen=True)
class Change:
    """One commit of the first-parent line, as a pull request."""

    base: str
    head: str
    merged: str
    """The commit that the forge made of it; equals ``head`` unless the proposed branch is judged."""
    kinds: frozenset[str]
    paths: int


@dataclass
class Judged:
    """What the check said about one change, and how long it took."""

    change: Change
    outcome: str
    codes: Counter[str] = field(default_factory=Counter)
    policies: dict[str, str | None] = field(default_factory=dict)
    merge_tree: str | None = None
    seconds: float = 0.0
    """Wall-clock time."""
    processor: float = 0.0
    """Processor time of this process and of those that it started and waited for."""
    status: int | None = None
    error: str = ""


def kinds(configuration: RepositoryConfiguration, changes: Sequence[ChangedFile], binary: bool) -> frozenset[str]:
    """Return every kind that a change is of; an empty change is of none."""
    found = set()
    modes = {mode for change in changes for mode in (change.old_mode, change.new_mode)}
    gone = {change.old_blob for change in changes if change.kind is ChangeKind.DELETED}
    come = {change.new_blob for change in changes if change.kind is ChangeKind.ADDED}
    places = [specialised_directory(configuration, change) for change in changes]
    directories = {place[0] for place in places if place}
    outside = [change.path for change, place in zip(changes, places, strict=True) if not place]
    native = any(change.path.endswith(NATIVE) for change in changes)
    found |= {"link or submodule"} if modes & {"120000", "160000"} else set()
    found |= {"binary"} if binary else set()
    found |= {"mode"} if any(c.old_mode and c.new_mode and c.old_mode != c.new_mode for c in changes) else set()
    found |= {"huge"} if len(changes) >= HUGE else set()
    found |= {"rename"} if gone & come else set()
    found |= {"native"} if native and not directories else set()
    found |= {"native next to free"} if native and directories else set()
    if len(directories) > 1:
        found.add("several directories")
    elif directories:
        found.add(_around(next(place for place in places if place), outside))
    elif changes and all(path.endswith(DOCUMENTATION) for path in outside):
        found.add("documents")
    elif changes:
        found.add("core only")
    return frozenset(found)


def _around(place: tuple[str, str, ModelRules], outside: Iterable[str]) -> str:
    _, root, model = place
    rest = [path for path in outside if not any(covers(test, path) for test in model.tests)]
    if not rest:
        return "free only"
    hooks = [f"{root}/{hook}" for hook in model.hooks]
    return "free and hooks" if all(any(covers(hook, path) for hook in hooks) for path in rest) else "free and core"


def line(local: LocalRepository, tip: str, most: int) -> list[tuple[str, str, str]]:
    """Return (commit, first parent, subject) of the first-parent line, newest first; a root commit ends it."""
    told = plumbing.run(
        local.git_dir,
        "log",
        "--first-parent",
        f"--max-count={most}",
        "--format=%H%x00%P%x00%s",
        "--end-of-options",
        tip,
    )
    rows = [row.split("\0") for row in told.output.decode("utf-8", "replace").splitlines()]
    return [(commit, parents.split(" ")[0], subject) for commit, parents, subject in rows if parents]


def described(local: LocalRepository, configuration: RepositoryConfiguration, commit: str, parent: str) -> Change:
    """Return a commit as a pull request."""
    repository = local.repository
    base, head = repository.commit_tree(parent), repository.commit_tree(commit)
    changes = compare(repository.store, base, head).comparison.changes
    blobs = [change.new_blob for change in changes if change.new_blob and change.new_mode != "160000"]
    binary = False
    for blob in blobs:
        try:
            binary = binary or b"\0" in repository.store.reader.read(blob, "blob")[:8000]
        except KeyError:
            binary = True  # a partial clone leaves out what is large
    repository.store.reader.missing.clear()  # looking for the kind of a change is no judgement
    return Change(parent, commit, commit, kinds(configuration, changes, binary), len(changes))


def sample(changes: Iterable[Change], take: int) -> list[Change]:
    """Return the newest ``take`` changes of each kind, rarest kinds first, none twice."""
    pool = list(changes)
    chosen: dict[str, Change] = {}
    for kind in RAREST_FIRST:
        fitting = [change for change in pool if kind in change.kinds and change.head not in chosen]
        chosen.update({change.head: change for change in fitting[:take]})
    return list(chosen.values())


def proposed(local: LocalRepository, changes: Iterable[Change], subjects: dict[str, str]) -> Iterator[Change]:
    """Yield the pull requests' own heads, where the clone holds them."""
    for change in changes:
        number = re.search(r"\(#(\d+)\)$", subjects.get(change.head, ""))
        if number is None:
            continue
        try:
            head = local.resolve(f"refs/pull/{number[1]}/head")
        except GatekeeperError:
            continue
        yield Change(change.base, head, change.head, change.kinds, change.paths)


def unmerged(local: LocalRepository, tip: str, subjects: dict[str, str], most: int) -> Iterator[Change]:
    """Yield the newest proposals that the searched line did not take in, as pull requests against its tip."""
    taken = {number[1] for subject in subjects.values() if (number := re.search(r"\(#(\d+)\)$", subject))}
    told = plumbing.run(local.git_dir, "for-each-ref", "--format=%(objectname) %(refname)", "refs/pull/*/head").text
    heads = {ref.split("/")[2]: head for head, ref in (row.split(" ") for row in told.splitlines())}
    for number in sorted(heads.keys() - taken, key=int, reverse=True)[:most]:
        yield Change(tip, heads[number], heads[number], frozenset(), 0)


def within(clone: Path, policy: Path, change: Change) -> Judged:
    """Judge one change in this process."""
    begin, processor = time.perf_counter(), _processor()
    try:
        judged = _judged(change, as_document(run_check(clone, change.base, change.head, policy)))
    except Exception as error:  # a crash is what this looks for: it is counted and told, and the run goes on
        judged = Judged(change, "crash", error=f"{type(error).__name__}: {error}")
    judged.seconds, judged.processor = time.perf_counter() - begin, _processor() - processor
    return judged


def command(clone: Path, policy: Path, change: Change) -> Judged:
    """Judge one change by the command, in a process of its own."""
    arguments = ["check", "--repo", str(clone), "--base", change.base, "--head", change.head, "--policy", str(policy)]
    begin, processor = time.perf_counter(), _processor()
    done = subprocess.run(
        [sys.executable, "-m", "gatekeeper", *arguments, "--json"], capture_output=True, text=True, check=False
    )
    seconds, processor = time.perf_counter() - begin, _processor() - processor
    try:
        judged = _judged(change, json.loads(done.stdout))
    except (ValueError, KeyError):
        judged = Judged(change, "crash", error=(done.stderr.strip() or done.stdout)[-300:])
    judged.seconds, judged.processor, judged.status = seconds, processor, done.returncode
    return judged


def _processor() -> float:
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _judged(change: Change, document: dict[str, object]) -> Judged:
    findings, policies = document["findings"], document["policies"]
    assert isinstance(findings, list)
    assert isinstance(policies, list)
    told = {policy["policy"]: policy["outcome"] for policy in policies}
    codes = Counter(f"{finding['code']} {finding['effect']}" for finding in findings)
    tree = document["merge_tree"]
    broken = next((f["found"] for f in findings if f["code"] == "ENGINE_POLICY_ERROR"), "")
    return Judged(change, str(document["outcome"]), codes, told, str(tree) if tree else None, error=broken)


def witnessed(local: LocalRepository, change: Change) -> bool:
    """Whether git's own recursive diff tells the same entries, modes and ids as the comparison of trees."""
    told = plumbing.run(
        local.git_dir, "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", change.base, change.head
    ).output.split(b"\0")
    theirs = set()
    for info, path in zip(told[0:-1:2], told[1::2], strict=True):
        old_mode, new_mode, old, new, _ = info[1:].decode().split(" ")
        theirs.add((path, old_mode, new_mode, old, new))
    repository = local.repository
    found = compare(
        repository.store, repository.commit_tree(change.base), repository.commit_tree(change.head)
    ).comparison
    ours = {
        (one.path.encode(), one.old_mode or "000000", one.new_mode or "000000",
         one.old_blob or "0" * 40, one.new_blob or "0" * 40) for one in found.changes
    }  # fmt: skip
    return ours == theirs


def report(title: str, judged: Sequence[Judged], *, rows: bool) -> None:
    """Print one block of results."""
    if not judged:
        print(f"\n## {title}: none")
        return
    print(f"\n## {title}: {len(judged)} changes")
    for unit, key in (("wall", lambda one: one.seconds), ("processor", lambda one: one.processor)):
        times, longest = sorted(map(key, judged)), max(judged, key=key)
        print(f"{unit} seconds: median {statistics.median(times):.2f}, 95 % {times[int(0.95 * (len(times) - 1))]:.2f}, "
              f"most {times[-1]:.2f} ({longest.change.head[:12]})")  # fmt: skip
    outcomes = Counter(one.outcome for one in judged)
    isolation = Counter(str(one.policies.get("isolation")) for one in judged)
    print(f"outcomes: {dict(outcomes.most_common())}; isolation alone: {dict(isolation.most_common())}")
    for code, number in Counter(code for one in judged for code in one.codes).most_common():
        print(f"  {number:5d} changes, {sum(one.codes[code] for one in judged):6d} findings  {code}")
    for one in judged:
        if one.outcome == "crash" or one.error:
            print(f"  FAULT {one.change.head}: {one.error}")
    for one in judged if rows else ():
        codes = ", ".join(f"{code} x{number}" for code, number in sorted(one.codes.items())) or "-"
        print(
            f"  {one.change.head[:12]} {one.change.paths:4d} paths  {one.processor:5.2f} s  exit {one.status}  "
            f"{one.outcome:8s} isolation {one.policies.get('isolation')}  [{', '.join(sorted(one.change.kinds))}]  {codes}"
        )


def look(name: str, clone: Path, tip: str, options: argparse.Namespace) -> None:
    """Run everything over one clone."""
    policy = CONFIGURATIONS / f"{name}.toml"
    configuration = parse(policy.read_bytes(), str(policy))
    with LocalRepository(clone) as local:
        commits = line(local, local.resolve(tip), max(options.search, options.last))
        print(f"\n# {name}: {len(commits)} commits back from {commits[0][0]}")
        changes = [described(local, configuration, commit, parent) for commit, parent, _ in commits]
        chosen = sample(changes[: options.search], options.take)
        subjects = {commit: subject for commit, _, subject in commits}
        pulls = list(proposed(local, changes[: options.pulls], subjects))
        pending = list(unmerged(local, commits[0][0], subjects, options.unmerged)) if pulls else []
        equal = sum(witnessed(local, change) for change in changes)
        print(f"git's own diff tells the same entries: {equal} of {len(changes)}")
        print(f"kinds: {dict(Counter(kind for change in changes for kind in change.kinds).most_common())}")
        trees = {change.merged: local.repository.commit_tree(change.merged) for change in pulls}
    report("sample, by the command", [command(clone, policy, change) for change in chosen], rows=options.rows)
    report("last commits", [within(clone, policy, change) for change in changes[: options.last]], rows=False)
    judged = [within(clone, policy, change) for change in pulls]
    report("as proposed", judged, rows=False)
    same = sum(one.merge_tree == trees[one.change.merged] for one in judged)
    conflicts = sum(one.merge_tree is None for one in judged)
    print(f"merge result equals the forge's commit: {same} of {len(judged)}; no merge result: {conflicts}")
    report("unmerged", [within(clone, policy, change) for change in pending], rows=False)


def main() -> None:
    """Parse the arguments and look at every repository."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clones", nargs="+", metavar="NAME=CLONE[@COMMIT]")
    parser.add_argument("--take", type=int, default=4, help="changes of each kind in the sample (default 4)")
    parser.add_argument("--search", type=int, default=1500, help="commits searched for the sample (default 1500)")
    parser.add_argument("--last", type=int, default=200, help="newest commits that are all judged (default 200)")
    parser.add_argument(
        "--pulls", type=int, default=200, help="newest commits whose proposed heads are judged (default 200)"
    )
    parser.add_argument("--unmerged", type=int, default=100, help="newest proposals that were not merged (default 100)")
    parser.add_argument("--rows", action="store_true", help="print a line for each change of the sample")
    options = parser.parse_args()
    for argument in options.clones:
        name, _, where = argument.partition("=")
        clone, _, tip = where.partition("@")
        look(name, Path(clone), tip or "HEAD", options)


if __name__ == "__main__":
    main()
