"""Imports are found wherever a statement may stand, and nothing else is taken for one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gatekeeper
from gatekeeper.domain.import_graph import foreign, imports_of
from gatekeeper.domain.python_imports import import_targets
from gatekeeper.domain.repository import parse
from gatekeeper.git.repository import Repository
from tests.git_builder import GitBuilder

PLACES = {
    "top": "{}",
    "function": "def f():\n  {}",
    "coroutine": "async def f():\n  async with a:\n    async for b in c:\n      {}",
    "class": "class A:\n  class B:\n    {}",
    "if": "if a:\n  pass\nelif b:\n  {}",
    "else": "if a:\n  pass\nelse:\n  {}",
    "for": "for a in b:\n  {}",
    "for else": "for a in b:\n  pass\nelse:\n  {}",
    "while": "while a:\n  {}\nelse:\n  pass",
    "with": "with a:\n  {}",
    "try": "try:\n  {}\nfinally:\n  pass",
    "except": "try:\n  pass\nexcept A:\n  {}",
    "except star": "try:\n  pass\nexcept* A:\n  {}",
    "try else": "try:\n  pass\nexcept A:\n  pass\nelse:\n  {}",
    "finally": "try:\n  pass\nfinally:\n  {}",
    "match": "match a:\n  case 1:\n    pass\n  case _:\n    {}",
    "one line": "a = lambda: 0; {}",
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
def test_an_import_is_found_wherever_a_statement_may_stand(place: str) -> None:
    source = place.format("from .cand import k").encode()
    assert [target for target, _ in imports_of(source, "models/m/hook.py")] == ["models.m.cand.k"]


def test_text_and_expressions_import_nothing() -> None:
    assert imports_of(b'"""import a"""\nx = "from b import c"  # import d\n', "x.py") == ()


def test_the_same_imports_as_a_walk_over_every_node_of_our_own_sources() -> None:
    root = Path(gatekeeper.__file__).parent
    files = sorted(root.rglob("*.py"))
    assert len(files) > 50
    for file in files:
        walked = {
            (target, node.lineno)
            for node in ast.walk(ast.parse(file.read_bytes()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for target in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [target for _, target in import_targets(node, str(file))]
            )
        }
        assert set(imports_of(file.read_bytes(), str(file))) == walked


ROOTS = ("engine", "engine/models/m", "engine/models/n")
TABLE = '[[models]]\nname = "{0}"\nroot = "{0}"\nfree = ["cand"]\n'


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("engine._custom_ops", None),
        ("engine.models._shared.rope", None),
        ("engine.models.m._stock", None),
        ("engine.models.m.cand._own", None),
        ("engine.utils.public", None),
        ("engine.utils.__doc__", None),
        ("torch._C", None),
        ("engine.layers._secret", "_secret is private to engine.layers"),
        ("engine.utils._helper", "_helper is private to engine.utils"),
        ("engine._ops._inner", "_inner is private to engine._ops"),
        ("engine.models_x._y", "_y is private to engine.models_x"),
        ("_build.flags", "_build is private to the repository"),
        ("engine.envs", None),
        ("engine.models.n.stock", "it belongs to engine/models/n"),
        ("engine.models.n._stock", "it belongs to engine/models/n"),
    ],
)
@pytest.mark.parametrize("roots", [ROOTS, ROOTS[::-1]], ids=["outer root first", "outer root last"])
def test_what_is_private_belongs_to_the_package_that_holds_it(
    tmp_path: Path, target: str, why: str | None, roots: tuple[str, ...]
) -> None:
    git = GitBuilder(tmp_path / "r.git")
    configuration = parse(("schema = 1\n" + "".join(map(TABLE.format, roots))).encode())
    files = ("engine/models/m/cand/k.py", "engine/models/n/stock.py", "_build/flags.py")
    repository = Repository(git.path)
    tree = repository.tree(git.tree_of(git.commit(dict.fromkeys(files, "x = 1\n"))))
    found = foreign([(target, 3)], configuration, "engine/models/m/cand", "engine/models/m", tree)
    repository.close()
    assert found == ([] if why is None else [(target, 3, why)])
