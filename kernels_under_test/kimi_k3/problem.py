"""The Kimi K3 layers as a problem: which tensors a decode step reads and writes, and what they hold.

Names are ``layers.<index>.<part>`` with the layer's index in the model. All projections are [out, in]. With B requests, q query
tokens each, M = B q rows (the q rows of a request side by side), N ranks of decode context parallelism (simulated: every rank's
shard lies in one tensor), S slots and, in a problem with p > 0 speculative tokens, P = 1 + p slots for each request:

==================  =========  ======================  ===============================================================
tensor              role       shape, dtype            meaning
==================  =========  ======================  ===============================================================
x                   input      [M, hidden] bf16        output of the layer before the window, not yet added to the prefix
prefix_in           metadata   [M, hidden] bf16        running sum within the block, before x is added
blocks_in           metadata   [M, first, hidden]      complete attention-residual blocks before the window
slots               metadata   [B] or [B, P] int32     state slots of each request; 0 is the null slot of a padded one
block_table         metadata   [B, width] int32        pages of each request; an entry covers page x N tokens; 0 is null
num_accepted        schedule   [B] int32               with p > 0: how many tokens of the last step were kept, 1 for a padded one
seq_lens            schedule   [B] int32               tokens of each request, the q new ones included; 0 for a padded one
local_lens          schedule   [N, B] int32            of these, the tokens on each rank
slot_mapping        schedule   [N, M] int64            page x page size + offset of the new token, -1 elsewhere
...recurrent_state  state      [S, heads, V, K] fp32   KDA state
...conv_state       state      [S, 3 + p, 3d] bf16     last inputs of the convolution, channels q, k, v
...kv_cache         state      [N, pages, page, row]   bf16 or fp8: normed latent, then the position part
out                 output     [M, hidden] bf16        final norm of the closing attention residual
expert_ids          output     [e, M, k] int32         chosen experts of the e layers with experts, best first
==================  =========  ======================  ===============================================================

Layer 0 has a dense feed-forward and takes ``x`` as the embedding: a window that begins there has no prefix_in and no blocks_in.
Verify steps: token t of a request starts from the state that accepted token number ``num_accepted`` left, in slot
``slots[b, num_accepted - 1]``, and leaves its own in ``slots[b, t]``; the convolution keeps all its inputs in ``slots[b, 0]``.
What no step can have left there holds NaN.

With T simulated ranks of tensor parallelism the tensors named in :mod:`kernels_under_test.kimi_k3.shards` have a leading axis T. In a
problem whose communication is ``shard`` all tensors are those of rank 0, and ``peers.*`` hold what the others send.

A padded row has slot 0, length 0 and mapping -1. Its attention output is exactly zero, nothing of it reaches a state, and the
null slot, the null page and every cache row without a token hold NaN.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels_under_test.contract import EXPERT_IDS, OUT, Role, Shape, TensorSpec, X
from kernels_under_test.kimi_k3.parts import (
    EXPERTS,
    REGIMES,
    SHARDED,
    STATES,
    layer_weights,
    pages_per_request,
    part_of,
    peers,
)
from kernels_under_test.kimi_k3.sizes import FAMILIES, Layer, ProblemFile, Sizes, read

if TYPE_CHECKING:
    from torch import Tensor

PROBLEMS = Path(__file__).parent / "problems"
SPARE_SLOTS = 2
SPARE_PAGES = 2
_BYTES = {"bfloat16": 2, "float32": 4, "int32": 4, "int64": 8, "uint8": 1, "float8_e4m3fn": 1}
_CACHE = {"bf16": "bfloat16", "fp8_e4m3": "float8_e4m3fn"}


class KimiProblem:
    """One problem size; see the module's table. Implements :class:`kernels_under_test.contract.Problem`."""

    regimes: Sequence[str] = REGIMES

    def __init__(self, file: ProblemFile) -> None:
        self.file = file
        self.name = file.name
        self.layers = len(file.layers)
        self.facts: Mapping[str, Any] = {
            **asdict(file.sizes),
            **{f"eps.{name}": value for name, value in asdict(file.eps).items()},
            **{f"dtype.{family}": file.dtypes.get(family, names)[0] for family, names in FAMILIES.items()},
            "communication": file.limits.communication,
            "layers": tuple((layer.index, layer.kind) for layer in file.layers),
            "dense_layers": tuple(layer.index for layer in file.layers if layer.dense),
            "first_blocks": file.first_blocks,
            "blocks": file.blocks,
        }

    def check(self, shape: Shape) -> str | None:
        """Return None where the problem is defined at this shape, else all reasons why not, in one line."""
        limits = self.file.limits
        wants = [
            ("query_tokens", shape.query_tokens, limits.query_tokens),
            ("page_size", shape.page_size, limits.page_sizes),
            ("decode_context_parallel", shape.decode_context_parallel, limits.decode_context_parallel),
            ("tensor_parallel", shape.tensor_parallel, limits.tensor_parallel),
            ("expert_parallel", shape.expert_parallel, (1,)),
        ]
        reasons = [
            f"{name} must be one of {list(good)}, found {found}" for name, found, good in wants if found not in good
        ]
        for name, found, most in (("rows", shape.rows, limits.rows), ("context", shape.context, limits.context)):
            if not 1 <= found <= most:
                reasons.append(f"{name} must be in 1..{most}, found {found}")
        if shape.rows % shape.query_tokens:
            reasons.append(f"rows must be a multiple of query_tokens = {shape.query_tokens}, found {shape.rows}")
        elif shape.context < shape.query_tokens:
            reasons.append(f"context must be at least query_tokens = {shape.query_tokens}, found {shape.context}")
        interleave = self.file.sizes.dcp_interleave
        if shape.decode_context_parallel > 1 and shape.page_size % interleave:
            reasons.append(f"page_size must be a multiple of the interleave {interleave}, found {shape.page_size}")
        for family, dtype in sorted(dict(shape.dtypes).items()):
            good = self.file.dtypes.get(family, ())
            if dtype not in good:
                reasons.append(f"dtype of {family} must be {' or '.join(good) or 'left out'}, found {dtype}")
        return "; ".join(reasons) or None

    def dtype(self, shape: Shape, family: str) -> str:
        """Return the dtype of a tensor family at a shape: the shape's, or the problem's first."""
        found: str = dict(shape.dtypes).get(family, self.facts[f"dtype.{family}"])
        return found

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
        s = self.file.sizes.on_rank(shape.tensor_parallel)
        rows, requests = shape.rows, shape.requests
        ranks, width = shape.decode_context_parallel, pages_per_request(shape)
        several = s.speculative_tokens > 0
        first, slots = self.file.first_blocks, (requests, 1 + s.speculative_tokens) if several else (requests,)
        specs = [TensorSpec(X, (rows, s.hidden), "bfloat16", Role.INPUT)]
        if first:
            specs.append(TensorSpec("prefix_in", (rows, s.hidden), "bfloat16", Role.METADATA))
            specs.append(TensorSpec("blocks_in", (rows, first, s.hidden), "bfloat16", Role.METADATA))
        specs.append(TensorSpec("slots", slots, "int32", Role.METADATA))
        specs.append(TensorSpec("block_table", (requests, width + 1), "int32", Role.METADATA))
        if several:
            specs.append(TensorSpec("num_accepted", (requests,), "int32", Role.SCHEDULE))
        specs.append(TensorSpec("seq_lens", (requests,), "int32", Role.SCHEDULE))
        specs.append(TensorSpec("local_lens", (ranks, requests), "int32", Role.SCHEDULE))
        specs.append(TensorSpec("slot_mapping", (ranks, rows), "int64", Role.SCHEDULE))
        packed = self.dtype(shape, "experts") == "mxfp4"
        for layer in self.file.layers:
            at = f"layers.{layer.index}."
            for name, size, dtype in layer_weights(s, layer, packed=packed):
                specs.append(TensorSpec(at + name, (*self._lead(name, shape), *size), dtype, Role.WEIGHT))
            specs += self._states(s, layer, shape)
            if self.sharded:
                parts = peers(self.file.sizes, layer, shape.tensor_parallel, rows)
                specs += [TensorSpec(at + name, size, dtype, Role.METADATA) for name, size, dtype in parts]
        for name in ("final_res.gamma", "final_res.query", "final_norm"):
            specs.append(TensorSpec(name, (s.hidden,), "bfloat16", Role.WEIGHT))
        specs.append(TensorSpec(OUT, (rows, s.hidden), "bfloat16", Role.OUTPUT))
        if experts := self.file.expert_layers:
            specs.append(TensorSpec(EXPERT_IDS, (experts, rows, s.top_k), "int32", Role.OUTPUT))
        return specs

    @property
    def sharded(self) -> bool:
        """Whether the tensors are those of one rank alone, with its peers' parts as inputs."""
        return self.file.limits.communication == "shard"

    def _lead(self, name: str, shape: Shape) -> tuple[int, ...]:
        """The leading axis of a tensor that differs from rank to rank, where all ranks are simulated."""
        several = shape.tensor_parallel > 1 and not self.sharded and part_of(name) in SHARDED
        return (shape.tensor_parallel,) if several else ()

    def _states(self, s: Sizes, layer: Layer, shape: Shape) -> list[TensorSpec]:
        at = f"layers.{layer.index}."
        if layer.kind == "kda":
            slots = shape.requests * (1 + s.speculative_tokens) + 1 + SPARE_SLOTS
            recurrent = (*self._lead("recurrent_state", shape), slots, s.heads, s.kda_dim, s.kda_dim)
            conv = (*self._lead("conv_state", shape), slots, s.conv_columns, 3 * s.kda_width)
            return [
                TensorSpec(at + "recurrent_state", recurrent, "float32", Role.STATE),
                TensorSpec(at + "conv_state", conv, "bfloat16", Role.STATE),
            ]
        pages = shape.requests * pages_per_request(shape) + 1 + SPARE_PAGES
        cache = (shape.decode_context_parallel, pages, shape.page_size, s.cache_row)
        return [TensorSpec(at + "kv_cache", cache, _CACHE[self.dtype(shape, "kv_cache")], Role.STATE)]

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
            ValueError: if the shape or the regime is unknown, or ``steps`` steps do not fit the context.
        """
        from kernels_under_test.kimi_k3 import values

        specs = self.tensors(shape)
        split = shape.tensor_parallel > 1 and not self.sharded
        # Shards are cut from the values of one rank, so that every number of ranks holds the same model.
        whole = self.tensors(replace(shape, tensor_parallel=1)) if split else specs
        values.fill(self.file, specs, whole, shape, tensors, steps, seed, regime, only)

    def bytes_needed(self, shape: Shape) -> int:
        """Return the least number of bytes of one step: weights once, of the experts only one row's, states of the rows.

        Of the cache only the new token of each request is counted, since nothing says here how long the requests are.
        """
        s, total = self.file.sizes, 0
        reads = shape.requests * shape.query_tokens
        for spec in self.tensors(shape):
            count, size, part = prod(spec.shape), _BYTES[spec.dtype], part_of(spec.name)
            if part in EXPERTS:
                total += count // s.experts * s.top_k * size
            elif part in ("router", "latent_down", "latent_up") and self.sharded:
                total += count // shape.tensor_parallel * size  # a rank needs its own rows only
            elif part in STATES:
                slots = shape.requests * (1 + s.speculative_tokens) + 1 + SPARE_SLOTS
                each = count // slots * size
                total += shape.requests * each * (1 + shape.query_tokens if part == "recurrent_state" else 2)
            elif part == "kv_cache":
                total += 2 * reads * s.cache_row * size
            elif part == "block_table":
                total += shape.requests * size
            else:
                total += count * size
        return total

    def untouched(self, shape: Shape, tensors: Mapping[str, Tensor], steps: int) -> dict[str, Tensor]:
        """Return for each STATE tensor a bool tensor of its shape: True where a run of ``steps`` must not write."""
        import torch

        masks: dict[str, Tensor] = {}
        slots = tensors["slots"].reshape(shape.requests, -1)[:, : shape.query_tokens].long()
        mapping = tensors["slot_mapping"][:steps]
        for spec in self.tensors(shape):
            if spec.role is not Role.STATE:
                continue
            mask = torch.ones(spec.shape, dtype=torch.bool, device=slots.device)
            ranked = mask if self._lead(spec.name, shape) else mask.unsqueeze(0)
            if spec.name.endswith(".kv_cache"):
                for rank in range(shape.decode_context_parallel):
                    written = mapping[:, rank]
                    mask[rank].view(-1, spec.shape[-1])[written[written >= 0]] = False
            elif spec.name.endswith(".conv_state"):
                # The inputs that a step keeps: all but the oldest of those it convolved.
                ranked[:, slots[:, 0][slots[:, 0] > 0], : self.file.sizes.conv_width - 2 + shape.query_tokens] = False
            else:
                ranked[:, slots[slots > 0]] = False
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
