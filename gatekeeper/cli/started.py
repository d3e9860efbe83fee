"""What ``gatekeeper init`` did, for scripts and for people."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper.cli.answers import findings_document
from gatekeeper.domain.manifest import MANIFEST_NAME
from gatekeeper.domain.policy import Finding, Outcome


@dataclass(frozen=True)
class Started:
    """What ``gatekeeper init`` did. With findings nothing was written."""

    base: str
    base_sha: str
    directory: str | None = None
    findings: tuple[Finding, ...] = ()
    overwritten: bool = False
    hooks: tuple[str, ...] = ()
    undecided: tuple[Finding, ...] = ()
    """What ``gatekeeper check`` will refuse until the author has decided it."""

    @property
    def outcome(self) -> Outcome:
        """Passed if a skeleton was written, else failed."""
        return Outcome.FAILED if self.findings else Outcome.PASSED


def as_document(started: Started) -> dict[str, Any]:
    """Return the JSON document of ``--json``."""
    written = started.outcome is Outcome.PASSED
    return {
        "outcome": started.outcome.value,
        "base": started.base,
        "base_sha": started.base_sha,
        "directory": started.directory,
        "path": f"{started.directory}/{MANIFEST_NAME}" if written else None,
        "overwritten": started.overwritten,
        "hooks": list(started.hooks),
        "undecided": findings_document(started.undecided),
        "findings": findings_document(started.findings),
    }


def plain_lines(started: Started, repo: Path, policy_file: Path | None = None) -> list[str]:
    """Return what was done, line by line, and what is to be done next."""
    if started.findings:
        lines = []
        for found in started.findings:
            place = f" {found.path}" if found.path else ""
            lines.append(f"{found.code}{place}: {found.message} (expected {found.expected}; found {found.found})")
        return [*lines, "nothing was written"]
    policy = ["--policy", str(policy_file)] if policy_file else []
    check = ["gatekeeper", "check", "--repo", str(repo), "--base", started.base, "--head", "HEAD", *policy]
    done = "overwrote" if started.overwritten else "wrote"
    return [
        f"{done} {started.directory}/{MANIFEST_NAME} (base {started.base} at {started.base_sha[:12]})",
        f"hooks: {', '.join(started.hooks) or 'none is changed yet'}",
        *(f"to decide: line {found.line}: {found.message.split('`')[1]}" for found in started.undecided),
        f"then commit it and run: {shlex.join(check)}",
    ]
