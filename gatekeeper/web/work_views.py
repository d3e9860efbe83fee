"""Work that a pull request waits for, as its page shows it: what is asked for it, and not what others need of the same code."""

from __future__ import annotations

from gatekeeper import texts
from gatekeeper.domain.jobs import JobKind, JobState
from gatekeeper.domain.snapshot import Snapshot
from gatekeeper.domain.verdict import Verdict
from gatekeeper.services.needs import permitted_to, was_cancelled
from gatekeeper.services.reconcile import READ_AGAIN
from gatekeeper.store.jobs import JobRow
from gatekeeper.store.pulls import Pull
from gatekeeper.store.unit_of_work import ReadUnit
from gatekeeper.web.views import WaitingJob

PUBLISHERS = ("log", "page", "checks")


def waiting_jobs(uow: ReadUnit, pull: Pull, snapshot: Snapshot | None, verdict: Verdict | None) -> list[WaitingJob]:
    """Return the jobs of a pull request that are queued, running or failed, in the order in which they follow each other.

    A race or a probe that its verdict may not have now is not its own, whoever it is run for, and one that was cancelled is over.
    """
    place = f"{pull.repository_id}:{pull.number}"
    names: list[tuple[JobKind, str]] = [(JobKind.INTAKE, place)]
    if pull.snapshot:
        names.append((JobKind.EVALUATE, pull.snapshot))
    if snapshot and verdict:
        names.extend((JobKind(need.kind), need.request.digest()) for need in permitted_to(snapshot, verdict))
    names.extend((JobKind.PUBLISH, f"{publisher}:{place}") for publisher in PUBLISHERS)
    rows = [uow.job_named(kind, key) for kind, key in dict.fromkeys(names)]
    unfinished = [row for row in rows if row is not None and row.state is not JobState.SUCCEEDED]
    return [_waiting_job(row, pull.open) for row in unfinished if not was_cancelled(row)]


def _waiting_job(row: JobRow, is_open: bool) -> WaitingJob:
    machine = row.waits_for_machine
    return WaitingJob(
        kind=row.kind,
        state=JobState.QUEUED if machine else row.state,
        doing=texts.JOB_SENTENCES[row.kind],
        waits_for=texts.MACHINE if machine else _waits_for(row, is_open),
        attempt=row.attempt,
        error=None if machine else row.error,
        run_after=row.run_after,
        delivery=row.delivery_id,
    )


def _waits_for(row: JobRow, is_open: bool) -> str:
    if row.state is JobState.RUNNING:
        return "being worked on"
    if row.state is JobState.FAILED:
        if row.kind is JobKind.INTAKE and is_open:
            return f"tried again every {READ_AGAIN.total_seconds() / 60:.0f} minutes"
        by_hand = row.kind in (JobKind.RACE, JobKind.PROBE)
        return "given up; `gatekeeper retry` asks for it again" if by_hand else "given up until something new is known"
    if row.attempt or row.voids:
        return f"another try after {texts.plural(row.attempt + row.voids, 'attempt')}"
    return "a free worker"
