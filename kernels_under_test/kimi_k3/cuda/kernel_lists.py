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
    "route_group_shared_down",
    "experts",
    "tail_finalise",
    "tail_up",
)
"""The candidate's 10 launches above two rows. The forget gate lies in ``kda``, the all-reduce in ``ffn_residual``, the router and
latent shards and the shared gate/up with its activation in ``front``; routing and grouping run beside the shared expert's second
product, and both expert products are one persistent kernel; the last kernel writes into the row that the next layer reads."""

CANDIDATE_FEW_ROWS = (*CANDIDATE[:6], "route_shared_down", "experts_in", "experts_out", *CANDIDATE[8:])
"""At one or two rows nothing is grouped, and each expert product is a launch of its own: 11 launches."""


def candidate(rows: int) -> tuple[str, ...]:
    """The launches for a number of rows.

    Raises:
        ValueError: outside 1 to 64 rows.
    """
    return CANDIDATE if bin_rows(rows) > 2 else CANDIDATE_FEW_ROWS


STOCK_MLA = (
    "attention_residual",
    "in_proj",
    "latent_norms",
    "query_up",
    "absorb",
    "insert",
    "attention",
    "merge",
    "value",
    "gate",
    "o_proj",
    "all_reduce",
    *STOCK[9:],
)
"""Stock's 26 launches in an MLA layer. The design counts 27: query latent, key/value latent and output gate are one product here,
which on one stream is faster than two."""


def mla_candidate(rows: int) -> tuple[str, ...]:
    """The candidate's launches in an MLA layer: 14 at one or two rows, 15 above. The query latent's norm lies in the query's up
    projection, merge and value product in one kernel, at one or two rows; above they are kernels of their own.

    Raises:
        ValueError: outside 1 to 64 rows.
    """
    few = bin_rows(rows) <= 2
    query = ("mla_query",) if few else ("mla_latents", "mla_up")
    value = ("mla_value",) if few else ("mla_merge", "mla_values")
    return (
        "attention_residual", "mla_in_proj", *query, "mla_absorb", "mla_core", *value, "o_proj", *candidate(rows)[4:],
    )  # fmt: skip
