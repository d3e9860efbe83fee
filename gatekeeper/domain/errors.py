"""The four families of errors; each says what its effect is, so that no caller has to guess."""

from __future__ import annotations


class GatekeeperError(Exception):
    """Base of every error that gatekeeper raises on purpose. ``code`` is the reason code shown to people."""

    def __init__(self, message: str, *, code: str = "ERROR", expected: str = "", found: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        told = (("expected", self.expected), ("found", self.found))
        detail = "; ".join(f"{word} {text}" for word, text in told if text)
        return f"{self.code}: {self.message} ({detail})" if detail else f"{self.code}: {self.message}"


class Rejected(GatekeeperError):
    """The caller's input is wrong: a 4xx with findings; nothing is retried."""


class Conflict(GatekeeperError):
    """Valid, but not now: a 409; logged as information."""


class Retryable(GatekeeperError):
    """The world failed (network, lock, lost worker): the job is tried again later and says nothing about a candidate."""


class Postponed(Retryable):
    """Not now, through nobody's fault (the machine is taken): tried again soon, and that was no attempt."""

    retry_after: float | None = None
    """Seconds after which it may be tried again, where that is known; soon otherwise."""


class Disturbed(Retryable):
    """The work was done and is worth nothing, because something else disturbed it; such tries are counted by themselves."""


class ConfigurationError(GatekeeperError):
    """The operator's settings or files are wrong: the process refuses to start and says why."""
