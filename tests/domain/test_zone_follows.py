"""What belongs to others is followed on every way that leads to it in one file; what is one's own is left alone."""

from __future__ import annotations

import time

import pytest

from gatekeeper.domain.zone_code import explained, read_code

PATH, PACKAGE = "kernels/cand/k.py", "kernels.cand"
MUTATION, CODE, MODE = "ISO_FOREIGN_MUTATION", "SRC_DYNAMIC_CODE", "EFF_TORCH_MODE"


def seen(text: str) -> dict[str, str]:
    """Return code -> message of what a file does."""
    reading = read_code(text.encode(), PATH, PACKAGE)
    assert reading.unread is None
    return {each.code: explained(each)[0] for each in reading.seen}


# A stock module that is handed about before it is changed: name -> (trick, honest twin).
HANDED = {
    "attribute of self": ("import core.a\nclass C:\n    def __init__(self):\n        self.m = core.a\n    def go(self):\n        self.m.run = None\n",
                          "class C:\n    def __init__(self):\n        self.m = object()\n    def go(self):\n        self.m.run = None\n"),
    "used before it is set": ("import core.a\nclass C:\n    def go(self):\n        self.m.run = None\n    def __init__(self):\n        self.m = core.a\n",
                              "import core.a\nclass C:\n    def go(self):\n        self.m.run(1)\n    def __init__(self):\n        self.m = core.a\n"),
    "attribute by setattr": ("import core.a\nclass C:\n    def go(self):\n        setattr(self, 'm', core.a)\n        self.m.run = None\n",
                             "class C:\n    def go(self):\n        setattr(self, 'm', [])\n        self.m.append(1)\n"),
    "attribute of a class": ("import core.a\nclass C:\n    m = core.a\nC.m.run = None\n", "class C:\n    m = []\nC.m.append(1)\n"),
    "attribute by a parameter": ("import core.a\nclass C:\n    def __init__(self, m):\n        self.m = m\n    def go(self):\n        self.m.run = None\nC(core.a).go()\n",
                                 "class C:\n    def __init__(self, m):\n        self.m = m\n    def go(self):\n        self.m.run = None\nC(object()).go()\n"),
    "simple namespace": ("import core.a, types\nn = types.SimpleNamespace(m=core.a)\nn.m.run = None\n", "import types\nn = types.SimpleNamespace(m=[])\nn.m.append(1)\n"),
    "parameter": ("import core.a\ndef fix(m):\n    m.run = None\nfix(core.a)\n", "import core.a\ndef fix(m):\n    m.run = None\nfix(object())\ncore.a.run(1)\n"),
    "parameter by name": ("import core.a\ndef fix(*, m):\n    m.run = None\nfix(m=core.a)\n", "def fix(*, m):\n    m.run = None\nfix(m=object())\n"),
    "two functions on": ("import core.a\ndef one(m):\n    two(m)\ndef two(m):\n    m.run = None\none(core.a)\n", "def one(m):\n    two(m)\ndef two(m):\n    m.run = None\none(object())\n"),
    "rest of the parameters": ("import core.a\ndef fix(*ms):\n    for m in ms:\n        m.run = None\nfix(core.a)\n", "def fix(*ms):\n    for m in ms:\n        m.run = None\nfix(object())\n"),
    "method": ("import core.a\nclass C:\n    def fix(self, m):\n        m.run = None\n    def go(self):\n        self.fix(core.a)\n",
               "class C:\n    def fix(self, m):\n        m.run = None\n    def go(self):\n        self.fix(C())\n"),
    "default": ("import core.a\ndef fix(m=core.a):\n    m.run = None\n", "def fix(m=None):\n    m.run = None\n"),
    "lambda": ("import core.a\n(lambda m: setattr(m, 'run', None))(core.a)\n", "(lambda m: setattr(m, 'run', None))(object())\n"),
    "lambda with a name": ("import core.a\nfix = lambda m: setattr(m, 'run', None)\nfix(core.a)\n", "fix = lambda m: setattr(m, 'run', None)\nfix(object())\n"),
    "answer": ("import core.a\ndef get():\n    return core.a\nget().run = None\n", "def get():\n    return object()\nget().run = None\n"),
    "answer of a parameter": ("import core.a\ndef same(m):\n    return m\nsame(core.a).run = None\n", "def same(m):\n    return m\nsame(object()).run = None\n"),
    "property": ("import core.a\nclass C:\n    @property\n    def m(self):\n        return core.a\n    def go(self):\n        self.m.run = None\n",
                 "class C:\n    @property\n    def m(self):\n        return self.x\n    def go(self):\n        self.m.run = None\n"),
    "generator": ("import core.a\ndef each():\n    yield core.a\nfor m in each():\n    m.run = None\n", "def each():\n    yield object()\nfor m in each():\n    m.run = None\n"),
    "with as": ("import core.a, contextlib\nwith contextlib.nullcontext(core.a) as m:\n    m.run = None\n", "import contextlib\nwith contextlib.nullcontext(object()) as m:\n    m.run = None\n"),
    "own context": ("import core.a, contextlib\n@contextlib.contextmanager\ndef at():\n    yield core.a\nwith at() as m:\n    m.run = None\n",
                    "import contextlib\n@contextlib.contextmanager\ndef at():\n    yield {}\nwith at() as m:\n    m['run'] = None\n"),
    "match": ("import core.a\nmatch core.a:\n    case m:\n        m.run = None\n", "match object():\n    case m:\n        m.run = None\n"),
    "match of a pair": ("import core.a\nmatch (core.a, 1):\n    case (m, 1):\n        m.run = None\n", "match (object(), 1):\n    case (m, 1):\n        m.run = None\n"),
    "second of a loop": ("import core.a\nfor m in (object(), core.a):\n    m.run = None\n", "for m in (object(), object()):\n    m.run = None\n"),
    "loop of pairs": ("import core.a\nfor m, n in [(core.a, 'run')]:\n    setattr(m, n, None)\n", "for m, n in [(object(), 'run')]:\n    setattr(m, n, None)\n"),
    "loop over a table": ("import core.a\nfor n, m in {'run': core.a}.items():\n    setattr(m, n, None)\n", "import core.a\nfor n, m in {'run': core.a}.items():\n    getattr(m, n)\n"),
    "comprehension": ("import core.a\n[setattr(m, 'run', None) for m in (core.a,)]\n", "[setattr(m, 'run', None) for m in (object(),)]\n"),
    "list": ("import core.a\nms = [core.a]\nms[0].run = None\n", "import core.a\nms = [core.a]\nms[0] = None\n"),
    "table": ("import core.a\nms = {'a': core.a}\nms['a'].run = None\n", "import core.a\nms = {'a': core.a, 'b': {}}\nms['b']['run'] = None\n"),
    "table asked": ("import core.a\nms = {'a': core.a}\nms.get('a').run = None\n", "import core.a\nms = {'a': core.a}\nms.get('a').run(1)\n"),
    "two names at once": ("import core.a\nn = m = core.a\nm.run = None\n", "n = m = object()\nm.run = None\n"),
    "nested pairs": ("import core.a\n(n, (m, k)) = (1, (core.a, 2))\nm.run = None\n", "import core.a\n(n, (m, k)) = (core.a, (object(), 2))\nm.run = None\n"),
    "global": ("import core.a\ndef f():\n    global m\n    m = core.a\ndef g():\n    m.run = None\n", "def f():\n    global m\n    m = object()\ndef g():\n    m.run = None\n"),
    "decoy of one's own": ("import core.a\nfrom . import own as m\nm = core.a\nm.run = None\n", "from . import own as m\nm.run = None\n"),
    "globals()": ("import core\nglobals()['core'].run = None\n", "globals()['mine'] = None\n"),
    "next of an iterator": ("import core.a\nm = next(iter([core.a]))\nm.run = None\n", "m = next(iter([object()]))\nm.run = None\n"),
    "handed to something foreign": ("import core.a, functools\nm = functools.reduce(getattr, ['x'], core.a)\nm.run = None\n", "import core.a, functools\nm = functools.partial(print, 1)\nm.run = None\n"),
    "attrgetter": ("import core.a, operator\noperator.attrgetter('x')(core.a).run = None\n", "import core.a, operator\nprint(operator.attrgetter('x')(core.a))\n"),
    "methodcaller": ("import operator\nfrom core.a import TABLE\noperator.methodcaller('update', x=1)(TABLE)\n", "import operator\noperator.methodcaller('update', x=1)({})\n"),
    "method by hand": ("import core.a\ncore.a.__setattr__('run', None)\n", "class C:\n    def go(self):\n        self.__setattr__('run', None)\n"),
    "method of the module type": ("import core.a, types\ntypes.ModuleType.__setattr__(core.a, 'run', None)\n", "import core.a\nprint(core.a.__getattribute__('run'))\n"),
    "method handed on": ("import core.a, functools\nfunctools.partial(core.a.__setattr__, 'run')(None)\n", "import functools\nT = {}\nfunctools.partial(T.__setitem__, 'run')(None)\n"),
    "method of a table handed on": ("from core.a import TABLE\nlist(map(TABLE.update, [{}]))\n", "T = []\nlist(map(T.append, [1]))\n"),
    "base class kept": ("from core.a import Base\nclass C(Base):\n    pass\nB = C.__mro__[1]\nB.run = None\n", "from core.a import Base\nclass C(Base):\n    pass\nB = C\nB.run = None\n"),
    "base class by setattr": ("from core.a import Base\nclass C(Base):\n    pass\nsetattr(C.__bases__[0], 'run', None)\n", "from core.a import Base\nclass C(Base):\n    pass\nsetattr(C, 'run', None)\n"),
    "globals of what is handed in": ("def step(shape):\n    type(shape).label.__globals__['run'] = None\n", "def step(shape):\n    return type(shape).label.__globals__['run']\n"),
    "a set": ("from core.a import NAMES\nNAMES.add('x')\n", "NAMES = set()\nNAMES.add('x')\n"),
    "import by a package": ("import importlib\nimportlib.import_module('core.a').run = None\n", "import importlib\nimportlib.import_module('.a', 'kernels.cand').run(1)\n"),
}  # fmt: skip


@pytest.mark.parametrize(("trick", "twin"), HANDED.values(), ids=HANDED.keys())
def test_a_module_is_followed_wherever_it_is_handed(trick: str, twin: str) -> None:
    assert seen(trick) == {MUTATION: "something outside the directory is changed"}
    assert seen(twin) == {}


TABLE = "modules of others are taken out of the table of all modules"
# Ways to the table of all modules. Whether a module was loaded, and the own module, may be asked.
MODULES = {
    "get": ("import sys\nm = sys.modules.get('core.a')\nif m:\n    m.run = None\n", "import sys\nm = sys.modules.get(__name__)\nif m:\n    m.run = None\n"),
    "item": ("import sys\nm = sys.modules['core.a']\n", "import sys\nm = sys.modules[__name__]\n"),
    "handed on": ("import sys\ndef fix(m):\n    m.run = None\nfix(sys.modules.get('core.a'))\n", "import sys\nprint('core.a' in sys.modules)\n"),
    "searched": ("import sys\nclass S:\n    for m in [v for k, v in sys.modules.items() if k == 'core.a']:\n        m.run = None\n", "import sys\nassert 'core.a' not in sys.modules\n"),
    "values": ("import sys\nx = list(sys.modules.values())\n", "import sys\nx = sys.modules['kernels.cand.gate']\n"),
    "kept": ("import sys\ntable = sys.modules\n", "import sys\nx = sys.path\n"),
    "imported": ("from sys import modules as all_of_them\n", "from sys import version_info\n"),
    "another name of sys": ("import os\nm = os.sys.modules['core.a']\n", "import os\nm = os.sys.version\n"),
    "looked up": ("import sys\nm = getattr(sys, 'mod' + 'ules')['core.a']\n", "import sys\nm = getattr(sys, 'ver' + 'sion')\n"),
    "in its namespace": ("import sys\nm = vars(sys)['modules']['core.a']\n", "import sys\nm = vars(sys)['version']\n"),
    "in its table": ("import sys\nm = sys.__dict__['modules']['core.a']\n", "class A:\n    modules = {}\nm = A.modules['core.a']\n"),
    "of an object": ("import sys\nclass C:\n    def go(self):\n        return sys.modules[self.__module__]\n", "class C:\n    def go(self, net):\n        return list(net.modules())\n"),
    "copied": ("import sys\nx = {**sys.modules}\n", "import sys\nx = {**vars(sys.flags)} if False else {}\n"),
}  # fmt: skip


@pytest.mark.parametrize(("trick", "twin"), MODULES.values(), ids=MODULES.keys())
def test_the_table_of_all_modules_is_nobodys_to_read(trick: str, twin: str) -> None:
    assert seen(trick)[CODE] == TABLE
    assert seen(twin) == {}


SWITCH, HELD = "a setting of PyTorch is changed for the whole process", "a mode of PyTorch is entered and not left"
# Settings that hold for the whole process: name -> (code, message, trick, honest twin).
SWITCHES = {
    "native": (MUTATION, SWITCH, "import torch\ntorch._C._set_mkldnn_enabled(False)\n", "import torch\nx = torch._C._get_mkldnn_enabled()\n"),
    "native, in camel case": (MUTATION, SWITCH, "import torch\ntorch._C._mps_setMemoryFraction(0.5)\n", "import torch\ntorch._C._cuda_setStream(0, 0, 0)\n"),
    "native, of the compiler": (MUTATION, SWITCH, "import torch\ntorch._C._jit_override_can_fuse_on_cpu(True)\n", "import torch\nx = torch._C._jit_texpr_fuser_enabled()\n"),
    "native, imported": (MUTATION, SWITCH, "from torch._C import _set_mkldnn_enabled as put\nput(False)\n", "from torch._C import _get_mkldnn_enabled as get\nget()\n"),
    "native, in a namespace": (MUTATION, SWITCH, "import torch\nvars(torch._C)['_set_mkldnn_enabled'](False)\n", "import torch\nvars(torch._C)['_get_mkldnn_enabled']()\n"),
    "native, looked up": (MUTATION, SWITCH, "import torch\ngetattr(torch._C, '_set_mkldnn_enabled')(False)\n", "import torch\ngetattr(torch, 'bfloat16')\n"),
    "native, kept": (MUTATION, SWITCH, "import torch\nput = torch._C._set_mkldnn_enabled\n", "import torch\nget = torch._C._get_mkldnn_enabled\n"),
    "native, handed on": (MUTATION, SWITCH, "import torch\nx = list(map(torch._C._set_mkldnn_enabled, [False]))\n", "import torch\nx = list(map(torch.empty, [1]))\n"),
    "any of them": (CODE, "code that cannot be read here is run", "import torch\ndef f(name):\n    getattr(torch._C, name)(False)\n", "import torch\ndef f(name):\n    return getattr(torch, name)\n"),
    "flags": (MUTATION, SWITCH, "import torch\ntorch.backends.mkldnn.set_flags(False)\n", "import torch\ndef f(a):\n    with torch.backends.mkldnn.flags(enabled=False):\n        return a + a\n"),
    "flags by methodcaller": (MUTATION, "something outside the directory is changed", "import operator, torch\noperator.methodcaller('set_flags', False)(torch.backends.mkldnn)\n", "import operator, torch\noperator.methodcaller('is_available')(torch.backends.mkldnn)\n"),
    "backend of self": (MUTATION, "something outside the directory is changed", "import torch\nclass C:\n    def build(self):\n        self.b = torch.backends.cuda.matmul\n        self.b.allow_tf32 = True\n",
                        "import torch\nclass C:\n    def build(self):\n        self.b = torch.backends.cuda.matmul\n        return self.b.allow_tf32\n"),
    "tunable": (MUTATION, SWITCH, "import torch\ntorch.cuda.tunable.enable(True)\n", "import torch\ntorch.cuda.tunable.is_enabled()\n"),
    "autocast": (MUTATION, SWITCH, "import torch\ntorch.set_autocast_enabled(True)\n", "import torch\ndef f(a):\n    with torch.autocast('cuda'):\n        return a @ a\n"),
    "gradients": (MUTATION, SWITCH, "import torch\ntorch.set_grad_enabled(False)\n", "import torch\ndef f(a):\n    with torch.set_grad_enabled(False):\n        return a + a\n"),
    "gradients by decorator": (MUTATION, SWITCH, "import torch\ntorch.autograd.set_grad_enabled(False)\n", "import torch\n@torch.set_grad_enabled(False)\ndef f(a):\n    return a + a\n"),
    "a setting as a context": (MUTATION, SWITCH, "import torch\ntry:\n    with torch.set_default_dtype(torch.float64):\n        pass\nexcept TypeError:\n    pass\n", "import torch\nwith torch.device('cpu'):\n    x = 1\n"),
    "guard that is kept": (MODE, HELD, "import torch\nclass C:\n    def build(self):\n        self.g = torch._C._InferenceMode(True)\n", "import torch\ndef f(a):\n    with torch._C._DisableTorchDispatch():\n        return a + a\n"),
    "stack that is kept": (MODE, HELD, "import contextlib, torch\nclass C:\n    def build(self):\n        self.s = contextlib.ExitStack()\n        self.s.enter_context(torch.inference_mode())\n",
                           "import contextlib, torch\ndef f(a):\n    with contextlib.ExitStack() as s:\n        s.enter_context(torch.inference_mode())\n        return a + a\n"),
    "stack that is taken out": (MODE, HELD, "import contextlib, torch\nwith contextlib.ExitStack() as s:\n    k = s.pop_all()\n    s.enter_context(torch.inference_mode())\n", "import contextlib\nwith contextlib.ExitStack() as s:\n    s.enter_context(open('x'))\n    k = s.pop_all()\n"),
    "entered by hand, kept before": (MODE, HELD, "import torch\nc = torch.inference_mode()\nc.__enter__()\n", "import torch\nc = torch.inference_mode()\nwith c:\n    pass\n"),
    "entered by hand, of self": (MODE, HELD, "import torch\nclass C:\n    def build(self):\n        self.c = torch.no_grad()\n        self.c.__enter__()\n", "class C:\n    def __enter__(self):\n        self.lock.__enter__()\n        return self\n"),
    "entered by a look-up": (MODE, HELD, "import torch\ngetattr(torch.inference_mode(), '__enter__')()\n", "import torch\n@torch.inference_mode()\ndef f(a):\n    return a + a\n"),
    "entered by its class": (MODE, HELD, "import torch\nc = torch.inference_mode()\ntorch.inference_mode.__enter__(c)\n", "import torch\ndef f(a):\n    with torch.inference_mode(), torch.no_grad():\n        return a + a\n"),
}  # fmt: skip


@pytest.mark.parametrize(("code", "message", "trick", "twin"), SWITCHES.values(), ids=SWITCHES.keys())
def test_settings_of_the_whole_process_are_a_kind(code: str, message: str, trick: str, twin: str) -> None:
    assert seen(trick)[code] == message
    assert seen(twin) == {}


FRAMES = {
    "of a traceback": ("def f():\n    try:\n        raise KeyError\n    except KeyError as error:\n        return error.__traceback__.tb_frame.f_back.f_locals\n",
                       "def f():\n    try:\n        raise KeyError\n    except KeyError as error:\n        raise ValueError from error.with_traceback(error.__traceback__)\n"),
    "of a generator": ("def f():\n    yield g.gi_frame.f_back\ng = f()\n", "def f():\n    yield 1\ng = f()\nnext(g)\n"),
    "of a coroutine": ("def f(c):\n    return c.cr_frame\n", "def f(c):\n    return c.frame\n"),
    "by a look-up": ("def f(e):\n    return getattr(e.__traceback__, 'tb_' + 'frame')\n", "def f(e):\n    return getattr(e, 'args')\n"),
    "by attrgetter": ("import operator\nf = operator.attrgetter('tb_frame.f_back')\n", "import operator\nf = operator.attrgetter('shape.rows')\n"),
    "by its descriptor": ("def f(e):\n    return type(e.__traceback__).__dict__['tb_frame'].__get__(e.__traceback__)\n", "def f(e):\n    return type(e).__dict__['frame']\n"),
    "by a pattern": ("import types\ndef f(e):\n    match e:\n        case types.TracebackType(tb_frame=frame):\n            return frame\n", "def f(e):\n    match e:\n        case ValueError(args=a):\n            return a\n"),
}  # fmt: skip


@pytest.mark.parametrize(("trick", "twin"), FRAMES.values(), ids=FRAMES.keys())
def test_frames_of_other_callers_are_named(trick: str, twin: str) -> None:
    assert seen(trick) == {CODE: "what other callers hold is read from their frames"}
    assert seen(twin) == {}


def test_names_that_stand_for_each_other_and_long_chains_end() -> None:
    assert (
        seen("a = b\nb = a\na.x = 1\ndef f(n):\n    return f(f(n))\nf(a).x = 1\nself.m = self.m.m\nself.m.x = 1\n")
        == {}
    )
    chain = "import core.a\nm0 = core.a\n" + "".join(f"m{n + 1} = m{n}\n" for n in range(5000)) + "m5000.run = None\n"
    assert read_code(chain.encode(), PATH, PACKAGE).unread == "nested too deeply, or a zero byte"


def test_following_takes_time_that_grows_with_the_file() -> None:
    text = "import core.a\n" + "".join(
        f"def f{n}(a, b):\n    c = g(a, b)\n    f{n}(c, b)\n    c[0] = f0(a, c)\n" for n in range(1500)
    )
    started = time.process_time()
    seen(text)
    assert time.process_time() - started < 5
