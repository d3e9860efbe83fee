"""Does who asks the guard get the function that was judged? On the way from the directory to it each name has one meaning.

``from a.b import gate`` takes what the package holds under that name before it looks for a file, and a module's attributes are
anybody's to set. So every package on the way binds the next name to its own submodule only, and no file of the directory puts
anything into the guard's module or function. Read off the text; the probe fetches the guard as the hook files do.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gatekeeper.domain.guard_places import Places
from gatekeeper.domain.hook_scopes import bound_names, own_nodes
from gatekeeper.domain.python_imports import import_targets, one_by_one
from gatekeeper.domain.python_source import parse_python
from gatekeeper.domain.source import SourceTree

_UNREADABLE = (KeyError, SyntaxError, ValueError, RecursionError, MemoryError)
_LARGEST = 1024 * 1024
_CHANGING = {"update", "setdefault", "pop", "popitem", "clear", "append", "insert", "extend", "remove", "reverse", "sort",
             "__setitem__", "__delitem__", "__ior__", "__iadd__", "__imul__"}  # fmt: skip
_SETTING = {"setattr", "delattr", "__setattr__", "__delattr__", "__set__", "__delete__", "partial", "methodcaller"}
_READING = {"getattr", "hasattr", "vars", "dir", "isinstance", "type", "id", "repr", "str", "print", "len", "list", "tuple", "sorted",
            "iter", "bool", "callable", "any", "all", "enumerate", "iter_modules", "walk_packages", "Path", "PurePath", "fspath",
            "files", "path", "getmodule", "getsource", "getsourcefile", "getfile", "getdoc", "signature", "getmembers",
            "dirname", "basename", "append", "import_module", "__import__"}  # fmt: skip
_OWN_TABLE = {"globals", "vars", "locals"}
_PLACE = {"__path__", "submodule_search_locations"}
_WORDS = (b"__path__", b"submodule_search_locations", b"sys", b"modules", b"import_module")
SHADOW = "the guard's name may stand for something else"
STORE = "something is put into the guard"
Found = tuple[str, int, str, str, str]
"""Path, line, message, expected, found."""


@dataclass(frozen=True)
class Way:
    """Where hook files pass on their way to the guard: packages with the name that each must hold, modules, functions."""

    packages: dict[str, str]
    modules: frozenset[str]
    functions: frozenset[str]

    @property
    def end(self) -> str:
        """The guard as hook files name it."""
        return min(self.functions, key=len)

    def guards(self, dotted: str) -> bool:
        """Whether giving the place ``dotted`` a value could give hook files another answer."""
        parent, _, name = dotted.rpartition(".")
        if any(dotted == each or dotted.startswith(each + ".") for each in self.functions):
            return True
        if parent in self.modules or any(dotted.startswith(f"{each}.__") for each in self.modules):
            return True
        if any(dotted.startswith(f"{package}.__") for package in self.packages):
            return True
        return self.packages.get(parent) == name

    def is_handed_out(self, dotted: str) -> bool:
        """Whether who holds ``dotted`` may change the guard by it."""
        tables = (f"{each}.__" for each in (*self.modules, *self.packages))
        return dotted in self.modules or dotted.startswith(tuple(tables))


def way_to(hops: Iterable[tuple[str, str]], package: str) -> Way:
    """Return the way to a function through ``hops``: the modules, each with the function's name there, below ``package``."""
    packages: dict[str, str] = {}
    modules, functions = set(), set()
    for module, function in hops:
        modules.add(module)
        functions.add(f"{module}.{function}")
        above = module
        while above != package and "." in above:
            above, _, name = above.rpartition(".")
            packages[above] = name
    return Way(packages, frozenset(modules), frozenset(functions))


def way_faults(tree: SourceTree, way: Way, package: str) -> Iterator[Found]:
    """Yield every place of the directory where the way to the guard could be bent."""
    words = {name.rpartition(".")[2].encode() for name in (*way.modules, *way.functions)} | set(_WORDS)
    for entry in tree.walk(package.replace(".", "/")):
        if entry.kind != "blob" or not entry.path.endswith(".py"):
            continue
        try:
            data = tree.read(entry.path)
            own = _module(entry.path)
            on_the_way = own in way.modules or own in way.packages
            if len(data) > _LARGEST or not (on_the_way or any(word in data for word in words)):
                continue
            parsed = parse_python(data)
        except _UNREADABLE:
            continue  # that it cannot be read is for others to say
        yield from _File(tree, way, parsed, entry.path, own).faults()


def _module(path: str) -> str:
    stem = path.removesuffix(".py").removesuffix("/__init__")
    return stem.replace("/", ".")


class _File:
    def __init__(self, tree: SourceTree, way: Way, module: ast.Module, path: str, own: str) -> None:
        self._tree = tree
        self._way = way
        self._module = module
        self._path = path
        self._own = own
        self._places = Places(module, path, own)
        self._is_a_test = path.rpartition("/")[2].startswith("test_")

    def _found(self, node: ast.AST, message: str, expected: str, found: str = "") -> Found:
        shown = found or ast.unparse(node)
        return self._path, getattr(node, "lineno", 1), message, expected, shown.partition("\n")[0][:160]

    def faults(self) -> Iterator[Found]:
        is_package = self._path.endswith("/__init__.py")
        if is_package and self._own in self._way.packages:
            yield from self._bindings(self._own, self._way.packages[self._own])
        if self._own in self._way.modules or self._own in self._way.packages:
            yield from self._own_table()
        yield from self._stores()
        yield from self._search_path()

    def _bindings(self, package: str, name: str) -> Iterator[Found]:
        """What a package binds to the next name: its own submodule, and by imports only."""
        wanted = f"{package}.{name}"
        expected = f"only {wanted} under the name {name}"
        nodes = list(own_nodes(list(self._module.body)))
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                for one in one_by_one(node):
                    bound, target = next(import_targets(one, self._path))
                    star = bound == "*" and self._star_binds(target.removesuffix(".*"), name)
                    if star or (bound == name and target != wanted):
                        yield self._found(one, SHADOW, expected)
            elif name in bound_names(node):
                yield self._found(node, SHADOW, expected)
        for node in ast.walk(self._module):
            if isinstance(node, ast.Global) and name in node.names:
                yield self._found(node, SHADOW, expected)
        answers = next((node for node in nodes if "__getattr__" in bound_names(node)), None)
        if answers is not None and not self._surely_loads(wanted):
            yield self._found(answers, SHADOW, f"no __getattr__ in a package that does not import {name} at its top level",
                              "__getattr__")  # fmt: skip

    def _surely_loads(self, wanted: str) -> bool:
        """Whether the package imports the submodule whenever it is loaded; then nobody is asked for the name."""
        for node in self._module.body:
            if isinstance(node, ast.Import) and any(alias.name == wanted for alias in node.names):
                return True
            if isinstance(node, ast.ImportFrom):
                targets = [target for _, target in import_targets(node, self._path)]
                if any(target == wanted or target.rpartition(".")[0] == wanted for target in targets):
                    return True
        return False

    def _star_binds(self, module: str, name: str) -> bool:
        """Whether a star import from ``module`` may bind ``name``, as far as can be seen."""
        stem = module.replace(".", "/")
        for path in (f"{stem}/__init__.py", f"{stem}.py"):
            try:
                parsed = parse_python(self._tree.read(path))
            except KeyError:
                continue
            except _UNREADABLE:
                return True
            bound = {each for node in own_nodes(list(parsed.body)) for each in bound_names(node)}
            return not bound.isdisjoint((name, "*", "__getattr__")) or b"globals" in self._tree.read(path)
        return True

    def _own_table(self) -> Iterator[Found]:
        """The names of a file on the way are those that can be read: nothing is put there by a look-up."""
        parents = {child: node for node in ast.walk(self._module) for child in ast.iter_child_nodes(node)}
        inside = {id(inner) for node in ast.walk(self._module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                  for inner in ast.walk(node)}  # fmt: skip
        for node in ast.walk(self._module):
            if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
                continue
            if node.id in ("exec", "eval"):
                yield self._found(parents[node], SHADOW, "names that can be read off the file")
            elif node.id in _OWN_TABLE:
                call = parents[node]
                if isinstance(call, ast.Call) and call.func is node and call.args:
                    continue  # vars(something): what is done with it is looked at below
                own = node.id == "globals" or id(node) not in inside
                if own and not _is_read(call, parents):
                    yield self._found(parents[call], SHADOW, "names that can be read off the file")

    def _stores(self) -> Iterator[Found]:
        expected = f"no assignment to {self._way.end} or on the way to it"
        for node in ast.walk(self._module):
            if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
                if any(self._way.guards(place) for place in self._stored(node)):
                    yield self._found(node, STORE, expected, f"an assignment to {ast.unparse(node)}")
            elif isinstance(node, ast.Call) and self._call_changes(node):
                yield self._found(node, STORE, expected)

    def _stored(self, node: ast.Attribute | ast.Subscript) -> Iterator[str]:
        bases = self._places.of(node.value)
        if isinstance(node, ast.Attribute):
            yield from (f"{base}.{node.attr}" for base in bases)
            return
        word = self._places.word(node.slice)
        for base in bases:
            table = base.removesuffix(".__dict__") if base.endswith(".__dict__") else None
            if base == "sys.modules":
                yield from self._replaced(word)
            elif table is not None and word is not None:
                yield f"{table}.{word}"
            else:
                yield f"{base}.?"

    def _replaced(self, word: str | None) -> Iterator[str]:
        """Yield the guard where an entry of ``sys.modules`` lies on the way; in a file on the way, an unknown one is taken for it."""
        way = self._way
        unknown = word is None and (self._own in way.modules or self._own in way.packages)
        if unknown or word in way.modules or word in way.packages:
            yield way.end

    def _call_changes(self, node: ast.Call) -> bool:
        if self._is_a_test and isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "monkeypatch":
            return False  # pytest takes it back
        name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
        handed = [*node.args, *(keyword.value for keyword in node.keywords)]
        if name in _SETTING:
            targets = [*handed[:2], *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
            word = next((word for each in handed if (word := self._places.word(each))), "?")
            held = {place for each in targets for place in self._places.of(each)}
            return any(place in self._way.functions or place in self._way.modules or self._way.guards(f"{place}.{word}")
                       for place in held)  # fmt: skip
        if isinstance(node.func, ast.Attribute) and name in _CHANGING:
            for base in self._places.of(node.func.value):
                if base == "sys.modules" and any(
                    self._replaced(self._places.word(node.args[0] if node.args else None))
                ):
                    return True
                if "__" in base and self._way.guards(f"{base}.?"):
                    return True
        if name in _READING or name in self._local_functions():
            return False
        return any(self._way.is_handed_out(place) for each in handed for place in self._places.of(each))

    def _local_functions(self) -> set[str]:
        """Functions of this file: what they do with their arguments is seen where they do it."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        return {node.name for node in ast.walk(self._module) if isinstance(node, kinds)}

    def _search_path(self) -> Iterator[Found]:
        """Where the files of a package are looked for may be read, and by plain reading only."""
        parents = {child: node for node in ast.walk(self._module) for child in ast.iter_child_nodes(node)}
        expected = "the files of the directory where they lie"
        for node in ast.walk(self._module):
            word = (node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute)
                    else self._places.word(node) if isinstance(node, ast.Constant) else None)  # fmt: skip
            if word not in _PLACE or (isinstance(node, ast.Name) and self._own not in self._way.packages):
                continue
            if not _is_read(node, parents):
                yield self._found(
                    parents.get(node, node), "the place where the guard is looked for may be changed", expected
                )


def _is_read(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether a table or list is only read at this place: an item, ``get``, a question, a loop, or handed to a reader."""
    around = parents.get(node)
    if isinstance(around, ast.Subscript):
        return around.value is node and isinstance(around.ctx, ast.Load)
    if isinstance(around, ast.Attribute):
        return around.attr in ("get", "items", "keys", "values", "copy") and isinstance(parents.get(around), ast.Call)
    if isinstance(around, ast.Call):
        name = getattr(around.func, "attr", None) or getattr(around.func, "id", "")
        named = name == "hasattr" or (name in _READING and not (len(around.args) > 1 and around.args[1] is node))
        return around.func is not node and named
    if isinstance(around, ast.Compare | ast.For | ast.comprehension | ast.FormattedValue):
        return getattr(node, "ctx", None) is None or isinstance(node.ctx, ast.Load)  # type: ignore[attr-defined]
    return False
