"""Probes of small trees: each effect is named, and the honest twin of all of them passes."""

from __future__ import annotations

import pytest

from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.race import ProbeRequest, TreeSource
from workers.probe import Timeouts, probe
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


@pytest.fixture
def probed(tmp_path):
    def run(gate=HONEST, *, extra=None, platform=(), timeouts=None, before=""):
        folder = tmp_path / DIRECTORY
        folder.mkdir(parents=True)
        (folder.parent / "__init__.py").write_text("raise RuntimeError('a framework package ran')")
        files = {"__init__.py": "", "limits.py": "ROWS = 8\n", "gate.py": before + gate, **(extra or {})}
        for name, text in files.items():
            (folder / name).write_text(text)
        source = TreeSource(
            repository_id=1, tree=tree_id(folder), directory=DIRECTORY, entry_point=f"{PACKAGE}.gate:candidate"
        )
        request = ProbeRequest(
            source=source, guard=f"{PACKAGE}.gate:enabled", advertised=(SERVED,), refused=(REFUSED,),
            platform_modules=tuple(f"{PACKAGE}.{name}" for name in platform),
        )  # fmt: skip
        return probe(request, tmp_path, timeouts=timeouts)

    return run


def codes(result):
    return {fault.code for fault in result.faults}


def test_honest_directory_has_no_fault(probed):
    result = probed(platform=("gate",))
    assert result.faults == ()
    assert result.entry_point_found and result.supported == (True,) and result.refused == ("rows above 8: 9",)


@pytest.mark.parametrize(
    ("patch", "code", "where"),
    [
        ("import torch.nn.functional as F\nF.linear = lambda *a: None\n", "EFF_FOREIGN_MUTATION",
         "torch.nn.functional.linear"),
        ("import torch\nsetattr(torch, 'all' + 'close', lambda *a, **k: True)\n", "EFF_FOREIGN_MUTATION", "torch.allclose"),
        ("import torch\nlib = torch.library.Library('aten', 'IMPL')\n"
         "lib.impl('mul.Tensor', lambda a, b: a, 'CPU')\n", "EFF_OP_OVERRIDE", "aten::mul.Tensor"),
        ("from torch.overrides import TorchFunctionMode\nclass M(TorchFunctionMode): pass\nM().__enter__()\n",
         "EFF_TORCH_MODE", "depth of the torch function and dispatch mode stacks"),
        ("import torch\ntorch.set_default_dtype(torch.float64)\n", "EFF_TORCH_GLOBAL", "default dtype"),
        ("import torch\ntorch.set_float32_matmul_precision('medium')\n", "EFF_TORCH_GLOBAL",
         "float32 matmul precision"),
        ("import os\nos.environ['X'] = '1'\n", "EFF_ENVIRONMENT", "os.environ['X']"),
        ("import signal\nsignal.signal(signal.SIGUSR1, lambda *a: None)\n", "EFF_BACKGROUND_WORK", "signal handler 10"),
        ("import threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()\n",
         "EFF_BACKGROUND_WORK", "threads"),
        ("import atexit\natexit.register(print)\n", "EFF_BACKGROUND_WORK", "atexit callbacks"),
        ("import sys\nclass F:\n    @staticmethod\n    def find_spec(*a): return None\nsys.meta_path.append(F)\n",
         "EFF_IMPORT_HOOK", "sys.meta_path"),
        ("import sys, types\nsys.modules['json'] = types.ModuleType('json')\n", "EFF_IMPORT_HOOK", "sys.modules['json']"),
        ("import builtins\nbuiltins.print = None\n", "EFF_BUILTINS", "builtins.print"),
        ("import os\nopen(os.environ['HOME'] + '/left', 'w').close()\n", "EFF_FILES", "left"),
    ],
)  # fmt: skip
def test_effects_at_import_are_named(probed, patch, code, where):
    faults = {(fault.code, fault.where) for fault in probed(before=patch).faults}
    assert (code, where) in faults


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
    result = probed(extra={"kernels.py": kernels, "guarded.py": guarded}, platform=("gate", "guarded", "kernels"))
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
