"""The text of a manifest skeleton: what could be proposed stands there, what only the author can know is marked TODO."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from gatekeeper.cli.faults import printable
from gatekeeper.domain.catalog import HardwareTarget
from gatekeeper.domain.features import KNOWN_FEATURES
from gatekeeper.domain.manifest_todo import MARK

_BARE_KEY = re.compile(r"\A[A-Za-z0-9_-]+\Z")
MOST_ROWS = 8
"""Largest step that is proposed: a latency-specialised path is about few rows, and each further shape is raced."""
LEAST_CONTEXT = 32
"""Least context that is proposed: a race has no more steps than the shortest request has tokens."""


@dataclass(frozen=True)
class Limits:
    """The largest shapes of a model under test, as its problem file says; None and empty where it says nothing."""

    rows: int | None = None
    context: int | None = None
    page_sizes: tuple[int, ...] = ()
    decode_context_parallel: tuple[int, ...] = ()


@dataclass(frozen=True)
class Proposal:
    """What a skeleton is made from. None, or an empty tuple of choices, means that it could not be found out."""

    directory: str
    model: str | None
    vendor: str | None
    problem: str | None
    problems: tuple[str, ...]
    """Models under test that are installed, for the author to choose from."""
    entry_points: tuple[str, ...]
    """Every ``module:candidate`` of the directory; one is proposed, several are a choice."""
    guards: tuple[str, ...]
    """Every ``module:enabled`` of the directory."""
    hooks: tuple[str, ...]
    """Hook files that the work tree changes."""
    root: str
    """Directory of the model; the patterns are relative to it."""
    hook_patterns: tuple[str, ...]
    hook_budget: int
    targets: tuple[HardwareTarget, ...]
    other_targets: tuple[str, ...]
    limits: Limits
    mandatory: tuple[str, ...]


def render(proposal: Proposal) -> str:
    """Return the skeleton as TOML. It never passes as it is: ``switch`` and every mandatory feature are left to the author."""
    blocks = (_head(proposal), _targets(proposal), _serves(proposal), _features(proposal), _claims(proposal))
    return "\n".join("\n".join(block) + "\n" for block in blocks)


def _head(it: Proposal) -> Iterator[str]:
    package = it.directory.replace("/", ".")
    yield "# What this directory serves, and what it refuses. docs/fast_track.md of gatekeeper explains every key."
    yield f"# Each {MARK} is a decision that only the author can make; `gatekeeper check` fails until all are made."
    yield "# Everything else is a proposal: change what is not so."
    yield ""
    yield "# Version of the schema of this file."
    yield "schema = 1"
    yield "# The model, as the repository's directories spell it."
    yield f"model = {_text(it.model or todo('name of the model, such as kimi_k3'))}"
    yield "# The vendor, as the repository's directories spell it."
    yield f"vendor = {_text(it.vendor or todo('name of the vendor, such as nvidia'))}"
    yield "# The directory that this file lies in, from the repository's root."
    yield f"directory = {_text(it.directory)}"
    yield "# The setting that a user makes to get this path; it is off by default."
    yield f"switch = {_text(todo('setting=value, such as additional_config.decode_backend=latency_specialized'))}"
    yield "# The gate's model under test that judges this directory; `gatekeeper models` lists them."
    yield f"problem = {_text(it.problem or todo('one of ' + ', '.join(it.problems)))}"
    yield "# module:attribute of the implementation that is raced; it lies in this directory."
    yield f"entry_point = {_text(_chosen(it.entry_points, f'{package}.gate:candidate'))}"
    yield "# module:attribute of the function that tells whether the path is on; it lies in this directory."
    yield f"guard = {_text(_chosen(it.guards, f'{package}.gate:enabled'))}"
    may = f"they may be {', '.join(it.hook_patterns)} below {it.root}, with {it.hook_budget} added lines in all"
    may = may if it.hook_patterns else "the repository allows none"
    yield f"# Changed files outside that call into this directory; {printable(may)}."
    yield f"hooks = {_texts(it.hooks)}"


def _targets(it: Proposal) -> Iterator[str]:
    also = f"; also there: {', '.join(it.other_targets)}" if it.other_targets else ""
    yield f"# One table for each kind of machine that is served; `gatekeeper targets` lists them{also}."
    for target in it.targets:
        yield "[[targets]]"
        yield f"# {printable(target.title)}."
        yield f"name = {_text(target.name)}"
        yield "# Served sizes of the tensor parallel group."
        yield "tensor_parallel = [1]"
        yield '# Served sizes of the decode context parallel group, as text; "tp" is the size of the former.'
        yield f"decode_context_parallel = {_context_parallel(it)}"
        yield "# Served sizes of the expert parallel group."
        several = "expert_parallel" in it.mandatory
        yield f"expert_parallel = {_text(todo('served sizes, one of them above 1')) if several else '[1]'}"
        yield "# GPUs of one NVLink domain that are needed, and whether NVLink multicast is; leave out what is not needed."
        yield "# nvlink_domain = 8"
        yield "# multicast = false"


def _context_parallel(it: Proposal) -> str:
    if "decode_context_parallel" not in it.mandatory:
        return '["1"]'
    sizes = it.limits.decode_context_parallel
    if any(size > 1 for size in sizes):
        return _texts(tuple(map(str, sizes)))
    return _text(todo('served sizes, one of them above 1 or "tp"'))


def _serves(it: Proposal) -> Iterator[str]:
    limits = it.limits
    tokens = (1, 2) if "speculative_decoding" in it.mandatory else (1,)
    rows = tuple(1 << power for power in range(13) if 1 << power <= min(limits.rows or 0, MOST_ROWS))
    yield "# The served shapes of a decode step. One step outside each range must be refused by supports(), with a reason."
    yield "[serves]"
    yield "# Token rows of a step: requests x query tokens."
    yield f"rows = {list(rows) if rows else _text(todo('numbers of rows, such as [1, 8]'))}"
    yield "# Tokens that a request decodes or verifies in one step."
    yield f"query_tokens = {list(tokens)}"
    yield "# Cached tokens of a request at the end of a step, the new ones included."
    if limits.context:
        yield f"context = {{ min = {min(LEAST_CONTEXT, limits.context)}, max = {limits.context} }}"
    else:
        yield f"context = {{ min = {LEAST_CONTEXT}, max = {_text(todo('largest number of cached tokens'))} }}"
    yield "# Tokens in a page of the cache."
    pages = limits.page_sizes
    yield f"page_sizes = {list(pages) if pages else _text(todo('numbers of tokens, such as [32, 64]'))}"
    yield "# dtype, or list of dtypes, by tensor family (kv_cache, conv_state, recurrent_state), where they are restricted."
    yield '# dtypes = { kv_cache = "bf16" }'
    yield "# Values at which this directory's code takes another path; each is raced with its neighbours."
    yield "# thresholds = { context = [64] }"


def _features(it: Proposal) -> Iterator[str]:
    yield '# "served", or "refused" at start with a reason. The repository demands these; a refusal needs a maintainer\'s waiver.'
    yield "[features]"
    for name in it.mandatory:
        key = name if _BARE_KEY.match(name) else _text(name)
        yield f"{key} = {_text(MARK)}  # {printable(KNOWN_FEATURES.get(name, 'a feature of this repository'))}"
    yield "# Others that this directory takes a stand on: take the # away where that is so."
    for name, meaning in KNOWN_FEATURES.items():
        if name not in it.mandatory:
            yield f'# {name} = "refused"  # {meaning}'


def _claims(it: Proposal) -> Iterator[str]:
    yield "# Promises that the race holds against its lower bound; leave out what is not promised."
    yield "# [claims]"
    yield f"# speedup = {{ {it.targets[0].name if it.targets else 'cpu'} = 1.05 }}"
    yield "# kernels_per_layer = 13"


def todo(what: str) -> str:
    """Return the mark of a decision with what is wanted."""
    return f"{MARK}: {what}"


def _chosen(found: tuple[str, ...], example: str) -> str:
    if len(found) == 1:
        return found[0]
    return todo(f"one of {', '.join(found)}" if found else f"module:attribute, such as {example}")


def _text(value: str) -> str:
    """Return a TOML basic string. JSON escapes the same characters, but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _texts(values: tuple[str, ...]) -> str:
    return "[" + ", ".join(map(_text, values)) + "]"
