"""The jailed half of the probe that builds the candidate and runs a few steps: what it switches is on again after each of them.

It runs by path with ``python -I -P``, as ``probe_child.py`` does; its one argument is the path of an order in JSON. Standard library
and torch only, and other files of the probe. What a build or a step raises is no fault here: whether the candidate works is the
race's question. Numbers are not looked at either; the tensors hold what the problem's own ``fill`` put into them.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ != "__main__" or TYPE_CHECKING:
    from kernels_under_test import contract
    from workers import probe_effects as effects
    from workers import probe_wire as wire
else:
    sys.path.insert(0, str(Path(__file__).parent))
    contract, effects, wire = map(importlib.import_module, ("contract", "probe_effects", "probe_wire"))
    sys.path.pop(0)

EVERYBODYS = ("EFF_TORCH_GLOBAL", "EFF_TORCH_MODE", "EFF_OP_OVERRIDE")
"""What nothing may change for others while it is built or runs, not even a library on behalf of the candidate."""
PATCHES = ("EFF_FOREIGN_MUTATION", "EFF_BUILTINS")
"""Told as well where no further library was loaded meanwhile: what one does to itself as it is loaded is its own."""
DRAWN = ("random state", "CUDA context")
"""Who draws random numbers or uses the device changes these, as everybody does."""


def main(order: Mapping[str, Any]) -> None:
    """Obey an order."""
    channel = os.dup(order["channel"])
    os.close(order["channel"])
    os.set_inheritable(channel, False)
    import torch

    torch.set_num_threads(1)  # as the race's stub does
    torch.set_grad_enabled(False)
    sys.path.insert(0, order["root"])
    _send(channel, wire.HELLO, b"")
    _send(channel, wire.PLATFORM, wire.pack_faults(list(_faults(order, torch))))
    os._exit(0)  # no exit handler of foreign code runs on the way out


def _faults(order: Mapping[str, Any], torch: Any) -> Iterator[wire.Fault]:
    _parents(order["package"], order["root"])
    for name in order["preload"]:
        try:
            importlib.import_module(name)
        except BaseException:  # noqa: S112  (a name in a module, or a module that is not installed here)
            continue
    module, name = order["entry_point"].split(":")
    shape = contract.Shape(**order["shape"])
    facts, tensors = _frozen(order["facts"]), _tensors(order, torch)
    try:
        candidate = getattr(importlib.import_module(module), name)
        if candidate.supports(facts, shape) is not None:
            return
        wanted = int(candidate.workspace(facts, shape))
    except BaseException:  # the other process tells of it
        return
    tensors["workspace"] = torch.zeros(min(max(wanted, 1), order["most"]), dtype=torch.uint8)
    effects.warm_up()
    gc.collect()
    loaded, before = _libraries(), effects.fingerprint(order["package"])
    quick = effects.settings()
    told: set[str] = set()
    for moment in _moments(candidate, facts, shape, tensors, order, torch):
        for code, where, expected, found in _switched(quick, order):
            if where not in told:
                told.add(where)
                yield code, where, f"{expected}, as before", f"{found}, {moment}"
    codes = (*EVERYBODYS, *PATCHES) if _libraries() <= loaded else EVERYBODYS
    for fault in effects.differences(before, effects.fingerprint(order["package"]), order["package"]):
        if fault[0] in codes and fault[1] not in told and fault[1] not in DRAWN:
            yield fault


def _moments(
    candidate: Any, facts: Any, shape: Any, tensors: dict[str, Any], order: Mapping[str, Any], torch: Any
) -> Iterator[str]:
    """Build and run; yield after what it was, each time. It ends where something is raised."""
    given = {name: tensors[name] for name in (*order["given"], "workspace")}
    try:
        step = candidate.build(facts, shape, given)
    except BaseException:
        yield "after a build() that failed"
        return
    yield "after build()"
    generator = torch.Generator().manual_seed(1)
    for t in range(order["steps"]):
        for schedule in order["schedules"]:
            tensors[schedule].copy_(tensors[f"schedule.{schedule}"][t])
        tensors["x"].copy_(torch.randn(tensors["x"].shape, generator=generator))
        try:
            step()
        except BaseException:
            yield f"after step {t + 1}, which failed"
            return
        yield f"after step {t + 1}"


def _switched(before: effects.Facts, order: Mapping[str, Any]) -> Iterator[wire.Fault]:
    for fault in effects.differences(before, effects.settings(), order["package"]):
        if fault[0] in EVERYBODYS and fault[1] not in DRAWN:
            yield fault


def _libraries() -> frozenset[str]:
    return frozenset(name.partition(".")[0] for name in sys.modules) | {
        name for name in sys.modules if name.startswith("torch.") and name.count(".") == 1
    }


def _tensors(order: Mapping[str, Any], torch: Any) -> dict[str, Any]:
    """Return a tensor for each row of the table: name -> [offset, shape, dtype]."""
    memory = torch.frombuffer(bytearray(Path(order["data"]).read_bytes()), dtype=torch.uint8)
    found = {}
    for name, (offset, size, shape, dtype) in order["table"].items():
        found[name] = memory[offset : offset + size].view(getattr(torch, dtype)).reshape(shape)
    return found


def _parents(package: str, root: str) -> None:
    """Make what lies above the directory bare, as the race's stub does."""
    parts = package.split(".")
    for depth in range(1, len(parts)):
        name = ".".join(parts[:depth])
        bare = types.ModuleType(name)
        bare.__path__ = [str(Path(root, *parts[:depth]))]
        sys.modules.setdefault(name, bare)


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in value.items()}
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _send(channel: int, kind: int, payload: bytes) -> None:
    data = wire.HEADER.pack(kind, len(payload)) + payload
    while data:
        data = data[os.write(channel, data) :]


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
