"""Code is found, bound alone, and checked against its tree id."""

from __future__ import annotations

import subprocess

import pytest

from gatekeeper.domain.errors import Rejected, Retryable
from gatekeeper.domain.race import InstalledSource, LocalSource, TreeSource
from workers.sources import code_of, tree_id


@pytest.fixture
def checkout(tmp_path):
    """A repository with one directory, and the object id that git gives it."""
    inner = tmp_path / "pkg" / "models" / "fast"
    (inner / "sub").mkdir(parents=True)
    (inner / "gate.py").write_text("candidate = 1\n")
    (inner / "sub.py").write_text("")
    (inner / "sub" / "deep.py").write_text("x\n")

    def git(*arguments):
        command = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "x")
    return tmp_path, git("rev-parse", "HEAD:pkg/models/fast")


def tree_source(tree):
    return TreeSource(
        repository_id=1, tree=tree, directory="pkg/models/fast", entry_point="pkg.models.fast.gate:candidate"
    )


def test_the_tree_id_is_gits(checkout):
    root, wanted = checkout
    assert tree_id(root / "pkg/models/fast") == wanted
    code = code_of(tree_source(wanted), root)
    assert code.bind.target == "/tree/pkg/models/fast" and code.bind.source == root / "pkg/models/fast"


def test_changed_files_and_links_are_not_the_tree(checkout):
    root, wanted = checkout
    (root / "pkg/models/fast/gate.py").write_text("candidate = 2\n")
    with pytest.raises(Retryable, match="RACE_TREE"):
        code_of(tree_source(wanted), root)
    (root / "pkg/models/fast/link").symlink_to("/etc/passwd")
    with pytest.raises(Retryable, match="special"):
        code_of(tree_source(wanted), root)
    with pytest.raises(Retryable, match="none given"):
        code_of(tree_source(wanted), None)


def test_installed_and_local_code_must_exist(tmp_path):
    shown = code_of(InstalledSource(entry_point="kernels_under_test.kimi_k3.baseline.stock:baseline"), None)
    assert shown.bind.target == "/tree/kernels_under_test/kimi_k3"
    assert code_of(LocalSource(path=str(tmp_path), entry_point="a:b"), None).bind.target == "/tree"
    with pytest.raises(Rejected):
        code_of(InstalledSource(entry_point="nowhere.at.all:b"), None)
    with pytest.raises(Rejected):
        code_of(LocalSource(path=str(tmp_path / "no"), entry_point="a:b"), None)


@pytest.mark.parametrize(
    ("entry_point", "bare"),
    [("pkg.models.fast.gate:c", 2), ("pkg.models.fast.sub.deep:c", 2), ("pkg.models.fast:c", 1)],
)
def test_the_packages_above_a_directory_are_the_frameworks(checkout, entry_point, bare):
    root, wanted = checkout
    assert code_of(tree_source(wanted).model_copy(update={"entry_point": entry_point}), root).bare == bare


@pytest.mark.parametrize(("entry_point", "bare"), [("a.b.c.d:x", 2), ("a.b:x", 0), ("a:x", 0)])
def test_of_a_whole_checkout_only_the_innermost_package_is_taken_for_the_candidates(tmp_path, entry_point, bare):
    assert code_of(LocalSource(path=str(tmp_path), entry_point=entry_point), None).bare == bare
