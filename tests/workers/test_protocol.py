"""The parent's parser against an attacker's bytes."""

from __future__ import annotations

import pickle
import struct
import time

import pytest

from workers import wire
from workers.protocol import ArmChannel, ArmFailed


@pytest.fixture
def channel():
    made = ArmChannel()
    yield made
    made.close()


def answer(declined: int, reason: bytes, length: int | None = None) -> bytes:
    return wire.ANSWER.pack(declined, len(reason) if length is None else length) + reason


def test_an_honest_conversation(channel):
    channel.theirs.sendall(wire.frame(wire.Kind.HELLO) + wire.frame(wire.Kind.WORKSPACE, struct.pack("<Q", 77)))
    channel.hello(1)
    assert channel.workspace(1) == 77
    channel.theirs.sendall(wire.frame(wire.Kind.ANSWERS, answer(0, b"") + answer(1, "zu groß\n".encode())))
    assert channel.answers(2, 1) == [None, "zu groß"]
    channel.theirs.sendall(wire.frame(wire.Kind.DONE, wire.RUN.pack(3, 9)))
    channel.done(3, 9, 1)


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(ValueError("boo"))[:5].ljust(5, b"\0"),
        wire.HEADER.pack(wire.Kind.DONE, 1 << 31),
        wire.frame(wire.Kind.DONE, b"12345"),
        wire.frame(wire.Kind.DONE, wire.RUN.pack(0, 4)),
        wire.frame(wire.Kind.HELLO),
        wire.frame(wire.Kind.RUN, wire.RUN.pack(0, 5)),
    ],
)
def test_anything_but_the_expected_frame_is_a_protocol_error(channel, data):
    channel.theirs.sendall(data)
    with pytest.raises(ArmFailed) as failed:
        channel.done(0, 5, 0.5)
    assert failed.value.code == "RUN_PROTOCOL"


@pytest.mark.parametrize(
    "payload",
    [
        answer(0, b""),
        answer(2, b"") * 2,
        answer(1, b"ab", 900) + answer(0, b""),
        answer(0, b"") * 3,
        answer(1, b"x" * 1025) * 2,
    ],
)
def test_a_wrong_table_of_answers_is_a_protocol_error(channel, payload):
    channel.theirs.sendall(wire.frame(wire.Kind.ANSWERS, payload))
    with pytest.raises(ArmFailed, match="RUN_PROTOCOL"):
        channel.answers(2, 0.5)


def test_silence_half_a_frame_and_a_closed_end_are_told_apart_in_time(channel):
    began = time.monotonic()
    channel.theirs.sendall(wire.HEADER.pack(wire.Kind.DONE, 6) + b"ab")
    with pytest.raises(ArmFailed, match="RUN_TIMEOUT"):
        channel.done(0, 5, 0.2)
    assert time.monotonic() - began < 2
    channel.theirs.close()
    with pytest.raises(ArmFailed, match="RUN_NO_RESULT"):
        channel.done(0, 5, 1)


def test_what_the_implementation_raised_is_shown_without_control_characters(channel):
    channel.theirs.sendall(wire.frame(wire.Kind.FAILED, b"\x1b[2Jboom"))
    with pytest.raises(ArmFailed) as failed:
        channel.done(0, 5, 1)
    assert (failed.value.code, failed.value.found) == ("RUN_RAISED", "[2Jboom")


def test_events_of_a_device_come_with_the_end_of_a_run_and_kernels_are_counted(channel):
    done = wire.RUN.pack(3, 9)
    channel.theirs.sendall(wire.frame(wire.Kind.DONE, done) + wire.frame(wire.Kind.DONE, done + wire.EVENTS.pack(1234)))
    assert [channel.done(3, 9, 1), channel.done(3, 9, 1)] == [None, 1234]
    channel.theirs.sendall(wire.frame(wire.Kind.COUNTED, wire.KERNELS.pack(23)))
    assert channel.kernels(0) == 23
    assert channel.theirs.recv(100) == wire.frame(wire.Kind.COUNT, wire.NUMBER.pack(0))


def test_a_reading_that_no_json_number_holds_is_cut_and_none_of_zero_is_kept(channel):
    done = wire.RUN.pack(3, 9)
    for reading in ((1 << 64) - 1, 0):
        channel.theirs.sendall(wire.frame(wire.Kind.DONE, done + wire.EVENTS.pack(reading)))
    assert [channel.done(3, 9, 1), channel.done(3, 9, 1)] == [(1 << 53) - 1, None]


def test_half_a_reading_is_a_protocol_error(channel):
    channel.theirs.sendall(wire.frame(wire.Kind.DONE, wire.RUN.pack(3, 9) + b"1234"))
    with pytest.raises(ArmFailed, match="RUN_PROTOCOL"):
        channel.done(3, 9, 0.5)
