"""The harness's end of the protocol: sends orders, reads an attacker's bytes with bounded sizes and in bounded time."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from gatekeeper.domain.samples import LARGEST_WHOLE
from workers import wire
from workers.wire import Kind


class ArmFailed(Exception):
    """An arm did not do as told. ``code`` says how: ``RUN_NO_RESULT``, ``RUN_TIMEOUT``, ``RUN_PROTOCOL``, ``RUN_RAISED``."""

    def __init__(self, code: str, expected: str, found: str) -> None:
        super().__init__(f"{code}: expected {expected}; found {found}")
        self.code, self.expected, self.found = code, expected, found


class ArmChannel:
    """One arm's protocol. Every method raises :class:`ArmFailed` and nothing else for what the arm does."""

    def __init__(self) -> None:
        self._socket, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def close(self) -> None:
        """Close both ends."""
        self._socket.close()
        self.theirs.close()

    def order(self, kind: Kind, value: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send a frame of JSON, with descriptors."""
        self._send(wire.frame(kind, json.dumps(value).encode()), descriptors)

    def ask_run(self, number: int, steps: int) -> None:
        """Send the order to run; the arm may be frozen, the frame waits in the socket."""
        self._send(wire.frame(Kind.RUN, wire.RUN.pack(number, steps)))

    def stop(self) -> None:
        """Send the order to end."""
        self._send(wire.frame(Kind.STOP))

    def hello(self, timeout: float) -> None:
        """Wait until the stub is ready."""
        self._expect(Kind.HELLO, timeout)

    def workspace(self, timeout: float) -> int:
        """Return how many bytes of workspace the implementation wants."""
        payload = self._expect(Kind.WORKSPACE, timeout)
        return int(wire.WORKSPACE.unpack(self._sized(payload, wire.WORKSPACE.size))[0])

    def loaded(self, timeout: float) -> tuple[str, ...]:
        """Return the stage names, control characters left out."""
        text = self._expect(Kind.LOADED, timeout).decode("utf-8", "replace")
        return tuple("".join(c for c in line if c.isprintable()) for line in text.split("\n") if line)[:256]

    def kernels(self, number: int, timeout: float = 5.0) -> int:
        """Return how many kernels the captured step of a configuration launches, as its graph says."""
        self._send(wire.frame(Kind.COUNT, wire.NUMBER.pack(number)))
        payload = self._expect(Kind.COUNTED, timeout)
        return int(wire.KERNELS.unpack(self._sized(payload, wire.KERNELS.size))[0])

    def done(self, number: int, steps: int, timeout: float, *, awake: bool = False) -> int | None:
        """Wait until a run is done. The echo binds the answer to the order, no more.

        ``awake``: look again and again instead of sleeping, which takes a core but sees the answer within microseconds.

        Returns:
            The arm's own reading in nanoseconds, from events on its device; None where it has none.
        """
        payload = self._expect(Kind.DONE, timeout, awake=awake)
        echo, events = payload[: wire.RUN.size], payload[wire.RUN.size :]
        if echo != wire.RUN.pack(number, steps) or len(events) not in (0, wire.EVENTS.size):
            raise ArmFailed("RUN_PROTOCOL", f"the end of run ({number}, {steps})", payload[:16].hex())
        return min(int(wire.EVENTS.unpack(events)[0]), LARGEST_WHOLE) or None if events else None

    def answers(self, count: int, timeout: float) -> list[str | None]:
        """Return for each shape None if served, else the reason why not."""
        payload = self._expect(Kind.ANSWERS, timeout)
        found: list[str | None] = []
        for _ in range(count):
            if len(payload) < wire.ANSWER.size:
                raise ArmFailed("RUN_PROTOCOL", f"{count} answers", f"{len(found)}")
            declined, length = wire.ANSWER.unpack_from(payload)
            text, payload = payload[wire.ANSWER.size :][:length], payload[wire.ANSWER.size + length :]
            if declined > 1 or length > wire.REASON_LIMIT or len(text) != length:
                raise ArmFailed("RUN_PROTOCOL", f"a reason of at most {wire.REASON_LIMIT} bytes", f"length {length}")
            reason = "".join(c for c in text.decode("utf-8", "replace") if c.isprintable())
            found.append(reason if declined else None)
        if payload:
            raise ArmFailed("RUN_PROTOCOL", "nothing after the last answer", f"{len(payload)} bytes")
        return found

    def _sized(self, payload: bytes, size: int) -> bytes:
        if len(payload) != size:
            raise ArmFailed("RUN_PROTOCOL", f"{size} bytes", f"{len(payload)}")
        return payload

    def _send(self, data: bytes, descriptors: Sequence[int] = ()) -> None:
        deadline = time.monotonic() + 10.0
        sent = 0
        while sent < len(data):
            try:
                if sent == 0 and descriptors:
                    sent += socket.send_fds(self._socket, [data], list(descriptors))
                else:
                    sent += self._socket.send(data[sent:])
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ArmFailed("RUN_TIMEOUT", "an order read within 10 s", "a full socket") from None
                time.sleep(0.001)
            except OSError as error:
                raise ArmFailed("RUN_NO_RESULT", "a running arm", f"closed protocol ({error.strerror})") from None

    def _expect(self, kind: Kind, timeout: float, *, awake: bool = False) -> bytes:
        deadline = time.monotonic() + timeout
        found, length = wire.HEADER.unpack(self._read(wire.HEADER.size, deadline, awake=awake))
        if found not in (kind, Kind.FAILED):
            raise ArmFailed("RUN_PROTOCOL", f"frame {kind.name}", f"kind {found}")
        if length > wire.LARGEST[Kind(found)]:
            raise ArmFailed("RUN_PROTOCOL", f"at most {wire.LARGEST[Kind(found)]} bytes", f"{length}")
        payload = self._read(length, deadline)
        if found == Kind.FAILED:
            text = "".join(c for c in payload.decode("utf-8", "replace") if c.isprintable())
            raise ArmFailed("RUN_RAISED", f"frame {kind.name}", text[:500])
        return payload

    def _read(self, count: int, deadline: float, *, awake: bool = False) -> bytes:
        data = bytearray()
        while len(data) < count:
            left = deadline - time.monotonic()
            if left <= 0 or not (awake or self._poll.poll(left * 1000)):
                raise ArmFailed("RUN_TIMEOUT", "an answer in time", "none")
            try:
                part = self._socket.recv(count - len(data))
            except BlockingIOError:
                continue
            except OSError as error:
                raise ArmFailed("RUN_NO_RESULT", "an answer", f"closed protocol ({error.strerror})") from None
            if not part:
                raise ArmFailed("RUN_NO_RESULT", "an answer", "the end of the process")
            data += part
        return bytes(data)
