"""``gatekeeper selftest``: what it refuses, what it writes, and its exit statuses."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from gatekeeper.catalog import load_catalog
from gatekeeper.cli import main, selftest
from gatekeeper.domain.planted import Answer, Planted, read_index
from gatekeeper.domain.race import RaceOrder, RaceOutcome, RaceResult

LINES = """mutants = [
  { name = "fault", at = "states:fault", kind = "fault", expected = "wrong", seen_by = "chain", class = "6" },
  { name = "twin", at = "controls:twin", kind = "honest", expected = "right", seen_by = "chain", class = "order" },
]"""


def got(**outcomes: str) -> dict[str, Answer]:
    codes = {"wrong": ("COR_MISMATCH",)}
    return {n: Answer(name=n, outcome=o, codes=codes.get(o, ()), seconds=1.0) for n, o in outcomes.items()}


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        (got(fault="wrong", twin="right"), 0),
        (got(fault="right", twin="right"), 1),
        (got(fault="wrong", twin="wrong"), 1),
        (got(fault="void", twin="right"), 3),
        (got(fault="void", twin="wrong"), 1),
    ],
)
def test_the_status_is_0_only_if_everything_is_as_it_must_be(answers: dict[str, Answer], status: int) -> None:
    corpus = read_index(LINES, "index.toml")
    assert selftest.status_of(corpus, answers) == status
    document = selftest.document(corpus, answers, status, 2.0)
    assert document["outcome"] == {0: "passed", 1: "failed", 3: "error"}[status]
    surprises = [line["surprise"] for line in document["mutants"]]  # type: ignore[attr-defined]
    assert (surprises == [None, None]) == (status == 0)


@pytest.mark.parametrize(
    "arguments", [["--model", "none"], ["--target", "none"], ["--only", "nobody"], ["--json", "/nowhere/x.json"]]
)
def test_wrong_usage_exits_with_64(arguments: list[str]) -> None:
    assert main(["selftest", *arguments]) == 64


def test_a_void_race_is_repeated_and_then_said() -> None:
    asked: list[object] = []

    def ends(wanted: object) -> str:
        asked.append(wanted)
        return "the harness ended with -9: killed"

    planted = read_index(LINES, "index.toml")[0]
    answer = selftest.judged(planted, wanted(planted), ends)
    assert (answer.outcome, answer.codes) == ("void", ("RACE_HARNESS",)) and "killed" in answer.reasons[0]
    assert len(asked) == selftest.TRIES


def wanted(planted: Planted, form: selftest.Form = selftest.QUICK) -> RaceOrder:
    catalog = load_catalog()
    return selftest.order(planted, catalog.models["kimi_k3"], catalog.targets["cpu"], form)


def test_the_quick_form_times_only_what_the_clock_must_see() -> None:
    index = {planted.name: planted for planted in selftest._chosen("kimi_k3", (), ())}
    for name, quick, whole in (
        ("eps_off", "correctness", "correctness"),
        ("forks_often", "correctness", "end"),
        ("slow_5_percent", "end", "end"),
        ("candidate_again", "end", "end"),
    ):
        assert wanted(index[name]).until == quick
        assert wanted(index[name], selftest.WHOLE).until == whole


def test_what_is_only_left_to_a_person_is_held_where_nothing_is_timed() -> None:
    planted = next(p for p in selftest._chosen("kimi_k3", (), ()) if p.name == "leaves_a_daemon")
    with selftest.Harness() as harness:
        answer = selftest.judged(planted, wanted(planted), harness.ask)
    assert (answer.outcome, answer.codes) == ("held", ("JAIL_LEFTOVER",))


def test_a_harness_answers_again_after_a_refused_order_and_after_its_end() -> None:
    planted = next(p for p in selftest._chosen("kimi_k3", (), ()) if p.name == "raises")
    good = wanted(planted)
    bad = good.model_copy(update={"request": good.request.model_copy(update={"model": "nobody"})})
    with selftest.Harness() as harness:
        refused = harness.ask(bad)
        assert isinstance(refused, str) and "nobody" in refused
        first = harness.ask(good)
        assert isinstance(first, RaceResult) and first.outcome is RaceOutcome.WRONG
        assert harness._process is not None
        harness._process.kill()
        harness._process.wait()
        ended = harness.ask(good)
        assert isinstance(ended, str) and "ended with -9" in ended
        again = harness.ask(good)
        assert isinstance(again, RaceResult) and again.outcome is RaceOutcome.WRONG


def test_a_planted_fault_is_stopped_and_its_honest_twin_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "selftest.json"
    names = ["null_slot_written", "core_in_float64"]
    assert (
        main(["selftest", "--quick", "--json", str(file), *(part for name in names for part in ("--only", name))]) == 0
    )
    document = json.loads(file.read_text())
    assert document["outcome"] == "passed"
    assert {line["name"]: line["got"] for line in document["mutants"]} == dict(
        zip(names, ("wrong", "right"), strict=True)
    )
    assert "COR_STRAY_WRITE" in document["mutants"][0]["codes"]
    shown = capsys.readouterr().out
    assert "ok  null_slot_written" in shown and "as it must be" in shown


def test_what_a_search_must_see_is_searched_at_points_that_hold_it() -> None:
    index = {planted.name: planted for planted in selftest._chosen("kimi_k3", (), ())}
    request = wanted(index["small_pages"]).request
    assert request.rules.boundary_points == 12 and not request.rules.untimed_checks
    assert not {c.label for c in request.boundary_pool} & {c.label for c in request.configurations}
    faulty = {
        "last_row_of_odd_rows": lambda c: c.rows > 1 and c.rows % 2 == 1,
        "one_page_of_context": lambda c: c.context <= c.page_size * c.decode_context_parallel,
        "no_shards": lambda c: c.decode_context_parallel == 1,
        "small_pages": lambda c: c.page_size == 4,
    }
    assert set(faulty) == {name for name, planted in index.items() if planted.seen_by == "boundary"}
    every = len(request.boundary_pool)
    for name, holds in faulty.items():
        right = every - sum(map(holds, request.boundary_pool))
        missed = math.comb(right, 12) / math.comb(every, 12)
        assert missed < 1 / 400, name
    assert wanted(index["eps_off"]).request.boundary_pool == ()


def test_what_loses_between_advertised_rows_gets_a_guard_there() -> None:
    planted = next(p for p in selftest._chosen("kimi_k3", (), ()) if p.name == "slow_between")
    order = wanted(planted)
    assert order.until == "end" and order.request.rules.guard_configurations == 1
    assert {c.rows for c in order.request.guard_pool} == {3, 4}
    assert {c.rows for c in order.request.configurations} == {1}


def test_a_misspelt_mutant_is_told_with_the_names_near_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", "--only", "slow_3_percent"]) == 64
    assert "did you mean slow_1_percent or slow_2_percent or slow_5_percent?" in capsys.readouterr().err.replace(
        "\n", " "
    )
    assert main(["selftest", "--only", "zzz"]) == 64
    assert "index.toml" in capsys.readouterr().err
