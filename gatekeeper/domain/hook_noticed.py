"""Would stock code notice a new name? Some looks at all names of a scope, or of an object, and some objects take no new ones."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_LISTING = {"locals", "vars", "dir", "eval", "exec", "globals"}
_CLOSED_BASES = {"NamedTuple", "Enum", "IntEnum", "StrEnum", "Flag", "BaseModel", "Struct", "tuple", "int", "str"}
_WHOLE = {"__dict__", "f_locals", "__slots__"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def lists_names(node: ast.AST) -> bool:
    """Whether code at or below ``node`` looks at all names of its scope, or runs a text that could."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and inner.attr == "f_locals":
            return True
        if isinstance(inner, ast.Name) and inner.id in ("eval", "exec"):
            return True
        if (
            isinstance(inner, ast.Call)
            and isinstance(inner.func, ast.Name)
            and inner.func.id in _LISTING
            and not inner.args
        ):
            return inner.func.id != "globals"
    return False


def lists_module(module: ast.Module) -> bool:
    """Whether a module looks at all of its own names as it is loaded; one name by its text is none."""
    names = ("globals", "locals", "vars", "dir")
    for node in _loading(module):
        if isinstance(node, ast.Call) and not node.args and isinstance(node.func, ast.Name) and node.func.id in names:
            return True
        if isinstance(node, ast.Subscript) and ast.unparse(node) == "sys.modules[__name__]":
            return True
    return False


def _loading(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what runs as the module is loaded; of ``globals()["x"]`` and ``globals().get("x")`` what stands in the brackets."""
    for child in ast.iter_child_nodes(node):
        table = child.value if isinstance(child, ast.Subscript) else None
        if isinstance(child, ast.Attribute) and child.attr == "get":
            table = child.value
        if isinstance(table, ast.Call):
            if isinstance(child, ast.Subscript):
                yield from _loading(child.slice)
        elif not isinstance(child, _FUNCTIONS):
            yield child
            yield from _loading(child)


def closed_class(module: ast.Module, name: str) -> str | None:
    """Return why an object of a class of this file may take no new attribute, or show it to somebody; None if it may."""
    classes = {each.name: each for each in ast.walk(module) if isinstance(each, ast.ClassDef)}
    pending, seen = [name], set[str]()
    while pending:
        current = classes.get(pending.pop())
        if current is None or current.name in seen:
            continue
        seen.add(current.name)
        if fault := _closed(current):
            return fault
        pending.extend(base.id for base in current.bases if isinstance(base, ast.Name))
    return None


def _closed(kind: ast.ClassDef) -> str | None:
    for base in kind.bases:
        word = base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""
        if word in _CLOSED_BASES:
            return f"objects of {kind.name}, a {word}, take no new attributes"
    for decorator in kind.decorator_list:
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
            if keyword.arg in ("frozen", "slots") and not (
                isinstance(keyword.value, ast.Constant) and not keyword.value.value
            ):
                return f"{kind.name} is {keyword.arg}: its objects take no new attributes"
    for node in ast.walk(kind):
        if isinstance(node, ast.Name) and node.id == "__slots__":
            return f"{kind.name} has __slots__: its objects take no new attributes"
        if isinstance(node, ast.FunctionDef) and node.name in ("__setattr__", "__getattribute__"):
            return f"{kind.name} has {node.name}, which runs code for every attribute"
        if (
            isinstance(node, ast.Attribute)
            and node.attr in _WHOLE
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ):
            return f"{kind.name} looks at all attributes of its objects"
        if isinstance(node, ast.Call) and ast.unparse(node) in ("vars(self)", "dir(self)"):
            return f"{kind.name} looks at all attributes of its objects"
    return None
