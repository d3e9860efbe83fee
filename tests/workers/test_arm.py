"""The arm's stub: which packages of a candidate's path run their ``__init__``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from workers.arm import find


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A framework whose own packages must not run, with a specialised directory ``frame_a/own`` whose packages must."""
    inner = tmp_path / "frame_a" / "own" / "deep"
    inner.mkdir(parents=True)
    (tmp_path / "frame_a" / "__init__.py").write_text("raise RuntimeError('a framework package ran')\n")
    (inner.parent / "__init__.py").write_text("LIMIT = 8\n")
    (inner / "__init__.py").write_text("from frame_a.own import LIMIT\n")
    (inner / "gate.py").write_text("from frame_a.own.deep import LIMIT\ncandidate = ('served up to', LIMIT)\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield str(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "frame_a"]:
        del sys.modules[name]


def test_the_directory_of_the_candidate_and_what_lies_below_are_real_packages(tree: str) -> None:
    assert find("frame_a.own.deep.gate:candidate", tree, bare=1) == ("served up to", 8)


def test_a_package_of_the_framework_that_is_not_bare_would_run(tree: str) -> None:
    with pytest.raises(RuntimeError, match="a framework package ran"):
        find("frame_a.own.deep.gate:candidate", tree, bare=0)
