"""Hook files: does a change leave every stock statement as it was, and does all that it adds stay behind the opt-in?

Old and new file are compared as syntax trees, body by body. A branch that tests the opt-in is taken out and its ``else`` part
put in its place, which is what runs while the opt-in says no; what then remains must be the stock statements, in their order,
plus statements that change nothing (see :mod:`~gatekeeper.domain.hook_additions`).
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

from gatekeeper.domain.alignment import Aligned, TooMuch, align
from gatekeeper.domain.documents import Value
from gatekeeper.domain.guard_names import Elsewhere, Guard, Names, names_of
from gatekeeper.domain.hook_additions import Additions, within
from gatekeeper.domain.hook_bound import Bound
from gatekeeper.domain.hook_raising import Raising
from gatekeeper.domain.hook_scopes import Scope, all_bound, attributes, bound_names, known_names
from gatekeeper.domain.python_imports import one_by_one
from gatekeeper.domain.python_source import compiles, foreign_encoding, parse_python

LARGEST = 1024 * 1024
MOST_FAULTS = 20
_BLOCKS = ("body", "orelse", "finalbody")


class HookFault(Value):
    """One statement that is not as it may be. ``line`` counts from 1 in the new file."""

    line: int
    expected: str
    found: str
    message: str


@dataclass(frozen=True)
class _Item:
    """One statement of a flattened body. ``ours`` marks a branch behind the opt-in."""

    node: ast.stmt
    key: str
    ours: bool = False


@dataclass
class _Comparing:
    old_lines: list[str]
    new_lines: list[str]
    stock: Additions
    added: Additions
    new_words: frozenset[str] = frozenset()
    bound_now: frozenset[str] = frozenset()
    faults: list[HookFault] = field(default_factory=list)

    def report(self, line: int, message: str, expected: str, found: str) -> None:
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(HookFault(line=max(line, 1), message=message, expected=expected, found=found))

    def bodies(self, old: list[ast.stmt], new: list[ast.stmt], scope: Scope, end: int) -> None:
        """Compare two bodies of the same scope; ``end`` is the line to name where the new one is short."""
        olds, news = list(_flat(old, self.stock.names)), list(_flat(new, self.added.names))
        for item in news:
            if item.ours and item.key not in {one.key for one in olds}:
                self._behind_the_guard(item, scope)
        at_old = at_new = 0
        for old_to, new_to in [*align(_aligned(olds), _aligned(news)), (len(olds), len(news))]:
            line = news[at_new].node.lineno if at_new < len(news) else end
            self._replaced(olds[at_old:old_to], news[at_new:new_to], scope, line)
            if old_to < len(olds) and not olds[old_to].ours:
                self._inside(olds[old_to].node, news[new_to].node, scope)
            at_old, at_new = old_to + 1, new_to + 1

    def _behind_the_guard(self, item: _Item, scope: Scope) -> None:
        branch = item.node
        assert isinstance(branch, ast.If)
        parts: list[ast.expr | ast.stmt] = [branch.test, *branch.body]
        for part in parts:
            if fault := scope.compile_time_fault(part, self.added.known):
                self.report(part.lineno, f"a guarded statement {fault}", "no effect while the opt-in says no",
                            _text(self.new_lines, part))  # fmt: skip
        if fault := self.added.fault(_without_else(branch), scope):
            self.report(branch.lineno, fault, "a test of the opt-in", _text(self.new_lines, branch))

    def _replaced(self, olds: list[_Item], news: list[_Item], scope: Scope, line: int) -> None:
        gone = [item.node for item in olds if not item.ours and not self._may_go(item.node, scope)]
        wrong = [(item.node, fault) for item in news if not item.ours and (fault := self.added.fault(item.node, scope))]
        for place, node in enumerate(gone):
            if place < len(wrong):
                at, expected, found = self._first_difference(node, wrong[place][0])
                self.report(at, "a stock statement is changed", expected, found)
            else:
                self.report(line, "a stock statement is removed", _text(self.old_lines, node), "nothing")
        for node, fault in wrong[len(gone) :]:
            self.report(node.lineno, f"an added statement is not behind the opt-in: {fault}",
                        "inside an `if` on the guard's answer", _text(self.new_lines, node))  # fmt: skip

    def _first_difference(self, old: ast.stmt, new: ast.stmt) -> tuple[int, str, str]:
        """Return (line in the new file, old line, new line) of the first lines in which two statements differ."""
        olds, news = _lines(self.old_lines, old), _lines(self.new_lines, new)
        at = next((at for at, (left, right) in enumerate(zip(olds, news, strict=False)) if left != right), 0)
        return _first_line(new) + at, olds[at][:160], news[at][:160]

    def _may_go(self, node: ast.stmt, scope: Scope) -> bool:
        """Whether a statement of the old file is one of our own earlier additions that nothing uses any more."""
        if isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            return True  # docstrings are compared by themselves
        ours = False
        if isinstance(node, ast.Import | ast.ImportFrom):
            ours = self.stock.fault(node, scope) is None
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            ours = self.stock.names.is_test(node.value)
        names = {name for inner in ast.walk(node) for name in bound_names(inner)}
        return ours and not (names & self.new_words) - self.bound_now

    def _inside(self, old: ast.stmt, new: ast.stmt, scope: Scope) -> None:
        """Compare what a pair of statements with equal headings holds."""
        if ast.dump(old) == ast.dump(new):
            return
        self.docstring(old, new)
        inner = scope.inside(old)
        end = new.end_lineno or new.lineno
        for name in _BLOCKS:
            self.bodies(getattr(old, name, []), getattr(new, name, []), inner, end)
        for group in ("handlers", "cases"):
            for left, right in zip(getattr(old, group, []), getattr(new, group, []), strict=True):
                self.bodies(left.body, right.body, inner, end)

    def docstring(self, old: ast.AST, new: ast.AST) -> None:
        """Report a docstring that is not as it was: programs print these, and some decide by them."""
        documented = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        if not isinstance(new, documented) or not isinstance(old, documented):
            return
        before, after = ast.get_docstring(old, clean=False), ast.get_docstring(new, clean=False)
        if before != after:
            line = new.body[0].lineno if after is not None else getattr(new, "lineno", 1)
            shown = [repr(text)[:160] if text is not None else "no docstring" for text in (before, after)]
            self.report(line, "stock code gets another docstring", *shown)


def judge_hook(
    old: bytes,
    new: bytes,
    path: str,
    guard: Guard | None,
    package: str,
    elsewhere: Elsewhere = lambda _: False,
    asked: ast.arguments | None = None,
) -> tuple[HookFault, ...]:
    """Compare the old and new bytes of a hook file at ``path``; return what is wrong, at most :data:`MOST_FAULTS` faults.

    ``package`` is the dotted name of the specialised directory. Without a ``guard`` nothing can stand behind one. ``elsewhere``
    answers for the rest of the repository, ``asked`` are the arguments that the guard takes.
    """
    trees = []
    for data, what in ((old, "before the change"), (new, "after the change")):
        tree = _parsed(data, what)
        if isinstance(tree, HookFault):
            return (tree,)
        trees.append(tree)
    try:
        return tuple(_compared(trees[0], trees[1], (old, new), path, guard, package, elsewhere, asked))
    except (RecursionError, MemoryError):
        found = ("nested too deeply to be judged", "ordinary nesting", "deeper")
    except TooMuch as error:
        found = ("too many statements differ", "an addition to the stock file", str(error))
    except ValueError as error:  # for example a number with too many digits to be written out
        found = ("a statement cannot be read", "ordinary Python", str(error)[:200])
    return (HookFault(line=1, message=found[0], expected=found[1], found=found[2]),)


def _compared(
    before: ast.Module, after: ast.Module, data: tuple[bytes, bytes], path: str, guard: Guard | None, package: str,
    elsewhere: Elsewhere, asked: ast.arguments | None,
) -> list[HookFault]:  # fmt: skip
    known, bound = known_names(before), all_bound(after)
    stock = names_of(before, path, guard, elsewhere=elsewhere)
    names = names_of(after, path, guard, stock=stock, stock_words=known, elsewhere=elsewhere)
    raising = Raising(names, Bound(after), before, known, attributes(before), asked)
    comparing = _Comparing(
        _split(data[0]), _split(data[1]),
        Additions(path, package, stock, {}, frozenset(), all_bound(before)),
        Additions(path, package, names, stock.imports, known, bound, elsewhere, raising),
        new_words=known_names(after), bound_now=bound,
    )  # fmt: skip
    comparing.docstring(before, after)
    comparing.bodies(before.body, after.body, Scope(), end=data[1].count(b"\n") + 1)
    return comparing.faults


def _parsed(data: bytes, what: str) -> ast.Module | HookFault:
    def fault(message: str, expected: str, found: str, line: int = 1) -> HookFault:
        return HookFault(line=max(line, 1), message=f"the hook file {message} {what}", expected=expected, found=found)

    if len(data) > LARGEST:
        return fault("is too large", f"at most {LARGEST} bytes", f"{len(data)} bytes")
    if cookie := foreign_encoding(data):
        return fault("names an encoding", "UTF-8", cookie[1], cookie[0])
    try:
        data.decode("utf-8")
        tree = parse_python(data)
        # Some errors, such as a late `from __future__`, are found only by the compiler. Nothing is run.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiles(data, "hook")
        return tree
    except SyntaxError as error:
        return fault("does not parse", "Python that this gate can parse", str(error.msg), error.lineno or 1)
    except (ValueError, RecursionError, MemoryError) as error:
        return fault("cannot be read", "Python in UTF-8", f"{type(error).__name__}: {error}"[:200])


def _flat(body: list[ast.stmt], names: Names) -> Iterator[_Item]:
    """Yield a body's statements: branches behind the opt-in by themselves, imports one alias at a time."""
    for node in body:
        if isinstance(node, ast.If) and names.is_test(node.test):
            yield _Item(node, "ours " + ast.dump(_without_else(node)), ours=True)
            yield from _flat(node.orelse, names)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (_Item(one, ast.dump(one)) for one in one_by_one(node))
        else:
            yield _Item(node, _heading(node))


def _aligned(items: list[_Item]) -> list[Aligned]:
    return [Aligned(item.key, item.key if item.ours else ast.dump(item.node)) for item in items]


def _without_else(node: ast.If) -> ast.If:
    return ast.copy_location(ast.If(test=node.test, body=node.body, orelse=[]), node)


def _heading(node: ast.stmt) -> str:
    """Return a text that is equal for two statements whose own parts, bodies aside, are equal."""
    if not hasattr(node, "body") and not hasattr(node, "cases"):
        return ast.dump(node)
    parts = [type(node).__name__]
    for name, value in ast.iter_fields(node):
        if name in _BLOCKS:
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.ExceptHandler):
                parts.append(f"{ast.dump(each.type) if each.type else ''} as {each.name}")
            elif isinstance(each, ast.match_case):
                parts.append(ast.dump(each.pattern) + (ast.dump(each.guard) if each.guard else ""))
            else:
                parts.append(ast.dump(each) if isinstance(each, ast.AST) else f"{name}={each!r}")
    return " ".join(parts)


def _split(data: bytes) -> list[str]:
    return data.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _lines(lines: list[str], node: ast.stmt) -> list[str]:
    return [line.strip() for line in lines[_first_line(node) - 1 : node.end_lineno]] or [""]


def _text(lines: list[str], node: ast.AST | None) -> str:
    line = getattr(node, "lineno", 0)
    return lines[line - 1].strip()[:160] if 0 < line <= len(lines) else ""


def guard_of(entry: str, package: str) -> Guard | None:
    """Return the guard that ``module:function`` names, if it lies in ``package``; else None."""
    module, _, function = entry.partition(":")
    return Guard(package, module, function) if function and within(module, package) else None
