"""The draw of runs for the oracle: the share that was asked for, and never none of a configuration."""

from __future__ import annotations

from collections import Counter

from workers.loop.draw import Draw


def draws(share: float, times: int, offered: int = 8) -> list[list[tuple[int, object]]]:
    found = []
    for _ in range(times):
        draw = Draw(share)
        for place in range(offered):
            for number in (0, 1):
                draw.offer(number, (number, place))  # type: ignore[arg-type]
        found.append(draw.chosen())
    return found


def test_a_share_of_nothing_still_gives_one_pair_of_each_configuration_any_of_them():
    chosen = draws(0.0, 400)
    assert all(sorted(number for number, _ in found) == [0, 1] for found in chosen)
    places = Counter(place for found in chosen for _, (_, place) in found)  # type: ignore[misc]
    assert set(places) == set(range(8)) and max(places.values()) < 3 * min(places.values())


def test_the_share_holds_and_nothing_is_drawn_twice():
    chosen = draws(0.25, 400)
    assert all(len(set(found)) == len(found) for found in chosen)
    assert 0.22 < sum(len(found) for found in chosen) / (400 * 16) < 0.31


def test_everything_is_drawn_at_share_one():
    assert all(len(found) == 16 for found in draws(1.0, 3))


def test_nothing_offered_nothing_drawn():
    assert Draw(1.0).chosen() == []
