"""Which statements may be added to a hook file without standing behind the opt-in: those that change nothing while it is off."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from gatekeeper.domain.guard_names import Elsewhere, Guard, Names
from gatekeeper.domain.hook_noticed import closed_class, lists_module
from gatekeeper.domain.hook_raising import Raising
from gatekeeper.domain.hook_scopes import Scope, new_name_fault
from gatekeeper.domain.hook_syntax import is_plain, is_quiet, key_of
from gatekeeper.domain.python_imports import import_targets, one_by_one

_BUILTIN_DECORATORS = {"staticmethod", "classmethod", "property"}
_IMPORTED_DECORATORS = {
    "contextlib.contextmanager", "functools.cached_property", "typing.override", "typing.overload",
    "typing_extensions.override", "typing_extensions.overload",
}  # fmt: skip


@dataclass(frozen=True)
class Additions:
    """Judges added statements of one hook file.

    ``known`` holds the stock file's words, which are not new names; ``bound`` whatever the file binds, builtins included.
    """

    path: str
    package: str
    names: Names
    stock_imports: dict[str, str]
    known: frozenset[str]
    bound: frozenset[str] = frozenset()
    elsewhere: Elsewhere = lambda _: False
    raising: Raising | None = None
    """Judges what is evaluated while the opt-in says no; None for the file as it was."""

    @property
    def guard(self) -> Guard | None:
        """The opt-in, or None if the manifest names none that could be used."""
        return self.names.guard

    def fault(self, node: ast.stmt, scope: Scope) -> str | None:
        """Return why an added statement may not stand unguarded, or None."""
        return scope.compile_time_fault(node, self.known) or self._fault(node, scope)

    def _fault(self, node: ast.stmt, scope: Scope) -> str | None:
        match node:
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                return None
            case ast.Import() | ast.ImportFrom():
                return self._import(node, scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return self._function(node, scope)
            case ast.ClassDef():
                return self._class(node, scope)
            case ast.Assign(targets=[target]):
                return self._assignment(target, node.value, scope, node)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                return self._assignment(target, value, scope, node) or self._annotation(node.annotation, node, scope)
            case ast.If():
                return self._if(node, scope)
            case ast.Try():
                return self._try(node, scope)
        return "it runs whether or not the opt-in said yes"

    def _body(self, body: list[ast.stmt], scope: Scope) -> str | None:
        return next((fault for each in body if (fault := self._fault(each, scope))), None)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> str | None:
        for one in one_by_one(node):
            name, target = next(import_targets(one, self.path))
            if name == "*":
                return "a star import binds names that nobody can see"
            if target == f"typing.{name}" == "typing.TYPE_CHECKING" and self._imported_alike(name, target):
                continue
            whole = target if isinstance(one, ast.ImportFrom) else one.names[0].name
            if not within(whole, self.package):
                return f"imports {whole}, which is not part of {self.package}"
            if scope.kind != "class" and name == target and self._imported_alike(name, target):
                continue  # `import a.b.c` binds `a`, as the stock file does already
            if fault := self._definition(name, scope):
                return fault
        return None

    def _imported_alike(self, name: str, target: str) -> bool:
        return name not in self.known or self.stock_imports.get(name) == target

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> str | None:
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every.extend(one for one in (arguments.vararg, arguments.kwarg) if one)
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default and not is_plain(default):
                return "a default argument runs code when the function is defined"
            if default and (fault := self._raises(default, node, scope)):
                return fault
        annotations = [*(argument.annotation for argument in every), node.returns]
        fault = next((fault for each in annotations if each and (fault := self._annotation(each, node, scope))), None)
        return fault or self._decorators(node, scope) or self._definition(node.name, scope)

    def _class(self, node: ast.ClassDef, scope: Scope) -> str | None:
        if node.keywords or not all(is_plain(base) for base in node.bases):
            return "the class statement runs code of its own (keywords, metaclass or computed bases)"
        if len(node.bases) > 1:
            return "a class with several bases may not fit together"
        registers = bool(node.bases) and self.elsewhere("__init_subclass__")
        fault = next(
            (
                fault
                for base in node.bases
                if self.raising and (fault := self.raising.base(base, node, scope, registers))
            ),
            None,
        )
        if fault := fault or self._decorators(node, scope) or self._definition(node.name, scope):
            return fault
        own = Scope("own class", caught=scope.caught)
        for each in node.body:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                # Names inside a class of one's own are one's own; only what runs at definition counts.
                fault = self._function(each, own)
            elif isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant):
                fault = None
            elif isinstance(each, ast.AnnAssign) and (each.value is None or isinstance(each.value, ast.Constant)):
                fault = self._annotation(each.annotation, each, own)
            else:
                quiet = isinstance(each, ast.Pass) or (
                    isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
                )
                fault = None if quiet else "the class body runs code"
            if fault:
                return fault
        return None

    def _decorators(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, scope: Scope) -> str | None:
        for each in node.decorator_list:
            builtin = (
                isinstance(each, ast.Name) and each.id in _BUILTIN_DECORATORS and each.id not in self.names.imports
            )
            if not builtin and self.names.dotted(each) not in _IMPORTED_DECORATORS:
                return f"the decorator {ast.unparse(each)} runs when the name is defined"
            first = each.value if isinstance(each, ast.Attribute) else each
            if fault := self._raises(first, node, scope):
                return fault
        return None

    def _annotation(self, node: ast.expr, at: ast.stmt, scope: Scope) -> str | None:
        allowed = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.Tuple, ast.List, ast.BinOp, ast.BitOr,
                   ast.expr_context)  # fmt: skip
        odd = any(not isinstance(inner, allowed) for inner in ast.walk(node))
        if odd:
            return "an annotation runs code"
        never = self.late_annotations or (scope.kind == "function" and isinstance(at, ast.AnnAssign))
        return None if never or scope.caught or self.raising is None else self.raising.annotation(node, at, scope)

    @property
    def late_annotations(self) -> bool:
        """Whether annotations of this file are texts, which nobody evaluates as it is loaded."""
        return self.stock_imports.get("annotations") == "__future__.annotations"

    def _raises(self, node: ast.expr, at: ast.stmt, scope: Scope) -> str | None:
        """Return a fault if evaluating an expression could raise while the opt-in says no."""
        return None if scope.caught or self.raising is None else self.raising.fault(node, at, scope)

    def _assignment(self, target: ast.expr, value: ast.expr, scope: Scope, at: ast.stmt) -> str | None:
        key = key_of(target)
        if key is None:
            return "it assigns to something else than one new name"
        if scope.kind == "class":
            return "it adds an attribute to a stock class"
        constant = isinstance(value, ast.Constant)
        if not constant and not self.names.is_value(value):
            return "it assigns something else than the guard's answer, None or a constant"
        if fault := self._raises(value, at, scope):
            return fault
        if key.attribute:
            closed = closed_class(self.raising.stock, scope.owner) if self.raising else None
            return closed or self._member(key.name, scope)
        return self._new_name(key.name, scope)

    def _new_name(self, name: str, scope: Scope) -> str | None:
        fault = new_name_fault(name, self.known)
        if fault or self.raising is None:
            return fault
        if scope.kind == "function" and scope.listed:
            return f"the stock function looks at all of its names, and would find {name}"
        if scope.kind == "module" and lists_module(self.raising.stock):
            return f"the stock file looks at all of its names as it is loaded, and would find {name}"
        return None

    def _definition(self, name: str, scope: Scope) -> str | None:
        if scope.kind == "own class":
            return None
        return self._member(name, scope) if scope.kind == "class" else self._new_name(name, scope)

    def _member(self, name: str, scope: Scope) -> str | None:
        """A new member of a stock class. Where that inherits, the name must carry a word of the directory's name."""
        fault = new_name_fault(name, self.known)
        if fault:
            return fault
        if self.elsewhere(name):
            return f"other files of the repository speak of {name}; expected a name that is new to all of it"
        if not scope.inherits:
            return None
        words = [word for word in self.package.rpartition(".")[2].split("_") if len(word) >= 4]
        if not any(word in name.casefold() and word != name.casefold() for word in words):
            return f"{name} could replace something inherited; expected a name that holds {' or '.join(words)}"
        return None

    def _if(self, node: ast.If, scope: Scope) -> str | None:
        if self.names.dotted(node.test) == "typing.TYPE_CHECKING" and scope.kind == "module":
            if all(isinstance(each, ast.Import | ast.ImportFrom) for each in node.body):
                return self._body(node.orelse, scope)
            return "a TYPE_CHECKING block holds imports only"
        if self.names.is_test(node.test):
            fault = self._raises(node.test, node, scope) or self._walrus(node.test, scope)
            return fault or self._body(node.orelse, scope)
        if is_quiet(node.test):
            return self._raises(node.test, node, scope) or self._body([*node.body, *node.orelse], scope)
        return f"`if {ast.unparse(node.test)[:80]}` is not a test of the opt-in"

    def _walrus(self, test: ast.expr, scope: Scope) -> str | None:
        bound = [inner.target.id for inner in ast.walk(test) if isinstance(inner, ast.NamedExpr)]
        return next((fault for name in bound if (fault := self._definition(name, scope))), None)

    def _try(self, node: ast.Try, scope: Scope) -> str | None:
        for handler in node.handlers:
            if handler.type is not None and not is_plain(handler.type):
                return "an except clause runs code"
            # The name is bound when the clause begins and unbound when it ends.
            if handler.type is not None and (fault := self._raises(handler.type, node, scope)):
                return fault
            if handler.name and (fault := self._definition(handler.name, scope)):
                return fault
        inside = replace(scope, caught=scope.caught or any(_catches_all(handler) for handler in node.handlers))
        blocks = (*(handler.body for handler in node.handlers), node.orelse, node.finalbody)
        return self._body(node.body, inside) or next(
            (fault for block in blocks if (fault := self._body(block, scope))), None
        )


def _catches_all(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or (
        isinstance(handler.type, ast.Name) and handler.type.id in ("Exception", "BaseException")
    )


def within(dotted: str, package: str) -> bool:
    """Whether a dotted name is a package or lies in it."""
    return dotted == package or dotted.startswith(package + ".")
