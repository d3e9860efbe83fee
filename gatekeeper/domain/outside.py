"""Configurations just outside a manifest's served scope: an implementation has to refuse each of them with a reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from gatekeeper.domain.advertised import Scope, advertised
from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.documents import canonical_json
from gatekeeper.domain.manifest import FeatureVerdict, Manifest, TargetScope

DTYPES = ("bf16", "fp16", "fp32", "fp8_e4m3", "fp8_e5m2")
"""Dtypes that a tensor may have in practice; one that is not served has to be refused."""


def refused(manifest: Manifest, target: str, policy_set: str) -> tuple[Configuration, ...]:
    """Return one configuration for each step over the edge of an axis, and one for each refused feature that has a shape.

    Each differs from a served one in as little as its axis allows. Order is fixed; there are no duplicates.

    Raises:
        KeyError: if the manifest does not name the target.
    """
    scope_on_target = manifest.target(target)
    scope = Scope(manifest, scope_on_target)
    base = advertised(manifest, target, policy_set).configurations[0]
    found: dict[bytes, Configuration] = {}
    for change in (*_over_the_edge(scope, scope_on_target), *_refused_features(manifest, scope_on_target, base)):
        candidate = _changed(base, change)
        if candidate is not None and not scope.holds(candidate):
            found.setdefault(canonical_json(candidate.model_dump(mode="json")), candidate)
    return tuple(found.values())


def _over_the_edge(scope: Scope, target: TargetScope) -> Iterator[dict[str, Any]]:
    serves = scope.serves
    for rows in _gaps(serves.rows):
        yield {"rows": rows, "query_tokens": 1 if 1 in serves.query_tokens else rows}
    for tokens in _gaps(serves.query_tokens):
        fitting = [rows for rows in sorted(serves.rows) if rows % tokens == 0]
        yield {"query_tokens": tokens, "rows": fitting[0] if fitting else tokens}
    low = min(scope.cells, key=lambda cell: cell[1])
    for context in (serves.context.min - 1, serves.context.max + 1):
        yield {"context": context, "rows": low[0], "query_tokens": low[1]}
    for page in sorted({page for size in serves.page_sizes for page in (size // 2, size * 2)} - set(serves.page_sizes)):
        yield {"page_size": page}
    sizes = set(target.tensor_parallel)
    for size in sorted({size for served in sizes for size in (served // 2, served * 2)} - sizes):
        yield {"tensor_parallel": size, "decode_context_parallel": 1}
    for tensor, _ in target.groups():
        for context in (1, 2, tensor):
            yield {"tensor_parallel": tensor, "decode_context_parallel": context}
    yield {"expert_parallel": 2 * max(target.expert_parallel)}
    for family, served in serves.dtype_choices():
        other = next((dtype for dtype in DTYPES if dtype not in served), None)
        if other:
            yield {"dtypes": {family: other}}


def _refused_features(manifest: Manifest, target: TargetScope, base: Configuration) -> Iterator[dict[str, Any]]:
    largest = max(target.tensor_parallel)
    shapes: dict[str, list[dict[str, Any]]] = {
        "speculative_decoding": [{"rows": 2 * base.requests, "query_tokens": 2}],
        "expert_parallel": [{"expert_parallel": size} for size in (2, largest) if size > 1],
        "decode_context_parallel": [
            {"tensor_parallel": largest, "decode_context_parallel": size}
            for size in (2, largest)
            if size > 1 and largest % size == 0
        ],
    }
    for name, verdict in sorted(manifest.features.items()):
        if verdict is FeatureVerdict.REFUSED:
            yield from shapes.get(name, ())


def _gaps(values: tuple[int, ...]) -> list[int]:
    """Return the numbers next to a listed value that are not listed themselves."""
    return sorted({near for value in values for near in (value - 1, value + 1) if near > 0} - set(values))


def _changed(base: Configuration, change: dict[str, Any]) -> Configuration | None:
    """Apply a change, None where the result is no configuration at all (0 pages, a group that does not divide)."""
    values = {**base.model_dump(), **change}
    values["dtypes"] = {**base.dtypes, **change.get("dtypes", {})}
    values["context"] = max(values["context"], values["query_tokens"]) if "context" not in change else values["context"]
    if values["context"] < values["query_tokens"] or values["tensor_parallel"] % max(
        values["decode_context_parallel"], 1
    ):
        return None
    try:
        return Configuration.model_validate(values)
    except ValidationError:
        return None
