"""Faults in single constants: class "plausible but wrong arithmetic". A factor of a hundred is what a wrong eps looks like."""

from __future__ import annotations

from typing import Any

from .seam import Mutant, of_candidate


def _times(name: str, factor: float) -> Mutant:
    def facts(given: dict[str, Any]) -> dict[str, Any]:
        return given | {name: given[name] * factor}

    return of_candidate(facts=facts)


latent_eps_off = _times("eps.latent_norm", 100)
"""The eps of the latent norm is a hundred times too large."""
query_eps_off = _times("eps.q_a_norm", 100)
"""The eps of the low-rank query's norm is a hundred times too large."""
cache_eps_off = _times("eps.kv_a_norm", 100)
"""The eps of the cached latent's norm is a hundred times too large."""
layer_eps_off = _times("eps.layer_norm", 100)
"""The eps of the norms before attention and experts is a hundred times too large."""
residual_eps_off = _times("eps.residual_score", 1000)
"""The eps in the scores of the attention residuals is a thousand times too large."""
routed_scale_off = _times("routed_scaling", 1.02)
"""The routed experts count 2 % too much."""
situ_gate_off = _times("situ_beta", 1.05)
"""The gate of the activation saturates 5 % too late."""
situ_up_off = _times("situ_linear_beta", 0.5)
"""The up part of the activation saturates at half its limit."""
renormalise_eps_off = _times("eps.renormalise", 1e19)
"""The guard of the renormalisation is large enough to make all weights smaller (1e-20 has become 0.1)."""
