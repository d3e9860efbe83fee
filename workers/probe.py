"""Probes a directory: ``python -m workers.probe --tree DIR < request.json > result.json``. DIR holds the request's directory.

Three jailed processes answer: one imports the entry point and is asked ``supports()`` for every configuration, one imports the
modules that a machine without GPU packages has to be able to import, one builds the candidate and runs a few steps. What is
gathered inside the candidate's own process can be forged by a candidate that expects it; what this half sees for itself (files
left in the scratch directory, processes left behind, an answer that is late, incomplete or malformed) cannot. No exit status
counts: without a complete answer there is a fault. A process that never came to the point of touching the candidate is the
machine's failure, not the candidate's.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import select
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gatekeeper.domain.catalog import JailLevel
from gatekeeper.domain.errors import GatekeeperError, Rejected, Retryable
from gatekeeper.domain.race import ProbeFault, ProbeRequest, ProbeResult
from workers import probe_wire as wire
from workers import scratch as filled
from workers.jail import Bind, Jail, find_jail
from workers.jailed import Ended
from workers.probe_imports import guard_order, imported_by, packages
from workers.probe_named import named_modules
from workers.probe_running import steps_order
from workers.sources import code_of

GPU_PACKAGES = ("cutlass", "cuda", "cupy", "triton", "flashinfer", "flydsl", "aiter", "deep_gemm", "flash_attn", "pynvml",
                "tilelang", "tvm_ffi", "nvidia_cutlass_dsl", "deep_ep", "nvshmem", "pycuda", "numba")  # fmt: skip
"""Top-level packages that a machine without that vendor's GPU does not have."""
START_SECONDS = 60.0
IMPORT_SECONDS = 120.0
SUPPORTS_SECONDS = 5.0
STEPS_SECONDS = 60.0
LOOK_SECONDS = 0.25
"""How often the scratch directory is looked at while an answer is waited for: it has no size of its own."""
CHILD = ("probe_asking.py", "probe_child.py", "probe_effects.py", "probe_guard.py", "probe_modules.py", "probe_objects.py",
         "probe_settings.py", "probe_stand_ins.py", "probe_steps.py", "probe_switch.py", "probe_watch.py",
         "probe_wire.py")  # fmt: skip
CONTRACT = "kernels_under_test/contract.py"
"""Holds the class of shapes: a candidate meets the same one in a race."""
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Timeouts:
    """Seconds for each part of a probe."""

    start: float = START_SECONDS
    imports: float = IMPORT_SECONDS
    supports: float = SUPPORTS_SECONDS
    steps: float = STEPS_SECONDS


@dataclass
class Found:
    """What has been seen so far."""

    entry_point: bool = False
    answers: list[tuple[int, str]] = field(default_factory=list)
    faults: list[ProbeFault] = field(default_factory=list)

    def add(self, code: str, where: str, expected: str, found: str) -> None:
        """Note a fault, once."""
        fault = ProbeFault(code=code, where=where[:500], expected=expected[:500], found=found[:1000])
        if fault not in self.faults:
            self.faults.append(fault)

    def take(self, faults: list[wire.Fault]) -> None:
        """Note the faults that the jailed half told of; a code of its own making is one more fault."""
        for code, where, expected, found in faults:
            known = code.startswith(("EFF_", "SCOPE_")) and code.replace("_", "").isascii() and code.isupper()
            self.add(code if known and code.replace("_", "").isalpha() else "PROBE_ANSWER", where, expected, found)


def probe(request: ProbeRequest, tree: Path, *, minimum: JailLevel = JailLevel.PROCESS,
          timeouts: Timeouts | None = None, jail: Jail | None = None) -> ProbeResult:  # fmt: skip
    """Probe the directory that lies in ``tree`` and return what was found.

    Raises:
        Retryable: if no jail works here, the files are not those of the request, or a process could not be started.
        Rejected: if the request names a problem that this installation does not have.
    """
    started = time.monotonic()
    jail = jail or find_jail(minimum)
    timeouts = timeouts or Timeouts()
    code_of(request.source, tree)  # proves the tree id
    found = Found()
    with _stage(request, tree) as (code, scratch):
        with ExitStack() as stack:
            # All start before any is asked: most of a probe is processes that load torch.
            supports = stack.enter_context(_Child(jail, code, scratch, "supports", _supports_order(request, code)))
            platform = None
            if request.platform_modules:
                order = {"absent": GPU_PACKAGES, **_common(request, code)}
                platform = stack.enter_context(_Child(jail, code, scratch, "platform", order))
            built = stack.enter_context(_built(request, jail, code))
            _supports(request, supports, timeouts, found)
            if platform is not None:
                _platform(request, platform, timeouts, found)
            if built is not None and found.entry_point:
                _steps(built, timeouts, found)
        for child in (supports, platform):
            _left(child.ended if child else None, found)
        _files(scratch, found)
    served = len(request.advertised)
    complete = len(found.answers) == served + len(request.refused)
    answers = found.answers if complete else []
    _raised(request, answers, found)
    return ProbeResult(
        jail=jail.level,
        entry_point_found=found.entry_point,
        faults=tuple(found.faults),
        supported=tuple(kind == wire.SERVES for kind, _ in answers[:served]),
        declined=tuple(reason for _, reason in answers[:served]),
        refused=tuple(reason if kind == wire.DECLINES else "" for kind, reason in answers[served:]),
        seconds=time.monotonic() - started,
    )


def facts_of(request: ProbeRequest) -> dict[str, Any]:
    """Return the facts of the request's problem; empty where it names none."""
    if request.model is None:
        return {}
    module, name = request.model.split(":")
    return dict(getattr(importlib.import_module(module), name)(request.problem).facts)


@contextmanager
def _stage(request: ProbeRequest, tree: Path) -> Iterator[tuple[Path, Path]]:
    """Copy the tree to where any user id may read it, beside an empty scratch directory that any may write."""
    place = Path(tempfile.mkdtemp(prefix="gatekeeper-probe-"))
    try:
        place.chmod(0o755)
        code, scratch, runner = place / "tree", place / "scratch", place / "runner"
        shutil.copytree(tree / request.source.directory, code / request.source.directory)
        runner.mkdir()
        for name in (*CHILD, f"../{CONTRACT}"):
            shutil.copyfile(HERE / name, runner / Path(name).name)
        for path in (code, runner, *code.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        scratch.mkdir()
        scratch.chmod(0o777)
        yield code, scratch
    finally:
        filled.remove(place)


def _supports_order(request: ProbeRequest, code: Path) -> dict[str, Any]:
    return {
        **guard_order(request, code),
        "packages": packages(code, request.source.directory),
        "named": named_modules(code, request.source.directory),
        "facts": facts_of(request),
        "shapes": [c.model_dump(mode="json") for c in (*request.advertised, *request.refused)],
        **_common(request, code),
    }


def _supports(request: ProbeRequest, child: _Child, timeouts: Timeouts, found: Found) -> None:
    shapes = len(request.advertised) + len(request.refused)
    child.greet(timeouts.start)
    try:
        found.entry_point, faults = wire.Reader(child.frame(wire.IMPORTED, timeouts.imports)).imported()
        found.take(faults)
        found.answers = wire.Reader(child.frame(wire.ANSWERS, timeouts.supports)).answers(
            shapes if found.entry_point else 0
        )
        found.take(wire.Reader(child.frame(wire.LATE, timeouts.imports)).faults())
    except (wire.Malformed, _NoAnswer) as error:
        found.add("SCOPE_SUPPORTS" if found.entry_point else "SCOPE_ENTRY_POINT", request.source.entry_point,
                  "a complete answer of the import and of supports()", f"{error}; {child.epitaph()}")  # fmt: skip


def _platform(request: ProbeRequest, child: _Child, timeouts: Timeouts, found: Found) -> None:
    child.greet(timeouts.start)
    try:
        found.take(wire.Reader(child.frame(wire.PLATFORM, timeouts.imports)).faults())
    except (wire.Malformed, _NoAnswer) as error:
        found.add("SCOPE_PLATFORM", ", ".join(request.platform_modules), "imports without the GPU packages",
                  f"{error}; {child.epitaph()}")  # fmt: skip


@contextmanager
def _built(request: ProbeRequest, jail: Jail, code: Path) -> Iterator[_Child | None]:
    """Start the process that builds the candidate, with a scratch directory of its own: whoever compiles writes files."""
    order = steps_order(request, code.parent / "runner")
    if order is None:
        yield None
        return
    scratch = code.parent / "built"
    scratch.mkdir()
    scratch.chmod(0o777)
    data = jail.inside(Bind(code.parent / "runner", "/runner/probe"), "tensors.bin")
    order |= {"data": data, "facts": facts_of(request), **_common(request, code)}
    with _Child(jail, code, scratch, "steps", order, script="probe_steps.py") as child:
        yield child


def _steps(child: _Child, timeouts: Timeouts, found: Found) -> None:
    """Note what stays switched after the candidate was built and ran. One that does not come to an end is the race's fault to tell."""
    child.greet(timeouts.start)
    try:
        found.take(wire.Reader(child.frame(wire.PLATFORM, timeouts.steps)).faults())
    except wire.Malformed as error:
        found.add("PROBE_ANSWER", "build() and a few steps", "an answer in the layout", str(error))
    except _NoAnswer:
        return


def _common(request: ProbeRequest, code: Path) -> dict[str, Any]:
    """What either jailed process has to know. ``modules`` are those that files outside the directory import by name."""
    source = request.source
    return {"entry_point": source.entry_point, "package": source.directory.replace("/", "."),
            "modules": request.platform_modules, "preload": imported_by(code, source.directory)}  # fmt: skip


def _raised(request: ProbeRequest, answers: list[tuple[int, str]], found: Found) -> None:
    for (kind, reason), shape in zip(answers, (*request.advertised, *request.refused), strict=False):
        if kind == wire.RAISED:
            found.add("SCOPE_SUPPORTS", shape.label, "an answer: None or a reason", reason)
        elif kind == wire.DECLINES and not reason.strip():
            found.add("SCOPE_SUPPORTS", shape.label, "a reason", "an empty text")


def _left(ended: Ended | None, found: Found) -> None:
    if ended is None:
        return
    if ended.leftovers:
        found.add("EFF_BACKGROUND_WORK", "processes", "none left", f"{ended.leftovers} left")
    for code in ended.hit:
        found.add(code, "the whole process tree", "to stay within the limits of the jail", "a limit was reached")


def _files(scratch: Path, found: Found) -> None:
    """Name what lies in the scratch directory. An empty directory, as libraries make for their caches, harms nobody."""
    seen = filled.look(scratch)
    if seen.over is not None:
        found.add("EFF_FILES", "the scratch directory", "no file is written at import", seen.over)
    for path in sorted(seen.files)[:20]:
        found.add("EFF_FILES", path, "no file is written at import", "a file")


class _NoAnswer(Exception):
    """The jailed half did not answer."""


class _Child:
    """One jailed process with the pipe that it answers on."""

    def __init__(self, jail: Jail, code: Path, scratch: Path, phase: str, order: dict[str, Any],
                 script: str = "probe_child.py") -> None:  # fmt: skip
        self._scratch = scratch
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        runner = Bind(code.parent / "runner", "/runner/probe")
        tree, writable = Bind(code, "/tree"), Bind(scratch, "/scratch", writable=True)
        inside = jail.inside(writable)
        file = code.parent / "runner" / f"{phase}.json"
        file.write_text(
            json.dumps({**order, "phase": phase, "channel": write, "root": jail.inside(tree)}), encoding="utf-8"
        )
        file.chmod(0o644)
        argv = [jail.python, "-I", "-P", "-B", "--check-hash-based-pycs", "always",
                jail.inside(runner, script), jail.inside(runner, file.name)]  # fmt: skip
        environment = {"HOME": inside, "TMPDIR": inside, "PYTHONDONTWRITEBYTECODE": "1"}
        self.ended: Ended | None = None
        self._log = os.memfd_create("log", os.MFD_CLOEXEC)
        try:
            self._process = jail.start(
                argv, binds=(runner, tree, writable), pass_fds=(write,), environment=environment, log=self._log
            )
        except BaseException:
            self._close()
            raise
        finally:
            os.close(write)

    def greet(self, timeout: float) -> None:
        """Wait until the process is about to touch foreign code.

        Raises:
            Retryable: if it never comes to that point, which is the machine's failure.
        """
        try:
            self.frame(wire.HELLO, timeout)
        except (wire.Malformed, _NoAnswer) as error:
            self.ended = self._process.kill()
            log = self._printed()
            raise Retryable(
                "the probe's process did not start", code="PROBE_START", expected="a greeting before foreign code",
                found=f"{error}; {self.ended.how.value} {self.ended.status}: {log}",
            ) from error  # fmt: skip

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        if self.ended is None:
            self.ended = self._process.finish(1.0)
        self._close()

    def frame(self, kind: int, timeout: float) -> bytes:
        """Return the payload of the next frame, which has to be of this kind."""
        deadline = time.monotonic() + timeout
        found, length = wire.HEADER.unpack(self._exactly(wire.HEADER.size, deadline))
        if found != kind or length > wire.LARGEST:
            raise wire.Malformed(f"expected a frame of kind {kind}; found kind {found} with {length} bytes")
        return self._exactly(length, deadline)

    def epitaph(self) -> str:
        """Return how the process ended: for display, never for a decision."""
        self.ended = self.ended or self._process.finish(0.5)
        return f"the process {self.ended.how.value} ({self.ended.status}); it printed: {self._printed()!r}"

    def _printed(self) -> str:
        size = os.fstat(self._log).st_size
        return os.pread(self._log, 300, max(0, size - 300)).decode("utf-8", "replace").strip()

    def _exactly(self, count: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < count:
            left = deadline - time.monotonic()
            if left <= 0:
                raise _NoAnswer("no answer in time")
            if not select.select([self._read], [], [], min(left, LOOK_SECONDS))[0]:
                if (over := filled.look(self._scratch).over) is not None:
                    raise _NoAnswer(f"it filled its scratch directory with {over}")
                continue
            part = os.read(self._read, min(count - len(data), 1 << 16))
            if not part:
                raise _NoAnswer("the answer was broken off")
            data += part
        return bytes(data)

    def _close(self) -> None:
        os.close(self._read)
        os.close(self._log)


def main() -> int:
    """Read a request from standard input, write the result to standard output.

    Exit status: 0 done, 2 the request is refused and would be again, 75 another try later may do, 1 anything else.
    """
    parser = argparse.ArgumentParser(prog="python -m workers.probe", description="Probe one directory in a jail.")
    parser.add_argument("--tree", type=Path, required=True, help="directory that holds the request's directory")
    parser.add_argument("--minimum-jail", type=JailLevel, default=JailLevel.PROCESS)
    arguments = parser.parse_args()
    try:
        request = ProbeRequest.model_validate_json(sys.stdin.buffer.read())
    except ValueError as error:
        sys.stderr.write(json.dumps({"event": "error", "code": "PROBE_ORDER", "message": str(error)[:2000]}) + "\n")
        return 2
    try:
        result = probe(request, arguments.tree, minimum=arguments.minimum_jail)
    except Retryable as error:
        sys.stderr.write(f"{error}\n")
        return 75
    except Rejected as error:
        sys.stderr.write(json.dumps({"event": "error", "code": error.code, "message": str(error)}) + "\n")
        return 2
    except (GatekeeperError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(result.model_dump_json())
    return 0


if __name__ == "__main__":
    sys.exit(main())
