"""What two commits differ in, for honest trees and for ones that no honest tool writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gatekeeper.domain.errors import ConfigurationError, GatekeeperError, Rejected
from gatekeeper.domain.snapshot import Author, PullFacts, Snapshot
from gatekeeper.git.repository import Repository
from gatekeeper.git.snapshots import build
from tests.git_builder import Entry, GitBuilder

DIGEST = "sha256:" + "0" * 64
CORE = "".join(f"line {number}\n" for number in range(30))


@pytest.fixture
def upstream(tmp_path: Path) -> GitBuilder:
    return GitBuilder(tmp_path / "upstream.git")


@pytest.fixture
def start(upstream: GitBuilder) -> str:
    return upstream.commit(
        {
            "core/a.py": CORE,
            "core/b.py": "b\n",
            "kernels/cand/k.py": CORE.replace("line", "kernel"),
            "README.md": "hello\n",
        },
        branch="main",
    )


def snapshot(upstream: GitBuilder, head: str, base: str) -> Snapshot:
    repository = Repository(upstream.path)
    try:
        facts = PullFacts(number=1, author=Author(id=1, login="ada"), base_ref="main")
        return build(
            1, "up/repo", facts, repository, head_sha=head, base_sha=base, policy_set=DIGEST, configuration=DIGEST
        )
    finally:
        repository.close()


def changes(snap: Snapshot) -> list[tuple[str, str]]:
    (proposed,) = snap.proposed
    return [(change.path, change.kind.value) for change in proposed.changes]


def test_honest_change_is_one_modified_file(upstream: GitBuilder, start: str) -> None:
    head = upstream.commit({"kernels/cand/k.py": "new\n"}, parent=start)
    snap = snapshot(upstream, head, start)
    assert changes(snap) == [("kernels/cand/k.py", "modified")]
    assert snap.merge_bases == (start,)
    assert snap.merged is not None
    assert [change.path for change in snap.merged.changes] == ["kernels/cand/k.py"]
    assert snap.merge_tree == upstream.tree_of(head)
    assert snap.defects == ()


def test_iso_rename_source_is_a_deletion_and_an_addition(upstream: GitBuilder, start: str) -> None:
    head = upstream.commit({"core/a.py": None, "kernels/cand/a.py": upstream.entry(start, "core/a.py")}, parent=start)
    assert changes(snapshot(upstream, head, start)) == [("core/a.py", "deleted"), ("kernels/cand/a.py", "added")]


def test_iso_copy_target_is_an_addition_whatever_the_configuration(upstream: GitBuilder, start: str) -> None:
    upstream.configure("[diff]\n\trenames = copies\n")
    head = upstream.commit({"core/copy.py": upstream.entry(start, "kernels/cand/k.py")}, parent=start)
    assert changes(snapshot(upstream, head, start)) == [("core/copy.py", "added")]


def test_iso_delete_outside(upstream: GitBuilder, start: str) -> None:
    head = upstream.commit({"core/a.py": None, "kernels/cand/k.py": "x\n"}, parent=start)
    assert changes(snapshot(upstream, head, start)) == [("core/a.py", "deleted"), ("kernels/cand/k.py", "modified")]


@pytest.mark.parametrize("path", ["core/a.py", "kernels/cand/k.py"])
def test_iso_mode_flip_is_seen_with_equal_content(upstream: GitBuilder, start: str, path: str) -> None:
    head = upstream.commit({path: Entry("100755", upstream.entry(start, path).id)}, parent=start)
    (change,) = snapshot(upstream, head, start).proposed[0].changes
    assert (change.path, change.kind.value, change.old_mode, change.new_mode) == (path, "modified", "100644", "100755")
    assert change.old_blob == change.new_blob


def test_iso_typechange_to_a_symbolic_link(upstream: GitBuilder, start: str) -> None:
    head = upstream.commit({"kernels/cand/k.py": upstream.link("../../core/a.py")}, parent=start)
    (change,) = snapshot(upstream, head, start).proposed[0].changes
    assert (change.kind.value, change.new_mode) == ("type_changed", "120000")


def test_iso_symlink_dir_swap_shows_the_link_and_all_that_it_hides(upstream: GitBuilder, start: str) -> None:
    head = upstream.commit({"kernels/cand": upstream.link("../core")}, parent=start)
    assert changes(snapshot(upstream, head, start)) == [("kernels/cand", "added"), ("kernels/cand/k.py", "deleted")]


def test_iso_gitlink_and_its_bump_are_seen_even_with_ignore_all(upstream: GitBuilder, start: str) -> None:
    modules = '[submodule "s"]\n\tpath = kernels/cand/s\n\turl = x\n\tignore = all\n'
    linked = upstream.commit({".gitmodules": modules, "kernels/cand/s": upstream.gitlink("1" * 40)}, parent=start)
    bumped = upstream.commit({"kernels/cand/s": upstream.gitlink("2" * 40)}, parent=linked)
    upstream.configure('[submodule "s"]\n\tignore = all\n[diff]\n\tignoreSubmodules = all\n')
    (change,) = snapshot(upstream, bumped, linked).proposed[0].changes
    assert (change.path, change.kind.value, change.new_mode) == ("kernels/cand/s", "modified", "160000")
    assert (change.old_blob, change.new_blob) == ("1" * 40, "2" * 40)


def test_iso_quoted_path_names_come_out_with_their_real_bytes(upstream: GitBuilder, start: str) -> None:
    odd = [
        b'core/q"uote.py',
        b"core/tab\t.py",
        "core/\u00e9.py".encode(),
        b"core/\xff.py",
        b"core/back\\slash.py",
        b"core/nl\n.py",
    ]
    head = upstream.commit(dict.fromkeys(odd, "x\n"), parent=start)
    from gatekeeper.domain.documents import raw_path

    (proposed,) = snapshot(upstream, head, start).proposed
    assert sorted(raw_path(change.path) for change in proposed.changes) == sorted(odd)
    assert all(change.path.isascii() and change.path.isprintable() for change in proposed.changes)


def test_iso_no_hunk_files_are_listed(upstream: GitBuilder, start: str) -> None:
    head = upstream.commit({"core/conftest.py": "", "core/data.bin": b"\0\1"}, parent=start)
    assert changes(snapshot(upstream, head, start)) == [("core/conftest.py", "added"), ("core/data.bin", "added")]


@pytest.mark.parametrize("name", ["..", ".", ".git", ".GIT", "git~1", "GIT~1", ".git ", ".git.", ".git::$INDEX_ALLOCATION",
                                  ".g\u200cit", ".gi\u2060t".replace("\u2060", "\ufeff"), ""])  # fmt: skip
def test_iso_dotdot_and_dotgit_entries_are_defects(upstream: GitBuilder, start: str, name: str) -> None:
    inner = [("100644", name, upstream.blob("x\n")), ("100644", "k.py", upstream.blob("x\n"))]
    head = upstream.commit({"kernels/cand": upstream.subtree(inner)}, parent=start)
    defects = snapshot(upstream, head, start).defects
    assert defects
    assert defects[0].path.startswith("kernels/cand/")


@pytest.mark.parametrize("name", ["..a", ".gitignore", ".github", "git~10", "git", "a.git", "\u00e9.git"])
def test_honest_names_near_the_forbidden_ones_are_no_defects(upstream: GitBuilder, start: str, name: str) -> None:
    head = upstream.commit({f"kernels/cand/{name}": "x\n"}, parent=start)
    assert snapshot(upstream, head, start).defects == ()


def test_iso_duplicate_entry_is_a_defect_and_both_twins_are_listed(upstream: GitBuilder, start: str) -> None:
    good, evil = upstream.blob("good\n"), upstream.blob("evil\n")
    twins = upstream.subtree([("100644", "k.py", good), ("100644", "k.py", evil)])
    head = upstream.commit({"kernels/cand": twins}, parent=start)
    snap = snapshot(upstream, head, start)
    assert "duplicate name" in {defect.defect for defect in snap.defects}
    assert {change.new_blob for change in snap.proposed[0].changes} == {good, evil}


@pytest.mark.parametrize(
    ("entries", "defect"),
    [
        ([("100644", "b", ""), ("100644", "a", "")], "entries are not sorted"),
        ([("100644", "a/b", "")], "slash in a name"),
        ([("100664", "a", "")], "odd mode 100664"),
        ([("040000", "a", "tree")], "odd mode 040000"),
        ([("100644", "a", "0" * 40)], "null object id"),
    ],
)
def test_iso_malformed_trees_are_named(
    upstream: GitBuilder, start: str, entries: list[tuple[str, str, str]], defect: str
) -> None:
    ids = {"": upstream.blob("x\n"), "tree": upstream.raw_tree([])}
    made = upstream.subtree([(mode, name, ids.get(id, id)) for mode, name, id in entries])
    head = upstream.commit({"kernels/cand/sub": made}, parent=start)
    assert defect in {found.defect for found in snapshot(upstream, head, start).defects}


def test_a_tree_that_ends_in_the_middle_of_an_entry_is_a_defect(upstream: GitBuilder, start: str) -> None:
    cut = upstream.object("tree", b"100644 a\0" + b"1" * 7)
    head = upstream.commit({"kernels/cand": Entry("40000", cut)}, parent=start)
    assert "parsed" in snapshot(upstream, head, start).defects[0].defect


def test_iso_evil_merge_hides_nothing(upstream: GitBuilder, start: str) -> None:
    side = upstream.commit({"kernels/cand/k.py": "x\n"}, parent=start)
    base = upstream.commit({"core/b.py": "b2\n"}, parent=start)
    honest = upstream.commit({"core/b.py": "b2\n"}, parent=side, also=[base])
    evil = upstream.commit({"core/b.py": "b2\n", "core/a.py": "evil\n"}, parent=side, also=[base])
    assert changes(snapshot(upstream, honest, base)) == [("kernels/cand/k.py", "modified")]
    assert ("core/a.py", "modified") in changes(snapshot(upstream, evil, base))


def test_iso_ours_merge_shows_what_it_reverts(upstream: GitBuilder, start: str) -> None:
    base = upstream.commit({"core/b.py": "the fix\n"}, parent=start)
    head = upstream.commit({"kernels/cand/k.py": "x\n"}, parent=start, also=[base])
    snap = snapshot(upstream, head, base)
    assert ("core/b.py", "modified") in changes(snap)
    assert snap.merged is not None
    assert "core/b.py" in {change.path for change in snap.merged.changes}


def test_iso_base_drift_is_not_blamed_on_the_pull_request(upstream: GitBuilder, start: str) -> None:
    head = upstream.commit({"kernels/cand/k.py": "x\n"}, parent=start)
    base = upstream.commit({"core/a.py": "drifted\n"}, parent=start)
    snap = snapshot(upstream, head, base)
    assert changes(snap) == [("kernels/cand/k.py", "modified")]
    assert snap.merged is not None
    assert [change.path for change in snap.merged.changes] == ["kernels/cand/k.py"]


def test_iso_merge_result_lands_elsewhere_by_rename_following(upstream: GitBuilder, start: str) -> None:
    kernel = CORE.replace("line", "kernel")
    head = upstream.commit({"kernels/cand/k.py": kernel + "edited\n"}, parent=start)
    moved = {"kernels/cand/k.py": None, "core/impl/k.py": upstream.entry(start, "kernels/cand/k.py")}
    base = upstream.commit(moved, parent=start)
    snap = snapshot(upstream, head, base)
    assert changes(snap) == [("kernels/cand/k.py", "modified")]
    assert snap.merged is not None
    assert [change.path for change in snap.merged.changes] == ["core/impl/k.py"]


def test_a_conflict_is_represented_by_no_merge_tree(upstream: GitBuilder, start: str) -> None:
    head = upstream.commit({"kernels/cand/k.py": "one\n"}, parent=start)
    base = upstream.commit({"kernels/cand/k.py": "two\n"}, parent=start)
    snap = snapshot(upstream, head, base)
    assert (snap.merge_tree, snap.merged) == (None, None)
    assert snap.conflicts == ("kernels/cand/k.py",)
    assert changes(snap) == [("kernels/cand/k.py", "modified")]


def test_every_path_in_conflict_is_told_in_its_shown_spelling_and_no_other(upstream: GitBuilder, start: str) -> None:
    names = ["kernels/cand/k.py", "kernels/cand/new.py", "core/ä\nb.py"]
    head = upstream.commit({**dict.fromkeys(names, "one\n"), "kernels/cand/mine.py": "m\n"}, parent=start)
    base = upstream.commit({**dict.fromkeys(names, "two\n"), "core/theirs.py": "t\n"}, parent=start)
    snap = snapshot(upstream, head, base)
    assert snap.conflicts == ("core/\\xc3\\xa4\\x0ab.py", "kernels/cand/k.py", "kernels/cand/new.py")


def test_iso_criss_cross_compares_against_every_merge_base(upstream: GitBuilder, start: str) -> None:
    one = upstream.commit({"core/a.py": CORE + "one\n"}, parent=start)
    two = upstream.commit({"kernels/cand/k.py": "two\n"}, parent=start)
    both = {"core/a.py": CORE + "one\n", "kernels/cand/k.py": "two\n"}
    base = upstream.commit(both, parent=one, also=[two])
    crossed = upstream.commit(both, parent=two, also=[one])
    head = upstream.commit({"kernels/cand/new.py": "n\n"}, parent=crossed)
    snap = snapshot(upstream, head, base)
    assert snap.merge_bases == tuple(sorted((one, two)))
    assert len(snap.proposed) == 2
    assert {change.path for comparison in snap.proposed for change in comparison.changes} == {
        "core/a.py", "kernels/cand/k.py", "kernels/cand/new.py"
    }  # fmt: skip


def test_iso_no_merge_base_is_represented(upstream: GitBuilder, start: str) -> None:
    orphan = upstream.commit({"kernels/cand/k.py": "x\n"})
    snap = snapshot(upstream, orphan, start)
    assert (snap.merge_bases, snap.proposed, snap.merged, snap.merge_tree) == ((), (), None, None)


def test_iso_empty_set_is_an_empty_comparison(upstream: GitBuilder, start: str) -> None:
    head = upstream.commit({}, parent=start)
    assert changes(snapshot(upstream, head, start)) == []


def test_iso_empty_set_is_never_the_answer_of_a_failing_git(upstream: GitBuilder, start: str) -> None:
    orphan_parent = "3" * 40
    head = upstream.commit({"kernels/cand/k.py": "x\n"}, also=[orphan_parent])
    with pytest.raises(GatekeeperError):
        snapshot(upstream, head, start)


@pytest.mark.parametrize("marker", ["shallow", "objects/pack/pack-1.promisor"])
def test_iso_shallow_or_partial_repository_is_refused(upstream: GitBuilder, start: str, marker: str) -> None:
    head = upstream.commit({"kernels/cand/k.py": "x\n"}, parent=start)
    assert changes(snapshot(upstream, head, start))
    (upstream.path / marker).write_text(start + "\n")
    with pytest.raises(ConfigurationError, match="ISO_SHALLOW"):
        snapshot(upstream, head, start)


def test_iso_short_sha_branch_is_refused(upstream: GitBuilder, start: str) -> None:
    head = upstream.commit({"kernels/cand/k.py": "x\n"}, parent=start)
    upstream.ref(f"refs/heads/{start[:10]}", head)
    for wrong in (start[:10], start[:39], start.upper(), "main", "-x", start + "\n", ""):
        with pytest.raises(Rejected, match="ISO_ID"):
            snapshot(upstream, head, wrong)
    assert changes(snapshot(upstream, head, start))


def test_a_tree_bomb_is_refused_quickly_and_not_truncated(upstream: GitBuilder, start: str) -> None:
    blob = upstream.blob("x\n")
    level = upstream.raw_tree([("100644", f"f{number}", blob) for number in range(10)])
    for _ in range(9):
        level = upstream.raw_tree([("40000", f"d{number}", level) for number in range(10)])
    head = upstream.commit({"kernels/cand/bomb": Entry("40000", level)}, parent=start)
    snap = snapshot(upstream, head, start)
    assert any("ISO_TOO_MANY_FILES" in defect.defect for defect in snap.defects)


def test_git_itself_agrees_on_a_random_mixture(upstream: GitBuilder, start: str) -> None:
    import subprocess

    before = {f"d{n % 7}/e{n % 3}/f{n}": f"{n}\n" for n in range(60)}
    base = upstream.commit(before, parent=start)
    after: dict[str, str | None] = {f"d{n % 7}/e{n % 3}/f{n}": None for n in range(0, 60, 7)}
    after |= {f"d{n % 7}/e{n % 3}/f{n}": "changed\n" for n in range(1, 60, 5)}
    after |= {"d1/e1": "a file now\n", "README.md/sub": "a directory now\n"}
    head = upstream.commit(after, parent=base)
    told = subprocess.run(
        ["git", "--git-dir", str(upstream.path), "diff-tree", "-r", "--no-renames", "-z", "--name-only", base, head],
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    assert [path for path, _ in changes(snapshot(upstream, head, base))] == sorted(told.decode().split("\0")[:-1])
