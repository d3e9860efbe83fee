"""GitHub's checks: five check runs on a head, under the names of the four principles and ``gatekeeper/verdict``.

The verdict's run is created first, unfinished, and finished last; the others are written once, finished. A judgement that nobody
has to take part in costs six writes; findings beyond fifty in a check and answers that change later cost more. What is there is
read first (free while nothing has changed) and compared, so that lost and repeated work is mended by the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import structlog

from gatekeeper import texts
from gatekeeper.context import CheckRuns, Judged, ShownRun
from gatekeeper.domain.errors import Conflict, Rejected
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.domain.policy import VERDICT_CHECK, Check, Effect, Outcome, Severity
from gatekeeper.domain.snapshot import Snapshot
from gatekeeper.domain.verdict import Verdict
from gatekeeper.publishers import check_texts
from gatekeeper.publishers.annotations import beside_lines
from gatekeeper.publishers.wanted import ANNOUNCED, MOST_ANNOTATIONS, Step, Wanted, mark, speaker, speaks_for, steps

VERDICT_NAME = f"gatekeeper/{VERDICT_CHECK}"
NAMES = (*(f"gatekeeper/{check.value}" for check in Check), VERDICT_NAME)
"""The names that branch protection and people rely on."""
HARDNESS = {"shadow": 0, "warn": 1, "block": 2}
CONCLUSIONS = {Outcome.PASSED: "success", Outcome.FAILED: "failure", Outcome.ERROR: "failure"}
LOG = structlog.get_logger(__name__)


class ChecksPublisher:
    """Shows verdicts as check runs.

    Args:
        runs: opens the check runs of a repository.
        page: gives the address of a pull request's page by repository name and number.
    """

    name = "checks"

    def __init__(self, runs: Callable[[RepositoryRef], CheckRuns], page: Callable[[str, int], str]) -> None:
        self._runs = runs
        self._page = page

    def publish(
        self, snapshot: Snapshot, digest: str, verdict: Verdict, external: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Show one verdict as if no other pull request had this head; see :meth:`show`."""
        del external  # what GitHub shows is asked of GitHub
        repository = RepositoryRef(id=snapshot.key.repository_id, full_name=snapshot.repository)
        return self.show(repository, snapshot.key.head_sha, [Judged(snapshot, digest, verdict)])

    def announce(self, repository: RepositoryRef, number: int, head_sha: str, base_ref: str) -> None:
        """Create the verdict's run, unfinished, unless one speaks for this pull request already or the mode is shadow.

        What was said for another pull request with this head, or for another base branch of this one, is taken back by it.

        Raises:
            Rejected: if GitHub does not take it.
            Conflict: if the App is not installed there, or GitHub has no such commit.
            Retryable: if GitHub does not answer now.
        """
        runs = self._runs(repository)
        if runs.mode(base_ref) == "shadow":
            return
        there = runs.latest(head_sha).get(VERDICT_NAME)
        mine = speaker(number, base_ref)
        if there is not None and (not there.finished or mine in speaks_for(there)):
            return
        others = speaks_for(there) if there is not None else frozenset()
        speakers = {mine, *(each for each in others if not each.startswith(f"{number}."))}
        page = self._page(repository.full_name, number)
        title, summary = check_texts.announcement(page)
        body = {
            "name": VERDICT_NAME, "head_sha": head_sha, "status": "in_progress", "details_url": page,
            "external_id": mark(speakers, ANNOUNCED), "output": {"title": title, "summary": summary},
        }  # fmt: skip
        runs.create(body)

    def leave(self, repository: RepositoryRef, number: int, head_sha: str, newer: str) -> None:
        """Finish what is unfinished at a head that a newer one has replaced, as ``cancelled``.

        A run that speaks for another pull request too is left alone, and a commit that is gone needs nothing.
        """
        runs = self._runs(repository)
        try:
            shown = runs.latest(head_sha)
        except Conflict as gone:
            LOG.info("checks.head_gone", head=head_sha, reason=str(gone))
            return
        mine = {
            name: run for name, run in shown.items() if all(each.startswith(f"{number}.") for each in speaks_for(run))
        }
        self._finish(runs, mine, "cancelled", *check_texts.superseded(newer))

    def show(self, repository: RepositoryRef, head_sha: str, judged: Sequence[Judged]) -> Mapping[str, Any]:
        """Bring the check runs of a head to what was decided; of several pull requests that have it the hardest counts.

        A pull request that is closed only gets unfinished runs finished. Returns the ids of the runs by name.

        Raises:
            Rejected: if GitHub does not take even the shortest form of an answer.
            Conflict: if the App is not installed there, or GitHub has no such commit.
            Retryable: if GitHub does not answer now; the next call goes on where this one stopped.
        """
        runs = self._runs(repository)
        shown = dict(runs.latest(head_sha))
        living = [each for each in judged if each.snapshot.open]
        telling = _hardest(living or judged)
        if telling is None:
            return {}
        if telling.verdict is None:
            if living:
                self.announce(repository, telling.snapshot.key.number, head_sha, telling.snapshot.base_ref)
            return {}
        if telling.verdict.mode == "shadow":
            self._finish(runs, shown, "neutral", *check_texts.silenced())
            return {"head": head_sha, "mode": "shadow"}
        wanted = self._wanted(repository, telling, living or judged)
        if not living:
            begun = {name for name, run in shown.items() if not run.finished}
            wanted = [each for each in wanted if each.name in begun and each.conclusion is not None]
        for step in steps(shown, wanted):
            shown[step.wanted.name] = self._write(runs, head_sha, step)
        if not living:
            self._finish(runs, shown, "cancelled", *check_texts.closed())
        return {"head": head_sha, "runs": {name: run.id for name, run in sorted(shown.items()) if name in NAMES}}

    def _wanted(self, repository: RepositoryRef, telling: Judged, judged: Sequence[Judged]) -> list[Wanted]:
        assert telling.verdict is not None
        page = self._page(repository.full_name, telling.snapshot.key.number)
        try:
            return wanted_runs(telling.snapshot, telling.verdict, [each.snapshot for each in judged], page)
        except Exception:  # a verdict whose text cannot be made still has to end the check
            LOG.exception("checks.no_text", repository=repository.full_name, number=telling.snapshot.key.number)
            title, summary = check_texts.unshown(page)
            conclusion = "neutral" if telling.verdict.mode == "warn" else "failure"
            speakers = tuple(speaker(each.snapshot.key.number, each.snapshot.base_ref) for each in judged)
            return [Wanted(VERDICT_NAME, title, summary, "", page, speakers, conclusion)]

    def _write(self, runs: CheckRuns, head_sha: str, step: Step) -> ShownRun:
        wanted = step.wanted
        try:
            run, shown = step.run, step.shown
            if not step.adds_only:
                made = _send(runs, head_sha, wanted.name, run, wanted.body())
                run, shown = made.id, len(wanted.body()["output"].get("annotations", ()))
            assert run is not None
            for body in wanted.further(shown):
                made = runs.update(run, body)
        except Rejected as error:
            LOG.error("checks.refused", check=wanted.name, head=head_sha, reason=str(error))
            bare = wanted.bare(check_texts.stripped(wanted.details_url))
            return _send(runs, head_sha, wanted.name, run, bare)
        return made

    def _finish(
        self, runs: CheckRuns, shown: Mapping[str, ShownRun], conclusion: str, title: str, summary: str
    ) -> None:
        for name, run in sorted(shown.items()):
            if name in NAMES and not run.finished:
                output = {"title": title, "summary": summary}
                runs.update(run.id, {"status": "completed", "conclusion": conclusion, "output": output})


def _send(runs: CheckRuns, head_sha: str, name: str, run: int | None, body: Mapping[str, Any]) -> ShownRun:
    if run is None:
        return runs.create({"name": name, "head_sha": head_sha, **body})
    return runs.update(run, body)


def _hardest(judged: Iterable[Judged]) -> Judged | None:
    """Return the pull request whose verdict stands in the way most: a stricter mode first, then the worse outcome."""

    def order(each: Judged) -> tuple[int, int, int]:
        if each.verdict is None:  # not judged yet: worse than passed, and it may become anything
            return HARDNESS["block"], Outcome.PENDING.badness, -each.snapshot.key.number
        return HARDNESS[each.verdict.mode], each.verdict.outcome.badness, -each.snapshot.key.number

    return max(judged, key=order, default=None)


def wanted_runs(snapshot: Snapshot, verdict: Verdict, same_head: Sequence[Snapshot], page: str) -> list[Wanted]:
    """Return the five runs that say a verdict, that of the verdict last.

    Passed is ``success``, failed and error are ``failure``, pending is unfinished; in warn mode what is not passed is
    ``neutral``, which blocks nothing. One of the four that is pending is left out until it is decided.

    Args:
        snapshot: what was judged.
        verdict: in warn or block mode.
        same_head: the snapshots of all pull requests that have this head, this one with them.
        page: address of the pull request's page.
    """
    speakers = tuple(sorted(speaker(each.key.number, each.base_ref) for each in same_head))
    made = []
    for result in verdict.checks:
        beside = beside_lines([each for each in verdict.results if each.check is result.check])
        made.append(
            Wanted(
                name=f"gatekeeper/{result.check.value}",
                title=texts.fit(texts.check_title(result), check_texts.CHECK_TITLE_LIMIT),
                summary=texts.fit(texts.check_summary(verdict, result.check, page=page)),
                text=_text(snapshot, verdict, result.check, len(beside)),
                details_url=page,
                speakers=speakers,
                conclusion=_conclusion(verdict, result.outcome),
                annotations=beside[:MOST_ANNOTATIONS],
                replaces_only=result.outcome is Outcome.PENDING,
            )
        )
    summary = texts.verdict_summary(verdict, page=page)
    numbers = sorted(each.key.number for each in same_head)
    if len(numbers) > 1:
        summary = f"{check_texts.shared_head(numbers, snapshot.key.number)}\n\n{summary}"
    verdict_run = Wanted(
        name=VERDICT_NAME,
        title=texts.fit(texts.verdict_title(verdict), check_texts.CHECK_TITLE_LIMIT),
        summary=texts.fit(summary),
        text=_text(snapshot, verdict, None, 0),
        details_url=page,
        speakers=speakers,
        conclusion=_conclusion(verdict, verdict.outcome),
        patient=not waits_for_people(verdict),
    )
    return [*made, verdict_run]


def _conclusion(verdict: Verdict, outcome: Outcome) -> str | None:
    conclusion = CONCLUSIONS.get(outcome)
    return "neutral" if conclusion == "failure" and verdict.mode == "warn" else conclusion


def _text(snapshot: Snapshot, verdict: Verdict, check: Check | None, found: int) -> str:
    parts = [check_texts.check_guidance(verdict, check, snapshot.base_ref)]
    if found > MOST_ANNOTATIONS:
        parts.insert(0, check_texts.more_annotations(MOST_ANNOTATIONS, found))
    return texts.fit("\n\n".join(parts))


def waits_for_people(verdict: Verdict) -> bool:
    """Return whether a pending verdict needs somebody to decide or to bring something, and not only machines."""
    for result in verdict.results:
        if result.severity is not Severity.BLOCKING or result.outcome is not Outcome.PENDING:
            continue
        if any(requirement.kind in ("approval", "log") for requirement in result.requirements):
            return True
        if any(finding.effect is Effect.HOLD and not finding.waived_by for finding in result.findings):
            return True
    return False
