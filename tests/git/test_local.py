"""A user's clone is read and stays as it is."""

from __future__ import annotations

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
