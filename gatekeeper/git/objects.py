"""Fast raw reads of objects through one long-lived ``git cat-file --batch`` for each repository."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from gatekeeper.domain.errors import GatekeeperError, Retryable
from gatekeeper.git import plumbing

MAX_OBJECT_BYTES = 64 * 1024 * 1024
"""A larger object is refused: nothing that the policies read comes near this size."""

_CACHE_BYTES = 96 * 1024 * 1024
_PIPELINED = 400
"""Requests in flight. 400 ids of at most 65 bytes stay below a pipe's 64 KiB, so that neither side can block the other."""


class ObjectReader:
    """Reads objects of one repository by full id; safe for use by several threads. Keeps recent objects in memory."""

    def __init__(self, git_dir: Path) -> None:
        self.git_dir = git_dir
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._cache: OrderedDict[str, tuple[str, bytes]] = OrderedDict()
        self._cached_bytes = 0
        self.missing: set[str] = set()
        """Ids that were asked for and are not there: the tree that names them cannot be judged from this repository."""
        self._finalizer: weakref.finalize[..., ObjectReader] | None = None

    def read(self, id: str, kind: str) -> bytes:
        """Return the raw bytes of an object.

        Args:
            id: full object id.
            kind: ``blob``, ``tree`` or ``commit``.

        Raises:
            KeyError: if there is no such object of that kind.
            Rejected: if ``id`` is not a full id.
            GatekeeperError: ``GIT_OBJECT_SIZE`` for an object above :data:`MAX_OBJECT_BYTES`.
            Retryable: if the reading process died twice.
        """
        for found, data in self.read_many([id], kind):
            return data if found == id else b""
        raise KeyError(id)

    def read_many(self, ids: Iterable[str], kind: str) -> Iterator[tuple[str, bytes]]:
        """Yield (id, bytes) for each id in order; the same errors as :meth:`read`."""
        wanted = [plumbing.full_id(id) for id in ids]
        for start in range(0, len(wanted), _PIPELINED):
            yield from self._chunk(wanted[start : start + _PIPELINED], kind)

    def _chunk(self, ids: list[str], kind: str) -> list[tuple[str, bytes]]:
        with self._lock:
            have: dict[str, tuple[str, bytes]] = {}
            for id in ids:
                if id in self._cache:
                    self._cache.move_to_end(id)
                    have[id] = self._cache[id]
            missing = [id for id in dict.fromkeys(ids) if id not in have]
            have |= self._fetch(missing)
        for id in ids:
            if id not in have or have[id][0] != kind:
                raise KeyError(id)
        return [(id, have[id][1]) for id in ids]

    def _fetch(self, ids: list[str]) -> dict[str, tuple[str, bytes]]:
        if not ids:
            return {}
        try:
            got = self._ask(ids)
        except (OSError, EOFError):
            self.close()
            try:
                got = self._ask(ids)
            except (OSError, EOFError) as error:
                self.close()
                raise Retryable(f"git cat-file ended unexpectedly: {error}", code="GIT_KILLED") from error
        except BaseException:
            self.close()  # an answer is left unread in the pipe: the next reader must not take it for its own
            raise
        for id, (kind, data) in got.items():
            self._keep(id, kind, data)
        return got

    def _ask(self, ids: list[str]) -> dict[str, tuple[str, bytes]]:
        process = self._started()
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:
            raise OSError("no pipes to git cat-file")
        stdin.write("".join(f"{id}\n" for id in ids).encode())
        stdin.flush()
        got: dict[str, tuple[str, bytes]] = {}
        for id in ids:
            answer = self._answer(id, stdout)
            if answer is None:
                self.missing.add(id)
            else:
                got[id] = answer
        return got

    @staticmethod
    def _answer(id: str, stdout: IO[bytes]) -> tuple[str, bytes] | None:
        header = stdout.readline().decode("ascii", "backslashreplace").split()
        if not header:
            raise EOFError("end of output")
        if header == [id, "missing"]:
            return None
        if len(header) != 3 or header[0] != id:
            raise GatekeeperError(
                "git cat-file answered something else", code="GIT_FAILED", expected=id, found=" ".join(header)
            )
        size = int(header[2])
        if size > MAX_OBJECT_BYTES:
            raise GatekeeperError(
                f"object {id} is too large",
                code="GIT_OBJECT_SIZE",
                expected=f"at most {MAX_OBJECT_BYTES} bytes",
                found=str(size),
            )
        data = stdout.read(size)
        if len(data) != size or stdout.read(1) != b"\n":
            raise EOFError("an object was cut short")
        return header[1], data

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        process = subprocess.Popen(
            [plumbing.executable(), "--no-optional-locks", "cat-file", "--batch"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=plumbing.environment(self.git_dir),
            cwd=self.git_dir,
            start_new_session=True,
        )
        self._process = process
        self._finalizer = weakref.finalize(self, _stop, process)
        return process

    def _keep(self, id: str, kind: str, data: bytes) -> None:
        if len(data) > _CACHE_BYTES // 8:
            return
        self._cache[id] = (kind, data)
        self._cached_bytes += len(data)
        while self._cached_bytes > _CACHE_BYTES:
            _, (_, dropped) = self._cache.popitem(last=False)
            self._cached_bytes -= len(dropped)

    def close(self) -> None:
        """End the reading process. A later read starts a new one."""
        with self._lock:
            if self._finalizer is not None:
                self._finalizer()
                self._finalizer = None
            self._process = None


def _stop(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # the other end may be gone already
                pipe.close()
    process.kill()
    process.wait()
