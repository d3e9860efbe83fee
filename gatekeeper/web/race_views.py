"""A race as it is shown: what was asked, how it ended, and figures recomputed from the raw samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gatekeeper import texts
from gatekeeper.domain.errors import Rejected
from gatekeeper.domain.evidence import Evidence, RaceEvidence
from gatekeeper.domain.jobs import JobKind, JobState
from gatekeeper.domain.policy import RaceRequirement
from gatekeeper.domain.precedence import race_waits_for
from gatekeeper.domain.race import RaceEnvironment, RaceRequest, RaceResult, TreeSource
from gatekeeper.domain.race_decision import decide_race
from gatekeeper.domain.samples import ConfigurationRecord, ErrorRecord, RaceFault
from gatekeeper.domain.snapshot import Snapshot
from gatekeeper.domain.verdict import Verdict
from gatekeeper.services.needs import permitted_to, was_cancelled
from gatekeeper.store.jobs import JobRow
from gatekeeper.store.unit_of_work import ReadUnit
from gatekeeper.web.views import ErrorRow, RaceView

RACE_REQUEST = "race_request"


def races_of(
    uow: ReadUnit, snapshot: Snapshot, verdict: Verdict, evidence: list[tuple[str, Evidence]]
) -> Iterator[RaceView]:
    """Yield the races that a verdict rests on, then those that it waits for or would have."""
    seen: set[str] = set()
    for digest, item in evidence:
        if isinstance(item.body, RaceEvidence):
            seen.add(item.body.request)
            yield ended(uow, digest, item, item.body)
    for requirement in (need for result in verdict.results for need in result.requirements):
        if isinstance(requirement, RaceRequirement) and (name := requirement.request.digest()) not in seen:
            seen.add(name)
            yield waiting(
                uow, name, requirement.request, _held_back(snapshot, verdict), _others(uow, name, requirement, verdict)
            )


def ended(uow: ReadUnit, digest: str, evidence: Evidence, body: RaceEvidence) -> RaceView:
    """Return the view of a finished race. Without its request (a contributor's, say) only what it reports is shown."""
    result = body.result
    request = request_of(uow, body.request)
    decision = decide_race(request, result, result.alpha) if request else None
    return RaceView(
        id=body.request.removeprefix("sha256:"),
        model=request.model if request else None,
        target=request.target.name if request else getattr(evidence.subject, "target", None),
        origin=evidence.origin.value,
        state="ended",
        outcome=(decision.outcome if decision else None) or result.outcome,
        status=result.status,
        jail=result.jail.value,
        jail_wanted=request.target.minimum_jail.value if request else None,
        alpha=result.alpha,
        margin=request.rules.margin if request else None,
        communication=decision.communication if decision else None,
        figures=decision.figures if decision else (),
        reasons=decision.reasons if decision else (),
        errors=tuple(error_rows(result)),
        boundaries=len(result.boundaries),
        faults=faults_of(result),
        supports=result.supports,
        environment=environment_rows(result.environment),
        configurations=labels(request) if request else (),
        evidence=digest,
        recorded_at=evidence.recorded_at,
    )


def waiting(
    uow: ReadUnit, name: str, request: RaceRequest, held_back: str = "", others: tuple[str, ...] = ()
) -> RaceView:
    """Return the view of a race that has no result.

    Args:
        uow: the store.
        name: digest of the request.
        request: what is asked for.
        held_back: why the pull request that is shown may not have it now; empty if it may.
        others: other open pull requests with the same code that may have it.
    """
    job = uow.job_named(JobKind.RACE, name)
    running = job is not None and job.state is JobState.RUNNING and not job.waits_for_machine
    return RaceView(
        id=name.removeprefix("sha256:"),
        model=request.model,
        target=request.target.name,
        origin=None,
        state="running" if running and not held_back else "waiting",
        held_back=held_back,
        doing=_doing(job, held_back, others),
        outcome=None,
        status=None,
        jail=None,
        jail_wanted=request.target.minimum_jail.value,
        alpha=None,
        margin=request.rules.margin,
        communication=request.target.communication,
        configurations=labels(request),
    )


def _held_back(snapshot: Snapshot, verdict: Verdict) -> str:
    if not snapshot.open:
        return "the pull request is closed"
    reasons = race_waits_for(verdict.results)
    return f"it waits for {' and for '.join(reasons)}" if reasons else ""


def _others(uow: ReadUnit, name: str, need: RaceRequirement, verdict: Verdict) -> tuple[str, ...]:
    """Return the other open pull requests that may have this very race, as ``#7``: evidence is about code, whoever sent it."""
    source = need.request.candidate
    found = []
    for digest in uow.snapshots_with_tree(source.tree, open_only=True) if isinstance(source, TreeSource) else ():
        latest = uow.latest_verdict(digest) if digest != verdict.snapshot else None
        other = uow.snapshot(digest)
        if latest and name in {each.request.digest() for each in permitted_to(other, latest[1])}:
            found.append(f"#{other.key.number}")
    return tuple(sorted(found))


def _doing(job: JobRow | None, held_back: str, others: tuple[str, ...]) -> str:
    """Say where a race without a result stands, in sentences."""
    named = " and ".join(others)
    if held_back:
        shared = f" The same code is raced for {named}; what that shows counts here too." if others else ""
        return f"It is not run for this pull request: {held_back}.{shared}"
    if job is None or was_cancelled(job):
        return "It is not asked for now."
    if job.state is JobState.FAILED:
        return "It was given up; `gatekeeper retry` asks for it again."
    if job.waits_for_machine:
        doing = f"It waits for {texts.MACHINE}."
    else:
        doing = "It is being run now." if job.state is JobState.RUNNING else "It waits for a free worker."
    return f"{doing} It is one race with that of {named}, which has the same code." if others else doing


def request_of(uow: ReadUnit, name: str) -> RaceRequest | None:
    """Return the request of a race by digest, or None if it is not stored."""
    try:
        return uow.document(RACE_REQUEST, name, RaceRequest)
    except Rejected:
        return None


def labels(request: RaceRequest) -> tuple[str, ...]:
    """Return the labels of the advertised configurations."""
    return tuple(configuration.label for configuration in request.configurations)


def faults_of(result: RaceResult) -> tuple[RaceFault, ...]:
    """Return every fault of the race and of its configurations."""
    records = result.configurations + result.guards + result.boundaries
    return result.faults + tuple(fault for record in records for fault in record.faults)


def error_rows(result: RaceResult) -> Iterator[ErrorRow]:
    """Yield one row for each tensor and check of each configuration, and of all boundary points together: the record that lies
    closest to its limit."""
    for record in result.configurations + result.guards:
        yield from _closest((record,))
    yield from _closest(result.boundaries)


def _closest(records: Sequence[ConfigurationRecord]) -> Iterator[ErrorRow]:
    closest: dict[tuple[str, str], tuple[str, ErrorRecord]] = {}
    for record in records:
        for error in record.errors:
            key = (error.tensor, error.check)
            if key not in closest or _share(error) > _share(closest[key][1]):
                closest[key] = (record.configuration.label, error)
    for (tensor, check), (label, error) in closest.items():
        yield ErrorRow(
            where=label,
            tensor=tensor,
            check=check if error.regime == "normal" else f"{check}, {error.regime}",
            candidate_rms=error.candidate.rms,
            baseline_rms=error.baseline.rms,
            limit_rms=error.limits.rms,
            candidate_gain=error.candidate.gain,
            limit_gain=error.limits.gain,
            within=_share(error) <= 1,
        )


def _share(error: ErrorRecord) -> float:
    """How much of its limits a record uses up; above 1 it is outside."""
    pairs = [
        (error.candidate.rms, error.limits.rms),
        (error.candidate.median_row, error.limits.median_row),
        (abs(error.candidate.gain), error.limits.gain),
    ]
    if error.limits.element is not None and error.candidate.element is not None:
        pairs.append((error.candidate.element, error.limits.element))
    return max(found / limit if limit > 0 else float(found > 0) * 2 for found, limit in pairs)


def environment_rows(environment: RaceEnvironment | None) -> dict[str, str]:
    """Return where and when a race ran, as labelled texts."""
    if environment is None:
        return {}
    seconds = (environment.ended_at - environment.started_at).total_seconds()
    rows = {
        "device": environment.device,
        "processor": environment.cpu_model,
        "worker": environment.machine,
        "took": f"{seconds:.0f} s",
        "throttling": ", ".join(environment.throttle_reasons) or "none seen",
    }
    rows |= {name: version for name, version in sorted(environment.versions.items())}
    rows |= {f"clock {name}": f"{megahertz} MHz" for name, megahertz in sorted(environment.clocks.items())}
    return {name: value for name, value in rows.items() if value}
