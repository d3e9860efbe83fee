"""What a refused snapshot means for a verdict: it is decided without any policy, because there are no trees to look at."""

from __future__ import annotations

from gatekeeper.domain.policy import Check, Effect, Finding, Outcome, PolicyResult, Severity
from gatekeeper.domain.snapshot import Refusal

ENGINE = "engine"
"""Names, in place of a policy, a result that says that gatekeeper or its machines failed and not the candidate."""
INTAKE = "intake"
"""Names, in place of a policy, what git itself refuses about a head."""


def results_of(refusal: Refusal, parameters: str) -> tuple[PolicyResult, ...]:
    """Return the results of a refused snapshot: one that says why, and the other three checks waiting for a readable head.

    Args:
        refusal: why the commits could not be read.
        parameters: digest of the policy set that the verdict names.
    """
    policy = INTAKE if refusal.by_head else ENGINE
    finding = Finding(
        code=refusal.code, message=refusal.message, expected=refusal.expected, found=refusal.found, effect=Effect.FAIL,
        policy=policy,
    )  # fmt: skip
    telling = PolicyResult(
        policy=policy,
        check=Check.ISOLATION,
        severity=Severity.BLOCKING,
        title="The commits can be read" if refusal.by_head else "gatekeeper itself",
        outcome=Outcome.FAILED if refusal.by_head else Outcome.ERROR,
        summary=refusal.message,
        findings=(finding,),
        parameters=parameters,
    )
    waiting = tuple(
        PolicyResult(
            policy=INTAKE,
            check=check,
            severity=Severity.BLOCKING,
            title="The commits can be read",
            outcome=Outcome.PENDING,
            summary="nothing could be judged: the commits could not be read",
            parameters=parameters,
        )
        for check in Check
        if check is not Check.ISOLATION
    )
    return (telling, *waiting)
