"""Hears what foreign code does while it does it: files, sockets, processes and threads that may be gone before anybody looks.

Part of the jailed half of the probe: standard library only, no other file of ours. An audit hook (PEP 578) is told of each such act;
whose act it is, the stack says: the directory's, unless a library that was being loaded stands between. As everything in that
process it can be deceived by who expects it.
"""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any

Fault = tuple[str, str, str, str]
_SHOWN = 20
_FILES = ("os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.truncate")
_PROCESSES = ("subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn")
_SOCKETS = ("socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname")
_THREADS = ("_thread.start_new_thread", "_thread.start_joinable_thread")
HEARD = {
    **dict.fromkeys(_FILES, ("EFF_IMPORT_SIDE_EFFECT", "no file is touched")),
    **dict.fromkeys(_PROCESSES, ("EFF_IMPORT_SIDE_EFFECT", "no process is started")),
    **dict.fromkeys(_SOCKETS, ("EFF_IMPORT_SIDE_EFFECT", "no connection is made")),
    **dict.fromkeys(_THREADS, ("EFF_IMPORT_SIDE_EFFECT", "no thread is started")),
    "open": ("EFF_IMPORT_SIDE_EFFECT", "no file is written"),
    "sys.addaudithook": ("EFF_IMPORT_HOOK", "no audit hook"),
}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Watch:
    """Listens while it is entered. There is one for each process: an audit hook cannot be taken back."""

    def __init__(self, folder: str) -> None:
        self._folder = folder.rstrip("/") + "/"
        self._listening = False
        self._heard: dict[Fault, None] = {}
        sys.addaudithook(self._hear)

    def __enter__(self) -> Watch:
        self._listening = True
        return self

    def __exit__(self, *_: object) -> None:
        self._listening = False

    def take(self) -> list[Fault]:
        """Return what was heard since the last time."""
        heard, self._heard = list(self._heard), {}
        return heard

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._listening or event not in HEARD or len(self._heard) >= _SHOWN:
            return
        self._listening = False  # what follows makes events of its own
        try:
            shown = _shown(event, arguments)
            if shown is not None and self._ours(sys._getframe(1)):
                code, expected = HEARD[event]
                self._heard[code, event, expected, shown[:200]] = None
        finally:
            self._listening = True

    def _ours(self, frame: FrameType | None) -> bool:
        while frame is not None:
            code = frame.f_code
            if code.co_filename.startswith(self._folder):
                return True
            if code.co_name in ("<module>", "_get_default_tempdir"):
                return False  # a library loads itself, or looks for a directory that can be written
            frame = frame.f_back
        return False


def _shown(event: str, arguments: tuple[Any, ...]) -> str | None:
    """Return what was done, in words; None where it was nothing: reading, or writing to nowhere."""
    if event == "open":
        path, _, flags = arguments
        harmless = not isinstance(path, str | bytes) or path in ("/dev/null", b"/dev/null")
        return (
            None
            if harmless or not isinstance(flags, int) or not flags & _WRITES
            else f"{os.fsdecode(path)} for writing"
        )
    told = [str(each) for each in arguments if type(each) in (str, bytes, int, tuple, list)]
    return " ".join(told) or event
