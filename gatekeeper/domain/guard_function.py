"""Is the opt-in one? The function that the manifest names as guard must be able to say no, and must change nothing when asked.

Everything else about hook files rests on this function, and the author of the change writes it. What can be read off its text
is read here; the probe also calls it while nothing is switched on.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gatekeeper.domain.guard_names import Guard
from gatekeeper.domain.guard_way import way_faults, way_to
from gatekeeper.domain.guards import HookFault, guard_of
from gatekeeper.domain.hook_scopes import bound_names, own_nodes
from gatekeeper.domain.python_imports import import_targets
from gatekeeper.domain.python_source import parse_python
from gatekeeper.domain.source import SourceTree

_CACHES = {"functools.cache", "functools.lru_cache"}
_CHANGING = {"setattr", "delattr", "exec", "eval", "__import__", "__setattr__", "__delattr__", "__setitem__"}
_METHODS = {"update", "setdefault", "pop", "popitem", "clear", "append", "extend", "insert", "remove", "add", "discard", "sort",
            "reverse"}  # fmt: skip
_KINDS = {"__class__", "__module__", "__qualname__", "__name__", "__mro__", "__bases__", "__subclasses__", "__file__"}
_DISPLAYS = (ast.List, ast.Tuple, ast.Set)
_MOST_HOPS = 5

Function = ast.FunctionDef | ast.AsyncFunctionDef
Fault = tuple[str, HookFault]
"""Path of the file and what is wrong in it."""


class Located(NamedTuple):
    """Where a guard's definition lies. ``hops`` are (module, name) of each place that it passes through."""

    path: str
    function: Function
    module: ast.Module
    hops: tuple[tuple[str, str], ...]


def guard_faults(tree: SourceTree, guard: Guard) -> Iterator[Fault]:
    """Yield what is wrong with the guard function as it lies in ``tree``, and with the way that leads to it."""
    found = locate(tree, guard)
    if not isinstance(found, Located):
        yield found
        return
    for line, message, expected, shown in _function_faults(found.function, _constants(found.module), _imported(found)):
        yield found.path, HookFault(line=line, message=message, expected=expected, found=shown)
    way = way_to(found.hops, guard.package)
    for path, line, message, expected, shown in way_faults(tree, way, guard.package):
        yield path, HookFault(line=line, message=message, expected=expected, found=shown)


def locate(tree: SourceTree, guard: Guard) -> Located | Fault:
    """Return the definition of a guard, through imports within the directory; a fault if there is none or more than one."""
    return _find(tree, guard, ())


def _imported(found: Located) -> dict[str, str]:
    """Return what names of the guard's module that are bound once, by an import at its top level, stand for."""
    times = Counter(name for node in ast.walk(found.module) for name in bound_names(node))
    targets = [pair for node in found.module.body if isinstance(node, ast.Import | ast.ImportFrom)
               for pair in import_targets(node, found.path)]  # fmt: skip
    return {name: target for name, target in targets if times[name] == 1}


def _find(tree: SourceTree, guard: Guard, hops: tuple[tuple[str, str], ...]) -> Located | Fault:
    stem = guard.module.replace(".", "/")
    places = (f"{stem}/__init__.py", f"{stem}.py")
    path = next((each for each in places if (entry := tree.entry(each)) and entry.kind == "blob"), places[1])
    expected = f"a function {guard.function} in {guard.module}"

    def wrong(message: str, found: str, line: int = 1) -> Fault:
        return path, HookFault(line=line, message=message, expected=expected, found=found)

    try:
        module = parse_python(tree.read(path))
    except KeyError:
        return wrong("the guard that the manifest names is not there", "no such file")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return wrong("the guard's file does not parse", f"{type(error).__name__}: {error}"[:200])
    bindings = [node for node in ast.walk(module) if guard.function in bound_names(node)]
    top = [node for node in module.body if guard.function in bound_names(node)]
    if len(bindings) != 1 or top != bindings:
        lines = ", ".join(str(getattr(node, "lineno", 1)) for node in bindings[:5]) or "nowhere"
        return wrong("the guard is not bound exactly once, at the top level", f"bound on line {lines}")
    (only,) = top
    passed = (*hops, (guard.module, guard.function))
    if isinstance(only, ast.ImportFrom) and len(hops) < _MOST_HOPS:
        target = next(target for name, target in import_targets(only, path) if name == guard.function)
        module_name, _, function = target.rpartition(".")
        following = guard_of(f"{module_name}:{function}", guard.package)
        return _find(tree, following, passed) if following else wrong("the guard is imported", target, only.lineno)
    if not isinstance(only, ast.FunctionDef | ast.AsyncFunctionDef):
        return wrong("the guard is no function", type(only).__name__, getattr(only, "lineno", 1))
    return Located(path, only, module, passed)


def _constants(module: ast.Module) -> dict[str, bool]:
    """Return the truth of names that the whole module binds once, to a constant."""
    times: dict[str, int] = {}
    for node in ast.walk(module):
        for name in [node.arg] if isinstance(node, ast.arg) else bound_names(node):
            times[name] = times.get(name, 0) + 1
    found = {}
    for statement in module.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name, truth = statement.targets[0].id, _truth(statement.value, {})
            if truth is not None and times[name] == 1:
                found[name] = truth
    return found


def _function_faults(
    function: Function, constants: Mapping[str, bool], imported: Mapping[str, str]
) -> Iterator[tuple[int, str, str, str]]:
    plain = "a plain function that returns true or false"
    if isinstance(function, ast.AsyncFunctionDef):
        yield function.lineno, "the guard's answer is a coroutine, which is always true", plain, "async def"
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        name, _, rest = ast.unparse(called).partition(".")
        if f"{imported.get(name, '')}.{rest}".strip(".") not in _CACHES:
            yield (
                decorator.lineno,
                "a decorator may change the guard's answer",
                plain,
                f"@{ast.unparse(decorator)[:80]}",
            )
    own = list(own_nodes(list(function.body)))
    for node in own:
        if isinstance(node, ast.Yield | ast.YieldFrom):
            yield node.lineno, "the guard's answer is a generator, which is always true", plain, "yield"
    answers = [node.value for node in own if isinstance(node, ast.Return) and node.value is not None]
    if answers and all(_truth(answer, constants) for answer in answers):
        shown = "; ".join(f"return {ast.unparse(answer)}" for answer in answers)[:160]
        yield answers[0].lineno, "the guard never says no", "an answer that depends on what was asked for", shown
    for node in own:
        if isinstance(node, ast.Raise | ast.Assert):
            yield (node.lineno, "the guard may raise, which stops whoever did not ask for the path",
                   "no, and why not is for `supports()` to say", ast.unparse(node)[:160])  # fmt: skip
        elif isinstance(node, ast.Attribute) and node.attr in _KINDS:
            yield (node.lineno, "the guard asks what kind of object it is given", "a look at the setting",
                   ast.unparse(node)[:160])  # fmt: skip
    yield from _changes(function, own)


def _changes(function: Function, own: list[ast.AST]) -> Iterator[tuple[int, str, str, str]]:
    arguments = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    local = {name for node in own for name in bound_names(node)} - arguments
    local -= {name for node in own if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    theirs = _of_others(own, arguments)
    for node in own:
        if isinstance(node, ast.Global | ast.Nonlocal):
            found = f"{type(node).__name__.lower()} {', '.join(node.names)}"
        elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            root = _root(node)
            if root in local - theirs:
                continue
            found = f"a change of {ast.unparse(node)}"
        elif isinstance(node, ast.Call) and _called(node) in _CHANGING:
            found = ast.unparse(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
            if _root(node.func) not in arguments | theirs:
                continue
            found = ast.unparse(node)
        else:
            continue
        yield node.lineno, "asking the guard changes something", "a question without effects", found[:160]


def _root(node: ast.expr) -> str:
    """Return the name that a chain of attributes, items and calls of methods or `getattr` begins with."""
    while True:
        if isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func
        elif isinstance(node, ast.Call) and _called(node) in ("getattr", "vars") and node.args:
            node = node.args[0]
        else:
            return node.id if isinstance(node, ast.Name) else ""


def _of_others(own: list[ast.AST], arguments: set[str]) -> set[str]:
    """Return the local names that may be part of an argument, and not something of the guard's own."""
    given = [(target, node.value) for node in own if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr)
             for target in (node.targets if isinstance(node, ast.Assign) else [node.target])]  # fmt: skip
    found: set[str] = set()
    for _ in range(_MOST_HOPS):
        for target, value in given:
            parts = value.values if isinstance(value, ast.BoolOp) else [value]
            parts = [value.body, value.orelse] if isinstance(value, ast.IfExp) else parts
            if isinstance(target, ast.Name) and any(part and _root(part) in arguments | found for part in parts):
                found.add(target.id)
    return found


def _called(node: ast.Call) -> str:
    function = node.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _truth(node: ast.expr, constants: Mapping[str, bool]) -> bool | None:
    """Return whether an expression is true or false whatever happens, or None."""
    if isinstance(node, ast.Constant):
        return bool(node.value)
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, _DISPLAYS):
        return None if any(isinstance(each, ast.Starred) for each in node.elts) else bool(node.elts)
    if isinstance(node, ast.Dict):
        return None if None in node.keys else bool(node.keys)
    if isinstance(node, ast.Lambda | ast.GeneratorExp):
        return True
    if isinstance(node, ast.NamedExpr):
        return _truth(node.value, constants)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _truth(node.operand, constants)
        return None if inner is None else not inner
    if isinstance(node, ast.IfExp):
        both = {_truth(node.body, constants), _truth(node.orelse, constants)}
        return both.pop() if len(both) == 1 else None
    if isinstance(node, ast.BoolOp):
        parts = [_truth(value, constants) for value in node.values]
        settles = isinstance(node.op, ast.Or)
        if settles in parts:
            return settles
        return None if None in parts else not settles
    return None
