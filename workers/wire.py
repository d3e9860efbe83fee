"""The frames between harness and arm. Standard library only: the arm's stub uses this file too, copied beside it.

A frame is ``kind`` (uint8), ``length`` (uint32), then ``length`` bytes, all little-endian. Frames to the arm are the harness's
own; frames from the arm are an attacker's bytes, so each kind has one fixed layout and one largest size.
"""

from __future__ import annotations

import struct
from enum import IntEnum

HEADER = struct.Struct("<BI")


class Kind(IntEnum):
    """What a frame says. Below 64: harness to arm; from 64 on: arm to harness."""

    DESCRIBE = 1
    """JSON: entry point, paths, facts, shape, dtypes. Answered by WORKSPACE."""
    LOAD = 2
    """JSON: layout of the two arenas, whose descriptors travel with the frame. Answered by LOADED."""
    RUN = 3
    """uint16 configuration, uint32 steps. Answered by DONE."""
    SUPPORTS = 4
    """JSON: entry point, paths, facts, shapes. Answered by ANSWERS."""
    COUNT = 6
    """uint16 configuration: how many kernels does its captured step launch? Answered by COUNTED."""
    STOP = 5
    """Nothing. Answered by the end of the process."""
    HELLO = 64
    """Nothing: the stub is ready and has imported torch, but no code of the implementation."""
    WORKSPACE = 65
    """uint64 bytes."""
    LOADED = 66
    """UTF-8 names of stages, one a line, for display."""
    DONE = 67
    """uint16 configuration, uint32 steps, as asked; on a device also uint64 nanoseconds between two events round the steps."""
    ANSWERS = 68
    """For each shape: uint8 declined, uint16 length, UTF-8 reason."""
    FAILED = 69
    """UTF-8 text: the implementation raised."""
    COUNTED = 70
    """uint32 kernel nodes."""


RUN = struct.Struct("<HI")
EVENTS = struct.Struct("<Q")
NUMBER = struct.Struct("<H")
KERNELS = struct.Struct("<I")
WORKSPACE = struct.Struct("<Q")
ANSWER = struct.Struct("<BH")
REASON_LIMIT = 1024
ANSWER_LIMIT = 4096
"""Most shapes in one SUPPORTS frame."""

LARGEST = {
    Kind.HELLO: 0,
    Kind.WORKSPACE: WORKSPACE.size,
    Kind.LOADED: 8192,
    Kind.DONE: RUN.size + EVENTS.size,
    Kind.ANSWERS: ANSWER_LIMIT * (ANSWER.size + REASON_LIMIT),
    Kind.FAILED: 2048,
    Kind.COUNTED: KERNELS.size,
}
"""Largest payload of each frame from the arm, in bytes."""


def frame(kind: Kind, payload: bytes = b"") -> bytes:
    """Return the bytes of one frame."""
    return HEADER.pack(kind, len(payload)) + payload
