"""A user's clone is read and stays as it is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gatekeeper.domain.errors import ConfigurationError, Rejected
from gatekeeper.git.local import LocalRepository
from tests.git_builder import GitBuilder


def _clone(tmp_path: Path) -> tuple[Path, str, str]:
    (tmp_path / "work").mkdir()
    repo = GitBuilder(tmp_path / "work" / ".git")
    base = repo.commit({"core/a.py": "a\n", "k/k.py": "k\n"}, branch="main")
    head = repo.commit({"k/k.py": "2\n"}, parent=base, branch="topic")
    repo.commit({"core/a.py": "b\n"}, parent=base, branch="main")
    (repo.path / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n")
    return tmp_path / "work", base, head


def _listing(root: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(root.rglob("*")) if file.is_file()}


def test_merging_writes_nothing_into_the_clone(tmp_path: Path) -> None:
    work, base, head = _clone(tmp_path)
    before = _listing(work)
    (work / "sub").mkdir()
    with LocalRepository(work / "sub") as local:
        main = local.resolve("main")
        assert local.resolve("topic~0") == head
        assert local.repository.merge_bases(main, head) == (base,)
        merged = local.repository.merge(main, head).tree
        assert merged is not None
        assert local.repository.tree(merged).read("k/k.py") == b"2\n"
        scratch = local.repository.git_dir
    assert _listing(work) == before
    assert not scratch.exists()


@pytest.mark.parametrize("revision", ["nope", "--help", "", "main:core/a.py", "-x"])
def test_a_revision_that_names_no_commit_is_refused(tmp_path: Path, revision: str) -> None:
    work, _, _ = _clone(tmp_path)
    with LocalRepository(work) as local, pytest.raises(Rejected, match="LOCAL_REVISION"):
        local.resolve(revision)


def test_a_bare_repository_named_itself_and_no_repository(tmp_path: Path) -> None:
    work, _, head = _clone(tmp_path)
    with LocalRepository(work / ".git") as local:
        assert local.resolve("topic") == head
    (tmp_path / "empty").mkdir()
    with pytest.raises(Rejected, match="LOCAL_REPOSITORY"):
        LocalRepository(tmp_path / "empty")


def test_iso_shallow_clone_is_refused(tmp_path: Path) -> None:
    work, base, _ = _clone(tmp_path)
    (work / ".git" / "shallow").write_text(base + "\n")
    with pytest.raises(ConfigurationError, match="ISO_SHALLOW"):
        LocalRepository(work)


LARGE = "x" * 5000


def _git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(directory), *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def _partial(tmp_path: Path, wanted: str) -> Path:
    """A partial clone, of a history whose two branches both change ``core/a.py``."""
    source = GitBuilder(tmp_path / "source.git")
    core = [f"line {number}" for number in range(9)]
    base = source.commit({"core/a.py": "\n".join(core), "k/k.py": "k\n", "logo.bin": LARGE}, branch="main")
    core[0] = "first"
    source.commit({"core/a.py": "\n".join(core)}, parent=base, branch="topic")
    core[0], core[-1] = "line 0", "last"
    source.commit({"core/a.py": "\n".join(core)}, parent=base, branch="main")
    source.configure("[uploadpack]\n\tallowFilter = true\n\tallowAnySHA1InWant = true\n")
    clone = tmp_path / "clone"
    _git(tmp_path, "clone", "-q", "--no-checkout", f"--filter={wanted}", source.path.as_uri(), str(clone))
    assert "missing" in _missing(clone)
    return clone


def _missing(clone: Path) -> str:
    names = _git(clone, "rev-list", "--objects", "--all", "--missing=print")
    return "missing" if any(line.startswith("?") for line in names.splitlines()) else "all there"


def test_a_partial_clone_answers_as_long_as_nothing_that_it_lacks_is_read(tmp_path: Path) -> None:
    clone = _partial(tmp_path, "blob:limit=4k")
    with LocalRepository(clone) as local:
        main, topic = local.resolve("origin/main"), local.resolve("origin/topic")
        assert len(local.repository.merge_bases(main, topic)) == 1
        merged = local.repository.merge(main, topic).tree
        assert merged is not None
        assert local.repository.tree(merged).read("k/k.py") == b"k\n"
    with (
        pytest.raises(ConfigurationError, match=r"ISO_SHALLOW: the partial clone lacks .* at least 1 missing"),
        LocalRepository(clone) as local,
    ):
        tree = local.repository.tree(local.repository.commit_tree(local.resolve("origin/main")))
        tree.read("logo.bin")
    assert _missing(clone) == "missing"


def test_what_was_made_of_a_missing_object_means_nothing_even_where_the_caller_went_on(tmp_path: Path) -> None:
    clone = _partial(tmp_path, "blob:none")
    with pytest.raises(ConfigurationError, match="ISO_SHALLOW"), LocalRepository(clone) as local:
        tree = local.repository.tree(local.repository.commit_tree(local.resolve("origin/main")))
        with pytest.raises(KeyError):
            tree.grep(b"line")


def test_a_merge_that_lacks_objects_says_what_to_do_and_that_helps(tmp_path: Path) -> None:
    clone = _partial(tmp_path, "blob:none")
    with (
        pytest.raises(ConfigurationError, match=r"ISO_SHALLOW.*git fetch --refetch --no-filter"),
        LocalRepository(clone) as local,
    ):
        local.repository.merge(local.resolve("origin/main"), local.resolve("origin/topic"))
    _git(clone, "fetch", "-q", "--refetch", "--no-filter")
    assert list((clone / ".git" / "objects" / "pack").glob("*.promisor"))
    with LocalRepository(clone) as local:
        assert local.partial
        assert local.repository.merge(local.resolve("origin/main"), local.resolve("origin/topic")).tree


def test_a_damaged_clone_is_told_from_a_partial_one(tmp_path: Path) -> None:
    work, base, _ = _clone(tmp_path)
    with LocalRepository(work) as local:
        entry = local.repository.tree(local.repository.commit_tree(base)).entry("k/k.py")
    assert entry is not None
    (work / ".git" / "objects" / entry.id[:2] / entry.id[2:]).unlink()
    with pytest.raises(ConfigurationError, match=r"the clone lacks objects .*git fsck"), LocalRepository(work) as local:
        local.repository.tree(local.repository.commit_tree(base)).read("k/k.py")
