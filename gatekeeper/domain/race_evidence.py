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
from gatekeeper.domain.evidence import Evidence, RaceEvidence, TreeSubject
from gatekeeper.domain.owners import read_owners
from gatekeeper.domain.policy import Effect, LogRequirement, Parameters, PolicyInput, RaceRequirement, Report
from gatekeeper.domain.race import RaceOutcome, RaceRequest, RaceResult, RaceRules, TreeSource
from gatekeeper.domain.race_decision import decide_race, pooled
from gatekeeper.domain.sequential import race_alpha
from gatekeeper.domain.waivers import may_decide, waivers_of


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

    A race fits if its tree, suite and target are the request's and it is not too old. Races of other trees of the same
    directory on this target are earlier attempts of the pull request: each halves the alpha of the later ones. Several races
    of this very tree are pooled, so that asking again adds samples and never replaces a lost race.

    Raises:
        GatekeeperError: ``BENCH_VOID`` if only void races are there; they have been retried by then. ``BENCH_UNDECIDED`` if
            the samples end before these rules decide, as after a change of the rules.
    """
    source = request.candidate
    assert isinstance(source, TreeSource), "a verdict is about a pull request's tree"
    races = sorted(
        (item for item in evidence if _same_place(item, source.directory, request.target.name)),
        key=lambda item: item.recorded_at,
    )
    oldest = now - timedelta(days=rules.oldest_days)
    fitting = [item for item in races if _fits(item.subject, source.tree, request) and item.recorded_at >= oldest]
    results = [item.body.result for item in fitting if isinstance(item.body, RaceEvidence)]
    told = [result for result in results if _tells(request, result)]
    if results and not told:
        raise GatekeeperError(
            "the race was void and its retries are used up",
            code="BENCH_VOID",
            expected="a race that can be decided",
            found="; ".join(_why_void(request, results[-1]))[:400],
        )
    first = fitting[0].recorded_at if fitting else now
    earlier = sum(1 for item in races if item.recorded_at < first and _decided(item))
    alpha = race_alpha(earlier + max(1, len(told)))
    if not told:
        return Standing(request, alpha, None)
    decision = decide_race(request, pooled(told), alpha, single_look=len(told) > 1)
    if decision.outcome is None:
        raise GatekeeperError(
            "the race stopped before these rules could decide it",
            code="BENCH_UNDECIDED",
            expected=f"blocks up to the look at {decision.next_look}",
            found=f"undecided: {'; '.join(decision.undecided)}"[:400],
        )
    return Standing(request, alpha, decision, tuple(result.jail for result in told))


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
            "BENCH_NO_EVIDENCE",
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
        named = (waiver.code, waiver.path) == ("BENCH_NO_EVIDENCE", target)
        if named and may_decide(waiver.by, owners.maintainers, subject.snapshot, owners):
            return waiver.by
    return None


def _same_place(item: Evidence, directory: str, target: str) -> bool:
    subject = item.subject
    return (
        isinstance(subject, TreeSubject)
        and isinstance(item.body, RaceEvidence)
        and (subject.directory, subject.target) == (directory, target)
    )


def _fits(subject: object, tree: str, request: RaceRequest) -> bool:
    assert isinstance(subject, TreeSubject)
    wanted = (tree, request.suite, request.target.digest())
    return (subject.tree, subject.suite, subject.target_digest) == wanted


def _decided(item: Evidence) -> bool:
    return isinstance(item.body, RaceEvidence) and item.body.result.outcome is not RaceOutcome.VOID


def _tells(request: RaceRequest, result: RaceResult) -> bool:
    return decide_race(request, result, result.alpha).outcome is not RaceOutcome.VOID


def _why_void(request: RaceRequest, result: RaceResult) -> tuple[str, ...]:
    reasons = decide_race(request, result, result.alpha).because(RaceOutcome.VOID)
    return tuple(
        f"{reason.code} at {reason.where}: expected {reason.expected}, found {reason.found}" for reason in reasons
    )
