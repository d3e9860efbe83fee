"""A verdict that is not the expected one is explained in full: what was wanted, every finding, every reason of its races."""

from __future__ import annotations

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from gatekeeper.cli import main
from gatekeeper.cli.demo import _plain
from gatekeeper.cli.demo_text import surprises, telling
from gatekeeper.demo import service
from gatekeeper.demo.pulls import sample_pulls
from gatekeeper.demo.run import Answer
from gatekeeper.demo.service import Service

FINDING = {"code": "COR_MISMATCH", "message": "too large", "expected": "at most 0.01", "found": "0.02"}
REASON = {**FINDING, "where": "rows=1"}


def page(outcome, findings=()):
    checks = [{"check": "benchmarks", "outcome": outcome, "policies": [{"findings": list(findings)}]}]
    races = [{"target": "cpu", "outcome": "wrong", "reasons": [REASON]}]
    return {"outcome": outcome, "headline": "one check failed", "checks": checks, "races": races, "verdict": "1"}


def test_only_the_surprising_verdict_is_explained():
    honest = next(pull for pull in sample_pulls() if pull.expected == "passed")
    lines = list(surprises((Answer(honest, page("passed")), Answer(honest, page("failed", [FINDING])))))
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
        assert telling(found)[-1][1] == "pending"
    assert "  job race, running: race the candidate" in list(surprises((Answer(honest, busy),)))
    assert list(surprises((Answer(honest, {}),))) == [f"#{honest.number}: expected passed; found pending: no verdict"]


def test_the_outcome_is_said_once_and_a_job_tells_its_last_try():
    honest = next(pull for pull in sample_pulls() if pull.expected == "passed")
    job = {"kind": "race", "state": "queued", "doing": "race the candidate", "error": "RACE_VOID: the race was void"}
    shown = page("failed") | {"headline": "failed: benchmarks, 1 finding", "jobs": [job]}
    assert list(surprises((Answer(honest, shown),)))[:3] == [
        f"#{honest.number}: expected passed; found failed: benchmarks, 1 finding",
        "  job race, queued: race the candidate",
        "    the last try: RACE_VOID: the race was void",
    ]


def test_a_file_that_cannot_be_written_is_told_before_the_demonstration(tmp_path, capsys):
    assert main(["demo", "--once", "--json", str(tmp_path / "nowhere" / "verdicts.json")]) == 64
    told = capsys.readouterr()
    assert "expected --json as a file in an existing directory" in told.err and told.out == ""


def test_a_proxy_of_the_environment_is_not_asked_for_a_service_on_this_machine(tmp_path, monkeypatch):
    class Ready(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with HTTPServer(("127.0.0.1", 0), Ready) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with Service(url=url, log=tmp_path / "log").client() as client:
            assert client.get("/readyz").status_code == 200
        alive = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        (tmp_path / "log").touch()
        try:
            service._wait_until_ready(alive, url, tmp_path / "log")
        finally:
            alive.kill()
            alive.wait()
            server.shutdown()


def test_what_two_policies_say_alike_is_one_line_of_the_table():
    other = {**FINDING, "found": "0.03"}
    shown = page("failed")
    shown["checks"][0]["policies"] = [
        {"findings": [{**FINDING, "effect": "fail"}]},
        {"findings": [{**FINDING, "effect": "fail"}, {**other, "effect": "fail"}]},
    ]
    assert [row[4] for row in telling({**shown, "jobs": []})] == ["0.02", "0.03"]
