"""Worker programs of every temper: honest, crashing, hanging, babbling. Only a parsed result is an answer."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.backends.machine import Machine, beside_a_race
from gatekeeper.backends.subprocesses import SubprocessRunner
from gatekeeper.domain.errors import Conflict, Postponed, Rejected, Retryable
from gatekeeper.domain.race import ProbeRequest, TreeSource

REQUEST = ProbeRequest(
    source=TreeSource(repository_id=7, tree="a" * 40, directory="pkg/special", entry_point="pkg.special.gate:candidate")
)
ANSWER = '{"jail": "process", "entry_point_found": true, "seconds": 0.5}'
READ = "import json, os, sys, time; request = json.load(sys.stdin); "


PLACES: list[Path] = []


@pytest.fixture(autouse=True)
def place(tmp_path: Path) -> Iterator[Path]:
    """Scratch of this test alone, so that nothing outside it holds the machine; empty again when the test ends."""
    PLACES.append(tmp_path / "scratch")
    yield PLACES[-1]
    assert list(PLACES.pop().glob("run-*")) == []


def runner(program: str, seconds: float = 20) -> SubprocessRunner:
    machine = Machine(PLACES[-1])
    return SubprocessRunner(probe_seconds=seconds, probe_program=("-c", program), machine=machine)


@contextmanager
def exported(source: TreeSource, place: Path) -> Iterator[Path]:
    assert place.is_dir()
    yield Path("/exported") / source.tree


def probe(
    made: SubprocessRunner, events: list[Mapping[str, Any]] | None = None, stop: threading.Event | None = None
) -> Any:
    return made.probe(REQUEST, exported, (events if events is not None else []).append, stop or threading.Event())


def test_request_goes_in_result_comes_out_progress_is_passed_on() -> None:
    program = READ + (
        "print('plain words', file=sys.stderr);"
        "print(json.dumps({'event': 'tree', 'arguments': sys.argv[1:], 'entry': request['source']['entry_point']}),"
        " file=sys.stderr);"
        f"print('{ANSWER}')"
    )
    events: list[Mapping[str, Any]] = []
    result = probe(runner(program), events)
    assert result.entry_point_found and result.seconds == 0.5
    assert [dict(event) for event in events] == [
        {"event": "tree", "arguments": ["--tree", f"/exported/{'a' * 40}"], "entry": "pkg.special.gate:candidate"}
    ]


def test_the_worker_sees_no_secret_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEKEEPER_WEBHOOK_SECRET", "do not tell")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "do not tell")
    program = (
        READ + f"print(json.dumps({{'event': 'env', 'names': list(os.environ)}}), file=sys.stderr); print('{ANSWER}')"
    )
    events: list[Mapping[str, Any]] = []
    probe(runner(program), events)
    names = set(events[0]["names"])
    assert "PATH" in names and not names & {"GATEKEEPER_WEBHOOK_SECRET", "AWS_SECRET_ACCESS_KEY"}


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (READ + "print('cannot go on', file=sys.stderr); sys.exit(3)", "RUN_CRASHED"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "RUN_CRASHED"),
        (READ + "print('no json')", "RUN_BAD_RESULT"),
        (READ + "print('{}')", "RUN_BAD_RESULT"),
        (READ + f'print(\'{ANSWER[:-1]}, "verdict": "passed"}}\')', "RUN_BAD_RESULT"),
        ("pass", "RUN_BAD_RESULT"),
    ],
)
def test_any_other_ending_is_retried_and_never_an_answer(program: str, code: str) -> None:
    with pytest.raises(Retryable, match=code):
        probe(runner(program))


def test_a_hanging_worker_is_killed_with_everything_that_it_started(tmp_path: Path) -> None:
    note = tmp_path / "child"
    program = (
        "import os, subprocess, sys, time; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        f"open({str(note)!r}, 'w').write(str(child.pid)); time.sleep(600)"
    )
    begun = time.monotonic()
    with pytest.raises(Retryable, match="RUN_TIMEOUT"):
        probe(runner(program, seconds=2))
    assert time.monotonic() - begun < 15
    assert gone(int(note.read_text()))


def test_closing_kills_what_runs_and_refuses_more() -> None:
    made = runner(
        "import json, sys, time; print(json.dumps({'event': 'up'}), file=sys.stderr); time.sleep(600)", seconds=60
    )
    up, errors = threading.Event(), []

    def work() -> None:
        try:
            made.probe(REQUEST, exported, lambda event: up.set(), threading.Event())
        except Postponed as error:
            errors.append(error.code)

    thread = threading.Thread(target=work)
    thread.start()
    assert up.wait(20)
    made.close()
    thread.join(20)
    assert errors == ["RUN_STOPPED"], "a restart of the service is no failed attempt"
    with pytest.raises(Postponed, match="RUN_STOPPED"):
        probe(made)


def gone(pid: int) -> bool:
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        status = Path(f"/proc/{pid}/stat")
        if status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def test_an_error_that_the_worker_names_is_kept_as_the_reason() -> None:
    event = "{'event': 'error', 'code': 'RACE_TREE', 'message': 'files differ'}"
    with pytest.raises(Retryable, match="RACE_TREE"):
        probe(runner(READ + f"print(json.dumps({event}), file=sys.stderr); sys.exit(3)"))


@pytest.mark.parametrize(
    "text", ["{'event': 'error', 'code': 'RACE_ORDER', 'message': 'no such model'}", "'usage: ...'"]
)
def test_a_refused_order_is_not_tried_again(text: str) -> None:
    program = READ + f"print({text} if isinstance({text}, str) else json.dumps({text}), file=sys.stderr); sys.exit(2)"
    with pytest.raises(Rejected, match="RUN_REFUSED") as refused:
        probe(runner(program))
    assert ("RACE_ORDER" in refused.value.found) or ("usage" in refused.value.found)


def test_a_run_that_nobody_waits_for_is_killed_with_everything_that_it_started(tmp_path: Path) -> None:
    note, stop = tmp_path / "child", threading.Event()
    # The child has a process group of its own, which a signal to the worker's group does not reach.
    program = READ + (
        "import subprocess; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], process_group=0);"
        f"open({str(note)!r}, 'w').write(str(child.pid)); print(json.dumps({{'event': 'up'}}), file=sys.stderr);"
        "time.sleep(600)"
    )
    begun = time.monotonic()
    with pytest.raises(Conflict, match="RUN_STOPPED"):
        runner(program, seconds=60).probe(REQUEST, exported, lambda event: stop.set(), stop)
    assert time.monotonic() - begun < 30
    assert gone(int(note.read_text()))


def test_what_a_killed_worker_leaves_in_its_scratch_folder_goes_with_it() -> None:
    program = READ + (
        "import tempfile; made = tempfile.mkdtemp(prefix='gatekeeper-runner-');"
        "print(json.dumps({'event': 'made', 'folder': made}), file=sys.stderr); os.kill(os.getpid(), 9)"
    )
    events: list[Mapping[str, Any]] = []
    with pytest.raises(Retryable, match="RUN_CRASHED"):
        probe(runner(program), events)
    folder = Path(events[0]["folder"])
    assert folder.is_relative_to(PLACES[-1]) and not folder.exists()


def test_a_probe_does_not_start_while_a_race_holds_the_machine() -> None:
    made = SubprocessRunner(
        probe_program=("-c", READ + f"print('{ANSWER}')"), machine=Machine(PLACES[-1]), turn_seconds=0.5
    )
    with Machine(PLACES[-1]).racing(), pytest.raises(Postponed):
        probe(made)
    assert probe(made).entry_point_found


def test_a_probe_waits_a_little_for_the_machine() -> None:
    made = runner(READ + f"print('{ANSWER}')")
    begun = threading.Event()

    def race() -> None:
        with Machine(PLACES[-1]).racing():
            begun.set()
            time.sleep(1)

    thread = threading.Thread(target=race)
    thread.start()
    assert begun.wait(10)
    assert probe(made).entry_point_found
    thread.join()


def test_a_run_that_is_no_longer_wanted_does_not_wait_for_the_machine() -> None:
    made, stop = runner(READ + f"print('{ANSWER}')"), threading.Event()
    stop.set()
    before = time.monotonic()
    with Machine(PLACES[-1]).racing(), pytest.raises(Postponed):
        probe(made, stop=stop)
    assert time.monotonic() - before < 4


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core cannot be kept free")
def test_a_worker_may_use_every_core_also_while_this_process_stands_aside() -> None:
    program = READ + (
        "import os; print(json.dumps({'event': 'cores', 'found': sorted(os.sched_getaffinity(0))}), file=sys.stderr);"
        f"print('{ANSWER}')"
    )
    made, usable = runner(program), os.sched_getaffinity(0)
    events: list[Mapping[str, Any]] = []
    with beside_a_race(usable):
        probe(made, events)
        assert os.sched_getaffinity(0) == usable - {max(usable)}
    assert events[0]["found"] == sorted(usable)
