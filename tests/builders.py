"""Small valid documents: defaults that hold together, keywords for what a test is about."""

from __future__ import annotations

from datetime import UTC, datetime

from gatekeeper.domain.evidence import Evidence, PullSubject, Waiver
from gatekeeper.domain.policy import Check, Outcome, PolicyResult, Severity
from gatekeeper.domain.snapshot import Author, Snapshot, SnapshotKey
from gatekeeper.domain.verdict import Verdict, decide

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
DIGEST = "sha256:" + "0" * 64


def sha(letter: str) -> str:
    """Return a git object id made of one hexadecimal digit."""
    return letter * 40


def snapshot(number: int = 1, *, head: str = "a", merge_tree: str | None = "d", repository_id: int = 7) -> Snapshot:
    """Return a snapshot of a pull request that changes nothing."""
    return Snapshot(
        key=SnapshotKey(
            repository_id=repository_id, number=number, head_sha=sha(head), base_sha=sha("b"), policy_set=DIGEST,
            merge_tree=None if merge_tree is None else sha(merge_tree),
        ),
        repository="sample/upstream", title=f"change {number}", author=Author(id=3, login="ada"), base_ref="main",
        head_tree=sha("c"), base_tree=sha("e"), merge_bases=(sha("b"),), proposed=(), merged=None, configuration=DIGEST,
    )  # fmt: skip


def verdict(of: str, *, supersedes: str | None = None, outcome: Outcome = Outcome.PASSED, summary: str = "") -> Verdict:
    """Return a verdict over the snapshot of digest ``of``, in which one policy of each check says ``outcome``."""
    results = tuple(
        PolicyResult(
            policy=f"rule_{check.name.lower()}", check=check, severity=Severity.BLOCKING, title="a rule", outcome=outcome,
            summary=summary, parameters=DIGEST,
        )
        for check in Check
    )  # fmt: skip
    return decide(
        snapshot=of, policy_set=DIGEST, policy_set_name="default", evidence=(), results=results, supersedes=supersedes,
        now=NOW,
    )  # fmt: skip


def waiver(number: int = 1, *, head: str = "a", by: str = "grace") -> Evidence:
    """Return a waiver bound to a pull request's head."""
    return Evidence(
        subject=PullSubject(repository_id=7, number=number, head_sha=sha(head)),
        recorded_at=NOW,
        body=Waiver(policy="isolation", code="ISO_HOOK_UNGUARDED", by=by, reason="agreed with the owners"),
    )
