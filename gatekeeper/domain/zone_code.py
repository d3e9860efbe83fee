"""What Python of a specialised directory does beyond it: changes of foreign objects, code from data, work that nobody called for.

A reading of the text: it names the careless and the plain, early and with a line. Whoever wants to can write around it, which
is why nothing trusted ever shares a process with this code, and why the probe looks at what really happened.
"""

from __future__ import annotations

import ast
import io
import re
import string
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field

from gatekeeper.domain import risky_names as risky
from gatekeeper.domain.hook_additions import within
from gatekeeper.domain.hook_scopes import Function, own_nodes
from gatekeeper.domain.import_graph import imports_of
from gatekeeper.domain.python_imports import import_targets
from gatekeeper.domain.python_source import parse_python
from gatekeeper.domain.zone_names import BUILTINS, IMPORTS, Meanings

_ENCODED = re.compile(r"[A-Za-z0-9+/=_-]+")
_HEXADECIMAL = re.compile(r"[0-9A-Fa-fx\\,\s]+")
_LONGEST = 1000
"""Characters of encoded data (pairs of digits, for hexadecimal) in one text that nobody need ask about."""
_MOST = 50
_TELLING = {ast.Attribute, ast.Subscript, ast.Call, ast.Import, ast.ImportFrom, ast.Constant, ast.AugAssign}
_HOLDING = {ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp,
            ast.GeneratorExp}  # fmt: skip
_HANDED = {"exec", "eval", "compile", "__import__", "setattr", "delattr"}
_BUILT = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
_WRITING = re.compile("[wax+]")


@dataclass(frozen=True)
class Seen:
    """One place: its reason code, line, and what stands there."""

    code: str
    line: int
    found: str


@dataclass
class Reading:
    """What one file does. ``imports`` holds (dotted target, line) of every import, by statement and by call."""

    seen: list[Seen] = field(default_factory=list)
    imports: list[tuple[str, int]] = field(default_factory=list)
    names: list[Seen] = field(default_factory=list)
    """Names with letters that look like others."""
    unread: str | None = None
    """Why the file could not be read; None if it could."""


def read_code(source: bytes, path: str, package: str) -> Reading:
    """Read a Python file at ``path`` in the directory of dotted name ``package``.

    One that does not parse shows nothing but why; one nested too deeply to be read shows its imports.
    """
    try:
        module = parse_python(source)
        scan = _Scan(path, package, list(_asleep(module)))
        scan.scope(module.body, set(), at_import=True)
        scan.reading.names = list(_odd_names(source))[:_MOST]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Reading(imports=list(imports_of(source, path)), unread=_why(error))
    scan.reading.imports.sort(key=lambda each: each[1])
    scan.reading.seen = sorted(set(scan.reading.seen), key=lambda each: (each.line, each.code, each.found))[:_MOST]
    return scan.reading


class _Scan:
    def __init__(self, path: str, package: str, asleep: list[tuple[int, int]]) -> None:
        self.path = path
        self.asleep = asleep
        self.at_import = True
        self.package = package
        self.reading = Reading()
        self._meanings = Meanings(path)

    def scope(self, body: list[ast.stmt], arguments: set[str], *, at_import: bool = False) -> None:
        """Read one module, class or function, then what is defined inside it. ``at_import``: it runs as the file is loaded."""
        nodes = list(own_nodes(list(body)))
        self.at_import = at_import
        self._meanings.enter(nodes, arguments)
        for node in nodes:
            if type(node) in _TELLING:
                self._node(node)
        for node in nodes:
            if type(node) not in _HOLDING:
                continue
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                every = {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
                self._outer(node)
                self.scope(node.body if not isinstance(node, ast.Lambda) else [ast.Expr(node.body)], every)
            elif isinstance(node, ast.ClassDef):
                self._outer(node)
                self.scope(node.body, set(), at_import=at_import)
            elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
                self._inner(node)
            self.at_import = at_import
        self._meanings.leave()

    def _outer(self, node: Function | ast.Lambda | ast.ClassDef) -> None:
        """Read what belongs to a definition but runs around it: decorators, defaults, bases."""
        parts: list[ast.expr] = [] if isinstance(node, ast.Lambda) else list(node.decorator_list)
        if isinstance(node, ast.ClassDef):
            parts += [*node.bases, *(keyword.value for keyword in node.keywords)]
            self._inherits(node)
        else:
            parts += [*node.args.defaults, *(default for default in node.args.kw_defaults if default)]
        for part in parts:
            self._inner(part)

    def _inner(self, node: ast.AST) -> None:
        for inner in ast.walk(node):
            self._node(inner)

    def _inherits(self, node: ast.ClassDef) -> None:
        for base in node.bases:
            name = self._meanings.dotted(base) or ""
            if name in risky.TORCH_MODES or name in risky.BACKGROUND:
                code = "EFF_TORCH_MODE" if name in risky.TORCH_MODES else "EFF_BACKGROUND_WORK"
                self._note(code, node, f"class {node.name}({name})")

    def _foreign(self, node: ast.AST) -> str | None:
        """Return the dotted name of something that belongs to somebody else, or None."""
        target = self._meanings.dotted(node)
        if target is None or target in BUILTINS or within(target.partition("[")[0], self.package):
            return None
        return target

    def _note(self, code: str, node: ast.AST, found: str | None = None) -> None:
        """Remember a sight; without ``found`` the node itself is shown. Only here is it spelt out: most calls are harmless."""
        self.reading.seen.append(Seen(code, getattr(node, "lineno", 1), (found or ast.unparse(node))[:160]))

    def _node(self, node: ast.AST) -> None:
        if type(node) not in _TELLING:
            return
        if isinstance(node, ast.Attribute | ast.Subscript):
            if not isinstance(node.ctx, ast.Load) and (self._foreign(node.value) or _is_ancestor(node.value)):
                self._note("ISO_FOREIGN_MUTATION", node, f"a change of {ast.unparse(node)}")
        elif isinstance(node, ast.Call):
            self._call(node)
        elif isinstance(node, ast.Import):
            self.reading.imports.extend((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            self.reading.imports.extend((target, node.lineno) for _, target in import_targets(node, self.path))
        elif isinstance(node, ast.AugAssign):
            built = isinstance(node.op, ast.BitOr) or isinstance(node.value, _BUILT)
            if built and isinstance(node.target, ast.Name) and self._foreign(node.target):
                self._note("ISO_FOREIGN_MUTATION", node)  # in place, where it is a table or a list
        elif isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            if _is_opaque(text):
                self._note("SRC_OPAQUE_DATA", node, f"a text of {len(text)} characters that holds encoded data")

    def _call(self, node: ast.Call) -> None:
        for each in node.args:
            if isinstance(each, ast.Name) and each.id in _HANDED:
                self._handed(self._meanings.dotted(each), node)
        called = self._meanings.dotted(node.func)
        if called is None:
            if self._enters(node.func):
                self._note("EFF_TORCH_MODE", node)
            return
        called = called.removeprefix("builtins.")
        if called in risky.CHANGES_FIRST:
            if node.args and self._foreign(node.args[0]):
                self._note("ISO_FOREIGN_MUTATION", node)
        elif called in IMPORTS:
            self._imported(node)
        elif code := self._code_of(called, node):
            self._note(code, node)

    def _handed(self, name: str | None, node: ast.Call) -> None:
        """Note a builtin that is handed to somebody else, who will call it: ``map(exec, texts)``, ``partial(setattr, module)``."""
        if name in risky.RUNS_CODE:
            self._note("SRC_DYNAMIC_CODE", node)
        elif name in risky.CHANGES_FIRST and any(self._foreign(each) for each in _flat(node.args)):
            self._note("ISO_FOREIGN_MUTATION", node)

    def _code_of(self, called: str, node: ast.Call) -> str | None:
        """Return the reason code of a call of something foreign, or None."""
        base, _, last = called.rpartition(".")
        if _listed(called, risky.UNSAFE_LOADS):
            return "SRC_UNSAFE_LOAD"
        if _listed(called, risky.RUNS_CODE):
            return "SRC_DYNAMIC_CODE"
        if called in risky.PROCESS_WIDE or self._overrides(called, node) or self._changes_container(node, base, last):
            return "ISO_FOREIGN_MUTATION"
        if _listed(called, risky.BACKGROUND):
            return "EFF_BACKGROUND_WORK"
        if called in risky.TORCH_MODES:
            return "EFF_TORCH_MODE"
        awake = self.at_import and not any(first <= node.lineno <= last for first, last in self.asleep)
        return "EFF_IMPORT_SIDE_EFFECT" if awake and _works(called, node) else None

    def _enters(self, function: ast.expr) -> bool:
        """Whether ``f().__enter__`` of something of PyTorch is called by hand: then nobody leaves it."""
        if not isinstance(function, ast.Attribute) or function.attr != "__enter__":
            return False
        entered = function.value.func if isinstance(function.value, ast.Call) else function.value
        return (self._meanings.dotted(entered) or "").startswith("torch.")

    def _changes_container(self, node: ast.Call, base: str, method: str) -> bool:
        """Whether a call looks like one of a list's or table's methods on something foreign that is no module itself."""
        fewest, most = risky.CHANGES_CONTAINER.get(method, (1, 0))
        if not fewest <= len(node.args) <= most or within(base.partition("[")[0], self.package):
            return False
        return "." in base and base not in self._meanings.modules

    def _imported(self, node: ast.Call) -> None:
        name = node.args[0] if node.args else None
        if isinstance(name, ast.Constant) and isinstance(name.value, str) and not name.value.startswith("."):
            self.reading.imports.append((name.value, node.lineno))
        elif not _is_below(name):
            self._note("SRC_DYNAMIC_CODE", node)

    def _overrides(self, called: str, node: ast.Call) -> bool:
        """Whether a call gives one of PyTorch's own operators another implementation."""
        if called.endswith(".py_impl"):
            return _stock_operator(called.removeprefix("torch.ops.").replace(".", "::", 1), called)
        if not called.startswith("torch.library."):
            return False
        named = [keyword.value for keyword in node.keywords if keyword.arg in ("ns", "qualname", "name", "op", "lib")]
        for each in (*node.args[:1], *named):
            dotted = self._meanings.dotted(each) or ""
            text = (
                each.value
                if isinstance(each, ast.Constant)
                else dotted.removeprefix("torch.ops.").replace(".", "::", 1)
            )
            if _stock_operator(str(text), dotted or "torch.ops."):
                return True
        return False


def _is_ancestor(node: ast.AST) -> bool:
    """Whether something is reached through the bases of a class: ``A.__mro__[1]``, ``A.__base__``."""
    reached = node.value if isinstance(node, ast.Subscript) else node
    return isinstance(reached, ast.Attribute) and reached.attr in ("__mro__", "__bases__", "__base__")


def _flat(values: list[ast.expr]) -> Iterator[ast.expr]:
    for each in values:
        yield from each.elts if isinstance(each, ast.Tuple | ast.List) else (each,)


def _stock_operator(name: str, dotted: str) -> bool:
    return dotted.startswith("torch.ops.") and name.partition("::")[0] in risky.STOCK_OPERATORS


def _works(called: str, node: ast.Call) -> bool:
    """Whether a call does something that nobody who only imports the file has asked for."""
    if called in ("open", "io.open"):
        given = [*node.args[1:2], *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
        return any(isinstance(each, ast.Constant) and _WRITING.search(str(each.value)) for each in given)
    if called in risky.TENSOR_MAKERS:
        devices = (keyword.value for keyword in node.keywords if keyword.arg == "device")
        return any(isinstance(each, ast.Constant) and str(each.value).startswith("cuda") for each in devices)
    return _listed(called, risky.IMPORT_WORK)


def _asleep(module: ast.Module) -> Iterator[tuple[int, int]]:
    """Yield the lines (first, last) of what does not run when the file is imported: for type checkers, or as a program."""
    for node in module.body:
        if isinstance(node, ast.If):
            test = ast.unparse(node.test)
            if test.endswith("TYPE_CHECKING") or re.fullmatch(r"__name__ == '__main__'|'__main__' == __name__", test):
                yield node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno


def _why(error: BaseException) -> str:
    return (
        f"line {error.lineno}: {error.msg}"[:160]
        if isinstance(error, SyntaxError)
        else "nested too deeply, or a zero byte"
    )


def _is_opaque(text: str) -> bool:
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


def _odd_names(source: bytes) -> Iterator[Seen]:
    """Yield the names of a file as they are written (Python normalises them) that are not all ASCII."""
    if source.isascii():
        return
    try:
        for token in tokenize.tokenize(io.BytesIO(source).readline):
            if token.type == tokenize.NAME and not token.string.isascii():
                yield Seen("SRC_HIDDEN_TEXT", token.start[0], f"{token.string} = {token.string!a}"[:160])
    except (tokenize.TokenError, SyntaxError):
        return


def _is_below(name: ast.expr | None) -> bool:
    """Whether the name of an imported module begins in the importing package: ``".x"``, ``f".x_{n}"`` or ``f"{__package__}.x"``."""
    parts = name.values if isinstance(name, ast.JoinedStr) else [name] if name else []
    pattern, first = r"\.[A-Za-z_]", parts[0] if parts else None
    if isinstance(first, ast.FormattedValue) and isinstance(first.value, ast.Name):
        own = first.value.id in ("__package__", "__name__")
        pattern, first = r"\.", parts[1] if own and len(parts) > 1 else None
    return isinstance(first, ast.Constant) and re.match(pattern, str(first.value)) is not None


def _listed(called: str, names: frozenset[str]) -> bool:
    parts = called.split(".")
    return any(".".join(parts[:depth]) in names for depth in range(1, len(parts) + 1))


EXPLAINED = {
    "ISO_FOREIGN_MUTATION": ("something outside the directory is changed", "changes of one's own objects only"),
    "SRC_DYNAMIC_CODE": ("code that cannot be read here is run", "code that lies in this directory, as Python"),
    "SRC_UNSAFE_LOAD": ("data is loaded in a way that may run code", "data as JSON"),
    "SRC_OPAQUE_DATA": ("a text that nobody can read", "source, or data in a file of its own"),
    "EFF_BACKGROUND_WORK": ("work that goes on after the call", "work that is done when the call returns"),
    "EFF_TORCH_MODE": ("a mode that answers for every operator of the process", "operators as they are"),
    "EFF_IMPORT_SIDE_EFFECT": ("work that is done whenever the file is imported", "definitions; work inside functions"),
}
"""Reason code of what is seen to (message, expected)."""
ODD_NAME = ("a name with letters that look like others", "names of ASCII letters")
"""Message and expectation of a ``SRC_HIDDEN_TEXT`` among the names."""


def fresh(after: list[Seen], before: list[Seen]) -> Iterator[Seen]:
    """Yield what the new text of a file shows and the old one did not."""
    known = {(each.code, each.found) for each in before}
    yield from (each for each in after if (each.code, each.found) not in known)
