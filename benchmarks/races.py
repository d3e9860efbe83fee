"""Runs whole races on the CPU target through ``python -m workers.race`` and counts their outcomes; shared by two benchmarks."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from gatekeeper.catalog import ROOT, load_catalog
from gatekeeper.cli.race import RULES
from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.race import InstalledSource, RaceOrder, RaceRequest, RaceResult

KIMI = "kernels_under_test.kimi_k3"


def order(candidate: str, rows: tuple[int, ...] = (1, 8), **rules: object) -> RaceOrder:
    """Return the order of a race of an installed candidate against the stock path, rules as of ``gatekeeper race``."""
    catalog = load_catalog()
    model = catalog.models["kimi_k3"]
    request = RaceRequest(
        purpose="selftest",
        model=model.name,
        problem=model.default_problem,
        suite=model.suite,
        target=catalog.targets["cpu"],
        candidate=InstalledSource(entry_point=candidate),
        baseline=InstalledSource(entry_point=model.baseline),
        configurations=tuple(
            Configuration(rows=count, context=256, page_size=8, decode_context_parallel=2) for count in rows
        ),
        rules=RULES.model_copy(update=dict(rules)),
    )
    return RaceOrder(request=request, alpha=0.01)


def run(wanted: RaceOrder) -> tuple[RaceResult, float]:
    """Run one race; return its result and how many seconds it took."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "workers.race"], input=wanted.model_dump_json().encode(), capture_output=True, cwd=ROOT
    )
    if done.returncode:
        raise SystemExit(f"the harness ended with {done.returncode}: {done.stderr.decode()[-500:]}")
    return RaceResult.model_validate_json(done.stdout), time.monotonic() - began


def write(path: Path, results: list[tuple[str, RaceResult, float]]) -> None:
    """Write what each race got, with its reasons, and print the counts of outcomes."""
    rows = [
        {"name": name, "outcome": result.outcome.value, "seconds": round(seconds, 1), "reasons": list(result.reasons)}
        for name, result, seconds in results
    ]
    path.write_text(json.dumps(rows, indent=2))
    print(Counter(row["outcome"] for row in rows))
