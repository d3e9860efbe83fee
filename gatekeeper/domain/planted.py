"""The corpus of planted mutants: what each is, what must become of it, and whether it was stopped for the right reason."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from enum import StrEnum

from pydantic import Field, ValidationError

from gatekeeper.domain.documents import Value
from gatekeeper.domain.errors import ConfigurationError
from gatekeeper.domain.race import RaceOutcome


class Kind(StrEnum):
    """What a mutant stands for."""

    FAULT = "fault"
    CHEAT = "cheat"
    SLOW = "slow"
    HONEST = "honest"


class Expected(StrEnum):
    """What must become of it. ``right`` asks nothing of its time."""

    WRONG = "wrong"
    NOT_BETTER = "not_better"
    RIGHT = "right"
    BETTER = "better"


_OVER_STEPS = (
    "COR_MISMATCH", "COR_GAIN", "COR_ROUTING", "COR_ELEMENT", "COR_NONFINITE", "COR_UNWRITTEN", "COR_STRAY_WRITE",
)  # fmt: skip
REASONS = {
    "chain": _OVER_STEPS,
    "regime": _OVER_STEPS,
    "one_step": ("COR_MISMATCH", "COR_GAIN", "COR_ROUTING", "COR_ELEMENT", "COR_CONSTANT"),
    "boundary": _OVER_STEPS,
    "guard": ("COR_STRAY_WRITE",),
    "scan": ("COR_NONFINITE", "COR_UNWRITTEN"),
    "process": ("RUN_", "COR_", "JAIL_"),
    "clock": ("BENCH_", "TIM_"),
    "between": ("BENCH_WORSE",),
    "late": ("COR_",),
}
"""What sees a mutant, to the codes (or their beginnings) that are the right reason to stop it."""


class Planted(Value):
    """One line of the index."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    at: str = Field(pattern=r"^[a-z_]+:[a-z][a-z0-9_]*$")
    """File and attribute below the model's ``mutants``."""
    kind: Kind
    expected: Expected
    seen_by: str
    fault_class: str = Field(alias="class", min_length=1)

    @property
    def timed(self) -> bool:
        """Whether only a whole race can tell."""
        return self.expected in (Expected.NOT_BETTER, Expected.BETTER)


class Answer(Value):
    """What a mutant got. ``outcome`` is ``right`` where only correctness was asked for and nothing was wrong."""

    name: str
    outcome: str
    codes: tuple[str, ...]
    seconds: float
    reasons: tuple[str, ...] = ()


def read_index(text: str, source: str) -> tuple[Planted, ...]:
    """Return the mutants of an index in TOML.

    Raises:
        ConfigurationError: ``CATALOG_MUTANTS`` for what is no index, an unknown ``seen_by`` or a name that stands twice.
    """
    try:
        lines = tuple(Planted.model_validate(line) for line in tomllib.loads(text)["mutants"])
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValidationError) as error:
        raise _wrong(source, "a table of mutants", str(error)[:300]) from error
    names = [line.name for line in lines]
    for line in lines:
        if line.seen_by not in REASONS:
            raise _wrong(source, f"seen_by as one of {', '.join(REASONS)}", f"{line.name}: {line.seen_by}")
        if names.count(line.name) > 1:
            raise _wrong(source, "each name once", line.name)
    return lines


def _wrong(source: str, expected: str, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"the index of mutants in {source} is wrong", code="CATALOG_MUTANTS", expected=expected, found=found
    )


def surprise(planted: Planted, answer: Answer) -> str | None:
    """Return what is not as it must be, or None."""
    wanted, outcome = planted.expected, answer.outcome
    if outcome == RaceOutcome.VOID.value:
        return "void: nothing was shown"
    if wanted is Expected.WRONG:
        if outcome != RaceOutcome.WRONG.value:
            return "missed: it was not stopped as wrong"
        if not _for_reason(answer.codes, REASONS[planted.seen_by]):
            return f"stopped for another reason: {', '.join(answer.codes) or 'none given'}"
    elif wanted is Expected.NOT_BETTER and outcome == RaceOutcome.BETTER.value:
        return "missed: it was called better"
    elif planted.seen_by in ("between", "late") and not _for_reason(answer.codes, REASONS[planted.seen_by]):
        return f"not better for another reason: {', '.join(answer.codes) or 'none given'}"
    elif (wanted is Expected.RIGHT and outcome != Expected.RIGHT.value) or (
        wanted is Expected.BETTER and outcome != RaceOutcome.BETTER.value
    ):
        return f"blocked: {outcome}, {', '.join(answer.codes)}"
    if planted.kind is Kind.HONEST and outcome == RaceOutcome.WRONG.value:
        return f"blocked: wrong, {', '.join(answer.codes)}"
    return None


def _for_reason(codes: Collection[str], reasons: Collection[str]) -> bool:
    return any(
        code == reason or (reason.endswith("_") and code.startswith(reason)) for code in codes for reason in reasons
    )
