"""What all workers of one machine share: a quiet moment for races, and a place for their scratch files.

A probe must not run while a race is timed, nor two races on the same cores or device, whichever processes of this machine started
the two. So a race holds a lock that races elsewhere on the machine may share and a probe may not, and one of its own lane besides; a
probe that waits is let in before the next race. Every run has a folder of
its own that is removed with it; one whose run was killed together with its parent is removed when the next process starts.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path

import structlog

from gatekeeper.domain.catalog import HardwareTarget
from gatekeeper.domain.errors import ConfigurationError, Postponed

RUN, LOCK = "run-", "lock"
OPEN_TO_PASS = 0o711
"""Jailed code may run as another user and is shown files below these folders; it can neither list nor change them."""
WANTED_SECONDS = 15.0
"""How long a probe that found the machine taken goes before the next race; it comes back every few seconds."""
CPU = "cpu"
LOG = structlog.get_logger(__name__)


def lane_of(target: HardwareTarget) -> str:
    """Return what two races on this target would have to share: all CPU targets share the same cores."""
    return CPU if target.architecture == CPU else target.name


def usual_place() -> Path:
    """Return the folder that all services of this user on this machine share."""
    return Path(tempfile.gettempdir()) / f"gatekeeper-{os.getuid()}"


class Machine:
    """The shared folder of this machine's workers: its locks, and a folder for each run."""

    def __init__(self, place: Path | None = None) -> None:
        """Make the folder and remove what killed runs have left there.

        Raises:
            ConfigurationError: ``CONFIG_SCRATCH`` if the folder belongs to somebody else or others can write to it.
        """
        self.place = place or usual_place()
        self.place.mkdir(mode=OPEN_TO_PASS, parents=True, exist_ok=True)
        found = self.place.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise ConfigurationError(
                "the workers' scratch folder cannot be trusted", code="CONFIG_SCRATCH",
                expected=f"{self.place}: a directory of user {os.getuid()} that nobody else can write to",
                found=f"owner {found.st_uid}, mode {stat.filemode(found.st_mode)}",
            )  # fmt: skip
        self.place.chmod(OPEN_TO_PASS)  # whatever the umask was when it was made
        self.sweep()

    def sweep(self) -> int:
        """Remove the folders of runs that nobody holds any more. Returns how many there were."""
        swept = 0
        with _held(self.place / "sweep"):  # a folder between its making and its lock must not look abandoned
            for folder in self.place.glob(f"{RUN}*"):
                with contextlib.suppress(OSError), _locked(folder / LOCK, fcntl.LOCK_EX) as held:
                    if held:
                        shutil.rmtree(folder, ignore_errors=True)
                        swept += 1
        if swept:
            LOG.info("scratch.swept", folders=swept, place=str(self.place))
        return swept

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Yield a fresh folder that is held while the block runs and removed afterwards."""
        with _held(self.place / "sweep"):
            folder = Path(tempfile.mkdtemp(prefix=RUN, dir=self.place))
            folder.chmod(OPEN_TO_PASS)
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)

    @contextmanager
    def racing(self, lane: str = CPU) -> Iterator[None]:
        """Hold the machine for a race; ``lane`` names the cores or the device that it times on.

        Raises:
            Postponed: ``RUN_MACHINE_TAKEN`` if a probe runs or waits, or another race of this lane runs.
        """
        with _locked(self.place / "races", fcntl.LOCK_SH) as held:
            if not held or self._probe_waits():
                raise _taken("a race", "a probe")
            with _locked(self.place / f"lane-{lane}", fcntl.LOCK_EX) as alone:
                if not alone:
                    raise _taken("a race", "another race")
                yield

    @contextmanager
    def probing(self) -> Iterator[None]:
        """Hold the machine for a probe, alone.

        Raises:
            Postponed: ``RUN_MACHINE_TAKEN`` if a race or another probe runs; no race starts before this probe has come back.
        """
        with _locked(self.place / "races", fcntl.LOCK_EX) as held:
            if not held:
                (self.place / "wanted").touch(mode=0o600)
                raise _taken("a probe", "a race or another probe")
            (self.place / "wanted").unlink(missing_ok=True)
            yield

    def _probe_waits(self) -> bool:
        try:
            return time.time() - (self.place / "wanted").stat().st_mtime < WANTED_SECONDS
        except FileNotFoundError:
            return False


@contextmanager
def beside_a_race(usable: Set[int]) -> Iterator[None]:
    """Keep every thread of this process, and what they start, off the last of the usable cores while the block runs.

    There a race times its arms (``workers.environment.cores``); a service that answers questions meanwhile should do so elsewhere.
    """
    left = usable - {max(usable)}
    if left:
        _bind(left)
    try:
        yield
    finally:
        _bind(usable)


def _bind(cores: Set[int]) -> None:
    for name in os.listdir("/proc/self/task"):  # noqa: PTH208  (numbers, not paths)
        with contextlib.suppress(ProcessLookupError):  # a thread that has just ended
            os.sched_setaffinity(int(name), cores)


@contextmanager
def _locked(path: Path, how: int) -> Iterator[bool]:
    """Try to lock a file; yields whether that worked. The lock goes with the descriptor, also when the process is killed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Wait for a lock that is only ever held for a moment."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _taken(who: str, by: str) -> Postponed:
    return Postponed(
        f"{who} has to wait for its turn on this machine", code="RUN_MACHINE_TAKEN", expected="a quiet machine",
        found=f"{by} runs or waits",
    )  # fmt: skip
