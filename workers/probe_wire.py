"""The fixed layout of a probe's answer. Written by the jailed half, parsed strictly by the other. Standard library only.

A text is a length (two bytes, big-endian, at most :data:`TEXT`) and that many bytes of UTF-8. A list is a count (two bytes) and
its members. Nothing may follow the last member.
"""

from __future__ import annotations

import struct
from typing import TypeVar

HEADER = struct.Struct(">BI")
COUNT = struct.Struct(">H")
HELLO, IMPORTED, ANSWERS, PLATFORM, LATE = 1, 2, 3, 4, 5
SERVES, DECLINES, RAISED = 0, 1, 2
TEXT = 1024
FAULTS = 64
"""Most faults in one list; one more says how many were left out."""
ANSWER_COUNT = 4096
LARGEST = FAULTS * 4 * (TEXT + 2) + ANSWER_COUNT * (TEXT + 3) + 64

Fault = tuple[str, str, str, str]
T = TypeVar("T")


class Malformed(ValueError):
    """Bytes that do not follow the layout."""


def pack_faults(faults: list[Fault]) -> bytes:
    """Return a list of faults, cut to :data:`FAULTS`."""
    if len(faults) > FAULTS:
        left = len(faults) - FAULTS + 1
        faults = [*faults[: FAULTS - 1], ("EFF_MORE", "import", "no effects", f"{left} more")]
    return COUNT.pack(len(faults)) + b"".join(_text(part) for fault in faults for part in fault)


def pack_imported(found: bool, faults: list[Fault]) -> bytes:
    """Return the payload of IMPORTED."""
    return bytes([found]) + pack_faults(faults)


def pack_answers(answers: list[tuple[int, str]]) -> bytes:
    """Return the payload of ANSWERS."""
    return COUNT.pack(len(answers)) + b"".join(bytes([kind]) + _text(reason) for kind, reason in answers)


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "replace")[:TEXT].decode("utf-8", "ignore").encode()
    return COUNT.pack(len(data)) + data


class Reader:
    """Reads one payload from front to end; every step raises :class:`Malformed` for bytes that break the layout."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def imported(self) -> tuple[bool, list[Fault]]:
        """Return whether the entry point was found, and the faults."""
        found = self._byte(1)
        return bool(found), self._end(self._faults())

    def answers(self, expected: int) -> list[tuple[int, str]]:
        """Return exactly ``expected`` answers."""
        count = self._count(ANSWER_COUNT)
        if count != expected:
            raise Malformed(f"expected {expected} answers; found {count}")
        return self._end([(self._byte(RAISED), self._text()) for _ in range(count)])

    def faults(self) -> list[Fault]:
        """Return the faults of a platform phase, or those seen after the answers."""
        return self._end(self._faults())

    def _faults(self) -> list[Fault]:
        return [(self._text(), self._text(), self._text(), self._text()) for _ in range(self._count(FAULTS))]

    def _end(self, value: T) -> T:
        if self._at != len(self._data):
            raise Malformed(f"{len(self._data) - self._at} bytes follow the end")
        return value

    def _take(self, count: int) -> bytes:
        part = self._data[self._at : self._at + count]
        if len(part) != count:
            raise Malformed("the answer ends too early")
        self._at += count
        return part

    def _byte(self, largest: int) -> int:
        value = self._take(1)[0]
        if value > largest:
            raise Malformed(f"expected a byte of at most {largest}; found {value}")
        return value

    def _count(self, largest: int) -> int:
        count = int(COUNT.unpack(self._take(2))[0])
        if count > largest:
            raise Malformed(f"expected a count of at most {largest}; found {count}")
        return count

    def _text(self) -> str:
        data = self._take(self._count(TEXT))
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Malformed("a text is not UTF-8") from error
