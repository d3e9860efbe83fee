"""Which service does which kind of job, and what a job that failed for good means for a verdict."""

from __future__ import annotations

from gatekeeper.context import Context
from gatekeeper.domain.jobs import Claim, JobKind
from gatekeeper.domain.race import ProbeRequest, RaceRequest, TreeSource
from gatekeeper.services import evaluate, intake, measure, publish
from gatekeeper.services.jobs import Handlers


def job_failed(ctx: Context, claim: Claim, error: BaseException) -> None:
    """Let doubt show: a failed evaluation makes the verdict ``error``; a failed race or probe is evaluated as such.

    A failed intake gives the announced head the verdict ``error``; a failed publication is shown beside the verdict.
    """
    if claim.kind is JobKind.INTAKE:
        intake.give_up(ctx, claim, error)
    elif claim.kind is JobKind.EVALUATE:
        evaluate.record_error(ctx, claim.key, error)
    elif claim.kind in (JobKind.RACE, JobKind.PROBE):
        with ctx.store.begin() as uow:
            if claim.kind is JobKind.RACE:
                source = uow.document(evaluate.RACE_REQUEST, claim.key, RaceRequest).candidate
            else:
                source = uow.document(evaluate.PROBE_REQUEST, claim.key, ProbeRequest).source
            if isinstance(source, TreeSource):
                for digest in uow.snapshots_with_tree(source.tree):
                    uow.enqueue(JobKind.EVALUATE, digest, delivery_id=claim.delivery_id)


HANDLERS = Handlers(
    by_kind={
        JobKind.INTAKE: intake.run,
        JobKind.EVALUATE: evaluate.run,
        JobKind.RACE: measure.race,
        JobKind.PROBE: measure.probe,
        JobKind.PUBLISH: publish.run,
    },
    failed=job_failed,
)
