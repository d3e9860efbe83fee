"""Hook files under attack: each trick is named, and its honest twin, which differs in the trick alone, passes."""

from __future__ import annotations

import pytest

from gatekeeper.domain.guard_names import Guard
from gatekeeper.domain.guards import judge_hook

PACKAGE = "m.x.spec_decode"
GUARD = Guard(PACKAGE, f"{PACKAGE}.gate", "enabled")
STOCK = """\
from contextlib import contextmanager
from typing import Any
import torch

LIMIT = 3


class Layer(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.cache = None

    def forward(self, x):
        x = self.norm(x)
        x = self.norm(x)
        x = self.norm(x)
        x = self.norm(x)
        return x


def free(x):
    return torch.exp(x)
"""
IMPORT = f"import torch\nfrom {PACKAGE} import gate\n"
CLASS = "class Layer(torch.nn.Module):\n"
FORWARD = "    def forward(self, x):\n"
ON = FORWARD + "        on = gate.enabled(self.config)\n"
SET = "        self.cache = None\n"
NORM = "        x = self.norm(x)\n"
HUGE = "0x" + "f" * 8000
Edits = list[tuple[str, str]]


def judge(edits: Edits, old: str = STOCK, taken: frozenset[str] = frozenset()) -> list[str]:
    new = old
    for before, after in edits:
        assert before in new, before
        new = new.replace(before, after, 1)
    faults = judge_hook(old.encode(), new.encode(), "m/x/model.py", GUARD, PACKAGE, elsewhere=taken.__contains__)
    assert all(1 <= fault.line <= new.count("\n") + 1 and fault.expected and fault.message for fault in faults)
    return [f"{fault.message} | {fault.found}" for fault in faults]


def imported(*edits: tuple[str, str]) -> Edits:
    return [("import torch\n", IMPORT), *edits]


def tried(body: str, handler: str = "except ImportError:\n    gate = None") -> Edits:
    return [("import torch\n", f"import torch\ntry:\n    {body}\n{handler}\n")]


# name: (trick, twin)
PAIRS: dict[str, tuple[Edits, Edits]] = {
    "second name of an import in a try": (
        tried(f"import {PACKAGE}.gate, antigravity"), tried(f"import {PACKAGE}.gate, {PACKAGE}.other"),
    ),
    "except clause that unbinds a stock name": (
        tried(f"from {PACKAGE} import gate", "except ImportError as torch:\n    gate = None"),
        tried(f"from {PACKAGE} import gate", "except ImportError as missing:\n    gate = None"),
    ),
    "import in a class body overrides what is inherited": (
        [(CLASS, CLASS + f"    from {PACKAGE}.gate import train\n\n")],
        [(CLASS, CLASS + f"    from {PACKAGE}.gate import train_spec\n\n")],
    ),
    "walrus in a class body overrides what is inherited": (
        imported((CLASS, CLASS + "    if train := gate.enabled():\n        pass\n\n")),
        imported((CLASS, CLASS + "    if train_spec := gate.enabled():\n        pass\n\n")),
    ),
    "except clause in a class body": (
        [(CLASS, CLASS + f"    try:\n        from {PACKAGE} import spec_gate\n    except ImportError as train:\n        pass\n\n")],
        [(CLASS, CLASS + f"    try:\n        from {PACKAGE} import spec_gate\n    except ImportError as spec_missing:\n        pass\n\n")],
    ),
    "decorator that is only called like a harmless one": (
        imported(("def free", "@gate.staticmethod\ndef helper(x):\n    return x\n\n\ndef free")),
        imported(("def free", "@contextmanager\ndef helper(x):\n    yield x\n\n\ndef free")),
    ),
    "relative import from above the top": (
        [("import torch\n", "import torch\nfrom ....x.spec_decode import gate\n")],
        [("import torch\n", "import torch\nfrom ..x.spec_decode import gate\n")],
    ),
    "stock attribute as a guard": (
        [(NORM, "        if self.cache is not None:\n            return launch(x)\n" + NORM)],
        imported((SET, SET + "        self.spec_cache = None\n        if gate.enabled(self.config):\n            self.spec_cache = gate.build()\n"),
                 (NORM, "        if self.spec_cache is not None:\n            return launch(x)\n" + NORM)),
    ),
    "stock attribute as a guard, bound behind the guard as well": (
        imported((FORWARD, ON + "        if on:\n            self.cache = gate.build()\n"),
                 (NORM, "        if self.cache is not None:\n            return launch(x)\n" + NORM)),
        imported((FORWARD, ON + "        if on:\n            self.cache = gate.build()\n"),
                 (NORM, "        if on:\n            return launch(x)\n" + NORM)),
    ),
    "number too large to be written out": (
        imported((FORWARD, ON + f"        if launch():\n            x = {HUGE}\n")),
        imported((FORWARD, ON + "        if on:\n            x = 0xff\n")),
    ),
    "branch between repeated statements": (
        imported((NORM * 4, NORM + "        if gate.other(x):\n            x = gate.f(x)\n" + NORM * 2 + "        if gate.enabled(x):\n            x = gate.f(x)\n" + NORM)),
        imported((NORM * 4, NORM + "        if gate.enabled(x):\n            x = gate.f(x)\n" + NORM * 2 + "        if gate.enabled(x):\n            x = gate.f(x)\n" + NORM)),
    ),
    "stock statement twice": (
        imported((NORM * 4, NORM * 5)), imported((NORM * 4, NORM * 4 + "        if gate.enabled(x):\n            x = self.norm(x)\n")),
    ),
    "docstring of stock code": (
        [(FORWARD, FORWARD + '        """--help"""\n')], [(FORWARD, FORWARD + "        # --help\n")],
    ),
    "default that is not there": (
        [("def free", "def helper(x=absent):\n    return x\n\n\ndef free")],
        [("def free", "def helper(x=LIMIT):\n    return x\n\n\ndef free")],
    ),
    "question with a name that is not there": (
        imported((FORWARD, FORWARD + "        on = gate.enabled(absent)\n")), imported((FORWARD, ON)),
    ),
    "base class that is not there": (
        [("def free", "class Helper(Absent):\n    pass\n\n\ndef free")], [("def free", "class Helper(Layer):\n    pass\n\n\ndef free")],
    ),
    "guard as an await": (
        imported((FORWARD, FORWARD + "        on = gate.enabled\n        if on:\n            return gate.f(x)\n")),
        imported((FORWARD, ON + "        if on:\n            return gate.f(x)\n")),
    ),
    "stock statement behind the else of another question": (
        imported(("        return x\n", "        if gate.other(self.config):\n            return gate.f(x)\n        else:\n            return x\n")),
        imported(("        return x\n", "        if gate.enabled(self.config):\n            return gate.f(x)\n        else:\n            return x\n")),
    ),
    "stock order turned around in the else": (
        imported(("        self.config = config\n        self.cache = None\n", "        if gate.enabled(config):\n            pass\n        else:\n            self.cache = None\n            self.config = config\n")),
        imported(("        self.config = config\n        self.cache = None\n", "        if gate.enabled(config):\n            pass\n        else:\n            self.config = config\n            self.cache = None\n")),
    ),
    "else that changes a stock value": (
        imported(("LIMIT = 3\n", "if gate.enabled():\n    LIMIT = 9\nelse:\n    LIMIT = 4\n")),
        imported(("LIMIT = 3\n", "if gate.enabled():\n    LIMIT = 9\nelse:\n    LIMIT = 3\n")),
    ),
    "stock line deleted and added elsewhere": (
        [("        self.config = config\n", ""), (SET, SET + "        self.config = config\n")],
        [("        self.config = config\n", "        # kept for later\n        self.config = config\n")],
    ),
    "flag set from a swallowed error": (
        imported((FORWARD, FORWARD + "        try:\n            on = gate.enabled(self.config)\n        except Exception:\n            on = 1\n        if on:\n            return gate.f(x)\n")),
        imported((FORWARD, FORWARD + "        try:\n            on = gate.enabled(self.config)\n        except Exception:\n            on = False\n        if on:\n            return gate.f(x)\n")),
    ),
    "flag turned over by an operator": (
        imported((FORWARD, ON + "        on ^= 1\n        if on:\n            return gate.f(x)\n")),
        imported((FORWARD, ON + "        if on:\n            on = False\n")),
    ),
    "flag set through the instance's dictionary": (
        imported((SET, SET + "        self.use_spec = gate.enabled(config)\n        self.__dict__['use_spec'] = 1\n")),
        imported((SET, SET + "        self.use_spec = gate.enabled(config)\n")),
    ),
    "flag shadowed by a parameter": (
        imported((FORWARD, ON), ("def free", "def helper(x, on=1):\n    if on:\n        return x\n\n\ndef free"), ("        return x\n", "        if on:\n            return gate.f(x)\n        return x\n")),
        imported((FORWARD, ON), ("def free", "def helper(x, off=1):\n    if off:\n        return x\n\n\ndef free"), ("        return x\n", "        if on:\n            return gate.f(x)\n        return x\n")),
    ),
    "flag caught by a pattern": (
        imported((FORWARD, ON + "        if on:\n            pass\n"), ("def free", "def helper(x):\n    match x:\n        case {'a': on}:\n            pass\n\n\ndef free")),
        imported((FORWARD, ON + "        if on:\n            pass\n"), ("def free", "def helper(x):\n    match x:\n        case {'a': other}:\n            pass\n\n\ndef free")),
    ),
    "guard behind a question": (
        imported((FORWARD, FORWARD + "        on = launch() is not None and gate.enabled(self.config)\n")),
        imported((FORWARD, FORWARD + "        on = gate is not None and gate.enabled(self.config)\n        if on:\n            return gate.f(x)\n")),
    ),
    "either value": (
        imported((FORWARD, FORWARD + "        on = gate.enabled(self.config) if gate is None else True\n        if on:\n            return 1\n")),
        imported((FORWARD, FORWARD + "        on = gate.enabled(self.config) if gate is not None else False\n        if on:\n            return 1\n")),
    ),
    "either branch": (
        imported((FORWARD, FORWARD + "        on = False\n        if gate is not None:\n            on = True\n        if on:\n            return 1\n")),
        imported((FORWARD, FORWARD + "        on = False\n        if gate is not None:\n            on = gate.enabled(self.config)\n        if on:\n            return 1\n")),
    ),
    "truth of the answer": (
        imported((FORWARD, FORWARD + "        on = bool(gate.enabled)\n        if on:\n            return 1\n")),
        imported((FORWARD, FORWARD + "        on = bool(gate.enabled(self.config))\n        if on:\n            return 1\n")),
    ),
    "attribute that may be missing": (
        imported((SET, SET + "        self.use_spec = gate.enabled(config)\n"), (NORM, "        if getattr(self, 'use_spec', True):\n            return 1\n" + NORM)),
        imported((SET, SET + "        self.use_spec = gate.enabled(config)\n"), (NORM, "        if getattr(self, 'use_spec', False):\n            return 1\n" + NORM)),
    ),
    "state that may be missing": (
        imported((SET, SET + "        if gate.enabled(config):\n            self.spec_state = 1\n"), (NORM, "        if getattr(self, 'spec_state', 0) is not None:\n            return 1\n" + NORM)),
        imported((SET, SET + "        if gate.enabled(config):\n            self.spec_state = 1\n"), (NORM, "        if getattr(self, 'spec_state', None) is not None:\n            return 1\n" + NORM)),
    ),
    "mapping as arguments": (
        imported((FORWARD, FORWARD + "        on = gate.enabled(**self.config)\n")), imported((FORWARD, FORWARD + "        on = gate.enabled(config=self.config)\n")),
    ),
    "full-width letters in the guard's name": (
        imported((FORWARD, FORWARD + "        on = gate.e\u217eabled(self.config)\n        if on:\n            return gate.f(x)\n")),
        imported((FORWARD, FORWARD + "        on = gate.\uff45nabled(self.config)\n        if on:\n            return gate.f(x)\n")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("trick", [pair[0] for pair in PAIRS.values()], ids=PAIRS.keys())
def test_trick_is_named(trick: Edits) -> None:
    assert judge(trick)


@pytest.mark.parametrize("twin", [pair[1] for pair in PAIRS.values()], ids=PAIRS.keys())
def test_honest_twin_passes(twin: Edits) -> None:
    assert judge(twin) == []


@pytest.mark.parametrize(
    "edits",
    [
        [(FORWARD, "    def forward_spec(self, x):\n        return launch(x)\n\n" + FORWARD)],
        imported((SET, SET + "        self.forward_spec = gate.enabled(config)\n"),
                 (NORM, "        if self.forward_spec:\n            return launch(x)\n" + NORM)),
    ],
)  # fmt: skip
def test_a_member_must_be_new_to_the_whole_repository(edits: Edits) -> None:
    """Another file may look the member up, set it, or hold the method that it would replace."""
    assert judge(edits) == []
    assert judge(edits, taken=frozenset({"forward_spec"}))


def test_a_stock_attribute_stays_one_in_later_changes() -> None:
    """An earlier change bound it behind the guard; that does not make its other values the guard's answer."""
    old = STOCK.replace("import torch\n", IMPORT).replace(
        FORWARD, ON + "        if on:\n            self.cache = gate.build()\n"
    )
    test: Edits = [(NORM, "        if self.cache is not None:\n            return launch(x)\n" + NORM)]
    assert judge(test, old=old, taken=frozenset({"cache"}))
    own = old.replace("self.cache = gate", "self.spec_cache = gate").replace(
        SET, SET + "        self.spec_cache = None\n"
    )
    assert (
        judge([(NORM, "        if self.spec_cache is not None:\n            return launch(x)\n" + NORM)], old=own) == []
    )


def test_a_body_too_long_to_be_compared_is_a_fault() -> None:
    old = "".join(f"a{number} = {number % 7}\n" for number in range(1100))
    new = "".join(f"a{number} = {number % 5}\n" for number in range(1100, 0, -1))
    assert judge([(old, new)], old=old)[0].startswith("too many statements differ")


def shown(old: str, new: str) -> list[tuple[int, str, str, str]]:
    faults = judge_hook(old.encode(), new.encode(), "m/x/model.py", GUARD, PACKAGE)
    return [(fault.line, fault.message, fault.expected, fault.found) for fault in faults]


def test_the_first_line_that_differs_is_shown() -> None:
    old = "y = run(\n    x,\n    1,\n)\n"
    assert shown(old, old.replace("1", "2")) == [(3, "a stock statement is changed", "1,", "2,")]
    old = "@wrap\ndef f():\n    return 1\n"
    assert shown(old, old.replace("wrap", "trap")) == [(1, "a stock statement is changed", "@wrap", "@trap")]


@pytest.mark.parametrize(("body", "found"), [("'b'", "'b'"), ("pass", "no docstring")])
def test_a_docstring_that_changes_is_one_fault(body: str, found: str) -> None:
    line = 2 if body == "'b'" else 1
    message = "stock code gets another docstring"
    assert shown("def f():\n    'a'\n", f"def f():\n    {body}\n") == [(line, message, "'a'", found)]
    assert shown("'a'\nx = 1\n", "'a'\n'c'\nx = 1\n") == []
