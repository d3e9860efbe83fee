"""The jailed half of the probe: imports a directory, looks at the effects, asks ``supports()``, answers in a fixed layout.

It runs by path with ``python -I -P``; its one argument is the path of an order in JSON, which names the descriptor to answer
on. Frames: kind (one byte), length (four bytes, big-endian), payload; see ``probe_wire.py`` for the payloads.
"""

from __future__ import annotations

import importlib
import importlib.abc
import json
import os
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ != "__main__" or TYPE_CHECKING:
    from workers import probe_effects as effects
    from workers import probe_wire as wire
else:
    sys.path.insert(0, str(Path(__file__).parent))
    effects, wire = importlib.import_module("probe_effects"), importlib.import_module("probe_wire")
    sys.path.pop(0)


class Absent(importlib.abc.MetaPathFinder):
    """Makes packages look as if they were not installed."""

    def __init__(self, names: list[str]) -> None:
        self._names = frozenset(names)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        """Refuse an absent package; know nothing about any other."""
        del path, target
        if fullname in self._names or fullname.partition(".")[0] in self._names:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def main(order: Mapping[str, Any]) -> None:
    """Obey an order: phase ``supports`` or phase ``platform``."""
    channel = os.dup(order["channel"])
    os.close(order["channel"])
    os.set_inheritable(channel, False)
    try:
        import torch

        torch.set_num_threads(1)
    except ModuleNotFoundError:
        pass  # a machine without torch can still probe a directory that needs none
    sys.path.insert(0, order["root"])
    _send(channel, wire.HELLO, b"")
    if order["phase"] == "platform":
        _send(channel, wire.PLATFORM, wire.pack_faults(_platform(order)))
    else:
        _supports(channel, order)
    os.close(channel)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # no exit handler of foreign code runs on the way out


def _platform(order: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    sys.meta_path.insert(0, Absent(order["absent"]))
    faults = []
    for module in order["modules"]:
        try:
            _import(module, order["root"])
        except BaseException as error:  # whatever stops an import stops it for every user of the platform
            faults.append(("SCOPE_PLATFORM", module, "imports without the GPU packages", _told(error)))
    return faults


def _supports(channel: int, order: Mapping[str, Any]) -> None:
    own = order["entry_point"].partition(".")[0].partition(":")[0]
    _parents(order["entry_point"].partition(":")[0], order["root"])
    effects.fingerprint(own)  # the first look loads what looking itself needs
    before = effects.fingerprint(own)
    faults: list[tuple[str, str, str, str]] = []
    candidate = _attribute(order["entry_point"], order["root"], "SCOPE_ENTRY_POINT", faults)
    if order["guard"]:
        _attribute(order["guard"], order["root"], "SCOPE_GUARD", faults)
    found = candidate is not None and callable(getattr(candidate, "supports", None))
    if candidate is not None and not found:
        faults.append(
            ("SCOPE_ENTRY_POINT", order["entry_point"], "an object with supports()", type(candidate).__name__)
        )
    after = effects.fingerprint(own)
    faults.extend(effects.differences(before, after, own))
    _send(channel, wire.IMPORTED, wire.pack_imported(found, faults))
    facts = _frozen(order["facts"])
    answers = [_answer(candidate, facts, shape) for shape in order["shapes"]] if found else []
    late = list(effects.differences(after, effects.fingerprint(own), own))
    _send(channel, wire.ANSWERS, wire.pack_answers(answers, late))


def _answer(candidate: Any, facts: Any, values: Mapping[str, Any]) -> tuple[int, str]:
    shape = types.SimpleNamespace(**values, requests=values["rows"] // values["query_tokens"])
    try:
        reason = candidate.supports(facts, shape)
    except Exception as error:
        return wire.RAISED, _told(error)
    if reason is None:
        return wire.SERVES, ""
    return wire.DECLINES, reason if type(reason) is str else f"not a text: {type(reason).__name__}"


def _attribute(entry_point: str, root: str, code: str, faults: list[tuple[str, str, str, str]]) -> Any:
    module, name = entry_point.split(":")
    try:
        return getattr(_import(module, root), name)
    except BaseException as error:  # SystemExit and KeyboardInterrupt included: an import has no business to end us
        faults.append((code, entry_point, "imports in the jail", _told(error)))
        return None


def _import(module: str, root: str) -> types.ModuleType:
    _parents(module, root)
    return importlib.import_module(module)


def _parents(module: str, root: str) -> None:
    """Make packages above the module's own bare: a ``__path__`` and no ``__init__``, so that no framework code runs."""
    parts = module.split(".")
    for depth in range(1, len(parts) - 1):
        name = ".".join(parts[:depth])
        if name not in sys.modules:
            bare = types.ModuleType(name)
            bare.__path__ = [str(Path(root, *parts[:depth]))]
            sys.modules[name] = bare


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return types.MappingProxyType({key: _frozen(item) for key, item in value.items()})
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _send(channel: int, kind: int, payload: bytes) -> None:
    data = wire.HEADER.pack(kind, len(payload)) + payload
    while data:
        data = data[os.write(channel, data) :]


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
