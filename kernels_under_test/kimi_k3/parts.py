"""Names, shapes and dtypes of a layer's weights, and of what a rank's peers send it."""

from __future__ import annotations

from kernels_under_test.kimi_k3.shards import MX_BLOCK
from kernels_under_test.kimi_k3.sizes import Layer, Sizes

Part = tuple[str, tuple[int, ...], str]
"""Name behind ``layers.<index>.``, shape, dtype."""


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
