"""What no single key of a manifest can show: the manifest against its own place in the tree and against itself."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gatekeeper.domain.policy import Finding
from gatekeeper.domain.toml_lines import TomlDocument, shown

if TYPE_CHECKING:
    from gatekeeper.domain.manifest import Serves, TargetScope

MAX_POINTS = 1 << 20
"""Largest product of all served values of one target, before it is reduced to what is raced."""


def manifest_finding(kind: str, message: str, expected: str, found: str, path: str, line: int | None) -> Finding:
    """Return the finding ``SCOPE_MANIFEST_<kind>`` about the manifest at ``path``."""
    return Finding(code=f"SCOPE_MANIFEST_{kind}", message=message, expected=expected, found=found, path=path, line=line)


def fits(tensor_parallel: int, decode_context_parallel: int) -> bool:
    """Whether a decode context parallel group can be spread over a tensor parallel group.

    Its size divides the group's. A single rank may also simulate any number of shards, as the CPU target does.
    """
    return tensor_parallel == 1 or tensor_parallel % decode_context_parallel == 0


class CrossChecks:
    """What no single key can show: the manifest against its own place and against itself."""

    def __init__(self, parts: dict[str, Any], document: TomlDocument, path: str) -> None:
        self._parts = parts
        self._document = document
        self._path = path
        self._findings: list[Finding] = []

    def run(self) -> list[Finding]:
        """Return all findings; a check whose keys are wrong in themselves is left out."""
        for check, needed in (
            (self._place, ("directory",)),
            (self._hooks, ("hooks",)),
            (self._targets, ("targets",)),
            (self._ranges, ("serves",)),
            (self._claims, ("targets", "claims")),
            (self._product, ("targets", "serves")),
        ):
            if all(name in self._parts for name in needed):
                check()
        self._modules()
        return self._findings

    def _add(self, kind: str, message: str, expected: str, found: Any, *keys: str | int) -> None:
        text = found if isinstance(found, str) else shown(found)
        self._findings.append(manifest_finding(kind, message, expected, text, self._path, self._document.line(*keys)))

    def _place(self) -> None:
        here = posixpath.dirname(self._path)
        if self._parts["directory"] != here:
            self._add("DIRECTORY", "the manifest names another directory than its own", here,
                      self._parts["directory"], "directory")  # fmt: skip

    def _modules(self) -> None:
        package = posixpath.dirname(self._path).replace("/", ".")
        for key in ("entry_point", "guard"):
            module = str(self._parts.get(key, package)).partition(":")[0]
            if module != package and not module.startswith(package + "."):
                self._add("MODULE", f"`{key}` lies outside the directory", f"a module of {package}", module, key)

    def _hooks(self) -> None:
        here = posixpath.dirname(self._path) + "/"
        for index, hook in enumerate(self._parts["hooks"]):
            if posixpath.normpath(hook) != hook or hook.split("/")[0] in (".", ".."):
                self._add("HOOK", "a hook is a path from the repository's root", "no `.` or `..`", hook, "hooks", index)
            elif hook.startswith(here):
                self._add("HOOK", "a hook lies outside the directory", f"a path not below {here}", hook, "hooks", index)
        self._once(self._parts["hooks"], "hooks")

    def _targets(self) -> None:
        scopes: tuple[TargetScope, ...] = self._parts["targets"]
        names = [scope.name for scope in scopes]
        for index, scope in enumerate(scopes):
            if scope.name in names[:index]:
                self._add("TWICE", "a target stands twice", "each target once", scope.name, "targets", index, "name")
            for key in ("tensor_parallel", "decode_context_parallel", "expert_parallel"):
                self._once(getattr(scope, key), "targets", index, key)
            for place, text in enumerate(scope.decode_context_parallel):
                if text != "tp" and not any(fits(size, int(text)) for size in scope.tensor_parallel):
                    self._add("RANGE", "a decode context parallel group that fits into no tensor parallel group",
                              f"a divisor of one of {list(scope.tensor_parallel)}", text,
                              "targets", index, "decode_context_parallel", place)  # fmt: skip

    def _ranges(self) -> None:
        serves: Serves = self._parts["serves"]
        if serves.context.min > serves.context.max:
            self._add("RANGE", "the context range is empty", f"max of at least {serves.context.min}",
                      serves.context.max, "serves", "context", "max")  # fmt: skip
        for index, tokens in enumerate(serves.query_tokens):
            if all(rows % tokens for rows in serves.rows) or tokens > serves.context.max:
                self._add("RANGE", "no served step has this many query tokens",
                          f"a divisor of one of the rows, at most {serves.context.max}", tokens,
                          "serves", "query_tokens", index)  # fmt: skip
        for index, rows in enumerate(serves.rows):
            if all(rows % tokens for tokens in serves.query_tokens):
                self._add("RANGE", "no served step has this many rows", "a multiple of one of the query tokens", rows,
                          "serves", "rows", index)  # fmt: skip
        for key in ("rows", "query_tokens", "page_sizes"):
            self._once(getattr(serves, key), "serves", key)
        for family, dtypes in serves.dtype_choices():
            self._once(dtypes, "serves", "dtypes", family)
        for index, context in enumerate(serves.thresholds.context):
            if not serves.context.min <= context <= serves.context.max:
                self._add("RANGE", "a threshold outside the served context",
                          f"{serves.context.min} to {serves.context.max}", context,
                          "serves", "thresholds", "context", index)  # fmt: skip

    def _claims(self) -> None:
        names = [scope.name for scope in self._parts["targets"]]
        for target in self._parts["claims"].speedup:
            if target not in names:
                self._add("CLAIM", "a claim about a target that the manifest does not name",
                          f"one of {', '.join(names)}", target, "claims", "speedup", target)  # fmt: skip

    def _product(self) -> None:
        serves: Serves = self._parts["serves"]
        shapes = len(serves.rows) * len(serves.query_tokens) * len(serves.page_sizes)
        for _, dtypes in serves.dtype_choices():
            shapes *= len(dtypes)
        for index, scope in enumerate(self._parts["targets"]):
            points = shapes * len(scope.groups()) * len(scope.expert_parallel)
            if points > MAX_POINTS:
                self._add("PRODUCT", "too many combinations are served to be judged", f"at most {MAX_POINTS}",
                          f"{points}", "targets", index)  # fmt: skip

    def _once(self, values: tuple[Any, ...], *keys: str | int) -> None:
        for index in _repeated(values):
            self._add("TWICE", "a value stands twice", "each value once", values[index], *keys, index)


def _repeated(values: tuple[Any, ...]) -> Iterator[int]:
    seen = set()
    for index, value in enumerate(values):
        if value in seen:
            yield index
        seen.add(value)
