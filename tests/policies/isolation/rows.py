"""The rows of the attack battery's isolation group. Each builds a change with the trick, or its honest twin without."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gatekeeper.domain.errors import GatekeeperError
from gatekeeper.domain.policy import Outcome
from gatekeeper.domain.repository import parse
from gatekeeper.git.local import LocalRepository
from tests.git_builder import Content, GitBuilder
from tests.policies.isolation.scenes import BASE, CONFIGURATION, INSIDE, LONG, Answer, judge, start

Change = dict[str, Content]
Built = tuple[str, str]
"""Base commit and head commit."""


@dataclass(frozen=True)
class Row:
    """``code`` and ``paths`` must be among the findings of the trick; the twin must pass."""

    id: str
    code: str
    paths: tuple[str | None, ...]
    run: Callable[[Path, bool], Answer]
    outcome: Outcome = Outcome.FAILED


ROWS: list[Row] = []


def row(
    id: str, code: str, *paths: str, outcome: Outcome = Outcome.FAILED, into: list[Row] = ROWS
) -> Callable[[Callable[[GitBuilder, str, bool], Built]], None]:
    def keep(build: Callable[[GitBuilder, str, bool], Built]) -> None:
        def run(folder: Path, trick: bool) -> Answer:
            git, base = start(folder)
            return judge(git.path, *build(git, base, trick))

        into.append(Row(id, code, paths or (None,), run, outcome))

    return keep


def simple(
    id: str, code: str, *paths: str, trick: Callable[[GitBuilder], Change], twin: Change | None = None,
    outcome: Outcome = Outcome.FAILED, into: list[Row] = ROWS,
) -> None:  # fmt: skip
    def build(git: GitBuilder, base: str, tricky: bool) -> Built:
        more = trick(git) if tricky else (twin or {})
        return base, git.commit({**INSIDE, **more}, parent=base)

    row(id, code, *paths, outcome=outcome, into=into)(build)


A_PY = BASE["core/a.py"]
simple("iso-rename-source", "ISO_DELETE_OUTSIDE", "core/a.py",
       trick=lambda git: {"core/a.py": None, "kernels/cand/a.py": A_PY}, twin={"kernels/cand/a.py": A_PY})  # fmt: skip
simple("iso-delete-outside", "ISO_DELETE_OUTSIDE", "core/a.py", "core/b.py",
       trick=lambda git: {"core/a.py": None, "core/b.py": None}, twin={"kernels/cand/gate.py": "def enabled(c):\n    return c\n"})  # fmt: skip
simple(
    "iso-mode-outside", "ISO_MODE_CHANGE_OUTSIDE", "core/a.py", trick=lambda git: {"core/a.py": git.executable(LONG)}
)
simple("iso-mode-inside", "ISO_MODE", "kernels/cand/tool.py", "kernels/cand/odd.py",
       trick=lambda git: {"kernels/cand/tool.py": git.executable("t = 1\n"), "kernels/cand/odd.py": git.file("o = 1\n", "100664")},
       twin={"kernels/cand/tool.py": "t = 1\n", "kernels/cand/odd.py": "o = 1\n"})  # fmt: skip
simple(
    "iso-typechange",
    "ISO_SYMLINK",
    "kernels/cand/k.py",
    trick=lambda git: {"kernels/cand/k.py": git.link("../../core/a.py")},
)
simple("iso-symlink-inside", "ISO_SYMLINK", "kernels/cand/rel", "kernels/cand/abs", "kernels/cand/near",
       trick=lambda git: {"kernels/cand/rel": git.link("../../core"), "kernels/cand/abs": git.link("/etc"),
                          "kernels/cand/near": git.link("k.py")})  # fmt: skip
simple("iso-gitlink", "ISO_SUBMODULE", "kernels/cand/sub", trick=lambda git: {"kernels/cand/sub": git.gitlink()},
       twin={"kernels/cand/sub/__init__.py": ""})  # fmt: skip
simple("iso-gitattributes", "ISO_GITATTRIBUTES", "kernels/cand/.gitattributes",
       trick=lambda git: {"kernels/cand/.gitattributes": "*.py -diff\n"})  # fmt: skip
simple("iso-backslash", "ISO_PATH_CHARS", "kernels/cand/cand\\x5c..\\x5c..\\x5ccore.py", "kernels/cand/-rf.py", "kernels/cand/.hid.py",
       trick=lambda git: {"kernels/cand/cand\\..\\..\\core.py": "x = 1\n", "kernels/cand/-rf.py": "", "kernels/cand/.hid.py": ""},
       twin={"kernels/cand/_core-2.x.py": "x = 1\n"})  # fmt: skip
simple("iso-sibling-prefix", "ISO_PATH_OUTSIDE", "kernels/cand_evil/x.py", "kernels/cand.py", "core_extra/x.py",
       trick=lambda git: {"kernels/cand_evil/x.py": "", "kernels/cand.py": "", "core_extra/x.py": ""},
       twin={"kernels/cand/evil/x.py": ""})  # fmt: skip
simple("iso-no-hunk", "ISO_PATH_OUTSIDE", "core/conftest.py", "core/two.bin",
       trick=lambda git: {"core/conftest.py": "", "core/two.bin": b"\0\1"}, twin={"kernels/cand/__init__.py": ""})  # fmt: skip
simple("iso-policy-from-head", "ISO_PATH_OUTSIDE", ".github/gatekeeper.toml", ".github/CODEOWNERS", "core/a.py",
       trick=lambda git: {".github/gatekeeper.toml": CONFIGURATION.replace('refuse = ["core"]', "").replace('"kernels"', '"core"'),
                          ".github/CODEOWNERS": "* @ada\n", "core/a.py": "mine = 1\n"})  # fmt: skip
simple("iso-reference-edit", "ISO_REFERENCE_CHANGED", "kernels/cand/workload.toml", "trusted/oracle.py",
       trick=lambda git: {"kernels/cand/workload.toml": "size = 0\n", "trusted/oracle.py": "oracle = 0\n"},
       twin={"kernels/cand/other.toml": "size = 0\n"})  # fmt: skip
simple("iso-case-twin", "ISO_CASE_TWIN", "kernels/CAND/k.py", "Kernels/cand/k.py", "kernels/cand/K.py",
       trick=lambda git: {"kernels/CAND/k.py": "", "Kernels/cand/k.py": "", "kernels/cand/K.py": ""},
       twin={"kernels/cand/k2.py": ""})  # fmt: skip


@row("iso-copy-target", "ISO_PATH_OUTSIDE", "core/copy.py")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    git.configure("[diff]\n\trenames = copies\n")
    where = "core/copy.py" if trick else "kernels/cand/copy.py"
    return base, git.commit({**INSIDE, where: INSIDE["kernels/cand/k.py"]}, parent=base)


@row("iso-quoted-path", "ISO_PATH_OUTSIDE", 'core/q"uote.py', "core/t\\x09ab.py", "core/\\xc3\\xa9.py", "core/\\xff.py")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    names = (b'core/q"uote.py', b"core/t\tab.py", "core/\u00e9.py".encode(), b"core/\xff.py")
    odd: dict[bytes, Content] = {name: "odd = 1\n" for name in names} if trick else {}
    return base, git.commit(odd, parent=git.commit(INSIDE, parent=base))


@row("iso-symlink-dir-swap", "ISO_ROOT_REPLACED", "kernels/cand")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    return base, git.commit({"kernels/cand": git.link("../core")} if trick else INSIDE, parent=base)


@row("iso-symlink-in-base", "ISO_SYMLINK_IN_BASE", "kernels/cand/shared")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    planted: Content = git.link("../../core") if trick else "shared = 1\n"
    before = git.commit({"kernels/cand/shared": planted}, parent=base, branch="main")
    return before, git.commit(INSIDE, parent=before)


@row("iso-symlink-in-base-root", "ISO_SYMLINK_IN_BASE", "kernels/cand")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    before = git.commit({"kernels/cand": git.link("../core")}, parent=base) if trick else base
    return before, git.commit({"kernels/cand/new.py": "n = 1\n"}, parent=before)


@row("iso-gitmodules-ignore", "ISO_SUBMODULE", "kernels/cand/sub")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    modules = '[submodule "s"]\n\tpath = kernels/cand/sub\n\turl = x\n\tignore = all\n'
    planted: Change = {".gitmodules": modules, "kernels/cand/sub": git.gitlink("1" * 40)} if trick else {}
    before = git.commit(planted, parent=base)
    bumped: Change = {"kernels/cand/sub": git.gitlink("2" * 40)} if trick else INSIDE
    return before, git.commit(bumped, parent=before)


@row("iso-export-ignore", "ISO_GITATTRIBUTES", ".gitattributes")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    more: Change = {".gitattributes": "kernels/cand/k.py export-ignore\n"} if trick else {}
    return base, git.commit({**INSIDE, **more}, parent=base)


def _malformed(git: GitBuilder, base: str, entries: list[tuple[str, str | bytes, str]]) -> Built:
    return base, git.commit({**INSIDE, "kernels/cand/bad": git.subtree(entries)}, parent=base)


@row("iso-dotdot-entry", "ISO_MALFORMED_TREE", "kernels/cand/bad/..")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    return _malformed(git, base, [("100644", ".." if trick else "z.py", git.blob("z = 1\n"))])


for _name, _shown in ((".git", ".git"), (".GIT", ".GIT"), ("git~1", "git~1"), (".g\u200cit", ".g\\xe2\\x80\\x8cit")):

    @row(f"iso-dotgit-entry {_shown}", "ISO_MALFORMED_TREE", f"kernels/cand/bad/{_shown}")
    def _(git: GitBuilder, base: str, trick: bool, name: str = _name) -> Built:
        return _malformed(git, base, [("100644", name if trick else "git.py", git.blob("z = 1\n"))])


@row("iso-duplicate-entry", "ISO_MALFORMED_TREE", "kernels/cand/bad/k.py")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    one, two = git.blob("k = 1\n"), git.blob("k = 2\n")
    return _malformed(git, base, [("100644", "k.py", one), ("100644", "k.py" if trick else "l.py", two)])


@row("iso-api-3000", "ISO_TOO_MANY_FILES", "kernels/cand/many/f3000.py")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    """No forge is asked for a list of files, so none can be cut short: the limit is our own, on git's own comparison."""
    blob = git.file("f = 1\n")
    count = 3001 if trick else 3000
    files = [("100644", f"f{number:04}.py", blob.id) for number in range(count)]
    return base, git.commit({"kernels/cand/many": git.subtree(files)}, parent=base)


@row("iso-api-300", "ISO_PATH_OUTSIDE", "zzz/last.py")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    """A diff that the forge would cut (over 300 files, over 20,000 lines), with its violation at the very end."""
    files: Change = {f"kernels/cand/many/f{number}.py": f"n = {number}\n" * 80 for number in range(301)}
    return base, git.commit({**files, **({"zzz/last.py": "x = 1\n"} if trick else {})}, parent=base)


@row("iso-evil-merge", "ISO_PATH_OUTSIDE", "core/a.py")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    side = git.commit(INSIDE, parent=base)
    main = git.commit({"core/b.py": "b = 2\n"}, parent=base, branch="main")
    merged: Change = {"core/b.py": "b = 2\n"}
    return main, git.commit({**merged, **({"core/a.py": "evil = 1\n"} if trick else {})}, parent=side, also=[main])


@row("iso-ours-merge", "ISO_PATH_OUTSIDE", "core/b.py")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    side = git.commit(INSIDE, parent=base)
    main = git.commit({"core/b.py": "b = 2\n"}, parent=base, branch="main")
    return main, git.commit({} if trick else {"core/b.py": "b = 2\n"}, parent=side, also=[main])


@row("iso-base-drift", "ISO_PATH_OUTSIDE", "core/b.py")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    """An honest control: main moves on. The trick is to undo on purpose what main did; the twin is merely stale."""
    main = git.commit({"core/b.py": "b = 2\n"}, parent=base, branch="main")
    if trick:
        return main, git.commit({**INSIDE, "core/b.py": "b = 1\n"}, parent=main)
    return main, git.commit(INSIDE, parent=base)


@row("iso-merge-result", "ISO_PATH_OUTSIDE", "core/impl/k.py")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    k = BASE["kernels/cand/k.py"]
    moved: Change = {"kernels/cand/k.py": None, "core/impl/k.py": k} if trick else {"core/b.py": "b = 2\n"}
    main = git.commit(moved, parent=base, branch="main")
    return main, git.commit(INSIDE, parent=base)


def _criss_cross(git: GitBuilder, base: str, beside: Change) -> Built:
    one = git.commit(beside, parent=base)
    two = git.commit(INSIDE, parent=base)
    main = git.commit(INSIDE, parent=one, also=[two])
    return main, git.commit({**beside, "kernels/cand/m.py": "m = 1\n"}, parent=two, also=[one])


@row("iso-criss-cross", "ISO_AMBIGUOUS_BASE", outcome=Outcome.PENDING)
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    beside: Change = {"kernels/cand/l.py": "l = 1\n"}
    if trick:
        return _criss_cross(git, base, beside)
    return git.commit(beside, parent=base), git.commit(INSIDE, parent=base)


@row("iso-criss-cross outside", "ISO_PATH_OUTSIDE", "core/b.py")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    beside: Change = {"core/b.py": "b = 2\n"}
    if trick:
        return _criss_cross(git, base, beside)
    return git.commit(beside, parent=base), git.commit(INSIDE, parent=base)


@row("iso-no-merge-base", "ISO_NO_MERGE_BASE")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    return base, git.commit({**BASE, **INSIDE}) if trick else git.commit(INSIDE, parent=base)


@row("iso-empty-set", "ISO_EMPTY_DIFF")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    return base, git.commit({} if trick else INSIDE, parent=base)


@row("iso-config-steers", "ISO_PATH_OUTSIDE", "core/b.py")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    git.configure(
        "[diff]\n\texternal = true\n\trenames = copies\n\tignoreSubmodules = all\n[core]\n\tquotePath = false\n"
    )
    (git.path / "info").mkdir(exist_ok=True)
    (git.path / "info" / "attributes").write_text("*.py diff=none -diff\n")
    return base, git.commit({**INSIDE, **({"core/b.py": "b = 2\n"} if trick else {})}, parent=base)


def _error(action: Callable[[], object], answer: Answer | None = None) -> Answer:
    """Return an answer of outcome ``error`` that carries the code, as the engine gives it for something raised."""
    from gatekeeper.domain.policy import Finding

    try:
        result = action()
    except GatekeeperError as error:
        return Answer(Outcome.ERROR, (Finding(code=error.code, message=error.message or "x", found=error.found),), "")
    return result if isinstance(result, Answer) else Answer(Outcome.PASSED, (), "")


def _shallow(folder: Path, trick: bool) -> Answer:
    git, base = start(folder)
    git.commit(INSIDE, parent=base, branch="main")
    depth = ["--depth", "1"] if trick else []
    clone = folder / "clone"
    subprocess.run(
        ["git", "clone", "-q", "--no-local", *depth, git.path.as_uri(), str(clone)], check=True, capture_output=True
    )

    def look() -> Answer:
        with LocalRepository(clone) as local:
            head = local.resolve("HEAD")
            return judge(local.repository.git_dir, local.resolve("HEAD~1"), head)

    return _error(look)


def _short_id(folder: Path, trick: bool) -> Answer:
    git, base = start(folder)
    head = git.commit(INSIDE, parent=base)
    git.ref(f"refs/heads/{base[:10]}", head)
    return _error(lambda: judge(git.path, base[:10] if trick else base, head))


def _degenerate(value: str) -> Callable[[Path, bool], Answer]:
    def run(folder: Path, trick: bool) -> Answer:
        root = value if trick else "kernels"
        return _error(lambda: parse(f'schema = 1\n[[models]]\nname = "m"\nroot = "{root}"\nfree = ["cand"]\n'.encode()))

    return run


ROWS.append(Row("iso-shallow", "ISO_SHALLOW", (None,), _shallow, Outcome.ERROR))
ROWS.append(Row("iso-short-sha-branch", "ISO_ID", (None,), _short_id, Outcome.ERROR))
for _value in ("", ".", "/", "kernels/..", "*", "../core", "**"):
    ROWS.append(
        Row(f"iso-policy-degenerate {_value!r}", "CONFIG_ALLOWED_DIR", (None,), _degenerate(_value), Outcome.ERROR)
    )
