"""Faults in constants and small weights: class "plausible but wrong arithmetic", which loose tolerances let through."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .seam import named, of_candidate


def _replaced(ending: str, change: Callable[[Tensor], Tensor]) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    def tensors(given: dict[str, Tensor]) -> dict[str, Tensor]:
        return given | {name: change(given[name]) for name in named(given, ending)}

    return tensors


norm_weight_ignored = of_candidate(tensors=_replaced(".input_norm", torch.ones_like))
"""The norm before attention multiplies by one. Must be WRONG."""

norm_weight_off = of_candidate(
    tensors=_replaced(".latent_norm", lambda weight: (weight.float() * 1.02).to(weight.dtype))
)
"""The latent norm's weight is 2 % too large. Must be WRONG; shows as a signed gain, hardly as an error."""

eps_off = of_candidate(facts=lambda facts: facts | {"eps.kda_norm": 100 * facts["eps.kda_norm"]})
"""The eps of the KDA output norm is a hundred times too large. Must be WRONG."""

l2_eps_off = of_candidate(facts=lambda facts: facts | {"eps.kda_l2": 1e4 * facts["eps.kda_l2"]})
"""The eps of the query and key norm is ten thousand times too large, which is still small beside the sums of squares. Must be
WRONG; chains do not show it, the one-step check does."""
