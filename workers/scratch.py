"""Directories that an attacker filled: looked at with bounds, deleted whatever lies in them. Nothing there is opened or followed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

HOME = "gatekeeper-home-"
MOST_ENTRIES, MOST_BYTES, MOST_DEPTH = 2000, 64 << 20, 32
"""More than an import has any business to write."""


@dataclass(frozen=True)
class Look:
    """What lies in a directory. ``over`` says which bound was reached, where the look ended; None where all was seen."""

    files: tuple[str, ...]
    """Relative paths of everything that is no directory, in no order that anybody chose."""
    entries: int
    bytes: int
    over: str | None


def look(folder: Path) -> Look:
    """Return what lies in a directory, at most so much that looking stays cheap."""
    files: list[str] = []
    entries = size = 0
    pending = [("", 0)]
    while pending:
        below, depth = pending.pop()
        try:
            with os.scandir(folder / below) as found:
                for entry in found:
                    entries += 1
                    inner = f"{below}/{entry.name}" if below else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        pending.append((inner, depth + 1))
                    else:
                        files.append(inner)
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entries > MOST_ENTRIES:
                        return Look(tuple(files), entries, size, f"more than {MOST_ENTRIES} entries")
        except FileNotFoundError:
            continue  # gone meanwhile
        except OSError as error:
            return Look(tuple(files), entries, size, f"a directory that cannot be read: {error.strerror}")
        if size > MOST_BYTES:
            return Look(tuple(files), entries, size, f"more than {MOST_BYTES} bytes")
        if depth > MOST_DEPTH:
            return Look(tuple(files), entries, size, f"more than {MOST_DEPTH} directories in each other")
    return Look(tuple(files), entries, size, None)


def home() -> Path:
    """Make a directory for one process, named so that :func:`sweep` finds it when this process was killed."""
    return Path(tempfile.mkdtemp(prefix=f"{HOME}{os.getpid()}-"))


def sweep() -> int:
    """Delete the homes whose harness is gone; return how many there were."""
    swept = 0
    for folder in Path(tempfile.gettempdir()).glob(f"{HOME}*-*"):
        pid = folder.name[len(HOME) :].split("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists() and folder.is_dir() and not folder.is_symlink():
            swept += 1
            with contextlib.suppress(OSError):
                remove(folder)
    return swept


def remove(folder: Path) -> None:
    """Delete a directory, however deep it is and whatever modes its parts have. Links are deleted, not followed.

    ``shutil.rmtree`` is recursive: a thousand directories in each other, made in a moment, would end the caller instead.

    Raises:
        OSError: if something is left.
    """
    _run("rm", "-rf", "--", str(folder))
    if folder.exists():  # a directory without permissions, where this process is not root
        _run("chmod", "-R", "u+rwx", "--", str(folder))
        _run("rm", "-rf", "--", str(folder))
    if folder.exists():
        raise OSError(f"{folder} could not be deleted")


def _run(program: str, *arguments: str) -> None:
    subprocess.run([f"/bin/{program}", *arguments], env={}, stdin=subprocess.DEVNULL, capture_output=True, check=False)
