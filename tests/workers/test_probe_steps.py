"""The probe builds the candidate and runs a few steps: what it switches for the whole process is named, what it takes back is not."""

from __future__ import annotations

import pytest

from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.race import ProbeRequest, TreeSource
from workers.probe import Timeouts, probe
from workers.sources import tree_id

DIRECTORY = "stock/models/k3/nvidia/fast"
PACKAGE = DIRECTORY.replace("/", ".")
SERVED = Configuration(rows=8, context=64, page_size=4)
GATE = """
import torch

class Candidate:
    def supports(self, facts, shape):
        return None

    def workspace(self, facts, shape):
        return 64

    def build(self, facts, shape, tensors):
        x, out, weight, workspace = tensors["x"], tensors["out"], tensors["weight"], tensors["workspace"]
{build}
        def step():
{step}
            out.copy_((x @ weight) * tensors["scale"].unsqueeze(-1))
            tensors["state"][1:] += out
            workspace.fill_(1)

        return step

candidate = Candidate()
"""


@pytest.fixture
def built(tmp_path):
    def run(build="", step="", *, model="tests.workers.toy_model.trusted:load", timeouts=None, gate=GATE):
        folder = tmp_path / DIRECTORY
        folder.mkdir(parents=True)
        indented = {"build": build.replace("\n", "\n        "), "step": step.replace("\n", "\n            ")}
        text = gate.format(build=" " * 8 + indented["build"], step=" " * 12 + indented["step"])
        for name, content in {"__init__.py": "", "gate.py": text}.items():
            (folder / name).write_text(content)
        source = TreeSource(
            repository_id=1, tree=tree_id(folder), directory=DIRECTORY, entry_point=f"{PACKAGE}.gate:candidate"
        )
        request = ProbeRequest(source=source, model=model, problem="small", advertised=(SERVED,))
        return probe(request, tmp_path, timeouts=timeouts)

    return run


def told(result) -> dict[str, tuple[str, str]]:
    return {fault.where: (fault.code, fault.found) for fault in result.faults}


# One candidate turns them all as it is built, and one as it runs: where -> (code, what it does).
TURNED = {
    "torch.backends.mkldnn.enabled": ("EFF_TORCH_GLOBAL", "torch._C._set_mkldnn_enabled(False)"),
    "torch.backends.mkldnn.deterministic": ("EFF_TORCH_GLOBAL", "import operator\noperator.methodcaller('set_flags', _deterministic=True)(torch.backends.mkldnn)"),
    "cuda.matmul.allow_tf32": ("EFF_TORCH_GLOBAL", "self.b = torch.backends.cuda.matmul\nself.b.allow_tf32 = True"),
    "threads": ("EFF_TORCH_GLOBAL", "torch.set_num_threads(2)"),
    "default dtype": ("EFF_TORCH_GLOBAL", "torch.set_default_dtype(torch.float64)"),
    "autocast on cpu": ("EFF_TORCH_GLOBAL", "torch.set_autocast_enabled('cpu', True)"),
    "torch._C._jit_texpr_reductions_enabled": ("EFF_TORCH_GLOBAL", "torch._C._jit_set_texpr_reductions_enabled(True)"),
    "inference mode": ("EFF_TORCH_GLOBAL", "import contextlib\nself.s = contextlib.ExitStack()\nself.s.enter_context(torch.inference_mode())"),
    "aten::cosh": ("EFF_OP_OVERRIDE", "self.lib = torch.library.Library('aten', 'IMPL')\nself.lib.impl('cosh', lambda a: a, 'CPU')"),
    "torch.nn.functional.softmax": ("EFF_FOREIGN_MUTATION", "torch.nn.functional.softmax = None"),
}  # fmt: skip


@pytest.mark.parametrize("moment", ["build", "step"])
def test_what_stays_switched_is_named(built, moment):
    turned = "if not hasattr(self, 'b'):\n    " + "\n".join(text for _, text in TURNED.values()).replace("\n", "\n    ")
    found = told(built(**{moment: turned}))
    assert {where: found.get(where, ("", ""))[0] for where in TURNED} == {w: code for w, (code, _) in TURNED.items()}
    when = {"build": "after build()", "step": "after step 1"}[moment]
    assert found["torch.backends.mkldnn.enabled"][1] == f"False, {when}"


# name: (build, step, code, word of where)
APART = {
    "mode of a generator": ("def hold():\n    with torch.inference_mode():\n        yield\nself.g = hold()\nnext(self.g)", "", "EFF_TORCH_GLOBAL", "inference mode"),
    "a dispatch mode": ("", "from torch.utils._python_dispatch import TorchDispatchMode\nclass M(TorchDispatchMode):\n    def __torch_dispatch__(self, f, t, a=(), k=None): return f(*a, **(k or {}))\nM().__enter__()", "EFF_TORCH_MODE", "mode stacks"),
    "at the second step only": ("calls = []", "calls.append(1)\nif len(calls) == 2: torch._C._set_mkldnn_enabled(False)", "EFF_TORCH_GLOBAL", "mkldnn.enabled"),
    "before it fails": ("torch._C._set_mkldnn_enabled(False)\nraise RuntimeError", "", "EFF_TORCH_GLOBAL", "mkldnn.enabled"),
}  # fmt: skip


@pytest.mark.parametrize(("build", "step", "code", "where"), APART.values(), ids=APART.keys())
def test_what_cannot_be_turned_beside_others_is_named(built, build, step, code, where):
    named = [(told_code, found) for name, (told_code, found) in told(built(build, step)).items() if where in name]
    assert code in {told_code for told_code, _ in named}, named


HONEST = {
    "nothing": ("", ""),
    "all of them": ("import os, tempfile\nnoise = torch.rand(4)\nself.table = {}\nself.table['x'] = 1\nopen(tempfile.mkstemp()[1], 'w').close()\nself.lib = torch.library.Library('fast_own', 'DEF')\nself.lib.define('f(Tensor x) -> Tensor')",
                    "with torch.inference_mode(), torch.autocast('cpu', torch.bfloat16):\n    y = x @ weight\nwith torch.backends.mkldnn.flags(enabled=False):\n    y = x + x\nold = torch.get_float32_matmul_precision()\ntorch.set_float32_matmul_precision('high')\ntorch.set_float32_matmul_precision(old)\nself.count = getattr(self, 'count', 0) + torch.rand(1)"),
    "a library that is loaded late": ("import scipy.special", ""),
    "a build that fails": ("raise RuntimeError('no device')", ""),
    "a step that fails": ("", "raise RuntimeError('no device')"),
}  # fmt: skip


@pytest.mark.parametrize(("build", "step"), HONEST.values(), ids=HONEST.keys())
def test_what_is_taken_back_or_ones_own_is_no_fault(built, build, step):
    assert built(build, step).faults == ()


def test_a_step_that_never_ends_is_the_races_to_tell(built):
    assert built("", "import time; time.sleep(60)", timeouts=Timeouts(steps=1.0)).faults == ()


def test_the_shape_is_of_the_class_that_a_race_uses(built):
    """Who tells the two apart by the shape's type could serve in one and decline in the other."""
    gate = GATE.replace("        return None", '        return None if type(shape).__module__ == "contract" and shape.requests == 8 else "another"')  # fmt: skip
    result = built(gate=gate)
    assert result.supported == (True,) and result.faults == ()
