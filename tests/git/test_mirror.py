"""Fetching: what is refused, what is kept, and what never leaves the process."""

from __future__ import annotations

import socket
import subprocess
import threading
from pathlib import Path

import pytest

from gatekeeper.domain.errors import ConfigurationError, Conflict, GatekeeperError, Rejected, Retryable
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.git import plumbing
from gatekeeper.git.mirror import Mirror, Mirrors
from tests.git_builder import GitBuilder

TOKEN = "ghs_" + "c4narY" * 6


class World:
    """An upstream below a file root, and the mirrors of it."""

    def __init__(self, root: Path) -> None:
        (root / "remote" / "up").mkdir(parents=True)
        self.upstream = GitBuilder(root / "remote" / "up" / "repo.git")
        self.main = self.upstream.commit({"core/a.py": "a\n", "kernels/cand/k.py": "k\n"}, branch="main")
        self.mirrors = Mirrors(root / "mirrors", f"file://{root / 'remote'}")

    def mirror(self) -> Mirror:
        return self.mirrors.open(RepositoryRef(id=7, full_name="up/repo"))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_pull_request_is_fetched_by_full_ids_and_pinned(world: World) -> None:
    head = world.upstream.commit({"kernels/cand/k.py": "2\n"}, parent=world.main, pull=3)
    mirror = world.mirror()
    fetched = mirror.fetch_pull(3, "main", expected_head=head)
    assert (fetched.head_sha, fetched.base_sha) == (head, world.main)
    assert mirror.tree(mirror.commit_tree(head)).read("kernels/cand/k.py") == b"2\n"
    refs = plumbing.run(mirror.git_dir, "for-each-ref", "--format=%(refname)").text.split()
    assert {f"refs/gatekeeper/{head}", f"refs/gatekeeper/{world.main}"} <= set(refs)
    assert not (mirror.git_dir / "FETCH_HEAD").exists()


@pytest.mark.parametrize("whole", [False, True], ids=["mirror", "mirrors"])
def test_a_directory_below_the_present_one_serves_as_well(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """The default of ``GATEKEEPER_DATA_DIR`` is relative."""
    head = world.upstream.commit({"kernels/cand/k.py": "2\n"}, parent=world.main, pull=3)
    monkeypatch.chdir(tmp_path)
    base, repository = f"file://{tmp_path / 'remote'}", RepositoryRef(id=7, full_name="up/repo")
    near = Path("var/mirrors")
    mirror = Mirrors(near, base).open(repository) if whole else Mirror(near / "7.git", repository, base)
    assert mirror.fetch_pull(3, "main").head_sha == head
    assert mirror.tree(mirror.commit_tree(head)).read("kernels/cand/k.py") == b"2\n"
    assert {path.name for path in near.iterdir() if path.is_dir()} == {"7.git"}
    mirror.close()


def test_pinned_commits_stay_after_a_forced_push(world: World) -> None:
    old = world.upstream.commit({"kernels/cand/k.py": "2\n"}, parent=world.main, pull=3)
    mirror = world.mirror()
    mirror.fetch_pull(3, "main")
    new = world.upstream.commit({"kernels/cand/k.py": "3\n"}, parent=world.main, pull=3)
    assert mirror.fetch_pull(3, "main").head_sha == new
    plumbing.run(mirror.git_dir, "gc", "--quiet", "--prune=now")
    assert mirror.tree(mirror.commit_tree(old)).read("kernels/cand/k.py") == b"2\n"


def test_ci_head_moved_is_a_conflict(world: World) -> None:
    old = world.upstream.commit({"kernels/cand/k.py": "2\n"}, parent=world.main, pull=3)
    world.upstream.commit({"kernels/cand/k.py": "3\n"}, parent=world.main, pull=3)
    with pytest.raises(Conflict, match="HEAD_MOVED"):
        world.mirror().fetch_pull(3, "main", expected_head=old)


def test_a_vanished_ref_is_a_conflict_and_an_absent_remote_is_retried(world: World) -> None:
    with pytest.raises(Conflict, match="REF_GONE"):
        world.mirror().fetch_pull(99, "main")
    with pytest.raises(Retryable, match="GIT_FETCH"):
        world.mirrors.open(RepositoryRef(id=8, full_name="up/none")).fetch_pull(1, "main")


@pytest.mark.parametrize("name", ["..", ".", ".git", ".GIT", "git~1"])
def test_iso_dotdot_entry_fails_closed_on_fetch(world: World, name: str) -> None:
    inner = world.upstream.subtree([("100644", name, world.upstream.blob("x\n"))])
    world.upstream.commit({"kernels/cand": inner}, parent=world.main, pull=4)
    with pytest.raises(Rejected, match="ISO_MALFORMED_TREE"):
        world.mirror().fetch_pull(4, "main")
    head = world.upstream.commit({"kernels/cand/k.py": "fine\n"}, parent=world.main, pull=4)
    assert world.mirror().fetch_pull(4, "main").head_sha == head


def test_iso_duplicate_entry_fails_closed_on_fetch(world: World) -> None:
    blob = world.upstream.blob("x\n")
    twins = world.upstream.subtree([("100644", "k.py", blob), ("100644", "k.py", world.upstream.blob("y\n"))])
    world.upstream.commit({"kernels/cand": twins}, parent=world.main, pull=4)
    with pytest.raises(Rejected, match="ISO_MALFORMED_TREE"):
        world.mirror().fetch_pull(4, "main")


def test_iso_shallow_mirror_is_refused(world: World) -> None:
    world.upstream.commit({"kernels/cand/k.py": "2\n"}, parent=world.main, pull=3)
    mirror = world.mirror()
    mirror.fetch_pull(3, "main")
    (mirror.git_dir / "shallow").write_text(world.main + "\n")
    with pytest.raises(ConfigurationError, match="ISO_SHALLOW"):
        mirror.fetch_pull(3, "main")


@pytest.mark.parametrize(
    "ref", ["-x", "--upload-pack=touch x", "a..b", "a b", "", "/a", "a/", "a.lock", "a@{1}", "a:b", "a\n", "+a"]
)
def test_ci_git_option_never_becomes_an_option(world: World, tmp_path: Path, ref: str) -> None:
    world.upstream.commit({"kernels/cand/k.py": "2\n"}, parent=world.main, pull=3)
    with pytest.raises((Rejected, Conflict)):
        world.mirror().fetch_pull(3, ref)
    assert not list(tmp_path.rglob("x"))


def test_iso_config_steers_change_nothing(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = world.upstream.commit({"kernels/cand/k.py": "2\n", "core/a.py": None}, parent=world.main, pull=3)
    marker = tmp_path / "marker"
    steering = f"""[diff]
\texternal = touch {marker}
\trenames = copies
\tignoreSubmodules = all
[core]
\tquotePath = false
\tfsmonitor = touch {marker}
\thooksPath = {tmp_path}/hooks
[diff "py"]
\ttextconv = touch {marker}
[merge]
\trenames = false
[url "file:///nonexistent/"]
\tinsteadOf = file://
"""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(steering)
    (tmp_path / "hooks").mkdir()
    hook = tmp_path / "hooks" / "reference-transaction"
    hook.write_text(f"#!/bin/sh\ntouch {marker}\n")
    hook.chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", f"touch {marker}")
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    mirror = world.mirror()
    assert mirror.fetch_pull(3, "main").head_sha == head
    with (mirror.git_dir / "config").open("a") as file:
        file.write(steering.split("[url")[0])
    assert mirror.merge_bases(world.main, head) == (world.main,)
    assert mirror.merge(world.main, head).tree == world.upstream.tree_of(head)
    mirror.pin(head)
    assert not marker.exists()


def test_ci_submodule_lfs_opens_no_connection(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/x.git"
        head = world.upstream.commit(
            {
                ".gitmodules": f'[submodule "s"]\n\tpath = s\n\turl = {address}\n',
                ".lfsconfig": f"[lfs]\n\turl = {address}\n",
                ".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs\n",
                "w.bin": "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 1\n",
                "s": world.upstream.gitlink(),
            },
            parent=world.main,
            pull=5,
        )
        mirror = world.mirror()
        mirror.fetch_pull(5, "main")
        mirror.merge(world.main, head)
        assert mirror.tree(mirror.commit_tree(head)).read("w.bin").startswith(b"version")
        with pytest.raises(TimeoutError):
            listener.accept()


def test_ci_embedded_bare_repository_runs_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    inner = GitBuilder(tmp_path / "work" / "inner")
    inner.commit({"a": "a\n"}, branch="main")
    inner.configure(f"[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = touch {marker}\n")
    with pytest.raises(GatekeeperError, match="GIT_FAILED"):
        plumbing.run(None, "status", cwd=inner.path)
    plumbing.run(inner.path, "rev-parse", "HEAD")
    assert not marker.exists()


def test_ci_token_in_git_is_nowhere(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        seen: list[bytes] = []
        lines: list[str] = []

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                seen.append(connection.recv(65536))
                for entry in Path("/proc").glob("[0-9]*/cmdline"):
                    try:
                        lines.append(entry.read_bytes().decode("utf-8", "replace"))
                    except OSError:
                        continue
                connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        mirrors = Mirrors(tmp_path / "mirrors", base, lambda repository: TOKEN)
        mirror = mirrors.open(RepositoryRef(id=7, full_name="up/repo"))
        with pytest.raises(Retryable) as caught:
            mirror.fetch_pull(1, "main")
        server.join(timeout=10)
    assert b"Authorization: Basic " in seen[0]
    told = f"{caught.value} {caught.value.__cause__} " + "".join(
        file.read_text(errors="replace") for file in (tmp_path / "mirrors").rglob("*") if file.is_file()
    )
    for secret in (TOKEN, plumbing.scrub.__name__ and TOKEN[4:], _basic()):
        assert secret not in told
        assert not any(secret in line for line in lines)


def _basic() -> str:
    import base64

    return base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()


def test_many_threads_fetch_one_mirror(world: World) -> None:
    heads = {n: world.upstream.commit({"kernels/cand/k.py": f"{n}\n"}, parent=world.main, pull=n) for n in range(1, 7)}
    mirror = world.mirror()
    got: dict[int, str] = {}

    def fetch(number: int) -> None:
        got[number] = mirror.fetch_pull(number, "main").head_sha

    threads = [threading.Thread(target=fetch, args=(number,)) for number in heads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == heads


def test_iso_export_ignore_has_no_effect_on_what_is_written(world: World, tmp_path: Path) -> None:
    head = world.upstream.commit(
        {"kernels/cand/.gitattributes": "k.py export-ignore\n", "kernels/cand/sub/x.py": "x\r\n"},
        parent=world.main,
        pull=6,
    )
    mirror = world.mirror()
    mirror.fetch_pull(6, "main")
    tree = mirror.tree(mirror.commit_tree(head))
    written = mirror.write_tree(tree, "kernels/cand", tmp_path / "out")
    entry = tree.entry("kernels/cand")
    assert entry is not None
    assert written == entry.id
    files = sorted(str(f.relative_to(tmp_path / "out")) for f in (tmp_path / "out").rglob("*") if f.is_file())
    assert files == ["kernels/cand/.gitattributes", "kernels/cand/k.py", "kernels/cand/sub/x.py"]
    assert (tmp_path / "out/kernels/cand/sub/x.py").read_bytes() == b"x\r\n"


@pytest.mark.parametrize("kind", ["link", "gitlink", "executable", "dotdot", "absent", "file"])
def test_nothing_but_plain_files_is_written(world: World, tmp_path: Path, kind: str) -> None:
    up = world.upstream
    made = {
        "link": up.link("/etc/passwd"), "gitlink": up.gitlink(), "executable": up.executable("x\n"),
        "dotdot": up.subtree([("100644", "..", up.blob("x\n"))]),
    }  # fmt: skip
    changes = {"kernels/cand/odd": made[kind]} if kind in made else {}
    head = up.commit(changes, parent=world.main)
    mirror = Mirror(up.path, RepositoryRef(id=7, full_name="up/repo"), "https://github.com")
    where = {"absent": "nowhere", "file": "core/a.py"}.get(kind, "kernels/cand")
    with pytest.raises(Rejected):
        mirror.write_tree(mirror.tree(mirror.commit_tree(head)), where, tmp_path / "out")
    mirror.close()


def test_git_and_we_name_a_written_directory_alike(world: World, tmp_path: Path) -> None:
    names = ["a", "a.b", "a-b", "ab", "a/x", "a0"]
    files = {f"kernels/cand/{'d' if '/' in name else ''}{name}": name for name in names}
    head = world.upstream.commit(files, parent=world.main, pull=6)
    mirror = world.mirror()
    mirror.fetch_pull(6, "main")
    written = mirror.write_tree(mirror.tree(mirror.commit_tree(head)), "kernels/cand", tmp_path / "out")
    told = subprocess.run(
        ["git", "--git-dir", str(world.upstream.path), "rev-parse", f"{head}:kernels/cand"],
        capture_output=True,
        check=True,
    )
    assert told.stdout.decode().strip() == written
