"""Kimi K3 layers on one rank of tensor parallelism, its peers' parts as inputs: tensors, and what they hold, made on the device.

Names and meanings are those of :mod:`kernels_under_test.kimi_k3.problem`; T ranks, M rows, one token a request. What differs:

==========================  ========  =====================  ==============================================================
tensor                      role      shape, dtype           meaning
==========================  ========  =====================  ==============================================================
...router, ...latent_down   weight    all rows               in full, as a path that does not cut them over ranks reads them
...latent_up                weight    [hidden / T, latent]   this rank's rows only
...peers.o                  metadata  [T - 1, M, hidden]     the other ranks' parts of the attention output
...peers.latent             metadata  [T - 1, M, latent]     their parts of the experts' output
...peers.shared             metadata  [T - 1, M, hidden/T]   their parts of the shared expert's output in this rank's columns
...gathered.logits          state     [M, experts] fp32      mailbox of the router's logits: rank r's columns are the r-th part
...gathered.latent          state     [M, latent] bf16       mailbox of the experts' input
...gathered.out             state     [M, hidden] bf16       mailbox of the layer's output
...recurrent_state          state     [65, heads, V, K]      as ever, with as many slots as kernels are compiled for
==========================  ========  =====================  ==============================================================

A mailbox is where every rank leaves its columns: those of the others lie in it before the run and must not change, this rank's are
overwritten at each step, and whoever reads the mailbox reads all of it. So a path that computes the router in full and one that
computes its own rows only are held to the same function; nothing is shown about how the columns get there (``comm = shard``).
All other ranks' columns stay the same over a run, as its other inputs do; what this rank adds to every row differs at each step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels_under_test.contract import EXPERT_IDS, OUT, Role, Shape, TensorSpec, X
from kernels_under_test.kimi_k3.parts import layer_weights
from kernels_under_test.kimi_k3.sizes import FAMILIES, Layer, ProblemFile, Sizes, read

if TYPE_CHECKING:
    from torch import Tensor

PROBLEMS = Path(__file__).parent / "problems"
SLOTS = 65
"""State slots: the null slot and one for each of 64 rows."""
REGIMES = ("normal", "heavy", "padded")
_BYTES = {"bfloat16": 2, "float32": 4, "int32": 4, "uint8": 1}


class RankProblem:
    """One problem size; see the module's table. Implements :class:`kernels_under_test.contract.Problem`.

    Raises:
        ValueError: if a layer is no KDA layer with experts, opens a block, or the window crosses into another block.
    """

    regimes: Sequence[str] = REGIMES

    def __init__(self, file: ProblemFile) -> None:
        odd = [
            layer
            for layer in file.layers
            if layer.kind != "kda" or layer.dense or not layer.index % file.sizes.block_size
        ]
        blocks = {layer.index // file.sizes.block_size for layer in file.layers}
        if odd or len(blocks) > 1 or file.limits.communication != "shard":
            raise ValueError(
                f"{file.name}: expected KDA layers with experts of one block that none of them opens, communication shard; "
                f"found {[(layer.index, layer.kind) for layer in file.layers]}, communication {file.limits.communication}"
            )
        self.file, self.name, self.layers = file, file.name, len(file.layers)
        (self.ranks,) = file.limits.tensor_parallel
        self.sizes = file.sizes.on_rank(self.ranks)
        self.facts: Mapping[str, Any] = {
            **asdict(self.sizes),
            **{f"eps.{name}": value for name, value in asdict(file.eps).items()},
            **{f"dtype.{family}": file.dtypes.get(family, names)[0] for family, names in FAMILIES.items()},
            "communication": "shard",
            "ranks": self.ranks,
            "slots": SLOTS,
            "layers": tuple((layer.index, layer.kind) for layer in file.layers),
            "first_blocks": file.first_blocks,
        }

    def check(self, shape: Shape) -> str | None:
        """Return None where the problem is defined at this shape, else all reasons why not, in one line."""
        limits = self.file.limits
        wants = (
            ("query_tokens", shape.query_tokens, limits.query_tokens),
            ("page_size", shape.page_size, limits.page_sizes),
            ("decode_context_parallel", shape.decode_context_parallel, limits.decode_context_parallel),
            ("tensor_parallel", shape.tensor_parallel, limits.tensor_parallel),
            ("expert_parallel", shape.expert_parallel, (1,)),
        )
        reasons = [f"{name} must be one of {list(good)}, found {it}" for name, it, good in wants if it not in good]
        for name, found, most in (("rows", shape.rows, limits.rows), ("context", shape.context, limits.context)):
            if not 1 <= found <= most:
                reasons.append(f"{name} must be in 1..{most}, found {found}")
        for family, dtype in sorted(dict(shape.dtypes).items()):
            good = self.file.dtypes.get(family, ())
            if dtype not in good:
                reasons.append(f"dtype of {family} must be {' or '.join(good) or 'left out'}, found {dtype}")
        return "; ".join(reasons) or None

    def tensors(self, shape: Shape) -> list[TensorSpec]:
        """Return every tensor at this shape, in a fixed order.

        Raises:
            ValueError: if the problem is not defined at this shape.
        """
        if reason := self.check(shape):
            raise ValueError(f"problem {self.name}: {reason}")
        s, rows, bf = self.sizes, shape.rows, "bfloat16"
        specs = [
            TensorSpec(X, (rows, s.hidden), bf, Role.INPUT),
            TensorSpec("prefix_in", (rows, s.hidden), bf, Role.METADATA),
            TensorSpec("blocks_in", (rows, self.file.first_blocks, s.hidden), bf, Role.METADATA),
            TensorSpec("slots", (rows,), "int32", Role.METADATA),
        ]
        for layer in self.file.layers:
            specs += [replace(spec, name=f"layers.{layer.index}.{spec.name}") for spec in self._layer(layer, rows)]
        for name in ("final_res.gamma", "final_res.query", "final_norm"):
            specs.append(TensorSpec(name, (s.hidden,), bf, Role.WEIGHT))
        specs.append(TensorSpec(OUT, (rows, s.hidden), bf, Role.OUTPUT))
        specs.append(TensorSpec(EXPERT_IDS, (self.layers, rows, s.top_k), "int32", Role.OUTPUT))
        return specs

    def _layer(self, layer: Layer, rows: int) -> list[TensorSpec]:
        s, others, bf = self.sizes, self.ranks - 1, "bfloat16"
        columns = s.hidden // self.ranks
        specs = [
            TensorSpec(name, shape, dtype, Role.WEIGHT) for name, shape, dtype in layer_weights(s, layer, packed=True)
        ]
        specs = [replace(spec, shape=(columns, s.latent)) if spec.name == "latent_up" else spec for spec in specs]
        given = (("peers.o", s.hidden), ("peers.latent", s.latent), ("peers.shared", columns))
        specs += [TensorSpec(name, (others, rows, width), bf, Role.METADATA) for name, width in given]
        return [
            *specs,
            TensorSpec("gathered.logits", (rows, s.experts), "float32", Role.STATE),
            TensorSpec("gathered.latent", (rows, s.latent), bf, Role.STATE),
            TensorSpec("gathered.out", (rows, s.hidden), bf, Role.STATE),
            TensorSpec("recurrent_state", (SLOTS, s.heads, s.kda_dim, s.kda_dim), "float32", Role.STATE),
            TensorSpec("conv_state", (SLOTS, s.conv_columns, 3 * s.kda_width), bf, Role.STATE),
        ]

    def fill(
        self,
        shape: Shape,
        tensors: Mapping[str, Tensor],
        *,
        steps: int,
        seed: int,
        regime: str = "normal",
        only: Collection[Role] | None = None,
    ) -> None:
        """Write weights, metadata and states, on whatever device each tensor lies; there are no schedules.

        Raises:
            ValueError: if the shape or the regime is unknown, or ``steps`` steps do not fit the context.
        """
        from kernels_under_test.kimi_k3.device import values

        if not 1 <= steps <= shape.context:
            raise ValueError(f"steps must be in 1..{shape.context} (the context), found {steps}")
        if regime not in REGIMES:
            raise ValueError(f"expected a regime of {REGIMES}; found {regime!r}")
        filler: Callable[[TensorSpec, Tensor], None] = values.Filler(self.sizes, seed, regime).fill
        for spec in self.tensors(shape):
            if spec.role not in (Role.INPUT, Role.OUTPUT) and (only is None or spec.role in only):
                filler(spec, tensors[spec.name])

    def bytes_needed(self, shape: Shape) -> int:
        """Return the least number of bytes of one step: each needed weight once, of the experts only one row's, of router and
        latent-down this rank's rows; activations, states and mailboxes of the rows."""
        s, total = self.sizes, 0
        for spec in self.tensors(shape):
            size, part = prod(spec.shape) * _BYTES[spec.dtype], spec.name.rsplit(".", 1)[-1]
            if part in ("w13", "w13_scale", "w2", "w2_scale"):
                total += size // s.experts * s.top_k
            elif part in ("router", "latent_down"):
                total += size // self.ranks
            elif part in ("recurrent_state", "conv_state"):
                total += 2 * size // SLOTS * shape.rows
            else:
                total += size
        return total

    def untouched(self, shape: Shape, tensors: Mapping[str, Tensor], steps: int) -> dict[str, Tensor]:  # noqa: ARG002
        """Return for each STATE tensor a bool tensor of its shape: True where no step may write, the same for any number of them."""
        import torch

        masks: dict[str, Tensor] = {}
        slots = tensors["slots"].long()
        for spec in self.tensors(shape):
            if spec.role is Role.STATE:
                mask = torch.ones(spec.shape, dtype=torch.bool, device=slots.device)
                if ".gathered." in spec.name:
                    mask[:, : spec.shape[1] // self.ranks] = False
                else:
                    mask[slots[slots > 0]] = False
                masks[spec.name] = mask
        return masks


def own_columns(sizes: Sizes, ranks: int) -> dict[str, int]:
    """Return how many leading columns of each mailbox are this rank's."""
    widths = {"logits": sizes.experts, "latent": sizes.latent, "out": sizes.hidden}
    return {name: width // ranks for name, width in widths.items()}


def load(name: str) -> RankProblem:
    """Load a problem by name.

    Raises:
        ValueError: if there is no such problem or its file is wrong.
    """
    known = sorted(path.stem for path in PROBLEMS.glob("*.toml"))
    if name not in known:
        raise ValueError(f"expected one of the problems {known}; found {name!r}")
    return RankProblem(read(PROBLEMS / f"{name}.toml"))
