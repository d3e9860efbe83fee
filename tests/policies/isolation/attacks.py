"""Isolation beyond the battery: more changes that try to reach outside, each with its honest twin, over real git objects."""

from __future__ import annotations

from functools import partial

from tests.git_builder import GitBuilder
from tests.policies.isolation import rows
from tests.policies.isolation.rows import Built, Change, Row
from tests.policies.isolation.scenes import CONFIGURATION, HOOK, INSIDE, MANIFEST

ATTACKS: list[Row] = []
row = partial(rows.row, into=ATTACKS)
simple = partial(rows.simple, into=ATTACKS)
OPT_IN = "from kernels.cand import gate\n"
ASKED = "        if gate.enabled(self.config):\n            return gate.fast(x)\n"
FORWARD = "    def forward(self, x):\n"


def hooked(*edits: tuple[str, str], text: str = HOOK) -> Change:
    """Return a change of the hook file: ``edits`` replace passages of the stock text."""
    for before, after in edits:
        assert before in text, before
        text = text.replace(before, after, 1)
    return {"kernels/hook.py": text}


def hook(id: str, *edits: tuple[str, str], twin: tuple[tuple[str, str], ...], code: str = "ISO_HOOK_UNGUARDED") -> None:
    simple(id, code, "kernels/hook.py", trick=lambda _: hooked(*edits), twin=hooked(*twin))


CALL_IN = (("import core.a\n", "import core.a\n" + OPT_IN), (FORWARD, FORWARD + ASKED))

# -- names of paths ---------------------------------------------------------------------------------------------------
simple("path-confusable letter", "ISO_PATH_CHARS", "kernels/cand/\\xd0\\xba.py",
       trick=lambda _: {"kernels/cand/\u043a.py": "k = 2\n"}, twin={"kernels/cand/k2.py": "k = 2\n"})  # fmt: skip
simple("path-composed and decomposed", "ISO_PATH_CHARS", "kernels/cand/caf\\xc3\\xa9.py", "kernels/cand/cafe\\xcc\\x81.py",
       trick=lambda _: {"kernels/cand/caf\u00e9.py": "", "kernels/cand/cafe\u0301.py": ""}, twin={"kernels/cand/cafe.py": ""})  # fmt: skip
simple("path-confusable directory", "ISO_PATH_OUTSIDE", "k\\xd0\\xb5rnels/cand/k.py",
       trick=lambda _: {"k\u0435rnels/cand/k.py": ""}, twin={"kernels/cand/k/k.py": ""})  # fmt: skip
simple("path-device name", "ISO_PATH_CHARS", "kernels/cand/aux.py", "kernels/cand/NUL", "kernels/cand/com1.d/x.py",
       trick=lambda _: {"kernels/cand/aux.py": "", "kernels/cand/NUL": "", "kernels/cand/com1.d/x.py": ""},
       twin={"kernels/cand/auxiliary.py": "", "kernels/cand/com10.py": ""})  # fmt: skip
simple("path-trailing dot", "ISO_PATH_CHARS", "kernels/cand/sub./k.py",
       trick=lambda _: {"kernels/cand/sub./k.py": ""}, twin={"kernels/cand/sub.d/k.py": ""})  # fmt: skip
simple("path-package hides module", "ISO_MODULE_TWIN", "kernels/cand/gate.py",
       trick=lambda _: {"kernels/cand/gate/__init__.py": "def enabled(config):\n    return config\n"},
       twin={"kernels/cand/gates/__init__.py": ""})  # fmt: skip


@row("path-twins that were there before", "ISO_CASE_TWIN", "docs/INDEX.md")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    """Two spellings that live in the base already are nobody's doing; a third one is."""
    before = git.commit({"kernels/cand/Old.py": "o = 1\n", "kernels/cand/old.py": "o = 1\n"}, parent=base)
    return before, git.commit(
        {**INSIDE, "kernels/cand/new.py": "n = 1\n", **({"docs/INDEX.md": ""} if trick else {})}, parent=before
    )


# -- modes and types --------------------------------------------------------------------------------------------------
@row("mode-hook was a link", "ISO_PATH_OUTSIDE", "kernels/hook.py")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    """A link in the base that becomes a file has no old text to be compared with."""
    if not trick:
        return base, git.commit({**INSIDE, **hooked(*CALL_IN)}, parent=base)
    before = git.commit({"kernels/hook.py": git.link("stock.py")}, parent=base)
    return before, git.commit({**INSIDE, "kernels/hook.py": "import os\nos.abort()\n"}, parent=before)


@row("mode-hook becomes a link", "ISO_SYMLINK", "kernels/hook.py")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    more: Change = {"kernels/hook.py": git.link("cand/k.py")} if trick else hooked(*CALL_IN)
    return base, git.commit({**INSIDE, **more}, parent=base)


@row("mode-hook becomes executable", "ISO_MODE", "kernels/hook.py")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    """A stock file that is executable stays editable."""
    text = str(hooked(*CALL_IN)["kernels/hook.py"])
    before = base if trick else git.commit({"kernels/hook.py": git.executable(HOOK)}, parent=base)
    return before, git.commit({**INSIDE, "kernels/hook.py": git.executable(text)}, parent=before)


@row("mode-submodule below the directory", "ISO_SUBMODULE", "kernels/cand/k.py")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    return base, git.commit({"kernels/cand/k.py": git.gitlink()} if trick else INSIDE, parent=base)


# -- what a hook file may say -----------------------------------------------------------------------------------------
hook("hook-always on", ("import core.a\n", "import core.a\n" + OPT_IN),
     (FORWARD, FORWARD + ASKED.replace("gate.enabled(self.config)", "gate.enabled(self.config) or True")), twin=CALL_IN)  # fmt: skip
hook("hook-asked by name only", ("import core.a\n", "import core.a\n" + OPT_IN),
     (FORWARD, FORWARD + ASKED.replace("(self.config)", "")), twin=CALL_IN)  # fmt: skip
hook("hook-order", ("        y = core.a.run(x)\n        return y\n", "        return y\n        y = core.a.run(x)\n"),
     twin=(("        y = core.a.run(x)\n", "        # once\n        y = core.a.run(x)\n"),))  # fmt: skip
hook("hook-else changes stock", CALL_IN[0], ("        y = core.a.run(x)\n", "        if gate.enabled(x):\n            y = gate.f(x)\n        else:\n            y = core.a.run(x, 1)\n"),
     twin=(CALL_IN[0], ("        y = core.a.run(x)\n", "        if gate.enabled(x):\n            y = gate.f(x)\n        else:\n            y = core.a.run(x)\n")))  # fmt: skip
hook("hook-swallowed error", CALL_IN[0], ("        return y\n", "        try:\n            return y\n        except Exception:\n            return gate.fast(x)\n"),
     twin=CALL_IN)  # fmt: skip
hook(
    "hook-encoding",
    ("import core.a\n", "# coding: utf-7\nimport core.a\n"),
    twin=(("import core.a\n", "# coding: utf-8\nimport core.a\n"),),
)
hook(
    "hook-null byte",
    ("        return y\n", "        return y\n\0"),
    twin=(("        return y\n", "        return y\n\n"),),
)
hook("hook-attribute spoken of elsewhere", CALL_IN[0], (FORWARD, "    def __init__(self, config):\n        self.stock = gate.enabled(config)\n\n" + FORWARD),
     twin=CALL_IN)  # fmt: skip
simple("hook-byte order mark and line ends", "ISO_HOOK_UNGUARDED", "kernels/hook.py",
       trick=lambda _: {"kernels/hook.py": b"\xef\xbb\xbf" + HOOK.replace("core.a.run(x)", "core.a.run(x, 1)").replace("\n", "\r\n").encode()},
       twin={"kernels/hook.py": b"\xef\xbb\xbf" + HOOK.replace("\n", "\r\n").encode()})  # fmt: skip
_MANY = "".join(f"            v{number} = {number}\n" for number in range(13))
_FEW = "".join(_MANY.splitlines(keepends=True)[3:8])
_PACKED = "            " + "; ".join(f"v{number} = {number}" for number in range(9))
_BLOCK = "        if gate.enabled(self.config):\n"
for _name, _body in {
    "lines": _MANY,
    "semicolons": _PACKED + "\n" + _PACKED.replace("v", "w") + "\n",
    "one long line": f"            f({', '.join('value' for _ in range(300))})\n",
    "a text to be run": f"            exec({'x' * 1500!r})\n",
    "carriage returns": _MANY.replace("\n", "\r")[:-1] + "\n",
}.items():
    hook(f"hook-budget {_name}", CALL_IN[0], (FORWARD, FORWARD + _BLOCK + _body), code="ISO_HOOK_BUDGET",
         twin=(CALL_IN[0], (FORWARD, FORWARD + _BLOCK + "            v1 = 1; v2 = 2\n" + _FEW)))  # fmt: skip

# -- the guard itself -------------------------------------------------------------------------------------------------
for _name, _text in {
    "true": "def enabled(config):\n    return True\n",
    "coroutine": "async def enabled(config):\n    return config\n",
    "changes": "def enabled(config):\n    config.fast = 1\n    return config\n",
    "imported": "from core.a import enabled\n",
    "rebound": "def enabled(config):\n    return config\n\n\nenabled = bool\n",
}.items():
    simple(f"guard-{_name}", "ISO_GUARD", "kernels/cand/gate.py", trick=lambda _, text=_text: {"kernels/cand/gate.py": text},
           twin={"kernels/cand/gate.py": "def enabled(config):\n    return config.fast\n"})  # fmt: skip
simple("guard-of another module", "ISO_HOOK_UNGUARDED", "kernels/hook.py",
       trick=lambda _: {"kernels/cand/other.py": "def enabled(c):\n    return 1\n",
                        **hooked(("import core.a\n", "import core.a\nfrom kernels.cand import other as gate\n"), CALL_IN[1])},
       twin=hooked(*CALL_IN))  # fmt: skip


@row("guard-moved by the manifest", "ISO_GUARD", "kernels/cand/other.py")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    manifest = MANIFEST.replace("kernels.cand.gate:enabled", "kernels.cand.other:enabled")
    text = "def enabled(config):\n    return 1\n" if trick else "def enabled(config):\n    return config\n"
    return base, git.commit({"kernels/cand/fast_track.toml": manifest, "kernels/cand/other.py": text}, parent=base)


# -- histories --------------------------------------------------------------------------------------------------------
@row("merge-hook on both sides", "ISO_HOOK_UNGUARDED", "kernels/hook.py")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    """main edits the hook file; the change edits another place of it, so that only the merge result shows both."""
    main = git.commit(hooked(("        return y\n", "        return y + 1\n")), parent=base, branch="main")
    edits = [CALL_IN[0], (FORWARD, FORWARD + (ASKED if not trick else "        x = gate.fast(x)\n"))]
    return main, git.commit({**INSIDE, **hooked(*edits)}, parent=base)


@row("merge-undoes main's fix of a hook", "ISO_HOOK_UNGUARDED", "kernels/hook.py")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    main = git.commit(hooked(("        return y\n", "        return y + 1\n")), parent=base, branch="main")
    text: Change = {"kernels/hook.py": HOOK} if trick else hooked(("        return y\n", "        return y + 1\n"))
    return main, git.commit({**INSIDE, **text}, parent=git.commit(INSIDE, parent=base), also=[main])


@row("merge-base's rules changed since", "ISO_PATH_OUTSIDE", "kernels2/cand/k.py")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    """The base tip's configuration decides, not the one that the change was branched from."""
    old = git.commit(
        {".github/gatekeeper.toml": CONFIGURATION.replace('root = "kernels"', 'root = "kernels2"')}, parent=base
    )
    main = git.commit({".github/gatekeeper.toml": CONFIGURATION}, parent=old, branch="main")
    more: Change = {"kernels2/cand/k.py": "k = 1\n"} if trick else {}
    return main, git.commit({**INSIDE, **more}, parent=old)


# -- which directory a change is about ---------------------------------------------------------------------------------
_CLOSED = CONFIGURATION.replace(
    'refuse = ["core"]', 'refuse = ["core", "kernels/spec_common", "kernels/cand/secret.py"]'
)


@row("zone-refused directory below a free pattern", "ISO_PATH_OUTSIDE", "kernels/spec_common/x.py")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    """An ordinary change of an ordinary directory passes; next to a specialised one it is refused, and no second tree."""
    before = git.commit({".github/gatekeeper.toml": _CLOSED, "kernels/spec_common/x.py": "x = 1\n"}, parent=base)
    return before, git.commit({"kernels/spec_common/x.py": "x = 2\n", **(INSIDE if trick else {})}, parent=before)


@row("zone-refused file in a free directory", "ISO_PATH_OUTSIDE", "kernels/cand/secret.py")
def _(git: GitBuilder, base: str, trick: bool) -> Built:
    before = git.commit({".github/gatekeeper.toml": _CLOSED}, parent=base)
    return before, git.commit({"kernels/cand/secret.py": "s = 1\n"} if trick else INSIDE, parent=before)
