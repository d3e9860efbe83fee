"""The harness of ``gatekeeper race``: a process of its own, since the service never imports the GPU side, and its progress."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Protocol

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from gatekeeper.catalog import ROOT
from gatekeeper.cli.faults import printable
from gatekeeper.domain.errors import GatekeeperError, Rejected, Retryable
from gatekeeper.domain.race import RaceOrder, RaceResult

REFUSED, NOT_NOW = 2, 3
"""Exit statuses of the harness: it refuses the order, or this machine cannot race it now."""
HARNESS = (sys.executable, "-m", "workers.race")
LONGEST_TOLD = 500


class Told(Protocol):
    """Somebody who is told what the harness is doing."""

    def __call__(self, event: dict[str, Any], /) -> None:
        """Take one event."""


def run(order: RaceOrder, harness: tuple[str, ...] = HARNESS) -> RaceResult:
    """Run the harness and show its progress.

    Raises:
        Retryable: if this machine cannot race now.
        Rejected: if the harness refuses the order.
        GatekeeperError: ``RACE_HARNESS`` if it ends without a result; the last line that it said is what was found.
    """
    with tempfile.TemporaryFile() as answer:
        return _run(order, harness, answer)


def _run(order: RaceOrder, harness: tuple[str, ...], answer: IO[bytes]) -> RaceResult:
    # A file, not a second pipe: a result is larger than what a pipe holds, and the progress is read to its end first.
    process = subprocess.Popen(harness, cwd=ROOT, stdin=subprocess.PIPE, stdout=answer, stderr=subprocess.PIPE)
    assert process.stdin and process.stderr
    last: dict[str, Any] = {}
    said = ""
    try:
        process.stdin.write(order.model_dump_json().encode())
        process.stdin.close()
        with _shown(order.request.rules.looks[-1] + order.request.rules.control_blocks) as tell:
            for line in process.stderr:
                event = _event(line)
                if event is None:
                    said = line.decode("utf-8", "replace").strip()[:LONGEST_TOLD] or said
                    continue
                last = event
                tell(event)
        code = process.wait()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if code != 0:
        raise _ended(code, last if last.get("event") == "error" else {}, said)
    answer.seek(0)
    return RaceResult.model_validate_json(answer.read())


def _ended(code: int, error: dict[str, Any], said: str) -> GatekeeperError:
    kind = {REFUSED: Rejected, NOT_NOW: Retryable}.get(code, GatekeeperError)
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    if not error:
        return kind(f"the harness {how}", code="RACE_HARNESS", expected="a result", found=said or "no message")
    told = {name: str(error.get(name, "")) for name in ("code", "expected", "found")}
    return kind(str(error.get("message", f"the harness {how}")), **told)


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


@contextmanager
def _shown(blocks: int) -> Iterator[Told]:
    """Yield what shows progress on standard error: a bar on a terminal, a line for each step elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(blocks)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("scope and correctness", total=blocks)
        done = 0

        def tell(event: dict[str, Any]) -> None:
            nonlocal done
            done = max(done, int(event.get("done", 0)))  # an event that is no block does not set the bar back
            bar.update(task, completed=done, description=described(event, blocks))

        yield tell


class _Lines:
    """Progress in a pipe."""

    def __init__(self, blocks: int) -> None:
        self._blocks, self._began = blocks, time.monotonic()

    def __call__(self, event: dict[str, Any]) -> None:
        if event.get("event") not in ("error", "end"):  # these are told as the answer
            seconds = time.monotonic() - self._began
            click.echo(f"{seconds:6.1f} s  {printable(described(event, self._blocks))}", err=True)


def described(event: dict[str, Any], blocks: int) -> str:
    """Return one line about what the harness has just done, and what it does next."""
    kind = event.get("event")
    if kind == "start":
        return "starting both arms"
    if kind == "supports":
        return f"supports() answered about every shape ({event.get('asked')}); comparing with the reference"
    if kind == "correctness":
        return f"{event.get('chains')} untimed runs compared with the reference"
    if kind == "boundaries":
        return f"{event.get('points')} configurations at edges tried"
    if kind == "block":
        control = " (A/A control)" if event.get("control") else ""
        return f"block {event.get('done')} of at most {blocks} timed{control}"
    if kind == "look":
        shown = ", ".join(f"{label}: ratio {ratio}" for label, ratio in dict(event.get("estimate", {})).items())
        return f"look at {event.get('blocks')} blocks: {shown}"
    return str(kind)
