"""The checks publisher against the in-memory GitHub, over HTTP: what a person sees, in how many writes, whatever goes wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gatekeeper import texts
from gatekeeper.context import HeadPublisher, Judged
from gatekeeper.domain.errors import Conflict, Retryable
from gatekeeper.domain.policy import (
    ApprovalRequirement,
    Check,
    Effect,
    Finding,
    Outcome,
    PolicyResult,
    ProbeRequirement,
    Requirement,
    Severity,
)
from gatekeeper.domain.race import ProbeRequest, TreeSource
from gatekeeper.domain.snapshot import Snapshot
from gatekeeper.domain.verdict import Verdict, decide
from gatekeeper.github.app import GithubApp
from gatekeeper.github.pace import Limits
from gatekeeper.github.runs import CheckRuns
from gatekeeper.publishers.checks import NAMES, VERDICT_NAME, ChecksPublisher
from gatekeeper.publishers.wanted import MOST_ANNOTATIONS
from tests.builders import DIGEST, NOW, snapshot
from tests.github.sample_app import HEAD, REPOSITORY, installed
from tests.github.world import OTHER_APP, World

PAGE = "https://gate.example/pulls/acme/kernels/1"
PROBE = ProbeRequirement(
    request=ProbeRequest(source=TreeSource(repository_id=7, tree="1" * 40, directory="a", entry_point="a.b:c"))
)
APPROVAL = ApprovalRequirement(head_sha=HEAD, author="ada")
CONFIGURATION = """schema = 1
mode = "{mode}"
[[models]]
name = "k"
root = "models/k"
free = ["nvidia"]
"""


@dataclass
class Scene:
    """Both sides, and the repository's words for them."""

    world: World
    app: GithubApp
    publisher: ChecksPublisher

    def show(self, *verdicts: Verdict, head: str = HEAD, closed: bool = False) -> Any:
        judged = [Judged(shot(number, closed=closed), f"d{number}", each) for number, each in enumerate(verdicts, 1)]
        return self.publisher.show(REPOSITORY, head, judged)

    def announce(self, number: int = 1, base_ref: str = "main") -> None:
        self.publisher.announce(REPOSITORY, number, HEAD, base_ref)

    def seen(self) -> dict[str, str]:
        """What a person reads in the list of checks: conclusion, or status where there is none."""
        shown = self.world.shown(HEAD)
        return {name.removeprefix("gatekeeper/"): run.get("conclusion") or run["status"] for name, run in shown.items()}

    def count(self) -> int:
        return len(self.world.writes())


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with installed(tmp_path, Limits(between_writes=0)) as (world, app, _):
        pages = {"acme/kernels": "https://gate.example/pulls/acme/kernels"}
        yield Scene(
            world,
            app,
            ChecksPublisher(
                lambda repository: CheckRuns(app, repository), lambda name, number: f"{pages[name]}/{number}"
            ),
        )


def shot(number: int = 1, *, closed: bool = False) -> Snapshot:
    return snapshot(number).model_copy(update={"repository": REPOSITORY.full_name, "open": not closed})


def result(
    check: Check, outcome: Outcome | None = Outcome.PASSED, *requirements: Requirement, findings: Sequence[Finding] = ()
) -> PolicyResult:
    return PolicyResult(
        policy=f"rule_{check.name.lower()}", check=check, severity=Severity.BLOCKING, title="A rule", outcome=outcome,
        summary="so it is", findings=tuple(findings), requirements=requirements, parameters=DIGEST,
    )  # fmt: skip


def verdict(*results: PolicyResult, mode: str = "block", number: int = 1) -> Verdict:
    given = {each.check: each for each in results}
    whole = tuple(given.get(check) or result(check) for check in Check)
    return decide(
        snapshot=shot(number).digest(), policy_set=DIGEST, policy_set_name="default", evidence=(), results=whole,
        supersedes=None, now=NOW, mode=mode,
    )  # fmt: skip


def findings(count: int, code: str = "ISO_PATH_OUTSIDE") -> list[Finding]:
    return [
        Finding(code=code, message="outside", path=f"a/{n:03d}.py", line=n + 1, expected="inside", policy="isolation")
        for n in range(count)
    ]


PASSED = verdict()
FAILED = verdict(result(Check.ISOLATION, Outcome.FAILED, findings=findings(2)))
PENDING = verdict(result(Check.BENCHMARKS, Outcome.PENDING, PROBE))
ERROR = verdict(result(Check.SCOPE, Outcome.ERROR))


def test_it_is_a_publisher_of_heads(scene: Scene) -> None:
    assert isinstance(scene.publisher, HeadPublisher)


def test_a_head_is_judged_in_six_writes_and_the_verdict_is_first_and_last(scene: Scene) -> None:
    scene.announce()
    assert scene.seen() == {"verdict": "in_progress"}
    scene.show(PENDING)
    assert scene.seen() == dict.fromkeys(("isolation", "scope", "contributor-log"), "success") | {
        "verdict": "in_progress"
    }
    scene.show(PASSED)
    assert scene.seen() == dict.fromkeys(("isolation", "scope", "benchmarks", "contributor-log", "verdict"), "success")
    assert scene.count() == 6
    names = [(each.verb, (each.body or {}).get("name")) for each in scene.world.writes()]
    assert names[0] == ("POST", VERDICT_NAME) and names[-1] == ("PATCH", None)
    assert set(scene.world.shown(HEAD)) == set(NAMES)
    assert all(run["head_sha"] == HEAD for run in scene.world.runs.values())


@pytest.mark.parametrize("shown", [PASSED, FAILED, PENDING, ERROR])
def test_the_same_verdict_again_writes_nothing(scene: Scene, shown: Verdict) -> None:
    scene.announce()
    scene.show(shown)
    scene.show(shown)  # reads what was written, once
    count, left = scene.count(), scene.world.remaining
    scene.announce()
    assert scene.show(shown)["head"] == HEAD and scene.count() == count <= 6
    assert scene.world.remaining == left - 1, "one read of the configuration that is not there; the rest was free"


@pytest.mark.parametrize(
    ("mode", "shown", "expected"),
    [
        ("block", PASSED, "success"),
        ("block", FAILED, "failure"),
        ("block", ERROR, "failure"),
        ("block", PENDING, "in_progress"),
        ("warn", PASSED, "success"),
        ("warn", FAILED, "neutral"),
        ("warn", ERROR, "neutral"),
        ("warn", PENDING, "in_progress"),
    ],
)
def test_what_each_mode_concludes(scene: Scene, mode: str, shown: Verdict, expected: str) -> None:
    scene.show(shown.model_copy(update={"mode": mode}))
    assert scene.seen()["verdict"] == expected
    assert not {"skipped", "stale", *(() if mode == "warn" else ("neutral",))} & set(scene.seen().values())


def test_shadow_writes_nothing_and_finishes_what_was_begun(scene: Scene) -> None:
    scene.world.repositories[7].files["main", ".github/gatekeeper.toml"] = CONFIGURATION.format(mode="shadow").encode()
    scene.announce()
    scene.show(FAILED.model_copy(update={"mode": "shadow"}))
    assert scene.count() == 0
    scene.world.repositories[7].files["main", ".github/gatekeeper.toml"] = CONFIGURATION.format(mode="warn").encode()
    scene.announce()
    assert scene.seen() == {"verdict": "in_progress"}
    scene.show(FAILED.model_copy(update={"mode": "shadow"}))
    assert scene.seen() == {"verdict": "neutral"} and scene.count() == 2


def test_error_says_that_the_gate_failed_and_not_the_change(scene: Scene) -> None:
    scene.show(ERROR)
    run = scene.world.shown(HEAD)[VERDICT_NAME]
    assert (run["conclusion"], run["output"]["title"]) == ("failure", "gatekeeper could not decide")
    assert PAGE in run["output"]["summary"] and run["details_url"] == PAGE


def test_findings_stand_beside_their_lines_in_batches_of_fifty(scene: Scene) -> None:
    many = verdict(result(Check.ISOLATION, Outcome.FAILED, findings=findings(120)))
    scene.show(many)
    run = scene.world.shown(HEAD)["gatekeeper/isolation"]
    assert [each["path"] for each in run["annotations"]] == [f"a/{n:03d}.py" for n in range(120)]
    assert [
        len(each.body["output"].get("annotations", ()))
        for each in scene.world.writes()
        if "conclusion" not in each.body
    ] == [50, 20]
    assert run["annotations"][7] == {
        "path": "a/007.py", "start_line": 8, "end_line": 8, "annotation_level": "failure",
        "title": "ISO_PATH_OUTSIDE (isolation)",
        "message": "Outside.\nExpected: inside\nIt has to be changed; nobody may waive it.",
    }  # fmt: skip
    assert scene.world.shown(HEAD)[VERDICT_NAME]["annotations"] == []


def test_more_findings_than_are_shown_are_counted(scene: Scene) -> None:
    scene.show(verdict(result(Check.ISOLATION, Outcome.FAILED, findings=findings(MOST_ANNOTATIONS + 1))))
    run = scene.world.shown(HEAD)["gatekeeper/isolation"]
    assert len(run["annotations"]) == MOST_ANNOTATIONS
    assert run["output"]["text"].startswith("200 of 201 findings are shown beside their lines.")


def test_which_findings_are_beside_lines_and_how_loud(scene: Scene) -> None:
    waived = Finding(code="TA", message="m", path="w.py", waived_by="grace")
    odd = [
        Finding(code="TB", message="a hint", path="b.py", effect=Effect.NOTE),
        Finding(code="TC", message="hold", path="c.py", line=4, effect=Effect.HOLD, waivable_by=("lin",)),
        Finding(code="TD", message="no place"),
        Finding(code="TE", message="no text", path="bad\\xff.py"),
        Finding(code="TF", message="caf\u00e9", path="caf\\xc3\\xa9.py", line=2),
        Finding(code="TG", message="control", path="a\\x0ab.py"),
    ]
    scene.show(verdict(result(Check.SCOPE, Outcome.FAILED, findings=[waived, *odd])))
    shown = scene.world.shown(HEAD)["gatekeeper/scope"]["annotations"]
    assert [(each["path"], each["start_line"], each["annotation_level"]) for each in shown] == [
        ("caf\u00e9.py", 2, "failure"), ("c.py", 4, "warning"), ("b.py", 1, "notice"),
    ]  # fmt: skip


def test_another_answer_for_the_same_head_is_a_new_run_without_old_findings(scene: Scene) -> None:
    scene.show(FAILED)
    scene.show(PASSED)
    assert scene.seen()["isolation"] == scene.seen()["verdict"] == "success"
    assert scene.world.shown(HEAD)["gatekeeper/isolation"]["annotations"] == []
    assert scene.count() == 7, "five and the two that say something else"


def test_a_check_that_is_pending_again_does_not_keep_its_old_success(scene: Scene) -> None:
    scene.show(PASSED)
    scene.show(PENDING)
    assert (scene.seen()["benchmarks"], scene.seen()["verdict"], scene.seen()["scope"]) == (
        "in_progress",
        "in_progress",
        "success",
    )
    scene.show(PASSED)
    assert set(scene.seen().values()) == {"success"}


def test_what_waits_for_people_says_so(scene: Scene) -> None:
    scene.announce()
    scene.show(verdict(result(Check.BENCHMARKS, Outcome.PENDING, APPROVAL)))
    run = scene.world.shown(HEAD)[VERDICT_NAME]
    assert run["status"] == "in_progress" and run["output"]["title"] == "pending: benchmarks"
    assert "a maintainer's approval of head" in run["output"]["summary"]


@pytest.mark.parametrize("applied", [False, True], ids=["lost request", "lost answer"])
@pytest.mark.parametrize("which", range(5))
def test_a_write_that_was_lost_is_done_once_in_the_end(scene: Scene, applied: bool, which: int) -> None:
    for step in range(which + 1):
        scene.world.fail(0 if step == which else 503, on="check-runs", applied=applied)
        with pytest.raises(Retryable):
            scene.show(FAILED)
    scene.show(FAILED)
    assert scene.seen() == {"isolation": "failure", "verdict": "failure"} | dict.fromkeys(
        ("scope", "benchmarks", "contributor-log"), "success"
    )
    assert len(scene.world.runs) == 5 and len(scene.world.shown(HEAD)["gatekeeper/isolation"]["annotations"]) == 2


def test_annotations_go_on_where_they_stopped(scene: Scene) -> None:
    many = verdict(result(Check.ISOLATION, Outcome.FAILED, findings=findings(170)))
    scene.world.fail(502, on="PATCH", applied=True)
    with pytest.raises(Retryable):
        scene.show(many)
    scene.show(many)
    paths = [each["path"] for each in scene.world.shown(HEAD)["gatekeeper/isolation"]["annotations"]]
    assert paths == sorted(set(paths)) and len(paths) == 170


def test_a_text_that_github_refuses_is_sent_again_in_its_shortest_form(scene: Scene) -> None:
    scene.world.fail(422, on="POST /repos")
    scene.show(FAILED)
    run = scene.world.shown(HEAD)["gatekeeper/isolation"]
    assert run["conclusion"] == "failure" and run["annotations"] == [] and PAGE in run["output"]["summary"]
    count = scene.count()
    scene.show(FAILED)
    assert scene.count() == count, "not tried again each time"


def test_a_text_that_cannot_be_made_still_ends_the_check(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.announce()

    def broken(*_: Any, **__: Any) -> str:
        raise KeyError("a fault of ours")

    monkeypatch.setattr(texts, "verdict_summary", broken)
    scene.show(PASSED)
    run = scene.world.shown(HEAD)[VERDICT_NAME]
    assert run["conclusion"] == "failure" and run["output"]["title"].startswith("gatekeeper could not decide")


def test_long_and_hostile_texts_fit(scene: Scene) -> None:
    hostile = [
        Finding(
            code="TX", message="\u2603" * 4000 + "\x00\x07@everyone <b>", expected="`" * 900, path="a.py", line=10**12
        )
        for _ in range(60)
    ]
    scene.show(verdict(result(Check.ISOLATION, Outcome.FAILED, findings=hostile)))
    run = scene.world.shown(HEAD)["gatekeeper/isolation"]
    assert len(run["output"]["summary"].encode()) <= 65_535 and len(run["annotations"]) == 60
    assert all(
        each["external_id"] and not each["external_id"].endswith("bare") for each in scene.world.shown(HEAD).values()
    )


def test_a_head_that_was_left_is_finished_and_never_judged_again(scene: Scene) -> None:
    scene.announce()
    scene.publisher.leave(REPOSITORY, 1, HEAD, "b" * 40)
    run = scene.world.shown(HEAD)[VERDICT_NAME]
    assert run["conclusion"] == "cancelled" and "`bbbbbbbbbbbb` was pushed" in run["output"]["summary"]
    scene.publisher.leave(REPOSITORY, 1, HEAD, "b" * 40)
    assert scene.count() == 2
    scene.publisher.leave(REPOSITORY, 1, "9" * 40, "b" * 40)  # a commit that GitHub has forgotten


def test_a_finished_verdict_of_an_old_head_stays_as_it_is(scene: Scene) -> None:
    scene.show(PASSED)
    scene.publisher.leave(REPOSITORY, 1, HEAD, "b" * 40)
    assert scene.seen()["verdict"] == "success" and scene.count() == 5


@pytest.mark.parametrize(("shown", "expected"), [(PENDING, "cancelled"), (FAILED, "failure")])
def test_a_closed_pull_request_gets_its_unfinished_checks_finished(scene: Scene, shown: Verdict, expected: str) -> None:
    scene.announce()
    scene.show(shown, closed=True)
    assert scene.seen() == {"verdict": expected}
    scene.show(shown, closed=True)
    assert scene.count() == 2


def test_a_closed_pull_request_without_checks_gets_none(scene: Scene) -> None:
    scene.show(FAILED, closed=True)
    assert scene.count() == 0


def test_a_pull_request_that_is_opened_again_is_judged_again(scene: Scene) -> None:
    scene.announce()
    scene.show(PENDING, closed=True)
    scene.show(PENDING)
    assert scene.seen()["verdict"] == "in_progress"
    scene.show(PASSED)
    assert set(scene.seen().values()) == {"success"}


@pytest.mark.parametrize("others", [(PASSED, FAILED), (FAILED, PASSED)])
def test_of_two_pull_requests_with_one_head_the_harder_verdict_is_shown(
    scene: Scene, others: tuple[Verdict, ...]
) -> None:
    scene.show(others[0])
    scene.show(*others)
    assert scene.seen()["verdict"] == "failure"
    summary = scene.world.shown(HEAD)[VERDICT_NAME]["output"]["summary"]
    assert "This commit is the head of #1, #2." in summary


def test_a_second_pull_request_with_the_same_head_takes_back_the_success_until_it_is_judged(scene: Scene) -> None:
    scene.show(PASSED)
    scene.announce(2)
    assert scene.seen()["verdict"] == "in_progress"
    scene.publisher.leave(REPOSITORY, 1, HEAD, "b" * 40)
    assert scene.seen()["verdict"] == "in_progress", "it speaks for another pull request too"
    scene.show(PASSED, PASSED)
    assert scene.seen()["verdict"] == "success"


def test_a_lenient_mode_of_one_base_does_not_hide_the_verdict_for_another(scene: Scene) -> None:
    scene.show(FAILED, PASSED.model_copy(update={"mode": "shadow"}))
    assert scene.seen()["verdict"] == "failure"
    scene.show(PASSED, FAILED.model_copy(update={"mode": "warn"}))
    assert scene.seen()["verdict"] == "success", "what only warns does not stand in the way"


def test_a_run_of_the_same_name_by_another_app_is_no_answer_of_ours(scene: Scene) -> None:
    scene.announce()
    foreign = dict(scene.world.runs[100], id=900, app=OTHER_APP, status="completed", conclusion="success")
    scene.world.runs[900] = foreign
    scene.show(FAILED)
    assert scene.world.runs[100]["conclusion"] == "failure" and scene.world.runs[900]["conclusion"] == "success"


def test_a_copy_of_our_answer_by_another_app_is_no_answer_of_ours(scene: Scene) -> None:
    scene.show(FAILED)
    for run in scene.world.runs.values():
        run["app"] = OTHER_APP
    scene.show(FAILED)
    assert scene.seen()["verdict"] == "failure" and scene.count() == 10


def test_a_run_that_github_gave_up_is_begun_again(scene: Scene) -> None:
    scene.announce()
    scene.world.runs[100] |= {"status": "completed", "conclusion": "stale"}
    scene.show(PENDING)
    assert scene.seen()["verdict"] == "in_progress" and scene.world.shown(HEAD)[VERDICT_NAME]["id"] != 100


def test_an_app_that_is_not_installed_is_a_conflict(scene: Scene) -> None:
    scene.world.repositories[7].installation = None
    with pytest.raises(Conflict, match="GITHUB_NOT_INSTALLED"):
        scene.show(PASSED)


def test_another_base_branch_takes_back_the_success_until_it_is_judged(scene: Scene) -> None:
    scene.show(PASSED)
    scene.announce(base_ref="release/1")
    assert scene.seen()["verdict"] == "in_progress"
    count = scene.count()
    scene.announce(base_ref="release/1")
    assert scene.count() == count
