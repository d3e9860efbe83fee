"""What the tensors of a problem hold: everything from :mod:`kernels_under_test.hashrng`, without log, exp or cos.

Linear weights are N(0, 1) / sqrt(in); expert weights lie on the MXFP4 grid (E2M1 codes, one power of two for 32 along the
input), stored as bf16. Half of the KDA heads remember for a few steps, the other half decay by about 0.9 to 0.999 a step, so
that a stale or skipped state stays visible.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod

import torch
from torch import Tensor

from kernels_under_test import hashrng
from kernels_under_test.contract import Role, Shape, TensorSpec
from kernels_under_test.kimi_k3.sizes import ProblemFile

REGIMES = ("normal", "heavy", "x8", "zeros", "padded", "ties")
"""``heavy``: one state or residual value in 16 is 4 times, one in 256 is 16 times as large; ``x8``: all are 8 times as large;
``zeros``: fresh states, residuals and cached tokens all zero; ``padded``: the last of several rows is a padded one;
``ties``: experts in pairs with equal router weights and bias."""

NULL = 0
"""Reserved state slot and cache page; both hold NaN."""
MX_BLOCK = 32
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_E2M1_RMS = 2.926


def pages_per_request(shape: Shape) -> int:
    """Return how many entries of the block table the longest request needs: one covers page size x ranks tokens."""
    return -(-shape.context // (shape.page_size * shape.decode_context_parallel))


def local_index(position: Tensor, ranks: int, interleave: int) -> tuple[Tensor, Tensor]:
    """Return (rank, index on that rank) of tokens at global positions, both shaped as ``position``."""
    return (position // interleave) % ranks, position // (interleave * ranks) * interleave + position % interleave


def local_length(length: Tensor, rank: int, ranks: int, interleave: int) -> Tensor:
    """Return how many of the first ``length`` tokens lie on a rank."""
    whole = length // (interleave * ranks)
    rest = length - whole * interleave * ranks
    return whole * interleave + (rest - rank * interleave).clamp(0, interleave)


class Filler:
    """Fills the tensors of one shape under one seed; ``normal`` and the like name their stream after the tensor."""

    def __init__(self, file: ProblemFile, shape: Shape, steps: int, seed: int, regime: str) -> None:
        if regime not in REGIMES:
            raise ValueError(f"expected a regime of {REGIMES}; found {regime!r}")
        if not 1 <= steps <= shape.context:
            raise ValueError(f"steps must be in 1..{shape.context} (the context), so that lengths fit; found {steps}")
        self.file, self.shape, self.steps, self.seed, self.regime = file, shape, steps, seed, regime

    def normal(self, name: str, size: Sequence[int]) -> Tensor:
        return hashrng.normal(self.seed, name, size)

    def uniform(self, name: str, size: Sequence[int], low: float, high: float) -> Tensor:
        return hashrng.uniform(self.seed, name, size) * (high - low) + low

    def weight(self, spec: TensorSpec) -> Tensor:
        """Values of a weight tensor, by the last part of its name."""
        name, size, part = spec.name, spec.shape, spec.name.rsplit(".", 1)[-1]
        rules: dict[str, Callable[[], Tensor]] = {
            "query": lambda: 0.2 * self.normal(name, size),
            "gamma": lambda: 1 + 0.1 * self.normal(name, size),
            "conv": lambda: 0.5 * self.normal(name, size),
            "a_log": lambda: self._a_log(name, size),
            "dt_bias": lambda: self._dt_bias(name, size),
            "router": lambda: self._router(name, size),
            "router_bias": lambda: self._pair(0.05 * self.normal(name, size)),
            "w13": lambda: self._mxfp4(name, size),
            "w2": lambda: self._mxfp4(name, size),
        }
        if part in rules:
            return rules[part]()
        if part.endswith("norm"):
            return 1 + 0.1 * self.normal(name, size)
        linear: Tensor = self.normal(name, size) * size[-1] ** -0.5
        if part == "in_proj" and size[0] == self.file.sizes.kda_projection_rows:
            s = self.file.sizes
            linear[4 * s.kda_width + s.forget_rank + s.heads :] = 0
        return linear

    def _long(self, size: Sequence[int]) -> Tensor:
        """True for the heads with long memory: every second one."""
        heads = self.file.sizes.heads
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

    def _mxfp4(self, name: str, size: Sequence[int]) -> Tensor:
        codes = hashrng.integers(self.seed, name, 0, 16, size)
        grid = torch.tensor((*_E2M1, *(-v for v in _E2M1)))[codes]
        blocks = (*size[:-1], -(-size[-1] // MX_BLOCK))
        unit = 1.0
        while unit > 1.4 * size[-1] ** -0.5 / _E2M1_RMS:
            unit /= 2
        powers = torch.tensor((0.5, 1.0, 2.0))[hashrng.integers(self.seed, name + ".scale", 0, 3, blocks)] * unit
        return grid * powers.repeat_interleave(MX_BLOCK, dim=-1)[..., : size[-1]]

    def state_like(self, name: str, size: Sequence[int]) -> Tensor:
        """Unit normal values under the regime: what earlier steps and layers left behind."""
        if self.regime == "zeros":
            return torch.zeros(tuple(size))
        drawn = self.normal(name, size)
        if self.regime == "x8":
            return drawn * 8
        if self.regime == "heavy":
            dice = hashrng.integers(self.seed, name + ".heavy", 0, 256, size)
            return torch.where(dice == 0, 16 * drawn, torch.where(dice <= 16, 4 * drawn, drawn))
        return drawn

    def live(self) -> Tensor:
        """[rows] bool: False for the padded row."""
        live = torch.ones(self.shape.rows, dtype=torch.bool)
        if self.regime == "padded" and self.shape.rows > 1:
            live[-1] = False
        return live

    def slots(self, slot_count: int) -> Tensor:
        order = hashrng.permutation(self.seed, "slots", slot_count - 1)[: self.shape.rows] + 1
        return order.masked_fill(~self.live(), NULL)

    def lengths(self) -> Tensor:
        """[steps, rows] int64: tokens after each step. Row 0 ends at the full context, the next ones start on and beside a
        page edge where they fit, the others anywhere."""
        shape, top = self.shape, self.shape.context - self.steps + 1
        start = hashrng.integers(self.seed, "seq_lens", 1, top + 1, (shape.rows,))
        edges = [top, 1, shape.page_size, shape.page_size + 1, shape.page_size * shape.decode_context_parallel + 1]
        for row, edge in enumerate(edges[: shape.rows]):
            start[row] = min(edge, top)
        grown = start + torch.arange(self.steps).unsqueeze(1)
        return grown.masked_fill(~self.live(), 0)

    def block_table(self, page_count: int, width: int) -> Tensor:
        """[rows, width + 1] int64: shuffled pages, null behind the longest length of the row."""
        shape = self.shape
        order = hashrng.permutation(self.seed, "block_table", page_count - 1)[: shape.rows * width] + 1
        needed = -(-self.lengths()[-1] // (shape.page_size * shape.decode_context_parallel))
        table = order.reshape(shape.rows, width).masked_fill(torch.arange(width) >= needed.unsqueeze(1), NULL)
        return torch.cat((table, torch.full((shape.rows, 1), NULL)), dim=1)

    def cache_slots(self, position: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        """Return (rank, cache slot) of tokens at ``position`` [n, rows]."""
        shape = self.shape
        rank, local = local_index(position, shape.decode_context_parallel, self.file.sizes.dcp_interleave)
        page = table.gather(1, (local // shape.page_size).t()).t()
        return rank, page * shape.page_size + local % shape.page_size

    def slot_mapping(self, table: Tensor) -> Tensor:
        """[steps, ranks, rows] int64: where each rank stores the new token, -1 on the other ranks and for padded rows."""
        rank, slot = self.cache_slots((self.lengths() - 1).clamp(min=0), table)
        owner = torch.arange(self.shape.decode_context_parallel).reshape(1, -1, 1) == rank.unsqueeze(1)
        return torch.where(owner & self.live(), slot.unsqueeze(1), -1)

    def kv_cache(self, name: str, size: Sequence[int], table: Tensor) -> Tensor:
        """Tokens before the first step where the table says, NaN everywhere else."""
        rows = self.state_like(name, size).reshape(size[0], -1, size[-1])
        before = self.lengths()[0] - 1
        position = torch.arange(max(int(before.max()), 1)).unsqueeze(1).expand(-1, self.shape.rows)
        rank, slot = self.cache_slots(position, table)
        held = torch.zeros(rows.shape[:2], dtype=torch.bool)
        here = position < before
        held[rank[here], slot[here]] = True
        return rows.masked_fill(~held.unsqueeze(-1), torch.nan).reshape(tuple(size))

    def slotted(self, name: str, size: Sequence[int]) -> Tensor:
        state = self.state_like(name, size)
        if name.endswith("recurrent_state"):
            state *= 0.3  # about the size that the recurrence settles at
        state[NULL] = torch.nan
        return state


def fill(
    file: ProblemFile,
    specs: Sequence[TensorSpec],
    shape: Shape,
    tensors: Mapping[str, Tensor],
    steps: int,
    seed: int,
    regime: str,
    only: Collection[Role] | None,
) -> None:
    """Write every weight, metadata, schedule and state tensor of ``specs`` (or those of the roles in ``only``)."""
    filler = Filler(file, shape, steps, seed, regime)
    lengths = filler.lengths()
    ranks, interleave = shape.decode_context_parallel, file.sizes.dcp_interleave
    caches = [spec for spec in specs if spec.name.endswith("kv_cache")]
    width = pages_per_request(shape)
    page_count = caches[0].shape[1] if caches else shape.rows * width + 1
    table = filler.block_table(page_count, width)
    slot_counts = [spec.shape[0] for spec in specs if spec.name.endswith("recurrent_state")]
    made: dict[str, Callable[[], Tensor]] = {
        "slots": lambda: filler.slots(slot_counts[0] if slot_counts else shape.rows + 1),
        "block_table": lambda: table,
        "seq_lens": lambda: lengths,
        "local_lens": lambda: torch.stack([local_length(lengths, r, ranks, interleave) for r in range(ranks)], dim=1),
        "slot_mapping": lambda: filler.slot_mapping(table),
    }
    for spec in specs:
        if spec.role in (Role.INPUT, Role.OUTPUT) or (only is not None and spec.role not in only):
            continue
        if spec.name in made:
            value = made[spec.name]()
        elif spec.role is Role.WEIGHT:
            value = filler.weight(spec)
        elif spec.name.endswith("kv_cache"):
            value = filler.kv_cache(spec.name, spec.shape, table)
        elif spec.role is Role.STATE:
            value = filler.slotted(spec.name, spec.shape)
        else:
            value = filler.state_like(spec.name, spec.shape)
        target = tensors[spec.name][:steps] if spec.role is Role.SCHEDULE else tensors[spec.name]
        if target.shape != value.shape:
            raise ValueError(f"{spec.name}: expected shape {tuple(value.shape)}, found {tuple(target.shape)}")
        target.copy_(value)
