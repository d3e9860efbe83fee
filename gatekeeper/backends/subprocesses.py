"""Races and probes as programs of this machine: JSON in on standard input, JSON out, progress as lines on standard error."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TypeVar

import structlog
from pydantic import ValidationError

from gatekeeper.context import Exported, Progress
from gatekeeper.domain.documents import Document
from gatekeeper.domain.errors import Rejected, Retryable
from gatekeeper.domain.race import CodeSource, ProbeRequest, ProbeResult, RaceOrder, RaceResult, TreeSource

ROOT = Path(__file__).resolve().parents[2]
# The worker sees these and nothing else: no database URL, no secret, no token of this service.
PASSED_ON = (
    "PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME",
    "OMP_NUM_THREADS", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE",
)  # fmt: skip
GRACE_SECONDS = 30.0
LARGEST_RESULT = 256 * 1024 * 1024
LONGEST_LINE = 64 * 1024
LOG = structlog.get_logger(__name__)
R = TypeVar("R", bound=Document)


class SubprocessRunner:
    """Starts ``python -m workers.race`` and ``python -m workers.probe``. Any ending but a parsed result is ``Retryable``."""

    def __init__(
        self,
        *,
        probe_seconds: float = 300.0,
        race_program: Sequence[str] = ("-m", "workers.race"),
        probe_program: Sequence[str] = ("-m", "workers.probe"),
        race_seconds: float | None = None,
    ) -> None:
        """``race_seconds`` overrides the longest race that a target's file allows, and the grace that is added to it."""
        self._probe_seconds = probe_seconds
        self._race_seconds = race_seconds
        self._race_program, self._probe_program = race_program, probe_program
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def race(self, order: RaceOrder, exported: Exported, progress: Progress) -> RaceResult:
        """Run a race; see :class:`gatekeeper.context.Runner`."""
        request = order.request
        seconds = self._race_seconds or request.target.longest_race_seconds + GRACE_SECONDS
        data = order.model_dump_json().encode()
        if isinstance(request.baseline, TreeSource):
            raise Rejected("a baseline is installed code", code="RACE_SOURCE", expected="installed", found="tree")
        return self._run(self._race_program, request.candidate, data, RaceResult, seconds, exported, progress)

    def probe(self, request: ProbeRequest, exported: Exported, progress: Progress) -> ProbeResult:
        """Run a probe; see :class:`gatekeeper.context.Runner`."""
        data = request.model_dump_json().encode()
        return self._run(
            self._probe_program, request.source, data, ProbeResult, self._probe_seconds, exported, progress
        )

    def close(self) -> None:
        """Kill what is still running; its jobs are tried again elsewhere or later. Nothing can be started afterwards."""
        with self._lock:
            self._closed = True
            for process in self._running:
                _kill_group(process)

    def _run(
        self,
        program: Sequence[str],
        source: CodeSource,
        data: bytes,
        cls: type[R],
        seconds: float,
        exported: Exported,
        progress: Progress,
    ) -> R:
        with contextlib.ExitStack() as stack:
            command = [sys.executable, *program]
            if isinstance(source, TreeSource):
                command += ["--tree", str(stack.enter_context(exported(source)))]
            answer = self._answer(command, data, seconds, progress)
        try:
            return cls.model_validate_json(answer)
        except ValidationError as error:
            raise Retryable(
                "the worker's answer is no result", code="RUN_BAD_RESULT",
                expected=cls.__name__, found=str(error.errors(include_input=False)[0])[:500],
            ) from error  # fmt: skip

    def _answer(self, command: list[str], data: bytes, seconds: float, progress: Progress) -> bytes:
        with self._lock:
            if self._closed:
                raise Retryable("this process is stopping", code="RUN_STOPPED")
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                cwd=ROOT, env=clean_environment(), start_new_session=True,
            )  # fmt: skip
            self._running.add(process)
        said: deque[str] = deque(maxlen=5)
        answer = bytearray()
        assert process.stdin and process.stdout and process.stderr
        threads = [
            threading.Thread(target=_feed, args=(process.stdin, data), daemon=True),
            threading.Thread(target=_collect, args=(process.stdout, answer), daemon=True),
            threading.Thread(target=_follow, args=(process.stderr, progress, said), daemon=True),
        ]
        try:
            for thread in threads:
                thread.start()
            try:
                status = process.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                raise Retryable(
                    "the worker did not end in time", code="RUN_TIMEOUT",
                    expected=f"an answer within {seconds:g} s", found="; ".join(said) or "no message",
                ) from None  # fmt: skip
        finally:
            # The group is killed in any case: a child that the worker left behind must not outlive the run.
            _kill_group(process)
            process.wait()
            for thread in threads:
                thread.join(timeout=10)
            with self._lock:
                self._running.discard(process)
        if status != 0 or len(answer) > LARGEST_RESULT:
            raise Retryable(
                "the worker died", code="RUN_CRASHED",
                expected=f"exit status 0 and at most {LARGEST_RESULT} bytes",
                found=f"exit status {status}, {len(answer)} bytes; {'; '.join(said) or 'no message'}"[:2000],
            )  # fmt: skip
        return bytes(answer)


def clean_environment() -> dict[str, str]:
    """Return the environment of a worker: the allow-listed variables that are set here, and where our code is."""
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {**passed, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


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
