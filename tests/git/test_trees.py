"""Byte searches over a tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from gatekeeper.git.repository import Repository
from tests.git_builder import GitBuilder

SOURCES = {
    "import.py": "from kernels.gemm import run\n",
    "relative.py": "from .gemm.fast import run\n",
    "accent.py": "gemm\u00e9 = 1\n",
    "attribute.py": "x.gemm()\n",
    "longer.py": "from kernels import gemm_base\n",
    "prefixed.py": "from kernels import fast_gemm\n",
    "digit.py": "gemm2 = 1\n",
    "both.py": "gemm_base = gemm2 = fast_gemm\ngemm\n",
    "none.py": "gem\n",
    "text.md": "gemm\n",
}
WORDS = ("accent.py", "attribute.py", "both.py", "import.py", "relative.py")


@pytest.mark.parametrize(
    ("whole_word", "wanted"),
    [(True, WORDS), (False, tuple(sorted((*WORDS, "digit.py", "longer.py", "prefixed.py"))))],
)
def test_a_whole_word_is_never_missed_and_parts_of_longer_ones_are_left_out(
    tmp_path: Path, whole_word: bool, wanted: tuple[str, ...]
) -> None:
    git = GitBuilder(tmp_path / "r.git")
    repository = Repository(git.path)
    tree = repository.tree(git.tree_of(git.commit({name: text.encode() for name, text in SOURCES.items()})))
    for _ in range(2):  # the second answer comes from what was remembered
        assert tree.grep(b"gemm", whole_word=whole_word) == wanted
        assert len(tree.grep(b"gemm", whole_word=not whole_word)) != len(wanted)
    repository.close()
