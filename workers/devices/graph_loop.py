"""The device half of the arm's stub: maps the arena by its descriptors, captures a step into a graph, and runs the closed loop.

It runs inside the jail, beside ``arm.py``, ``driver.py`` and ``loop.cubin``, which the harness has compiled from ``loop.cu``. What
surrounds a step (outputs into histories, the next input, the next row of each schedule) is one kernel, so that a race of steps of
a hundred microseconds is not one of the loop round them.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING or __package__:
    from workers.devices import driver as cuda
else:
    import driver as cuda

MOST = 8
"""Tensors that one launch copies; ``loop.cu`` says the same."""
LARGEST_ROW = 16 * 1024
"""Columns of x that a block of ``loop.cu`` can hold."""
COPY_BLOCKS = 8
WARM = 2
"""Steps before the capture: what compiles, tunes or allocates at its first call does it then."""
Copied = Sequence[tuple[Tensor, Tensor]]


class Copies(ctypes.Structure):
    """The struct of this name in ``loop.cu``."""

    _fields_ = (
        ("source", ctypes.c_void_p * MOST),
        ("target", ctypes.c_void_p * MOST),
        ("bytes", ctypes.c_longlong * MOST),
        ("count", ctypes.c_int),
    )


def copies(pairs: Copied) -> Copies:
    """Return the struct for (source, target) pairs; the smaller tensor of each is one step's row.

    Raises:
        ValueError: if there are more pairs than one launch copies.
    """
    if len(pairs) > MOST:
        raise ValueError(f"expected at most {MOST} tensors to copy at each step, found {len(pairs)}")
    made = Copies(count=len(pairs))
    for index, (source, target) in enumerate(pairs):
        made.source[index], made.target[index] = source.data_ptr(), target.data_ptr()
        made.bytes[index] = min(source.nbytes, target.nbytes)
    return made


def mapped(descriptors: Sequence[int], sizes: Sequence[int]) -> list[Tensor]:
    """Map the arena's memories by their descriptors and close these; return all bytes of each."""
    found = []
    for descriptor, size in zip(descriptors, sizes, strict=True):
        found.append(driver().adopt(descriptor, size).bytes())
        os.close(descriptor)
    return found


_driver: list[cuda.Driver] = []


def driver() -> cuda.Driver:
    """Return the driver, with torch's context current."""
    if not _driver:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.zeros(1, device="cuda")
        _driver.append(cuda.Driver())
    return _driver[0]


def warm_up() -> None:
    """Make the device's context and load what most implementations on a device use, before this process says that it is ready:
    processes start side by side, while implementations are built one after the other."""
    driver()
    try:
        from triton.runtime.cache import triton_key
    except ImportError:
        return  # not there, or another version of it: whoever wants it loads it
    triton_key()  # reads the whole compiler to name its version, and is kept


class GraphLoop:
    """One configuration, ready to run: a graph of one step and of what follows it."""

    def __init__(
        self, step: Callable[[], None], buffers: Mapping[str, Tensor], schedules: Copied, histories: Copied
    ) -> None:
        """Capture ``step``. ``schedules`` are (buffer, all rows), ``histories`` (output, all rows)."""
        x, out, noise = buffers["x"], buffers["out"], buffers["noise"]
        rows, hidden = x.shape
        if hidden > LARGEST_ROW:
            raise ValueError(f"expected x with at most {LARGEST_ROW} columns, found {hidden}")
        self._launch, self._step = driver().launch, step
        cubin = Path(__file__).with_name("loop.cubin").read_bytes()
        self._begin, self._finish = driver().functions(cubin, ("begin", "finish"))
        self._counters = torch.zeros(2, dtype=torch.int64, device=x.device)
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (out, buffers["multipliers"], buffers["table"], noise, x)]
        rest = (ctypes.c_int(rows), ctypes.c_int(hidden), ctypes.c_longlong(noise.shape[0]), ctypes.c_float(5**-0.5))
        self._grid = rows + COPY_BLOCKS
        shown = [(every, buffer) for buffer, every in schedules]
        self._counter = ctypes.c_void_p(self._counters.data_ptr())
        self._first = copies([(noise, x), *shown])
        self._arguments = (*pointers, self._counter, *rest, copies(histories), copies(shown))
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(WARM):
                step()
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(self._graph, stream=self._stream):
            step()
            self._follow()
        self.kernels = driver().kernel_nodes(int(self._graph.raw_cuda_graph())) - 1
        """Kernel nodes of the step: those of the graph but the loop's own."""
        self._graph.instantiate()
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # what packing the weights took for a while

    def _follow(self) -> None:
        self._launch(self._finish, self._grid, 1024, torch.cuda.current_stream().cuda_stream, self._arguments)

    def run(self, steps: int) -> int:
        """Run the closed loop of ``contract.py``; return nanoseconds between two events round its steps."""
        begun, ended = self._events
        with torch.cuda.stream(self._stream):
            self._launch(self._begin, COPY_BLOCKS, 1024, self._stream.cuda_stream, (self._counter, self._first))
            begun.record()
            for _ in range(steps):
                self._graph.replay()
            ended.record()
        ended.synchronize()
        return int(begun.elapsed_time(ended) * 1e6)
