"""A work tree is looked at, never obeyed: nothing that a clone's configuration names is run, nothing outside is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from gatekeeper.domain.errors import Rejected
from gatekeeper.git.worktree import WorkTree
from tests.checkout import checkout, git, put


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return checkout(tmp_path / "r", {"a.py": "1\n", "d/b.py": "2\n", ".gitignore": "*.pyc\n"})


@pytest.mark.parametrize("key", ["clean", "process"])
def test_no_filter_of_the_clone_is_run(repo: Path, tmp_path: Path, key: str) -> None:
    ran = tmp_path / "ran"
    git(repo, "config", f"filter.Evil.One.{key}", f"touch {ran}; cat")
    git(repo, "config", "filter.Evil.One.required", "true")
    put(repo, ".git/info/attributes", "*.py filter=Evil.One\n")
    put(repo, "a.py", "3\n")
    put(repo, "new.py", "4\n")
    assert WorkTree(repo).uncommitted() == ("a.py", "new.py")
    assert WorkTree(repo).files() == (".gitignore", "a.py", "d/b.py", "new.py")
    assert not ran.exists()


def test_looking_writes_nothing(repo: Path) -> None:
    (repo / "a.py").touch()
    index = (repo / ".git" / "index").read_bytes()
    assert WorkTree(repo).uncommitted() == ()
    assert (repo / ".git" / "index").read_bytes() == index


def test_a_work_tree_elsewhere_is_refused(repo: Path, tmp_path: Path) -> None:
    git(repo, "config", "--replace-all", "core.worktree", str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(Rejected, match="LOCAL_WORK_TREE"):
        WorkTree(repo)


def test_only_plain_files_below_the_root_are_read(repo: Path, tmp_path: Path) -> None:
    put(tmp_path, "outside/secret.py", "secret\n")
    (repo / "link.py").symlink_to(tmp_path / "outside" / "secret.py")
    (repo / "linked").symlink_to(tmp_path / "outside", target_is_directory=True)
    put(repo, "c.pyc", "")
    (repo / "a.py").unlink()
    work = WorkTree(repo / "d")
    assert work.files() == (".gitignore", "d/b.py")
    assert work.files("d") == ("d/b.py",)
    assert work.read("link.py") is work.read("linked/secret.py") is work.read("a.py") is work.read("d/b.py/x") is None
    assert work.read("d/b.py") == b"2\n"
    assert not work.holds("linked/secret.py") and work.holds("d/none.py")


def test_paths_are_told_from_the_root(repo: Path, tmp_path: Path) -> None:
    work = WorkTree(repo)
    assert work.shown(repo) == "" and work.shown(repo / "d" / ".." / "x") == "x"
    assert work.shown(repo / "n\u00e9") == "n\\xc3\\xa9"
    assert work.place("n\\xc3\\xa9") == work.root / "n\u00e9"
    assert work.shown(tmp_path) is None
    (tmp_path / "other").symlink_to(repo, target_is_directory=True)
    assert work.shown(tmp_path / "other" / "d") == "d"
