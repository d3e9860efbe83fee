"""Graphs, kernel counts and times on a device."""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Callable

import torch


def capture(run: Callable[[], None], warm: int = 2) -> torch.cuda.CUDAGraph:
    """One graph of everything that ``run`` launches, after warm calls outside it; its raw graph is kept for counting."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(warm):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph, stream=stream):
        run()
    graph.instantiate()
    return graph


def nodes(graph: torch.cuda.CUDAGraph) -> dict[str, int]:
    """How many nodes of each kind a captured graph has: kernel, memcpy, memset or other."""
    runtime = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")
    raw = ctypes.c_void_p(int(graph.raw_cuda_graph()))
    count = ctypes.c_size_t(0)
    if runtime.cudaGraphGetNodes(raw, None, ctypes.byref(count)):
        raise RuntimeError("the graph's nodes could not be counted")
    handles = (ctypes.c_void_p * count.value)()
    runtime.cudaGraphGetNodes(raw, handles, ctypes.byref(count))
    kinds = {0: "kernel", 1: "memcpy", 2: "memset"}
    found: dict[str, int] = {}
    for handle in handles:
        kind = ctypes.c_int(-1)
        runtime.cudaGraphNodeGetType(ctypes.c_void_p(handle), ctypes.byref(kind))
        key = kinds.get(kind.value, "other")
        found[key] = found.get(key, 0) + 1
    return found


def sample(graph: torch.cuda.CUDAGraph, replays: int) -> float:
    """Microseconds of one replay, over some."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(replays):
        graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3 / replays


def quick(run: Callable[[], None], blocks: int = 5, replays: int = 10) -> float:
    """Median microseconds of one call of ``run`` in a graph."""
    graph = capture(run, warm=1)
    sample(graph, replays)
    return statistics.median(sample(graph, replays) for _ in range(blocks))


def spread(values: list[float]) -> dict[str, float]:
    """Median, 10th and 90th percentile."""
    ordered = sorted(values)
    n = len(ordered)
    return {
        "median": statistics.median(ordered),
        "p10": ordered[n // 10],
        "p90": ordered[min(n - 1, n * 9 // 10)],
        "n": n,
    }


def interleaved(graphs: dict[str, torch.cuda.CUDAGraph], blocks: int, replays: int) -> dict[str, list[float]]:
    """Times of each graph, block by block, the order turning."""
    times: dict[str, list[float]] = {name: [] for name in graphs}
    names = list(graphs)
    for name in names:
        sample(graphs[name], replays)
    for block in range(blocks):
        for name in names[block % len(names) :] + names[: block % len(names)]:
            times[name].append(sample(graphs[name], replays))
    return times


def copy_bandwidth() -> dict[str, float]:
    """Bytes per second, read plus written, of a 4 GB copy, and of a 4 GB read."""
    source = torch.randn(1 << 30, device="cuda")
    target = torch.empty_like(source)
    result = {}
    for name, run in (("copy", lambda: target.copy_(source)), ("scale", lambda: torch.mul(source, 1.5, out=target))):
        run()
        times = []
        for _ in range(9):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            run()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e-3)
        result[name] = 2 * source.nbytes / statistics.median(times)
    return result
