"""The way to the guard: who asks it by a hook file's import gets the function that was judged, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gatekeeper.domain.guard_function import guard_faults
from gatekeeper.domain.guard_names import Guard
from tests.domain.test_guard_function import Files

PACKAGE = "m.x.spec_decode"
PLACE = "m/x/spec_decode"
GATE = """\
def enabled(config):
    return config.extra.get("backend") == "fast"


def fast(x):
    return x
"""
OTHER = "def enabled(config):\n    return True\n"


def faults(files: Mapping[str, str], guard: str = f"{PACKAGE}.gate") -> list[tuple[str, int, str]]:
    """Return (file, line, message); ``files`` are added to a package with a guard, another module and a deeper package."""
    every = {"__init__.py": "", "gate.py": GATE, "other.py": OTHER, "deep/__init__.py": "", **files}
    tree = Files({f"{PLACE}/{name}": text for name, text in every.items()})
    found = list(guard_faults(tree, Guard(PACKAGE, guard, "enabled")))  # type: ignore[arg-type]
    assert all(fault.expected and fault.found for _, fault in found)
    return [(path.removeprefix(f"{PLACE}/"), fault.line, fault.message) for path, fault in found]


# Each is one file of the directory, and what it holds.
SHADOWS = {
    "another module": "from . import other as gate\n",
    "another module by its full name": f"import {PACKAGE}.other as gate\n",
    "another module, absolute": f"from {PACKAGE} import other as gate\n",
    "a module below": "from .deep import gate\n",
    "a module of that name": "import gate\n",
    "the function": "from .gate import enabled as gate\n",
    "a class": "class gate:\n    @staticmethod\n    def enabled(config):\n        return True\n",
    "a function": "def gate():\n    pass\n",
    "a value": "gate = 1\n",
    "a value with a type": "gate: object = 1\n",
    "a value beside the import": "from . import gate\ngate = gate or 1\n",
    "one of several": "a, (gate, *b) = make()\n",
    "a loop": "for gate in make():\n    pass\n",
    "a walrus in a comprehension": "[(gate := each) for each in make()]\n",
    "a with": "with make() as gate:\n    pass\n",
    "a clause that unbinds": "from . import gate\ntry:\n    make()\nexcept ValueError as gate:\n    pass\n",
    "a pattern": "match make():\n    case [gate]:\n        pass\n",
    "a deletion": "from . import gate\ndel gate\n",
    "an addition": "from . import gate\ngate += 1\n",
    "in a branch": "if make():\n    from . import other as gate\n",
    "if it is missing": "try:\n    from . import gate\nexcept ImportError:\n    gate = None\n",
    "a global of a function": "from . import gate\n\n\ndef late():\n    global gate\n    gate = 1\n",
    "a star from outside": "from somewhere import *\n",
    "a star from a module that binds it": "from .stars import *\n",
    "an answer for every name": "def __getattr__(name):\n    from . import other\n    return other\n",
    "an imported answer": "from .other import answer as __getattr__\n",
    "an answer by a value": "__getattr__ = make()\n",
    "a star from a module that answers": "from .answers import *\n",
    "globals()": "globals()['gate'] = make()\n",
    "globals() by an alias": "space = globals()\nspace['gate'] = make()\n",
    "globals().update": "globals().update(gate=make())\n",
    "vars()": "vars()['gate'] = make()\n",
    "locals()": "locals().update(gate=make())\n",
    "the name of globals": "table = globals\ntable()['gate'] = 1\n",
    "code from a text": "exec('gate = make()')\n",
    "setattr of itself": "import sys\nsetattr(sys.modules[__name__], 'gate', make())\n",
    "its own entry": "import sys\nsys.modules[__name__] = make()\n",
    "its own class": "import sys\nsys.modules[__name__].__class__ = make()\n",
    "its own class by an alias": "import sys as s\nme = s.modules.get(__package__)\nme.__class__ = make()\n",
    "the submodule's entry": f"import sys\nsys.modules['{PACKAGE}.gate'] = make()\n",
    "the submodule's entry, put together": "import sys\nsys.modules[__name__ + '.gate'] = make()\n",
    "the submodule's entry, formatted": "import sys\nsys.modules[f'{__name__}.gate'] = make()\n",
    "the entry from an import": "from sys import modules as m\nm[__name__ + '.gate'] = make()\n",
    "the entry by a method": "import sys\nsys.modules.update({__name__: make()})\n",
    "search path by insert": "__path__.insert(0, __path__[0] + '/sub')\n",
    "search path by assignment": "__path__ = ['elsewhere']\n",
    "search path by addition": "__path__ += ['elsewhere']\n",
    "search path by slice": "__path__[:0] = ['elsewhere']\n",
    "search path by extend_path": "from pkgutil import extend_path\n__path__ = extend_path(__path__, __name__)\n",
    "search path by an alias": "places = __path__\nplaces.insert(0, 'elsewhere')\n",
    "search path handed on": "make(__path__)\n",
    "search path of the spec": "__spec__.submodule_search_locations.insert(0, 'elsewhere')\n",
    "search path by a look-up": "import sys\ngetattr(sys.modules[__name__], '__path__').insert(0, 'elsewhere')\n",
}  # fmt: skip
STORES = {
    "assignment": "from . import gate\ngate.enabled = make()\n",
    "assignment of what it asks": "from . import gate\ngate.SWITCH = None\n",
    "by the full name": f"import {PACKAGE}.gate\n{PACKAGE}.gate.enabled = make()\n",
    "by the package": "from .. import spec_decode\nspec_decode.gate.enabled = make()\n",
    "of the package's name": "from .. import spec_decode\nspec_decode.gate = make()\n",
    "by an alias": "from . import gate as g\nh = g\nh.enabled = make()\n",
    "by an alias of several": "from . import gate, other\na, b = gate, other\na.enabled = make()\n",
    "by a loop": "from . import gate\nfor each in (gate,):\n    each.enabled = make()\n",
    "by a with": "from . import gate\nwith keep(gate) as g, keep(1):\n    gate.enabled = make()\n",
    "by a parameter": "from . import gate\n\n\ndef put(module):\n    module.enabled = make()\n\n\nput(gate)\n",
    "by a keyword": "from . import gate\n\n\ndef put(*, module):\n    module.enabled = make()\n\n\nput(module=gate)\n",
    "by a default": "from . import gate\n\n\ndef put(module=gate):\n    module.enabled = make()\n",
    "by a method": "from . import gate\n\n\nclass A:\n    def __init__(self):\n        self.module = gate\n\n    def put(self):\n        self.module.enabled = make()\n",
    "by a pattern": "from . import gate\nmatch gate:\n    case module:\n        module.enabled = make()\n",
    "in a function": "def build():\n    from . import gate\n    gate.enabled = make()\n",
    "as a target of a loop": "from . import gate\nfor gate.enabled in make():\n    pass\n",
    "deletion": "from . import gate\ndel gate.enabled\n",
    "addition": "from . import gate\ngate.enabled |= 1\n",
    "setattr": "from . import gate\nsetattr(gate, 'enabled', make())\n",
    "setattr of a made-up name": "from . import gate\nsetattr(gate, make(), make())\n",
    "object.__setattr__": "from . import gate\nobject.__setattr__(gate, 'enabled', make())\n",
    "gate.__setattr__": "from . import gate\ngate.__setattr__('enabled', make())\n",
    "vars": "from . import gate\nvars(gate)['enabled'] = make()\n",
    "vars with update": "from . import gate\nvars(gate).update(enabled=make())\n",
    "__dict__": "from . import gate\ngate.__dict__['enabled'] = make()\n",
    "__dict__ by an alias": "from . import gate\ntable = gate.__dict__\ntable['enabled'] = make()\n",
    "__dict__ handed on": "from . import gate\nexec('enabled = 1', gate.__dict__)\n",
    "import_module": f"import importlib\nimportlib.import_module('{PACKAGE}.gate').enabled = make()\n",
    "import_module, relative": "from importlib import import_module\nimport_module('.gate', __package__).enabled = make()\n",
    "__import__": f"__import__('{PACKAGE}.gate').x.spec_decode.gate.enabled = make()\n",
    "sys.modules": f"import sys\nsys.modules['{PACKAGE}.gate'].enabled = make()\n",
    "sys.modules.get": f"import sys\nm = sys.modules.get('{PACKAGE}.gate')\nif m:\n    m.enabled = make()\n",
    "getattr": "from .. import spec_decode as s\ngetattr(s, 'gate').enabled = make()\n",
    "code": "from .gate import enabled\nenabled.__code__ = (lambda config: True).__code__\n",
    "defaults": "from .gate import enabled\nenabled.__defaults__ = (1,)\n",
    "globals": "from .gate import enabled as asked\nasked.__globals__['SWITCH'] = 1\n",
    "globals with update": "from .gate import enabled\nenabled.__globals__.update(SWITCH=1)\n",
    "an attribute of it": "from .gate import enabled\nenabled.on = True\n",
    "a wrapper's attribute": "from .gate import enabled\nenabled.__wrapped__ = make()\n",
    "its class": "from . import gate\ngate.__class__ = make()\n",
    "handed to another": "from . import gate\nfrom .other import put\nput(gate)\n",
    "a partial": "import functools\nfrom . import gate\nfunctools.partial(setattr, gate)('enabled', 1)\n",
    "the package's search path": "from .. import spec_decode\nspec_decode.__path__.insert(0, 'elsewhere')\n",
}  # fmt: skip
IN_THE_GATE = {
    "globals()": "\n\nglobals()['enabled'] = lambda config: True\n",
    "globals() in a function": "\n\ndef late():\n    globals()['enabled'] = lambda config: True\n",
    "vars()": "\n\nvars().update(enabled=bool)\n",
    "code": "\n\nenabled.__code__ = (lambda config: True).__code__\n",
    "setattr": "\n\nsetattr(enabled, '__code__', fast.__code__)\n",
    "by a parameter": "\n\ndef put(function):\n    function.__code__ = fast.__code__\n\n\nput(enabled)\n",
    "by a decorator of its own name": "\n\nimport sys\nsys.modules[__name__].enabled = bool\n",
    "by exec": "\n\nexec('enabled = bool')\n",
}  # fmt: skip


@pytest.mark.parametrize("text", SHADOWS.values(), ids=SHADOWS.keys())
def test_what_a_package_binds_to_the_next_name_is_named(text: str) -> None:
    extra = {"stars.py": "gate = 1\n", "answers.py": "__all__ = ['__getattr__']\ndef __getattr__(name): pass\n"}
    found = faults({"__init__.py": text, **extra})
    assert found and {path for path, _, _ in found} == {"__init__.py"}


def test_the_shadow_may_lie_at_any_depth() -> None:
    text = SHADOWS["another module"].replace(" other", " deeper")
    files = {"deep/__init__.py": text, "deep/deeper.py": OTHER, "deep/gate.py": GATE}
    assert [path for path, _, _ in faults(files, f"{PACKAGE}.deep.gate")] == ["deep/__init__.py"]
    assert faults({**files, "deep/__init__.py": "from . import gate\n"}, f"{PACKAGE}.deep.gate") == []
    assert faults({**files, "deep/__init__.py": "", "__init__.py": "deep = 1\n"}, f"{PACKAGE}.deep.gate")


def test_every_module_that_the_guard_passes_through_is_on_the_way() -> None:
    files = {
        "__init__.py": "from .gate import enabled\n",
        "gate.py": "from .deep.real import enabled\n",
        "deep/real.py": GATE,
    }
    assert faults(files, PACKAGE) == []
    for name, text in {
        "other.py": "from .deep import real\nreal.enabled = 1\n",
        "deep/__init__.py": "real = 1\n",
    }.items():
        assert faults({**files, name: text}, PACKAGE)


@pytest.mark.parametrize("text", STORES.values(), ids=STORES.keys())
def test_who_puts_something_into_the_guard_is_named(text: str) -> None:
    """In a module that nothing imports at first, as in one that the package loads."""
    found = faults({"heavy.py": text})
    assert found and {path for path, _, _ in found} == {"heavy.py"}


@pytest.mark.parametrize("text", IN_THE_GATE.values(), ids=IN_THE_GATE.keys())
def test_what_the_guards_own_module_does_to_it_is_named(text: str) -> None:
    found = faults({"gate.py": GATE + text})
    assert found and {path for path, _, _ in found} == {"gate.py"}


@pytest.mark.parametrize(
    "decorator",
    ["import functools\n\n\nclass functools:\n    cache = staticmethod(lambda f: bool)\n\n\n@functools.cache\n",
     "from . import functools\n\n\n@functools.cache\n", "from .other import cache\n\n\n@cache\n"],
)  # fmt: skip
def test_a_cache_is_the_standard_librarys(decorator: str) -> None:
    assert faults({"gate.py": decorator + GATE})
    assert faults({"gate.py": "from functools import cache as kept\n\n\n@kept\n" + GATE}) == []


HONEST: dict[str, dict[str, str]] = {
    "an empty package": {},
    "no package file": {},
    "the package imports it": {"__init__.py": "from . import gate\n"},
    "the package imports from it": {"__init__.py": "from .gate import enabled, fast\n\n__all__ = ['enabled', 'fast']\n"},
    "the package imports it by its full name": {"__init__.py": f"import {PACKAGE}.gate\nfrom {PACKAGE} import gate, other\n"},
    "for type checkers": {"__init__.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import gate\n"},
    "a star that binds something else": {"__init__.py": "from .other import *\n__version__ = '1'\n"},
    "walks over its modules": {"__init__.py": "import pkgutil\nNAMES = [m.name for m in pkgutil.iter_modules(__path__)]\nHERE = __path__[0]\n"},
    "lazy names beside an imported gate": {"__init__.py": "from . import gate\n\n\ndef __getattr__(name):\n    from . import other\n    return getattr(other, name)\n"},
    "lazy names off the way": {"deep/__init__.py": "def __getattr__(name):\n    raise AttributeError(name)\n"},
    "the same name elsewhere": {"other.py": "class A:\n    def __init__(self, enabled, gate):\n        self.enabled = enabled\n        self.gate = gate\n\n\ndef f(config):\n    config.enabled = True\n    gate = {}\n    gate['x'] = 1\n    return gate\n"},
    "a gate of another kind": {"moe.py": "import torch\n\n\nclass Router(torch.nn.Module):\n    def __init__(self):\n        self.gate = torch.nn.Linear(1, 1)\n        self.gate.weight = None\n        self.gate.enabled = True\n"},
    "asks it": {"entry.py": "from . import gate\nfrom .gate import enabled\n\n\ndef supports(config):\n    return gate.enabled(config) and enabled(config)\n"},
    "looks at it": {"entry.py": "import inspect\nfrom . import gate\n\nTEXT = inspect.getsource(gate)\nNAMES = dir(gate)\nASKED = getattr(gate, 'enabled', None)\nTABLE = vars(gate)['fast']\n"},
    "reads its own names": {"gate.py": GATE + "\n\ndef lookup(name):\n    return globals()[name] if name in globals() else globals().get('fast')\n"},
    "keeps a state of its own": {"gate.py": GATE + "\n\n_engine = None\n\n\ndef engine():\n    global _engine\n    if _engine is None:\n        _engine = object()\n    return _engine\n"},
    "asks whether a library is there": {"__init__.py": "import sys\nHAS = 'triton' in sys.modules\nTRITON = sys.modules.get('triton')\n"},
    "the arguments' dictionary": {"other.py": "def show(**gate):\n    return vars(gate) if gate else locals()\n"},
    "a test takes back what it sets": {"test_gate.py": "from . import gate\n\n\ndef test(monkeypatch):\n    monkeypatch.setattr(gate, 'enabled', lambda config: True)\n"},
    "a path beside the files": {"other.py": "from pathlib import Path\n\nHERE = Path(__file__).parent\nself_path = {'__paths__': 1}\n"},
    "a file that does not parse": {"other.py": "def (\n"},
}  # fmt: skip


@pytest.mark.parametrize("files", HONEST.values(), ids=HONEST.keys())
def test_honest_directories_pass(files: dict[str, str]) -> None:
    assert faults(files) == []
