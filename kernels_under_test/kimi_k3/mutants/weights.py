"""Faults in how weights are read: one ignored, scaled, shifted to a neighbour, or kept in fewer bits."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .seam import Mutant, named, of_candidate


def _changed(ending: str, change: Callable[[Tensor], Tensor]) -> Mutant:
    def tensors(given: dict[str, Tensor]) -> dict[str, Tensor]:
        names = named(given, ending)
        if not names:
            raise ValueError(f"expected a tensor that ends in {ending}; found none")
        return given | {name: change(given[name]).contiguous() for name in names}

    return of_candidate(tensors=tensors)


def _ignored(ending: str) -> Mutant:
    return _changed(ending, torch.ones_like)


def _dropped(ending: str) -> Mutant:
    return _changed(ending, torch.zeros_like)


def _scaled(ending: str, factor: float) -> Mutant:
    return _changed(ending, lambda w: (w.float() * factor).to(w.dtype))


def _swapped_halves(weight: Tensor) -> Tensor:
    first, second = weight.chunk(2, dim=-2)
    return torch.cat((second, first), dim=-2)


def _in_bits(bits: int) -> Callable[[Tensor], Tensor]:
    """Round to symmetric integers of so many bits, one scale for each row."""

    def rounded(weight: Tensor) -> Tensor:
        wide, most = weight.float(), 2 ** (bits - 1) - 1
        unit = wide.abs().amax(dim=-1, keepdim=True).clamp_min(1e-30) / most
        coarse: Tensor = (wide / unit).round() * unit
        return coarse.to(weight.dtype)

    return rounded


# A norm's weight that is not applied, at each place in the layer.
post_norm_ignored = _ignored(".post_norm")
latent_norm_ignored = _ignored(".latent_norm")
kda_norm_ignored = _ignored(".o_norm")
query_norm_ignored = _ignored(".q_a_norm")
cache_norm_ignored = _ignored(".kv_a_norm")
final_norm_ignored = _ignored("final_norm")
attention_gamma_ignored = _ignored(".attn_res.gamma")
experts_gamma_ignored = _ignored(".mlp_res.gamma")

# A norm's weight that is a little too large.
input_norm_off = _scaled(".input_norm", 1.02)
kda_norm_off = _scaled(".o_norm", 1.02)
cache_norm_off = _scaled(".kv_a_norm", 1.02)
final_norm_off = _scaled("final_norm", 1.01)

# A small term that is left out.
decay_bias_dropped = _dropped(".dt_bias")
forget_gate_dropped = _dropped(".f_b")
shared_expert_dropped = _dropped(".shared_down")
residual_query_dropped = _dropped(".attn_res.query")
head_speed_dropped = _dropped(".a_log")
"""exp(a_log) is taken for one."""

# The right numbers in the wrong place.
convolution_backwards = _changed(".conv", lambda w: w.flip(-1))
oldest_tap_dropped = _changed(".conv", lambda w: torch.cat((torch.zeros_like(w[:, :1]), w[:, 1:]), dim=1))
key_heads_shifted = _changed(".w_uk", lambda w: w.roll(1, 0))
value_heads_shifted = _changed(".w_uv", lambda w: w.roll(1, 0))
expert_of_the_neighbour = _changed(".w2", lambda w: w.roll(1, 0))
expert_halves_swapped = _changed(".w13", _swapped_halves)
shared_halves_swapped = _changed(".shared_gate_up", _swapped_halves)
decay_of_the_neighbour_head = _changed(".a_log", lambda w: w.roll(1, 0))

# Fewer bits than the scope says.
experts_in_four_bits = _changed(".w13", _in_bits(4))
down_in_six_bits = _changed(".w2", _in_bits(6))
latent_up_in_six_bits = _changed(".latent_up", _in_bits(6))
projection_in_six_bits = _changed(".in_proj", _in_bits(6))
