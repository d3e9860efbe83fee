"""Statements added to a hook file that raise while the opt-in says no, or that stock code would notice; each beside an honest one."""

from __future__ import annotations

import ast

import pytest

from gatekeeper.domain.guard_names import Guard
from gatekeeper.domain.guards import judge_hook

PACKAGE = "m.x.spec_decode"
GUARD = Guard(PACKAGE, f"{PACKAGE}.gate", "enabled")
STOCK = """\
from typing import Optional
import torch
import core.a

LIMIT = 3


class Plain:
    def __init__(self, config):
        self.config = config
        self.size = config.sizes.rows

    def forward(self, x, flag=None):
        early = x.shape
        y = core.a.run(x)
        if flag:
            late = y
        return y


class Layer(core.a.Base):
    def forward(self, x):
        return core.a.run(x)


def free(x):
    return torch.exp(x)
"""
TOP = "import core.a\n"
IN = (TOP, f"{TOP}from {PACKAGE} import gate\n")
PLAIN = "        early = x.shape\n"
RETURN = "        return y\n"
INIT = "        self.size = config.sizes.rows\n"
LAYER = "        return core.a.run(x)\n"
FREE = "def free(x):\n"
Edits = list[tuple[str, str]]
ASKED = ast.parse("def enabled(config, /, width=1, *, on=True): pass").body[0].args  # type: ignore[attr-defined]


def judge(edits: Edits, old: str = STOCK) -> list[str]:
    new = old
    for before, after in edits:
        assert before in new, before
        new = new.replace(before, after, 1)
    faults = judge_hook(old.encode(), new.encode(), "m/x/model.py", GUARD, PACKAGE, asked=ASKED)
    assert all(1 <= fault.line <= new.count("\n") + 1 and fault.expected and fault.found for fault in faults)
    return [fault.message for fault in faults]


def ask(call: str, place: str = PLAIN) -> Edits:
    return [IN, (place, f"        if {call}:\n            return gate.fast(x)\n" + place)]


def helper(text: str) -> Edits:
    return [IN, (FREE, text + "\n\n" + FREE)]


def annotated(text: str) -> Edits:
    return helper(f"def helper(x: {text}):\n    return x\n")


SWITCHED: Edits = [IN, (INIT, INIT + "        self.use_spec = gate.enabled(config)\n")]
# name: (trick, twin)
PAIRS: dict[str, tuple[Edits, Edits]] = {
    "annotation names nothing": (annotated("Nope"), annotated("'Nope'")),
    "annotation of texts": (annotated("'a' | 'b'"), annotated("'a | b'")),
    "annotation of a text and a type": (annotated("int | 'b'"), annotated("int | None")),
    "annotation of two nones": (annotated("None | None"), annotated("None")),
    "annotation of no types": (annotated("LIMIT | None"), annotated("Layer | None")),
    "annotation of a class that comes later": (
        [IN, ("LIMIT = 3\n", "def helper(x: Layer):\n    return x\n\n\nLIMIT = 3\n")], annotated("Layer"),
    ),
    "annotation with an attribute that is not there": (annotated("core.a.Nope"), annotated("core.a.Base")),
    "annotation with an attribute of torch": (annotated("torch.Tensr"), annotated("torch.Tensor")),
    "annotation of a value in brackets": (annotated("Layer[int]"), annotated("list[int]")),
    "annotation with too much in brackets": (annotated("Optional[int, str]"), annotated("Optional[int]")),
    "annotation with too little in brackets": (annotated("dict[str]"), annotated("dict[str, list[int]]")),
    "annotation with a text that is none": (annotated("Optional['a b']"), annotated("Optional['Layer']")),
    "annotation with another operator": (annotated("int & str"), annotated("int | str | None")),
    "annotation of what is returned": (
        helper("def helper(x) -> Nope:\n    return x\n"), helper("def helper(x) -> Optional[torch.Tensor]:\n    return x\n"),
    ),
    "annotation in a helper's class": (
        helper("class Helper:\n    kind: Nope = 1\n"), helper("class Helper:\n    kind: int = 1\n"),
    ),
    "annotation of a new name": (helper("spec_on: Nope = None"), helper("spec_on: Optional[int] = None")),
    "default that is bound later": (
        [(TOP, TOP + "def helper(x=LIMIT):\n    return x\n\n\n")], helper("def helper(x=LIMIT):\n    return x\n"),
    ),
    "default attribute is not there": (
        helper("def helper(x=core.a.nope):\n    return x\n"), helper("def helper(x=core.a.run):\n    return x\n"),
    ),
    "default of the directory is not there": (
        helper("def helper(x=gate.NOPE):\n    return x\n"), helper("def helper(x=gate.enabled):\n    return x\n"),
    ),
    "default that is no number": (helper("def helper(x=-'a'):\n    return x\n"), helper("def helper(x=-1.5):\n    return x\n")),
    "base class is not there": (helper("class Helper(core.a.Nope):\n    pass\n"), helper("class Helper(core.a.Base):\n    pass\n")),
    "base that is no class": (helper("class Helper(LIMIT):\n    pass\n"), helper("class Helper(Layer):\n    pass\n")),
    "base that nobody may derive from": (helper("class Helper(bool):\n    pass\n"), helper("class Helper(dict):\n    pass\n")),
    "bases in a wrong order": (helper("class Helper(object, Layer):\n    pass\n"), helper("class Helper(object):\n    pass\n")),
    "quiet question raises": (
        [(PLAIN, "        if x.nope is None:\n            pass\n" + PLAIN)], [(PLAIN, "        if x.shape is None:\n            pass\n" + PLAIN)],
    ),
    "quiet question about a later name": (
        [(PLAIN, "        if y is None:\n            pass\n" + PLAIN)], [(RETURN, "        if y is None:\n            pass\n" + RETURN)],
    ),
    "quiet part of a test": (ask("x.nope is not None and gate.enabled(x)"), ask("flag is not None and gate.enabled(x)")),
    "asked with what is not there": (ask("gate.enabled(self.config.deep)"), ask("gate.enabled(self.config)")),
    "asked with a part that the class looks up": (ask("gate.enabled(self.config.sizes)"), ask("gate.enabled(self.size)")),
    "asked with an attribute that nobody sets": (ask("gate.enabled(self.nope)"), ask("gate.enabled(self.config)")),
    "asked with a later local": (ask("gate.enabled(y)"), ask("gate.enabled(y)", RETURN)),
    "asked with a local of some ways": (ask("gate.enabled(late)", RETURN), ask("gate.enabled(early)", RETURN)),
    "asked with a deep attribute of what is inherited": (
        ask("gate.enabled(self.config.deep)", LAYER), ask("gate.enabled(self.config)", LAYER),
    ),
    "asked without an argument": (ask("gate.enabled()"), ask("gate.enabled(x)")),
    "asked with too many arguments": (ask("gate.enabled(x, 1, 2)"), ask("gate.enabled(x, 1)")),
    "asked with an unknown argument": (ask("gate.enabled(x, wide=1)"), ask("gate.enabled(x, width=1, on=flag)")),
    "asked with a name that goes by position": (ask("gate.enabled(config=x)"), ask("gate.enabled(x, on=None)")),
    "asked with one argument twice": (ask("gate.enabled(x, 1, width=2)"), ask("gate.enabled(x, width=2)")),
    "imported in another function": (
        [(PLAIN, f"        if gate.enabled(x):\n            return 1\n{PLAIN}"), (FREE, f"def load():\n    from {PACKAGE} import gate\n\n\n{FREE}")],
        [(PLAIN, f"        from {PACKAGE} import gate\n        if gate.enabled(x):\n            return 1\n{PLAIN}")],
    ),
    "imported after it is asked": (
        [(PLAIN, f"        if gate.enabled(x):\n            return 1\n        from {PACKAGE} import gate\n{PLAIN}")],
        [(PLAIN, f"        from {PACKAGE} import gate\n        if gate.enabled(x):\n            return 1\n{PLAIN}")],
    ),
    "imported on some ways": (
        [(PLAIN, f"        if flag is None:\n            from {PACKAGE} import gate\n        if gate.enabled(x):\n            return 1\n{PLAIN}")],
        [(PLAIN, f"        if flag is None:\n            from {PACKAGE} import gate\n        else:\n            from {PACKAGE} import gate\n        if gate.enabled(x):\n            return 1\n{PLAIN}")],
    ),
    "imported for type checkers only": (
        [("import Optional\n", "import Optional, TYPE_CHECKING\n"), (TOP, f"{TOP}if TYPE_CHECKING:\n    from {PACKAGE} import gate\n"), ask("gate.enabled(x)")[1]],
        [("import Optional\n", "import Optional, TYPE_CHECKING\n"), (TOP, f"{TOP}if TYPE_CHECKING:\n    from {PACKAGE} import kinds\n"), *ask("gate.enabled(x)")],
    ),
    "imported if it is there": (
        [(TOP, f"{TOP}try:\n    from {PACKAGE} import gate\nexcept ImportError:\n    pass\n"), ask("gate.enabled(x)")[1]],
        [(TOP, f"{TOP}try:\n    from {PACKAGE} import gate\nexcept ImportError:\n    gate = None\n"), ask("gate is not None and gate.enabled(x)")[1]],
    ),
    "answer bound on some ways": (
        [IN, (PLAIN, "        if flag is None:\n            on = gate.enabled(x)\n" + PLAIN), (RETURN, "        if on:\n            return 1\n" + RETURN)],
        [IN, (PLAIN, "        on = False\n        if flag is None:\n            on = gate.enabled(x)\n" + PLAIN), (RETURN, "        if on:\n            return 1\n" + RETURN)],
    ),
    "answer bound in the second part of a test": (
        [IN, (PLAIN, "        if flag is None and (on := gate.enabled(x)):\n            pass\n" + PLAIN), (RETURN, "        if on:\n            return 1\n" + RETURN)],
        [IN, (PLAIN, "        if (on := gate.enabled(x)) and flag is None:\n            pass\n" + PLAIN), (RETURN, "        if on:\n            return 1\n" + RETURN)],
    ),
    "attribute set in another method only": (
        [IN, (RETURN, "        self.use_spec = gate.enabled(x)\n" + RETURN), (PLAIN, "        if self.use_spec:\n            return 1\n" + PLAIN)],
        [*SWITCHED, (PLAIN, "        if self.use_spec:\n            return 1\n" + PLAIN)],
    ),
    "attribute set behind the guard only": (
        [IN, (INIT, INIT + "        if gate.enabled(config):\n            self.use_spec = True\n"), (PLAIN, "        if self.use_spec:\n            return 1\n" + PLAIN)],
        [IN, (INIT, INIT + "        if gate.enabled(config):\n            self.use_spec = True\n"), (PLAIN, "        if getattr(self, 'use_spec', False):\n            return 1\n" + PLAIN)],
    ),
    "attribute of another class": (
        [*SWITCHED, (LAYER, "        if self.use_spec:\n            return 1\n" + LAYER)],
        [*SWITCHED, (LAYER, "        if getattr(self, 'use_spec', False):\n            return 1\n" + LAYER)],
    ),
    "error caught by something else": (
        [IN, (PLAIN, "        try:\n            on = gate.enabled(self.config.deep)\n        except ValueError:\n            on = False\n" + PLAIN)],
        [IN, (PLAIN, "        try:\n            on = gate.enabled(self.config.deep)\n        except Exception:\n            on = False\n" + PLAIN)],
    ),
    "clause of a try names nothing": (
        [(TOP, f"{TOP}try:\n    from {PACKAGE} import gate\nexcept Nope:\n    gate = None\n")],
        [(TOP, f"{TOP}try:\n    from {PACKAGE} import gate\nexcept (ImportError, OSError):\n    gate = None\n")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("trick", [pair[0] for pair in PAIRS.values()], ids=PAIRS.keys())
def test_what_may_raise_is_named(trick: Edits) -> None:
    assert judge(trick)


@pytest.mark.parametrize("twin", [pair[1] for pair in PAIRS.values()], ids=PAIRS.keys())
def test_honest_twin_passes(twin: Edits) -> None:
    assert judge(twin) == []


LATE = "from __future__ import annotations\n" + STOCK


def test_annotations_that_nobody_evaluates_may_name_anything() -> None:
    assert judge(annotated("Nope | None"), LATE) == []
    assert judge(annotated("launch()"), LATE)
    assert judge([IN, (PLAIN, PLAIN + "        on: Nope = gate.enabled(x)\n")]) == []  # nor in a function


def test_a_name_of_a_stock_star_import_may_be_there() -> None:
    starred = "from core.a import *\n" + STOCK
    assert judge(helper("def helper(x=SOMETHING):\n    return x\n"), starred) == []


def test_what_runs_for_every_derived_class_is_named() -> None:
    old = (
        STOCK
        + "\n\nclass Registry:\n    def __init_subclass__(cls):\n        pass\n\n\nclass Kind(Registry):\n    pass\n"
    )
    added = "\n\nclass Helper(Kind):\n    pass\n"
    new = old + added
    assert judge_hook(old.encode(), new.encode(), "m/x/model.py", GUARD, PACKAGE)
    derived = STOCK + "\n\nclass Helper(core.a.Base):\n    pass\n"
    for spoken in (True, False):
        faults = judge_hook(
            STOCK.encode(), derived.encode(), "m/x/model.py", GUARD, PACKAGE, elsewhere=lambda _, known=spoken: known
        )
        assert bool(faults) is spoken


LOCAL: Edits = [(PLAIN, "        spec_on = None\n" + PLAIN)]
ATTRIBUTE: Edits = [(PLAIN, "        self.spec_on = None\n" + PLAIN)]
GLOBAL: Edits = [("LIMIT = 3\n", "LIMIT = 3\nspec_on = None\n")]


@pytest.mark.parametrize(
    ("edits", "stock", "fault"),
    [
        (LOCAL, ("core.a.run(x)\n        if", "core.a.run(**locals())\n        if"), True),
        (LOCAL, ("core.a.run(x)\n        if", "core.a.run(vars())\n        if"), True),
        (LOCAL, ("core.a.run(x)\n        if", "core.a.run([n for n in dir()])\n        if"), True),
        (LOCAL, ("core.a.run(x)\n        if", "eval('core.a.run(x)')\n        if"), True),
        (LOCAL, ("core.a.run(x)\n        if", "core.a.run(vars(x))\n        if"), False),
        (LOCAL, ("torch.exp(x)", "torch.exp(**locals())"), False),
        (ATTRIBUTE, ("class Plain:\n", "class Plain:\n    __slots__ = ('config', 'size')\n"), True),
        (ATTRIBUTE, ("class Plain:\n", "@dataclass(frozen=True)\nclass Plain:\n"), True),
        (ATTRIBUTE, ("class Plain:\n", "@dataclass(slots=True)\nclass Plain:\n"), True),
        (ATTRIBUTE, ("class Plain:\n", "@dataclass(frozen=False)\nclass Plain:\n"), False),
        (ATTRIBUTE, ("class Plain:\n", "class Plain(NamedTuple):\n"), True),
        (ATTRIBUTE, ("class Plain:\n", "class Frozen:\n    __slots__ = ()\n\n\nclass Plain(Frozen):\n"), True),
        (ATTRIBUTE, ("class Plain:\n", "class Plain:\n    def __setattr__(self, name, value):\n        raise TypeError\n\n"), True),
        (ATTRIBUTE, ("class Plain:\n", "class Plain:\n    def show(self):\n        return core.a.run(**self.__dict__)\n\n"), True),
        (ATTRIBUTE, ("class Plain:\n", "class Plain:\n    def show(self):\n        return core.a.run(vars(self))\n\n"), True),
        (ATTRIBUTE, ("LIMIT = 3\n", "LIMIT = 3\n\n\nclass Other:\n    __slots__ = ()\n"), False),
        (GLOBAL, ("LIMIT = 3\n", "LIMIT = 3\n__all__ = [name for name in globals() if name.isupper()]\n"), True),
        (GLOBAL, ("LIMIT = 3\n", "LIMIT = 3\n__all__ = dir()\n"), True),
        (GLOBAL, ("LIMIT = 3\n", "LIMIT = 3\nKINDS = inspect.getmembers(sys.modules[__name__])\n"), True),
        (GLOBAL, ("LIMIT = 3\n", "LIMIT = 3\nkind = globals()['Optional']\nother = globals().get('x')\n"), False),
    ],
)  # fmt: skip
def test_a_new_name_that_stock_code_would_notice(edits: Edits, stock: tuple[str, str], fault: bool) -> None:
    assert stock[0] in STOCK
    assert bool(judge(edits, STOCK.replace(*stock, 1))) is fault
