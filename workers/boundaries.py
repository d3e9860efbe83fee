"""Where kernels go wrong: a search for configurations inside a scope at which a candidate is wrong, and the smallest of them.

A scope is a set of values for each axis. The search takes every value that code may branch on (least and largest, thresholds,
page and shard edges, each with its neighbours) at least once, then draws combinations until its budget is used up. A
configuration at which the candidate is wrong is made smaller, field by field, as long as it stays wrong.

Nothing here runs anything: what is asked is a function from configurations to faults, so that it can be tested without arms;
``workers.asking`` gives the real one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from gatekeeper.domain.boundary_pool import branching_contexts
from gatekeeper.domain.configuration import Configuration

Axis = tuple[int, ...]


@dataclass(frozen=True)
class Finding:
    """A configuration at which the candidate is wrong: the first reason, as its code and a text."""

    configuration: Configuration
    code: str
    text: str


Ask = Callable[[Sequence[Configuration]], Sequence[Finding | None]]
"""What is wrong at each configuration: None where nothing is, or where the candidate declines it."""

SHRUNK = (
    "rows",
    "context",
    "decode_context_parallel",
    "tensor_parallel",
    "expert_parallel",
    "query_tokens",
    "page_size",
)
"""Fields that are made smaller, in this order; rows first, since they cost most."""


@dataclass(frozen=True)
class Space:
    """The values that each field of a configuration may take; ``contexts`` are made from the least and the largest."""

    rows: Axis
    page_sizes: Axis
    least_context: int
    largest_context: int
    query_tokens: Axis = (1,)
    tensor_parallel: Axis = (1,)
    decode_context_parallel: Axis = (1,)
    expert_parallel: Axis = (1,)
    thresholds: Mapping[str, Axis] = field(default_factory=dict)
    """Values of ``rows``, ``query_tokens`` and ``context`` at which code is known to branch."""
    dtypes: tuple[Mapping[str, str], ...] = ({},)

    @classmethod
    def around(cls, configurations: Sequence[Configuration]) -> Space:
        """Return the smallest space that holds all these configurations.

        Raises:
            ValueError: if there are none.
        """
        if not configurations:
            raise ValueError("expected at least one configuration; found none")

        def axis(name: str) -> Axis:
            return tuple(sorted({int(getattr(c, name)) for c in configurations}))

        contexts = axis("context")
        dtypes: list[Mapping[str, str]] = []
        for configuration in configurations:
            if configuration.dtypes not in dtypes:
                dtypes.append(configuration.dtypes)
        return cls(
            rows=axis("rows"),
            page_sizes=axis("page_size"),
            least_context=contexts[0],
            largest_context=contexts[-1],
            query_tokens=axis("query_tokens"),
            tensor_parallel=axis("tensor_parallel"),
            decode_context_parallel=axis("decode_context_parallel"),
            expert_parallel=axis("expert_parallel"),
            thresholds={"context": contexts[1:-1]},
            dtypes=tuple(dtypes),
        )

    def row_counts(self) -> list[int]:
        """Return every number of rows that code may branch on: those served, thresholds and their neighbours between them."""
        wanted = {*self.rows}
        for value in (*self.rows, *self.thresholds.get("rows", ())):
            wanted |= {value - 1, value, value + 1}
        return sorted(value for value in wanted if self.rows[0] <= value <= self.rows[-1])

    def contexts(self, page: int, ranks: int) -> list[int]:
        """Return every context that code may branch on at a page size and a number of ranks."""
        low, high = self.least_context, self.largest_context
        return branching_contexts(low, high, page, ranks, self.thresholds.get("context", ()))

    def draw(self, source: random.Random, **fixed: int) -> Configuration | None:
        """Return a configuration with random values of every field that is not fixed, or None if they do not fit together."""
        page = fixed.get("page_size") or source.choice(self.page_sizes)
        ranks = fixed.get("decode_context_parallel") or source.choice(self.decode_context_parallel)
        tokens = fixed.get("query_tokens") or source.choice(self.query_tokens)
        values = {
            "page_size": page,
            "decode_context_parallel": ranks,
            "query_tokens": tokens,
            "rows": source.choice(self.row_counts()),
            "context": source.choice(self.contexts(page, ranks)),
            "tensor_parallel": source.choice(self.tensor_parallel),
            "expert_parallel": source.choice(self.expert_parallel),
            **fixed,
        }
        if "rows" not in fixed:
            values["rows"] = max(values["rows"] // tokens, 1) * tokens
        return _valid({**values, "dtypes": source.choice(self.dtypes)})

    def edges(self, source: random.Random) -> Iterator[Configuration]:
        """Yield configurations so that every value of every axis stands in one of them, all else drawn."""
        pairs = [(page, ranks) for page in self.page_sizes for ranks in self.decode_context_parallel]
        fixed: list[dict[str, int]] = [
            {"page_size": page, "decode_context_parallel": ranks, "context": context}
            for page, ranks in pairs
            for context in self.contexts(page, ranks)
        ]
        fixed += [{"rows": rows, "query_tokens": 1} for rows in self.row_counts() if 1 in self.query_tokens]
        for name in ("query_tokens", "tensor_parallel", "expert_parallel"):
            fixed += [{name: value} for value in getattr(self, name)]
        source.shuffle(fixed)
        for values in fixed:
            if (found := self.draw(source, **values)) is not None:
                yield found


def search(
    space: Space,
    ask: Ask,
    *,
    seed: int,
    points: int,
    batch: int = 12,
    more: Callable[[], bool] = lambda: True,
) -> tuple[Finding | None, int]:
    """Ask at edges, then at random points, until something is wrong; make that smaller. Return it and the number of points.

    ``more`` says before each batch whether there is time for it. The same seed asks the same points in the same order.
    """
    source = random.Random(seed)  # noqa: S311 - which points are asked is no secret
    return first_wrong(_points(space, source), ask, points=points, batch=batch, more=more)


def first_wrong(
    stream: Iterable[Configuration],
    ask: Ask,
    *,
    points: int,
    batch: int = 12,
    more: Callable[[], bool] = lambda: True,
) -> tuple[Finding | None, int]:
    """Ask at the points of a stream, each once, until something is wrong or ``points`` were asked; make what is wrong smaller."""
    asked: set[str] = set()
    left = iter(stream)
    while len(asked) < points and more():
        fresh: list[Configuration] = []
        for configuration in left:
            if configuration.label not in asked:
                asked.add(configuration.label)
                fresh.append(configuration)
            if len(fresh) == batch or len(asked) == points:
                break
        if not fresh:
            break  # the stream holds no more
        found = next((finding for finding in ask(fresh) if finding is not None), None)
        if found is not None:
            return shrink(found, ask, more=more), len(asked)
    return None, len(asked)


def _points(space: Space, source: random.Random) -> Iterator[Configuration]:
    yield from space.edges(source)
    for _ in range(100_000):
        if (found := space.draw(source)) is not None:
            yield found


def shrink(finding: Finding, ask: Ask, *, rounds: int = 32, more: Callable[[], bool] = lambda: True) -> Finding:
    """Return the smallest configuration that is still wrong, as far as one field at a time can make it smaller.

    Each round asks at all smaller neighbours together and goes on with the first that is wrong.
    """
    for _ in range(rounds):
        if not more():
            break
        smaller = list(smaller_than(finding.configuration))
        found = next((one for one in ask(smaller) if one is not None), None) if smaller else None
        if found is None:
            break
        finding = found
    return finding


def smaller_than(configuration: Configuration) -> Iterator[Configuration]:
    """Yield configurations with one field smaller: 1, a half, three quarters, seven eighths and so on, one less."""
    seen = {configuration.label}
    for name in SHRUNK:
        value = getattr(configuration, name)
        unit = configuration.query_tokens if name == "rows" else 1
        for proposed in (unit, *(value - (value >> power) for power in range(1, value.bit_length())), value - unit):
            proposed = proposed // unit * unit
            if 0 < proposed < value:
                made = _valid({**configuration.model_dump(), name: proposed})
                if made is not None and made.label not in seen:
                    seen.add(made.label)
                    yield made


def _valid(values: Mapping[str, object]) -> Configuration | None:
    try:
        return Configuration.model_validate(values)
    except ValidationError:
        return None
