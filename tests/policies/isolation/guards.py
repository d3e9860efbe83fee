"""Guards that are not the one that was judged, that raise or change things, and hook files that fail while the switch is off."""

from __future__ import annotations

from functools import partial

from tests.policies.isolation import rows
from tests.policies.isolation.attacks import ASKED, CALL_IN, FORWARD, OPT_IN, hooked
from tests.policies.isolation.rows import Row

GUARDS: list[Row] = []
simple = partial(rows.simple, into=GUARDS)
GATE = "def enabled(config):\n    return config.fast\n"

# -- the way to the guard ---------------------------------------------------------------------------------------------
for _name, _file, _text, _honest in (
    ("another module", "__init__.py", "from . import k as gate\n", "from . import gate, k\n"),
    ("a class", "__init__.py", "class gate:\n    enabled = bool\n", "class Gate:\n    enabled = bool\n"),
    ("every name", "__init__.py", "def __getattr__(name):\n    return 1\n", "from . import gate\n\n\ndef __getattr__(name):\n    return 1\n"),
    ("the search path", "__init__.py", "__path__.insert(0, __path__[0] + '/sub')\n", "HERE = __path__[0]\n"),
    ("an assignment", "late.py", "from . import gate\ngate.enabled = bool\n", "from . import gate\nasked = gate.enabled\n"),
    ("an alias", "late.py", "from . import gate\n\n\ndef put(m):\n    m.enabled = bool\n\n\nput(gate)\n",
     "class M:\n    pass\n\n\ndef put(m):\n    m.enabled = bool\n\n\nput(M())\n"),
    ("its own table", "gate.py", GATE + "\n\nglobals()['enabled'] = bool\n", GATE + "\n\nASKED = globals()['enabled']\n"),
    ("its code", "gate.py", GATE + "\n\nenabled.__code__ = (lambda config: 1).__code__\n", GATE + "\n\nCODE = enabled.__code__\n"),
):  # fmt: skip
    simple(f"guard-way {_name}", "ISO_GUARD", f"kernels/cand/{_file}", trick=lambda _, file=_file, text=_text: {f"kernels/cand/{file}": text},
           twin={f"kernels/cand/{_file}": _honest})  # fmt: skip
for _name, _text in {
    "raises": "def enabled(config):\n    if config.fast is None:\n        raise ValueError('opt in')\n    return config.fast\n",
    "updates": "def enabled(config):\n    extra = config.extra\n    extra.update(fast=1)\n    return extra.get('fast')\n",
    "kind": "def enabled(config):\n    return type(config).__module__.startswith('kernels')\n",
}.items():
    simple(f"guard-{_name}", "ISO_GUARD", "kernels/cand/gate.py", trick=lambda _, text=_text: {"kernels/cand/gate.py": text},
           twin={"kernels/cand/gate.py": GATE})  # fmt: skip

# -- what breaks the stock model --------------------------------------------------------------------------------------
_IN = ("import core.a\n", "import core.a\n" + OPT_IN)
_END = "        return y\n"
for _name, _trick, _twin in (
    ("annotation", (_IN, (_END, _END + "\n\ndef helper(x: Nope):\n    return x\n")), (_IN, (_END, _END + "\n\ndef helper(x: 'Nope'):\n    return x\n"))),
    ("default", (_IN, (_END, _END + "\n\ndef helper(x=core.a.nope):\n    return x\n")), (_IN, (_END, _END + "\n\ndef helper(x=core.a.run):\n    return x\n"))),
    ("later local", (_IN, (FORWARD, FORWARD + ASKED.replace("self.config", "y"))), (_IN, (_END, ASKED.replace("self.config", "y") + _END))),
    ("no argument", (_IN, (FORWARD, FORWARD + ASKED.replace("self.config", ""))), CALL_IN),
    ("no such argument", (_IN, (FORWARD, FORWARD + ASKED.replace("self.config", "setting=x"))), (_IN, (FORWARD, FORWARD + ASKED.replace("self.config", "config=x")))),
    ("imported elsewhere", ((FORWARD, "    def load_cand(self):\n        " + OPT_IN + "\n" + FORWARD + ASKED),), CALL_IN),
):  # fmt: skip
    simple(f"hook-breaks stock by its {_name}", "ISO_HOOK_UNGUARDED", "kernels/hook.py", trick=lambda _, edits=_trick: hooked(*edits),
           twin=hooked(*_twin))  # fmt: skip
