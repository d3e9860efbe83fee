"""What a process looks like from within: a fingerprint to be taken before and after foreign code ran.

It runs inside the jail, by path, and imports the standard library only; torch is looked at where it is loaded. Everything that
it sees, it sees in the process of the code that it watches: an author who expects it can hide from it. It finds the careless and
the plain, with the name of what they touched; what really protects a verdict is that nothing trusted ever runs in that process.
"""

from __future__ import annotations

import atexit
import gc
import hashlib
import importlib
import logging
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if __package__ or TYPE_CHECKING:
    from workers import probe_modules as modules
    from workers import probe_settings as torch_settings
else:
    modules, torch_settings = map(importlib.import_module, ("probe_modules", "probe_settings"))

Fault = tuple[str, str, str, str]
"""Code, where, expected, found."""
Facts = dict[tuple[str, str], Any]
"""(code, where) -> value; compared by ``is`` or, for plain values, by equality."""

MISSING = "nothing"
_UNDER_A_MODE = ("EFF_TORCH_GLOBAL", "EFF_OP_OVERRIDE", "EFF_IMPORT_SIDE_EFFECT")
"""Codes of facts that are not read while a mode is entered; that one is, is a fact of its own."""
_PLAIN = (str, int, float, bool, bytes, tuple, type(None), modules.Items)
STOCK_NAMESPACES = frozenset({"aten", "prim", "prims", "_c10d_functional", "c10d", "c10d_functional", "quantized", "mkldnn",
                              "vllm", "_C", "_moe_C", "_C_cache_ops", "symm_mem", "higher_order"})  # fmt: skip
OPEN_NAMESPACES = frozenset({"vllm"})
"""Namespaces of stock operators in which everybody registers new ones."""
LIMITS = ("RLIMIT_AS", "RLIMIT_CORE", "RLIMIT_CPU", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_MEMLOCK", "RLIMIT_NOFILE",
          "RLIMIT_NPROC", "RLIMIT_STACK")  # fmt: skip


def fingerprint(own: str) -> Facts:
    """Return the facts of this process. Modules at or below the dotted name ``own`` are the foreign code itself: left out."""
    collects = gc.isenabled()
    gc.disable()  # two hundred thousand facts, none of them garbage
    facts = dict(modules.loaded(lambda name: _below(name, own)))
    if collects:
        gc.enable()
    facts.update(_process())
    facts.update(_torch())
    return facts


def warm_up() -> None:
    """Read everything once: the first reading loads what reading itself needs. Who asks for a temporary directory makes
    ``tempfile`` remember it, which is no change of anybody's."""
    tempfile.gettempdir()
    for _ in (*_process(), *_torch()):
        pass


def _below(name: str, own: str) -> bool:
    return name == own or name.startswith(own + ".")


def _process() -> Iterator[modules.Fact]:
    for name, value in os.environ.items():
        yield ("EFF_ENVIRONMENT", f"os.environ[{name!r}]"), value
    yield ("EFF_ENVIRONMENT", "working directory"), os.getcwd()  # noqa: PTH109  (standard library only, and fast)
    yield ("EFF_ENVIRONMENT", "file mode mask"), _mask()
    yield ("EFF_ENVIRONMENT", "processors"), tuple(sorted(os.sched_getaffinity(0)))
    yield ("EFF_ENVIRONMENT", "priority"), os.getpriority(os.PRIO_PROCESS, 0)
    for limit in LIMITS:
        yield ("EFF_ENVIRONMENT", limit), resource.getrlimit(getattr(resource, limit))
    yield ("EFF_ENVIRONMENT", "recursion limit"), sys.getrecursionlimit()
    yield ("EFF_ENVIRONMENT", "thread switch interval"), sys.getswitchinterval()
    yield ("EFF_ENVIRONMENT", "library loading flags"), sys.getdlopenflags()
    yield ("EFF_ENVIRONMENT", "random state"), _digest(repr(random.getstate()).encode())
    yield ("EFF_ENVIRONMENT", "logging"), (logging.root.level, logging.root.manager.disable, len(logging.root.handlers))
    yield from _background()
    for name in ("meta_path", "path_hooks"):
        yield ("EFF_IMPORT_HOOK", f"sys.{name}"), modules.Items(tuple(getattr(sys, name)))
    yield ("EFF_IMPORT_HOOK", "sys.path"), tuple(sys.path)
    hooks = (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile())
    yield ("EFF_IMPORT_HOOK", "trace and profile functions"), modules.Items(hooks)


def _background() -> Iterator[modules.Fact]:
    for number in signal.valid_signals():
        yield ("EFF_BACKGROUND_WORK", f"signal handler {int(number)}"), signal.getsignal(number)
    yield (
        ("EFF_BACKGROUND_WORK", "blocked signals"),
        tuple(sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ())))),
    )
    for timer in ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF"):
        shown = "interval timer" if timer == "ITIMER_REAL" else f"interval timer {timer}"
        yield ("EFF_BACKGROUND_WORK", shown), signal.getitimer(getattr(signal, timer)) != (0.0, 0.0)
    yield ("EFF_BACKGROUND_WORK", "atexit callbacks"), atexit._ncallbacks()
    yield ("EFF_BACKGROUND_WORK", "finalizers"), _finalizers()
    yield ("EFF_BACKGROUND_WORK", "threads"), tuple(sorted(thread.name for thread in threading.enumerate()))
    yield ("EFF_BACKGROUND_WORK", "kernel threads"), len(os.listdir("/proc/self/task"))  # noqa: PTH208
    yield ("EFF_BACKGROUND_WORK", "garbage collector"), (gc.isenabled(), gc.get_threshold(), len(gc.callbacks))
    yield ("EFF_BACKGROUND_WORK", "frozen objects"), gc.get_freeze_count() > 0
    yield ("EFF_FILES", "open files and sockets"), _descriptors()


def _finalizers() -> int:
    """Count the callbacks that wait for an object's end; those of a library that registers operators are its own."""
    registry: dict[Any, Any] = getattr(weakref.finalize, "_registry", {})
    functions = [info.func for info in list(registry.values())]
    return sum(getattr(function, "__module__", None) != "torch.library" for function in functions)


def _mask() -> str:
    mask = os.umask(0o077)
    os.umask(mask)
    return f"{mask:03o}"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _descriptors() -> tuple[str, ...]:
    shown = []
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            shown.append(f"{number}: {os.readlink('/proc/self/fd/' + number)}")  # noqa: PTH115
        except FileNotFoundError:
            continue  # the descriptor of this very listing
    return tuple(sorted(shown))


def settings() -> Facts:
    """Return what of the facts a step may not leave changed and can be read in milliseconds: modes and settings of PyTorch."""
    return dict(_settings())


def _settings() -> Iterator[modules.Fact]:
    torch = sys.modules.get("torch")
    if torch is None:
        return
    C = torch._C
    modes = C._len_torch_function_stack(), C._len_torch_dispatch_stack()
    yield ("EFF_TORCH_MODE", "depth of the torch function and dispatch mode stacks"), modes
    if any(modes):
        return  # under a foreign mode the other readings are that mode's words
    for name, read in torch_settings.named(torch).items():
        yield ("EFF_TORCH_GLOBAL", name), str(read())
    yield ("EFF_TORCH_GLOBAL", "random state"), _digest(torch.get_rng_state().numpy().tobytes())
    for name, value in torch_settings.settings(torch):
        yield ("EFF_TORCH_GLOBAL", name), value


def _torch() -> Iterator[modules.Fact]:
    yield from (read := list(_settings()))
    if len(read) < 2:
        return
    torch = sys.modules["torch"]
    yield ("EFF_IMPORT_SIDE_EFFECT", "CUDA context"), bool(torch.cuda.is_initialized())
    for operator in torch._C._dispatch_get_all_op_names():
        if operator.partition("::")[0] in STOCK_NAMESPACES:
            yield ("EFF_OP_OVERRIDE", operator), _registrations(torch._C._dispatch_dump(operator))


def _registrations(dump: str) -> str:
    """The table of one operator without the lines that only say how often it was looked up."""
    return "\n".join(line for line in dump.splitlines() if not line.startswith(("catch all", "name:")))


def differences(before: Facts, after: Facts, own: str) -> Iterator[Fault]:
    """Yield what changed. New submodules, and modules that were loaded since, are the ordinary effect of an import.

    Of an object that was replaced as a whole, what it holds is left out.
    """
    loaded_before = {where for code, where in before if where.startswith("sys.modules[")}
    changed: set[str] = set()
    for key, value in after.items():
        old = before.get(key, MISSING)
        if old is value:
            continue
        code, where = key
        if _equal(old, value) or not changed.isdisjoint(_around(where)) or _registered(where, old, value):
            continue
        if key not in before and _ordinary(code, where, value, own, loaded_before):
            continue
        changed.add(_module(where) or where)
        yield code, where, _shown(old), _shown(value)
    for key in [key for key in before if key not in after]:  # in their order: a module before what it held
        code, where = key
        if code not in _UNDER_A_MODE and changed.isdisjoint(_around(where)):
            changed.add(_module(where) or where)
            yield code, where, _shown(before[key]), MISSING


def _registered(where: str, old: Any, new: Any) -> bool:
    """Whether something was only added to a private table, or to one whose keys are objects (types, as a rule).

    That is how one registers what is one's own. Hooks are no such thing: they are called for everybody.
    """
    table = where.rstrip("[:]{}").partition("[")[0]
    private = any(part.startswith("_") for part in table.split(".")) or " 0x" in where
    if not private or "hook" in table or not where.endswith(("]", "}")):
        return False
    if modules.is_a(old, modules.Items):
        return modules.is_a(new, modules.Items) and set(map(id, old.held)) <= set(map(id, new.held))
    return old is MISSING


def _around(where: str) -> Iterator[str]:
    """Yield the names of what a fact lies in: ``a`` and ``a.b`` for ``a.b[c]``."""
    return (where[:at] for at, character in enumerate(where) if character in ".[{")


def _module(where: str) -> str | None:
    return where[len("sys.modules['") : -2] if where.startswith("sys.modules[") else None


def _ordinary(code: str, where: str, value: Any, own: str, loaded_before: set[str]) -> bool:
    if (name := _module(where)) is not None:
        return _loaded_as_usual(name, value, own)
    if code == "EFF_OP_OVERRIDE":
        return where.partition("::")[0] in OPEN_NAMESPACES
    if code in ("EFF_FOREIGN_MUTATION", "EFF_BUILTINS"):
        if modules.is_a(value, ModuleType) and sys.modules.get(where) is value:
            return True  # a submodule became an attribute of its package
        if where.startswith("torch.ops."):
            return True  # a namespace of operators that somebody asked for
        parts = where.partition("[")[0].split(".")
        owners = [".".join(parts[:depth]) for depth in range(len(parts), 0, -1)]
        owner = next((name for name in owners if name in sys.modules), "")
        return f"sys.modules[{owner!r}]" not in loaded_before
    return False


def _loaded_as_usual(name: str, value: Any, own: str) -> bool:
    """Whether a new entry of ``sys.modules`` is what an import leaves there.

    Of the directory's own top-level package nothing but the directory is there to be imported.
    """
    if _below(name, own) or _below(own, name):
        return True
    if name.partition(".")[0] == own.partition(".")[0]:
        return False
    return modules.is_a(value, ModuleType) and getattr(value, "__spec__", None) is not None


def _equal(old: Any, new: Any) -> bool:
    """Whether two plain values are equal; values of other types are equal to themselves only."""
    if old is new:
        return True
    if type(old) is not type(new) or not modules.is_a(new, *_PLAIN):
        return False
    try:
        return bool(old == new)
    except Exception:  # a tuple that holds objects with a mind of their own, such as tensors
        return False


def _shown(value: Any) -> str:
    if modules.is_a(value, *_PLAIN):
        return str(value)[:300]
    if modules.is_a(value, FunctionType, type):
        return f"{type(value).__name__} {value.__module__}.{value.__qualname__}"[:300]
    return f"an object of {type(value).__module__}.{type(value).__qualname__}"[:300]
