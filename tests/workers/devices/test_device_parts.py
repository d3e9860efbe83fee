"""Parts of the device's code that need no device: the gauge's patience, what one launch copies, digests, compiling, repeats."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest
import torch

from gatekeeper.domain.catalog import JailLevel
from workers.devices.cuda import GAUGE_TRIES, digest_of, until
from workers.devices.graph_loop import MOST, Copies, copies
from workers.devices.nvrtc import CompileError, compile_cubin
from workers.devices.port import Reading
from workers.jail import Bind, Limits, bubblewrap
from workers.loop.blocks import MOST_REPEATS, BlockRun


def test_the_gauge_stops_at_the_first_copy_in_time_and_gives_up_after_some():
    times = iter([5.0, 4.0, 1.0, 9.0])
    assert until(lambda: next(times), 2.0) == [5.0, 4.0, 1.0]
    assert until(lambda: 3.0, 2.0) == [3.0] * GAUGE_TRIES


def test_one_launch_copies_a_steps_row_of_each_pair():
    history, out = torch.zeros(5, 2, 8, dtype=torch.bfloat16), torch.zeros(2, 8, dtype=torch.bfloat16)
    made = copies([(out, history), (history, out)])
    assert made.count == 2 and list(made.bytes[:2]) == [32, 32]
    assert (made.source[0], made.target[0]) == (out.data_ptr(), history.data_ptr())
    assert ctypes.sizeof(Copies) == 3 * 8 * MOST + 8
    with pytest.raises(ValueError, match=f"at most {MOST} tensors"):
        copies([(out, history)] * (MOST + 1))


def test_the_digest_of_compiled_kernels_depends_on_names_and_bytes(tmp_path):
    (tmp_path / "a.so").write_bytes(b"one")
    first = digest_of(tmp_path)
    (tmp_path / "kernels.json").write_text("{}")
    assert digest_of(tmp_path) == first
    (tmp_path / "a.so").write_bytes(b"two")
    assert digest_of(tmp_path) != first


class Compiler:
    """Plays the runtime compiler."""

    def __init__(self, code):
        self.code, self.options = code, []

    def nvrtcCreateProgram(self, program, *_):
        return 0

    def nvrtcCompileProgram(self, _program, count, options):
        self.options = [options[i].decode() for i in range(count)]
        return self.code

    def nvrtcDestroyProgram(self, _program):
        self.destroyed = True

    def __getattr__(self, name):
        text = b"cubin" if "CUBIN" in name else b"line 3: no such thing\0"

        def call(_program, target):
            if name.endswith("Size"):
                target._obj.value = len(text)
            else:
                ctypes.memmove(target, text, len(text))
            return 0

        return call


def test_sources_are_compiled_for_the_architecture_without_fused_products():
    compiler = Compiler(0)
    assert compile_cubin("source", "sm_90a", compiler) == b"cubin"
    assert compiler.options[:2] == ["--gpu-architecture=sm_90a", "--fmad=false"] and compiler.destroyed


def test_a_source_that_does_not_compile_says_why():
    with pytest.raises(CompileError, match="for sm_90a: line 3: no such thing"):
        compile_cubin("source", "sm_90a", Compiler(6))


def test_the_jail_shows_a_device_as_one():
    argv = bubblewrap(["/bin/true"], [Bind("/dev/null", "/dev/null", device=True)], Limits(), own_user=False)
    assert "--dev-bind /dev/null /dev/null" in " ".join(argv)


@pytest.mark.parametrize(("slow", "repeats"), [(0, 0), (1, 1), (2, 2), (99, MOST_REPEATS)])
def test_a_group_in_which_the_device_was_slowed_is_run_again(monkeypatch, slow, repeats):
    """``slow`` readings in a row say so; a group is read before and, where that was well, behind it."""
    readings = iter([Reading(slowed=("hardware slowdown",))] * slow + [Reading()] * 20)
    ran = []

    def four(_block, number, _keep):
        ran.append(number)
        return (), "ABBA"

    monkeypatch.setattr(BlockRun, "_four", four)
    monkeypatch.setattr("workers.loop.blocks.Group", lambda **fields: SimpleNamespace(**fields))
    block = BlockRun.__new__(BlockRun)
    block.course = SimpleNamespace(device=SimpleNamespace(read=lambda: next(readings)))
    assert block.group(7, lambda _pair: None).repeats == repeats and ran == [7] * (repeats + 1)
    assert JailLevel.JAIL.rank > JailLevel.PROCESS.rank
