"""Names, shapes and dtypes of a layer's weights, and of what a rank's peers send it; the names of regimes. No torch here: whoever
asks for a problem's facts or shapes should not have to load it."""

from __future__ import annotations

from kernels_under_test.contract import Shape
from kernels_under_test.kimi_k3.sizes import Layer, Sizes

MX_BLOCK = 32
"""Elements along the input that share one scale of MXFP4 or MXFP8."""

ROWS = ("f_b", "a_log", "dt_bias", "q_b", "w_uk", "w_uv")
"""Cut along their first axis."""
COLUMNS = ("o_proj", "shared_down", "dense_down")
"""Cut along their second axis, the input; what the ranks make of them is added up."""
PAIRS = ("shared_gate_up", "dense_gate_up")
"""Gate rows, then up rows: each half is cut."""
EXPERTS = ("w13", "w13_scale", "w2", "w2_scale")
STATES = ("recurrent_state", "conv_state")
SHARDED = frozenset((*ROWS, *COLUMNS, *PAIRS, *EXPERTS, *STATES, "in_proj", "conv"))
"""Last parts of the names of tensors that differ from rank to rank; all others are the same on every rank."""

REGIMES = ("normal", "heavy", "x8", "x64", "zeros", "padded", "ties")
"""``heavy``: one state or residual value in 16 is 4 times, one in 256 is 16 times as large; ``x8``, ``x64``: all are so much larger;
``zeros``: fresh states, residuals and cached tokens all zero; ``padded``: the last of several requests is a padded one;
``ties``: experts in pairs with equal router weights and bias."""

Part = tuple[str, tuple[int, ...], str]
"""Name behind ``layers.<index>.``, shape, dtype."""


def pages_per_request(shape: Shape) -> int:
    """Return how many entries of the block table the longest request needs: one covers page size x ranks tokens."""
    return -(-shape.context // (shape.page_size * shape.decode_context_parallel))


def part_of(name: str) -> str:
    """Return the last part of a tensor's name: ``w13`` of ``layers.7.w13``."""
    return name.rsplit(".", 1)[-1]


def _residuals(s: Sizes) -> list[Part]:
    names = ("attn_res.gamma", "attn_res.query", "input_norm", "mlp_res.gamma", "mlp_res.query", "post_norm")
    return [(name, (s.hidden,), "bfloat16") for name in names]


def _experts(s: Sizes, *, packed: bool) -> list[Part]:
    """Expert matrices: bf16, or two E2M1 codes a byte (even input in the low half) and one E8M0 scale byte for 32 inputs."""
    shapes = {
        "w13": (s.experts, 2 * s.expert_intermediate, s.latent),
        "w2": (s.experts, s.latent, s.expert_intermediate),
    }
    if not packed:
        return [(name, shape, "bfloat16") for name, shape in shapes.items()]
    parts: list[Part] = []
    for name, (experts, rows, inputs) in shapes.items():
        parts.append((name, (experts, rows, inputs // 2), "uint8"))
        parts.append((f"{name}_scale", (experts, rows, inputs // MX_BLOCK), "uint8"))
    return parts


def _moe(s: Sizes, *, packed: bool) -> list[Part]:
    return [
        ("router", (s.experts, s.hidden), "bfloat16"),
        ("router_bias", (s.experts,), "float32"),
        ("latent_down", (s.latent, s.hidden), "bfloat16"),
        *_experts(s, packed=packed),
        ("latent_norm", (s.latent,), "bfloat16"),
        ("latent_up", (s.hidden, s.latent), "bfloat16"),
        ("shared_gate_up", (2 * s.shared_intermediate, s.hidden), "bfloat16"),
        ("shared_down", (s.hidden, s.shared_intermediate), "bfloat16"),
    ]


def _dense(s: Sizes) -> list[Part]:
    return [
        ("dense_gate_up", (2 * s.dense_intermediate, s.hidden), "bfloat16"),
        ("dense_down", (s.hidden, s.dense_intermediate), "bfloat16"),
    ]


def _kda(s: Sizes) -> list[Part]:
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


def _mla(s: Sizes) -> list[Part]:
    return [
        ("in_proj", (s.mla_projection_rows, s.hidden), "bfloat16"),
        ("q_a_norm", (s.q_lora,), "bfloat16"),
        ("kv_a_norm", (s.kv_lora,), "bfloat16"),
        ("q_b", (s.heads * (s.nope + s.pe), s.q_lora), "bfloat16"),
        ("w_uk", (s.heads, s.nope, s.kv_lora), "bfloat16"),
        ("w_uv", (s.heads, s.v_dim, s.kv_lora), "bfloat16"),
        ("o_proj", (s.hidden, s.heads * s.v_dim), "bfloat16"),
    ]


def layer_weights(s: Sizes, layer: Layer, *, packed: bool) -> list[Part]:
    """Return a layer's weights on one rank, whose sizes ``s`` are; ``packed`` asks for MXFP4 experts."""
    feed_forward = _dense(s) if layer.dense else _moe(s, packed=packed)
    return _residuals(s) + feed_forward + (_kda(s) if layer.kind == "kda" else _mla(s))


def peers(whole: Sizes, layer: Layer, ranks: int, rows: int) -> list[Part]:
    """Return what rank 0 gets from its peers in a layer, from the sizes over all ranks.

    Partial sums of the attention output and, with experts, of the latent and of the own columns of the shared expert; the columns of
    router logits, latent and output that other ranks compute. A dense layer sends partial sums of its output instead.
    """
    others = ranks - 1
    parts: list[Part] = [("peers.o", (others, rows, whole.hidden), "bfloat16")]
    if layer.dense:
        return [*parts, ("peers.dense", (others, rows, whole.hidden), "bfloat16")]
    return [
        *parts,
        ("peers.latent", (others, rows, whole.latent), "bfloat16"),
        ("peers.shared", (others, rows, whole.hidden // ranks), "bfloat16"),
        ("peers.logits", (others, rows, whole.experts // ranks), "float32"),
        ("peers.down", (others, rows, whole.latent // ranks), "bfloat16"),
        ("peers.out", (others, rows, whole.hidden // ranks), "bfloat16"),
    ]
