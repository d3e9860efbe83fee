"""Checks inside a timed block: one of each kind that model and rules offer, at a place drawn at random, over loads of their own."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.samples import Arm, Group
from tests.workers.conftest import toy_order
from tests.workers.toy_model.trusted import ToyOracle, ToyProblem
from workers.loop.blocks import BlockRun, Plan
from workers.loop.late import LATE_REQUESTS, Late, draw_late, run_late
from workers.loop.runs import STRESS
from workers.models import Model, load_model

RULES = toy_order().request.rules
CONFIGURATIONS = [Configuration(rows=rows, context=64, page_size=8) for rows in (1, 8)]


def test_a_model_that_offers_nothing_is_asked_nothing() -> None:
    assert draw_late(Model(ToyProblem(), ToyOracle()), RULES, CONFIGURATIONS) == []
    model = load_model("kimi_k3", "tiny")
    assert draw_late(model, RULES.model_copy(update={"untimed_checks": ()}), CONFIGURATIONS) == []


def test_each_kind_is_drawn_at_every_configuration_and_in_every_regime() -> None:
    model = load_model("kimi_k3", "tiny")
    seen: Counter[tuple[int, str]] = Counter()
    for _ in range(300):
        lates = draw_late(model, RULES, CONFIGURATIONS)
        assert [late.check for late in lates] == ["regime", "one_step"]
        for late in lates:
            seen[late.index, late.regime] += 1
            assert late.runs * CONFIGURATIONS[late.index].requests >= LATE_REQUESTS
            assert late.weights == (late.regime if late.regime in ("ties", STRESS) else "normal")
    wanted = {(index, regime) for index in (0, 1) for regime in (*model.problem.regimes, STRESS)}
    assert set(seen) == wanted - {(0, "normal"), (1, "normal")}


class Played(BlockRun):
    """A block whose groups and runs are only noted."""

    def __init__(self) -> None:
        self.plan, self._steps, self.done, self.data_seed = Plan(0, False, Arm.BASELINE), [4, 4, 1], [], 1

    def draw(self, number, steps, regime=None, *, seed=None):
        return SimpleNamespace(number=number, steps=steps, regime=regime)

    def shot(self, arm, number, data):
        self.done.append(("run", number))
        return SimpleNamespace(arm=arm, data=data)

    def group(self, number, keep):
        self.done.append(("group", number))
        order = (("baseline", 1), ("candidate", 1), ("candidate", 2), ("baseline", 2))
        runs = tuple({"arm": arm, "seed": f"{n:032x}", "steps": 4, "nanoseconds": 1} for arm, n in order)
        return Group.model_validate({"order": "ABBA", "runs": runs})


def test_the_place_of_a_check_is_any_group_and_what_it_builds_is_not_timed() -> None:
    places: Counter[int] = Counter()
    late = Late(index=1, check="one_step", regime=STRESS, steps=1, runs=2)
    for _ in range(200):
        block = Played()
        found = []
        blocks = block.timed(
            3, lambda *_: None, count=2, between=lambda b=block, f=found: f.extend(run_late(b, [late], 2))
        )
        assert set(blocks) == {0, 1} and len(found) == 2
        assert [one for one in block.done if one == ("run", 2)] == [("run", 2)] * 4
        before = block.done.index(("run", 2))
        places[sum(kind == "group" for kind, _ in block.done[:before])] += 1
        assert found[0][1].baseline.data is found[0][1].candidate.data
    assert set(places) == set(range(6))
