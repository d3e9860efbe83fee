"""What each path launches in one KDA layer with experts, in order, and which variant serves which number of rows."""

from __future__ import annotations

from kernels_under_test.kimi_k3.cuda.sizes import bin_rows

STOCK = (
    "attention_residual",
    "in_proj",
    "forget_gate",
    "conv_update",
    "delta_rule",
    "copy_output",
    "gated_norm",
    "o_proj",
    "all_reduce",
    "ffn_residual",
    "router",
    "latent_down",
    "route",
    "permute",
    "experts_in",
    "experts_activation",
    "experts_out",
    "shared_gate_up",
    "shared_activation",
    "shared_down",
    "tail_finalise",
    "tail_up",
    "tail_copy",
)
"""Stock's 23 launches. In the SM90 contract the experts' activations are bf16: the quantisation of the latent falls away, and the
weight-only grouped product leaves its activation to a kernel of its own (``experts_activation``), so the count stays 23."""

CANDIDATE = (
    "attention_residual",
    "in_proj",
    "kda",
    "o_proj",
    "ffn_residual",
    "front",
    "route",
    "group",
    "shared_down",
    "experts_in",
    "experts_out",
    "tail_finalise",
    "tail_up",
)
"""The candidate's 13 launches. The forget gate lies in ``kda``, the all-reduce in ``ffn_residual``, the router and latent shards and
the shared gate/up with its activation in ``front``; the last kernel writes into the row that the next layer reads."""


def candidate(rows: int) -> tuple[str, ...]:
    """The launches for a number of rows: at one row there is nothing to group, which leaves 12.

    Raises:
        ValueError: outside 1 to 64 rows.
    """
    return tuple(name for name in CANDIDATE if name != "group" or bin_rows(rows) > 1)
