"""The sizes of a problem, read from its TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

KINDS = ("kda", "mla")
COMMUNICATION = ("simulated", "shard")
"""``simulated``: all ranks of tensor parallelism lie in one process, sharded tensors have a leading axis of ranks. ``shard``: one
rank alone; what its peers send are inputs."""
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "kv_cache": ("bf16", "fp8_e4m3"),
    "conv_state": ("bf16",),
    "recurrent_state": ("fp32",),
    "experts": ("bf16", "mxfp4"),
    "act": ("bf16", "mxfp8"),
}
"""Tensor families of a configuration's dtypes, and what each may be; the first is meant where nothing is said."""
PLAIN: Mapping[str, tuple[str, ...]] = {f: FAMILIES[f][:1] for f in ("kv_cache", "conv_state", "recurrent_state")}


@dataclass(frozen=True)
class Sizes:
    """Dimensions of the decoder layers over all ranks, in elements; names follow the model's parts. :meth:`on_rank` cuts them."""

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
    speculative_tokens: int = 0
    """Most draft tokens of a verify step. Above 0, every request has 1 + this many state slots and a number of accepted tokens."""
    dense_intermediate: int = 0
    """Feed-forward of layer 0, which has no experts."""
    least_expert_intermediate: int = 0
    """With several ranks, a rank's expert intermediate is padded up to this with zeros."""
    q_scale: float = 1.0
    """Divides the query before it is cast to FP8; with an FP8 cache only."""
    k_scale: float = 1.0
    """Divides a token's row before it is cast to FP8; with an FP8 cache only."""

    def on_rank(self, ranks: int) -> Sizes:
        """Return the sizes of one rank of tensor parallelism: heads and intermediates are cut, the rest is the same everywhere.

        Raises:
            ValueError: if heads or an intermediate cannot be cut into ``ranks`` equal parts.
        """
        if ranks == 1:
            return self
        names = ("heads", "expert_intermediate", "shared_intermediate", "dense_intermediate")
        odd = [f"{name} = {getattr(self, name)}" for name in names if getattr(self, name) % ranks]
        if odd:
            raise ValueError(f"expected sizes that {ranks} ranks divide, found {', '.join(odd)}")
        cut = {name: getattr(self, name) // ranks for name in names}
        cut["expert_intermediate"] = max(cut["expert_intermediate"], self.least_expert_intermediate)
        return replace(self, **cut)

    @property
    def conv_columns(self) -> int:
        """Inputs of the convolution that its state holds for each channel."""
        return self.conv_width - 1 + self.speculative_tokens

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

    @property
    def dense(self) -> bool:
        """Whether its feed-forward is dense: layer 0 only, all others have experts."""
        return self.index == 0


@dataclass(frozen=True)
class Limits:
    """Where the problem is defined."""

    rows: int
    context: int
    page_sizes: tuple[int, ...]
    decode_context_parallel: tuple[int, ...]
    query_tokens: tuple[int, ...] = (1,)
    tensor_parallel: tuple[int, ...] = (1,)
    communication: str = "simulated"


@dataclass(frozen=True)
class ProblemFile:
    """A parsed problem file."""

    name: str
    sizes: Sizes
    eps: Eps
    limits: Limits
    dtypes: Mapping[str, tuple[str, ...]]
    """Dtypes that a configuration may name, by family; the first is meant where it names none."""
    layers: tuple[Layer, ...]

    @property
    def expert_layers(self) -> int:
        """Layers with experts."""
        return sum(not layer.dense for layer in self.layers)

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
    needed = {f.name for f in fields(kind) if f.default is MISSING}
    if not needed <= set(raw) <= set(wanted):
        raise ValueError(
            f"{where}: expected the keys {sorted(needed)}, perhaps {sorted(set(wanted) - needed)}; found {sorted(raw)}"
        )
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}
    for key, value in values.items():
        number: type = float if wanted[key] == "float" else int
        for item in value if isinstance(value, tuple) else (value,):
            if wanted[key] in ("int", "float", "tuple[int, ...]") and (
                isinstance(item, bool) or not isinstance(item, number)
            ):
                raise ValueError(f"{where}.{key}: expected {wanted[key]}, found {value!r}")
    return kind(**values)


def _dtypes(raw: dict[str, Any], where: str) -> Mapping[str, tuple[str, ...]]:
    found = {family: tuple(names) for family, names in raw.items()}
    for family, names in found.items():
        if not names or not set(names) <= set(FAMILIES.get(family, ())):
            raise ValueError(
                f"{where}: expected families and dtypes of {dict(FAMILIES)}, found {family} = {list(names)}"
            )
    return {**PLAIN, **found}


def _check_layers(layers: tuple[Layer, ...], sizes: Sizes, name: str) -> None:
    if not layers:
        raise ValueError(f"{name}: expected at least one [[layers]] entry, found none")
    first = layers[0].index
    for position, layer in enumerate(layers):
        if layer.kind not in KINDS or layer.index != first + position or layer.index < 0:
            raise ValueError(
                f"{name}: expected consecutive layers from 0 on of kinds {KINDS}; found {layer} at position {position}"
            )
    if first == 0 and not sizes.dense_intermediate:
        raise ValueError(f"{name}: expected sizes.dense_intermediate above 0 for layer 0, found 0")


def _check_limits(file: ProblemFile, name: str) -> None:
    sizes, limits = file.sizes, file.limits
    most = 1 + sizes.speculative_tokens
    if not all(1 <= q <= most for q in limits.query_tokens):
        raise ValueError(
            f"{name}: expected limits.query_tokens in 1..{most} (1 + sizes.speculative_tokens), found {limits.query_tokens}"
        )
    if limits.communication not in COMMUNICATION:
        raise ValueError(f"{name}: expected limits.communication of {COMMUNICATION}, found {limits.communication!r}")
    if limits.communication == "simulated" and 1 not in limits.tensor_parallel:
        raise ValueError(
            f"{name}: expected 1 among limits.tensor_parallel, since simulated shards are cut from it; "
            f"found {limits.tensor_parallel}"
        )
    for ranks in limits.tensor_parallel:
        sizes.on_rank(ranks)


def _raw(path: Path) -> dict[str, Any]:
    """The tables of a file, laid over those of the file that it extends."""
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    base = raw.pop("extends", None)
    if base is None:
        return raw
    below = _raw(path.with_name(f"{base}.toml"))
    return {
        key: {**below.get(key, {}), **raw[key]} if isinstance(raw.get(key), dict) else raw.get(key, below.get(key))
        for key in {**below, **raw}
    }


def read(path: Path) -> ProblemFile:
    """Read a problem file. One that ``extends`` another takes every key from there that it does not set itself.

    Raises:
        ValueError: if a key is missing or unknown, a value has another type or no meaning, or the layers are not consecutive.
    """
    raw = _raw(path)
    sizes = _table(Sizes, raw["sizes"], f"{path.name}: sizes")
    layers = tuple(_table(Layer, layer, f"{path.name}: layers") for layer in raw.get("layers", []))
    _check_layers(layers, sizes, path.name)
    file = ProblemFile(
        name=path.stem,
        sizes=sizes,
        eps=_table(Eps, raw["eps"], f"{path.name}: eps"),
        limits=_table(Limits, raw["limits"], f"{path.name}: limits"),
        dtypes=_dtypes(raw.get("dtypes", {}), f"{path.name}: dtypes"),
        layers=layers,
    )
    _check_limits(file, path.name)
    return file
