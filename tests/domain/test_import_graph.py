"""Imports are found wherever a statement may stand, and nothing else is taken for one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gatekeeper
from gatekeeper.domain.guard_names import import_targets
from gatekeeper.domain.import_graph import imports_of

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
