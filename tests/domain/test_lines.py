"""Line counts against git's own minimal diff."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from gatekeeper.domain.lines import count_lines


@pytest.mark.parametrize(
    ("old", "new", "added", "deleted"),
    [
        (None, b"a\nb\n", 2, 0), (b"a\nb\n", None, 0, 2), (b"", b"", 0, 0), (b"a\n", b"a\n", 0, 0),
        (b"a", b"a\n", 1, 1), (b"a\nb\nc\n", b"c\na\nb\n", 1, 1), (b"a\r\n", b"a\n", 1, 1),
    ],
)  # fmt: skip
def test_small_cases(old: bytes | None, new: bytes | None, added: int, deleted: int) -> None:
    counted = count_lines(old, new)
    assert (counted.added, counted.deleted, counted.exact) == (added, deleted, True)


def test_git_agrees_on_random_texts(tmp_path: Path) -> None:
    draw = random.Random(5)
    for _ in range(15):
        texts = ["".join(draw.choice("abcde") + "\n" for _ in range(draw.randrange(1, 40))) for _ in "on"]
        for name, text in zip("on", texts, strict=True):
            (tmp_path / name).write_text(text)
        told = subprocess.run(
            ["git", "diff", "--no-index", "--minimal", "--numstat", "o", "n"],
            cwd=tmp_path,
            capture_output=True,
            check=False,
        ).stdout.decode()
        counted = count_lines(*(text.encode() for text in texts))
        assert [counted.added, counted.deleted] == [int(part) for part in (told or "0\t0\t").split("\t")[:2]]


def test_beyond_the_limit_the_count_is_an_upper_bound() -> None:
    old = b"".join(b"o%d\n" % n for n in range(4000))
    counted = count_lines(old, old.replace(b"o", b"n"))
    assert (counted.added, counted.exact) == (4000, False)
