"""How often the race's rule says BETTER: by simulation, from block values on, with the schedules of both policy sets.

    python benchmarks/operating_characteristics.py [--races 100000] [--seed 20260101]

Block values are normal around the true log ratio; a unit is the mean of two. Every race walks its looks exactly as
``gatekeeper.domain.trial`` does: lower bound above the margin is BETTER, 95 % upper bound below it ends the race.
Prints one table in Markdown: rows are a schedule, a margin and a block SD; columns are true ratios.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from scipy.special import stdtrit

SCHEDULES = {
    "default": ((6, 10, 14, 20), (0.0, 0.0003, 0.002, 0.009), 0.01, (0.005, 0.0135, 0.03)),
    "noisy": ((12, 20, 28, 40), (0.0, 0.0003, 0.002, 0.009), 0.01, (0.0135, 0.03)),
    "local": ((4, 6, 10), (0.002, 0.003, 0.006), 0.05, (0.015, 0.03)),
    "demo": ((4, 6, 8, 14), (0.0, 0.006, 0.003, 0.004), 0.05, (0.015, 0.03)),
}


def better_share(
    source: np.random.Generator,
    races: int,
    looks: tuple[int, ...],
    nominal: tuple[float, ...],
    margin: float,
    ratio: float,
    sd: float,
) -> float:
    """Return the share of ``races`` that end as BETTER at a true ratio and block SD (log ratio)."""
    units = math.log(ratio) + sd / math.sqrt(2) * source.standard_normal((races, looks[-1] // 2))
    edge = math.log1p(margin)
    running = np.ones(races, dtype=bool)
    better = np.zeros(races, dtype=bool)
    for look, p in zip(looks, nominal, strict=True):
        count = look // 2
        mean = units[:, :count].mean(axis=1)
        error = units[:, :count].std(axis=1, ddof=1) / math.sqrt(count)
        crossed = running & (p > 0) & (mean + stdtrit(count - 1, p or 0.5) * error > edge)
        better |= crossed
        futile = mean + stdtrit(count - 1, 0.95) * error < edge
        running &= ~crossed & ~futile
    return float(better.mean())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--races", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=20260101)
    options = parser.parse_args()
    source = np.random.default_rng(options.seed)
    print(f"Share of BETTER; seed {options.seed}, {options.races} races in each cell, one configuration.\n")
    print("| schedule | margin | block SD | 1.00 | at the margin | margin +1 % | +2 % | +5 % |")
    print("|---|---|---|---|---|---|---|---|")
    for name, (looks, nominal, margin, spreads) in SCHEDULES.items():
        for sd in spreads:
            ratios = [1.0, 1 + margin, *((1 + margin) * (1 + gain) for gain in (0.01, 0.02, 0.05))]
            shares = [better_share(source, options.races, looks, nominal, margin, ratio, sd) for ratio in ratios]
            cells = " | ".join(f"{share:.4f}" for share in shares)
            print(f"| {name} {'/'.join(map(str, looks))} | {margin:.0%} | {sd:.2%} | {cells} |")


if __name__ == "__main__":
    main()
