"""What the tests of a specialised directory do to the session that they run in, and which tests went away or are skipped.

Tests may do much that a kernel may not: start processes, run texts as code, patch with ``monkeypatch``. What is told is what reaches
the tests of others: what lasts, what runs as pytest only collects, and pytest's own insides.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from gatekeeper.domain.python_source import parse_python
from gatekeeper.domain.zone_code import read_code
from gatekeeper.domain.zone_scan import Seen

MUTATION, CODE, SESSION, SKIPPED = "ISO_FOREIGN_MUTATION", "SRC_DYNAMIC_CODE", "EFF_TEST_SESSION", "EFF_TESTS_SKIPPED"
REMOVED = "EFF_TESTS_REMOVED"
EXPLAINED_TESTS = {
    SESSION: ("a test reaches into pytest, whose session runs the tests of others too", "pytest's fixtures and marks"),
    SKIPPED: ("a test that never runs, or may fail", "a test that runs, or a condition under which it cannot"),
}
"""Reason code of what only tests do to (message, expected)."""
_ORDINARY = re.compile(
    r"(?:\w+\.)*(?:manual_seed|manual_seed_all|seed|set_device|set_default_device)\(|(?:unittest\.)?(?:mock\.)?patch(?:\.\w+)?\("
)
"""Seeds, devices, and patches that a decorator or a ``with`` takes back: :func:`_session` tells of the others."""
_PATCH = re.compile(r"(?:unittest\.)?(?:mock\.)?patch(?:\.\w+)?\(")
_FOR_TYPES = frozenset(
    {"monkeypatch", "capture", "logging", "recwarn", "tmpdir", "fixtures", "mark", "pytester", "python_api", "outcomes"}
)
"""Modules of ``_pytest`` that people import the types of fixtures from."""
_OF_SESSION = re.compile(
    r"(?:request|item|session|config)\b.*\b(?:session|config|items|option|testsfailed|shouldstop)\b"
)
_IN_MODULES = "pytest_generate_tests"
"""The one hook that belongs into a file of tests."""
_ENDING = ("pytest.exit", "os._exit", "os.abort", "_pytest.outcomes.Exit")


@dataclass
class ReadTests:
    """One file of tests: what it does to others, and the names of its tests."""

    seen: list[Seen] = field(default_factory=list)
    tests: frozenset[str] = frozenset()
    unread: str | None = None


def read_tests(source: bytes, path: str, package: str) -> ReadTests:
    """Read a file of tests. ``package`` is the directory's dotted name: tests may change what is in it."""
    reading = read_code(source, path, package)
    if reading.unread is not None:
        return ReadTests(unread=reading.unread)
    module = parse_python(source)
    seen = [each for each in reading.seen if _lasts(each)]
    seen += [Seen(SESSION, line, f"import of {target}") for target, line in reading.imports if _is_inside(target)]
    seen += _session(module)
    seen += _skipped(module)
    ordered = sorted(set(seen), key=lambda each: (each.line, each.code, each.found))
    return ReadTests(ordered, frozenset(_tests(module.body, "")))


def _lasts(seen: Seen) -> bool:
    """Whether what a kernel may not do reaches the tests of others if a test does it."""
    if _ORDINARY.match(seen.found):
        return False
    if seen.code == MUTATION:
        assigned = seen.found.startswith("a change of ") and "os.environ" not in seen.found
        return seen.at_import or assigned or "setattr" in seen.found
    held = seen.code == "EFF_TORCH_MODE" and not seen.found.startswith("class ")
    return seen.at_import and (held or seen.code in (CODE, "EFF_BACKGROUND_WORK", "SRC_UNSAFE_LOAD"))


def _is_inside(target: str) -> bool:
    first, _, rest = target.partition(".")
    return first == "pluggy" or (first == "_pytest" and rest.partition(".")[0] not in _FOR_TYPES)


def _session(module: ast.Module) -> Iterator[Seen]:
    """Yield what plugs into pytest, changes it, or ends its session."""
    undone = any(isinstance(node, ast.Attribute) and node.attr in ("undo", "context") for node in ast.walk(module))
    for statement in module.body:
        if isinstance(statement, ast.Assign) and _PATCH.match(ast.unparse(statement.value)):
            yield Seen(MUTATION, statement.lineno, ast.unparse(statement.value)[:160])
    for node in ast.walk(module):
        line = getattr(node, "lineno", 1)
        if isinstance(node, ast.Attribute) and node.attr == "pluginmanager":
            yield Seen(SESSION, line, ast.unparse(node)[:160])
        elif (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name.startswith("pytest_")
            and node.name != _IN_MODULES
        ):
            yield Seen(SESSION, line, f"def {node.name}")
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == "pytest_plugins":
            yield Seen(SESSION, line, "pytest_plugins")
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if _PATCH.match(called) and called.endswith((".start", ".__enter__")):
                yield Seen(MUTATION, line, ast.unparse(node)[:160])
            elif called in _ENDING or (called.endswith("MonkeyPatch") and not undone) or _patches_pytest(called, node):
                yield Seen(SESSION, line, ast.unparse(node)[:160])
        elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            changed = ast.unparse(node)
            found = [f"a change of {changed}"[:160]] if _OF_SESSION.match(changed) else []
            yield from (Seen(SESSION, line, each) for each in found)


def _patches_pytest(called: str, node: ast.Call) -> bool:
    """Whether pytest itself is patched, with whatever tool."""
    if not re.search(r"(?:setattr|setitem|delattr|delitem|patch|patch\.object)$", called) or not node.args:
        return False
    first = node.args[0]
    name = first.value if isinstance(first, ast.Constant) else ast.unparse(first)
    return re.match(r"_?pytest\b|pluggy\b", str(name)) is not None


def _skipped(module: ast.Module) -> Iterator[Seen]:
    """Yield marks and calls by which tests are skipped, or may fail, whatever the machine is like."""
    for node in ast.walk(module):
        marks: list[ast.expr] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            marks = list(node.decorator_list)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
                yield from _at_once(node.body)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {each.id for each in targets if isinstance(each, ast.Name)}
            if "pytestmark" in names:
                marks = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
            elif names & {"__test__", "collect_ignore", "collect_ignore_glob"}:
                yield Seen(SKIPPED, node.lineno, ast.unparse(node)[:160])
        elif isinstance(node, ast.keyword) and node.arg == "marks":
            marks = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
        for mark in marks:
            if _always(mark):
                yield Seen(SKIPPED, mark.lineno, ast.unparse(mark)[:160])
    yield from _at_once(module.body)


def _always(mark: ast.expr) -> bool:
    """Whether a mark skips its test, or lets it fail, without a condition that could be false."""
    call = mark if isinstance(mark, ast.Call) else None
    name = ast.unparse(call.func if call else mark).rpartition(".")[2]
    conditions = [*call.args, *(each.value for each in call.keywords if each.arg == "condition")] if call else []
    if name == "skip":
        return True
    if name == "xfail":
        return not conditions or _is_true(conditions[0])
    if name in ("skipif", "skipIf", "skipUnless"):
        return bool(conditions) and (_is_true(conditions[0]) if name != "skipUnless" else _is_false(conditions[0]))
    empty = (
        call is not None
        and len(call.args) > 1
        and isinstance(call.args[1], ast.List | ast.Tuple)
        and not call.args[1].elts
    )
    return name == "parametrize" and empty


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and bool(node.value) and node.value not in ("False", "0")


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def _at_once(body: list[ast.stmt]) -> Iterator[Seen]:
    """Yield a skip that stands in a body itself, under no condition."""
    for node in body:
        call = node.value if isinstance(node, ast.Expr) else node.exc if isinstance(node, ast.Raise) else None
        if not isinstance(call, ast.Call | ast.Name | ast.Attribute):
            continue
        name = ast.unparse(call.func if isinstance(call, ast.Call) else call)
        if re.fullmatch(
            r"(?:pytest\.)?(?:skip|xfail)|pytest\.(?:skip|xfail)\.Exception|(?:unittest\.)?SkipTest|self\.skipTest",
            name,
        ):
            yield Seen(SKIPPED, node.lineno, ast.unparse(call)[:160])


def _tests(body: list[ast.stmt], around: str) -> set[str]:
    """Return the names of the tests of a body; one that is deleted or bound anew is none."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            found.add(around + node.name)
        elif isinstance(node, ast.ClassDef):
            found |= _tests(node.body, f"{around}{node.name}.")
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.For):
            found |= _tests([*node.body, *getattr(node, "orelse", ()), *getattr(node, "finalbody", ())], around)
        elif isinstance(node, ast.Delete | ast.Assign | ast.AnnAssign):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            found -= {around + each.id for each in targets if isinstance(each, ast.Name)}
    return found
