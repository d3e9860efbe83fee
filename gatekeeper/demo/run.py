"""The demonstration from its first step to its table: build, start, deliver, wait, compare."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from gatekeeper.backends.machine import beside_a_race
from gatekeeper.demo import delivery
from gatekeeper.demo.pulls import SamplePull, sample_pulls
from gatekeeper.demo.service import Service, running
from gatekeeper.demo.upstream import Upstream, build
from gatekeeper.domain.policy import Outcome

LONGEST_SECONDS = 900.0
POLL_SECONDS = (1.0, 4.0)
"""Between two rounds of questions: the first after anything has changed, then more and more, since they disturb a race."""
FOLDER, LOCK = "gatekeeper-demo-", "held"
SETTLED_JOBS = ("intake", "evaluate", "probe", "race")

Page = dict[str, Any]
Watch = Callable[[dict[int, Page]], None]


@dataclass(frozen=True)
class Answer:
    """What the service said of one sample pull request, beside what it should have said."""

    pull: SamplePull
    page: Page

    @property
    def outcome(self) -> Outcome:
        """The verdict's outcome; pending where there is none."""
        return Outcome(self.page.get("outcome", Outcome.PENDING))

    @property
    def codes(self) -> frozenset[str]:
        """All reason codes of the verdict."""
        return frozenset(finding["code"] for finding in findings(self.page))

    @property
    def as_expected(self) -> bool:
        """Whether outcome, failing checks and reason codes are the expected ones."""
        checks = {check["check"]: Outcome(check["outcome"]) for check in self.page.get("checks", ())}
        return (
            settled(self.page)
            and self.outcome is self.pull.expected
            and all(checks.get(name) is outcome for name, outcome in self.pull.failing.items())
            and self.pull.codes <= self.codes
        )


@contextmanager
def private_folder() -> Iterator[Path]:
    """Yield a new folder that is gone after the block; what demonstrations that were killed have left is removed as well."""
    sweep()
    # It may hold what a service that is just ending still writes; the next demonstration removes that.
    with tempfile.TemporaryDirectory(prefix=FOLDER, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with (folder / "new").open("wb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            (folder / "new").rename(folder / LOCK)  # under this name it has always been held
            yield folder


def sweep() -> None:
    """Remove the folders of demonstrations that do not run any more: their lock is there, and nobody holds it."""
    for lock in Path(tempfile.gettempdir()).glob(f"{FOLDER}*/{LOCK}"):
        with suppress(OSError), lock.open("rb") as held:  # another user's, or one that is held
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)


@contextmanager
def staged() -> Iterator[tuple[Service, Upstream, str]]:
    """Build the sample upstream and run a service for it; yields the service, the upstream and the webhook secret."""
    secret = secrets.token_hex(32)
    authors = tuple(sorted({pull.author[1] for pull in sample_pulls()}))
    with private_folder() as folder:
        remote = folder / "remote"
        place = remote / delivery.OWNER / f"{delivery.NAME}.git"
        place.parent.mkdir(parents=True)
        upstream = build(place, {pull.number: (pull.title, pull.changes) for pull in sample_pulls()})
        with running(folder, secret=secret, git_base_url=f"file://{remote}", trusted=authors) as service:
            yield service, upstream, secret


def deliver_all(service: Service, upstream: Upstream, secret: str) -> None:
    """Deliver one signed ``pull_request`` webhook for each sample pull request."""
    with service.client() as client:
        for pull in sample_pulls():
            content = delivery.payload(
                pull.number, pull.title, pull.author, upstream.heads[pull.number], upstream.base_sha
            )
            delivery.deliver(client, secret, content)


def wait_for_verdicts(service: Service, watch: Watch) -> tuple[Answer, ...]:
    """Poll the service's own API until every sample pull request is decided; ``watch`` sees each round.

    After :data:`LONGEST_SECONDS` the answers are what there is by then; one that is not settled is not as expected.
    """
    deadline = time.monotonic() + LONGEST_SECONDS
    pages: dict[int, Page] = {}
    told: object = None
    pause = POLL_SECONDS[0]
    # What races here must not be disturbed by questions about it.
    with beside_a_race(os.sched_getaffinity(0)), service.client() as client:
        while time.monotonic() < deadline:
            for pull in sample_pulls():
                if not (pull.number in pages and settled(pages[pull.number])):
                    answer = client.get(f"/api/v1/pulls/{delivery.REPOSITORY}/{pull.number}")
                    pages[pull.number] = answer.json() if answer.status_code == httpx.codes.OK else {}
            watch(pages)
            if all(settled(pages[pull.number]) for pull in sample_pulls()):
                break
            now = [(n, page.get("verdict"), [j["kind"] for j in page.get("jobs", ())]) for n, page in pages.items()]
            pause = POLL_SECONDS[0] if now != told else min(1.5 * pause, POLL_SECONDS[1])
            told = now
            time.sleep(pause)
    return tuple(Answer(pull, pages.get(pull.number, {})) for pull in sample_pulls())


def settled(page: Page) -> bool:
    """Whether a pull request has a verdict and nothing is under way that could change it."""
    busy = any(job["kind"] in SETTLED_JOBS and job["state"] != "failed" for job in page.get("jobs", ()))
    return bool(page.get("verdict")) and not busy


def findings(page: Page) -> Iterator[dict[str, Any]]:
    """Yield all findings of a pull request's page."""
    for check in page.get("checks", ()):
        for policy in check["policies"]:
            yield from policy["findings"]
