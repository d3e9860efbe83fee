"""Clones with a work tree for tests, as a contributor has them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.git_builder import GitBuilder


def git(root: Path, *arguments: str) -> None:
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True)


def checkout(root: Path, base: Mapping[str, str]) -> Path:
    """Return a work tree on branch ``topic``, made from ``main``."""
    made = GitBuilder(root / ".git")
    made.commit(base, branch="main")
    made.configure("[core]\n\tbare = false\n")
    git(root, "checkout", "--quiet", "-b", "topic", "main")
    return root


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)
