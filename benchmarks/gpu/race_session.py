"""Everything that a race on a GPU target needs, in one go, within a time limit: for a machine that is lent for minutes.

    python benchmarks/gpu/race_session.py OUT --seconds 500 [--target h200] [--rows 1,8] [--record EARLIER_AA.json]

Compiles stock's kernels ahead of time, adds A/A blocks to the earlier record until there are enough, puts the record into the target's
file of this checkout, races the planted wrong candidate ``frozen_state``, then the house candidate. The candidate's kernels must lie in
``build/kernels/<architecture>`` already (``cuda/cute/build.py``; no GPU is needed for that). Each part's output and result go to OUT.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gatekeeper.catalog import ROOT, load_catalog

PLANTED = "kernels_under_test.kimi_k3.device.planted:frozen_state"
LEAST_BLOCKS = 50


class Parts:
    """Runs programs one after the other until the time is used up."""

    def __init__(self, out: Path, seconds: float) -> None:
        self._out, self._end = out, time.monotonic() + seconds

    def run(self, name: str, *arguments: str, most: float = 3600.0) -> bool:
        """Run ``python ARGUMENTS`` in the checkout; return whether it ended by itself. Its output goes to ``OUT/<name>.log``."""
        began, log = time.monotonic(), self._out / f"{name}.log"
        with log.open("w") as stream:
            try:
                program = [sys.executable, "-u", *arguments]
                limit = max(1.0, min(most, self._end - began))
                code = subprocess.run(
                    program, cwd=ROOT, stdout=stream, stderr=stream, timeout=limit, check=False
                ).returncode
                ended = f"exit status {code}"
            except subprocess.TimeoutExpired:
                ended = "out of time"
        print(f"== {name}: {ended} after {time.monotonic() - began:.1f} s\n{log.read_text()[-2500:]}", flush=True)
        return ended != "out of time"


def put_record(file: Path, target: str) -> int:
    """Write a record's figures into the target's file; return its number of blocks."""
    found = json.loads(file.read_text())["summary"]
    place = ROOT / "workers" / "targets" / f"{target}.toml"
    text = place.read_text(encoding="utf-8")
    for name, value in (("block_sd", f"{found['block_sd']:.5f}"), ("mean_upper_95", f"{found['mean_upper_95']:.5f}"),
                        ("blocks", str(found["blocks"]))):  # fmt: skip
        text = re.sub(rf"(?m)^{name} = .*$", f"{name} = {value}", text)
    place.write_text(text, encoding="utf-8")
    return int(found["blocks"])


def main() -> None:
    """Run all parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--target", default="h200")
    parser.add_argument("--rows", default="1,8")
    parser.add_argument("--groups", default="4")
    parser.add_argument("--record", type=Path, help="an earlier record of A/A blocks")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    parts, target = Parts(options.out, options.seconds), load_catalog().targets[options.target]
    built = Path("build", "kernels", target.architecture)
    parts.run("ready", "-m", "kernels_under_test.kimi_k3.device.ready", str(built), *options.rows.split(","))
    have = len(json.loads(options.record.read_text())["blocks"]) if options.record else 0
    missing = LEAST_BLOCKS - have + (LEAST_BLOCKS - have) % 2
    if missing > 0:
        added = ("--add", str(options.record.absolute())) if options.record else ()
        file = options.out.absolute() / "aa.json"
        parts.run(
            "aa", "benchmarks/gpu/race_aa.py", "--target", target.name, "--blocks", str(missing), *added, "--out", str(file),
            most=options.seconds / 2,
        )  # fmt: skip
        print(f"{put_record(file, target.name)} A/A blocks in the record of {target.name}", flush=True)
    race = ("-m", "gatekeeper", "race", "--model", "kimi_k3", "--target", target.name, "--context", "1024")
    result = str(options.out.absolute() / "planted.json")
    parts.run("planted", *race, "--rows", "1", "--candidate", PLANTED, "--json", result, most=90)
    result = str(options.out.absolute() / "race.json")
    parts.run("race", *race, "--rows", options.rows, "--groups", options.groups, "--json", result)


if __name__ == "__main__":
    main()
