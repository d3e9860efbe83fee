"""Last names by which one reaches what belongs to the whole process, whatever stands before them."""

from __future__ import annotations

import re
from functools import lru_cache

FRAMES = frozenset({
    "tb_frame", "f_back", "f_globals", "f_locals", "f_builtins", "f_trace", "gi_frame", "cr_frame", "ag_frame", "get_stack",
})  # fmt: skip
"""Attributes of tracebacks, generators and frames that lead to what other callers hold."""

_SETTER = re.compile(r"_*(?:set|enable|unset|override)_\w+")
_NATIVE = re.compile(
    r"(?:^|_)(?:set|enable|disable|unset|push|pop|override|force|exchange|increment|decrement|clear|reset|swap|freeze|remove|add"
    r"|register)(?=[_A-Z])"
)
_GUARD = re.compile(r"_*(?:Disable|Enable|Exclude|Include|Preserve|Force|SetExclude)[A-Z]\w*|_*\w+Guard|_InferenceMode")
_SWITCHED = frozenset(
    {"enable", "disable", "set_flags", "tuning_enable", "record_untuned_enable", "write_file_on_exit"}
)
_PER_DEVICE = frozenset({"set_device", "set_device_index", "set_stream", "_cuda_setDevice", "_cuda_setStream",
                         "_accelerator_setDeviceIndex", "_accelerator_setStream", "set_printoptions"})  # fmt: skip
"""Which device and stream the next call uses, and how a tensor is printed, is said anew by everybody who cares."""
_NOT_SETTINGS = ("torch.ops.", "torch.classes.", "torch.Tensor.", "torch.nn.", "torch.library.", "torch.distributed.",
                 "torch.optim.", "torch.fx.", "torch.export.", "torch.utils.data.")  # fmt: skip
SCOPED = frozenset({"set_grad_enabled", "enable_grad", "set_detect_anomaly", "set_multithreading_enabled", "set_stance",
                    "set_checkpoint_early_stop", "enable_python_dispatcher"})  # fmt: skip
"""Settings that a ``with`` takes back."""


@lru_cache(maxsize=1 << 14)
def kind_of(name: str) -> str | None:
    """Return what an attribute of this name may be: ``frames``, ``modules``, ``enter``, ``switch``; else None."""
    if name in FRAMES:
        return "frames"
    if name == "modules":
        return "modules"
    if name in ("__enter__", "__aenter__"):
        return "enter"
    may_switch = name in _SWITCHED or _SETTER.fullmatch(name) or _GUARD.fullmatch(name) or _NATIVE.search(name)
    return "switch" if may_switch else None


def frame_words(text: str) -> bool:
    """Whether a text names an attribute that leads to frames: ``getattr(error, "tb_frame")``, ``attrgetter("f_back.f_locals")``."""
    return len(text) < 80 and "_" in text and not FRAMES.isdisjoint(text.split("."))


@lru_cache(maxsize=1 << 12)
def torch_switch(dotted: str) -> str | None:
    """Return ``switch`` for a setting of PyTorch that holds for the whole process or thread, ``guard`` for an object that is one
    while it lives; else None."""
    if not dotted.startswith("torch.") or dotted.startswith(_NOT_SETTINGS):
        return None
    base, _, last = dotted.rpartition(".")
    if last in _PER_DEVICE or last == "enable_grad":
        return None
    if base.startswith("torch._C"):
        if _GUARD.fullmatch(last):
            return "guard"
        return "switch" if _NATIVE.search(last) else None
    if last in _SWITCHED:
        return (
            "switch" if base.startswith(("torch.backends", "torch.cuda.tunable", "torch.sparse", "torch.jit")) else None
        )
    return "switch" if _SETTER.fullmatch(last) else None
