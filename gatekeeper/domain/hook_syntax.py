"""Small questions about an expression of a hook file: which name it is, and whether evaluating it runs anything."""

from __future__ import annotations

import ast
from typing import NamedTuple


class Key(NamedTuple):
    """A plain name, or an attribute of ``self`` (``attribute`` true)."""

    name: str
    attribute: bool = False


def key_of(node: ast.AST) -> Key | None:
    """Return the key of a name or of an attribute of ``self``; None for all else."""
    if isinstance(node, ast.Name):
        return Key(node.id)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return Key(node.attr, attribute=True)
    return None


def is_plain(node: ast.expr) -> bool:
    """Whether evaluating an expression looks values up and does no more: names, attributes, constants, tuples of these."""
    if isinstance(node, ast.Tuple):
        return all(is_plain(element) for element in node.elts)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.operand, ast.Constant)
    if isinstance(node, ast.Attribute):
        return is_plain(node.value)
    return isinstance(node, ast.Name | ast.Constant)


def read_key(node: ast.AST, *, none: bool = False) -> Key | None:
    """As :func:`key_of`, for a value that is read; also ``getattr(self, "name", False)`` (with ``none``: the default None)."""
    if not isinstance(node, ast.Call):
        return key_of(node)
    match node:
        case ast.Call(
            func=ast.Name(id="getattr"), keywords=[],
            args=[ast.Name(id="self"), ast.Constant(value=str() as name), ast.Constant(value=default)],
        ) if default is None or not (none or default):  # fmt: skip
            return Key(name, attribute=True)
    return None


def is_quiet(node: ast.expr) -> bool:
    """Whether an expression is a question that runs nothing: ``x is None``, ``x is not None`` for something plain."""
    return (
        isinstance(node, ast.Compare)
        and all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops)
        and all(is_plain(each) for each in (node.left, *node.comparators))
    )
