"""The CuTe DSL candidate on a device as an implementation of the contract: the launches of ``cuda/kernel_lists.py`` in each layer.

It runs what was compiled ahead of time (``cuda/cute/build.py`` into ``build/kernels/<architecture>`` of the checkout), which the jail
shows where ``GATEKEEPER_BUILT`` says. Round the layers of a step stand the same two launches as in the stock path.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernels_under_test.kimi_k3.cuda import mxfp4
from kernels_under_test.kimi_k3.cuda.cute.tactics import chosen, name
from kernels_under_test.kimi_k3.cuda.kernel_lists import candidate as launches
from kernels_under_test.kimi_k3.cuda.sizes import (
    DOWN_SHARD,
    EXPERTS,
    FRONT,
    HIDDEN,
    INTER,
    LATENT,
    ROUTER_SHARD,
    ROWS,
    SHARED,
)
from kernels_under_test.kimi_k3.device import wiring

SHAPES = {"in": (2 * INTER, LATENT, "w13"), "out": (LATENT, INTER, "w2")}


def built() -> Path | None:
    """Return the folder of the compiled kernels, None where the environment names none."""
    place = os.environ.get("GATEKEEPER_BUILT")
    return Path(place) if place else None


@cache
def symbols(folder: Path) -> frozenset[str]:
    """Return the names of the compiled variants in a folder, as its ``kernels.json`` lists them."""
    file = folder / "kernels.json"
    if not (folder / "kernels.so").is_file() or not file.is_file():
        return frozenset()
    return frozenset(entry["symbol"] for entry in json.loads(file.read_text(encoding="utf-8")))


def missing(rows: int) -> str | None:
    """Return why the compiled kernels do not serve a number of rows, None where they do."""
    folder = built()
    if folder is None:
        return "no compiled kernels: GATEKEEPER_BUILT names no folder"
    wanted = [name(kernel, rows, chosen(kernel, rows)) for kernel in launches(rows)]
    absent = [symbol for symbol in wanted if symbol not in symbols(folder)]
    return f"not compiled: {', '.join(absent[:4])}" if absent else None


class CutePath:
    """Implements :class:`kernels_under_test.contract.Implementation` with the launches of ``cuda/cute``."""

    def supports(self, facts: Mapping[str, Any], shape: Any) -> str | None:
        """Return None for one rank of eight at full size and a number of rows that is compiled, else why not."""
        return wiring.declined(facts, shape, ROWS) or missing(shape.rows)

    def workspace(self, facts: Mapping[str, Any], shape: Any) -> int:  # noqa: ARG002  (the same for all rows)
        """Return the bytes of the experts' codes and scales and of the front's matrices in the candidate's packing."""
        scratch = wiring.Scratch()
        for _ in facts["layers"]:
            wiring.dense(wiring.Unwritten(), scratch)
            packed(None, scratch)
        return scratch.used

    def build(self, facts: Mapping[str, Any], shape: Any, tensors: Mapping[str, Tensor]) -> Callable[[], None]:
        """Pack the weights, make the layers and return one step of all of them."""
        from kernels_under_test.kimi_k3.cuda.cute.library import Library

        folder = built()
        assert folder is not None, "supports() declines where nothing is built"
        library, scratch = Library(folder / "kernels.so"), wiring.Scratch(tensors["workspace"])
        layers, prefix = wiring.chain(
            facts, tensors, lambda own, given, ids: layer(library, own, given, ids, scratch)
        )  # fmt: skip
        last, prefix_in = layers[-1], tensors["prefix_in"]
        close = library[name("attention_residual", shape.rows, chosen("attention_residual", shape.rows))]
        closing = [last.out, last.t["peers_o"], prefix, tensors["blocks_in"], *wiring.closing(tensors), tensors["out"]]

        def step() -> None:
            prefix.copy_(prefix_in)
            for each in layers:
                each.run()
            close(*closing)

        kernels = [kernel for each in layers for kernel in each.kernels]
        step.stages = ("set_prefix", *kernels, "closing_residual")  # type: ignore[attr-defined]
        return step


def packed(own: Mapping[str, Tensor] | None, scratch: wiring.Scratch) -> dict[str, Tensor]:
    """Return the experts' matrices and the front's in the candidate's packing; without tensors only count."""
    found: dict[str, Tensor] = {}
    for kind, (rows, inputs, weight) in SHAPES.items():
        words = scratch.take((EXPERTS, rows * inputs // 8), torch.int32)
        scales = scratch.take((EXPERTS, rows * inputs // 32), torch.uint8)
        found |= {f"{kind}_codes": words, f"{kind}_scales": scales}
        if own is not None:
            for part, codes in wiring.codes(own, weight):
                words[part], scales[part] = mxfp4.tiles(codes, own[f"{weight}_scale"][part], paired=kind == "in")
    found["front"] = front = scratch.take((FRONT, HIDDEN), torch.bfloat16)
    if own is not None:
        pairs = own["shared_gate_up"].view(2, SHARED, HIDDEN).transpose(0, 1).reshape(2 * SHARED, HIDDEN)
        front.copy_(torch.cat((own["router"][:ROUTER_SHARD], own["latent_down"][:DOWN_SHARD], pairs)))
    return found


def layer(library: Any, own: dict[str, Tensor], given: dict[str, Tensor], ids: Tensor, scratch: wiring.Scratch) -> Any:
    """Make one layer over the arena's tensors and point its launches at mailboxes and expert ids."""
    from kernels_under_test.kimi_k3.cuda.cute.layer import Candidate
    from kernels_under_test.kimi_k3.cuda.tensors import Weights

    made = Candidate(library, Weights(wiring.dense(own, scratch), {}, packed(own, scratch), {}), given)
    repoint(made, own, ids)
    return made


def repoint(made: Any, own: Mapping[str, Tensor], ids: Tensor) -> None:
    """Let every launch of a layer that uses its logits, its experts' input, its output or its expert ids use the arena's instead."""
    names = {"logits": "gathered.logits", "z": "gathered.latent", "out": "gathered.out"}
    places = [(getattr(made, name), own[box]) for name, box in names.items()] + [(made.ids, ids)]
    moved = {old.data_ptr(): new for old, new in places}
    for kernel, arguments in made.args.items():
        made.args[kernel] = [
            moved[tensor.data_ptr()].view(tensor.shape) if tensor.data_ptr() in moved else tensor
            for tensor in arguments
        ]
    made.logits, made.z, made.out, made.ids = (new for _, new in places)


candidate = CutePath()
