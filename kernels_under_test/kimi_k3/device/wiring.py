"""The arena's tensors as the CUDA paths take them: names, layouts derived in the workspace, and what both paths share of a step.

Runs in the jail. A path's layer (``cuda/stock/layer.py``, ``cuda/cute/layer.py``) is made over these tensors and then pointed at the
mailboxes and outputs of the arena; its own buffers stay its own. Layers lie in a chain: one reads the mailbox of the output of the
one before, and all of them advance one prefix, which each step sets anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from kernels_under_test.kimi_k3.cuda.sizes import (
    BLOCKS,
    DIM,
    EXPERTS,
    HEADS,
    HIDDEN,
    INTER,
    LATENT,
    PARTS,
    RANK,
    SHARED,
    TOP_K,
    WIDTH,
)  # fmt: skip

ALIGN = 256
AT_ONCE = 64
"""Experts whose codes are packed at a time."""
WANTED = {
    "hidden": HIDDEN, "heads": HEADS, "kda_dim": DIM, "forget_rank": RANK, "latent": LATENT, "experts": EXPERTS, "top_k": TOP_K,
    "expert_intermediate": INTER, "shared_intermediate": SHARED, "ranks": PARTS, "first_blocks": BLOCKS, "conv_width": 4,
    "gate_lower_bound": -5.0, "situ_beta": 4.0, "situ_linear_beta": 25.0, "routed_scaling": 1.0, "slots": 65,
    "communication": "shard", "eps.layer_norm": 1e-5, "eps.residual_score": 1e-5, "eps.latent_norm": 1e-5, "eps.kda_norm": 1e-5,
    "eps.kda_l2": 1e-6, "eps.renormalise": 1e-20, "dtype.experts": "mxfp4", "dtype.act": "bf16",
}  # fmt: skip
"""What the kernels are compiled for."""


def declined(facts: Mapping[str, Any], shape: Any, rows: Sequence[int]) -> str | None:
    """Return why the compiled kernels do not serve a problem at a shape, all reasons in one line; None where they do."""
    odd = [
        f"{name} must be {value}, found {facts.get(name)}" for name, value in WANTED.items() if facts.get(name) != value
    ]
    odd += [
        f"layer {index} must be a KDA layer, found {kind}" for index, kind in facts.get("layers", ()) if kind != "kda"
    ]
    if shape.rows not in rows:
        odd.append(f"rows must be one of {list(rows)}, found {shape.rows}")
    for name, value, good in (
        ("query_tokens", shape.query_tokens, 1),
        ("tensor_parallel", shape.tensor_parallel, PARTS),
        ("decode_context_parallel", shape.decode_context_parallel, 1),
        ("expert_parallel", shape.expert_parallel, 1),
    ):
        if value != good:
            odd.append(f"{name} must be {good}, found {value}")
    return "; ".join(odd) or None


class Unwritten(dict[str, Tensor]):
    """A layer's tensors without memory, for counting what :func:`dense` lays out anew; all others have no size that counts."""

    def __missing__(self, name: str) -> Tensor:
        sizes = {"conv": (3 * WIDTH, 4), "o_norm": (DIM,)}
        return torch.empty(sizes.get(name, (1,)), dtype=torch.float32, device="meta")


class Scratch:
    """Hands out pieces of the workspace, each on 256 bytes; without one it only counts. ``used`` is how many bytes were taken."""

    def __init__(self, memory: Tensor | None = None) -> None:
        self._memory, self.used = memory, 0

    def take(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return an unwritten tensor of the workspace (on the device ``meta`` where there is none).

        Raises:
            ValueError: if the workspace is used up.
        """
        at, count = self.used, 1
        for size in shape:
            count *= size
        self.used += -(-count * dtype.itemsize // ALIGN) * ALIGN
        if self._memory is None:
            return torch.empty(tuple(shape), dtype=dtype, device="meta")
        if self.used > self._memory.numel():
            raise ValueError(f"expected a workspace of at least {self.used} bytes, found {self._memory.numel()}")
        return self._memory[at : at + count * dtype.itemsize].view(dtype).view(tuple(shape))

    def keep(self, value: Tensor) -> Tensor:
        """Return a copy of a tensor in the workspace."""
        made = self.take(tuple(value.shape), value.dtype)
        if self._memory is not None:
            made.copy_(value)
        return made


def codes(tensors: Mapping[str, Tensor], name: str) -> Iterator[tuple[slice, Tensor]]:
    """Yield for some experts at a time (slice, codes [experts, rows, inputs] uint8), of packed codes with two to a byte."""
    packed = tensors[name]
    for at in range(0, packed.shape[0], AT_ONCE):
        part = slice(at, at + AT_ONCE)
        yield part, torch.stack((packed[part] & 15, packed[part] >> 4), dim=-1).flatten(-2)


def layer_tensors(tensors: Mapping[str, Tensor], index: int) -> dict[str, Tensor]:
    """Return a layer's tensors by the rest of their names."""
    start = f"layers.{index}."
    return {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}


def dense(own: Mapping[str, Tensor], scratch: Scratch) -> dict[str, Tensor]:
    """Return a layer's dense weights as both paths name them; two are kept in another layout or dtype."""
    found = {
        name: own[name] for name in ("in_proj", "f_b", "o_proj", "router", "latent_down", "shared_down", "latent_up")
    }
    found |= {name: own[name] for name in ("a_log", "dt_bias", "latent_norm")}
    found |= {"gate_up": own["shared_gate_up"], "bias": own["router_bias"]}
    for call, prefix, norm in (("pre", "attn_res", "input_norm"), ("post", "mlp_res", "post_norm")):
        found |= {f"{call}_gamma": own[f"{prefix}.gamma"], f"{call}_query": own[f"{prefix}.query"]}
        found[f"{call}_norm"] = own[norm]
    found["conv"] = scratch.keep(own["conv"].view(3, WIDTH, 4).transpose(1, 2).contiguous())
    found["o_norm"] = scratch.keep(own["o_norm"].float())
    return found


def inputs(
    tensors: Mapping[str, Tensor], own: Mapping[str, Tensor], delta: Tensor, prefix: Tensor
) -> dict[str, Tensor]:
    """Return a layer's inputs and states as both paths name them; ``delta`` [rows, hidden] is the output of the layer before."""
    return {
        "delta": delta, "prefix": prefix, "blocks": tensors["blocks_in"], "slots": tensors["slots"],
        "state": own["recurrent_state"], "conv_state": own["conv_state"], "peers_o": own["peers.o"],
        "peers_latent": own["peers.latent"], "peers_shared": own["peers.shared"], "peers_out": own["gathered.out"],
    }  # fmt: skip


def closing(tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return gamma, query and norm of the attention residual that ends a step."""
    return tensors["final_res.gamma"], tensors["final_res.query"], tensors["final_norm"]


def chain(
    facts: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    make: Callable[[dict[str, Tensor], dict[str, Tensor], Tensor], Any],
) -> tuple[list[Any], Tensor]:
    """Make every layer with ``make(own tensors, inputs, this layer's expert ids)``; return them and the prefix that they advance."""
    prefix = torch.zeros_like(tensors["x"])
    delta, layers = tensors["x"], []
    for place, (index, _) in enumerate(facts["layers"]):
        own = layer_tensors(tensors, index)
        layers.append(make(own, inputs(tensors, own, delta, prefix), tensors["expert_ids"][place]))
        delta = own["gathered.out"]
    return layers, prefix
