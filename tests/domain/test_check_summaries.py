"""The line that a check says: what its policies say, and nothing twice."""

from __future__ import annotations

from datetime import UTC, datetime

from gatekeeper.domain.policy import Check, Outcome, PolicyResult, Severity
from gatekeeper.domain.verdict import decide


def said(*results: tuple[Outcome, str]) -> str:
    """Return the summary of the benchmarks check of these policies."""
    verdict = decide(
        snapshot="sha256:" + "0a" * 32, policy_set="sha256:" + "0b" * 32, policy_set_name="demo", evidence=(),
        results=tuple(
            PolicyResult(
                policy=f"policy_{number}", check=Check.BENCHMARKS, severity=Severity.BLOCKING, title="A rule", outcome=outcome,
                summary=summary, parameters="sha256:" + "00" * 32,
            )
            for number, (outcome, summary) in enumerate(results)
        ),
        supersedes=None, now=datetime(2026, 11, 30, tzinfo=UTC),
    )  # fmt: skip
    return next(check.summary for check in verdict.checks if check.check is Check.BENCHMARKS)


def test_two_policies_that_say_the_same_say_it_once() -> None:
    same = "cpu: wrong (comm=shard, alpha 0.01)"
    assert said((Outcome.FAILED, same), (Outcome.FAILED, same)) == same


def test_what_differs_is_all_said_in_the_order_of_the_policies() -> None:
    assert said((Outcome.FAILED, "b"), (Outcome.FAILED, "a"), (Outcome.FAILED, "b")) == "b; a"


def test_only_the_policies_of_the_worst_outcome_are_heard() -> None:
    assert said((Outcome.PASSED, "fine"), (Outcome.FAILED, "slow")) == "slow"
