"""Parsing Python that a stranger wrote, without running it."""

from __future__ import annotations

import ast
import re
import threading

_ONE_AT_A_TIME = threading.Lock()
# CPython 3.11 counts the depth of nested syntax per interpreter, not per thread: two parses at once raise SystemError
# ("AST constructor recursion depth mismatch"), which would turn an honest change into the verdict `error`.


_CODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
# PEP 263; a line may end in a carriage return alone.


def foreign_encoding(source: bytes) -> tuple[int, str] | None:
    """Return (line, name) of an encoding other than UTF-8 that a file claims for itself, or None.

    Under such a claim Python would run another text than everybody reads.
    """
    for number, line in enumerate(source.replace(b"\r", b"\n").split(b"\n")[:2], start=1):
        cookie = _CODING.match(line)
        if cookie and not re.fullmatch(rb"utf-?8(-.*)?", cookie.group(1).lower().replace(b"_", b"-")):
            return number, cookie.group(1).decode("ascii", "replace")
    return None


def parse_python(source: str | bytes) -> ast.Module:
    """Return the syntax tree of a module.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: as :func:`ast.parse`.
    """
    with _ONE_AT_A_TIME:
        return ast.parse(source)


def compiles(source: str | bytes, name: str) -> None:
    """Compile a module and throw the result away; finds what only the compiler sees (a stray ``return``).

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: as :func:`compile`.
    """
    with _ONE_AT_A_TIME:
        compile(source, name, "exec", dont_inherit=True)
