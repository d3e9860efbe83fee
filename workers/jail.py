"""Keeps untrusted code away from this machine: finds out which jail *works* here and starts processes in it.

Levels: ``jail`` is bubblewrap with its own user, mount, process, network and IPC namespaces; ``container+jail`` and ``vm+jail`` are
the same inside a wall of its own (``workers/surroundings.py``); ``process`` is a child with limits, a built environment and, where
allowed, another user id, and is only a fallback that every result names. At all levels a process tree is frozen, counted and
killed as a whole, and it dies with the harness. A canary puts each way on trial before it is used (``workers/trial.py``).
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from gatekeeper.domain.catalog import JailLevel
from gatekeeper.domain.errors import Retryable
from workers import launch, scratch, surroundings
from workers.cgroups import Cgroup
from workers.jailed import JailedProcess
from workers.processes import ProcessTree
from workers.trial import complaint

BWRAP = Path("/usr/bin/bwrap")
LAUNCHER = Path(launch.__file__).resolve()
FIRST_UID = 1_900_000_000
"""User ids from here on belong to nobody; each process gets its own, so that two arms cannot signal each other."""
_numbers = itertools.count()


@dataclass(frozen=True)
class Bind:
    """A file or directory that the jail shows at ``target``. Read-only unless ``writable``."""

    source: Path
    target: str
    writable: bool = False
    device: bool = False
    """A device's file, which is shown as one; all others in the jail are closed."""


@dataclass(frozen=True)
class Limits:
    """Upper bounds of one process tree. Sizes in bytes."""

    memory: int = 4 << 30
    processes: int = 64
    file_size: int = 256 << 20
    open_files: int = 256
    scratch: int = 256 << 20
    """Size of the private /tmp, and of /dev/shm (not at level ``process``)."""
    cpus: tuple[int, ...] | None = None
    """Cores that the tree is pinned to at start; None leaves all."""


@dataclass(frozen=True)
class Jail:
    """A way of starting untrusted processes that was tried and works here; get it from :func:`find_jail`."""

    level: JailLevel
    own_user: bool
    """True if processes run under a real user id of their own (this process may change ids)."""
    control_groups: bool
    """True if trees are held by control groups, else by signals."""
    notes: tuple[str, ...] = ()
    """Why a stronger way was not taken."""
    python: str = field(default=sys.executable)

    @property
    def separate(self) -> bool:
        """True if processes have namespaces of their own: at every level but ``process``."""
        return self.level is not JailLevel.PROCESS

    def inside(self, bind: Bind, below: str = "") -> str:
        """Return the path at which a bound file or directory (or ``below`` in it) is seen by the jailed process."""
        base = bind.target if self.separate else str(bind.source)
        return f"{base}/{below}" if below else base

    def start(
        self,
        argv: Sequence[str],
        *,
        binds: Sequence[Bind] = (),
        pass_fds: Sequence[int] = (),
        limits: Limits | None = None,
        environment: Mapping[str, str] | None = None,
        log: int | None = None,
    ) -> JailedProcess:
        """Start ``argv`` (an absolute path and arguments) in this jail and return at once.

        ``pass_fds`` keep their numbers. ``environment`` is added to a minimal one; nothing is inherited. Standard input is
        empty; standard output and error go to ``log``, a descriptor that stays the caller's, or to a buffer in memory that
        :meth:`JailedProcess.log_text` reads. The process dies when this one does; call it from the main thread only, since
        the kernel watches the thread.

        Raises:
            Retryable: if the process could not be started; that says nothing about the code inside.
        """
        limits, given = limits or Limits(), environment or {}
        name = f"{os.getpid()}-{next(_numbers)}-{secrets.token_hex(4)}"
        uid = FIRST_UID + secrets.randbelow(1 << 24) if self.own_user else None
        home = None if self.separate or "HOME" in given else _home(uid)
        inside = given.get("HOME") or (str(home) if home else "/tmp")  # noqa: S108  (the jail's own)
        group = Cgroup.create(name, memory=limits.memory, processes=limits.processes) if self.control_groups else None
        order = self._order(argv, binds, limits, {**base_environment(inside), **given}, uid)
        order["cgroups"] = group.entrances if group else []
        buffer = None
        if log is None:
            buffer = log = os.memfd_create("log", os.MFD_CLOEXEC)
        try:
            # -I -S: neither the environment, nor the directory, nor site packages can change what the launcher imports.
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(LAUNCHER), json.dumps(order)],
                env={},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=tuple(pass_fds),
            )
        except OSError as error:
            if group:
                group.remove()
            if buffer is not None:
                os.close(buffer)
            if home is not None:
                scratch.remove(home)
            raise Retryable(f"a jailed process could not be started: {error}", code="JAIL_START") from error
        own = 3 if self.separate else 1 if group else 2
        return JailedProcess(process, group or ProcessTree(process.pid), buffer, own_processes=own, home=home)

    def _order(
        self, argv: Sequence[str], binds: Sequence[Bind], limits: Limits, environment: dict[str, str], uid: int | None
    ) -> dict[str, object]:
        """Return the launcher's order; see ``launch.main``."""
        order: dict[str, object] = {
            "argv": list(argv),
            "environment": environment,
            "parent": os.getpid(),
            "session": True,
            "worst": True,
            "rlimits": {"CORE": 0, "FSIZE": limits.file_size, "NOFILE": limits.open_files, "MEMLOCK": 0},
            "cpus": list(limits.cpus) if limits.cpus else None,
        }
        inner_limits = {"NPROC": limits.processes, "DATA": limits.memory}
        if self.separate:
            inner = {
                "argv": list(argv),
                "environment": environment,
                "rlimits": inner_limits,
                "uid": uid,
                "no_new_privs": True,
                "seccomp": True,
            }
            launcher = Bind(LAUNCHER, "/runner/launch.py")
            command = [self.python, "-I", "-S", launcher.target, json.dumps(inner)]
            order["argv"] = bubblewrap(command, (*binds, launcher), limits, own_user=self.own_user)
            return order
        rlimits = order["rlimits"]
        assert isinstance(rlimits, dict)
        rlimits.update(inner_limits if uid is not None else {"DATA": limits.memory})
        return {**order, "uid": uid, "no_new_privs": True, "seccomp": True, "warden": not self.control_groups}


def bubblewrap(command: Sequence[str], binds: Sequence[Bind], limits: Limits, *, own_user: bool) -> list[str]:
    """Return the bubblewrap command line that runs ``command`` with a read-only system, no network and a private /tmp."""
    argv = [str(BWRAP), "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    argv += ["--die-with-parent", "--clearenv", "--hostname", "jail"]
    if not own_user:
        argv += ["--unshare-user", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL"]
    argv += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib64"):
        path = Path("/", name)
        if path.is_symlink():
            argv += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            argv += ["--ro-bind", str(path), str(path)]
    argv += ["--proc", "/proc", "--dev", "/dev"]
    for place in ("/tmp", "/dev/shm"):  # noqa: S108
        argv += ["--perms", "1777", "--size", str(limits.scratch), "--tmpfs", place]
    argv += ["--dir", "/sys/devices/system", "--ro-bind-try", "/sys/devices/system/cpu", "/sys/devices/system/cpu"]
    shown = [Bind(prefix, str(prefix)) for prefix in interpreter_paths()] + list(binds)
    for parent in sorted({parent for bind in shown for parent in Path(bind.target).parents} - {Path("/")}):
        if not any(parent == Path(bind.target) or parent.is_relative_to(bind.target) for bind in shown):
            # Made here, because bubblewrap gives directories that it makes by itself mode 0700, closed to another user.
            argv += ["--perms", "0755", "--dir", str(parent)]
    for bind in shown:
        how = "--dev-bind" if bind.device else "--bind" if bind.writable else "--ro-bind"
        argv += [how, str(bind.source), bind.target]
    # /dev is memory of bubblewrap's own, as large as half of the machine's where nobody says otherwise.
    return [*argv, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/", "--", *command]


def interpreter_paths() -> list[Path]:
    """Return the directories outside /usr that this Python and its packages live in, parents before what is below them."""
    places = {Path(sys.prefix), Path(sys.base_prefix)}
    places |= {Path(entry) for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))}
    outside = sorted(place.absolute() for place in places if place.is_dir() and not place.is_relative_to("/usr"))
    return [place for place in outside if not any(place != other and place.is_relative_to(other) for other in outside)]


def base_environment(home: str = "/tmp") -> dict[str, str]:  # noqa: S108
    """Return the whole environment of a jailed process: constants and its home, the same for both arms and in every phase.

    Everything that libraries keep from run to run lies below the home, which no other process has.
    """
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    caches = {"XDG_CACHE_HOME": "", "TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor",
              "TORCH_EXTENSIONS_DIR": "extensions", "CUDA_CACHE_PATH": "cuda", "NUMBA_CACHE_DIR": "numba"}  # fmt: skip
    places = {name: f"{home}/.cache/{folder}".rstrip("/") for name, folder in caches.items()}
    named = {"HOME": home, "TMPDIR": home, "LANG": "C.UTF-8", "USER": "arm", "LOGNAME": "arm"}
    return {"PATH": "/usr/bin:/bin", **named, **places, **threads}


def _home(uid: int | None) -> Path:
    """Make a directory for one process of level ``process``: there /tmp is everybody's."""
    home = scratch.home()
    if uid is not None:
        os.chown(home, uid, uid)
    return home


@cache
def _tried(level: JailLevel) -> tuple[Jail | None, tuple[str, ...]]:
    """Try the ways of one level, ``jail`` or ``process``, from strongest to weakest, once in the life of this process.

    Return the first that holds the canary, if any, and why those before it were not taken.
    """
    if level is JailLevel.JAIL and not BWRAP.exists():
        return None, (f"{BWRAP} is not installed",)
    groups = control_groups_work()
    notes = [] if groups else ["control groups may not be written: signals hold trees, and shared memory has no bound"]
    for own_user in (True, False) if os.getuid() == 0 else (False,):
        jail = Jail(level, own_user, groups)
        wrong = complaint(jail)
        if wrong is None:
            return jail, tuple(notes)
        notes.append(f"{level.value}{' with a user id of its own' if own_user else ''}: {wrong}")
    return None, tuple(notes)


def find_jail(minimum: JailLevel = JailLevel.PROCESS) -> Jail:
    """Return the strongest jail that works on this machine, tried by a canary; the answer is kept for this process.

    Raises:
        Retryable: ``JAIL_TOO_WEAK`` if none reaches ``minimum``; the message says what failed. ``JAIL_NONE`` if nothing works.
    """
    strong, notes = _tried(JailLevel.JAIL)
    if strong is None:
        jail = process_jail()
        jail = replace(jail, notes=tuple(dict.fromkeys((*notes, *jail.notes))))
    else:
        level, why = surroundings.around(surroundings.read_signs(), surroundings.claimed())
        jail = replace(strong, level=level, notes=(*notes, *([why] if why else [])))
    if jail.level.rank < minimum.rank:
        reasons = " | ".join(jail.notes)
        raise Retryable(
            f"this machine's jail is too weak: {reasons}",
            code="JAIL_TOO_WEAK",
            expected=minimum.value,
            found=jail.level.value,
        )
    return jail


def process_jail() -> Jail:
    """Return the fallback of level ``process``, even where a stronger one works (for tests and comparisons).

    Raises:
        Retryable: ``JAIL_NONE`` if not even that works.
    """
    jail, notes = _tried(JailLevel.PROCESS)
    if jail is None:
        raise Retryable("no way to start a limited process works here: " + " | ".join(notes), code="JAIL_NONE")
    return replace(jail, notes=notes)


def control_groups_work() -> bool:
    """Return True if a control group can be made, frozen, thawed and removed here."""
    try:
        group = Cgroup.create(f"{os.getpid()}-probe-{secrets.token_hex(4)}", memory=1 << 30, processes=8)
    except OSError:
        return False
    try:
        group.freeze(1.0)
        group.thaw()
        group.cpu_seconds()
    except (OSError, TimeoutError):
        return False
    finally:
        group.remove()
    return True
