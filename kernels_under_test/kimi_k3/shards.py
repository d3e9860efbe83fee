"""How a tensor over all heads and intermediates is cut for the ranks of tensor parallelism.

A sharded tensor of a simulated problem is [ranks, ...]: entry r is what rank r holds. The cut keeps the order of the heads, so rank r
has the heads r H / N to (r + 1) H / N. Expert intermediates are padded behind their live part with zeros, as a rank stores them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kernels_under_test.kimi_k3.parts import COLUMNS, MX_BLOCK, PAIRS, SHARDED, part_of
from kernels_under_test.kimi_k3.sizes import Sizes

PAD_SCALE = 200
"""Scale byte of padded blocks, whose codes are zero: any value but 255, which is NaN."""


def cut(value: Tensor, axis: int, groups: int, ranks: int, *, width: int = 0, fill: float = 0) -> Tensor:
    """Return [ranks, ...]: the axis is ``groups`` equal parts one behind the other, and each rank gets its share of every part.

    Shares narrower than ``width`` are padded behind with ``fill``.
    """
    shares = []
    for rank in range(ranks):
        own = [group.chunk(ranks, dim=axis)[rank] for group in value.chunk(groups, dim=axis)]
        if width > own[0].shape[axis]:
            size = list(own[0].shape)
            size[axis] = width - size[axis]
            own = [torch.cat((part, torch.full(size, fill, dtype=value.dtype)), dim=axis) for part in own]
        shares.append(torch.cat(own, dim=axis))
    return torch.stack(shares)


def _segments(value: Tensor, lengths: Sequence[int], shared: int, ranks: int, rows: int) -> Tensor:
    """Cut the segments of a packed projection but segment number ``shared``, which every rank has; pad with zero rows."""
    shares = []
    for rank in range(ranks):
        parts = torch.split(value[: sum(lengths)], list(lengths))
        own = [part if place == shared else part.chunk(ranks)[rank] for place, part in enumerate(parts)]
        filled = torch.cat(own)
        shares.append(torch.cat((filled, filled.new_zeros(rows - filled.shape[0], filled.shape[1]))))
    return torch.stack(shares)


def split(name: str, value: Tensor, sizes: Sizes, ranks: int, kind: str) -> Tensor:
    """Return the shards [ranks, ...] of a tensor ``value`` of one rank, by its name; ``kind`` is its layer's attention.

    Raises:
        ValueError: if the tensor is the same on every rank.
    """
    part, own = part_of(name), sizes.on_rank(ranks)
    if part not in SHARDED:
        raise ValueError(f"expected a tensor that differs from rank to rank ({sorted(SHARDED)}), found {name}")
    d, wide = sizes.kda_width, own.expert_intermediate
    kda = (d, d, d, d, sizes.forget_rank, sizes.heads), 4, own.kda_projection_rows
    mla = (sizes.q_lora + sizes.kv_lora + sizes.pe, sizes.heads * sizes.v_dim), 0, own.mla_projection_rows
    lengths, shared, rows = kda if kind == "kda" else mla
    packed = wide // 2 if value.dtype == torch.uint8 else wide
    rules: dict[str, Callable[[], Tensor]] = {
        "in_proj": lambda: _segments(value, lengths, shared, ranks, rows),
        "conv": lambda: cut(value, 0, 3, ranks),
        "conv_state": lambda: cut(value, 2, 3, ranks),
        "recurrent_state": lambda: cut(value, 1, 1, ranks),
        "w13": lambda: cut(value, 1, 2, ranks, width=wide),
        "w13_scale": lambda: cut(value, 1, 2, ranks, width=wide, fill=PAD_SCALE),
        "w2": lambda: cut(value, 2, 1, ranks, width=packed),
        "w2_scale": lambda: cut(value, 2, 1, ranks, width=wide // MX_BLOCK, fill=PAD_SCALE),
    }
    if part in rules:
        return rules[part]()
    axis, groups = (1, 1) if part in COLUMNS else (0, 2 if part in PAIRS else 1)
    return cut(value, axis, groups, ranks)
