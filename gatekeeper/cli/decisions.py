"""``gatekeeper approve``, ``waive``, ``reset-budget``, ``withdraw``, ``decisions`` and ``retry``: what people decide.

They work on the service's own database and mirrors, so they are for whoever may run commands there; ``--by`` says on whose word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from gatekeeper import bootstrap, texts
from gatekeeper.cli.answers import Answering, error_document, json_flag
from gatekeeper.cli.faults import printable
from gatekeeper.domain.errors import Conflict, Rejected
from gatekeeper.domain.jobs import JobState
from gatekeeper.services import decided, decisions
from gatekeeper.services.decisions import Recorded

REFUSED = 1
_PLACE = re.compile(r"(?P<repository>[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+)#(?P<number>[1-9][0-9]{0,8})")


class PullRequest(click.ParamType[tuple[str, int]]):
    """``OWNER/REPO#NUMBER``."""

    name = "OWNER/REPO#NUMBER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Return the repository's name and the number."""
        if isinstance(value, tuple):
            return value
        found = _PLACE.fullmatch(value)
        if found is None:
            self.fail(f"expected OWNER/REPO#NUMBER, such as vllm-project/vllm#60904; found {value!r}", param, ctx)
        return found["repository"], int(found["number"])


class Deciding(Answering):
    """A command that records a decision: refused is exit status 1, whatever could not be looked up is 3."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a refusal is told and becomes the exit status."""
        try:
            return super(Answering, self).invoke(ctx)
        except (Rejected, Conflict) as error:
            if ctx.params.get("json_wanted"):
                refused = error_document(error) | {"outcome": "failed"}
                click.echo(json.dumps(refused, indent=2))
            click.echo(f"gatekeeper: not recorded: {printable(str(error))}", err=True)
            return REFUSED


place = click.argument("pull", type=PullRequest())
head = click.option(
    "--head", required=True, help="Full id of the head commit that was looked at; nothing else is decided about."
)
by = click.option(
    "--by", required=True, metavar="LOGIN", help="Who decides. The base branch must give the right to it."
)
reason = click.option("--reason", required=True, help="Why; shown with the verdict.")


@contextmanager
def _service() -> Iterator[bootstrap.Service]:
    settings = bootstrap.load_settings()
    bootstrap.configure_logs(settings, quiet=True)
    service = bootstrap.build(settings, existing=True)
    try:
        yield service
    finally:
        service.close()


def _decide(pull: tuple[str, int], json_wanted: bool, call: Callable[[Any, str, int], Recorded]) -> int:
    """Record a decision, have it judged at once where this process may do that, and say what came of it."""
    with _service() as service:
        done = call(service.ctx, *pull)
        if service.local is not None:
            service.run_job(done.job_id)  # the serving process would notice at its next look for lost work only
        with service.ctx.store.read() as uow:
            latest = uow.latest_verdict(done.snapshot)
            job = uow.job(done.job_id)
    judged = job is not None and job.state in (JobState.SUCCEEDED, JobState.FAILED)
    outcome = latest[1].outcome.value if latest and judged else None
    if json_wanted:
        click.echo(json.dumps({"recorded": done.evidence, "judged": judged, "verdict": outcome}, indent=2))
        return 0
    click.echo(f"recorded as {done.evidence}")
    if judged and latest is not None:
        click.echo(f"the verdict is now: {texts.verdict_title(latest[1])}")
    else:
        click.echo("the pull request is being judged anew")
    return 0


@click.command(cls=Deciding)
@place
@head
@by
@click.option("--reason", default="", help="Why; shown with the verdict.")
@json_flag
def approve(pull: tuple[str, int], head: str, by: str, reason: str, json_wanted: bool) -> int:
    """Let the code of one head of a new author's pull request be run in the jail (maintainers).

    Exit status: 0 recorded, 1 refused, 3 could not decide, 64 wrong usage.
    """
    return _decide(pull, json_wanted, lambda *at: decisions.approve(*at, head=head, by=by, reason=reason))


@click.command(cls=Deciding)
@place
@head
@by
@click.option("--policy", required=True, help="The policy whose finding is to pass, such as isolation.")
@click.option("--code", required=True, help="The finding's code, such as ISO_HOOK_UNGUARDED.")
@click.option("--path", help="Only the findings at this path; for BENCH_NO_EVIDENCE the target's name.")
@reason
@json_flag
def waive(
    pull: tuple[str, int], head: str, by: str, policy: str, code: str, path: str | None, reason: str, json_wanted: bool
) -> int:  # fmt: skip
    """Let a finding of one head pass (owners of the path, maintainers; never the author).

    Exit status: 0 recorded, 1 refused, 3 could not decide, 64 wrong usage.
    """
    return _decide(
        pull,
        json_wanted,
        lambda *at: decisions.waive(*at, head=head, by=by, policy=policy, code=code, path=path, reason=reason),
    )


@click.command("reset-budget", cls=Deciding)
@place
@head
@by
@reason
@json_flag
def reset_budget(pull: tuple[str, int], head: str, by: str, reason: str, json_wanted: bool) -> int:
    """Let the count of a pull request's races begin anew, so that its next race gets the full alpha (maintainers).

    Exit status: 0 recorded, 1 refused, 3 could not decide, 64 wrong usage.
    """
    return _decide(pull, json_wanted, lambda *at: decisions.reset_budget(*at, head=head, by=by, reason=reason))


@click.command(cls=Deciding)
@place
@click.argument("digest")
@by
@reason
@json_flag
def withdraw(pull: tuple[str, int], digest: str, by: str, reason: str, json_wanted: bool) -> int:
    """Take back a decision, named by its digest (its giver, maintainers). See `gatekeeper decisions`.

    Exit status: 0 recorded, 1 refused, 3 could not decide, 64 wrong usage.
    """
    return _decide(pull, json_wanted, lambda *at: decisions.withdraw(*at, digest=digest, by=by, reason=reason))


@click.command("decisions", cls=Answering)
@place
@json_flag
def list_decisions(pull: tuple[str, int], json_wanted: bool) -> None:
    """List what people decided about a pull request, and what is left to decide."""
    with _service() as service:
        found = decided.listed(service.ctx, *pull)
    if json_wanted:
        of_a_finding = {"policy", "code", "path", "waivable_by"}
        document = found.model_dump(mode="json", exclude={"waivable"}) | {
            "waivable": [finding.model_dump(mode="json", include=of_a_finding) for finding in found.waivable]
        }
        click.echo(json.dumps(document, indent=2))
        return
    if not found.decisions:
        click.echo("nothing was decided")
    for row in found.decisions:
        # One fact a line and the digest whole, so that it can be copied for `withdraw`.
        click.echo(
            f"{row.kind} by {printable(row.by)} at {row.at:%Y-%m-%d %H:%M} for head {row.head_sha[:12]}: {row.state}"
        )
        for line in (row.what, row.reason and f"reason: {row.reason}", row.digest):
            if line:
                click.echo(f"  {printable(line)}")
    click.echo(f"left to decide for head {found.head_sha}:" if found.left else "nothing is left to decide")
    for each in found.left:
        click.echo(printable(f"{each.what} ({' or '.join(each.by) or 'a maintainer'})"))
        click.echo(printable(f"  {each.command}"))


@click.command(cls=Deciding)
@place
@json_flag
def retry(pull: tuple[str, int], json_wanted: bool) -> int:
    """Ask again for probes and races of a pull request that were given up, and for races that stayed void.

    Exit status: 0 asked (or nothing was given up), 1 refused, 3 could not decide, 64 wrong usage.
    """
    with _service() as service:
        asked = decisions.retry(service.ctx, *pull)
    click.echo(json.dumps({"asked": asked}) if json_wanted else ", ".join(asked) or "nothing was given up")
    return 0
