"""Served configurations where code may take another path, beside the advertised ones: what a race's boundary search draws from.

Advertised configurations are raced, so they are few. Being right costs less to ask: whole pages of one rank and of all ranks, fewer
tokens than ranks, and every served pair of rows and query tokens at some such context, are tried untimed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gatekeeper.domain.advertised import Draw, EnumerationRules, Scope, advertised
from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.documents import canonical_json
from gatekeeper.domain.manifest import Manifest

LARGEST_POOL = 256


def branching_contexts(low: int, high: int, page: int, ranks: int, thresholds: Iterable[int] = ()) -> list[int]:
    """Return the contexts in [low, high] that code may branch on, ascending: both ends, thresholds, one, two and four pages of one
    rank and of all ranks, and fewer tokens than ranks, each with its neighbours."""
    marks = {low, high, ranks, *thresholds}
    marks |= {count * size for count in (1, 2, 4) for size in (page, page * ranks)}
    return sorted({mark + step for mark in marks for step in (-1, 0, 1) if low <= mark + step <= high})


def boundary_pool(
    manifest: Manifest, target: str, policy_set: str, rules: EnumerationRules | None = None, size: int = LARGEST_POOL
) -> tuple[Configuration, ...]:
    """Return up to ``size`` served configurations that :func:`~gatekeeper.domain.advertised.advertised` does not hold.

    The same arguments give the same pool, evenly thinned where there are more; which of it a race tries is the harness's secret.

    Raises:
        KeyError: if the manifest does not name the target.
    """
    taken = {configuration.label for configuration in advertised(manifest, target, policy_set, rules).configurations}
    scope = Scope(manifest, manifest.target(target))
    served = {
        "problem": manifest.problem,
        "serves": manifest.serves.model_dump(mode="json"),
        "target": manifest.target(target).model_dump(mode="json"),
    }
    draw = Draw(canonical_json(served), policy_set.encode(), b"boundaries")
    found: dict[str, Configuration] = {}
    for point in _points(scope, draw):
        if point.label not in taken and scope.holds(point):
            found.setdefault(point.label, point)
    points = list(found.values())
    return tuple(points[index * len(points) // size] for index in range(size)) if len(points) > size else tuple(points)


def _points(scope: Scope, draw: Draw) -> Iterator[Configuration]:
    """Every page size with every spread and every context that code may branch on; rows, query tokens and dtypes go round."""
    context = scope.serves.context
    turn = draw.below(len(scope.cells))
    for page in scope.pages:
        for spread in scope.spreads:
            for tokens in branching_contexts(
                context.min, context.max, page, spread[1], scope.serves.thresholds.context
            ):
                fitting = [cell for cell in scope.cells if cell[1] <= tokens]
                if not fitting:
                    continue
                turn += 1
                rows, query_tokens = fitting[turn % len(fitting)]
                yield Configuration(
                    rows=rows, query_tokens=query_tokens, context=tokens, page_size=page,
                    tensor_parallel=spread[0], decode_context_parallel=spread[1], expert_parallel=spread[2],
                    dtypes=dict(scope.dtypes[draw.below(len(scope.dtypes))]),
                )  # fmt: skip
