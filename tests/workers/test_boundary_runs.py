"""The boundary search with real arms: a fault at a number of rows is found, shrunk, and told as one command line."""

from __future__ import annotations

import json
import os

import pytest

from gatekeeper.domain.configuration import Configuration
from tests.workers.conftest import ARMS, MODELS
from workers import asking, boundary_runs


@pytest.fixture(autouse=True)
def same_cores():
    before = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, before)


def told(capsys, candidate: str, *more: str) -> tuple[int, dict]:
    status = boundary_runs.main(
        ["--model", "toy_model", "--problem", "small", "--candidate", f"{ARMS}.{candidate}", "--baseline",
         f"{ARMS}.stock:baseline", "--models", str(MODELS), "--rows", "1,4", "--context", "1-32", "--page-size", "4",
         "--points", "10", "--seed", "5", "--seconds", "900", *more]
    )  # fmt: skip
    return status, json.loads(capsys.readouterr().err.splitlines()[-1])


def test_a_fault_in_the_last_of_three_rows_is_found_and_shrunk(capsys):
    status, found = told(capsys, "variants:lastrow", "--context", "1-2", "--page-size", "2")
    assert status == 1
    smallest = found["found"]
    assert smallest["configuration"] == "rows=3 q=1 ctx=1 page=1"
    assert smallest["command"].startswith("python -m workers.boundary_runs --seed 5 --points 1")
    assert "--rows 3 --context 1 --page-size 1" in smallest["command"]


def test_an_arm_that_ends_is_found_at_the_configuration_that_ends_it(capsys):
    status, found = told(
        capsys, "variants:endsatfour", "--rows", "4", "--context", "1", "--page-size", "1", "--points", "1"
    )
    assert status == 1
    assert found["found"]["code"] == "RUN_NO_RESULT"
    assert "rows=4" in found["found"]["configuration"]


def test_the_stock_path_has_no_such_point_and_a_wrong_name_is_an_error(capsys):
    status, found = told(capsys, "stock:baseline", "--points", "6")
    assert (status, found["found"], found["points"]) == (0, None, 6)
    assert told(capsys, "stock:baseline", "--model", "unheard_of")[0] == 2


def test_where_a_race_can_be_run_the_command_is_a_race():
    names = asking.Names("m", "p", "a:b", "a:c", 1)
    point = Configuration(rows=3, context=9, page_size=8, decode_context_parallel=2)
    assert asking.command(point, names) == (
        "gatekeeper race --model m --problem p --candidate a:b --baseline a:c --rows 3 --context 9 --page-size 8 --dcp 2"
    )
