"""Which specialised directory a change is about."""

from __future__ import annotations

from gatekeeper.domain.repository import parse
from gatekeeper.domain.snapshot import ChangedFile, ChangeKind
from gatekeeper.domain.zones import FastTrack, find

RULES = parse(b"""
schema = 1
refuse = ["fla/ops/common"]
references = ["fla/ops/trusted"]
[[models]]
name = "any"
root = "fla"
free = ["ops/*"]
""")


def track(*paths: str) -> FastTrack | None:
    changes = [
        ChangedFile(path=path, kind=ChangeKind.MODIFIED, old_mode="100644", new_mode="100644", old_blob="1" * 40,
                    new_blob="2" * 40)
        for path in paths
    ]  # fmt: skip
    return find(RULES, changes)


def test_the_directory_with_most_changes_is_the_one() -> None:
    found = track("fla/ops/a/x.py", "fla/ops/b/x.py", "fla/ops/b/y.py", "fla/ops/c/x.py")
    assert found is not None
    assert found.directories == ("fla/ops/b", "fla/ops/a", "fla/ops/c")


def test_a_directory_closed_as_a_whole_is_an_ordinary_one() -> None:
    assert track("fla/ops/common/x.py") is None
    assert track("fla/ops/trusted/x.py") is None
    assert track("FLA/OPS/COMMON/x.py") is None
    found = track("fla/ops/common/x.py", "fla/ops/a/x.py")
    assert found is not None
    assert found.directories == ("fla/ops/a",)
