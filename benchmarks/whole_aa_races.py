"""Runs whole A/A races, the stock path against itself, and counts how many said BETTER (none should).

python benchmarks/whole_aa_races.py --races 20 --out whole_aa_races.json
"""

from __future__ import annotations

import argparse
from pathlib import Path

from races import KIMI, order, run, write


def main() -> None:
    """Run the races one after another."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--races", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("whole_aa_races.json"))
    options = parser.parse_args()
    results = []
    for number in range(options.races):
        result, seconds = run(order(f"{KIMI}.baseline.stock:baseline"))
        results.append((f"A/A {number + 1}", result, seconds))
        print(f"{number + 1}: {result.outcome.value} in {seconds:.0f} s {list(result.reasons)[:1]}", flush=True)
    write(options.out, results)


if __name__ == "__main__":
    main()
