"""What has to be written for a head: nothing twice, nothing lost, old findings never beside new ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from gatekeeper.publishers.wanted import ANNOUNCED, BATCH, Step, Wanted, mark, speaker, speaks_for, steps

NOTE = {"path": "a.py", "start_line": 1, "end_line": 1, "annotation_level": "failure", "title": "T", "message": "m"}


@dataclass(frozen=True)
class There:
    """A run as GitHub shows it."""

    id: int = 5
    finished: bool = True
    conclusion: str | None = "failure"
    external_id: str | None = None
    annotations: int = 0


WANTED = Wanted("gatekeeper/isolation", "failed", "why", "how", "https://gate/1", (speaker(1, "main"),), "failure")
PENDING = replace(WANTED, conclusion=None)
SAME = There(external_id=WANTED.external_id)
OPEN = There(finished=False, conclusion=None, external_id=mark(WANTED.speakers, ANNOUNCED))


@pytest.mark.parametrize(
    ("there", "wanted", "expected"),
    [
        (None, WANTED, Step(WANTED)),
        (SAME, WANTED, None),
        (replace(SAME, external_id=f"{WANTED.external_id} bare"), WANTED, None),
        (replace(SAME, external_id="somebody's"), WANTED, Step(WANTED)),
        (replace(SAME, conclusion="success"), WANTED, Step(WANTED)),
        (replace(SAME, conclusion="stale"), WANTED, Step(WANTED)),
        (OPEN, WANTED, Step(WANTED, 5)),
        (replace(OPEN, external_id=WANTED.external_id), WANTED, Step(WANTED, 5)),
        (OPEN, PENDING, Step(PENDING, 5)),
        (OPEN, replace(PENDING, patient=True), None),
        (replace(OPEN, external_id=PENDING.external_id), PENDING, None),
        (SAME, PENDING, Step(PENDING)),
        (None, replace(PENDING, replaces_only=True), None),
        (SAME, replace(PENDING, replaces_only=True), Step(replace(PENDING, replaces_only=True))),
    ],
)
def test_what_is_there_decides_what_is_written(there: There | None, wanted: Wanted, expected: Step | None) -> None:
    shown = {} if there is None else {wanted.name: there}
    assert steps(shown, [wanted]) == ([] if expected is None else [expected])


def test_annotations_go_in_batches_and_go_on_where_they_stopped() -> None:
    many = replace(WANTED, annotations=(NOTE,) * 120)
    assert len(many.body()["output"]["annotations"]) == BATCH
    assert [len(body["output"]["annotations"]) for body in many.further(BATCH)] == [50, 20]
    there = There(external_id=many.external_id, annotations=100)
    assert steps({many.name: there}, [many]) == [Step(many, 5, 100, adds_only=True)]
    assert [len(body["output"]["annotations"]) for body in many.further(100)] == [20]
    assert steps({many.name: replace(there, annotations=120)}, [many]) == []


def test_every_part_that_is_seen_counts_in_the_external_id() -> None:
    others = [
        replace(WANTED, title="x"), replace(WANTED, summary="x"), replace(WANTED, text="x"), replace(WANTED, conclusion="neutral"),
        replace(WANTED, annotations=(NOTE,)), replace(WANTED, speakers=(speaker(1, "dev"),)), replace(WANTED, name="gatekeeper/scope"),
    ]  # fmt: skip
    ids = {each.external_id for each in others} | {WANTED.external_id}
    assert len(ids) == 8 and max(len(each) for each in ids) < 100


def test_whom_a_run_speaks_for() -> None:
    both = {speaker(12, "main"), speaker(3, "release/1")}
    assert speaks_for(There(external_id=mark(both, "x"))) == both and len(both | {speaker(3, "main")}) == 3
    for strange in (None, "", "gatekeeper1", "other 1.ab x", "gatekeeper1  x"):
        assert speaks_for(There(external_id=strange)) == frozenset()


def test_the_shortest_form_keeps_the_answer() -> None:
    body = replace(WANTED, title="größer", annotations=(NOTE,)).bare("short")
    assert body["conclusion"] == "failure" and body["output"] == {"title": "gatekeeper/isolation", "summary": "short"}
    assert body["external_id"].endswith(" bare")
