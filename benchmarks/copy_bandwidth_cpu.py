"""Copy bandwidth of one core by working set: what the floor of a CPU target's step times is formed with.

python benchmarks/copy_bandwidth_cpu.py [--repeats 7]

One thread on one core copies a tensor again and again for a tenth of a second; bytes read and bytes written both count. Printed
are median, smallest and largest of the repeats. The floor must never refuse an honest time, and the tiny problem's tensors stay
in a core's caches, so a target takes the largest of all figures.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import torch

SECONDS = 0.1
SIZES = tuple(1 << power for power in range(13, 29, 1))


def bandwidth(size: int) -> float:
    """Return bytes per second, read and written, of copies of ``size`` bytes."""
    source, target = torch.zeros(size, dtype=torch.uint8), torch.ones(size, dtype=torch.uint8)
    target.copy_(source)
    batch = max(1, (1 << 24) // size)
    copies, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < SECONDS or not copies:
        for _ in range(batch):
            target.copy_(source)
        copies += batch
    return 2.0 * size * copies / spent


def main() -> None:
    """Measure every size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    found = {size: [bandwidth(size) for _ in range(repeats)] for size in SIZES}
    for size, values in found.items():
        shown = " ".join(f"{value / 1e9:7.2f}" for value in (statistics.median(values), min(values), max(values)))
        print(f"{size:>10} bytes: {shown} GB/s")
    print(f"largest of all: {max(map(max, found.values())):.3g} bytes a second")


if __name__ == "__main__":
    main()
