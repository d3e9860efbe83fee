"""The Kimi K3 layers as a problem: which tensors a decode step reads and writes, and what they hold.

Names are ``layers.<index>.<part>`` with the layer's index in the model. All projections are [out, in]. With B requests (one
row each), N ranks of decode context parallelism (simulated: every rank's shard lies in one tensor) and S slots:

==================  =========  ======================  ===============================================================
tensor              role       shape, dtype            meaning
==================  =========  ======================  ===============================================================
x                   input      [B, hidden] bf16        output of the layer before the window, not yet added to the prefix
prefix_in           metadata   [B, hidden] bf16        running sum within the block, before x is added
blocks_in           metadata   [B, first, hidden]      complete attention-residual blocks before the window
slots               metadata   [B] int32               state slot of each request; 0 is the null slot of a padded row
block_table         metadata   [B, width] int32        pages of each request; an entry covers page x N tokens; 0 is null
seq_lens            schedule   [B] int32               tokens of each request, the new one included; 0 for a padded row
local_lens          schedule   [N, B] int32            of these, the tokens on each rank
slot_mapping        schedule   [N, B] int64            page x page size + offset of the new token, -1 elsewhere
...recurrent_state  state      [S, heads, V, K] fp32   KDA state
...conv_state       state      [S, 3, 3d] bf16         last three inputs of the convolution, channels q, k, v
...kv_cache         state      [N, pages, page, row]   bf16: normed latent, then the position part
out                 output     [B, hidden] bf16        final norm of the closing attention residual
expert_ids          output     [layers, B, k] int32    chosen experts, best first
==================  =========  ======================  ===============================================================

A padded row has slot 0, length 0 and mapping -1. Its attention output is exactly zero, nothing of it reaches a state, and the
null slot, the null page and every cache row without a token hold NaN.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels_under_test.contract import EXPERT_IDS, OUT, Role, Shape, TensorSpec, X
from kernels_under_test.kimi_k3 import values
from kernels_under_test.kimi_k3.sizes import Layer, ProblemFile, Sizes, read

if TYPE_CHECKING:
    from torch import Tensor

PROBLEMS = Path(__file__).parent / "problems"
SPARE_SLOTS = 2
SPARE_PAGES = 2
SERVED_DTYPES = {"kv_cache": "bf16", "conv_state": "bf16", "recurrent_state": "fp32"}
_BYTES = {"bfloat16": 2, "float32": 4, "int32": 4, "int64": 8, "uint8": 1}

Part = tuple[str, tuple[int, ...], str]


def _common_weights(s: Sizes) -> list[Part]:
    """Name, shape and dtype of what every layer has: two attention residuals and the latent experts."""
    return [
        ("attn_res.gamma", (s.hidden,), "bfloat16"),
        ("attn_res.query", (s.hidden,), "bfloat16"),
        ("input_norm", (s.hidden,), "bfloat16"),
        ("mlp_res.gamma", (s.hidden,), "bfloat16"),
        ("mlp_res.query", (s.hidden,), "bfloat16"),
        ("post_norm", (s.hidden,), "bfloat16"),
        ("router", (s.experts, s.hidden), "bfloat16"),
        ("router_bias", (s.experts,), "float32"),
        ("latent_down", (s.latent, s.hidden), "bfloat16"),
        ("w13", (s.experts, 2 * s.expert_intermediate, s.latent), "bfloat16"),
        ("w2", (s.experts, s.latent, s.expert_intermediate), "bfloat16"),
        ("latent_norm", (s.latent,), "bfloat16"),
        ("latent_up", (s.hidden, s.latent), "bfloat16"),
        ("shared_gate_up", (2 * s.shared_intermediate, s.hidden), "bfloat16"),
        ("shared_down", (s.hidden, s.shared_intermediate), "bfloat16"),
    ]


def _kda_weights(s: Sizes) -> list[Part]:
    d = s.kda_width
    return [
        ("in_proj", (s.kda_projection_rows, s.hidden), "bfloat16"),
        ("f_b", (d, s.forget_rank), "bfloat16"),
        ("conv", (3 * d, s.conv_width), "float32"),
        ("a_log", (s.heads,), "float32"),
        ("dt_bias", (d,), "float32"),
        ("o_norm", (s.kda_dim,), "bfloat16"),
        ("o_proj", (s.hidden, d), "bfloat16"),
    ]


def _mla_weights(s: Sizes) -> list[Part]:
    return [
        ("in_proj", (s.mla_projection_rows, s.hidden), "bfloat16"),
        ("q_a_norm", (s.q_lora,), "bfloat16"),
        ("kv_a_norm", (s.kv_lora,), "bfloat16"),
        ("q_b", (s.heads * (s.nope + s.pe), s.q_lora), "bfloat16"),
        ("w_uk", (s.heads, s.nope, s.kv_lora), "bfloat16"),
        ("w_uv", (s.heads, s.v_dim, s.kv_lora), "bfloat16"),
        ("o_proj", (s.hidden, s.heads * s.v_dim), "bfloat16"),
    ]


class KimiProblem:
    """One problem size; see the module's table. Implements :class:`kernels_under_test.contract.Problem`."""

    regimes: Sequence[str] = values.REGIMES

    def __init__(self, file: ProblemFile) -> None:
        self.file = file
        self.name = file.name
        self.layers = len(file.layers)
        self.facts: Mapping[str, Any] = {
            **asdict(file.sizes),
            **{f"eps.{name}": value for name, value in asdict(file.eps).items()},
            "layers": tuple((layer.index, layer.kind) for layer in file.layers),
            "first_blocks": file.first_blocks,
            "blocks": file.blocks,
        }

    def check(self, shape: Shape) -> str | None:
        """Return None where the problem is defined at this shape, else all reasons why not, in one line."""
        limits = self.file.limits
        wants = [
            ("query_tokens", shape.query_tokens, (1,)),
            ("page_size", shape.page_size, limits.page_sizes),
            ("decode_context_parallel", shape.decode_context_parallel, limits.decode_context_parallel),
            ("tensor_parallel", shape.tensor_parallel, (1,)),
            ("expert_parallel", shape.expert_parallel, (1,)),
        ]
        reasons = [
            f"{name} must be one of {list(good)}, found {found}" for name, found, good in wants if found not in good
        ]
        for name, found, most in (("rows", shape.rows, limits.rows), ("context", shape.context, limits.context)):
            if not 1 <= found <= most:
                reasons.append(f"{name} must be in 1..{most}, found {found}")
        for family, dtype in sorted(dict(shape.dtypes).items()):
            if SERVED_DTYPES.get(family) != dtype:
                reasons.append(f"dtype of {family} must be {SERVED_DTYPES.get(family, 'left out')}, found {dtype}")
        return "; ".join(reasons) or None

    def require(self, shape: Shape) -> None:
        """Raise ValueError with the reasons where the problem is not defined at this shape."""
        if reason := self.check(shape):
            raise ValueError(f"problem {self.name}: {reason}")

    def tensors(self, shape: Shape) -> list[TensorSpec]:
        """Return every tensor at this shape, in a fixed order.

        Raises:
            ValueError: if the problem is not defined at this shape.
        """
        self.require(shape)
        s, rows = self.file.sizes, shape.rows
        ranks, width = shape.decode_context_parallel, values.pages_per_request(shape)
        specs = [
            TensorSpec(X, (rows, s.hidden), "bfloat16", Role.INPUT),
            TensorSpec("prefix_in", (rows, s.hidden), "bfloat16", Role.METADATA),
            TensorSpec("blocks_in", (rows, self.file.first_blocks, s.hidden), "bfloat16", Role.METADATA),
            TensorSpec("slots", (rows,), "int32", Role.METADATA),
            TensorSpec("block_table", (rows, width + 1), "int32", Role.METADATA),
            TensorSpec("seq_lens", (rows,), "int32", Role.SCHEDULE),
            TensorSpec("local_lens", (ranks, rows), "int32", Role.SCHEDULE),
            TensorSpec("slot_mapping", (ranks, rows), "int64", Role.SCHEDULE),
        ]
        for layer in self.file.layers:
            parts = _common_weights(s) + (_kda_weights(s) if layer.kind == "kda" else _mla_weights(s))
            specs += [TensorSpec(f"layers.{layer.index}.{n}", size, d, Role.WEIGHT) for n, size, d in parts]
            specs += self._states(layer, shape)
        for name in ("final_res.gamma", "final_res.query", "final_norm"):
            specs.append(TensorSpec(name, (s.hidden,), "bfloat16", Role.WEIGHT))
        specs.append(TensorSpec(OUT, (rows, s.hidden), "bfloat16", Role.OUTPUT))
        specs.append(TensorSpec(EXPERT_IDS, (self.layers, rows, s.top_k), "int32", Role.OUTPUT))
        return specs

    def _states(self, layer: Layer, shape: Shape) -> list[TensorSpec]:
        s, at = self.file.sizes, f"layers.{layer.index}."
        if layer.kind == "kda":
            slots = shape.rows + 1 + SPARE_SLOTS
            recurrent = (slots, s.heads, s.kda_dim, s.kda_dim)
            return [
                TensorSpec(at + "recurrent_state", recurrent, "float32", Role.STATE),
                TensorSpec(at + "conv_state", (slots, s.conv_width - 1, 3 * s.kda_width), "bfloat16", Role.STATE),
            ]
        pages = shape.rows * values.pages_per_request(shape) + 1 + SPARE_PAGES
        cache = (shape.decode_context_parallel, pages, shape.page_size, s.cache_row)
        return [TensorSpec(at + "kv_cache", cache, "bfloat16", Role.STATE)]

    def fill(
        self,
        shape: Shape,
        tensors: Mapping[str, Tensor],
        *,
        steps: int,
        seed: int,
        regime: str = "normal",
        only: Collection[Role] | None = None,
    ) -> None:
        """Write weights, metadata, states and schedules (``steps`` rows each) for a seed of up to 128 bits.

        With ``only``, write tensors of these roles alone, for example a run's states and schedules under a new seed over
        weights that stay.

        Raises:
            ValueError: if the shape or the regime is unknown, or ``steps`` exceeds the context.
        """
        self.require(shape)
        values.fill(self.file, self.tensors(shape), shape, tensors, steps, seed, regime, only)

    def bytes_needed(self, shape: Shape) -> int:
        """Return the least number of bytes of one step: weights once, of the experts only one row's, states of the rows.

        Of the cache only the new token of each request is counted, since nothing says here how long the requests are.
        """
        s, total = self.file.sizes, 0
        for spec in self.tensors(shape):
            count, size = prod(spec.shape), _BYTES[spec.dtype]
            if spec.name.endswith((".w13", ".w2")):
                total += count // s.experts * s.top_k * size
            elif spec.name.endswith((".recurrent_state", ".conv_state")):
                total += 2 * count // spec.shape[0] * shape.rows * size
            elif spec.name.endswith(".kv_cache"):
                total += 2 * shape.rows * s.cache_row * size
            elif spec.name == "block_table":
                total += shape.rows * size
            else:
                total += count * size
        return total

    def untouched(self, shape: Shape, tensors: Mapping[str, Tensor], steps: int) -> dict[str, Tensor]:
        """Return for each STATE tensor a bool tensor of its shape: True where a run of ``steps`` must not write."""
        import torch

        masks: dict[str, Tensor] = {}
        live = tensors["slots"][tensors["slots"] > 0].long()
        mapping = tensors["slot_mapping"][:steps]
        for spec in self.tensors(shape):
            if spec.role is not Role.STATE:
                continue
            mask = torch.ones(spec.shape, dtype=torch.bool, device=live.device)
            if spec.name.endswith(".kv_cache"):
                for rank in range(shape.decode_context_parallel):
                    written = mapping[:, rank]
                    mask[rank].view(-1, spec.shape[-1])[written[written >= 0]] = False
            else:
                mask[live] = False
            masks[spec.name] = mask
        return masks


def load(name: str) -> KimiProblem:
    """Load a problem by name.

    Raises:
        ValueError: if there is no such problem or its file is wrong.
    """
    known = sorted(path.stem for path in PROBLEMS.glob("*.toml"))
    if name not in known:
        raise ValueError(f"expected one of the problems {known}; found {name!r}")
    return KimiProblem(read(PROBLEMS / f"{name}.toml"))
