"""Races and probes as programs of this machine: JSON in on standard input, JSON out, progress as lines on standard error."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

import structlog
from pydantic import ValidationError

from gatekeeper.backends.machine import Machine, beside_a_race, lane_of
from gatekeeper.context import Exported, Progress
from gatekeeper.domain.documents import Document
from gatekeeper.domain.errors import Conflict, Postponed, Rejected, Retryable
from gatekeeper.domain.race import CodeSource, ProbeRequest, ProbeResult, RaceOrder, RaceResult, TreeSource

ROOT = Path(__file__).resolve().parents[2]
# The worker sees these and nothing else: no database URL, no secret, no token of this service.
PASSED_ON = (
    "PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME",
    "OMP_NUM_THREADS", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE",
)  # fmt: skip
REFUSED = 2
"""Exit status of a worker that understood the order and refuses it: asked again, it would refuse it again."""
GRACE_SECONDS = 30.0
LOOK_SECONDS = 0.2
"""How often a running worker is looked at; once nobody waits for it any more, it is killed within this time."""
LARGEST_RESULT = 256 * 1024 * 1024
LONGEST_LINE = 64 * 1024
LOG = structlog.get_logger(__name__)
R = TypeVar("R", bound=Document)


@dataclass(frozen=True)
class _Work:
    """One run: the program and what it is given, how long it may take, who listens, and whether anybody still waits."""

    program: Sequence[str]
    source: CodeSource
    data: bytes
    seconds: float
    progress: Progress
    stop: threading.Event


class SubprocessRunner:
    """Starts ``python -m workers.race`` and ``python -m workers.probe``, each in a scratch folder of its own.

    An ending without a parsed result is ``Retryable``, but for a refusal of the order, which is ``Rejected``.
    """

    def __init__(
        self,
        *,
        probe_seconds: float = 300.0,
        race_program: Sequence[str] = ("-m", "workers.race"),
        probe_program: Sequence[str] = ("-m", "workers.probe"),
        race_seconds: float | None = None,
        machine: Machine | None = None,
        turn_seconds: float = 5.0,
    ) -> None:
        """``race_seconds`` overrides the longest race that a target's file allows, and the grace that is added to it.

        ``turn_seconds`` is how long a run waits for the machine before its job is put off.
        """
        self._turn_seconds = turn_seconds
        self._machine = machine or Machine()
        self._probe_seconds = probe_seconds
        self._race_seconds = race_seconds
        self._race_program, self._probe_program = race_program, probe_program
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._cores = os.sched_getaffinity(0)

    def race(self, order: RaceOrder, exported: Exported, progress: Progress, stop: threading.Event) -> RaceResult:
        """Run a race; see :class:`gatekeeper.context.Runner`."""
        request = order.request
        seconds = self._race_seconds or request.target.longest_race_seconds + GRACE_SECONDS
        data = order.model_dump_json().encode()
        if isinstance(request.baseline, TreeSource):
            raise Rejected("a baseline is installed code", code="RACE_SOURCE", expected="installed", found="tree")
        lane = lane_of(request.target)
        with self._turn(lambda: self._machine.racing(lane), stop), beside_a_race(self._cores):
            work = _Work(self._race_program, request.candidate, data, seconds, progress, stop)
            return self._run(work, RaceResult, exported)

    def probe(
        self, request: ProbeRequest, exported: Exported, progress: Progress, stop: threading.Event
    ) -> ProbeResult:
        """Run a probe; see :class:`gatekeeper.context.Runner`."""
        data = request.model_dump_json().encode()
        with self._turn(self._machine.probing, stop):
            work = _Work(self._probe_program, request.source, data, self._probe_seconds, progress, stop)
            return self._run(work, ProbeResult, exported)

    def close(self) -> None:
        """Kill what is still running; its jobs are put off, to be run elsewhere or later. Nothing can be started afterwards."""
        with self._lock:
            self._closed = True
            for process in self._running:
                _kill_session(process)

    def closed(self) -> bool:
        """Return whether this runner has been closed."""
        with self._lock:
            return self._closed

    @contextlib.contextmanager
    def _turn(
        self, hold: Callable[[], contextlib.AbstractContextManager[None]], stop: threading.Event
    ) -> Iterator[None]:
        """Hold the machine, waiting a little for it: most probes are over soon, and each postponement costs two writes."""
        deadline = time.monotonic() + self._turn_seconds
        with contextlib.ExitStack() as stack:
            while True:
                try:
                    stack.enter_context(hold())
                    break
                except Postponed:
                    if time.monotonic() > deadline or self.closed() or stop.wait(LOOK_SECONDS):
                        raise
            yield

    def _run(self, work: _Work, cls: type[R], exported: Exported) -> R:
        with contextlib.ExitStack() as stack:
            scratch = stack.enter_context(self._machine.scratch())
            command = [sys.executable, *work.program]
            if isinstance(work.source, TreeSource):
                command += ["--tree", str(stack.enter_context(exported(work.source, scratch)))]
            answer = self._answer(command, work, scratch)
        try:
            return cls.model_validate_json(answer)
        except ValidationError as error:
            raise Retryable(
                "the worker's answer is no result", code="RUN_BAD_RESULT",
                expected=cls.__name__, found=str(error.errors(include_input=False)[0])[:500],
            ) from error  # fmt: skip

    def _answer(self, command: list[str], work: _Work, scratch: Path) -> bytes:
        with self._lock:
            if self._closed:
                raise _stopping()
            # A child inherits from this thread, which may have been moved aside for the race.
            aside = os.sched_getaffinity(0)
            os.sched_setaffinity(0, self._cores)
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                cwd=ROOT, env=clean_environment(scratch), start_new_session=True,
            )  # fmt: skip
            self._running.add(process)
            os.sched_setaffinity(0, aside)
        said: deque[str] = deque(maxlen=5)
        answer = bytearray()
        assert process.stdin and process.stdout and process.stderr
        threads = [
            threading.Thread(target=_feed, args=(process.stdin, work.data), daemon=True),
            threading.Thread(target=_collect, args=(process.stdout, answer), daemon=True),
            threading.Thread(target=_follow, args=(process.stderr, work.progress, said), daemon=True),
        ]
        try:
            for thread in threads:
                thread.start()
            status = _ending(process, work)
        finally:
            # The whole session is killed in any case: a child that the worker left behind must not outlive the run.
            _kill_session(process)
            process.wait()
            for thread in threads:
                thread.join(timeout=10)
            with self._lock:
                self._running.discard(process)
        if status != 0 and self.closed():
            raise _stopping()
        _demand_an_answer(status, answer, said, work)
        return bytes(answer)


def _ending(process: subprocess.Popen[bytes], work: _Work) -> int | None:
    """Wait for the end of a worker. Returns its exit status, None if it took too long.

    Raises:
        Conflict: ``RUN_STOPPED`` if nobody waits for it any more.
    """
    deadline = time.monotonic() + work.seconds
    while True:
        try:
            return process.wait(timeout=LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            if work.stop.is_set():
                raise Conflict("nobody waits for this run any more", code="RUN_STOPPED") from None
            if time.monotonic() > deadline:
                return None


def _stopping() -> Postponed:
    """The error of a run that ends because this process does: a restart of the service is nobody's failed attempt."""
    return Postponed("this process is stopping", code="RUN_STOPPED")


def _demand_an_answer(status: int | None, answer: bytearray, said: deque[str], work: _Work) -> None:
    told = "; ".join(said) or "no message"
    if status is None:
        raise Retryable(
            "the worker did not end in time", code="RUN_TIMEOUT", expected=f"an answer within {work.seconds:g} s",
            found=told[:2000],
        )  # fmt: skip
    if status == REFUSED:
        raise Rejected(
            "the worker refuses the order", code="RUN_REFUSED",
            expected="an order that this worker understands and can carry out", found=told[:2000],
        )  # fmt: skip
    if status != 0 or len(answer) > LARGEST_RESULT:
        raise Retryable(
            "the worker died", code="RUN_CRASHED",
            expected=f"exit status 0 and at most {LARGEST_RESULT} bytes",
            found=f"exit status {status}, {len(answer)} bytes; {told}"[:2000],
        )  # fmt: skip


def clean_environment(scratch: Path) -> dict[str, str]:
    """Return the environment of a worker: the allow-listed variables that are set here, where our code is and where to scratch."""
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {
        **passed,
        "TMPDIR": str(scratch),
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    """Kill a worker, its process group, and whatever of its session has made a group of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in _session(process.pid):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _session(leader: int) -> list[int]:
    """Return the processes of a session. The leader's id is not given away while one of them is left or it is not waited for."""
    members = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            # The name may hold spaces and brackets; the session is the fourth field after it.
            if int((entry / "stat").read_bytes().rsplit(b")", 1)[1].split()[3]) == leader:
                members.append(int(entry.name))
    return members


def _feed(pipe: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(OSError), pipe:  # a worker that died early closes the pipe; its exit status tells
        pipe.write(data)


def _collect(pipe: IO[bytes], answer: bytearray) -> None:
    with pipe:
        while chunk := pipe.read(1 << 16):
            if len(answer) <= LARGEST_RESULT:
                answer += chunk


def _follow(pipe: IO[bytes], progress: Progress, said: deque[str]) -> None:
    with pipe:
        while line := pipe.readline(LONGEST_LINE):
            text = line.decode("utf-8", "replace").strip()
            try:
                event = json.loads(text)
            except ValueError:
                event = None
            if not isinstance(event, dict) or "event" not in event:
                said.append(text[:500])
                continue
            if event["event"] == "error":
                said.append(text[:500])
            try:
                progress(event)
            except Exception:
                LOG.warning("run.progress_failed", exc_info=True)
