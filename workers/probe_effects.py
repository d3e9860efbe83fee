"""What a process looks like from within: a fingerprint to be taken before and after foreign code ran.

It runs inside the jail, by path, and imports the standard library only; torch is looked at where it is loaded. Everything that
it sees, it sees in the process of the code that it watches: an author who expects it can hide from it. It finds the careless and
the plain, with the name of what they touched; what really protects a verdict is that nothing trusted ever runs in that process.
"""

from __future__ import annotations

import atexit
import builtins
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

Fault = tuple[str, str, str, str]
"""Code, where, expected, found."""
Facts = dict[tuple[str, str], Any]
"""(code, where) -> value; compared by ``is`` or, for plain values, by equality."""

MISSING = "nothing"
QUIET = frozenset({"__builtins__", "__warningregistry__", "__cached__", "__annotations__", "__doc__", "__abstractmethods__",
                   "_abc_impl", "__dict__", "__weakref__", "__parameters__"})  # fmt: skip
"""Attributes that Python itself fills in late."""
QUIET_MODULES = frozenset({"__main__", "__mp_main__", "linecache", "re._parser", "_distutils_hack"})
QUIET_SYS = frozenset({"modules", "path_importer_cache", "meta_path", "path_hooks", "flags", "last_exc", "last_type",
                       "last_value", "last_traceback", "argv"})  # fmt: skip
STOCK_NAMESPACES = frozenset({"aten", "prim", "prims", "_c10d_functional", "c10d", "c10d_functional", "quantized", "mkldnn",
                              "vllm", "_C", "_moe_C", "_C_cache_ops", "symm_mem", "higher_order"})  # fmt: skip


def fingerprint(own: str) -> Facts:
    """Return the facts of this process. Modules below the top-level name ``own`` are the foreign code itself: left out."""
    facts: Facts = {}
    for name, module in list(sys.modules.items()):
        facts["EFF_IMPORT_HOOK", f"sys.modules[{name!r}]"] = module
        if isinstance(module, ModuleType) and not _below(name, own) and name not in QUIET_MODULES:
            facts.update(_module(name, module))
    facts.update(_process())
    facts.update(_torch())
    return facts


def _below(name: str, own: str) -> bool:
    return name == own or name.startswith(own + ".")


def _module(name: str, module: ModuleType) -> Iterator[tuple[tuple[str, str], Any]]:
    code = "EFF_BUILTINS" if module is builtins else "EFF_FOREIGN_MUTATION"
    standard = name.partition(".")[0] in sys.stdlib_module_names
    for key, value in list(vars(module).items()):
        if key in QUIET or (standard and key.startswith("_")) or (module is sys and key in QUIET_SYS):
            continue
        yield (code, f"{name}.{key}"), value
        if isinstance(value, dict) and not standard and not key.startswith("_"):
            for entry, held in list(value.items()):
                if isinstance(entry, str | int | float | tuple):
                    yield (code, f"{name}.{key}[{entry!r}]"), held
        elif isinstance(value, type) and value.__module__ == name:
            for attribute, held in list(vars(value).items()):
                if attribute not in QUIET and not (standard and attribute.startswith("_") and attribute[:2] != "__"):
                    yield (code, f"{name}.{key}.{attribute}"), held


def _process() -> Iterator[tuple[tuple[str, str], Any]]:
    for name, value in os.environ.items():
        yield ("EFF_ENVIRONMENT", f"os.environ[{name!r}]"), value
    yield ("EFF_ENVIRONMENT", "working directory"), os.getcwd()  # noqa: PTH109  (standard library only, and fast)
    for number in signal.valid_signals():
        yield ("EFF_BACKGROUND_WORK", f"signal handler {int(number)}"), signal.getsignal(number)
    yield ("EFF_BACKGROUND_WORK", "interval timer"), signal.getitimer(signal.ITIMER_REAL)
    yield ("EFF_BACKGROUND_WORK", "atexit callbacks"), atexit._ncallbacks()
    yield ("EFF_BACKGROUND_WORK", "threads"), tuple(sorted(thread.name for thread in threading.enumerate()))
    yield ("EFF_BACKGROUND_WORK", "kernel threads"), len(os.listdir("/proc/self/task"))  # noqa: PTH208
    yield ("EFF_BACKGROUND_WORK", "garbage collector"), (gc.isenabled(), gc.get_threshold(), len(gc.callbacks))
    yield ("EFF_FILES", "open files and sockets"), _descriptors()
    for name in ("meta_path", "path_hooks"):
        yield ("EFF_IMPORT_HOOK", f"sys.{name}"), tuple(map(id, getattr(sys, name)))
    yield ("EFF_IMPORT_HOOK", "sys.path"), tuple(sys.path)
    hooks = (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile())
    yield ("EFF_IMPORT_HOOK", "trace and profile functions"), tuple(map(id, hooks))


def _descriptors() -> tuple[str, ...]:
    shown = []
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            shown.append(f"{number}: {os.readlink('/proc/self/fd/' + number)}")  # noqa: PTH115
        except FileNotFoundError:
            continue  # the descriptor of this very listing
    return tuple(sorted(shown))


def _torch() -> Iterator[tuple[tuple[str, str], Any]]:
    torch = sys.modules.get("torch")
    if torch is None:
        return
    C = torch._C
    readings: dict[str, Any] = {
        "default dtype": torch.get_default_dtype,
        "default device": torch.get_default_device,
        "float32 matmul precision": torch.get_float32_matmul_precision,
        "threads": torch.get_num_threads,
        "interop threads": torch.get_num_interop_threads,
        "grad mode": torch.is_grad_enabled,
        "inference mode": torch.is_inference_mode_enabled,
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
        "cudnn.benchmark": lambda: torch.backends.cudnn.benchmark,
        "cudnn.allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
        "cuda.matmul.allow_tf32": lambda: torch.backends.cuda.matmul.allow_tf32,
        "cuda.matmul.allow_bf16_reduced_precision_reduction":
            lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        "flush denormal": lambda: float(torch.tensor([1e-40]).mul(1.0)[0]),
    }  # fmt: skip
    modes = C._len_torch_function_stack(), C._len_torch_dispatch_stack()
    yield ("EFF_TORCH_MODE", "depth of the torch function and dispatch mode stacks"), modes
    if any(modes):
        return  # under a foreign mode the other readings are that mode's words
    for name, read in readings.items():
        yield ("EFF_TORCH_GLOBAL", name), str(read())
    for operator in C._dispatch_get_all_op_names():
        if operator.partition("::")[0] in STOCK_NAMESPACES:
            yield ("EFF_OP_OVERRIDE", operator), _registrations(C._dispatch_dump(operator))


def _registrations(dump: str) -> str:
    """The table of one operator without the lines that only say how often it was looked up."""
    return "\n".join(line for line in dump.splitlines() if not line.startswith(("catch all", "name:")))


def differences(before: Facts, after: Facts, own: str) -> Iterator[Fault]:
    """Yield what changed. New submodules, and modules that were loaded since, are the ordinary effect of an import."""
    loaded_before = {where for code, where in before if where.startswith("sys.modules[")}
    for key, value in after.items():
        code, where = key
        old = before.get(key, MISSING)
        if old is value or (type(old) is type(value) and _plain(value) and old == value):
            continue
        if key not in before and _ordinary(code, where, value, own, loaded_before):
            continue
        yield code, where, _shown(old), _shown(value)
    for (code, where), old in before.items():
        if (code, where) not in after and code != "EFF_OP_OVERRIDE":
            yield code, where, _shown(old), MISSING


def _ordinary(code: str, where: str, value: Any, own: str, loaded_before: set[str]) -> bool:
    if where.startswith("sys.modules["):
        name = where[len("sys.modules['") : -2]
        return _below(name, own) or (isinstance(value, ModuleType) and getattr(value, "__spec__", None) is not None)
    if code in ("EFF_FOREIGN_MUTATION", "EFF_BUILTINS"):
        if isinstance(value, ModuleType) and sys.modules.get(where) is value:
            return True  # a submodule became an attribute of its package
        parts = where.partition("[")[0].split(".")
        owners = [".".join(parts[:depth]) for depth in range(len(parts), 0, -1)]
        owner = next((name for name in owners if name in sys.modules), "")
        return f"sys.modules[{owner!r}]" not in loaded_before
    return False


def _plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool | bytes | tuple | type(None))


def _shown(value: Any) -> str:
    if isinstance(value, str | int | float | bool | tuple | type(None)):
        return str(value)[:300]
    return f"{type(value).__name__} {getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"[:300]
