"""Texts in the source of a specialised directory: what one is put together from, and whether anybody can read it."""

from __future__ import annotations

import ast
import io
import re
import string
import tokenize
from collections.abc import Iterator

_ENCODED = re.compile(r"[A-Za-z0-9+/=_-]+")
_HEXADECIMAL = re.compile(r"[0-9A-Fa-fx\\,\s]+")
_LONGEST = 1000
"""Characters of encoded data (pairs of digits, for hexadecimal) in one text that nobody need ask about."""


def text_of(node: ast.AST | None) -> str | None:
    """Return the text that an expression is, also where it is put together from constants; else None."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _together([node.left, node.right])
    if isinstance(node, ast.JoinedStr):
        return _together([each.value if isinstance(each, ast.FormattedValue) else each for each in node.values])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join" and node.args:
        between, parts = text_of(node.func.value), node.args[0]
        texts = [text_of(each) for each in parts.elts] if isinstance(parts, ast.Tuple | ast.List) else [None]
        return None if between is None or None in texts else between.join(text or "" for text in texts)
    return None


def _together(parts: list[ast.expr]) -> str | None:
    texts = [text_of(part) for part in parts]
    return None if None in texts else "".join(text or "" for text in texts)


def is_opaque(text: str) -> bool:
    """Whether a text holds a long run of base64 or hexadecimal digits, or much that is no ASCII. Linear in its length."""
    if len(text) <= _LONGEST:
        return False
    return (
        any(len(run.group()) >= _LONGEST for run in _ENCODED.finditer(text))
        or any(
            sum(map(string.hexdigits.__contains__, run.group())) >= 2 * _LONGEST for run in _HEXADECIMAL.finditer(text)
        )
        or sum(character > "~" for character in text) > _LONGEST
    )


def odd_names(source: bytes) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of the names of a file as they are written (Python normalises them) that are not all ASCII."""
    if source.isascii() or not _may_name(source):
        return
    try:
        for token in tokenize.tokenize(io.BytesIO(source).readline):
            if token.type == tokenize.NAME and not token.string.isascii():
                yield token.start[0], token.string
    except (tokenize.TokenError, SyntaxError):
        return


def _may_name(source: bytes) -> bool:
    """Whether letters that are not ASCII could be part of a name: most stand in comments, as dashes and arrows."""
    try:
        letters = set(source.decode("utf-8"))
    except UnicodeDecodeError:
        return True
    return any(f"a{letter}".isidentifier() for letter in letters if letter > "~")


def is_below(name: ast.expr | None) -> bool:
    """Whether the name of an imported module begins in the importing package: ``".x"``, ``f".x_{n}"`` or ``f"{__package__}.x"``."""
    parts = name.values if isinstance(name, ast.JoinedStr) else [name] if name else []
    pattern, first = r"\.[A-Za-z_]", parts[0] if parts else None
    if isinstance(first, ast.FormattedValue) and isinstance(first.value, ast.Name):
        own = first.value.id in ("__package__", "__name__")
        pattern, first = r"\.", parts[1] if own and len(parts) > 1 else None
    return isinstance(first, ast.Constant) and re.match(pattern, str(first.value)) is not None
