"""``gatekeeper check --probe``: the documented example passes the real probe, and what does not is told as the service tells it."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gatekeeper.cli import main, probing
from gatekeeper.cli.check import run_check
from gatekeeper.demo.pulls import DIRECTORY, HOOK, PACKAGE
from gatekeeper.demo.upstream import base_files
from gatekeeper.domain.catalog import JailLevel
from gatekeeper.domain.errors import Postponed
from gatekeeper.domain.policy import Outcome, PolicyResult
from gatekeeper.domain.race import ProbeRequest, ProbeResult
from tests.checkout import checkout, git, put
from tests.cli.test_demo_ends import alive, children

DOCS = Path(__file__).resolve().parents[2] / "docs"
MANIFEST = f"{DIRECTORY}/fast_track.toml"
PROBED = "scope_is_probed"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A clone of the sample upstream with the example of the documentation, its hook, and a decided skeleton of ``init``."""
    root = checkout(tmp_path / "r", {path: data.decode() for path, data in base_files().items()})
    [example] = re.findall(r"```python\n(.*?)```", (DOCS / "candidate.md").read_text(), re.S)
    assert example.startswith(f"# {DIRECTORY}/gate.py\n")
    put(root, f"{DIRECTORY}/gate.py", example)
    guarded = "        if gate.enabled(self.config):\n            return self.specialised_step(hidden, metadata)\n"
    loop = "        for layer in self.layers:\n"
    hook = base_files()[HOOK].decode().replace(loop, guarded + loop, 1)
    put(root, HOOK, hook.replace("from vllm.models", f"from {PACKAGE} import gate\nfrom vllm.models", 1))
    assert main(["init", "--repo", str(root)]) == 0
    text = (root / MANIFEST).read_text()
    put(
        root,
        MANIFEST,
        re.sub('"TODO: setting[^"]*"', '"additional_config.decode_backend=latency_specialized"', text).replace(
            '"TODO"', '"served"'
        ),
    )
    return root


def commit(root: Path) -> list[str]:
    """Commit everything and return the command that checks and probes it."""
    git(root, "add", "--all")
    git(root, "commit", "-m", "Specialised decode")
    return ["check", "--repo", str(root), "--base", "main", "--head", "topic"]


def probed(root: Path) -> PolicyResult:
    checked = run_check(root, "main", "topic", probe=True)
    return next(result for result in checked.results if result.policy == PROBED)


def test_the_documented_example_passes_with_what_init_writes(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = commit(work)
    capsys.readouterr()
    assert main([*command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["findings"] == [] and PROBED in document["not_checked"]
    assert main([*command, "--probe", "--json"]) == 0
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert document["findings"] == [] and PROBED not in document["not_checked"]
    [policy] = [entry for entry in document["policies"] if entry["policy"] == PROBED]
    assert policy["outcome"] == "passed" and f"probing {DIRECTORY}" in told.err


def test_what_one_step_outside_is_accepted_is_found_before_a_push(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gate = (work / DIRECTORY / "gate.py").read_text()
    wide = re.sub(
        r"        sizes = .*?or None\n", "        return None if shape.rows in (1, 8) else 'rows'\n", gate, flags=re.S
    )
    assert wide != gate
    put(work, f"{DIRECTORY}/gate.py", wide)
    command = commit(work)
    assert main(command) == 0
    assert f"not checked here: {PROBED}: needs a probe: --probe runs it here" in capsys.readouterr().out
    assert main([*command, "--probe"]) == 1
    said = capsys.readouterr().out
    assert f"failed: {PROBED}" in said and f"how to fix {PROBED}: " in said
    for told in ("declined: rows=2 q=1", "accepted: rows=1 q=1 ctx=31", "accepted: rows=1 q=1 ctx=4097", "page=16"):
        assert told in said
    assert f"not checked here: {PROBED}" not in said


def test_an_effect_of_the_import_is_found_before_a_push(work: Path) -> None:
    with (work / DIRECTORY / "gate.py").open("a") as file:
        file.write("\n\nimport os\n\nos.environ['LOUD'] = '1'\n")
    commit(work)
    result = probed(work)
    assert result.outcome is Outcome.FAILED and any(finding.code.startswith("EFF_") for finding in result.findings)


def test_a_probe_waits_for_the_race_that_runs_on_this_machine(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Busy:
        asked = 0

        def probe(self, request: ProbeRequest, *_: object) -> ProbeResult:
            self.asked += 1
            if self.asked < 3:
                raise Postponed("the machine is taken", code="RUN_MACHINE_TAKEN", found="a race runs")
            return ProbeResult(
                jail=JailLevel.JAIL, entry_point_found=True, supported=(True,) * len(request.advertised),
                declined=("",) * len(request.advertised), refused=("no",) * len(request.refused), seconds=1.0,
            )  # fmt: skip

    monkeypatch.setattr(probing, "SubprocessRunner", Busy)
    monkeypatch.setattr(probing, "WAIT_SECONDS", 0.0)
    commit(work)
    assert probed(work).outcome is Outcome.PASSED
    assert capsys.readouterr().err.count("waiting: a race runs on this machine") == 1


def probes(parent: int) -> list[int]:
    """Children that probe; git comes and goes beside them."""
    found = []
    for pid in children(parent):
        with contextlib.suppress(OSError):
            if b"workers.probe" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_an_end_of_the_command_ends_the_probe(work: Path, how: signal.Signals) -> None:
    gate = (work / DIRECTORY / "gate.py").read_text()
    put(work, f"{DIRECTORY}/gate.py", f"import time\n\ntime.sleep(100)\n{gate}")
    command = [sys.executable, "-m", "gatekeeper", *commit(work), "--probe"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stderr is not None
    try:
        assert b"probing" in process.stderr.readline()
        deadline = time.monotonic() + 60
        while not (workers := probes(process.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        [worker] = workers
        process.send_signal(how)
        assert process.wait(60) == 130 and not alive(worker)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
