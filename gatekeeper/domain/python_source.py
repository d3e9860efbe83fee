"""Parsing Python that a stranger wrote, without running it."""

from __future__ import annotations

import ast
import threading

_ONE_AT_A_TIME = threading.Lock()
# CPython 3.11 counts the depth of nested syntax per interpreter, not per thread: two parses at once raise SystemError
# ("AST constructor recursion depth mismatch"), which would turn an honest change into the verdict `error`.


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
