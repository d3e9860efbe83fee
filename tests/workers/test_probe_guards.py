"""The guard as the probe asks it: by the hook files' own imports, with its switch unset, otherwise and as the manifest says."""

from __future__ import annotations

import itertools
import sys
import textwrap

import pytest

from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.guard_asking import GuardAsking, askings, plain_asking
from gatekeeper.domain.guard_names import Guard
from gatekeeper.domain.race import ProbeRequest, TreeSource
from workers.probe import probe
from workers.probe_asking import OFF, Guarding
from workers.probe_switch import switch
from workers.sources import tree_id

FAST = "additional_config.decode_backend=fast"
NUMBERS = itertools.count()
YES = "yes, where"
RAISED = "an answer, while nothing is switched on"
EFFECT = "a question without effects"


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Return a function that asks a guard of this text, in this process, and returns what was expected in vain."""
    monkeypatch.syspath_prepend(tmp_path)
    module = f"guard_under_test_{next(NUMBERS)}"

    def ask(text, setting=FAST):
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(text))
        way = plain_asking(f"{module}:enabled").model_dump()
        order = {"guard": f"{module}:enabled", "askings": [way], "switch": setting, "package": "stock.fast",
                 "judged": {"file": f"{module}.py", "module": module, "name": "enabled"}, "root": str(tmp_path)}  # fmt: skip
        guarding = Guarding(order)
        found = guarding.first()
        assert found == guarding.again()
        for code, _, expected, got in found:
            assert got and code == ("SCOPE_GUARD_SILENT" if expected.startswith("yes, where") else "SCOPE_GUARD")
        return [expected for _, _, expected, _ in found]

    yield ask
    sys.modules.pop(module, None)


HONEST = {
    "get": "def enabled(config):\n    return config.additional_config.get('decode_backend') == 'fast'\n",
    "getattr first": "def enabled(config):\n    extra = getattr(config, 'additional_config', None) or {}\n    return extra.get('decode_backend') == 'fast'\n",
    "the table itself": "def enabled(extra):\n    return extra.get('decode_backend', 'stock') == 'fast'\n",
    "the value itself": "def enabled(backend):\n    return backend == 'fast'\n",
    "the value, in lower case": "def enabled(config):\n    return str(config.additional_config.get('decode_backend', '')).lower() == 'fast'\n",
    "a text's method": "def enabled(config):\n    return config.additional_config.get('decode_backend', '').startswith('fast')\n",
    "in it and right": "def enabled(config):\n    extra = config.additional_config\n    return 'decode_backend' in extra and extra['decode_backend'] == 'fast'\n",
    "an error caught": "def enabled(config):\n    try:\n        return config.additional_config['decode_backend'] == 'fast'\n    except (AttributeError, KeyError, TypeError):\n        return False\n",
    "a dictionary, or not": "def enabled(config):\n    extra = config.additional_config\n    return isinstance(extra, dict) and extra.get('decode_backend') == 'fast'\n",
    "a copy": "def enabled(config):\n    return {**config.additional_config}.get('decode_backend') == 'fast'\n",
    "below another": "def enabled(vllm_config):\n    return vllm_config.model_config.additional_config.get('decode_backend') == 'fast'\n",
    "and a size": "def enabled(config):\n    return config.additional_config.get('decode_backend') == 'fast' and config.parallel_config.tensor_parallel_size == 8\n",
    "and a size beside": "def enabled(config, width):\n    return config.additional_config.get('decode_backend') == 'fast' and width > 4\n",
    "and no other feature": "def enabled(config):\n    if config.lora_config is not None or config.parallel_config.rank > 1:\n        return False\n    return config.additional_config.get('decode_backend') == 'fast'\n",
    "none is no configuration": "def enabled(config=None):\n    return config is not None and config.additional_config.get('decode_backend') == 'fast'\n",
    "by keyword": "def enabled(*, config):\n    return config.additional_config.get('decode_backend') == 'fast'\n",
    "its dictionary": "def enabled(config):\n    return vars(config).get('additional_config', {}).get('decode_backend') == 'fast'\n",
    "another module's helper": "import functools\n\n@functools.cache\ndef words():\n    return {'fast'}\n\ndef enabled(config):\n    return config.additional_config.get('decode_backend') in words()\n",
}  # fmt: skip
SETTINGS = {
    "attribute": ("decode_backend=fast", "def enabled(config):\n    return config.decode_backend == 'fast'\n"),
    "attribute that may be missing": ("decode_backend=fast", "def enabled(config):\n    return getattr(config, 'decode_backend', None) == 'fast'\n"),
    "anywhere": ("backend=fast", "def enabled(config):\n    return config.extra.get('backend') == 'fast'\n"),
    "on or off": ("additional_config.fast=true", "def enabled(config):\n    return bool(config.additional_config.get('fast', False))\n"),
    "a flag": ("use_fast=1", "def enabled(flag):\n    return bool(flag)\n"),
    "a flag of an object": ("--use-fast=True", "def enabled(config):\n    return config.use_fast\n"),
    "environment": ("K3_FAST=1", "import os\n\ndef enabled(config=None):\n    return os.environ.get('K3_FAST', '0') == '1'\n"),
    "environment, as a number": ("K3_FAST=1", "import os\n\ndef enabled():\n    return bool(int(os.getenv('K3_FAST', '0')))\n"),
    "environment, asked once": ("K3_FAST=1", "import functools, os\n\n@functools.cache\ndef enabled():\n    return os.getenv('K3_FAST') == '1'\n"),
    "environment, a word": ("K3_BACKEND=fast", "import os\n\ndef enabled(config):\n    return os.environ.get('K3_BACKEND', '').lower() == 'fast'\n"),
    "a number": ("additional_config.level=3", "def enabled(config):\n    return int(config.additional_config.get('level', 0)) == 3\n"),
}  # fmt: skip
_UNLESS_NONE = "def enabled(config):\n    if config is None:\n        return False\n"
TRICKS = {
    "on unless told off": (_UNLESS_NONE + "    return config.additional_config.get('decode_backend') != 'off'\n", OFF),
    "on unless told off, by a list": ("def enabled(config):\n    return config.additional_config.get('decode_backend') not in (None, 'off', 'auto', 'other', '', 0, 1)\n", OFF),
    "on when anything is set": ("def enabled(config):\n    return bool(config.additional_config)  # decode_backend\n", OFF),
    "on when any backend is": ("def enabled(config):\n    return 'decode_backend' in config.additional_config\n", OFF),
    "on by default": ("def enabled(config):\n    return config.additional_config.get('decode_backend', 'fast') == 'fast'\n", OFF),
    "on below another object": ("def enabled(config):\n    return config.model_config.additional_config.get('decode_backend') != 'off'\n", OFF),
    "on for real configurations": ("def enabled(config):\n    return type(config).__module__.startswith('stock.')\n", OFF),
    "on for objects": ("def enabled(config):\n    return config == 'fast' or not isinstance(config, (str, int, type(None)))\n", OFF),
    "on for dictionaries": ("def enabled(config):\n    return isinstance(config, dict) or config.additional_config.get('decode_backend') == 'fast'\n", OFF),
    "on by the environment": ("import os\n\ndef enabled(config):\n    return config is not None and os.environ.get('decode_backend', 'fast') == 'fast'\n", OFF),
    "on at the second question": ("calls = []\n\ndef enabled(config):\n    calls.append(1)\n    return len(calls) > 1 or config.additional_config.get('decode_backend') == 'fast'\n", OFF),
    "always on": ("def enabled(config):\n    return len(str(config)) >= 0\n", OFF),
    "a coroutine": ("async def enabled(config):\n    return False\n", OFF),
    "never on": ("def enabled(config):\n    return False\n", YES),
    "on for another word": ("def enabled(config):\n    return config.additional_config.get('decode_backend') == 'slow'\n", YES),
    "on where nobody looks": ("def enabled(config):\n    return type(config).__module__.startswith('vllm.')\n", YES),
    "asks for what is not there": ("def enabled(config):\n    import nowhere\n    return config.additional_config.get('decode_backend') == 'fast'\n", YES),
    "raises unless on": (_UNLESS_NONE + "    if config.additional_config['decode_backend'] != 'fast':\n        raise RuntimeError('opt in')\n    return True\n", RAISED),
    "raises if missing": ("def enabled(config):\n    return config.additional_config['decode_backend'] == 'fast'\n", RAISED),
    "raises for another word": ("def enabled(config):\n    return {'fast': True, 'stock': False}[config.additional_config.get('decode_backend', 'stock')]\n", RAISED),
    "switches itself on": ("def enabled(config):\n    extra = getattr(config, 'additional_config', None)\n    if extra and 'decode_backend' not in extra:\n        extra.update(decode_backend='fast')\n    return bool(extra) and extra.get('decode_backend') == 'fast'\n", EFFECT),
    "sets an item": ("def enabled(config):\n    config.additional_config['seen'] = 1\n    return config.additional_config.get('decode_backend') == 'fast'\n", EFFECT),
    "sets a default": ("def enabled(config):\n    return config.additional_config.setdefault('decode_backend', 'stock') == 'fast'\n", EFFECT),
    "takes it away": ("def enabled(config):\n    return config.additional_config.pop('decode_backend', None) == 'fast'\n", EFFECT),
    "by the type's method": ("def enabled(config):\n    dict.update(config.additional_config, x=1)\n    return config.additional_config.get('decode_backend') == 'fast'\n", EFFECT),
    "sets an attribute": ("def enabled(config):\n    config.size = 4\n    return config.additional_config.get('decode_backend') == 'fast'\n", EFFECT),
    "sets by object": ("def enabled(config):\n    object.__setattr__(config, 'size', 4)\n    return config.additional_config.get('decode_backend') == 'fast'\n", EFFECT),
    "cached, by what cannot be a key": ("import functools\n\n@functools.cache\ndef enabled(config):\n    return config.get('decode_backend') == 'fast'\n", "an answer, whatever kind of object the configuration is"),
    "ends the process": ("import os\n\ndef enabled(config):\n    os._exit(0)\n", "an answer"),
    "another code": ("def enabled(config):\n    return config.additional_config.get('decode_backend') == 'fast'\n\nenabled.__code__ = (lambda config: True).__code__\n", "the function that was judged, by a hook file's own imports"),
    "a copy of it with other globals": ("import types\n\ndef enabled(config):\n    return config.additional_config.get('decode_backend') == WORD\n\nWORD = 'fast'\nenabled = types.FunctionType(enabled.__code__, {'WORD': None})\n", "the function that was judged, by a hook file's own imports"),
}  # fmt: skip


@pytest.mark.parametrize("text", HONEST.values(), ids=HONEST.keys())
def test_honest_guards_have_no_fault(asked, text):
    assert asked(text) == []


@pytest.mark.parametrize(("setting", "text"), SETTINGS.values(), ids=SETTINGS.keys())
def test_settings_of_every_kind_can_be_asked_for(asked, setting, text):
    assert asked(text, setting) == []


@pytest.mark.parametrize(("text", "expected"), TRICKS.values(), ids=TRICKS.keys())
def test_what_a_guard_does_wrong_is_named(asked, text, expected):
    found = asked(text)
    assert any(each.startswith(expected) for each in found), found


def test_a_switch_that_nobody_can_set_is_a_fault(asked):
    assert asked(HONEST["get"], "some option")[0].startswith("a switch of the form setting=value")


def test_a_switch_is_a_path_and_its_values():
    assert switch("--a-b.c = 'x'") == (("a_b", "c"), ("x",))
    assert switch("n=3").exact == ("3", 3)
    assert True in switch("on=true").exact and "fast" not in switch("x=fast").others()
    assert switch("nothing") is None


class Files:
    """One question of a source tree."""

    def __init__(self, files):
        self.files = files

    def read(self, path):
        return self.files[path].encode()


GUARD = Guard("stock.k3.fast", "stock.k3.fast.gate", "enabled")


@pytest.mark.parametrize(
    ("text", "statements", "call"),
    [
        ("from stock.k3.fast import gate\ngate.enabled(1)\n", ("from stock.k3.fast import gate as gate",), "gate.enabled"),
        ("from .fast import gate as g\ng.enabled(1)\n", ("from stock.k3.fast import gate as g",), "g.enabled"),
        ("def f():\n    from .fast.gate import enabled as on\n    return on(1)\n", ("from stock.k3.fast.gate import enabled as on",), "on"),
        ("import os\nimport stock.k3.fast.gate\nx = stock.k3.fast.gate.enabled()\n", ("import stock.k3.fast.gate",), "stock.k3.fast.gate.enabled"),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .fast import k\nfrom . import fast\nfast.gate.enabled(1)\n", ("from stock.k3 import fast as fast",), "fast.gate.enabled"),
    ],
)  # fmt: skip
def test_how_a_hook_file_asks_is_read_off_it(text, statements, call):
    (found,) = askings(Files({"stock/k3/model.py": text}), ["stock/k3/model.py", "absent.py"], GUARD)
    assert (found.statements, found.call) == (statements, call)


SHAPE = Configuration(rows=1, context=64, page_size=4)
DIRECTORY = "stock/k3/fast"
GATE = "def enabled(config):\n    return config.additional_config.get('decode_backend') == 'fast'\n\n\nclass C:\n    def supports(self, facts, shape):\n        return None\n\n\ncandidate = C()\n"
PATCH = "gate.enabled = lambda config: config is not None\n"


@pytest.mark.parametrize(
    ("files", "statements", "found"),
    [
        ({}, ("from stock.k3.fast import gate",), None),
        ({"__init__.py": "from . import other as gate\n"}, ("import stock.k3.fast.gate", "from stock.k3.fast import gate"), "another function"),
        ({"__init__.py": "class gate:\n    enabled = bool\n"}, (), "an object of builtins.type"),
        ({"heavy.py": f"from . import gate\n{PATCH}"}, (), "another function"),
        ({"gate.py": GATE.replace("return None", "globals()['enabled'] = bool")}, (), "an object of builtins.type"),
        ({}, ("from stock.k3.fast import gone as gate",), "ImportError"),
    ],
    ids=["honest", "another module", "a class", "patched when all is loaded", "patched by supports()", "an import that fails"],
)  # fmt: skip
def test_the_guard_is_fetched_as_hook_files_do(tmp_path, files, statements, found):
    folder = tmp_path / DIRECTORY
    folder.mkdir(parents=True)
    files = {"__init__.py": "", "gate.py": GATE, "other.py": "def enabled(config):\n    return True\n",
             "fast_track.toml": f'switch = "{FAST}"\n', **files}  # fmt: skip
    for name, text in files.items():
        (folder / name).write_text(text)
    source = TreeSource(
        repository_id=1, tree=tree_id(folder), directory=DIRECTORY, entry_point="stock.k3.fast.gate:candidate"
    )
    asking = (GuardAsking(statements=statements, call="gate.enabled"),) if statements else ()
    modules = ("stock.k3.fast.heavy",) if "heavy.py" in files else ()
    result = probe(
        ProbeRequest(source=source, guard="stock.k3.fast.gate:enabled", askings=asking, platform_modules=modules,
                     advertised=(SHAPE,)), tmp_path,
    )  # fmt: skip
    told = [(fault.code, fault.found) for fault in result.faults]
    assert (told == []) if found is None else any(code == "SCOPE_GUARD" and found in text for code, text in told), told
