"""The settings of PyTorch that hold for the whole process, read by kind: every getter without arguments, every backend's properties.

Part of the jailed half of the probe: standard library only, no other file of ours. A list of names would miss the next one.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

_GETTER = re.compile(r"_?(?:get|is)_\w+|_jit_\w+_(?:enabled|mode|allowed)|_jit_get_\w+|_debug_only_\w+_enabled")
_NO_SETTING = re.compile(
    r"_all_|custom|model|schema|upgrader|accelerator|version|thread_name|file_format|caught|mobile_cpu|_set_|_stack_at|_in_tls"
    r"|operation|stats|available|tracing|node|dispatch_mode|_cow_|alias|cpu_capability|_backtrace|nvfuser|value_trace"
    r"|autocast_(?:cpu|gpu|ipu|xla)"
)
"""Getters of facts, and deprecated ones, which print a warning."""
_TOLD = frozenset({"get_default_dtype", "_get_default_device", "_get_float32_matmul_precision", "get_num_threads",
                   "get_num_interop_threads", "is_grad_enabled", "is_inference_mode_enabled", "is_anomaly_enabled",
                   "is_autocast_enabled", "is_autocast_cache_enabled", "_get_deterministic_algorithms", "_get_cudnn_enabled",
                   "_get_cudnn_benchmark", "_get_cudnn_deterministic", "_get_cudnn_allow_tf32", "_get_mkldnn_enabled",
                   "_get_mkldnn_deterministic", "_get_onednn_allow_tf32", "_get_cublas_allow_tf32", "_get_flash_sdp_enabled",
                   "_get_mem_efficient_sdp_enabled", "_get_math_sdp_enabled", "_is_any_autocast_enabled",
                   "_is_torch_function_mode_enabled"})  # fmt: skip
"""Those that the probe reads under clearer names, below or among the backends' properties."""
_PLAIN = (bool, int, float, str, type(None))


def named(torch: Any) -> dict[str, Any]:
    """Return what reads each of the settings that people speak of, by the names that they have for them."""
    backends = torch.backends
    return {
        "default dtype": torch.get_default_dtype,
        "default device": torch.get_default_device,
        "float32 matmul precision": torch.get_float32_matmul_precision,
        "threads": torch.get_num_threads,
        "interop threads": torch.get_num_interop_threads,
        "grad mode": torch.is_grad_enabled,
        "inference mode": torch.is_inference_mode_enabled,
        "anomaly mode": torch.is_anomaly_enabled,
        "autocast": lambda: (torch.is_autocast_enabled(), torch.is_autocast_cache_enabled()),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
        "cuda.matmul.allow_tf32": lambda: backends.cuda.matmul.allow_tf32,
        "cuda.matmul.allow_bf16_reduced_precision_reduction":
            lambda: backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        "cuda.matmul.allow_fp16_reduced_precision_reduction":
            lambda: backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        "attention backends": lambda: (
            backends.cuda.flash_sdp_enabled(), backends.cuda.mem_efficient_sdp_enabled(), backends.cuda.math_sdp_enabled(),
        ),
        "flush denormal": lambda: float(torch.tensor([1e-40]).mul(1.0)[0]),
    }  # fmt: skip


def settings(torch: Any) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of each setting. Takes some milliseconds."""
    native = torch._C
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in dir(native):
            if not _GETTER.fullmatch(name) or name in _TOLD or _NO_SETTING.search(name):
                continue
            try:
                yield f"torch._C.{name}", str(getattr(native, name)())[:200]
            except Exception:  # noqa: S112  (one that wants arguments, or that this build does not have)
                continue
        for name, module in sorted(sys.modules.items()):
            if name.startswith("torch.backends") and isinstance(module, ModuleType) and type(module) is not ModuleType:
                yield from _properties(name, module)
        for device in ("cpu", "cuda"):
            yield f"autocast on {device}", f"{torch.is_autocast_enabled(device)} {torch.get_autocast_dtype(device)}"


def _properties(name: str, module: ModuleType) -> Iterator[tuple[str, str]]:
    for key, kept in sorted(vars(type(module)).items()):
        if key.startswith("__") or callable(kept) or not hasattr(kept, "__get__"):
            continue
        try:
            value = getattr(module, key)
        except Exception:  # noqa: S112  (a setting that this build does not have)
            continue
        if type(value) in _PLAIN:
            yield f"{name}.{key}", str(value)
