"""One point at which a decode layer is advertised, raced or refused."""

from __future__ import annotations

from pydantic import Field, model_validator

from gatekeeper.domain.documents import Value


class Configuration(Value):
    """A decode step's shape. Sizes are counts of rows, tokens, pages or ranks; none carries a unit of bytes.

    ``rows`` is M = requests x query tokens, the number of token rows that pass through the layer in one step.
    ``context`` is the largest number of cached tokens a request has at the end of the step, the new ones included.
    """

    rows: int = Field(gt=0, le=65536)
    query_tokens: int = Field(default=1, gt=0, le=1024)
    context: int = Field(gt=0, le=1 << 24)
    page_size: int = Field(gt=0, le=4096)
    tensor_parallel: int = Field(default=1, gt=0, le=1024)
    decode_context_parallel: int = Field(default=1, gt=0, le=1024)
    expert_parallel: int = Field(default=1, gt=0, le=1024)
    dtypes: dict[str, str] = {}
    """Dtype by tensor family (``kv_cache``, ``conv_state``, ``recurrent_state``), for example ``fp8_e4m3`` or ``bf16``."""

    @model_validator(mode="after")
    def _whole_requests(self) -> Configuration:
        if self.rows % self.query_tokens:
            raise ValueError(
                f"rows must be a multiple of query_tokens; found rows={self.rows}, query_tokens={self.query_tokens}"
            )
        return self

    @property
    def requests(self) -> int:
        """Number of requests B in the step."""
        return self.rows // self.query_tokens

    @property
    def label(self) -> str:
        """Short text that names this configuration in tables, for example ``rows=8 q=1 ctx=1024 page=32``."""
        parts = [f"rows={self.rows}", f"q={self.query_tokens}", f"ctx={self.context}", f"page={self.page_size}"]
        for short, size in (
            ("tp", self.tensor_parallel),
            ("dcp", self.decode_context_parallel),
            ("ep", self.expert_parallel),
        ):
            if size != 1:
                parts.append(f"{short}={size}")
        parts.extend(f"{family}={dtype}" for family, dtype in sorted(self.dtypes.items()))
        return " ".join(parts)
