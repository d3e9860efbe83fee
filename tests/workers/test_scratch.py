"""Directories that an attacker filled: looking at them is bounded and opens nothing, deleting them always works."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from workers import cgroups, scratch


def deep(folder: Path, levels: int) -> None:
    """Make directories in each other, deeper than a path can be long, as a candidate would."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "scratch"
    made.mkdir()
    return made


def test_what_lies_there_is_named(folder: Path) -> None:
    (folder / "a").mkdir()
    (folder / "a/b").write_text("x")
    (folder / "empty").mkdir()
    assert scratch.look(folder).files == ("a/b",) and scratch.look(folder).over is None


def test_specials_are_named_and_neither_opened_nor_followed(folder: Path, tmp_path: Path) -> None:
    """`jail-output-special`: a link to elsewhere, a pipe that nobody writes to, a sparse giant."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "marker").write_text("stays")
    (folder / "link").symlink_to(elsewhere)
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe")
    with (folder / "giant").open("wb") as file:
        file.truncate(1 << 40)
    began = time.monotonic()
    found = scratch.look(folder)
    assert set(found.files) == {"link", "loop", "pipe", "giant"} and found.over is None and found.bytes < 1 << 20
    scratch.remove(folder)
    assert time.monotonic() - began < 1 and not folder.exists()
    assert (elsewhere / "marker").read_text() == "stays"


@pytest.mark.parametrize(
    ("fill", "over"),
    [
        (lambda folder: deep(folder, 3000), "directories in each other"),
        (lambda folder: [(folder / str(n)).touch() for n in range(scratch.MOST_ENTRIES + 1)], "entries"),
        (lambda folder: (folder / "large").write_bytes(b"x" * (scratch.MOST_BYTES + 1)), "bytes"),
    ],
    ids=["deep", "many", "large"],
)
def test_looking_ends_at_a_bound_and_everything_can_be_deleted(folder: Path, fill, over: str) -> None:
    fill(folder)
    began = time.monotonic()
    assert over in (scratch.look(folder).over or "")
    assert time.monotonic() - began < 2
    scratch.remove(folder)
    assert not folder.exists()


def test_directories_without_permissions_are_deleted_too(folder: Path) -> None:
    (folder / "closed/inner").mkdir(parents=True)
    (folder / "closed/inner/file").touch()
    (folder / "closed").chmod(0)
    scratch.remove(folder)
    assert not folder.exists()


def test_homes_of_a_harness_that_is_gone_are_swept_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    alive, elsewhere = scratch.home(), tmp_path / "elsewhere"
    (elsewhere / "kept").mkdir(parents=True)
    gone = tmp_path / f"{scratch.HOME}4999999-abcdefgh"
    (gone / "inner").mkdir(parents=True)
    (tmp_path / f"{scratch.HOME}4999999-link").symlink_to(elsewhere)
    assert cgroups.sweep() >= 1
    assert alive.exists() and (elsewhere / "kept").exists() and not gone.exists()
