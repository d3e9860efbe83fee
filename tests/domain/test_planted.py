"""The corpus of planted mutants: its index, and what counts as stopped for the right reason."""

from __future__ import annotations

import pytest

from gatekeeper.domain.errors import ConfigurationError
from gatekeeper.domain.planted import Answer, read_index, surprise

LINE = (
    '{{ name = "{name}", at = "states:x", kind = "{kind}", expected = "{expected}", seen_by = "{seen}", class = "c" }}'
)


def index(**changes: str) -> str:
    values = {"name": "one", "kind": "fault", "expected": "wrong", "seen": "chain"} | changes
    return f"mutants = [{LINE.format(**values)}]"


def verdict(outcome: str, *codes: str, **changes: str) -> str | None:
    (planted,) = read_index(index(**changes), "index.toml")
    return surprise(planted, Answer(name="one", outcome=outcome, codes=codes, seconds=1))


@pytest.mark.parametrize(
    ("changes", "outcome", "codes"),
    [
        ({}, "wrong", ("COR_GAIN",)),
        ({"seen": "guard"}, "wrong", ("COR_STRAY_WRITE", "COR_MISMATCH")),
        ({"seen": "process"}, "wrong", ("RUN_TIMEOUT",)),
        ({"expected": "not_better"}, "worse", ("BENCH_WORSE",)),
        ({"expected": "not_better"}, "wrong", ("RUN_CRASHED",)),
        ({"seen": "between", "expected": "not_better"}, "worse", ("BENCH_WORSE",)),
        ({"seen": "boundary"}, "wrong", ("COR_STRAY_WRITE",)),
        ({"kind": "honest", "expected": "not_better"}, "not_better", ()),
        ({"kind": "honest", "expected": "right"}, "right", ()),
        ({"kind": "honest", "expected": "better"}, "better", ()),
    ],
)
def test_as_it_must_be(changes: dict[str, str], outcome: str, codes: tuple[str, ...]) -> None:
    assert verdict(outcome, *codes, **changes) is None


@pytest.mark.parametrize(
    ("changes", "outcome", "codes", "said"),
    [
        ({}, "right", (), "missed"),
        ({}, "not_better", ("BENCH_NOT_FASTER",), "missed"),
        ({}, "wrong", ("RUN_NO_RESULT",), "another reason: RUN_NO_RESULT"),
        ({}, "wrong", (), "another reason: none"),
        ({"seen": "guard"}, "wrong", ("COR_MISMATCH",), "another reason"),
        ({}, "void", (), "void"),
        ({"expected": "not_better"}, "better", (), "missed: it was called better"),
        ({"seen": "between", "expected": "not_better"}, "inconclusive", ("BENCH_NOT_PROVEN",), "another reason"),
        ({"seen": "boundary"}, "wrong", ("RUN_NO_RESULT",), "another reason"),
        ({"seen": "late", "expected": "not_better"}, "inconclusive", ("BENCH_NOT_PROVEN",), "another reason"),
        ({"kind": "honest", "expected": "not_better"}, "wrong", ("COR_GAIN",), "blocked"),
        ({"kind": "honest", "expected": "right"}, "wrong", ("COR_GAIN",), "blocked"),
        ({"kind": "honest", "expected": "better"}, "not_better", (), "blocked"),
    ],
)
def test_surprises(changes: dict[str, str], outcome: str, codes: tuple[str, ...], said: str) -> None:
    assert said in (verdict(outcome, *codes, **changes) or "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mutants = 3", "mutants"),
        ("nothing = []", "mutants"),
        ("mutants = [", "table of mutants"),
        (index(kind="odd"), "kind"),
        (index(seen="luck"), "seen_by as one of"),
        (
            f"mutants = [{LINE}, {LINE}]".format(name="one", kind="slow", expected="wrong", seen="clock"),
            "each name once",
        ),
    ],
)
def test_an_index_that_is_wrong_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match="CATALOG_MUTANTS") as refused:
        read_index(text, "kimi_k3/mutants/index.toml")
    assert said in f"{refused.value.expected} {refused.value.found}" and "kimi_k3" in refused.value.message
