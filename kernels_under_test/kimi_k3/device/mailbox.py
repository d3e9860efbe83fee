"""Stock's routing over a mailbox. Device code only.

Stock computes router and latent-down in full. Where the other ranks' columns are inputs, its routing reads this rank's logits from
its product and the others' from the mailbox, and puts this rank's columns of both products there: no launch and no byte more than the
routing of ``cuda/stock/experts.py``, but for 1.3 KB a row.
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def route(
    full,
    logits,
    down,
    latent,
    bias,
    ids,
    weights,
    E: tl.constexpr,
    W: tl.constexpr,
    TOP: tl.constexpr,
    OWN: tl.constexpr,
    L: tl.constexpr,
    COLUMNS: tl.constexpr,
    B: tl.constexpr,
):
    """Top experts by sigmoid plus bias; ties to the lower id, NaN last; weights renormalised without the bias.

    ``full`` and ``down`` are stock's products [rows, E] and [rows, L]; ``logits`` and ``latent`` the mailboxes, whose first OWN and
    COLUMNS columns are written.
    """
    row = tl.program_id(0)
    c = tl.arange(0, B)
    tl.store(latent + row * L + c, tl.load(down + row * L + c, mask=c < COLUMNS), mask=c < COLUMNS)
    e = tl.arange(0, W)
    own = e < OWN
    mine = tl.load(full + row * E + e, mask=own, other=0.0)
    others = tl.load(logits + row * E + e, mask=(e >= OWN) & (e < E), other=float("-inf"))
    logit = tl.where(own, mine, others)
    tl.store(logits + row * E + e, mine, mask=own)
    score = tl.sigmoid(logit)
    choice = score + tl.load(bias + e, mask=e < E, other=0.0)
    bits = choice.to(tl.int32, bitcast=True)
    order = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    order = tl.where((choice == choice) & (e < E), order, -2147483648)
    key = (order.to(tl.int64) << 32) | (4095 - e).to(tl.int64)
    slot = tl.arange(0, TOP)
    picked = tl.zeros([TOP], tl.int32)
    for i in tl.static_range(TOP):
        best = tl.max(key, axis=0)
        picked = tl.where(slot == i, (4095 - (best & 0xFFFFFFFF)).to(tl.int32), picked)
        key = tl.where(key == best, -9223372036854775807, key)
    chosen = tl.load(full + row * E + picked, mask=picked < OWN, other=0.0)
    chosen += tl.load(logits + row * E + picked, mask=picked >= OWN, other=0.0)
    chosen = tl.sigmoid(chosen)
    share = chosen / (tl.sum(chosen, axis=0) + 1e-20)
    tl.store(ids + row * TOP + slot, picked)
    tl.store(weights + row * TOP + slot, share.to(tl.bfloat16).to(tl.float32))
