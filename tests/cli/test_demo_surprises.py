"""A verdict that is not the expected one is explained in full: what was wanted, every finding, every reason of its races."""

from __future__ import annotations

from gatekeeper.cli.demo import _plain, _surprises, _telling
from gatekeeper.demo.pulls import sample_pulls
from gatekeeper.demo.run import Answer

FINDING = {"code": "COR_MISMATCH", "message": "too large", "expected": "at most 0.01", "found": "0.02"}
REASON = {**FINDING, "where": "rows=1"}


def page(outcome, findings=()):
    checks = [{"check": "benchmarks", "outcome": outcome, "policies": [{"findings": list(findings)}]}]
    races = [{"target": "cpu", "outcome": "wrong", "reasons": [REASON]}]
    return {"outcome": outcome, "headline": "one check failed", "checks": checks, "races": races, "verdict": "1"}


def test_only_the_surprising_verdict_is_explained():
    honest = next(pull for pull in sample_pulls() if pull.expected == "passed")
    lines = list(_surprises((Answer(honest, page("passed")), Answer(honest, page("failed", [FINDING])))))
    assert lines == [
        f"#{honest.number}: expected passed; found failed: one check failed",
        "  COR_MISMATCH: too large; expected at most 0.01; found 0.02",
        "  race on cpu: wrong",
        "    COR_MISMATCH at rows=1: expected at most 0.01; found 0.02",
    ]


def test_what_was_not_decided_in_time_is_not_as_expected_and_says_what_it_waits_for():
    honest = next(pull for pull in sample_pulls() if pull.expected == "passed")
    busy = {**page("passed"), "jobs": [{"kind": "race", "state": "running", "doing": "race the candidate"}]}
    for found in (busy, {}):
        answer = Answer(honest, found)
        assert not answer.as_expected and _plain(answer)["settled"] is False
        assert _telling(found)[-1][1] == "pending"
    assert "  job race, running: race the candidate" in list(_surprises((Answer(honest, busy),)))
    assert list(_surprises((Answer(honest, {}),))) == [f"#{honest.number}: expected passed; found pending: no verdict"]
