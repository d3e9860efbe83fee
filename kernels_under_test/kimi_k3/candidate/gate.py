"""Entry point: what the specialised path serves, and how much scratch it needs. Default-deny; every unmet condition is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

MOST_ROWS = 8
MOST_QUERY_TOKENS = 8
MOST_CONTEXT = 4096
RANKS = (1, 2)
DTYPES = {
    "kv_cache": ("bf16", "fp8_e4m3"),
    "conv_state": ("bf16",),
    "recurrent_state": ("fp32",),
    "experts": ("bf16", "mxfp4"),
    "act": ("bf16",),
}


def _of_counts(facts: Mapping[str, Any], shape: Any) -> list[str]:
    """Unmet conditions on rows, tokens, pages and ranks."""
    reasons = []
    for name, most in (("rows", MOST_ROWS), ("context", MOST_CONTEXT)):
        if not 1 <= getattr(shape, name) <= most:
            reasons.append(f"{name} must be in 1..{most}, found {getattr(shape, name)}")
    tokens = min(MOST_QUERY_TOKENS, 1 + facts.get("speculative_tokens", 0))
    if not 1 <= shape.query_tokens <= tokens or shape.rows % shape.query_tokens:
        reasons.append(
            f"query_tokens must be in 1..{tokens} and divide rows = {shape.rows}, found {shape.query_tokens}"
        )
    for name in ("tensor_parallel", "expert_parallel"):
        if getattr(shape, name) != 1:
            reasons.append(f"{name} must be 1, found {getattr(shape, name)}")
    if shape.decode_context_parallel not in RANKS:
        reasons.append(f"decode_context_parallel must be one of {RANKS}, found {shape.decode_context_parallel}")
    if shape.page_size < 1:
        reasons.append(f"page_size must be positive, found {shape.page_size}")
    return reasons


def _of_dtypes(facts: Mapping[str, Any], shape: Any) -> list[str]:
    """Unmet conditions on dtypes: those that the configuration names, and the problem's defaults for the others."""
    defaults = {family: facts.get(f"dtype.{family}", good[0]) for family, good in DTYPES.items()}
    return [
        f"dtype of {family} must be {' or '.join(DTYPES.get(family, ('left out',)))}, found {dtype}"
        for family, dtype in sorted({**defaults, **dict(shape.dtypes)}.items())
        if dtype not in DTYPES.get(family, ())
    ]


class Candidate:
    """The specialised path. Outside its scope it declines with all reasons in one line; the stock path serves there."""

    def supports(self, facts: Mapping[str, Any], shape: Any) -> str | None:
        """Return None where served, else all reasons why not, in one line."""
        reasons = [*_of_counts(facts, shape), *_of_dtypes(facts, shape)]
        if (communication := facts.get("communication", "simulated")) != "simulated":
            reasons.append(f"communication must be simulated, found {communication}")
        strange = sorted({kind for _, kind in facts["layers"]} - {"kda", "mla"})
        if strange:
            reasons.append(f"layer kinds must be kda or mla, found {strange}")
        return "; ".join(reasons) or None

    def workspace(self, facts: Mapping[str, Any], shape: Any) -> int:
        """Bytes of scratch: packed weights and the buffers between stages."""
        from .arena import plan

        return plan(facts, shape).size

    def build(self, facts: Mapping[str, Any], shape: Any, tensors: Mapping[str, Tensor]) -> Any:
        """Pack weights into the workspace and return the step.

        Raises:
            ValueError: if the shape is not served.
        """
        if reason := self.supports(facts, shape):
            raise ValueError(reason)
        from .step import Step

        return Step(facts, shape, tensors)


candidate = Candidate()
