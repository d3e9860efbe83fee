"""What the tensors of a problem hold: everything from :mod:`kernels_under_test.hashrng`, without log, exp or cos.

Linear weights are N(0, 1) / sqrt(in); expert weights lie on the MXFP4 grid (E2M1 codes, one power of two for 32 along the
input), stored as bf16 or packed; both hold the same values. Half of the KDA heads remember for a few steps, the other half decay
by about 0.9 to 0.999 a step, so that a stale or skipped state stays visible.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod

import torch
from torch import Tensor

from kernels_under_test import hashrng
from kernels_under_test.contract import Role, Shape, TensorSpec
from kernels_under_test.kimi_k3.parts import MX_BLOCK, REGIMES, SHARDED, pages_per_request, part_of
from kernels_under_test.kimi_k3.shards import split
from kernels_under_test.kimi_k3.sizes import ProblemFile

NULL = 0
"""Reserved state slot and cache page; both hold NaN."""
FP8_MOST = 448.0
"""Largest number of E4M3; what lies beyond is stored as this."""
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_E2M1_RMS = 2.926


def local_index(position: Tensor, ranks: int, interleave: int) -> tuple[Tensor, Tensor]:
    """Return (rank, index on that rank) of tokens at global positions, both shaped as ``position``."""
    return (position // interleave) % ranks, position // (interleave * ranks) * interleave + position % interleave


def local_length(length: Tensor, rank: int, ranks: int, interleave: int) -> Tensor:
    """Return how many of the first ``length`` tokens lie on a rank."""
    whole = length // (interleave * ranks)
    rest = length - whole * interleave * ranks
    return whole * interleave + (rest - rank * interleave).clamp(0, interleave)


LARGER = {"x8": 8, "x64": 64}
QUERY_SPREAD = 0.2 * 128**0.5
"""Standard deviation of a residual's score, whatever the width. Queries of a fixed size would, at 7,168 columns, let the softmax take
one source alone: then an error in any other is not seen."""


class Filler:
    """Fills the tensors of one shape under one seed; ``normal`` and the like name their stream after the tensor."""

    def __init__(self, file: ProblemFile, shape: Shape, steps: int, seed: int, regime: str) -> None:
        if regime not in REGIMES:
            raise ValueError(f"expected a regime of {REGIMES}; found {regime!r}")
        most = shape.context // shape.query_tokens
        if not 1 <= steps <= most:
            raise ValueError(f"steps must be in 1..{most} (context / query tokens), so that lengths fit; found {steps}")
        self.file, self.shape, self.steps, self.seed, self.regime = file, shape, steps, seed, regime
        shard = file.limits.communication == "shard"
        self.sizes = file.sizes.on_rank(shape.tensor_parallel if shard else 1)
        """Of the tensors that are filled: one rank's where it is alone, all ranks' where shards are cut afterwards."""
        self.kinds = {f"layers.{layer.index}": layer.kind for layer in file.layers}
        self.drafts = file.sizes.speculative_tokens

    def normal(self, name: str, size: Sequence[int]) -> Tensor:
        return hashrng.normal(self.seed, name, size)

    def uniform(self, name: str, size: Sequence[int], low: float, high: float) -> Tensor:
        return hashrng.uniform(self.seed, name, size) * (high - low) + low

    def weight(self, spec: TensorSpec) -> Tensor:
        """Values of a weight tensor, by the last part of its name."""
        name, size, part = spec.name, spec.shape, part_of(spec.name)
        rules: dict[str, Callable[[], Tensor]] = {
            "query": lambda: QUERY_SPREAD * size[-1] ** -0.5 * self.normal(name, size),
            "gamma": lambda: 1 + 0.1 * self.normal(name, size),
            "conv": lambda: 0.5 * self.normal(name, size),
            "a_log": lambda: self._a_log(name, size),
            "dt_bias": lambda: self._dt_bias(name, size),
            "router": lambda: self._router(name, size),
            "router_bias": lambda: self._pair(0.05 * self.normal(name, size)),
            "w13": lambda: self._expert(spec),
            "w2": lambda: self._expert(spec),
            "w13_scale": lambda: self._scale_bytes(name, size),
            "w2_scale": lambda: self._scale_bytes(name, size),
        }
        if part in rules:
            return rules[part]()
        if part.endswith("norm"):
            return 1 + 0.1 * self.normal(name, size)
        linear: Tensor = self.normal(name, size) * size[-1] ** -0.5
        s = self.sizes
        if part == "in_proj" and self.kinds[name.removesuffix(".in_proj")] == "kda":
            linear[4 * s.kda_width + s.forget_rank + s.heads :] = 0
        return linear

    def _long(self, size: Sequence[int]) -> Tensor:
        """True for the heads with long memory: every second one."""
        heads = self.sizes.heads
        return (torch.arange(heads) % 2 == 1).repeat_interleave(prod(size) // heads)

    def _a_log(self, name: str, size: Sequence[int]) -> Tensor:
        return self.uniform(name, size, -3.0, 0.44).masked_fill(self._long(size), 0.0)

    def _dt_bias(self, name: str, size: Sequence[int]) -> Tensor:
        # With exp(a_log) = 1 a bias of -4.5 decays by 0.95 a step and one of -8.5 by 0.999; the projection adds about +-1.
        return torch.where(
            self._long(size), self.uniform(name + ".long", size, -8.5, -4.5), self.normal(name, size) - 2
        )

    def _pair(self, rows: Tensor) -> Tensor:
        """In the ``ties`` regime, make every odd row equal to the even one before it."""
        if self.regime == "ties":
            rows[1::2] = rows[0 : rows.shape[0] // 2 * 2 : 2]
        return rows

    def _router(self, name: str, size: Sequence[int]) -> Tensor:
        return self._pair(self.normal(name, size) * size[-1] ** -0.5)

    def _codes(self, name: str, size: Sequence[int]) -> Tensor:
        return hashrng.integers(self.seed, name, 0, 16, size)

    def _powers(self, name: str, blocks: Sequence[int], inputs: int) -> Tensor:
        """Exponents of the scales, int64: about those that make the gain of ``inputs`` inputs one."""
        exponent = 0
        while 2.0**exponent > 1.4 * inputs**-0.5 / _E2M1_RMS:
            exponent -= 1
        return hashrng.integers(self.seed, name + ".scale", 0, 3, blocks) + (exponent - 1)

    def _expert(self, spec: TensorSpec) -> Tensor:
        """An expert matrix: its values, or with dtype uint8 two codes a byte, the even input in the low half."""
        if spec.dtype == "uint8":
            codes = self._codes(spec.name, (*spec.shape[:-1], 2 * spec.shape[-1]))
            return codes[..., 0::2] | codes[..., 1::2] << 4
        grid = torch.tensor((*_E2M1, *(-v for v in _E2M1)))[self._codes(spec.name, spec.shape)]
        blocks = (*spec.shape[:-1], -(-spec.shape[-1] // MX_BLOCK))
        powers = torch.exp2(self._powers(spec.name, blocks, spec.shape[-1]).float())
        return grid * powers.repeat_interleave(MX_BLOCK, dim=-1)[..., : spec.shape[-1]]

    def _scale_bytes(self, name: str, size: Sequence[int]) -> Tensor:
        return self._powers(name.removesuffix("_scale"), size, MX_BLOCK * size[-1]) + 127

    def state_like(self, name: str, size: Sequence[int]) -> Tensor:
        """Unit normal values under the regime: what earlier steps and layers left behind."""
        if self.regime == "zeros":
            return torch.zeros(tuple(size))
        drawn = self.normal(name, size)
        if self.regime in LARGER:
            return drawn * LARGER[self.regime]
        if self.regime == "heavy":
            dice = hashrng.integers(self.seed, name + ".heavy", 0, 256, size)
            return torch.where(dice == 0, 16 * drawn, torch.where(dice <= 16, 4 * drawn, drawn))
        return drawn

    def live(self) -> Tensor:
        """[requests] bool: False for the padded one."""
        live = torch.ones(self.shape.requests, dtype=torch.bool)
        if self.regime == "padded" and self.shape.requests > 1:
            live[-1] = False
        return live

    def slots(self, slot_count: int) -> Tensor:
        """[requests], or with drafts [requests, 1 + drafts]: distinct slots in any order."""
        each = 1 + self.drafts
        order = hashrng.permutation(self.seed, "slots", slot_count - 1)[: self.shape.requests * each] + 1
        if self.drafts:
            return order.view(-1, each).masked_fill(~self.live().unsqueeze(1), NULL)
        return order.masked_fill(~self.live(), NULL)

    def before(self) -> Tensor:
        """[requests] int64: query tokens of the step before the first one, 1 to 1 + drafts, not always this run's."""
        return hashrng.integers(self.seed, "query_tokens_before", 1, 2 + self.drafts, (self.shape.requests,))

    def accepted(self) -> Tensor:
        """[steps, requests] int64: tokens of the last step that were kept, 1 to its query tokens; 1 for a padded request."""
        drawn = hashrng.integers(self.seed, "num_accepted", 0, 1 << 20, (self.steps, self.shape.requests))
        last = torch.cat((self.before().unsqueeze(0), torch.full_like(drawn[1:], self.shape.query_tokens)))
        return (drawn % last + 1).masked_fill(~self.live(), 1)

    def lengths(self) -> Tensor:
        """[steps, requests] int64: tokens in each step, its query tokens included. Request 0 ends at the full context, the next
        ones start on and beside a page edge where they fit, the others anywhere. A step adds the tokens that it kept."""
        shape, q = self.shape, self.shape.query_tokens
        grown = torch.arange(self.steps).unsqueeze(1).expand(-1, shape.requests)
        if self.drafts:
            kept = self.accepted()
            grown = kept.cumsum(0) - kept[0]
        top = shape.context - (self.steps - 1) * q
        start = hashrng.integers(self.seed, "seq_lens", q, top + 1, (shape.requests,))
        edges = [shape.context - int(grown[-1, 0]), 1, shape.page_size, shape.page_size + 1]
        edges.append(shape.page_size * shape.decode_context_parallel + 1)
        for row, edge in enumerate(edges[: shape.requests]):
            start[row] = edge if row == 0 else min(max(edge, q), top)
        return (start + grown).masked_fill(~self.live(), 0)

    def block_table(self, page_count: int, width: int) -> Tensor:
        """[requests, width + 1] int64: shuffled pages, null behind the longest length of the request."""
        shape = self.shape
        order = hashrng.permutation(self.seed, "block_table", page_count - 1)[: shape.requests * width] + 1
        needed = -(-self.lengths()[-1] // (shape.page_size * shape.decode_context_parallel))
        table = order.reshape(shape.requests, width).masked_fill(torch.arange(width) >= needed.unsqueeze(1), NULL)
        return torch.cat((table, torch.full((shape.requests, 1), NULL)), dim=1)

    def cache_slots(self, position: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        """Return (rank, cache slot) of tokens at ``position`` [n, requests]."""
        shape = self.shape
        rank, local = local_index(position, shape.decode_context_parallel, self.file.sizes.dcp_interleave)
        page = table.gather(1, (local // shape.page_size).t()).t()
        return rank, page * shape.page_size + local % shape.page_size

    def slot_mapping(self, table: Tensor) -> Tensor:
        """[steps, ranks, rows] int64: where each rank stores the new tokens, -1 on the other ranks and for padded requests."""
        q = self.shape.query_tokens
        position = (self.lengths().repeat_interleave(q, dim=1) - q).view(self.steps, -1, q) + torch.arange(q)
        rank, slot = self.cache_slots(position.flatten(1).clamp(min=0), table.repeat_interleave(q, dim=0))
        owner = torch.arange(self.shape.decode_context_parallel).reshape(1, -1, 1) == rank.unsqueeze(1)
        return torch.where(owner & self.live().repeat_interleave(q), slot.unsqueeze(1), -1)

    def kv_cache(self, spec: TensorSpec, table: Tensor) -> Tensor:
        """Tokens before the first step where the table says, NaN everywhere else; with FP8 divided by their scale."""
        size = spec.shape
        rows = self.state_like(spec.name, size).reshape(size[0], -1, size[-1])
        if spec.dtype.startswith("float8"):
            rows = (rows / self.sizes.k_scale).clamp(-FP8_MOST, FP8_MOST)
        before = self.lengths()[0] - self.shape.query_tokens
        position = torch.arange(max(int(before.max()), 1)).unsqueeze(1).expand(-1, self.shape.requests)
        rank, slot = self.cache_slots(position, table)
        held = torch.zeros(rows.shape[:2], dtype=torch.bool)
        here = position < before
        held[rank[here], slot[here]] = True
        return rows.masked_fill(~held.unsqueeze(-1), torch.nan).reshape(tuple(size))

    def slotted(self, name: str, size: Sequence[int]) -> Tensor:
        """States by slot; NaN where no step can have left a value: the null slot and, with drafts, what the tokens of the step
        before the first one did not reach."""
        state = self.state_like(name, size)
        recurrent = name.endswith("recurrent_state")
        if recurrent:
            state *= 0.3  # about the size that the recurrence settles at
        if self.drafts:
            slots, before = self.slots(size[0]), self.before()
            reached = torch.zeros(size[0], size[1] if not recurrent else 1, dtype=torch.bool)
            for own, tokens in zip(slots.tolist(), before.tolist(), strict=True):
                if recurrent:
                    reached[own[:tokens]] = True
                else:
                    reached[own[0], : self.sizes.conv_width - 2 + tokens] = True
            shaped = reached.view(*reached.shape, *([1] * (len(size) - 2)))
            state.masked_fill_(~shaped, torch.nan)
        state[NULL] = torch.nan
        return state


def fill(
    file: ProblemFile,
    specs: Sequence[TensorSpec],
    whole: Sequence[TensorSpec],
    shape: Shape,
    tensors: Mapping[str, Tensor],
    steps: int,
    seed: int,
    regime: str,
    only: Collection[Role] | None,
) -> None:
    """Write every weight, metadata, schedule and state tensor of ``specs`` (or those of the roles in ``only``).

    ``whole`` are the same tensors before they are cut for the ranks of tensor parallelism.
    """
    filler = Filler(file, shape, steps, seed, regime)
    lengths = filler.lengths()
    ranks, interleave = shape.decode_context_parallel, file.sizes.dcp_interleave
    caches = [spec for spec in whole if spec.name.endswith("kv_cache")]
    width = pages_per_request(shape)
    page_count = caches[0].shape[1] if caches else shape.requests * width + 1
    table = filler.block_table(page_count, width)
    slot_counts = [spec.shape[0] for spec in whole if spec.name.endswith("recurrent_state")]
    fallback = shape.requests * (1 + filler.drafts) + 1
    made: dict[str, Callable[[], Tensor]] = {
        "slots": lambda: filler.slots(slot_counts[0] if slot_counts else fallback),
        "block_table": lambda: table,
        "num_accepted": filler.accepted,
        "seq_lens": lambda: lengths,
        "local_lens": lambda: torch.stack([local_length(lengths, r, ranks, interleave) for r in range(ranks)], dim=1),
        "slot_mapping": lambda: filler.slot_mapping(table),
    }
    for wanted, spec in zip(specs, whole, strict=True):
        if spec.role in (Role.INPUT, Role.OUTPUT) or (only is not None and spec.role not in only):
            continue
        if spec.name in made:
            value = made[spec.name]()
        elif spec.role is Role.WEIGHT:
            value = filler.weight(spec)
        elif spec.name.endswith("kv_cache"):
            value = filler.kv_cache(spec, table)
        elif spec.role is Role.STATE:
            value = filler.slotted(spec.name, spec.shape)
        else:
            value = filler.state_like(spec.name, spec.shape)
        if specs is not whole and part_of(spec.name) in SHARDED:
            value = value.to(torch.uint8) if spec.dtype == "uint8" else value
            kind = filler.kinds[spec.name.rsplit(".", 1)[0]]
            value = split(spec.name, value, file.sizes, shape.tensor_parallel, kind)
        target = tensors[spec.name][:steps] if spec.role is Role.SCHEDULE else tensors[spec.name]
        if target.shape != value.shape:
            raise ValueError(f"{wanted.name}: expected shape {tuple(value.shape)}, found {tuple(target.shape)}")
        target.copy_(value)
