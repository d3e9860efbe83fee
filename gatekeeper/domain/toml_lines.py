"""TOML with line numbers: the one reader of every TOML file that a person may have to correct.

Values come from the standard library's reader and from nowhere else, so that no two readers can disagree about what a file
says. A syntax tree (tree-sitter) adds what that reader does not tell: where each key and value stands, and every syntax error
of a file rather than the first one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import tree_sitter_toml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from tree_sitter import Language, Node, Parser

Path = tuple[str | int, ...]
"""Where a value stands: keys, and positions in arrays counted from 0; ``("targets", 0, "name")``."""

MAX_BYTES = 64 * 1024
MAX_DEPTH = 8
"""Deepest nesting of tables, arrays and dotted keys; a manifest needs four."""
MAX_SYNTAX_PROBLEMS = 20
SHOWN = 120
"""Longest excerpt of a file or a value in a message, in characters."""

LARGEST = (1 << 63) - 1
"""Largest integer, as TOML 1.0 asks for. Python writes no more than 4,300 digits, and would fail to show a larger one."""

_LANGUAGE = Language(tree_sitter_toml.language())
_AT_LINE = re.compile(r"\(at line (\d+), column (\d+)\)")
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class TomlProblem:
    """One thing that is wrong in a file. ``line`` counts from 1; ``keys`` is the dotted path, empty for syntax."""

    line: int
    keys: str
    expected: str
    found: str
    kind: str
    """``size``, ``encoding``, ``syntax``, ``nesting``, ``missing``, ``unknown`` or ``value``."""


@dataclass(frozen=True)
class TomlDocument:
    """A file that was read: its values, and the line of every key and array element."""

    values: dict[str, Any]
    lines: dict[Path, int] = field(default_factory=dict)

    def line(self, *keys: str | int) -> int:
        """Return the line of the value at ``keys``, or of its nearest parent that stands in the file (the file: line 1)."""
        while keys:
            if keys in self.lines:
                return self.lines[keys]
            keys = keys[:-1]
        return 1


def parse(
    data: bytes, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH
) -> tuple[TomlDocument | None, list[TomlProblem]]:
    """Read TOML bytes. Either a document and no problem, or None and every problem found."""
    if len(data) > max_bytes:
        return None, [TomlProblem(1, "", f"at most {max_bytes} bytes", f"{len(data)} bytes", "size")]
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return None, [TomlProblem(line, "", "text in UTF-8", f"byte 0x{data[error.start]:02x}", "encoding")]
    root = Parser(_LANGUAGE).parse(data).root_node
    lines, deepest = _Places(root).collect()
    if deepest[0] > max_depth:
        return None, [TomlProblem(deepest[1], "", f"nesting of at most {max_depth}", f"{deepest[0]}", "nesting")]
    try:
        document = TomlDocument(tomllib.loads(text), lines)
    except (ValueError, RecursionError) as error:
        return None, _syntax_problems(root, data, str(error))
    large = list(_too_large(document.values, (), document))[:MAX_SYNTAX_PROBLEMS]
    return (None, large) if large else (document, [])


def _too_large(value: Any, path: Path, document: TomlDocument) -> Iterator[TomlProblem]:
    """Yield the integers of a document that are no 64-bit ones. Nesting is bounded before."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _too_large(inner, (*path, key), document)
    elif isinstance(value, int) and not -LARGEST - 1 <= value <= LARGEST:
        expected = f"an integer of at most {LARGEST}"
        yield TomlProblem(document.line(*path), dotted(path), expected, f"one of {value.bit_length()} bits", "value")


def validate(model: type[M], document: TomlDocument) -> tuple[M | None, list[TomlProblem]]:
    """Build ``model`` from a document. Either the value and no problem, or None and every problem, each with its line."""
    try:
        return model.model_validate(document.values), []
    except ValidationError as error:
        return None, problems_of(error, document)


def problems_of(error: ValidationError, document: TomlDocument) -> list[TomlProblem]:
    """Return every problem of a failed validation with its line, each once."""
    details = [detail for detail in error.errors(include_url=False) if not _echoes_its_parts(detail)]
    return list(dict.fromkeys(_problem(detail, document) for detail in details))


def _echoes_its_parts(detail: ErrorDetails) -> bool:
    """A list whose elements are wrong is also called too short; the elements have their own errors."""
    value = detail["input"]
    return (
        detail["type"] == "too_short"
        and isinstance(value, list | tuple)
        and len(value) >= detail.get("ctx", {}).get("min_length", 0)
    )


def _problem(detail: ErrorDetails, document: TomlDocument) -> TomlProblem:
    path: Path = tuple(part for part in detail["loc"] if part != "[key]")
    while path and detail["type"] != "missing" and not _stands(path, document):
        path = path[:-1]  # parts that name a branch of a union and no key of the file
    kind = {"missing": "missing", "extra_forbidden": "unknown"}.get(detail["type"], "value")
    if kind == "unknown":
        return TomlProblem(document.line(*path), dotted(path), "a key that the schema knows", f"`{path[-1]}`", kind)
    if kind == "missing":
        return TomlProblem(document.line(*path), dotted(path), f"a value for `{dotted(path)}`", "nothing", kind)
    message = detail["msg"].removeprefix("Value error, ")
    for words in ("Input should be ", "String should ", "Tuple should "):
        message = message.removeprefix(words)
    message = _IN_WORDS_OF_TOML.get(detail["type"], message)
    return TomlProblem(document.line(*path), dotted(path), message, shown(detail["input"]), kind)


_IN_WORDS_OF_TOML = {
    "tuple_type": "an array",
    "list_type": "an array",
    "dict_type": "a table",
    "model_type": "a table",
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
}


def dotted(path: Path) -> str:
    """Return a path as people write it: ``targets[0].tensor_parallel``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def shown(value: Any) -> str:
    """Return a short one-line spelling of a value from a file."""
    text = repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def _stands(path: Path, document: TomlDocument) -> bool:
    return path in document.lines


class _Places:
    """Walks a syntax tree once and notes the line of every key and array element."""

    def __init__(self, root: Node) -> None:
        self._root = root
        self._lines: dict[Path, int] = {}
        self._counts: dict[Path, int] = {}
        self._deepest = (0, 1)

    def collect(self) -> tuple[dict[Path, int], tuple[int, int]]:
        """Return the lines by path, and the deepest nesting with its line."""
        for node in self._root.children:
            if node.type == "pair":
                self._pair(node, ())
            elif node.type in ("table", "table_array_element"):
                self._table(node)
        return self._lines, self._deepest

    def _table(self, node: Node) -> None:
        names = next((_key_parts(child) for child in node.children if child.type in _KEYS), ())
        if not names:
            return
        path = self._through_arrays(names[:-1]) + names[-1:]
        if node.type == "table_array_element":
            count = self._counts[path] = self._counts.get(path, 0) + 1
            self._note(path, node, keep=True)
            path = (*path, count - 1)
        elif path in self._counts:
            path = (*path, self._counts[path] - 1)
        self._note(path, node)
        for child in node.children:
            if child.type == "pair":
                self._pair(child, path)

    def _through_arrays(self, names: Path) -> Path:
        path: Path = ()
        for name in names:
            path = (*path, name)
            if path in self._counts:
                path = (*path, self._counts[path] - 1)
        return path

    def _pair(self, pair: Node, prefix: Path) -> None:
        """Note a pair and what lies in it. A stack instead of recursion: depth is the writer's choice."""
        stack: list[tuple[Node, Path]] = [(pair, prefix)]
        while stack:
            node, path = stack.pop()
            if node.type == "pair":
                key = next((child for child in node.children if child.type in _KEYS), None)
                names = _key_parts(key) if key is not None else ()
                for length in range(1, len(names) + 1):
                    self._note(path + names[:length], node, keep=length < len(names))
                path += names
                stack.extend((child, path) for child in node.children if child.type in ("array", "inline_table"))
            elif node.type == "inline_table":
                stack.extend((child, path) for child in node.children if child.type == "pair")
            elif node.type == "array":
                elements = [child for child in node.children if child.is_named and child.type != "comment"]
                for index, element in enumerate(elements):
                    self._note((*path, index), element)
                    if element.type in ("array", "inline_table"):
                        stack.append((element, (*path, index)))

    def _note(self, path: Path, node: Node, *, keep: bool = False) -> None:
        line = node.start_point.row + 1
        if len(path) > self._deepest[0]:
            self._deepest = (len(path), line)
        if keep:
            self._lines.setdefault(path, line)
        else:
            self._lines[path] = line


_KEYS = ("bare_key", "quoted_key", "dotted_key")


def _key_parts(node: Node) -> Path:
    """Return the parts of a key. Left-nested dotted keys are flattened without recursion."""
    parts: list[str | int] = []
    stack = [node]
    while stack:
        current = stack.pop()
        if current.type == "dotted_key":
            stack.extend(reversed([child for child in current.children if child.type in _KEYS]))
        else:
            parts.append(_key_text(current))
    return tuple(parts)


def _key_text(node: Node) -> str:
    text = (node.text or b"").decode("utf-8", "replace")
    if node.type == "bare_key":
        return text
    try:
        return next(iter(tomllib.loads(f"{text} = 0")))
    except ValueError:
        return text


def _syntax_problems(root: Node, data: bytes, message: str) -> list[TomlProblem]:
    """Every place that does not parse; where only the value reader complains (a key given twice), its own place."""
    source = data.split(b"\n")
    reason = _AT_LINE.sub("", message).strip() or "not TOML"
    at = _AT_LINE.search(message)
    first = min(int(at[1]) if at else len(source), len(source))
    lines = [first, *(line for line in _broken_lines(root) if line != first)]
    problems = []
    for line in sorted(lines[:MAX_SYNTAX_PROBLEMS]):
        found = source[line - 1].decode("utf-8", "replace").strip()
        expected = f"TOML 1.0 ({reason})" if line == first else "TOML 1.0"
        problems.append(
            TomlProblem(line, "", expected, shown(found) if found else "end of file or an empty line", "syntax")
        )
    return problems


def _broken_lines(root: Node) -> Iterator[int]:
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        line = node.start_point.row + 1
        if (node.is_error or node.is_missing) and line not in seen:
            seen.add(line)
            yield line
        if node.has_error:
            stack.extend(reversed(node.children))
