"""Principle 3 over stored evidence: which races speak for a directory, at which alpha, and what they say when decided again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import Field

from gatekeeper.domain.advertised import EnumerationRules
from gatekeeper.domain.catalog import JailLevel
from gatekeeper.domain.decision import Decision
from gatekeeper.domain.errors import GatekeeperError
from gatekeeper.domain.evidence import BudgetReset, Evidence, RaceEvidence, TreeSubject, in_force
from gatekeeper.domain.owners import read_owners
from gatekeeper.domain.policy import Effect, LogRequirement, Parameters, PolicyInput, RaceRequirement, Report
from gatekeeper.domain.race import RaceOutcome, RaceRequest, RaceResult, RaceRules, TreeSource
from gatekeeper.domain.race_decision import decide_race, pooled
from gatekeeper.domain.sequential import race_alpha
from gatekeeper.domain.waivers import may_decide, waivers_of

NO_EVIDENCE = "BENCH_NO_EVIDENCE"
"""Nothing is known from a target that we do not own; a maintainer may waive it with the target's name as the path."""


class RaceParameters(Parameters):
    """What both policies of this principle need; a policy set gives both the same, so that one race serves both."""

    rules: RaceRules = Field(
        default=RaceRules(
            looks=(6, 10, 14, 20),
            nominal_p=(0.0, 0.0003, 0.002, 0.009),
            groups=8,
            steps=32,
            margin=0.01,
            control_blocks=2,
            guard_configurations=2,
            guard_loss=0.02,
            checked_share=0.25,
            plausible_ratio=3.0,
        ),
        description="how a race is run and decided",
    )
    enumeration: EnumerationRules = Field(
        default=EnumerationRules(), description="which configurations of the served scope are raced"
    )
    oldest_days: int = Field(default=30, gt=0, description="age at which a race no longer counts")


@dataclass(frozen=True)
class Standing:
    """What the fitting races of one directory on one target say. ``decision`` is None where there is none yet."""

    request: RaceRequest
    alpha: float
    """Error allowed to the race that decided, or to the next one."""
    decision: Decision | None
    jails: tuple[JailLevel, ...] = ()

    @property
    def target(self) -> str:
        return self.request.target.name


def standing(request: RaceRequest, evidence: Sequence[Evidence], now: datetime, rules: RaceParameters) -> Standing:
    """Decide the races that fit a request again, from their raw samples.

    A race fits if its tree, directory, suite and target are the request's and it is not too old. All other races of this pull
    request on this target, of whichever push and directory, are earlier attempts: each halves the alpha of the later ones,
    unless a maintainer has let the count begin anew since. Several races of this very tree are pooled, so that asking again
    adds samples and never replaces a lost race. One race whose samples end too early for this alpha (it was ordered before an
    earlier attempt had ended) is pooled with a second one.

    Raises:
        GatekeeperError: ``BENCH_VOID`` if only void races are there, or the newest one is void where another is needed; they
            have been retried by then. ``BENCH_UNDECIDED`` if pooled samples do not decide.
    """
    source = request.candidate
    assert isinstance(source, TreeSource), "a verdict is about a pull request's tree"
    races = sorted(
        (item for item in evidence if _on_target(item, request.target.name)), key=lambda item: item.recorded_at
    )
    oldest = now - timedelta(days=rules.oldest_days)
    fitting = [item for item in races if _fits(item.subject, source, request) and item.recorded_at >= oldest]
    results = [item.body.result for item in fitting if isinstance(item.body, RaceEvidence)]
    told = [result for result in results if tells(request, result)]
    if results and not told:
        raise _void(request, results[-1])
    spent = attempts_before(races, evidence, fitting[0].recorded_at if fitting else now)
    alpha = race_alpha(spent + max(1, len(told)))
    if not told:
        return Standing(request, alpha, None)
    decision = decide_race(request, pooled(told), alpha, single_look=len(told) > 1)
    if decision.outcome is None and len(told) == 1:
        if results[-1] is not told[-1]:
            raise _void(request, results[-1])
        return Standing(request, race_alpha(spent + 2), None)
    if decision.outcome is None:
        raise GatekeeperError(
            "the races stopped before these rules could decide them",
            code="BENCH_UNDECIDED",
            expected=f"blocks up to the look at {decision.next_look}",
            found=f"undecided: {'; '.join(decision.undecided)}"[:400],
        )
    return Standing(request, alpha, decision, tuple(result.jail for result in told))


def attempts_before(races: Sequence[Evidence], evidence: Sequence[Evidence], moment: datetime) -> int:
    """Return how many races of a pull request had been decided before a moment, since its budget was last reset.

    Audits are our own doing and cost the author nothing; void races say nothing about the candidate and cost nothing either.
    """
    resets = [item.recorded_at for item in in_force(evidence) if isinstance(item.body, BudgetReset)]
    since = max((at for at in resets if at <= moment), default=None)
    return sum(
        1
        for item in races
        if item.recorded_at < moment and (since is None or item.recorded_at > since) and _costs(item)
    )


def ask(report: Report, found: Standing, *, asked_for: str) -> bool:
    """Ask for what a target still lacks and return whether anything was asked.

    A target that we own needs a race; one that we do not own needs a contributor's log.
    """
    if found.decision is not None and found.decision.outcome is not None:
        return False
    if found.request.target.owned:
        report.requirements.append(RaceRequirement(request=found.request, alpha=found.alpha))
    else:
        report.requirements.append(LogRequirement(target=found.target))
        report.add(
            NO_EVIDENCE,
            f"{asked_for} on {found.target} is not shown: this installation has no such machine",
            expected=f"a contributor's log for {found.target}, or a waiver by name",
            found="neither",
            effect=Effect.NOTE,
        )
    return True


def waived(subject: PolicyInput, target: str, policy: str) -> str | None:
    """Return which maintainer waived the evidence for a target that we do not own, for this very head.

    The waiver's path is the target's name. One by the author, or by somebody who is no maintainer, has no effect.
    """
    owners = read_owners(subject.base, subject.configuration)
    for waiver in waivers_of(subject.snapshot, subject.evidence, policy):
        named = (waiver.code, waiver.path) == (NO_EVIDENCE, target)
        if named and may_decide(waiver.by, owners.maintainers, subject.snapshot, owners):
            return waiver.by
    return None


def _on_target(item: Evidence, target: str) -> bool:
    return (
        isinstance(item.subject, TreeSubject) and isinstance(item.body, RaceEvidence) and item.subject.target == target
    )


def _fits(subject: object, source: TreeSource, request: RaceRequest) -> bool:
    assert isinstance(subject, TreeSubject)
    wanted = (source.tree, source.directory, request.suite, request.target.digest())
    return (subject.tree, subject.directory, subject.suite, subject.target_digest) == wanted


def _costs(item: Evidence) -> bool:
    body = item.body
    return isinstance(body, RaceEvidence) and body.purpose != "audit" and body.result.outcome is not RaceOutcome.VOID


def _void(request: RaceRequest, result: RaceResult) -> GatekeeperError:
    return GatekeeperError(
        "the race was void and its retries are used up",
        code="BENCH_VOID",
        expected="a race that can be decided",
        found="; ".join(_why_void(request, result))[:400],
    )


def tells(request: RaceRequest, result: RaceResult) -> bool:
    """Return whether a race says anything about the candidate, whatever outcome it claims."""
    return decide_race(request, result, result.alpha).outcome is not RaceOutcome.VOID


def _why_void(request: RaceRequest, result: RaceResult) -> tuple[str, ...]:
    reasons = decide_race(request, result, result.alpha).because(RaceOutcome.VOID)
    return tuple(
        f"{reason.code} at {reason.where}: expected {reason.expected}, found {reason.found}" for reason in reasons
    )
