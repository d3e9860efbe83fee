"""The canary: a candidate that tries everything a jail has to refuse, and says what it reached. Harmless where it succeeds.

It is run by its text (``python -c``) inside the jail that is on trial, so it imports the standard library only. Its one argument
is the order in JSON that ``workers/trial.py`` writes. Its last line is JSON: ``tried`` and ``reached``, lists of names.
"""

# ruff: noqa: ARG001, PTH108, PTH112, PTH115, PTH118, PTH123, PTH208  (attempts share one signature; pathlib takes long to load)
from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import resource
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable
from typing import Any

Order = dict[str, Any]
Attempt = Callable[[Order], "bool | str"]
ATTEMPTS: dict[str, tuple[str, Attempt]] = {}
"""Name to (what must hold for it to be tried, the attempt). An attempt returns what it reached, or raises OSError."""
PLAIN_DEVICES = {"console", "core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
                 "urandom", "zero"}  # fmt: skip
NO_WAY = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.EPERM, errno.EACCES, errno.EAFNOSUPPORT)
CHUNK = 1 << 20


def attempt(name: str, needs: str = "always") -> Callable[[Attempt], Attempt]:
    """Register an attempt. ``needs``: ``always``, ``user`` (another user than the harness), ``process`` (no namespaces but
    another user), ``jail`` (namespaces), ``memory`` or ``processes`` (a bound that holds for the whole tree)."""

    def keep(function: Attempt) -> Attempt:
        ATTEMPTS[name] = needs, function
        return function

    return keep


# -- secrets -----------------------------------------------------------------------------------------------------------
@attempt("environment")
def _(order: Order) -> bool:
    return order["secret"] in json.dumps(dict(os.environ))


@attempt("environment of others", "user")
def _(order: Order) -> bool:
    for place in _processes():
        try:
            with open(f"/proc/{place}/environ", "rb") as file:
                if order["secret"].encode() in file.read():
                    return True
        except OSError:
            continue
    return False


@attempt("inherited descriptors")
def _(order: Order) -> str:
    shown = []
    for number in os.listdir("/proc/self/fd"):
        try:
            if int(number) > 2:
                shown.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            continue  # the descriptor of this very listing
    return ", ".join(shown)


@attempt("files of the host", "jail")
def _(order: Order) -> str:
    return ", ".join(path for path in order["hidden"] if os.path.lexists(path))


# -- privileges --------------------------------------------------------------------------------------------------------
@attempt("capabilities", "user")
def _(order: Order) -> bool:
    return any(int(_status(name), 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"))


@attempt("new privileges")
def _(order: Order) -> bool:
    return _status("NoNewPrivs") != "1"


@attempt("root", "user")
def _(order: Order) -> bool:
    os.setuid(0)
    return True


@attempt("system calls")
def _(order: Order) -> str:
    """Each with arguments that no kernel takes, so that one that gets through does nothing; none where there is no filter."""
    if _status("Seccomp") != "2":
        return "no filter"
    libc = ctypes.CDLL(None, use_errno=True)
    reached = []
    for name, number in order["calls"].items():
        ctypes.set_errno(0)
        arguments = (1, 0) if name == "msgget" else (-1,) * 6
        if libc.syscall(number, *map(ctypes.c_long, arguments)) != -1 or ctypes.get_errno() != errno.EPERM:
            reached.append(name)
    return ", ".join(reached)


@attempt("a better place when memory is short", "user")
def _(order: Order) -> bool:
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("-1")
    return True


# -- others ------------------------------------------------------------------------------------------------------------
@attempt("signals to the harness", "process")
def _(order: Order) -> bool:
    os.kill(order["harness"], 0)
    return True


@attempt("memory of the harness", "process")
def _(order: Order) -> bool:
    os.close(os.open(f"/proc/{order['harness']}/mem", os.O_RDONLY))
    return True


@attempt("other processes", "jail")
def _(order: Order) -> bool:
    return len(_processes()) > 4


@attempt("network", "jail")
def _(order: Order) -> bool:
    if any(name != "lo" for _, name in socket.if_nameindex()):
        return True
    with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as datagram:
        stream.settimeout(0.5)
        way = stream.connect_ex(("192.0.2.1", 80))
        return way not in NO_WAY or datagram.connect_ex(("192.0.2.1", 53)) not in NO_WAY


@attempt("a service of this machine", "jail")
def _(order: Order) -> bool:
    with socket.create_connection(("127.0.0.1", order["port"]), 0.5):
        return True


@attempt("an abstract socket of this machine", "jail")
def _(order: Order) -> bool:
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect("\0" + order["abstract"])
        return True


@attempt("devices", "jail")
def _(order: Order) -> str:
    odd = [name for name in os.listdir("/dev") if name not in PLAIN_DEVICES and name not in order["devices"]]
    return ", ".join(name for name in odd if not stat.S_ISDIR(os.lstat(f"/dev/{name}").st_mode))


@attempt("writing", "jail")
def _(order: Order) -> str:
    reached = []
    for folder in dict.fromkeys((*order["sealed"], *os.environ["PATH"].split(":"), *sys.path)):
        path = os.path.join(folder, "gatekeeper-canary")
        if not os.path.isdir(folder):
            continue
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        except OSError:
            continue
        reached.append(folder)
        os.unlink(path)
    return ", ".join(reached)


# -- limits ------------------------------------------------------------------------------------------------------------
@attempt("core dumps")
def _(order: Order) -> bool:
    return resource.getrlimit(resource.RLIMIT_CORE) != (0, 0)


@attempt("large files")
def _(order: Order) -> bool:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    path = os.path.join(os.environ["HOME"], "canary-large")
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(file, b"x", order["file_size"] + 1)
        return True
    finally:
        os.close(file)
        os.unlink(path)


@attempt("open files")
def _(order: Order) -> bool:
    held: list[int] = []
    try:
        for _ in range(order["open_files"] + 8):
            held.append(os.dup(0))
        return True
    finally:
        for number in held:
            os.close(number)


@attempt("scratch space", "jail")
def _(order: Order) -> str:
    return ", ".join(folder for folder in ("/tmp", "/dev/shm") if _overfills(folder, order))  # noqa: S108


@attempt("private memory")
def _(order: Order) -> bool:
    return _survives(lambda: b"x" * (order["memory"] * 2))


@attempt("shared memory", "memory")
def _(order: Order) -> bool:
    return _survives(lambda: _hold(order["memory"] * 2))


@attempt("processes", "processes")
def _(order: Order) -> bool:
    children: list[int] = []
    try:
        for _ in range(order["processes"] + 8):
            child = os.fork()
            if child == 0:
                time.sleep(30)
                os._exit(0)
            children.append(child)
        return True
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _hold(size: int) -> None:
    """Map and fill shared memory, which the limit of private memory does not count, megabyte by megabyte up to ``size``."""
    maps = []
    for _ in range(size // CHUNK):
        maps.append(mmap.mmap(-1, CHUNK))
        maps[-1].write(b"x" * CHUNK)


def _overfills(folder: str, order: Order) -> bool:
    if not os.path.isdir(folder):
        return False
    made = []
    block = b"x" * CHUNK
    try:
        for number in range(order["scratch"] // CHUNK + 2):
            made.append(os.path.join(folder, f"canary-{number}"))
            with open(made[-1], "wb") as file:
                file.write(block)
        return True
    except OSError:
        return False
    finally:
        for path in made:
            if os.path.lexists(path):
                os.unlink(path)


def _survives(work: Callable[[], object]) -> bool:
    """Whether a child process gets through something that should end it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # MemoryError, or what a failed allocation turns into
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _status(name: str) -> str:
    with open("/proc/self/status") as file:
        return next(line.split()[1] for line in file if line.startswith(name + ":"))


def _processes() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]


def leave_behind() -> None:
    """Start a process that leaves its family and its session and would live on for a minute."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(60)
        os._exit(0)
    os.wait()
    time.sleep(0.05)  # the harness counts every few milliseconds, and the whole family ends with its first process


def main(order: Order) -> None:
    """Try everything that the order says must hold; print what was reached."""
    tried, reached = [], []
    for name, (needs, function) in ATTEMPTS.items():
        if needs not in order["holds"]:
            continue
        tried.append(name)
        try:
            found = function(order)
        except OSError:
            continue
        if found:
            reached.append(name if found is True else f"{name}: {found}")
    leave_behind()
    sys.stdout.write("\n" + json.dumps({"tried": tried, "reached": reached}) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
