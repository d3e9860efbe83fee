"""From a person's command to the verdict and the page: waivers, approvals, budgets, and who may not give them."""

from __future__ import annotations

import json
import logging
import shlex
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from gatekeeper import bootstrap
from gatekeeper.cli import main
from gatekeeper.cli.serve import web_app
from gatekeeper.config import Settings
from gatekeeper.demo import delivery
from gatekeeper.demo.pulls import SamplePull, sample_pulls
from gatekeeper.demo.upstream import Upstream, build
from gatekeeper.domain.jobs import JobKind, JobState

SECRET = "s" * 40
UNGUARDED = next(pull for pull in sample_pulls() if "ISO_HOOK_UNGUARDED" in pull.codes)
OUTSIDE = next(pull for pull in sample_pulls() if "ISO_PATH_OUTSIDE" in pull.codes)
HONEST = sample_pulls()[0]
PULLS = (HONEST, OUTSIDE, UNGUARDED)


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    place = tmp_path_factory.mktemp("remote") / delivery.OWNER / f"{delivery.NAME}.git"
    place.parent.mkdir()
    return build(place, {pull.number: (pull.title, pull.changes) for pull in PULLS})


@dataclass
class Gate:
    """A service with three pull requests read, its web client, and the command line on the same database."""

    service: bootstrap.Service
    client: TestClient
    upstream: Upstream
    capsys: pytest.CaptureFixture[str]

    def announce(self, pull: SamplePull, action: str = "opened", **changes: Any) -> None:
        head = self.upstream.heads[pull.number]
        content = delivery.payload(pull.number, pull.title, pull.author, head, self.upstream.base_sha)
        content["action"] = action
        content["pull_request"].update(changes)
        body = json.dumps(content).encode()
        headers = {
            "Content-Type": "application/json",
            "X-GitHub-Event": "pull_request",
            "X-GitHub-Delivery": str(uuid.uuid4()),
            "X-GitHub-Hook-ID": str(delivery.HOOK_ID),
            "X-Hub-Signature-256": delivery.sign(SECRET, body),
        }
        assert self.client.post("/webhooks/github", content=body, headers=headers).status_code == 202
        self.work_off()

    def work_off(self) -> None:
        kinds = [JobKind.INTAKE, JobKind.EVALUATE, JobKind.PUBLISH]
        for _ in range(50):
            with self.service.ctx.store.read() as uow:
                due = uow.due_jobs(20, kinds)
            if not due:
                return
            for job_id in due:
                self.service.run_job(job_id)
        raise AssertionError("the jobs never end")

    def waiting(self) -> set[JobKind]:
        with self.service.ctx.store.read() as uow:
            rows = [uow.job(job_id) for job_id in uow.due_jobs(20, [JobKind.PROBE, JobKind.RACE])]
        return {row.kind for row in rows if row is not None}

    def page(self, pull: SamplePull) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(f"/api/v1/pulls/{delivery.REPOSITORY}/{pull.number}").json()
        return found

    def check(self, pull: SamplePull, name: str) -> dict[str, Any]:
        return next(check for check in self.page(pull)["checks"] if check["check"] == name)

    def run(self, command: str, pull: SamplePull, *options: str, head: str | None = None) -> tuple[int, str, str]:
        """Run a command about a pull request; returns exit status, standard output and standard error."""
        at = ("--head", head or self.upstream.heads[pull.number]) if head != "" else ()
        self.capsys.readouterr()  # what the service said until now
        status = main([command, f"{delivery.REPOSITORY}#{pull.number}", *at, *options])
        said = self.capsys.readouterr()
        return status, said.out, said.err

    def waive(self, *, by: str, **changes: str) -> tuple[int, str, str]:
        head = changes.pop("head", None)
        values = {"policy": "isolation", "code": "ISO_HOOK_UNGUARDED", "reason": "agreed: stock reads it too"} | changes
        return self.run(
            "waive", UNGUARDED, "--by", by, *(f"--{key}={value}" for key, value in values.items()), head=head
        )


@pytest.fixture
def gate(
    tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Gate]:
    values = {
        "DATABASE_URL": f"sqlite:///{tmp_path / 'gatekeeper.db'}",
        "DATA_DIR": str(tmp_path / "data"),
        "WEBHOOK_SECRET": SECRET,
        "GIT_BASE_URL": f"file://{upstream.path.parent.parent}",
        "POLICY_SET": "demo",
        "TRUSTED_AUTHORS": '["ben"]',
    }
    for name, value in values.items():
        monkeypatch.setenv(f"GATEKEEPER_{name}", value)
    service = bootstrap.build(Settings())
    made = Gate(service, TestClient(web_app(service), base_url="http://127.0.0.1"), upstream, capsys)
    handlers = logging.getLogger().handlers[:]
    for pull in PULLS:
        made.announce(pull)
    yield made
    logging.getLogger().handlers[:] = handlers  # the commands sent the logs to a stream that ends with this test
    service.close()


def findings(check: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {finding["code"]: finding for policy in check["policies"] for finding in policy["findings"]}


def test_code_that_failed_a_static_check_is_not_raced_and_its_check_says_so(gate: Gate) -> None:
    benchmarks = gate.check(OUTSIDE, "benchmarks")
    assert benchmarks["outcome"] == "pending"
    assert benchmarks["summary"].startswith("not raced yet: waits for `isolation`, which has failed")
    assert "BENCH_WAITS" in findings(benchmarks)
    assert JobKind.RACE not in gate.waiting()


def test_an_owners_waiver_lets_the_finding_pass_at_once_and_stands_on_the_page_with_who_and_why(gate: Gate) -> None:
    assert gate.check(UNGUARDED, "isolation")["outcome"] == "failed"
    status, out, _ = gate.waive(by="@k3-owner", path="vllm/models/kimi_k3/nvidia/model.py")
    assert (status, out.splitlines()[-1].startswith("the verdict is now: pending")) == (0, True)
    check = gate.check(UNGUARDED, "isolation")
    assert check["outcome"] == "passed"
    assert findings(check)["ISO_HOOK_UNGUARDED"]["waived_by"] == "k3-owner"
    assert "isolation" not in gate.check(UNGUARDED, "benchmarks")["summary"], "now its race waits for its probe only"
    evidence = [row["summary"] for row in gate.page(UNGUARDED)["evidence"] if row["kind"] == "waiver"]
    assert evidence == ["k3-owner lets ISO_HOOK_UNGUARDED of isolation pass: agreed: stock reads it too"]
    html = gate.client.get(f"/pulls/{delivery.REPOSITORY}/{UNGUARDED.number}").text
    assert "waived by k3-owner" in html and "agreed: stock reads it too" in html
    gate.work_off()
    assert gate.page(UNGUARDED)["published"][0]["verdict"] == gate.page(UNGUARDED)["verdict"]


@pytest.mark.parametrize(
    ("by", "changes", "code"),
    [
        ("ben", {}, "DECISION_NO_RIGHT"),
        ("stranger", {}, "DECISION_NO_RIGHT"),
        ("moe-owner", {}, "DECISION_NO_RIGHT"),
        ("sample/maintainers", {}, "DECISION_BY"),
        ("k3-owner", {"code": "ISO_PATH_OUTSIDE"}, "DECISION_NO_FINDING"),
        ("k3-owner", {"policy": "kernel_is_right"}, "DECISION_NO_FINDING"),
        ("k3-owner", {"path": "vllm/core/scheduler.py"}, "DECISION_NO_FINDING"),
        ("k3-owner", {"reason": "  "}, "DECISION_REASON"),
        ("k3-owner", {"head": "a" * 40}, "DECISION_HEAD_MOVED"),
        ("k3-owner", {"head": "abcdef0"}, "DECISION_HEAD"),
    ],
)
def test_what_may_not_be_waived_is_refused_with_the_reason_and_changes_nothing(
    gate: Gate, by: str, changes: dict[str, str], code: str
) -> None:
    before = gate.page(UNGUARDED)["verdict"]
    status, out, err = gate.waive(by=by, **changes)
    assert (status, out) == (1, "") and f"not recorded: {code}:" in err
    assert gate.page(UNGUARDED)["verdict"] == before
    assert gate.run("decisions", UNGUARDED, head="")[1].startswith("nothing was decided")


def test_what_nobody_may_waive_is_refused_even_to_a_maintainer(gate: Gate) -> None:
    options = ("--policy=isolation", "--code=ISO_PATH_OUTSIDE", "--reason=we need it", "--by=mira")
    status, _, err = gate.run("waive", OUTSIDE, *options)
    assert status == 1 and "nobody may waive this finding" in err


def test_a_waiver_is_withdrawn_by_its_giver_or_a_maintainer_and_both_stay_to_be_seen(gate: Gate) -> None:
    gate.waive(by="k3-owner")
    listed = json.loads(gate.run("decisions", UNGUARDED, "--json", head="")[1])
    (row,) = listed["decisions"]
    assert (row["by"], row["state"], row["what"]) == ("k3-owner", "in force", "isolation ISO_HOOK_UNGUARDED")
    assert gate.waive(by="k3-owner")[0] == 1, "what is waived already is not waived again"
    for by, status in (("stranger", 1), ("mira", 0), ("mira", 1)):
        options = ("--by", by, "--reason", "it is not so after all")
        assert gate.run("withdraw", UNGUARDED, row["digest"], *options, head="")[0] == status
    assert gate.check(UNGUARDED, "isolation")["outcome"] == "failed"
    listed = json.loads(gate.run("decisions", UNGUARDED, "--json", head="")[1])
    assert [each["state"] for each in listed["decisions"]] == ["withdrawn"]
    assert {each["code"] for each in listed["waivable"]} == {"ISO_HOOK_UNGUARDED"}
    assert {row["kind"] for row in gate.page(UNGUARDED)["evidence"]} == {"waiver", "withdrawal"}
    assert gate.waive(by="k3-owner")[0] == 0, "and may be waived anew"


def test_a_new_author_waits_for_a_maintainer_who_approves_this_very_head(gate: Gate) -> None:
    assert HONEST.author[1] == "ada" and gate.page(HONEST)["outcome"] == "pending"
    assert "waits for a maintainer to approve this head" in gate.check(HONEST, "benchmarks")["summary"]
    for by, head in (("ada", None), ("k3-owner", None), ("mira", "b" * 40)):
        assert gate.run("approve", HONEST, "--by", by, head=head)[0] == 1
    assert "waiting for an approval" in gate.check(HONEST, "scope")["summary"]
    status, out, _ = gate.run("approve", HONEST, "--by", "mira", "--json")
    said = json.loads(out)
    assert (status, said["judged"], said["verdict"]) == (0, True, "pending")
    assert "waiting for a probe" in gate.check(HONEST, "scope")["summary"]
    with gate.service.ctx.store.read() as uow:
        assert uow.evidence(said["recorded"]).body.by == "mira"
    page = gate.page(HONEST)
    assert [row["summary"] for row in page["evidence"]] == ["mira allows this head's code to be run in the jail."]
    options = ("--by", "mira", "--reason", "the wrong one")
    assert gate.run("withdraw", HONEST, said["recorded"], *options, head="")[0] == 0
    assert "waiting for an approval" in gate.check(HONEST, "scope")["summary"]


def test_what_is_left_to_decide_is_listed_with_the_command_to_copy(gate: Gate) -> None:
    head = gate.upstream.heads[HONEST.number]
    command = f"gatekeeper approve {delivery.REPOSITORY}#{HONEST.number} --head {head} --by LOGIN"
    out = gate.run("decisions", HONEST, head="")[1]
    assert f"left to decide for head {head}:" in out and f"  {command}\n" in out
    assert "whether code of ada, who is new here, may be run in the jail (@sample/maintainers)" in out
    (approval,) = json.loads(gate.run("decisions", HONEST, "--json", head="")[1])["left"]
    assert (approval["kind"], approval["command"]) == ("approval", command)
    page = gate.client.get(f"/pulls/{delivery.REPOSITORY}/{HONEST.number}").text
    assert f"<pre><code>{command}</code></pre>" in page
    assert main([*command.replace("LOGIN", "mira").split()[1:]]) == 0, "it can be run as it stands"
    assert "nothing is left to decide" in gate.run("decisions", HONEST, head="")[1]
    waiver = next(each for each in gate.page(UNGUARDED)["left"] if "ISO_HOOK_UNGUARDED" in each["what"])
    assert "@k3-owner" in waiver["by"]
    words = shlex.split(waiver["command"].replace("LOGIN", "k3-owner").replace("WHY", "'it is agreed'"))
    assert main(words[1:]) == 0
    assert gate.page(OUTSIDE)["left"] == [], "what nobody may waive is not left to anybody"
    gate.announce(HONEST, "closed", state="closed")
    assert gate.page(HONEST)["left"] == []


def test_a_budget_is_reset_by_a_maintainer_only(gate: Gate) -> None:
    assert gate.run("reset-budget", HONEST, "--by", "ada", "--reason", "please")[0] == 1
    assert gate.run("reset-budget", HONEST, "--by", "mira", "--reason", "the noise was ours")[0] == 0
    assert [row["summary"] for row in gate.page(HONEST)["evidence"]] == [
        "mira lets the count of races begin anew: the noise was ours"
    ]


def test_a_closed_or_unknown_pull_request_is_not_decided_about(gate: Gate) -> None:
    gate.announce(UNGUARDED, "closed", state="closed")
    status, _, err = gate.waive(by="k3-owner")
    assert status == 1 and "DECISION_CLOSED" in err
    assert main(["approve", "nobody/nothing#7", "--head", "a" * 40, "--by", "mira"]) == 1
    assert "DECISION_UNKNOWN_PULL" in gate.capsys.readouterr().err
    assert main(["decisions", f"{delivery.REPOSITORY}#77"]) == 3
    assert main(["approve", "nothing", "--head", "a" * 40, "--by", "mira"]) == 64


def test_what_was_given_up_is_asked_for_again(gate: Gate) -> None:
    assert gate.run("retry", UNGUARDED, head="")[1].strip() == "nothing was given up"
    with gate.service.ctx.store.begin() as uow:
        job_id = next(iter(uow.due_jobs(20, [JobKind.PROBE])))
        claim = uow.claim(job_id, gate.service.ctx.lease)
        assert claim is not None
        uow.finish(claim, JobState.FAILED, "RUN_REFUSED: the worker refuses the order")
    pull = next(each for each in PULLS if claim.key in asked_by(gate, each))
    gate.announce(pull, "edited")
    scope = gate.check(pull, "scope")
    assert scope["outcome"] == "error"
    assert "RUN_REFUSED" in findings(scope)["RUN_INFRASTRUCTURE"]["found"]
    assert gate.run("retry", pull, head="")[1].startswith("probe ")
    gate.work_off()
    assert gate.check(pull, "scope")["outcome"] in ("pending", "failed")


def asked_by(gate: Gate, pull: SamplePull) -> set[str]:
    with gate.service.ctx.store.read() as uow:
        current = uow.latest_snapshot(delivery.REPOSITORY_ID, pull.number)
        verdict = uow.latest_verdict(current[0]) if current else None
    assert verdict is not None
    return {
        need.request.digest() for result in verdict[1].results for need in result.requirements if need.kind == "probe"
    }
