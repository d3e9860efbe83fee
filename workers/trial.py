"""Puts a jail on trial: plants what must not be reached, lets a canary loose in it, and says what the canary reached."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatekeeper.domain.errors import Retryable
from workers import canary, launch
from workers.cgroups import Cgroup
from workers.jailed import Ended, Ending

if TYPE_CHECKING:
    from workers.jail import Jail

TEXT = Path(canary.__file__).read_text(encoding="utf-8")
MEMORY, PROCESSES, FILE_SIZE, OPEN_FILES, SCRATCH = 96 << 20, 24, 4 << 20, 40, 8 << 20
"""Limits of the trial: small, so that going beyond them is quick and harms nobody where they do not hold. Bytes and counts."""
SECONDS = 20.0
HIDDEN = ("/etc/passwd", "/etc/shadow", "/boot", "/home", "/media", "/mnt", "/root", "/run", "/srv", "/var")
SEALED = ("/", "/dev", "/proc", "/proc/sys/kernel", "/runner", "/sys", "/sys/devices/system/cpu", "/usr", "/usr/lib")


def complaint(jail: Jail) -> str | None:
    """Return what is wrong with a jail, None if a canary inside it was held as it should be.

    A canary that does not come to its end, or does not try everything, is a complaint too.
    """
    token = secrets.token_hex(16)
    try:
        with _planted(jail, token) as order:
            ended = _loose(jail, order)
            wrong = _reached(ended, order)
            wrong += [] if ended.leftovers else ["a process that was left behind was not noticed"]
            wrong += [f"process {pid} lived on" for pid in _alive(token)]
    except (Retryable, OSError, TimeoutError) as error:
        return str(error)
    return "; ".join(wrong) or None


def bounds() -> set[str]:
    """Return which bounds hold for a whole tree of processes here: ``memory``, ``processes``, both or none."""
    group = Cgroup.create(f"{os.getpid()}-bounds-{secrets.token_hex(4)}", memory=MEMORY, processes=PROCESSES)
    try:
        return {"processes" if controller == "pids" else controller for controller in group.bounds}
    finally:
        group.remove()


def holds(jail: Jail) -> set[str]:
    """Return what has to hold in this jail; see ``canary.attempt``."""
    kinds = {"always"}
    if jail.separate:
        kinds |= {"jail", "user", "processes"}
    elif jail.own_user:
        kinds |= {"process", "user", "processes"}
    return kinds | (bounds() if jail.control_groups else set())


@contextlib.contextmanager
def _planted(jail: Jail, token: str) -> Iterator[dict[str, Any]]:
    """Plant a secret in this process's environment, in that of another process and in a file; listen on two sockets."""
    secret, abstract = f"planted-{token[::-1]}", f"gatekeeper-canary-{token}"
    os.environ["GATEKEEPER_CANARY"] = secret
    with contextlib.ExitStack() as stack:
        stack.callback(os.environ.pop, "GATEKEEPER_CANARY", None)
        file = stack.enter_context(tempfile.NamedTemporaryFile(prefix="gatekeeper-canary-"))
        os.fchmod(file.fileno(), 0o644)
        other = subprocess.Popen(
            ["/bin/sleep", str(2 * SECONDS)],
            env={"SECRET": secret},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        stack.callback(other.wait)
        stack.callback(other.kill)
        service, near = stack.enter_context(socket.socket()), stack.enter_context(socket.socket(socket.AF_UNIX))
        service.bind(("127.0.0.1", 0))
        near.bind("\0" + abstract)
        for each in (service, near):
            each.listen()
        yield {
            "holds": sorted(holds(jail)),
            "secret": secret,
            "token": token,
            "hidden": [file.name, *(path for path in HIDDEN if not _leads_to_ours(path))],
            "sealed": [*SEALED, *_packages()],
            "harness": os.getpid(),
            "port": service.getsockname()[1],
            "abstract": abstract,
            "devices": [],
            "calls": launch.numbers(os.uname().machine),
            "memory": MEMORY,
            "processes": PROCESSES,
            "file_size": FILE_SIZE,
            "open_files": OPEN_FILES,
            "scratch": SCRATCH,
        }


def _packages() -> list[str]:
    """Return where this interpreter and its packages lie. What else is on the path of imports is not shown in the jail."""
    packages = [place for place in sys.path if place.endswith(("site-packages", "dist-packages"))]
    return [sys.prefix, sys.base_prefix, *packages]


def _leads_to_ours(path: str) -> bool:
    """Whether the interpreter lies below a directory, which the jail then has to show, though nothing else in it."""
    return any(Path(place).is_relative_to(path) for place in _packages())


def _loose(jail: Jail, order: dict[str, Any]) -> Ended:
    from workers.jail import Limits

    limits = Limits(memory=MEMORY, processes=PROCESSES, file_size=FILE_SIZE, open_files=OPEN_FILES, scratch=SCRATCH)
    return jail.start([jail.python, "-I", "-S", "-c", TEXT, json.dumps(order)], limits=limits).finish(SECONDS)


def _reached(ended: Ended, order: dict[str, Any]) -> list[str]:
    wanted = {name for name, (needs, _) in canary.ATTEMPTS.items() if needs in order["holds"]}
    try:
        said = json.loads(ended.log.strip().splitlines()[-1])
        tried, reached = set(said["tried"]), [str(each) for each in said["reached"]]
    except (ValueError, IndexError, KeyError, TypeError):
        return [f"the canary did not come to its end: {ended.how.value} {ended.status}: {ended.log.strip()[-300:]}"]
    missing = sorted(wanted - tried)
    if ended.how is not Ending.EXITED or ended.status or missing:
        reached.append(
            f"the canary {ended.how.value} ({ended.status}) and did not try {', '.join(missing) or 'nothing'}"
        )
    return reached


def _alive(token: str) -> list[int]:
    """Return the processes of this machine that still carry the token of the trial in their command line."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid():
            with contextlib.suppress(OSError):
                if token.encode() in (place / "cmdline").read_bytes():
                    found.append(int(place.name))
    return found
