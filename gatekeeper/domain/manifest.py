"""``fast_track.toml``: what a specialised directory says it serves, and what it refuses.

The manifest is written by the author of the change. It is a claim: it never widens what the repository's policy allows, and
each of its statements is checked by some policy. The schema is closed; every error names file and line, all errors at once.
"""

from __future__ import annotations

import json
import posixpath
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from gatekeeper.domain import manifest_todo
from gatekeeper.domain.documents import Document, Value
from gatekeeper.domain.manifest_rules import CrossChecks, fits, manifest_finding
from gatekeeper.domain.policy import Finding
from gatekeeper.domain.race import ENTRY_POINT
from gatekeeper.domain.toml_lines import TomlDocument, TomlProblem, parse, problems_of

if TYPE_CHECKING:
    from gatekeeper.domain.source import SourceTree

MANIFEST_NAME = "fast_track.toml"
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{1,64}$")]
RepositoryPath = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)*$", max_length=400)]
EntryPoint = Annotated[str, StringConstraints(pattern=ENTRY_POINT, max_length=400)]
Ranks = Annotated[int, Field(strict=True, ge=1, le=1024)]


RowCounts = Annotated[
    tuple[Annotated[int, Field(strict=True, ge=1, le=65536)], ...], Field(min_length=1, max_length=64)
]
TokenCounts = Annotated[
    tuple[Annotated[int, Field(strict=True, ge=1, le=1024)], ...], Field(min_length=1, max_length=64)
]
Contexts = Annotated[
    tuple[Annotated[int, Field(strict=True, ge=1, le=1 << 24)], ...], Field(min_length=1, max_length=64)
]
PageSizes = Annotated[tuple[Annotated[int, Field(strict=True, ge=1, le=4096)], ...], Field(min_length=1, max_length=64)]


def _as_list(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _whole(value: Any) -> Any:
    """``true`` and ``1.0`` equal 1 and are no version."""
    return value if type(value) is int else repr(value)


Dtypes = Annotated[
    tuple[Name, ...],
    Field(min_length=1, max_length=8),
    BeforeValidator(_as_list, json_schema_input_type=Name | Annotated[list[Name], Field(min_length=1, max_length=8)]),
]
"""One dtype name or a list of them."""


class ManifestPart(Value):
    """A table of the manifest: frozen, unknown keys refused, names as they stand in the file."""

    model_config = ConfigDict(serialize_by_alias=True)


class ContextRange(ManifestPart):
    """Cached tokens of a request at the end of a step, the new ones included: from ``min`` to ``max``."""

    min: Annotated[int, Field(strict=True, ge=1, le=1 << 24)]
    max: Annotated[int, Field(strict=True, ge=1, le=1 << 24)]


class TargetScope(ManifestPart):
    """A kind of machine that the directory serves, and the ways in which a model may be spread over it."""

    name: Name = Field(description="name of a hardware target of the gate, for example gb300")
    tensor_parallel: Annotated[tuple[Ranks, ...], Field(min_length=1, max_length=16)] = Field(
        description="served sizes of the tensor parallel group"
    )
    decode_context_parallel: Annotated[
        tuple[Annotated[str, StringConstraints(pattern=r"^(tp|[1-9][0-9]{0,3})$")], ...],
        Field(min_length=1, max_length=16),
    ] = Field(
        default=("1",), description="served sizes of the decode context parallel group; `tp`: equal to the former"
    )
    expert_parallel: Annotated[tuple[Ranks, ...], Field(min_length=1, max_length=16)] = Field(
        default=(1,), description="served sizes of the expert parallel group"
    )
    nvlink_domain: Ranks | None = Field(default=None, description="GPUs of one NVLink domain that are needed")
    multicast: Annotated[bool, Field(strict=True)] | None = Field(
        default=None, description="whether NVLink multicast is needed"
    )

    def groups(self) -> tuple[tuple[int, int], ...]:
        """Return every pair of (tensor parallel, decode context parallel) sizes, ascending, each once."""
        pairs = {
            (size, size if text == "tp" else int(text))
            for size in self.tensor_parallel
            for text in self.decode_context_parallel
        }
        return tuple(sorted(pair for pair in pairs if fits(*pair)))


class Thresholds(ManifestPart):
    """Values at which the directory's code chooses another path; each is raced together with its neighbours."""

    rows: RowCounts = ()
    query_tokens: TokenCounts = ()
    context: Contexts = ()


class Serves(ManifestPart):
    """The served shapes of a decode step."""

    rows: RowCounts = Field(description="token rows of a step: requests x query tokens")
    query_tokens: TokenCounts = Field(description="tokens that a request decodes or verifies in a step")
    context: ContextRange
    page_sizes: PageSizes = Field(description="tokens in a page of the cache")
    dtypes: Annotated[dict[Name, Dtypes], Field(max_length=16)] = Field(
        default={}, description="dtype, or list of dtypes, by tensor family: kv_cache, conv_state, recurrent_state"
    )
    thresholds: Thresholds = Thresholds()

    def dtype_choices(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return the tensor families in order of their names, each with its served dtypes."""
        return tuple(sorted(self.dtypes.items()))


class FeatureVerdict(StrEnum):
    """What a directory does with a feature: serve it, or refuse it at start with a reason."""

    SERVED = "served"
    REFUSED = "refused"


class Claims(ManifestPart):
    """What the author promises; the race holds each promise against its lower bound."""

    speedup: Annotated[dict[Name, Annotated[float, Field(strict=True, ge=1, le=1000)]], Field(max_length=16)] = Field(
        default={}, description="by target: stock time / candidate time, at least, on every advertised configuration"
    )
    kernels_per_layer: Annotated[int, Field(strict=True, ge=1, le=10000)] | None = None


class Manifest(Document):
    """A validated ``fast_track.toml``. Build it with :func:`load`, which also holds it against its place in the tree."""

    model_config = ConfigDict(serialize_by_alias=True, populate_by_name=True)

    schema_version: Annotated[Literal[1], BeforeValidator(_whole)] = Field(
        alias="schema", description="version of this schema"
    )
    model: Name = Field(description="the model in the repository, as its directory spells it")
    vendor: Name = Field(description="the vendor in the repository, as its directory spells it")
    directory: RepositoryPath = Field(description="path of the specialised directory; the manifest lies in it")
    switch: Annotated[str, StringConstraints(min_length=1, max_length=400, pattern=r"^[\x20-\x7e]+$")] = Field(
        description="the setting that a user makes to get this path; off by default"
    )
    problem: Name = Field(description="the gate's model under test that judges this directory")
    entry_point: EntryPoint = Field(description="module:attribute of the implementation")
    guard: EntryPoint = Field(description="module:attribute of the function that tells whether the path is on")
    hooks: Annotated[tuple[RepositoryPath, ...], Field(max_length=32)] = Field(
        default=(), description="files outside the directory that call into it"
    )
    targets: Annotated[tuple[TargetScope, ...], Field(min_length=1, max_length=16)]
    serves: Serves
    features: Annotated[dict[Name, FeatureVerdict], Field(max_length=64)] = Field(
        default={}, description="served or refused, for each feature of the mandatory list"
    )
    claims: Claims = Claims()

    @property
    def path(self) -> str:
        """Path of the manifest in the repository."""
        return posixpath.join(self.directory, MANIFEST_NAME)

    def target(self, name: str) -> TargetScope:
        """Return the scope on one target.

        Raises:
            KeyError: if the manifest does not name the target.
        """
        for scope in self.targets:
            if scope.name == name:
                return scope
        raise KeyError(name)

    @model_validator(mode="before")
    @classmethod
    def _name_of_schema_version(cls, values: Any) -> Any:
        if isinstance(values, dict) and "schema_version" in values and "schema" in values:
            raise ValueError("`schema_version` is not a key of this file; `schema` is")
        return values


def load(tree: SourceTree, path: str) -> tuple[Manifest | None, list[Finding]]:
    """Read and check the manifest at ``path``. Either a manifest and no finding, or None and every finding.

    A manifest that is absent is the finding ``SCOPE_MANIFEST_MISSING``.
    """
    entry = tree.entry(path)
    if entry is None or entry.kind != "blob" or entry.mode not in ("100644", "100755"):
        found = "no such file" if entry is None else f"{entry.kind} of mode {entry.mode}"
        return None, [manifest_finding("MISSING", "there is no manifest", f"a file {path}", found, path, None)]
    return read(tree.read(path), path)


def read(data: bytes, path: str) -> tuple[Manifest | None, list[Finding]]:
    """Check the bytes of a manifest as if it lay at ``path`` (see :func:`load`)."""
    document, problems = parse(data)
    if document is None:
        return None, [_from_problem(problem, path) for problem in problems]
    manifest, problems = _validated(document)
    findings, problems = manifest_todo.split(document, problems, path, _MEANINGS)
    findings += [_from_problem(problem, path) for problem in problems]
    parts = _parts(document, manifest)
    findings += CrossChecks(parts, document, path).run()
    findings.sort(key=lambda finding: finding.line or 0)
    return (None, findings) if findings else (manifest, [])


def manifests(tree: SourceTree, directory: str = "") -> tuple[str, ...]:
    """Return the paths of all manifests at or below ``directory``, sorted."""
    return tuple(sorted(entry.path for entry in tree.walk(directory) if entry.path.rpartition("/")[2] == MANIFEST_NAME))


def positions(tree: SourceTree, manifest: Manifest) -> TomlDocument:
    """Return the file of a loaded manifest with the lines of its keys, for findings of other policies."""
    document, _ = parse(tree.read(manifest.path))
    if document is None:
        raise KeyError(manifest.path)
    return document


def _validated(document: TomlDocument) -> tuple[Manifest | None, list[TomlProblem]]:
    try:
        return Manifest.model_validate(document.values, by_alias=True, by_name=False), []
    except ValidationError as error:
        return None, problems_of(error, document)


_ADAPTERS: dict[str, TypeAdapter[Any]] = {
    field.alias or name: TypeAdapter(Annotated[(field.annotation, *(field.metadata or [Field()]))])  # type: ignore[arg-type]
    for name, field in Manifest.model_fields.items()
}

_MEANINGS = {
    field.alias or name: field.description for name, field in Manifest.model_fields.items() if field.description
}


def _parts(document: TomlDocument, manifest: Manifest | None) -> dict[str, Any]:
    """Return the top-level values that are right in themselves, so that a wrong one does not hide the others' errors."""
    if manifest is not None:
        return {field.alias or name: getattr(manifest, name) for name, field in Manifest.model_fields.items()}
    parts = {}
    for name, adapter in _ADAPTERS.items():
        try:
            if name in document.values:
                parts[name] = adapter.validate_python(document.values[name])
        except ValidationError:
            continue  # reported by the validation of the whole
    return parts


_MESSAGES = {
    "size": "the manifest is too large",
    "encoding": "the manifest is not text",
    "syntax": "the manifest is not TOML",
    "nesting": "the manifest is nested too deeply",
    "missing": "a key is missing",
    "unknown": "a key that the schema does not know",
    "value": "a value that the schema does not allow",
}


def _from_problem(problem: TomlProblem, path: str) -> Finding:
    message = _MESSAGES[problem.kind] + (f": `{problem.keys}`" if problem.keys else "")
    kind = {"missing": "KEY_MISSING", "unknown": "KEY_UNKNOWN"}.get(problem.kind, problem.kind.upper())
    return manifest_finding(kind, message, problem.expected, problem.found, path, problem.line)


def published_schema() -> str:
    """Return the JSON Schema of ``fast_track.toml`` (draft 2020-12), as ``docs/fast_track.schema.json`` holds it."""
    schema = Manifest.model_json_schema(by_alias=True)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "fast_track.toml"}
    return json.dumps({**schema, **head}, indent=2, sort_keys=True) + "\n"
