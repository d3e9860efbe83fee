"""Python of a specialised directory that reaches outside: each spelling is named, and its honest twin is not."""

from __future__ import annotations

import time

import pytest

from gatekeeper.domain.import_graph import imports_of
from gatekeeper.domain.zone_code import read_code

PATH, PACKAGE = "core/models/fast/k.py", "core.models.fast"


def codes(text: str) -> set[str]:
    reading = read_code(text.encode(), PATH, PACKAGE)
    return {each.code for each in (*reading.seen, *reading.names)}


MUTATION, CODE, LOAD = "ISO_FOREIGN_MUTATION", "SRC_DYNAMIC_CODE", "SRC_UNSAFE_LOAD"
OPAQUE, HIDDEN = "SRC_OPAQUE_DATA", "SRC_HIDDEN_TEXT"
# name: (code, trick, twin)
PAIRS = {
    "attribute of a module": (MUTATION, "import core.ops\ncore.ops.fn = mine\n", "from . import ops\nops.fn = mine\n"),
    "item of a table": (MUTATION, "from core.dispatch import TABLE\nTABLE['attn'] = f\n", "TABLE = {}\nTABLE['attn'] = f\n"),
    "item through the module": (MUTATION, "import core.dispatch as d\nd.TABLE['attn'] = f\n", "from core.models.fast import d\nd.TABLE['attn'] = f\n"),
    "in a function": (MUTATION, "def f():\n    from core import ops\n    ops.fn = 1\n", "def f(ops):\n    ops.fn = 1\n"),
    "in a method": (MUTATION, "import core\nclass A:\n    def f(self):\n        core.x = 1\n", "import core\nclass A:\n    def f(self, core):\n        core.x = 1\n"),
    "in a lambda": (MUTATION, "import core.ops as o\nf = lambda: setattr(o, 'x', 1)\n", "f = lambda o: setattr(o, 'x', 1)\n"),
    "in a comprehension": (MUTATION, "import core.ops as o\n[setattr(o, n, 1) for n in 'ab']\n", "import core.ops as o\n[getattr(o, n) for n in 'ab']\n"),
    "setattr": (MUTATION, "import torch\nsetattr(torch, 'all' + 'close', 1)\n", "class A:\n    def f(self):\n        setattr(self, 'close', 1)\n"),
    "object.__setattr__": (MUTATION, "import core\ncore.config.__setattr__('x', 1)\n", "class A:\n    def f(self):\n        self.__setattr__('x', 1)\n"),
    "vars": (MUTATION, "import core\nvars(core)['x'] = 1\n", "import core\nprint(vars(core)['x'])\n"),
    "__dict__": (MUTATION, "import core\ncore.__dict__.update(x=1)\n", "import core\ncore.__dict__.copy()\n"),
    "getattr": (MUTATION, "import core\ngetattr(core, 'o' + 'ps').fn = 1\n", "import core\ngetattr(core, 'ops').fn(1)\n"),
    "alias": (MUTATION, "import torch\nF = torch.nn.functional\nF.linear = 1\n", "import torch\nF = torch.empty(1)\nF.x = 1\n"),
    "sys.modules": (MUTATION, "import sys\nsys.modules['core'].x = 1\n", "import sys\nsys.modules[__name__].x = 1\n"),
    "planted module": (MUTATION, "import sys\nsys.modules['yaml'] = 1\n", "import sys\nprint('yaml' in sys.modules)\n"),
    "import_module": (MUTATION, "import importlib\nimportlib.import_module('core.ops').fn = 1\n", "import importlib\nimportlib.import_module('core.ops').fn(1)\n"),
    "class swap": (MUTATION, "from core import model\nmodel.__class__ = M\n", "class A:\n    def f(self):\n        self.__class__ = M\n"),
    "code swap": (MUTATION, "from core import f\nf.__code__ = g.__code__\n", "from .own import f\nf.__doc__ = 'x'\n"),
    "deletion": (MUTATION, "import core\ndel core.x\n", "core = [1]\ndel core[0]\n"),
    "augmented": (MUTATION, "import core\ncore.LIMIT += 1\n", "LIMIT = 0\nLIMIT += 1\n"),
    "builtins": (MUTATION, "import builtins\nbuiltins.print = 1\n", "import builtins\nbuiltins.print(1)\n"),
    "__builtins__": (MUTATION, "__builtins__['print'] = 1\n", "print(__builtins__)\n"),
    "environment": (MUTATION, "import os\nos.environ['X'] = '1'\n", "import os\nos.environ.get('X')\n"),
    "environment by default": (MUTATION, "import os\nos.environ.setdefault('X', '1')\n", "import os\nos.environ.get('X', '1')\n"),
    "path": (MUTATION, "import sys\nsys.path.insert(0, 'x')\n", "path = []\npath.insert(0, 'x')\n"),
    "meta path": (MUTATION, "from sys import meta_path\nmeta_path.append(F)\n", "import numpy\nnumpy.append(a, b)\n"),
    "namespace clear": (MUTATION, "from core.tables import T\nT.clear()\n", "import tilelang.language as T\nT.clear(x)\n"),
    "default dtype": (MUTATION, "import torch\ntorch.set_default_dtype(torch.float64)\n", "import torch\ntorch.get_default_dtype()\n"),
    "stock operator": (MUTATION, "import torch\ntorch.library.Library('aten', 'IMPL')\n", "import torch\ntorch.library.Library('fast', 'DEF')\n"),
    "stock operator by decorator": (MUTATION, "import torch\n@torch.library.impl('aten::mul', 'CPU')\ndef f(a): pass\n", "import torch\n@torch.library.custom_op('fast::mul', mutates_args=())\ndef f(a): pass\n"),
    "flag": (MUTATION, "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True\n", "import torch\nprint(torch.backends.cuda.matmul.allow_tf32)\n"),
    "handler": (MUTATION, "import atexit\natexit.register(f)\n", "class A:\n    def f(self):\n        self.register(f)\n"),
    "exec": (CODE, "import base64\nexec(base64.b64decode(X))\n", "def exec(x): pass\nexec(1)\n"),
    "eval in a default": (CODE, "def f(x=eval('1')): pass\n", "def f(x=1): pass\n"),
    "eval in a decorator": (CODE, "@eval('print')\ndef f(x): pass\n", "import triton\n@triton.jit\ndef f(x): pass\n"),
    "builtins.exec": (CODE, "import builtins\nbuiltins.exec('1')\n", "import builtins\nbuiltins.len('1')\n"),
    "importlib from data": (CODE, "import importlib\nimportlib.import_module(NAME)\n", "import importlib\nimportlib.import_module(f'.kernel_{NAME}', __package__)\n"),
    "importlib upwards": (CODE, "import importlib\nimportlib.import_module(f'..{NAME}', __package__)\n", "import importlib\nimportlib.import_module(f'{__package__}.{NAME}')\n"),
    "ctypes": (CODE, "import ctypes\nctypes.CDLL('x.so')\n", "import ctypes\nctypes.sizeof(ctypes.c_float(1.0))\n"),
    "subprocess": (CODE, "from subprocess import run\nrun(['pip', 'install', 'x'])\n", "from .own import run\nrun(['x'])\n"),
    "os.system": (CODE, "import os as o\no.system('x')\n", "import os as o\no.getpid()\n"),
    "inline extension": (CODE, "from torch.utils.cpp_extension import load_inline\nload_inline('x', '')\n", "import torch\ntorch.compile(f)\n"),
    "heap": (CODE, "import gc\ngc.get_objects()\n", "import gc\ngc.collect()\n"),
    "frames": (CODE, "import sys\nsys._getframe(1)\n", "import sys\nsys.getsizeof(1)\n"),
    "audit hook": (CODE, "import sys\nsys.addaudithook(f)\n", "import sys\nsys.audit('x')\n"),
    "pickle": (LOAD, "import pickle\npickle.load(f)\n", "import json\njson.load(f)\n"),
    "torch.load": (LOAD, "import torch\ntorch.load('x', weights_only=True)\n", "import torch\ntorch.ops.load(1)\n"),
    "torch.load by another name": (LOAD, "from torch import load as read\nread('x')\n", "from json import load as read\nread('x')\n"),
    "encoded data": (OPAQUE, f"X = {'QUJD' * 300!r}\n", f"X = {'lorem ipsum ' * 300!r}\n"),
    "encoded bytes": (OPAQUE, f"X = {bytes(range(256)) * 9!r}\n", "X = b'abc'\n"),
    "hexadecimal": (OPAQUE, f"X = {'7f 45 4c 46 ' * 300!r}\n", "X = '7f 45 4c 46'\n"),
    "foreign letters": (HIDDEN, "sc\u0430le = 1\n", "scale = '\u0430'\n"),
    "foreign letters of an argument": (HIDDEN, "def f(sc\u0430le): pass\n", "def f(scale): pass  # sc\u0430le\n"),
    "wide letters": (HIDDEN, "\uff45nabled = 1\n", "enabled = '\uff45'\n"),
    "foreign letters of a target": (HIDDEN, "x.sc\u0430le = 1\n", "x.scale = 1\n"),
    "foreign letters of an attribute": (HIDDEN, "x.sc\u0430le()\n", "x.scale()\n"),
}  # fmt: skip


@pytest.mark.parametrize(("code", "trick", "twin"), PAIRS.values(), ids=PAIRS.keys())
def test_each_spelling_is_named_and_its_twin_is_not(code: str, trick: str, twin: str) -> None:
    assert code in codes(trick)
    assert codes(twin) == set()


def test_an_import_by_a_call_is_an_import() -> None:
    reading = read_code(b"import importlib\nimportlib.import_module('core.other._private')\n", PATH, PACKAGE)
    assert reading.imports == [("importlib", 1), ("core.other._private", 2)]


def test_the_imports_of_every_scope_are_seen() -> None:
    text = b"import a.b\ndef f():\n    from . import c\n    class D:\n        if x:\n            import e as g\n"
    found = read_code(text, PATH, PACKAGE).imports
    assert sorted(found) == sorted(imports_of(text, PATH))
    assert [line for _, line in found] == [1, 3, 6]


def test_long_texts_are_read_in_linear_time() -> None:
    text = f"X = {('ab' * 999 + '!') * 500!r}\n"
    started = time.process_time()
    assert codes(text) == {OPAQUE}
    assert time.process_time() - started < 2


def test_what_does_not_parse_shows_nothing() -> None:
    assert codes("def f(:\n") == set()
    assert codes("x = " + "(" * 300 + ")" * 300) == set()
