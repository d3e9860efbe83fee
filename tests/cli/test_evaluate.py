"""``gatekeeper evaluate``: a stored snapshot is decided again offline, and what waits for evidence is pending, not passed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gatekeeper.cli import main
from gatekeeper.cli.check import run_check
from gatekeeper.demo.pulls import sample_pulls
from gatekeeper.demo.upstream import build
from gatekeeper.domain.bundle import Bundle
from gatekeeper.domain.policy import Outcome
from gatekeeper.domain.repository import read
from gatekeeper.domain.verdict import decide
from gatekeeper.git.local import LocalRepository


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample repository with all its pull requests as refs."""
    path = tmp_path_factory.mktemp("evaluate") / "up.git"
    build(path, {pull.number: (pull.title, pull.changes) for pull in sample_pulls()})
    return path


def bundle_of(upstream: Path, number: int) -> Bundle:
    """Return the documents of a pull request before any evidence."""
    checked = run_check(upstream, "main", f"refs/pull/{number}/head")
    with LocalRepository(upstream) as local:
        configuration = read(local.repository.tree(checked.snapshot.base_tree))
    return Bundle(snapshot=checked.snapshot, configuration=configuration)


def stored(tmp_path: Path, bundle: Bundle) -> str:
    file = tmp_path / "bundle.json"
    file.write_bytes(bundle.canonical_json())
    return str(file)


@pytest.mark.parametrize(("number", "outcome", "status"), [(1, "pending", 2), (2, "failed", 1), (9, "passed", 0)])
def test_outcome_lines_and_status_agree(
    upstream: Path, tmp_path: Path, number: int, outcome: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    file = stored(tmp_path, bundle_of(upstream, number))
    assert main(["evaluate", file, "--repo", str(upstream)]) == status
    lines = capsys.readouterr().out.splitlines()
    assert f"outcome: {outcome}" in lines
    assert main(["evaluate", file, "--repo", str(upstream), "--json"]) == status
    document = json.loads(capsys.readouterr().out)
    assert document["outcome"] == outcome and document["stored_outcome"] is None
    by_policy = {each["policy"]: each["outcome"] for each in document["policies"]}
    shown = {line.split(": ")[1]: line.split(": ")[0] for line in lines if line.split(": ")[1] in by_policy}
    assert shown == {policy: each or "nothing to judge" for policy, each in by_policy.items()}
    if number == 1:
        assert by_policy["kernel_is_faster"] == by_policy["scope_is_probed"] == "pending"


def test_a_stored_verdict_that_says_otherwise_is_shown(
    upstream: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = bundle_of(upstream, 9)
    verdict = decide(
        snapshot=bundle.snapshot.digest(), policy_set=bundle.snapshot.key.policy_set, policy_set_name="demo", evidence=(),
        results=run_check(upstream, "main", "refs/pull/2/head").results, supersedes=None, now=datetime.now(UTC),
    )  # fmt: skip
    assert verdict.outcome is Outcome.ERROR  # no policy of the benchmarks was asked
    file = stored(tmp_path, bundle.model_copy(update={"verdict": verdict}))
    assert main(["evaluate", file, "--repo", str(upstream)]) == 0
    assert "the stored verdict said error" in capsys.readouterr().out
    assert main(["evaluate", file, "--repo", str(upstream), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["outcome"], document["stored_outcome"]) == ("passed", "error")


@pytest.mark.parametrize(
    ("change", "expected", "found"),
    [
        (lambda data: b"", "one JSON document", "EOF"),
        (lambda data: b"schema = 1", "one JSON document", "expected value at line 1"),
        (lambda data: b"\xff", "one JSON document", "line 1"),
        (lambda data: b"[1]", "an object", "[1]"),
        (lambda data: data.replace(b'"schema_version":1,"snapshot"', b'"schema_version":2,"snapshot"'), "1", "2"),
        (lambda data: data.replace(b'"base_ref":', b'"draft":true,"draft":', 1), "a value", "nothing"),
        (lambda data: data.replace(b'"draft":', b'"drift":0,"draft":', 1), "a field of this schema", "`drift`"),
    ],
)
def test_what_is_no_bundle_is_told_with_what_was_expected(
    upstream: Path, tmp_path: Path, change, expected: str, found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bundle_of(upstream, 9).canonical_json()
    changed = change(data)
    assert changed != data
    (tmp_path / "b.json").write_bytes(changed)
    assert main(["evaluate", str(tmp_path / "b.json"), "--repo", str(upstream), "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    [finding] = document["findings"]
    assert (document["outcome"], finding["code"]) == ("error", "BUNDLE")
    assert expected in finding["expected"] and found in finding["found"], finding


def test_a_clone_without_the_commits_is_told_how_to_get_them(
    upstream: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = bundle_of(upstream, 9)
    build(tmp_path / "other.git", {}, {"more": b"1\n"})
    snapshot = bundle.snapshot
    pull = snapshot.model_copy(update={"key": snapshot.key.model_copy(update={"number": 9})})
    file = stored(tmp_path, bundle.model_copy(update={"snapshot": pull}))
    assert main(["evaluate", file, "--repo", str(tmp_path / "other.git"), "--json"]) == 3
    [finding] = json.loads(capsys.readouterr().out)["findings"]
    assert finding["code"] == "LOCAL_REVISION"
    assert "git fetch" in finding["expected"] and "pull/9/head" in finding["expected"]


def test_another_snapshot_than_the_objects_give_is_refused(
    upstream: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = bundle_of(upstream, 2)
    without = bundle.snapshot.model_copy(update={"proposed": bundle.snapshot.proposed[:0]})
    file = stored(tmp_path, bundle.model_copy(update={"snapshot": without}))
    assert main(["evaluate", file, "--repo", str(upstream), "--json"]) == 3
    [finding] = json.loads(capsys.readouterr().out)["findings"]
    assert finding["code"] == "BUNDLE_SNAPSHOT"


def test_wrong_usage(tmp_path: Path) -> None:
    assert main(["evaluate"]) == 64
    assert main(["evaluate", str(tmp_path / "none.json")]) == 64
    assert main(["evaluate", str(tmp_path)]) == 64
