"""Manners: spacing, limits by the minute and the hour, one writer, and all of it across processes."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from pathlib import Path

import pytest

from gatekeeper.github.faults import Answer, Throttled
from gatekeeper.github.pace import FIRST_SILENCE, LONGEST_SILENCE, Limits, Pace
from tests.github.sample_app import Clock


def pace(folder: Path, clock: Clock, **limits: float) -> Pace:
    return Pace(folder, 8, Limits(**limits), now=clock.now, sleep=clock.sleep)  # type: ignore[arg-type]


def test_writes_are_a_second_apart_from_the_end_of_one_to_the_begin_of_the_next(tmp_path: Path) -> None:
    clock = Clock()
    manners = pace(tmp_path, clock)
    begun = []
    for _ in range(3):
        with manners.turn("POST"):
            begun.append(clock.moment)
            clock.moment += 0.25  # the request takes a while
    assert [late - early for early, late in itertools.pairwise(begun)] == pytest.approx([1.25, 1.25])


def test_reads_are_not_held_up_by_writes(tmp_path: Path) -> None:
    clock = Clock()
    manners = pace(tmp_path, clock)
    with manners.turn("POST"), manners.turn("GET"):
        pass
    with manners.turn("GET"):
        pass
    assert clock.slept == []


@pytest.mark.parametrize(("limit", "most", "span"), [("writes_a_minute", 80, 60), ("writes_an_hour", 500, 3600)])
def test_content_is_limited_by_the_minute_and_by_the_hour(tmp_path: Path, limit: str, most: int, span: int) -> None:
    clock = Clock()
    others = {"writes_a_minute": 1000, "writes_an_hour": 1000, "points_a_minute": 10_000, "between_writes": 0.0}
    manners = pace(tmp_path, clock, **others | {limit: most})
    first = clock.moment
    for _ in range(most):
        with manners.turn("PATCH"):
            clock.moment += 0.01
    with pytest.raises(Throttled) as caught, manners.turn("PATCH"):
        pass
    assert caught.value.retry_after == pytest.approx(first + 0.01 + span - clock.moment)
    clock.moment += caught.value.retry_after
    with manners.turn("PATCH"):
        pass


def test_points_are_limited_and_a_write_costs_five(tmp_path: Path) -> None:
    clock = Clock()
    manners = pace(tmp_path, clock, points_a_minute=12, between_writes=0, patience=0)
    for verb in ("POST", "GET", "GET", "POST"):
        with manners.turn(verb):
            pass
    with pytest.raises(Throttled), manners.turn("GET"):
        pass
    clock.moment += 61
    with manners.turn("GET"):
        pass


def test_silence_doubles_with_each_limit_in_a_row_and_ends_with_a_good_answer(tmp_path: Path) -> None:
    clock = Clock()
    manners = pace(tmp_path, clock)
    secondary = Answer(403, {}, {"message": "You have exceeded a secondary rate limit."})
    pauses = [manners.learn(secondary) for _ in range(8)]
    assert pauses[:3] == [FIRST_SILENCE, 2 * FIRST_SILENCE, 4 * FIRST_SILENCE] and pauses[-1] == LONGEST_SILENCE
    assert manners.learn(Answer(200, {})) is None
    assert manners.learn(secondary) == FIRST_SILENCE


def test_a_state_that_cannot_be_read_and_a_clock_that_was_put_back_hold_nobody_up_for_ever(tmp_path: Path) -> None:
    clock = Clock()
    manners = pace(tmp_path, clock)
    (tmp_path / "8.json").write_text('{"writes": "x')
    with manners.turn("POST"):
        pass
    manners.learn(Answer(429, {"retry-after": "999999"}))
    clock.moment -= 30 * 24 * 3600
    with pytest.raises(Throttled) as caught, manners.turn("GET"):
        pass
    assert caught.value.retry_after <= 2 * LONGEST_SILENCE


def test_a_second_writer_waits_and_then_says_so(tmp_path: Path) -> None:
    clock = Clock()
    first, second = pace(tmp_path, clock), pace(tmp_path, clock, patience=2)
    with first.turn("POST"), pytest.raises(Throttled, match="somebody else is writing"), second.turn("POST"):
        pass
    assert sum(clock.slept) == pytest.approx(2, abs=0.1)


def _write(folder: Path, times: int, out: Path) -> None:
    manners = Pace(folder, 8, Limits(between_writes=0.05, patience=30))
    with out.open("w") as file:
        for _ in range(times):
            with manners.turn("POST"):
                begun = time.time()
                time.sleep(0.01)
                file.write(f"{begun} {time.time()}\n")


def test_processes_write_one_after_the_other(tmp_path: Path) -> None:
    made = multiprocessing.get_context("spawn")
    outs = [tmp_path / f"{index}.txt" for index in range(3)]
    workers = [made.Process(target=_write, args=(tmp_path, 5, out)) for out in outs]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    spans = sorted(tuple(float(part) for part in line.split()) for out in outs for line in out.read_text().splitlines())
    assert len(spans) == 15
    gaps = [late[0] - early[1] for early, late in itertools.pairwise(spans)]
    assert min(gaps) >= 0.04, f"expected at least 0.05 s between two writes; found {min(gaps):.3f}"
