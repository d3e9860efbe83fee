"""Which configurations a manifest's words come to: those that must be right and fast, and the pool that guards are drawn from.

A manifest serves a product of ranges, far too many points to race. It is reduced to its dispatch points: each served pair of
rows and query tokens, each page size with the contexts at which code takes another path, each parallel group and each set of
dtypes stands in at least one configuration. A random sample of the rest is added. The sample is drawn from the served scope
and the policy set, not from the manifest's free text, so that nobody chooses it by rewording a file; it can be computed in
advance all the same, and the configurations that nobody can foresee are the guards that the harness draws.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from pydantic import Field

from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.documents import Value, canonical_json
from gatekeeper.domain.manifest import Manifest, TargetScope

Cell = tuple[int, int]
"""Rows and query tokens of a step."""
Edge = tuple[int, int]
"""Page size and context."""
Spread = tuple[int, int, int]
"""Sizes of the tensor, decode context and expert parallel groups."""
Dtypes = tuple[tuple[str, str], ...]
T = TypeVar("T")


class EnumerationRules(Value):
    """How closely a policy set looks at a served scope."""

    page_edges: bool = Field(default=True, description="contexts one below, at and one above a page's size")
    context_neighbours: bool = Field(
        default=True, description="the neighbours of the least and the largest context too"
    )
    sample: int = Field(default=8, ge=0, le=4096, description="random configurations beside the dispatch points")
    most: int = Field(default=256, ge=1, le=65536, description="largest number of dispatch points of one target")


@dataclass(frozen=True)
class Enumeration:
    """The advertised configurations of one target. ``needed`` above ``most`` says that dispatch points were left out."""

    configurations: tuple[Configuration, ...]
    needed: int
    most: int

    @property
    def complete(self) -> bool:
        """Whether every dispatch point is among the configurations."""
        return self.needed <= self.most


class Scope:
    """The axes of a manifest's served scope on one target."""

    def __init__(self, manifest: Manifest, target: TargetScope) -> None:
        serves = manifest.serves
        self.serves = serves
        self.cells: list[Cell] = [
            (rows, tokens)
            for rows in sorted(serves.rows)
            for tokens in sorted(serves.query_tokens)
            if rows % tokens == 0 and tokens <= serves.context.max
        ]
        self.spreads: list[Spread] = [
            (tensor, context, expert)
            for tensor, context in target.groups()
            for expert in sorted(target.expert_parallel)
        ]
        families = serves.dtype_choices()
        self.dtypes: list[Dtypes] = [
            tuple(zip([family for family, _ in families], choice, strict=True))
            for choice in itertools.product(*(sorted(dtypes) for _, dtypes in families))
        ]
        self.pages = sorted(serves.page_sizes)

    def edges(self, rules: EnumerationRules) -> list[Edge]:
        """Return each page size with its contexts, those that no served step can have left out."""
        least = min(tokens for _, tokens in self.cells)
        return [(page, context) for page in self.pages for context in self._contexts(page, rules) if context >= least]

    def _contexts(self, page: int, rules: EnumerationRules) -> list[int]:
        low, high = self.serves.context.min, self.serves.context.max
        values = {low, high}
        if rules.context_neighbours:
            values |= {low + 1, high - 1}
        if rules.page_edges:
            values |= {page - 1, page, page + 1}
        for threshold in self.serves.thresholds.context:
            values |= {threshold - 1, threshold, threshold + 1}
        return sorted(value for value in values if low <= value <= high)

    def holds(self, configuration: Configuration) -> bool:
        """Return whether a configuration lies inside the served scope."""
        spread = (
            configuration.tensor_parallel,
            configuration.decode_context_parallel,
            configuration.expert_parallel,
        )
        return (
            (configuration.rows, configuration.query_tokens) in self.cells
            and max(self.serves.context.min, configuration.query_tokens)
            <= configuration.context
            <= self.serves.context.max
            and configuration.page_size in self.pages
            and spread in self.spreads
            and tuple(sorted(configuration.dtypes.items())) in self.dtypes
        )


class Draw:
    """A reproducible stream of choices: SHA-256 over a seed and a counter."""

    def __init__(self, *seed: bytes) -> None:
        self._seed = hashlib.sha256(b"\0".join(seed)).digest()
        self._count = itertools.count()

    def below(self, bound: int) -> int:
        """Return a number in [0, bound). The bias is below bound / 2**128."""
        block = self._seed + next(self._count).to_bytes(8, "big")
        return int.from_bytes(hashlib.sha256(block).digest()[:16], "big") % bound

    def context(self, low: int, high: int) -> int:
        """Return a number in [low, high], spread evenly over orders of magnitude rather than over numbers."""
        top = 1 + self.below(high.bit_length())
        return min(max(low + self.below(1 << top) - 1, low), high)


def advertised(manifest: Manifest, target: str, policy_set: str, rules: EnumerationRules | None = None) -> Enumeration:
    """Return the configurations that must be raced on ``target``: dispatch points first, then the sample; no duplicates.

    The same manifest, policy set and rules give the same configurations in the same order.

    Raises:
        KeyError: if the manifest does not name the target.
    """
    rules = rules or EnumerationRules()
    scope = Scope(manifest, manifest.target(target))
    points = {
        _key(point): point for point in _dispatch_points(scope, rules, _draw(manifest, target, policy_set, b"points"))
    }
    chosen = dict(itertools.islice(points.items(), rules.most))
    draw = _draw(manifest, target, policy_set, b"sample")
    wanted = len(chosen) + rules.sample
    for _ in range(4 * rules.sample):  # a scope may hold fewer points than were asked for
        if len(chosen) >= wanted:
            break
        point = _random_point(scope, draw)
        chosen.setdefault(_key(point), point)
    return Enumeration(tuple(chosen.values()), needed=len(points), most=rules.most)


def guard_pool(
    manifest: Manifest,
    target: str,
    policy_set: str,
    rules: EnumerationRules | None = None,
    size: int = 64,
) -> tuple[Configuration, ...]:
    """Return up to ``size`` served configurations that :func:`advertised` does not hold, without duplicates.

    Raises:
        KeyError: if the manifest does not name the target.
    """
    taken = set(map(_key, advertised(manifest, target, policy_set, rules).configurations))
    scope = Scope(manifest, manifest.target(target))
    draw = _draw(manifest, target, policy_set, b"guards")
    pool: dict[bytes, Configuration] = {}
    for _ in range(8 * size):
        if len(pool) >= size:
            break
        point = _random_point(scope, draw)
        if _key(point) not in taken:
            pool.setdefault(_key(point), point)
    return tuple(pool.values())


def _dispatch_points(scope: Scope, rules: EnumerationRules, draw: Draw) -> Iterator[Configuration]:
    """Cover every value of every axis: each turn takes the next uncovered value of each, or a drawn one where none is left."""
    edges = scope.edges(rules)
    left_cells, left_edges = list(scope.cells), list(edges)
    spreads, dtypes = itertools.cycle(scope.spreads), itertools.cycle(scope.dtypes)
    least = max(len(scope.spreads), len(scope.dtypes))
    for turn in itertools.count():
        if not left_cells and not left_edges and turn >= least:
            return
        if left_edges:
            edge = left_edges.pop(0)
            cell = _take_fitting(left_cells, edge) or _drawn(draw, [c for c in scope.cells if c[1] <= edge[1]])
        else:
            cell = left_cells.pop(0) if left_cells else _drawn(draw, scope.cells)
            edge = _drawn(draw, [e for e in edges if cell[1] <= e[1]])
        yield _configuration(cell, edge, next(spreads), next(dtypes))


def _take_fitting(cells: list[Cell], edge: Edge) -> Cell | None:
    for index, cell in enumerate(cells):
        if cell[1] <= edge[1]:
            return cells.pop(index)
    return None


def _random_point(scope: Scope, draw: Draw) -> Configuration:
    cell = _drawn(draw, scope.cells)
    context = draw.context(max(scope.serves.context.min, cell[1]), scope.serves.context.max)
    return _configuration(
        cell, (_drawn(draw, scope.pages), context), _drawn(draw, scope.spreads), _drawn(draw, scope.dtypes)
    )


def _drawn(draw: Draw, values: list[T]) -> T:
    return values[draw.below(len(values))]


def _configuration(cell: Cell, edge: Edge, spread: Spread, dtypes: Dtypes) -> Configuration:
    return Configuration(
        rows=cell[0],
        query_tokens=cell[1],
        page_size=edge[0],
        context=edge[1],
        tensor_parallel=spread[0],
        decode_context_parallel=spread[1],
        expert_parallel=spread[2],
        dtypes=dict(dtypes),
    )


def _key(configuration: Configuration) -> bytes:
    return canonical_json(configuration.model_dump(mode="json"))


def _draw(manifest: Manifest, target: str, policy_set: str, purpose: bytes) -> Draw:
    """Seed from what is served and judged: words that change no served shape change no choice."""
    served = {
        "problem": manifest.problem,
        "serves": manifest.serves.model_dump(mode="json"),
        "target": manifest.target(target).model_dump(mode="json"),
    }
    return Draw(canonical_json(served), policy_set.encode(), purpose)
