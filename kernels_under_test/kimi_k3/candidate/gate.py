"""Entry point: what the specialised path serves, and how much scratch it needs. Default-deny; every unmet condition is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

MOST_ROWS = 8
MOST_CONTEXT = 4096
RANKS = (1, 2)
DTYPES = {"kv_cache": "bf16", "conv_state": "bf16", "recurrent_state": "fp32"}


class Candidate:
    """The specialised path. Outside its scope it declines with all reasons in one line; the stock path serves there."""

    def supports(self, facts: Mapping[str, Any], shape: Any) -> str | None:
        """Return None where served, else all reasons why not, in one line."""
        reasons = []
        if not 1 <= shape.rows <= MOST_ROWS:
            reasons.append(f"rows must be in 1..{MOST_ROWS}, found {shape.rows}")
        if not 1 <= shape.context <= MOST_CONTEXT:
            reasons.append(f"context must be in 1..{MOST_CONTEXT}, found {shape.context}")
        for name in ("query_tokens", "tensor_parallel", "expert_parallel"):
            if getattr(shape, name) != 1:
                reasons.append(f"{name} must be 1, found {getattr(shape, name)}")
        if shape.decode_context_parallel not in RANKS:
            reasons.append(f"decode_context_parallel must be one of {RANKS}, found {shape.decode_context_parallel}")
        if shape.page_size < 1:
            reasons.append(f"page_size must be positive, found {shape.page_size}")
        for family, dtype in sorted(dict(shape.dtypes).items()):
            if DTYPES.get(family) != dtype:
                reasons.append(f"dtype of {family} must be {DTYPES.get(family, 'left out')}, found {dtype}")
        strange = sorted({kind for _, kind in facts["layers"]} - {"kda", "mla"})
        if strange:
            reasons.append(f"layer kinds must be kda or mla, found {strange}")
        if facts["layers"][0][0] < 1:
            reasons.append("layer 0 (a dense feed-forward) is not served")
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
