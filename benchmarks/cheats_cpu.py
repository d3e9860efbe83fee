"""Races every planted mutant of the model and shows what each got beside what it should get.

    python benchmarks/cheats_cpu.py --out cheats_cpu.json [--only NAME ...]

Exit status 1 if one got something else. ``not_better`` is met by every outcome but better and void.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path

from races import order, run, write

from gatekeeper.catalog import ROOT

INDEX = ROOT / "kernels_under_test" / "kimi_k3" / "mutants" / "index.toml"


def as_expected(expected: str, outcome: str) -> bool:
    """Return whether an outcome is what the index promises."""
    return outcome not in ("better", "void") if expected == "not_better" else outcome == expected


def main() -> int:
    """Race each mutant once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("cheats_cpu.json"))
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    results, wrong = [], 0
    for mutant in tomllib.loads(INDEX.read_text())["mutants"]:
        if options.only and mutant["name"] not in options.only:
            continue
        result, seconds = run(order(mutant["entry_point"]))
        met = as_expected(mutant["expected"], result.outcome.value)
        wrong += not met
        codes = sorted({f.code for f in result.faults} | {f.code for r in result.configurations for f in r.faults})
        print(
            f"{'ok ' if met else 'BAD'} {mutant['name']:28} expected {mutant['expected']:10} got {result.outcome.value:12}"
            f" {seconds:5.0f} s  {' '.join(codes)} {'; '.join(result.reasons)[:160]}",
            flush=True,
        )
        results.append((mutant["name"], result, seconds))
    write(options.out, results)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
