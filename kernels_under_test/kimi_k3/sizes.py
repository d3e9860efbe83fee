"""The sizes of a problem, read from its TOML file."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

KINDS = ("kda", "mla")


@dataclass(frozen=True)
class Sizes:
    """Dimensions of one rank's decoder layers, in elements; names follow the model's parts."""

    hidden: int
    heads: int
    kda_dim: int
    """K = V of the KDA head."""
    conv_width: int
    forget_rank: int
    gate_lower_bound: float
    projection_multiple: int
    """The KDA projection is padded with zero rows up to a multiple of this."""
    q_lora: int
    kv_lora: int
    nope: int
    pe: int
    v_dim: int
    latent: int
    experts: int
    top_k: int
    expert_intermediate: int
    shared_intermediate: int
    situ_beta: float
    situ_linear_beta: float
    routed_scaling: float
    block_size: int
    """Layers in one attention-residual block."""
    dcp_interleave: int
    """Consecutive tokens that one rank of decode context parallelism holds before the next rank takes over."""

    @property
    def kda_width(self) -> int:
        """d = heads x KDA head dimension."""
        return self.heads * self.kda_dim

    @property
    def kda_projection_rows(self) -> int:
        """Rows q(d) k(d) v(d) g(d) f_a b(heads), padded."""
        live = 4 * self.kda_width + self.forget_rank + self.heads
        return -(-live // self.projection_multiple) * self.projection_multiple

    @property
    def mla_projection_rows(self) -> int:
        """Rows q_a, kv, k_pe, gate."""
        return self.q_lora + self.kv_lora + self.pe + self.heads * self.v_dim

    @property
    def cache_row(self) -> int:
        """Elements of one cached token: latent and the position part."""
        return self.kv_lora + self.pe


@dataclass(frozen=True)
class Eps:
    """Every epsilon apart; ``kda_l2`` is added to the sum of squares, the others to the mean."""

    residual_score: float
    layer_norm: float
    q_a_norm: float
    kv_a_norm: float
    latent_norm: float
    kda_norm: float
    kda_l2: float
    renormalise: float


@dataclass(frozen=True)
class Layer:
    """One layer of the window: its 0-based index in the model and its kind of attention."""

    index: int
    kind: str


@dataclass(frozen=True)
class Limits:
    """Where the problem is defined."""

    rows: int
    context: int
    page_sizes: tuple[int, ...]
    decode_context_parallel: tuple[int, ...]


@dataclass(frozen=True)
class ProblemFile:
    """A parsed problem file."""

    name: str
    sizes: Sizes
    eps: Eps
    limits: Limits
    layers: tuple[Layer, ...]

    @property
    def first_blocks(self) -> int:
        """Attention-residual blocks that are complete before the window's first layer: ceil(index / block size)."""
        return -(-self.layers[0].index // self.sizes.block_size)

    @property
    def blocks(self) -> int:
        """Attention-residual blocks that exist after the window's last layer."""
        return self.layers[-1].index // self.sizes.block_size + 1


def _table(kind: type[Any], raw: dict[str, Any], where: str) -> Any:
    wanted = {f.name: f.type for f in fields(kind)}
    if set(raw) != set(wanted):
        raise ValueError(f"{where}: expected the keys {sorted(wanted)}, found {sorted(raw)}")
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}
    for key, value in values.items():
        number = float if wanted[key] == "float" else int
        for item in value if isinstance(value, tuple) else (value,):
            if wanted[key] in ("int", "float", "tuple[int, ...]") and (
                isinstance(item, bool) or not isinstance(item, number)
            ):
                raise ValueError(f"{where}.{key}: expected {wanted[key]}, found {value!r}")
    return kind(**values)


def read(path: Path) -> ProblemFile:
    """Read a problem file.

    Raises:
        ValueError: if a key is missing or unknown, a value has another type, or the layers are not consecutive.
    """
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    layers = tuple(_table(Layer, layer, f"{path.name}: layers") for layer in raw.get("layers", []))
    if not layers:
        raise ValueError(f"{path.name}: expected at least one [[layers]] entry, found none")
    first = layers[0].index
    for position, layer in enumerate(layers):
        if layer.kind not in KINDS or layer.index != first + position or layer.index < 1:
            raise ValueError(
                f"{path.name}: expected consecutive layers from 1 on (layer 0 has no experts) of kinds {KINDS}; "
                f"found {layer} at position {position}"
            )
    return ProblemFile(
        name=path.stem,
        sizes=_table(Sizes, raw["sizes"], f"{path.name}: sizes"),
        eps=_table(Eps, raw["eps"], f"{path.name}: eps"),
        limits=_table(Limits, raw["limits"], f"{path.name}: limits"),
        layers=layers,
    )
