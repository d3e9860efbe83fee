"""Hook files: what may be added, what may not, and that the honest shapes of real trees pass."""

from __future__ import annotations

import pytest

from gatekeeper.domain.guard_names import Guard
from gatekeeper.domain.guards import LARGEST, guard_of, judge_hook

PACKAGE = "m.x.spec_decode"
GUARD = Guard(PACKAGE, f"{PACKAGE}.gate", "enabled")
STOCK = '''\
"""A model."""
from typing import Any
import torch

LIMIT = 3


class Layer(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.width = LIMIT

    def forward(self, x):
        if self.width:
            y = torch.relu(x)
        else:
            y = x
        for step in range(LIMIT):
            y = y + step
        return y


def free(x):
    try:
        return torch.exp(x)
    except ValueError:
        raise
'''
IMPORT = ("import torch\n", f"import torch\nfrom {PACKAGE} import gate\n")
FORWARD = "    def forward(self, x):\n"
ASK = FORWARD + "        on = gate.enabled(self.config)\n"
IF = "        if self.width:\n"


def judge(*edits: tuple[str, str], old: str = STOCK, guard: Guard | None = GUARD) -> list[str]:
    new = old
    for before, after in edits:
        assert before in new
        new = new.replace(before, after, 1)
    faults = judge_hook(old.encode(), new.encode(), "m/x/model.py", guard, PACKAGE)
    assert all(1 <= fault.line <= new.count("\n") + 1 and fault.expected and fault.message for fault in faults)
    return [f"{fault.message} | {fault.found}" for fault in faults]


HONEST = {
    "import": [IMPORT],
    "relative import": [("import torch\n", "import torch\nfrom .spec_decode import gate\nfrom . import spec_decode\n")],
    "import in a function": [(FORWARD, FORWARD + f"        from {PACKAGE}.gate import enabled\n")],
    "import with its dotted name": [("import torch\n", f"import torch\nimport {PACKAGE}.gate\n")],
    "import that may be missing": [
        ("import torch\n", f"import torch\ntry:\n    from {PACKAGE} import gate\nexcept ImportError:\n    gate = None\n")
    ],
    "guard's answer": [IMPORT, (FORWARD, ASK)],
    "early return": [IMPORT, (FORWARD, ASK + "        if on:\n            return gate.fast(x)\n")],
    "guard asked in the test": [IMPORT, (IF, "        if gate.enabled(self.config):\n            return gate.fast(x)\n" + IF)],
    "guard and more": [IMPORT, (FORWARD, ASK + "        if on and x.numel() < 9:\n            return gate.fast(x)\n")],
    "walrus": [IMPORT, (IF, "        if (on := gate.enabled(self.config)):\n            x = gate.fast(x, on)\n" + IF)],
    "is True": [IMPORT, (FORWARD, ASK + "        if on is True:\n            return gate.fast(x)\n")],
    "TYPE_CHECKING": [
        ("from typing import Any", "from typing import TYPE_CHECKING, Any"),
        ("LIMIT = 3\n", f"if TYPE_CHECKING:\n    from {PACKAGE}.kinds import Kind\nLIMIT = 3\n"),
    ],
    "alias of the answer": [IMPORT, (FORWARD, ASK + "        fast = on\n        if fast:\n            return gate.fast(x)\n")],
    "alias of the function": [
        ("import torch\n", f"import torch\nfrom {PACKAGE}.gate import enabled as asked\n"),
        (IF, "        if asked(self.config):\n            x = x * 2\n" + IF),
    ],
    "helper": [("def free", "def helper(x, n=1, *, flag: bool = False) -> Any:\n    return launch(x)\n\n\ndef free")],
    "helper class": [("def free", "class Helper:\n    kind = 1\n    def run(self):\n        return work()\n\n\ndef free")],
    "stock in the else": [
        IMPORT,
        ("            y = x\n", "            if gate.enabled(self.config):\n                y = gate.f(x)\n            else:\n                y = x\n"),
    ],
    "elif in front": [IMPORT, (IF, "        if gate.enabled(self.config):\n            y = gate.f(x)\n        elif self.width:\n")],
    "attribute": [
        IMPORT,
        ("        self.width = LIMIT\n", "        self.width = LIMIT\n        self.use_spec = gate.enabled(config)\n"),
        (FORWARD, FORWARD + "        if self.use_spec:\n            return gate.fast(x)\n"),
    ],
    "state that is None until asked for": [
        IMPORT,
        ("        self.width = LIMIT\n", "        self.width = LIMIT\n        self.spec_state = None\n"
         "        if gate.enabled(config):\n            self.spec_state = gate.build(config)\n"),
        (FORWARD, FORWARD + "        if self.spec_state is not None:\n            return self.spec_state.run(x)\n"),
    ],
    "conditional value": [
        IMPORT, (FORWARD, ASK + "        impl = gate.build() if on else None\n        if impl is not None:\n            return impl(x)\n")
    ],
    "method with the directory's word": [(FORWARD, "    def forward_spec_fast(self, x):\n        return launch(x)\n\n" + FORWARD)],
    "rebinding a local behind the guard": [IMPORT, (FORWARD, ASK + "        if on:\n            x = gate.pad(x)\n")],
    "inside a loop": [IMPORT, ("            y = y + step\n", "            if gate.enabled(self.config):\n                continue\n            y = y + step\n")],
    "comments and blank lines": [("LIMIT = 3\n", "# why three\n\nLIMIT = 3\n")],
}  # fmt: skip


@pytest.mark.parametrize("edits", HONEST.values(), ids=HONEST.keys())
def test_honest_shapes_pass(edits: list[tuple[str, str]]) -> None:
    assert judge(*edits) == []


def guarded(test: str, body: str = "return gate.fast(x)") -> list[tuple[str, str]]:
    return [IMPORT, (FORWARD, ASK + f"        if {test}:\n            {body}\n")]


TRICKS = {
    "guard or True": guarded("on or True"),
    "something and guard": guarded("launch() and on"),
    "not guard": guarded("not on"),
    "the function itself": guarded("gate.enabled"),
    "another function": guarded("gate.other(self.config)"),
    "another module's enabled": [("import torch\n", f"import torch\nfrom {PACKAGE} import other\n"), (IF, "        if other.enabled(x):\n            return 1\n" + IF)],
    "guard is not None": guarded("on is not None"),
    "guard == 0": guarded("on == 0"),
    "argument that runs": guarded("gate.enabled(launch())"),
    "walrus on top": guarded("(y := launch()) or on"),
    "comprehension": guarded("[launch() for _ in range(3)]"),
    "rebound guard": [IMPORT, (FORWARD, ASK + "        if on:\n            pass\n"), ("        return y\n", "        on = 1\n        if on:\n            return gate.f(y)\n        return y\n")],
    "rebound by a loop": [IMPORT, (FORWARD, ASK), ("        return y\n", "        for on in (1,):\n            pass\n        if on:\n            return 1\n        return y\n")],
    "constant that is true": [(FORWARD, FORWARD + "        on = True\n        if on:\n            return 1\n")],
    "else that runs": [IMPORT, (FORWARD, ASK + "        if on:\n            pass\n        else:\n            launch()\n")],
    "code in the other branch": [IMPORT, (FORWARD, ASK + "        if on:\n            pass\n        elif launch():\n            pass\n")],
    "semicolon": [IMPORT, (FORWARD, FORWARD + "        on = gate.enabled(self.config); launch()\n")],
    "form feed": [("LIMIT = 3\n", "LIMIT = 3\n\f\nlaunch()\n")],
    "carriage return": [("LIMIT = 3\n", "LIMIT = 3  # fine\rlaunch()\n")],
    "bare call": [IMPORT, (FORWARD, FORWARD + "        gate.fast(x)\n")],
    "bare return": [IMPORT, (IF, "        return gate.fast(x)\n" + IF)],
    "wrapped stock": [IMPORT, ("        return y\n", "        return gate.fast(y)\n")],
    "decorator on stock": [IMPORT, (FORWARD, "    @gate.wrap\n" + FORWARD)],
    "decorator on a helper": [IMPORT, ("def free", "@gate.register\ndef helper(x):\n    return x\n\n\ndef free")],
    "default that runs": [("def free", "def helper(x=launch()):\n    return x\n\n\ndef free")],
    "annotation that runs": [("def free", "def helper(x: launch()):\n    return x\n\n\ndef free")],
    "default of stock changed": [("def free(x)", "def free(x, fast=None)")],
    "base class changed": [("class Layer(torch.nn.Module)", "class Layer(torch.nn.Sequential)")],
    "metaclass": [("def free", "class Helper(metaclass=Meta):\n    pass\n\n\ndef free")],
    "class body": [("def free", "class Helper:\n    print(1)\n\n\ndef free")],
    "helper takes a stock name": [("def free", "def relu(x):\n    return x\n\n\ndef free")],
    "helper takes a builtin's name": [("def free", "def range(x):\n    return x\n\n\ndef free")],
    "definition over a stock one": [("def free", "class Layer:\n    pass\n\n\ndef free")],
    "method that may override": [(FORWARD, "    def train(self, mode=True):\n        return launch(self)\n\n" + FORWARD)],
    "dunder method": [(FORWARD, "    def __call__(self, x):\n        return launch(x)\n\n" + FORWARD)],
    "module getattr": [("def free", "def __getattr__(name):\n    return 1\n\n\ndef free")],
    "attribute that may override": [("        self.width = LIMIT\n", "        self.width = LIMIT\n        self.training = False\n")],
    "patched stock object": [IMPORT, ("LIMIT = 3\n", "LIMIT = 3\ntorch.relu = gate.fast\n")],
    "import as a stock name": [("import torch\n", f"import torch\nfrom {PACKAGE} import gate as torch\n")],
    "import as a builtin": [("import torch\n", f"import torch\nfrom {PACKAGE} import fast as len\n")],
    "star import": [("import torch\n", f"import torch\nfrom {PACKAGE} import *\n")],
    "import from a sibling": [("import torch\n", "import torch\nfrom m.x.spec_decode_evil import gate\n")],
    "import from elsewhere": [("import torch\n", "import torch\nimport os\n")],
    "future import": [("from typing import Any", "from __future__ import annotations\nfrom typing import Any")],
    "stock statement gone": [("        self.width = LIMIT\n", "")],
    "stock import gone": [("from typing import Any\n", "")],
    "stock statement moved behind the guard": [IMPORT, ("        return y\n", "        if gate.enabled(self.config):\n            return y\n")],
    "constant changed": [("LIMIT = 3", "LIMIT = 4")],
    "order changed": [("        super().__init__()\n        self.config = config\n", "        self.config = config\n        super().__init__()\n")],
    "try around stock": [("        return y\n", "        try:\n            return y\n        except Exception:\n            pass\n")],
    "new handler": [("    except ValueError:\n", "    except KeyError:\n        return 0\n    except ValueError:\n")],
    "finally added": [("        raise\n", "        raise\n    finally:\n        launch()\n")],
    "deletion": [("LIMIT = 3\n", "LIMIT = 3\ndel LIMIT\n")],
    "assertion": [(FORWARD, FORWARD + "        assert launch()\n")],
    "with around stock": [("        return y\n", "        with torch.no_grad():\n            return y\n")],
    "conditional expression": [IMPORT, ("            y = torch.relu(x)\n", "            y = gate.f(x) if gate.enabled(self.config) else torch.relu(x)\n")],
    "value that runs while off": [IMPORT, (FORWARD, ASK + "        z = 1 if on else launch()\n")],
    "yield behind the guard": guarded("on", "yield x"),
    "yield in a condition": [IMPORT, (FORWARD, ASK + "        z = on and (yield)\n")],
    "global behind the guard": guarded("on", "global LIMIT; LIMIT = 9"),
    "global name made local": guarded("on", "torch = gate.fake"),
    "deleted global made local": guarded("on", "del LIMIT"),
    "walrus makes a global local": guarded("on and (LIMIT := 4)"),
    "import makes a global local": guarded("on", "import torch"),
    "loop's else": [IMPORT, ("        return y\n", "        else:\n            launch()\n        return y\n")],
    "type checking that is not": [("LIMIT = 3\n", "TYPE_CHECKING = 1\nif TYPE_CHECKING:\n    import os\nLIMIT = 3\n")],
    "else of type checking": [("from typing import Any", "from typing import TYPE_CHECKING, Any"), ("LIMIT = 3\n", "if TYPE_CHECKING:\n    import os\nelse:\n    launch()\nLIMIT = 3\n")],
    "code under type checking": [("from typing import Any", "from typing import TYPE_CHECKING, Any"), ("LIMIT = 3\n", "if TYPE_CHECKING:\n    launch()\nLIMIT = 3\n")],
    "attribute of stock class": [(FORWARD, "    spec_flag = 0\n\n" + FORWARD)],
    "assignment to two": [IMPORT, (FORWARD, FORWARD + "        on = y = gate.enabled(self.config)\n")],
    "lambda": [(FORWARD, FORWARD + "        helper = lambda: 1\n")],
    "late future import": [("def free", "from __future__ import annotations\n\n\ndef free")],
    "syntax error": [("LIMIT = 3", "LIMIT = = 3")],
    "NUL byte": [("LIMIT = 3", "LIMIT = 3\0")],
    "encoding cookie": [('"""A model."""\n', '# -*- coding: latin-1 -*-\n"""A model."""\n')],
}  # fmt: skip


@pytest.mark.parametrize("edits", TRICKS.values(), ids=TRICKS.keys())
def test_tricks_are_named(edits: list[tuple[str, str]]) -> None:
    assert judge(*edits)


def test_a_fault_names_line_expected_and_found() -> None:
    new = STOCK.replace("LIMIT = 3", "LIMIT = 4")
    (fault,) = judge_hook(STOCK.encode(), new.encode(), "m/x/model.py", GUARD, PACKAGE)
    assert (fault.line, fault.expected, fault.found) == (5, "LIMIT = 3", "LIMIT = 4")


def test_own_earlier_additions_may_change_and_go() -> None:
    old = STOCK.replace(*IMPORT).replace(FORWARD, ASK + "        if on:\n            return gate.fast(x)\n")
    assert judge(("gate.fast(x)", "gate.faster(x, 2)"), old=old) == []
    assert (
        judge((ASK + "        if on:\n            return gate.fast(x)\n", FORWARD), (IMPORT[1], IMPORT[0]), old=old)
        == []
    )


def test_an_addition_in_use_may_not_go() -> None:
    old = STOCK.replace(*IMPORT).replace(FORWARD, ASK + "        if on:\n            return gate.fast(x)\n")
    assert judge(("        on = gate.enabled(self.config)\n", ""), old=old)


def test_another_directorys_branches_are_stock() -> None:
    old = STOCK.replace("import torch\n", "import torch\nfrom m.x.spec_prefill import gate as other\n").replace(
        FORWARD, FORWARD + "        if other.enabled(self.config):\n            return other.fast(x)\n"
    )
    assert judge(("other.fast(x)", "other.slow(x)"), old=old)
    assert judge(IMPORT, old=old) == []


def test_without_a_guard_only_imports_and_definitions_pass() -> None:
    assert judge(IMPORT, guard=None) == []
    assert judge(*guarded("on"), guard=None)


def test_guard_must_lie_in_the_directory() -> None:
    assert guard_of(f"{PACKAGE}.gate:enabled", PACKAGE) == GUARD
    assert guard_of("m.x.spec_decode_evil.gate:enabled", PACKAGE) is None
    assert guard_of("os:getcwd", PACKAGE) is None


def test_limits_are_faults_not_crashes() -> None:
    deep = "x = " + "(" * 150 + "1" + ")" * 150 + "\n" + "-" * 3000 + "1\n"
    for new in (b"#" * (LARGEST + 1), deep.encode(), b"\xff\n"):
        assert judge_hook(STOCK.encode(), new, "m/x/model.py", GUARD, PACKAGE)
