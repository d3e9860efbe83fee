"""The arm's stub: loads one implementation and obeys the harness. It runs inside the jail, by path, beside copies of
``wire.py`` and ``contract.py``; nothing else of ours is visible there, and nothing in this process is a secret.

The first argument is the number of the protocol's socket. It is moved away at once; descriptors 1 and 2 stay the log. The second
says how steps run: ``eager``, or ``graph`` on a device, for which ``graph_loop.py`` lies beside this file.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import mmap
import os
import socket
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ != "__main__" or TYPE_CHECKING:
    from kernels_under_test import contract
    from workers import wire
else:
    sys.path.insert(0, str(Path(__file__).parent))
    contract, wire = importlib.import_module("contract"), importlib.import_module("wire")
    sys.path.pop(0)

gc.disable()  # nothing to collect while a thousand modules are loaded, and a tenth of the time
import torch  # noqa: E402

gc.enable()


def beside(name: str) -> Any:
    """Import a module that lies beside this file; nothing else there can be imported afterwards."""
    sys.path.insert(0, str(Path(__file__).parent))
    module = importlib.import_module(name)
    sys.path.pop(0)
    return module


Frame = tuple[wire.Kind, bytes, list[int]]
M_PERTURB = -6
"""The option's number in ``malloc.h`` of the GNU C library."""


class Channel:
    """The arm's end of the protocol."""

    def __init__(self, number: int) -> None:
        moved = os.dup(number)
        os.close(number)
        os.set_inheritable(moved, False)
        self._socket = socket.socket(fileno=moved)

    def send(self, kind: wire.Kind, payload: bytes = b"") -> None:
        """Send one frame."""
        self._socket.sendall(wire.frame(kind, payload))

    def receive(self) -> Frame:
        """Wait for one frame; return its kind, payload and descriptors. EOFError if the harness is gone."""
        head, descriptors, _, _ = socket.recv_fds(self._socket, wire.HEADER.size, 4)
        head += self._exactly(wire.HEADER.size - len(head)) if head else b""
        if not head:
            raise EOFError("the harness closed the protocol")
        kind, length = wire.HEADER.unpack(head)
        return wire.Kind(kind), self._exactly(length), list(descriptors)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            if not part:
                raise EOFError("the harness closed the protocol")
            data += part
        return bytes(data)


@dataclass(frozen=True)
class Loaded:
    """One configuration, ready to run: views into the arenas by name, and the implementation's step."""

    step: Callable[[], None]
    buffers: Mapping[str, torch.Tensor]
    schedules: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    """(step buffer, all rows)."""
    histories: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    """(output, its history)."""

    def run(self, steps: int) -> int | None:
        """Run the closed loop of ``contract.py`` for a number of steps; there are no events to read on a CPU."""
        b = self.buffers
        x, out, noise, table, multipliers = b[contract.X], b[contract.OUT], b["noise"], b["table"], b["multipliers"]
        x.copy_(noise[0])
        for t in range(steps):
            for buffer, rows in self.schedules:
                buffer.copy_(rows[t])
            self.step()
            for output, history in self.histories:
                history[t].copy_(output)
            if t + 1 < steps:
                x.copy_(noise[t + 1].float() + contract.feedback(out, multipliers, table))
        return None


def find(entry_point: str, root: str, bare: int) -> Any:
    """Import ``module:attribute`` from below ``root``. Of its packages the first ``bare`` are empty: no ``__init__`` runs."""
    module, attribute = entry_point.split(":")
    parts = module.split(".")
    if root not in sys.path:
        sys.path.insert(0, root)
    for depth in range(1, bare + 1):
        name = ".".join(parts[:depth])
        if name not in sys.modules:
            package = types.ModuleType(name)
            package.__path__ = [str(Path(root, *parts[:depth]))]
            sys.modules[name] = package
    return getattr(importlib.import_module(module), attribute)


def fill_fresh_memory(pattern: int) -> None:
    """Let the C library fill what it hands out with the complement of a byte, and what is given back with the byte itself; with 0
    neither."""
    ctypes.CDLL(None).mallopt(M_PERTURB, pattern)


def shape_of(values: Mapping[str, Any]) -> Any:
    """Return a ``contract.Shape`` from its fields."""
    return contract.Shape(**values)


def mapped(descriptors: Sequence[int]) -> list[torch.Tensor]:
    """Map the arena's two files; return all bytes of each."""
    maps = []
    fixed, changing = descriptors
    for descriptor, protection in ((fixed, mmap.PROT_READ), (changing, mmap.PROT_READ | mmap.PROT_WRITE)):
        size = os.fstat(descriptor).st_size
        memory = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED, prot=protection)
        maps.append(torch.frombuffer(memory, dtype=torch.uint8))
        os.close(descriptor)
    return maps


def views(layout: Mapping[str, Any], maps: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return a tensor for each row of the layout table: name -> [arena, offset, shape, dtype]."""
    found = {}
    for name, (arena, offset, shape, dtype) in layout.items():
        kind = getattr(torch, dtype)
        size = kind.itemsize
        for count in shape:
            size *= count
        found[name] = maps[arena][offset : offset + size].view(kind).reshape(shape)
    return found


class Stub:
    """Obeys frames until STOP."""

    def __init__(self, channel: Channel, graphs: Any = None) -> None:
        self.channel, self.graphs = channel, graphs
        """``graphs`` is the module ``graph_loop`` where steps run on a device."""
        self.loaded: list[Any] = []
        self.described: tuple[Any, Mapping[str, Any], Any] | None = None

    def serve(self) -> None:
        """Say hello and answer frame after frame."""
        self.channel.send(wire.Kind.HELLO)
        while True:
            kind, payload, descriptors = self.channel.receive()
            if kind is wire.Kind.STOP:
                return
            try:
                answer = self.answer(kind, payload, descriptors)
            except (
                Exception
            ) as error:  # the harness is told; whatever is no Exception ends this process, and it sees that
                text = f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:2000]
                self.channel.send(wire.Kind.FAILED, text)
                continue
            self.channel.send(*answer)

    def answer(self, kind: wire.Kind, payload: bytes, descriptors: list[int]) -> tuple[wire.Kind, bytes]:
        """Do what one frame asks and return the answer."""
        if kind is wire.Kind.RUN:
            number, steps = wire.RUN.unpack(payload)
            events = self.loaded[number].run(steps)
            return wire.Kind.DONE, payload if events is None else payload + wire.EVENTS.pack(events)
        if kind is wire.Kind.COUNT:
            (number,) = wire.NUMBER.unpack(payload)
            return wire.Kind.COUNTED, wire.KERNELS.pack(self.loaded[number].kernels)
        order = json.loads(payload)
        if kind is wire.Kind.DESCRIBE:
            fill_fresh_memory(order["pattern"])
            implementation, facts, shape = (
                find(order["entry_point"], order["root"], order["bare"]),
                freeze(order["facts"]),
                shape_of(order["shape"]),
            )
            self.described = implementation, facts, shape
            return wire.Kind.WORKSPACE, wire.WORKSPACE.pack(int(implementation.workspace(facts, shape)))
        if kind is wire.Kind.LOAD:
            stages = self.load(order, descriptors)
            return wire.Kind.LOADED, "\n".join(str(stage)[:80] for stage in stages)[:4000].encode("utf-8", "replace")
        implementation = find(order["entry_point"], order["root"], order["bare"])
        facts = freeze(order["facts"])
        return wire.Kind.ANSWERS, b"".join(answered(implementation, facts, shape_of(s)) for s in order["shapes"])

    def load(self, order: Mapping[str, Any], descriptors: list[int]) -> tuple[str, ...]:
        """Map the arenas, build the step and return its stage names."""
        assert self.described is not None
        implementation, facts, shape = self.described
        maps = self.graphs.mapped(descriptors, order["sizes"]) if self.graphs else mapped(descriptors)
        tensors = views(order["layout"], maps)
        given = {name: tensors[name] for name in order["given"]}
        step = implementation.build(facts, shape, given)
        schedules = tuple((tensors[name], tensors["schedule." + name]) for name in order["schedules"])
        histories = tuple((tensors[name], tensors["history." + name]) for name in order["outputs"])
        self.loaded.append((self.graphs.GraphLoop if self.graphs else Loaded)(step, tensors, schedules, histories))
        return tuple(getattr(step, "stages", ()))[:256]


def answered(implementation: Any, facts: Mapping[str, Any], shape: Any) -> bytes:
    """Return the frame part that says whether a shape is served."""
    reason = implementation.supports(facts, shape)
    text = b"" if reason is None else str(reason).encode("utf-8", "replace")[: wire.REASON_LIMIT]
    head: bytes = wire.ANSWER.pack(reason is not None, len(text))
    return head + text


def freeze(value: Any) -> Any:
    """Return JSON data with lists as tuples, as the contract promises for facts."""
    if isinstance(value, list):
        return tuple(freeze(item) for item in value)
    if isinstance(value, dict):
        return {name: freeze(item) for name, item in value.items()}
    return value


def main() -> None:
    """Serve the harness at the descriptor given as the first argument."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    channel = Channel(int(sys.argv[1]))
    graphs = beside("graph_loop") if sys.argv[2:] == ["graph"] else None
    if graphs:
        graphs.warm_up()
    Stub(channel, graphs).serve()


if __name__ == "__main__":
    main()
