"""The jailed half of the probe: imports a directory, looks at the effects, asks ``supports()``, answers in a fixed layout.

It runs by path with ``python -I -P``; its one argument is the path of an order in JSON, which names the descriptor to answer
on. Frames: kind (one byte), length (four bytes, big-endian), payload; see ``probe_wire.py`` for the payloads.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ != "__main__" or TYPE_CHECKING:
    from kernels_under_test import contract
    from workers import probe_asking as asking
    from workers import probe_effects as effects
    from workers import probe_guard as guards
    from workers import probe_stand_ins as stand_ins
    from workers import probe_watch as watching
    from workers import probe_wire as wire
else:
    sys.path.insert(0, str(Path(__file__).parent))
    names = ("contract", "probe_asking", "probe_effects", "probe_guard", "probe_stand_ins", "probe_watch", "probe_wire")
    contract, asking, effects, guards, stand_ins, watching, wire = map(importlib.import_module, names)
    sys.path.pop(0)

WHOLE_PROCESS = ("EFF_TORCH_GLOBAL", "EFF_TORCH_MODE")
"""What not even a library may change as it is loaded for the directory."""


class Hiding:
    """A finder that makes packages look as if they were not installed, to imports and to those who ask first."""

    def __init__(self, finder: Any, names: frozenset[str]) -> None:
        self._finder = finder
        self._names = names

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """Find a module as the hidden-behind finder does, or nothing."""
        return None if fullname.partition(".")[0] in self._names else self._finder.find_spec(fullname, path, target)

    def find_distributions(self, context: Any) -> Iterator[Any]:
        """Find installed distributions (``importlib.metadata.version`` asks this way), or nothing."""
        asked = (getattr(context, "name", None) or "").lower().replace("-", "_")
        inner = getattr(self._finder, "find_distributions", None)
        return iter(()) if inner is None or asked in self._names else iter(inner(context))


def hide(names: Iterable[str]) -> None:
    """Hide top-level packages from this process, also where something has loaded them already."""
    hidden = frozenset(names)
    for name in [name for name in sys.modules if name.partition(".")[0] in hidden]:
        del sys.modules[name]
    sys.meta_path[:] = [Hiding(finder, hidden) for finder in sys.meta_path]


def main(order: Mapping[str, Any]) -> None:
    """Obey an order: phase ``supports`` or phase ``platform``."""
    channel = os.dup(order["channel"])
    os.close(order["channel"])
    os.set_inheritable(channel, False)
    gc.disable()  # nothing to collect while a thousand modules are loaded, and a tenth of the time
    try:
        import torch

        torch.set_num_threads(1)
    except ModuleNotFoundError:
        pass  # a machine without torch can still probe a directory that needs none
    gc.enable()
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


def _platform(order: Mapping[str, Any]) -> list[wire.Fault]:
    hide(order["absent"])
    faults, before = _first_look(order)
    watch = _watch(order)
    for module in order["modules"]:
        try:
            with watch:
                importlib.import_module(module)
        except BaseException as error:  # whatever stops an import stops it for every user of the platform
            faults.append(("SCOPE_PLATFORM", module, "imports without the GPU packages", _told(error)))
    return [*faults, *watch.take(), *_since(before, order)]


def _watch(order: Mapping[str, Any]) -> watching.Watch:
    return watching.Watch(str(Path(order["root"], *order["package"].split("."))))


def _supports(channel: int, order: Mapping[str, Any]) -> None:
    faults, before = _first_look(order)
    loaded = (order["entry_point"].partition(":")[0], *order["modules"], *order["packages"])
    faults.extend(stand_ins.faults(order["named"], order["package"], loaded))
    watch = _watch(order)
    guarding = asking.Guarding(order) if order["guard"] else None
    faults.extend(guarding.first() if guarding else ())
    with watch:
        candidate = _attribute(order["entry_point"], "SCOPE_ENTRY_POINT", faults)
    found = candidate is not None and callable(getattr(candidate, "supports", None))
    if candidate is not None and not found:
        faults.append(
            ("SCOPE_ENTRY_POINT", order["entry_point"], "an object with supports()", type(candidate).__name__)
        )
    if guarding:
        with watch:
            guard = _attribute(guarding.name, "SCOPE_GUARD", faults)
            faults.extend(guards.faults(guarding.name, guard) if guard is not None else ())
    for module in (*order["modules"], *order["packages"]):
        try:
            with watch:
                importlib.import_module(module)
        except BaseException:  # noqa: S112  (whether it can be imported at all is the platform phase's question)
            continue
    if guarding:
        with watch:
            faults.extend(guarding.again())
    after = effects.fingerprint(order["package"])
    faults.extend(watch.take())
    faults.extend(effects.differences(before, after, order["package"]))
    _send(channel, wire.IMPORTED, wire.pack_imported(found, faults))
    facts = _frozen(order["facts"])
    with watch:
        answers = [_answer(candidate, facts, shape) for shape in order["shapes"]] if found else []
    _send(channel, wire.ANSWERS, wire.pack_answers(answers))
    with watch:
        late = guarding.again() if guarding else []
    _send(channel, wire.LATE, wire.pack_faults([*late, *watch.take(), *_since(after, order)]))


def _first_look(order: Mapping[str, Any]) -> tuple[list[wire.Fault], effects.Facts]:
    """Load what the directory imports of others, and return what that did to the process, and the facts from then on."""
    _parents(order["package"], order["root"])
    effects.warm_up()
    wanted = [name for name in order["preload"] if name not in sys.modules]
    if wanted:
        before = effects.fingerprint(order["package"])
        for name in wanted:
            try:
                _load(name)
            except BaseException:  # noqa: S112  (a name in a module, or a module that is not installed here)
                continue
        after = effects.fingerprint(order["package"])
        found = effects.differences(before, after, order["package"])
        return [fault for fault in found if fault[0] in WHOLE_PROCESS], after
    return [], effects.fingerprint(order["package"])


def _load(name: str) -> None:
    if name == "torch.compile":
        importlib.import_module("torch").compile(_load)
    else:
        importlib.import_module(name)


def _since(before: effects.Facts, order: Mapping[str, Any]) -> list[wire.Fault]:
    return list(effects.differences(before, effects.fingerprint(order["package"]), order["package"]))


def _answer(candidate: Any, facts: Any, values: Mapping[str, Any]) -> tuple[int, str]:
    try:
        reason = candidate.supports(facts, contract.Shape(**values))
    except Exception as error:
        return wire.RAISED, _told(error)
    if reason is None:
        return wire.SERVES, ""
    return wire.DECLINES, reason if type(reason) is str else f"not a text: {type(reason).__name__}"


def _attribute(entry_point: str, code: str, faults: list[wire.Fault]) -> Any:
    module, name = entry_point.split(":")
    try:
        return getattr(importlib.import_module(module), name)
    except BaseException as error:  # SystemExit and KeyboardInterrupt included: an import has no business to end us
        faults.append((code, entry_point, "imports in the jail", _told(error)))
        return None


def _parents(package: str, root: str) -> None:
    """Make what lies above the directory bare: a ``__path__`` and no ``__init__``, so that no framework code runs."""
    parts = package.split(".")
    for depth in range(1, len(parts)):
        name = ".".join(parts[:depth])
        if name not in sys.modules:
            bare = types.ModuleType(name)
            bare.__path__ = [str(Path(root, *parts[:depth]))]
            sys.modules[name] = bare
            if depth > 1:
                setattr(sys.modules[".".join(parts[: depth - 1])], parts[depth - 1], bare)


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
