"""``gatekeeper check --probe``: the probe that the service would run, in this machine's jail, judged by the very same policy."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from gatekeeper import engine
from gatekeeper.backends.subprocesses import SubprocessRunner
from gatekeeper.cli.ending import ended_in_order
from gatekeeper.context import Runner
from gatekeeper.domain.errors import Postponed
from gatekeeper.domain.evidence import Evidence, Origin, ProbeEvidence, TreeSubject
from gatekeeper.domain.policy import PolicyInput, PolicyResult
from gatekeeper.domain.race import ProbeRequest, ProbeResult, TreeSource
from gatekeeper.git.export import write_directory
from gatekeeper.git.repository import Repository

POLICY = "scope_is_probed"
WAIT_SECONDS = 1.0


def judge(
    book: engine.PolicyBook, subject: PolicyInput, repository: Repository, runner: Runner | None = None
) -> tuple[PolicyResult, ...]:
    """Run the static policies and the one about probes; what it asks for is run here and given to it as evidence.

    Raises:
        Rejected: if the directory cannot be written out, or the worker refuses the request.
        Retryable: if no probe can be run on this machine.
    """
    wanted = (POLICY,)
    runner = runner or SubprocessRunner()
    asked = engine.run(book, subject, static_only=True, also=wanted)
    requests = {
        requirement.request.digest(): requirement.request
        for result in asked
        for requirement in result.requirements
        if requirement.kind == "probe"
    }
    if not requests:
        return asked
    with ended_in_order():  # the worker has a session of its own and would run on
        found = tuple(_evidence(request, repository, runner, subject) for request in requests.values())
    return engine.run(book, replace(subject, evidence=found), static_only=True, also=wanted)


def _evidence(request: ProbeRequest, repository: Repository, runner: Runner, subject: PolicyInput) -> Evidence:
    source = request.source
    click.echo(f"probing {source.directory} in the jail of this machine ...", err=True)
    result = _probe(request, repository, runner)
    return Evidence(
        subject=TreeSubject(tree=source.tree, directory=source.directory),
        origin=Origin.OURS,
        recorded_at=subject.now,
        body=ProbeEvidence(request=request.digest(), result=result),
    )


def _probe(request: ProbeRequest, repository: Repository, runner: Runner) -> ProbeResult:
    """Probe once the machine is free: races and probes of one machine never run at the same time."""

    @contextmanager
    def exported(source: TreeSource, place: Path) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="tree-", dir=place) as folder:
            write_directory(repository.tree(source.tree), source.directory, Path(folder))
            yield Path(folder)

    told = False
    while True:
        try:
            return runner.probe(request, exported, _silent, threading.Event())
        except Postponed as taken:
            if not told:
                click.echo(f"waiting: {taken.found} on this machine", err=True)
            told = True
            time.sleep(WAIT_SECONDS)


def _silent(event: Mapping[str, Any], /) -> None:
    """A probe takes seconds; what it is about stands in its findings."""
