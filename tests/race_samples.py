"""Builders of race requests and results with known effects; defaults are valid, keywords change what matters."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from typing import Any

from gatekeeper.domain.catalog import HardwareTarget, JailLevel, Noise
from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.race import (
    InstalledSource,
    RaceEnvironment,
    RaceOutcome,
    RaceRequest,
    RaceResult,
    RaceRules,
    RaceStatus,
)
from gatekeeper.domain.samples import (
    Arm,
    ArmRecord,
    Block,
    ConfigurationRecord,
    ErrorFigures,
    ErrorLimits,
    ErrorRecord,
    Group,
    Run,
    SelfProof,
)

SUITE = "sha256:" + "a" * 64
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
STEP_NS = 100_000
ARM = {"A": Arm.BASELINE, "B": Arm.CANDIDATE}


def configuration(rows: int = 8) -> Configuration:
    return Configuration(rows=rows, context=1024, page_size=32)


def target(**changes: Any) -> HardwareTarget:
    values: dict[str, Any] = {
        "name": "cpu",
        "title": "CPU",
        "architecture": "cpu",
        "device_pattern": ".*",
        "owned": True,
        "minimum_jail": JailLevel.PROCESS,
        "bandwidth_bytes_per_second": 1e10,
        "noise": Noise(block_sd=0.01, mean_upper_95=0.002, blocks=60, recorded="test"),
        "longest_race_seconds": 600,
    }
    return HardwareTarget(**{**values, **changes})


def rules(**changes: Any) -> RaceRules:
    values: dict[str, Any] = {
        "looks": (6, 10, 14, 20),
        "nominal_p": (0.0, 0.0003, 0.002, 0.009),
        "groups": 4,
        "steps": 8,
        "margin": 0.01,
        "control_blocks": 2,
        "guard_configurations": 0,
        "guard_loss": 0.02,
        "checked_share": 0.25,
        "plausible_ratio": 3.0,
    }
    return RaceRules(**{**values, **changes})


def request(*, rows: tuple[int, ...] = (8,), **changes: Any) -> RaceRequest:
    values: dict[str, Any] = {
        "model": "kimi_k3",
        "problem": "tiny",
        "suite": SUITE,
        "target": target(),
        "candidate": InstalledSource(entry_point="a.b:c"),
        "baseline": InstalledSource(entry_point="a.b:d"),
        "configurations": tuple(configuration(row) for row in rows),
        "rules": rules(),
    }
    return RaceRequest(**{**values, **changes})


def group(baseline: float, candidate: float, *, order: str = "ABBA", steps: tuple[int, int] = (8, 12), drift: float = 0.0,
          repeats: int = 0, fixed: int = 0, seed: int = 1) -> Group:  # fmt: skip
    """One group; ``baseline`` and ``candidate`` are ns a step, ``drift`` is the relative slow-down from run to run."""
    seeds = [(f"{seed:x}0", steps[0]), (f"{seed:x}1", steps[1])]
    placed = [seeds[0], seeds[0], seeds[1], seeds[1]]
    runs = []
    for index, (letter, (name, count)) in enumerate(zip(order, placed, strict=True)):
        cost = (baseline if letter == "A" else candidate) * (1 + drift * index)
        extra = fixed if letter == "A" else 0
        runs.append(Run(arm=ARM[letter], seed=name, steps=count, nanoseconds=round(cost * count) + extra))
    return Group(order=order, runs=tuple(runs), repeats=repeats)


def blocks(
    count: int, effect: float = 0.0, sd: float = 0.0, *, seed: int = 1, groups: int = 4, **changes: Any
) -> tuple[Block, ...]:
    """``count`` blocks in whole pairs whose log ratios are ``effect`` with block SD ``sd``."""
    source = random.Random(seed)
    found = []
    for index in range(count):
        mean = effect + sd * source.gauss(0, 1)
        second = index % 2 == 1
        made = [
            group(STEP_NS, STEP_NS / math.exp(mean), order="BAAB" if (number + index) % 2 else "ABBA", seed=number + 1, **changes)
            for number in range(groups)
        ]  # fmt: skip
        found.append(
            Block(pair=index // 2, swapped=second, first_started=Arm.CANDIDATE if second else Arm.BASELINE,
                  data_seed=f"{index:x}", groups=tuple(made))
        )  # fmt: skip
    return tuple(found)


def error(
    *,
    rms: float = 0.01,
    median: float = 0.01,
    gain: float = 0.001,
    kind: Any = "output",
    check: str = "chain",
    sequences: int = 10**8,
) -> ErrorRecord:
    """Figures over so many sequences that chance has no part in their limits, unless told otherwise."""
    base = ErrorFigures(rms=0.01, median_row=0.01, largest=0.03, gain=0.001)
    limits = ErrorLimits(rms=0.015, median_row=0.0115, gain=0.002)
    floors = ErrorLimits(rms=1e-6, median_row=1e-6, gain=1e-6)
    mine = ErrorFigures(rms=rms, median_row=median, largest=0.03, gain=gain)
    return ErrorRecord(tensor="out", kind=kind, check=check, steps=64, rows=8, sequences=sequences,
                       candidate=mine, baseline=base, floors=floors, limits=limits)  # fmt: skip


def record(rows: int = 8, *, timed: tuple[Block, ...] | None = None, **changes: Any) -> ConfigurationRecord:
    arm = ArmRecord(mode="eager", communication="shard")
    proofs = tuple(
        SelfProof(name=name, refused=True, figure=1.0) for name in ("zeros", "previous", "echo", "one_element")
    )
    values: dict[str, Any] = {
        "configuration": configuration(rows),
        "layers": 2,
        "bytes_needed": 1000,
        "baseline": arm,
        "candidate": arm,
        "errors": (error(), error(check="timed")),
        "self_proofs": proofs,
        "blocks": blocks(20, 0.2, 0.005) if timed is None else timed,
        "control": blocks(2, 0.0, 0.002, seed=7),
    }
    return ConfigurationRecord(**{**values, **changes})


def result(*records: ConfigurationRecord, **changes: Any) -> RaceResult:
    values: dict[str, Any] = {
        "status": RaceStatus.FINISHED,
        "outcome": RaceOutcome.BETTER,
        "jail": JailLevel.PROCESS,
        "environment": RaceEnvironment(device="cpu", cpu_model="test", started_at=NOON, ended_at=NOON),
        "configurations": records or (record(),),
    }
    return RaceResult(**{**values, **changes})
