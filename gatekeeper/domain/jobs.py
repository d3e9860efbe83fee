"""What a job is and how it may move. The table in ``store`` holds the rows; only jobs ever change state."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from gatekeeper.domain.documents import Value


class JobKind(StrEnum):
    """The kinds of work. The key that makes a job unique is named beside each."""

    INTAKE = "intake"  # "<repository id>:<pull request number>"
    EVALUATE = "evaluate"  # snapshot digest
    PUBLISH = "publish"  # "<publisher>:<repository id>:<pull request number>"
    RACE = "race"  # race request digest
    PROBE = "probe"  # probe request digest
    VERIFY = "verify"  # upload id


class JobState(StrEnum):
    """``queued -> running -> succeeded | failed``; an expired lease leads back to ``queued``."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.FAILED}),
    JobState.RUNNING: frozenset({JobState.QUEUED, JobState.SUCCEEDED, JobState.FAILED}),
    JobState.SUCCEEDED: frozenset({JobState.QUEUED}),
    JobState.FAILED: frozenset({JobState.QUEUED}),
}


MACHINE_TAKEN = "RUN_MACHINE_TAKEN"
"""Code with which a race or a probe is put off because others have the machine."""


class Claim(Value):
    """The proof that this process owns a running job until ``lease_until``; every write of its result names ``fence``."""

    job_id: str
    kind: JobKind
    key: str
    payload: dict[str, str | int | float | bool | None] = {}
    delivery_id: str | None = None
    fence: int
    asked: int
    attempt: int
    voids: int = 0
    """How often its work was done and disturbed since it was last queued anew; such tries are no attempts."""
    lease_until: datetime
    said: str | None = None
    """How its last try ended, where that led to nothing."""

    @property
    def waited_for_machine(self) -> bool:
        """Whether its last try found the machine taken."""
        return (self.said or "").startswith(MACHINE_TAKEN)
