"""The boundary pool of a manifest: served, not advertised, at the edges; and what a race's records of it do to its outcome."""

from __future__ import annotations

from hypothesis import given, settings

from gatekeeper.domain.advertised import Scope, advertised
from gatekeeper.domain.boundary_pool import boundary_pool, branching_contexts
from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.race import RaceOutcome
from gatekeeper.domain.race_decision import decide_race, pooled
from gatekeeper.domain.samples import SupportAnswer
from tests import race_samples as make
from tests.domain.test_advertised import manifests


@given(manifests())
@settings(max_examples=40, deadline=None)
def test_the_pool_is_served_not_advertised_and_always_the_same(manifest):
    pool = boundary_pool(manifest, "cpu", "policy")
    scope = Scope(manifest, manifest.target("cpu"))
    assert pool == boundary_pool(manifest, "cpu", "policy")
    assert all(scope.holds(point) for point in pool)
    labels = [point.label for point in pool]
    assert len(set(labels)) == len(labels) <= 256
    assert not set(labels) & {point.label for point in advertised(manifest, "cpu", "policy").configurations}
    assert len(boundary_pool(manifest, "cpu", "policy", size=3)) <= 3


def test_contexts_stand_on_both_sides_of_every_edge():
    assert branching_contexts(1, 40, 4, 2) == [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 39, 40]
    assert branching_contexts(10, 20, 4, 1, [13]) == [10, 11, 12, 13, 14, 15, 16, 17, 19, 20]


POINTS = tuple(Configuration(rows=8, context=context, page_size=32) for context in (31, 32, 33))


def tried(*points, **changes):
    error = make.error(check="boundary", **changes)
    return tuple(
        make.record(errors=(error,), blocks=(), control=()).model_copy(update={"configuration": p}) for p in points
    )


def decided(boundaries, **changes):
    request = make.request(rules=make.rules(boundary_points=2), boundary_pool=POINTS)
    result = make.result().model_copy(update={"boundaries": boundaries, **changes})
    return decide_race(request, result, 0.01)


def test_as_many_points_as_the_rules_ask_for_must_have_been_tried():
    assert decided(tried(*POINTS[:2])).outcome is RaceOutcome.BETTER
    missing = decided(tried(POINTS[0]))
    assert missing.outcome is RaceOutcome.VOID
    (reason,) = [reason for reason in missing.reasons if reason.code == "RACE_INCOMPLETE"]
    assert (reason.expected, reason.found) == ("2 tried", "1")
    foreign = tuple(p.model_copy(update={"rows": 4}) for p in POINTS)
    assert decided(tried(*foreign)).outcome is RaceOutcome.VOID  # points that nobody asked for do not count
    assert decided(tuple(r.model_copy(update={"errors": ()}) for r in tried(*POINTS))).outcome is RaceOutcome.VOID


def test_a_wrong_point_makes_the_race_wrong_and_says_where():
    wrong = decided((*tried(POINTS[0]), *tried(POINTS[1], rms=0.5)))
    assert wrong.outcome is RaceOutcome.WRONG
    assert {reason.where for reason in wrong.because(RaceOutcome.WRONG)} == {POINTS[1].label}


def test_a_served_point_that_is_declined_is_a_refusal():
    answer = SupportAnswer(configuration=POINTS[2], asked_as="boundary", declined=True, reason="no such tile")
    found = decided(tried(*POINTS[:2]), supports=(*make.result().supports, answer))
    assert found.outcome is RaceOutcome.DECLINED
    assert found.reasons[0].code == "SCOPE_DECLINED" and "says it serves" in found.reasons[0].message


def test_pooled_races_keep_the_points_of_all():
    one = make.result().model_copy(update={"boundaries": tried(POINTS[0])})
    two = make.result().model_copy(update={"boundaries": tried(POINTS[1])})
    assert [r.configuration for r in pooled([one, two]).boundaries] == list(POINTS[:2])
