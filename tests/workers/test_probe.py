"""Probes of small trees: each effect is named, and the honest twin of all of them passes."""

from __future__ import annotations

import sys

import pytest

from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.race import ProbeRequest, TreeSource
from workers.probe import Timeouts, probe
from workers.probe_guard import faults
from workers.sources import tree_id

DIRECTORY = "stock/models/k3/nvidia/fast"
PACKAGE = DIRECTORY.replace("/", ".")
HONEST = """
import torch
import torch.nn.functional
from . import limits

class Candidate:
    def supports(self, facts, shape):
        return None if shape.rows <= limits.ROWS else f"rows above {limits.ROWS}: {shape.rows}"

candidate = Candidate()

def enabled():
    return False
"""
SERVED = Configuration(rows=8, context=64, page_size=4)
REFUSED = Configuration(rows=9, context=64, page_size=4)


def make(place):
    """Return a function that writes a directory below ``place`` and probes it, once. ``entry`` names the entry point's module."""

    def run(gate=HONEST, *, extra=None, platform=(), timeouts=None, before="", entry="gate"):
        folder = place / DIRECTORY
        folder.mkdir(parents=True)
        (folder.parent / "__init__.py").write_text("raise RuntimeError('a framework package ran')")
        files = {"__init__.py": "", "limits.py": "ROWS = 8\n", "gate.py": before + gate, **(extra or {})}
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        source = TreeSource(
            repository_id=1, tree=tree_id(folder), directory=DIRECTORY, entry_point=f"{PACKAGE}.{entry}:candidate"
        )
        request = ProbeRequest(
            source=source, guard=f"{PACKAGE}.gate:enabled", advertised=(SERVED,), refused=(REFUSED,),
            platform_modules=tuple(f"{PACKAGE}.{name}" for name in platform),
        )  # fmt: skip
        return probe(request, place, timeouts=timeouts)

    return run


@pytest.fixture
def probed(tmp_path):
    return make(tmp_path)


def codes(result):
    return {fault.code for fault in result.faults}


def test_honest_directory_has_no_fault(probed):
    result = probed(platform=("gate",))
    assert result.faults == ()
    assert result.entry_point_found and result.supported == (True,) and result.refused == ("rows above 8: 9",)


# One process shows them all: where -> (code, what the directory does as it is imported).
EFFECTS = {
    # The battery's rows 37 to 45 and 54.
    "torch.nn.functional.linear": ("EFF_FOREIGN_MUTATION", "import torch.nn.functional as F\nF.linear = lambda *a: None"),
    "torch.allclose": ("EFF_FOREIGN_MUTATION", "import torch\nsetattr(torch, 'all' + 'close', lambda *a, **k: True)"),
    "json.decoder.JSONDecoder.decode": ("EFF_FOREIGN_MUTATION", "import gc, json\n[c for c in gc.get_objects() if type(c) is type and c.__name__ == 'JSONDecoder'][0].decode = None"),
    "aten::mul.Tensor": ("EFF_OP_OVERRIDE", "lib = torch.library.Library('aten', 'IMPL')\nlib.impl('mul.Tensor', lambda a, b: a, 'CPU')"),
    "default dtype": ("EFF_TORCH_GLOBAL", "torch.set_default_dtype(torch.float64)"),
    "float32 matmul precision": ("EFF_TORCH_GLOBAL", "torch.set_float32_matmul_precision('medium')"),
    "os.environ['X']": ("EFF_ENVIRONMENT", "import os\nos.environ['X'] = '1'"),
    "signal handler 10": ("EFF_BACKGROUND_WORK", "import signal\nsignal.signal(signal.SIGUSR1, lambda *a: None)"),
    "threads": ("EFF_BACKGROUND_WORK", "import threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()"),
    "atexit callbacks": ("EFF_BACKGROUND_WORK", "import atexit\natexit.register(print)"),
    "finalizers": ("EFF_BACKGROUND_WORK", "import weakref\nclass W: pass\nw = W()\nweakref.finalize(w, print)"),
    "interval timer ITIMER_PROF": ("EFF_BACKGROUND_WORK", "signal.setitimer(signal.ITIMER_PROF, 9000)"),
    "json.load": ("EFF_FOREIGN_MUTATION", "import json\nvars(json)['lo' + 'ad'] = None"),
    "json.decoder.WHITESPACE": ("EFF_FOREIGN_MUTATION", "json.decoder.JSONDecoder.__init__.__globals__['WHITESPACE'] = None"),
    "json.encoder.INFINITY": ("EFF_FOREIGN_MUTATION", "def put(space): space['INFINITY'] = 0\nimport json.encoder\nput(vars(json.encoder))"),
    "CUDA context": ("EFF_IMPORT_SIDE_EFFECT", "torch.cuda._initialized = True\ntorch.cuda._is_in_bad_fork = lambda: False"),
    "sys.meta_path": ("EFF_IMPORT_HOOK", "import sys\nclass Finder:\n    @staticmethod\n    def find_spec(*a): return None\nsys.meta_path.append(Finder)"),
    "sys.modules['csv']": ("EFF_IMPORT_HOOK", "import csv, types\nsys.modules['csv'] = types.ModuleType('csv')"),
    "builtins.print": ("EFF_BUILTINS", "import builtins\nbuiltins.print = None"),
    "left": ("EFF_FILES", "open(os.environ['HOME'] + '/left', 'w').close()"),
    # Beyond: the same, by means that leave every name bound to the object that it was bound to.
    "torch.nn.functional.softmax.__code__": ("EFF_FOREIGN_MUTATION", "def fake(*a, **k): return None\nF.softmax.__code__ = fake.__code__"),
    "json.dumps.__kwdefaults__": ("EFF_FOREIGN_MUTATION", "json.dumps.__kwdefaults__ = dict(json.dumps.__kwdefaults__, indent=4)"),
    "collections.__class__": ("EFF_FOREIGN_MUTATION", "import collections\nclass M(types.ModuleType): pass\ncollections.__class__ = M"),
    "torch.nn.modules.linear.Identity.__bases__": ("EFF_FOREIGN_MUTATION", "class Mixed(torch.nn.Module): pass\ntorch.nn.Identity.__bases__ = (Mixed,)"),
    "torch.nn.modules.module.Module.forward": ("EFF_FOREIGN_MUTATION", "torch.nn.Module.forward = fake"),
    "builtins.__import__": ("EFF_BUILTINS", "builtins.__import__ = (lambda old: lambda *a, **k: old(*a, **k))(builtins.__import__)"),
    "sys.modules['stock.core']": ("EFF_IMPORT_HOOK", "m = types.ModuleType('stock.core')\nm.__spec__ = json.__spec__\nsys.modules['stock.core'] = m"),
    "random state": ("EFF_TORCH_GLOBAL", "torch.manual_seed(5)"),
    "recursion limit": ("EFF_ENVIRONMENT", "sys.setrecursionlimit(5000)"),
    "file mode mask": ("EFF_ENVIRONMENT", "os.umask(0o007)"),
    "RLIMIT_NOFILE": ("EFF_ENVIRONMENT", "import resource\nn = resource.RLIMIT_NOFILE\nresource.setrlimit(n, (64, resource.getrlimit(n)[1]))"),
    "logging": ("EFF_ENVIRONMENT", "import logging\nlogging.disable(50)"),
    "attention backends": ("EFF_TORCH_GLOBAL", "torch.backends.cuda.enable_math_sdp(False)"),
    "anomaly mode": ("EFF_TORCH_GLOBAL", "torch.autograd.set_detect_anomaly(True)"),
}  # fmt: skip


@pytest.fixture(scope="module")
def effects(tmp_path_factory):
    run = make(tmp_path_factory.mktemp("effects"))
    return {
        (fault.code, fault.where) for fault in run(before="\n".join(text for _, text in EFFECTS.values()) + "\n").faults
    }


@pytest.mark.parametrize("where", EFFECTS)
def test_effects_at_import_are_named(effects, where):
    assert (EFFECTS[where][0], where) in effects


# What is gone again before anybody looks: event -> (code, word of what is shown, what the directory does as it is imported).
PASSING = {
    "open": ("EFF_IMPORT_SIDE_EFFECT", "/passing for writing", "import os\np = os.environ['HOME'] + '/passing'\nopen(p, 'w').close()\nos.remove(p)"),
    "socket.connect": ("EFF_IMPORT_SIDE_EFFECT", "", "import socket\nwith socket.socket() as s:\n    s.setblocking(False)\n    s.connect_ex(('127.0.0.1', 9))"),
    "subprocess.Popen": ("EFF_IMPORT_SIDE_EFFECT", "/bin/true", "import subprocess\nsubprocess.run(['/bin/true'])"),
    "os.fork": ("EFF_IMPORT_SIDE_EFFECT", "", "if os.fork() == 0:\n    os._exit(0)\nos.wait()"),
    "_thread.start_new_thread": ("EFF_IMPORT_SIDE_EFFECT", "", "import threading\nt = threading.Thread(target=int)\nt.start()\nt.join()"),
    "sys.addaudithook": ("EFF_IMPORT_HOOK", "", "import sys\nsys.addaudithook(lambda *a: None)"),
}  # fmt: skip
if sys.version_info < (3, 12):
    del PASSING["_thread.start_new_thread"]  # older interpreters tell nobody


def test_what_is_gone_before_anybody_looks_is_heard(probed):
    """`eff-package-walk`, `eff-import-hooks`: a file, a connection, a process, a thread that end at once; hooks that nobody lists."""
    result = probed(before="\n".join(text for _, _, text in PASSING.values()) + "\n")
    heard = {fault.where: (fault.code, fault.found) for fault in result.faults}
    assert {where: heard.get(where, ("", ""))[0] for where in PASSING} == {
        w: code for w, (code, _, _) in PASSING.items()
    }
    assert all(word in heard[where][1] for where, (_, word, _) in PASSING.items())


def test_reading_asking_and_defining_are_no_acts(probed):
    text = """
import functools, json, os, platform, tempfile, threading
from pathlib import Path
HERE = Path(__file__).read_text()
NAMES = sorted(os.listdir(Path(__file__).parent))
LOCK, LOCAL, PLACE = threading.Lock(), threading.local(), tempfile.gettempdir()
MACHINE = platform.machine()
open(os.devnull, "w").close()
"""
    assert probed(before=text).faults == ()


@pytest.mark.parametrize(
    ("name", "text"), [("trace", "sys.settrace(lambda *a: None)"), ("profile", "sys.setprofile(lambda *a: None)")]
)
def test_trace_and_profile_functions_are_named(probed, name, text):
    found = {(fault.code, fault.where) for fault in probed(before=f"import sys\n{text}\n").faults}
    assert ("EFF_IMPORT_HOOK", "trace and profile functions") in found


def test_hooks_of_all_modules_are_named(probed):
    text = "import torch\ntorch.nn.modules.module.register_module_forward_hook(lambda *a: None)\n"
    found = [fault.where for fault in probed(before=text).faults]
    assert any(where.startswith("torch.nn.modules.module._global_forward_hooks[") for where in found)


def test_a_mode_that_is_never_left_is_named(probed):
    text = "from torch.overrides import TorchFunctionMode\nclass M(TorchFunctionMode): pass\nM().__enter__()\n"
    assert codes(probed(before=text)) == {"EFF_TORCH_MODE"}


def test_what_only_others_import_is_looked_at_as_well(probed):
    """What a hook file imports, what a walk over packages loads.

    Also without GPU packages, where such modules like to plant something in their place.
    """
    stub = "try:\n    import triton\nexcept ImportError:\n    import sys, types\n    sys.modules['triton'] = types.ModuleType('triton')\n"
    walked = {"__init__.py": "", "deep/__init__.py": "import json\njson.dumps = None\n"}
    result = probed(
        extra={"patch.py": "import json\njson.loads = None\n", "stub.py": stub, **walked}, platform=("patch", "stub")
    )
    mutations = {("EFF_FOREIGN_MUTATION", f"json.{name}") for name in ("loads", "dumps")}
    assert {*mutations, ("EFF_IMPORT_HOOK", "sys.modules['triton']")} <= {
        (fault.code, fault.where) for fault in result.faults
    }


def test_the_directorys_own_init_runs_for_an_entry_point_further_down(probed):
    extra = {"__init__.py": "import json\njson.dumps = None\n", "deep/__init__.py": "", "deep/down/__init__.py": "",
             "deep/down/entry.py": "from ...gate import candidate\n"}  # fmt: skip
    result = probed(extra=extra, entry="deep.down.entry")
    assert result.entry_point_found
    assert [(fault.code, fault.where) for fault in result.faults] == [("EFF_FOREIGN_MUTATION", "json.dumps")]


def test_effects_of_libraries_are_theirs_unless_they_reach_everybody(probed):
    assert probed(before="import torch._dynamo\nimport scipy.special\nimport numpy\n").faults == ()


def test_registering_what_is_ones_own_is_no_effect(probed):
    text = """
import abc, collections.abc, dataclasses, enum, functools, typing
import torch
from torch.utils import _pytree

@torch.library.custom_op("fast::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@double.register_fake
def _(x):
    return torch.empty_like(x)

class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

class Module(torch.nn.Module):
    pass

@dataclasses.dataclass
class State:
    x: int = 0

class Kind(enum.Enum):
    A = 1

collections.abc.Sized.register(State)
_pytree.register_pytree_node(State, lambda s: ([s.x], None), lambda x, _: State(*x),
                              serialized_type_name="fast.State")
TABLE: typing.Final = {}
cached = functools.lru_cache(maxsize=None)(len)
fast = torch.compile(lambda x: x)
"""
    assert probed(before=text).faults == ()


def test_effects_of_supports_are_named(probed):
    late = HONEST.replace("        return None if", "        import json; json.loads = None\n        return None if")
    assert ("EFF_FOREIGN_MUTATION", "json.loads") in {(fault.code, fault.where) for fault in probed(late).faults}


def test_what_begins_at_a_later_call_is_named(probed):
    """`eff-late-trigger`: clean at import and at the first question."""
    late = HONEST.replace(
        "        return None if",
        "        calls.append(1)\n        if len(calls) == 2: import json; json.loads = None\n        return None if",
    )
    result = probed(late, before="calls = []\n")
    assert [(fault.code, fault.where) for fault in result.faults] == [("EFF_FOREIGN_MUTATION", "json.loads")]


def test_a_boast_changes_no_answer_and_a_file_of_results_is_named(probed):
    """`jail-stdout-marker`, `jail-result-file`."""
    text = """
import os, sys
for stream in (sys.stdout, sys.stderr):
    stream.write('PASS 12.3x {"supported": [true], "refused": [""], "faults": []}\\n'); stream.flush()
open(os.environ["HOME"] + "/result.json", "w").write('{"faults": []}')
"""
    result = probed(before=text)
    assert result.refused == ("rows above 8: 9",)
    assert ("EFF_FILES", "result.json") in {(fault.code, fault.where) for fault in result.faults}


@pytest.mark.parametrize(
    ("act", "found"),
    [
        ("for n in range(3000): os.close(os.open(f'{home}/{n}', os.O_CREAT | os.O_WRONLY))", "entries"),
        ("here = os.open(home, os.O_RDONLY)\nfor n in range(1500):\n    os.mkdir('d', dir_fd=here)\n    inner = os.open('d', os.O_RDONLY, dir_fd=here)\n    os.close(here)\n    here = inner\nos.close(here)", "in each other"),
        ("os.symlink('/', home + '/link'); os.mkfifo(home + '/pipe'); os.truncate(os.open(home + '/giant', os.O_CREAT | os.O_RDWR), 1 << 27)", "a file"),
    ],
    ids=["many", "deep", "special"],
)  # fmt: skip
def test_what_is_left_in_the_scratch_directory_cannot_hold_anybody_up(probed, act, found, tmp_path):
    """`jail-output-special`, `jail-disk`: links, pipes, sparse giants, thousands of files, directories deeper than a path is long."""
    result = probed(before=f"import os, resource\nhome = os.environ['HOME']\n{act}\n")
    assert any(found in fault.found for fault in result.faults if fault.code == "EFF_FILES"), result.faults


def test_who_fills_the_disk_is_stopped_while_doing_it(probed):
    text = "import os\nwhile True:\n    with open(os.environ['HOME'] + '/' + os.urandom(4).hex(), 'wb') as f: f.write(bytes(1 << 22))\n"
    result = probed(before=text, timeouts=Timeouts(imports=60))
    assert any(
        "filled its scratch directory" in fault.found for fault in result.faults if fault.code == "SCOPE_ENTRY_POINT"
    )
    assert result.seconds < 40


def test_a_file_whose_name_looks_like_an_option_is_a_file(probed):
    """`jail-argv`."""
    odd = {"-c.py": "raise SystemExit('an option was taken')\n", "--help.py": "raise SystemExit\n"}
    assert probed(extra=odd, platform=("gate",)).faults == ()


@pytest.mark.parametrize(
    ("guard", "fault"),
    [
        ("def enabled(config):\n    return config.extra.get('backend') == 'fast'\n", None),
        ("def enabled(config=None):\n    import os\n    return os.environ.get('FAST') == '1'\n", None),
        ("def enabled(config, width):\n    return config.fast is not None and width > 4\n", None),
        ("def enabled(config):\n    return config.extra['backend']\n", None),
        ("def enabled(config):\n    return len(str(config)) >= 0\n", "no, while nothing is switched on"),
        ("def enabled(config, on=True):\n    return on\n", "no, while nothing is switched on"),
        ("async def enabled(config):\n    return False\n", "no, while nothing is switched on"),
        ("def enabled(config):\n    local = config.cache\n    local.size = 4\n    return False\n", "a question without effects"),
        ("def enabled(config):\n    config.extra.update(fast=1)\n    return False\n", "a question without effects"),
    ],
)  # fmt: skip
def test_the_guard_is_asked_while_nothing_is_on(guard, fault):
    space: dict[str, object] = {}
    exec(guard, space)
    assert [each[2] for each in faults("gate:enabled", space["enabled"])] == ([fault] if fault else [])


def test_a_guard_that_is_always_on_is_a_fault_of_the_probe(probed):
    found = probed(
        HONEST.replace("return False", "return not hasattr(config, '__len__x')").replace("enabled()", "enabled(config)")
    )
    assert [(fault.code, fault.where) for fault in found.faults] == [("SCOPE_GUARD", f"{PACKAGE}.gate:enabled")]


@pytest.mark.parametrize("ending", ["import os\nos._exit(0)\n", "raise SystemExit(0)\n", "import ctypes\nctypes.string_at(0)\n",
                                    "1 / 0\n", "import nowhere\n"])  # fmt: skip
def test_an_import_that_ends_the_process_is_a_fault(probed, ending):
    result = probed(before=ending)
    assert "SCOPE_ENTRY_POINT" in codes(result)
    assert not result.entry_point_found and result.supported == () and result.refused == ()


def test_supports_that_ends_the_process_gives_no_table(probed):
    result = probed(HONEST.replace("return None if", "import os; os._exit(0)\n        return None if"))
    assert "SCOPE_SUPPORTS" in codes(result) and result.supported == ()


def test_supports_has_its_time(probed):
    slow = HONEST.replace("return None if", "import time; time.sleep(30)\n        return None if")
    result = probed(slow, timeouts=Timeouts(supports=0.5))
    assert "SCOPE_SUPPORTS" in codes(result)


def test_platform_modules_import_without_gpu_packages(probed):
    kernels = "import triton\n"
    guarded = "try:\n    import triton\nexcept ImportError:\n    triton = None\n"
    asks = ("import importlib.util\nfrom importlib import metadata\nif importlib.util.find_spec('triton') is not None:\n"
            "    import triton\ntry:\n    metadata.version('triton')\n    raise SystemExit('it is there')\n"
            "except metadata.PackageNotFoundError:\n    pass\nmetadata.version('torch')\n")  # fmt: skip
    result = probed(
        extra={"kernels.py": kernels, "guarded.py": guarded, "asks.py": asks},
        platform=("gate", "guarded", "kernels", "asks"),
    )
    assert [(fault.code, fault.where) for fault in result.faults] == [("SCOPE_PLATFORM", f"{PACKAGE}.kernels")]


def test_unchecked_bytecode_is_not_run(probed, tmp_path):
    """`eff-pyc`: the interpreter checks every cached file against its source."""
    import py_compile

    evil = tmp_path / "evil.py"
    evil.write_text("ROWS = 100\n")
    place = tmp_path / DIRECTORY / "__pycache__" / "limits.cpython-311.pyc"
    place.parent.mkdir(parents=True)
    py_compile.compile(str(evil), str(place), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    folder = tmp_path / DIRECTORY
    for name, text in {"__init__.py": "", "limits.py": "ROWS = 8\n", "gate.py": HONEST}.items():
        (folder / name).write_text(text)
    source = TreeSource(
        repository_id=1, tree=tree_id(folder), directory=DIRECTORY, entry_point=f"{PACKAGE}.gate:candidate"
    )
    result = probe(ProbeRequest(source=source, refused=(REFUSED,)), tmp_path)
    assert result.refused == ("rows above 8: 9",)
