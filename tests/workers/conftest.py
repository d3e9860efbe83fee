"""Orders for races of the toy model, and the small facts about this machine that tests depend on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gatekeeper.domain.catalog import HardwareTarget, JailLevel, Noise
from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.race import InstalledSource, RaceOrder, RaceRequest, RaceRules
from workers.jail import find_jail

ROOT = Path(__file__).resolve().parents[2]
MODELS = Path(__file__).parent
ARMS = "tests.workers.toy_model.arms"

torch.set_num_threads(1)


def toy_order(candidate: str = "stock:baseline", *, rows=(2,), **changes) -> RaceOrder:
    """A short race of the toy model; ``candidate`` is a module and attribute below the toy's arms."""
    noise = Noise(block_sd=0.03, mean_upper_95=0.01, blocks=50, recorded="made up for tests: not a measurement")
    target = HardwareTarget(
        name="cpu", title="test", architecture="cpu", device_pattern="cpu", owned=True, minimum_jail=JailLevel.PROCESS,
        bandwidth_bytes_per_second=1e12, noise=noise, longest_race_seconds=changes.pop("longest", 120),
    )  # fmt: skip
    rules = RaceRules(
        looks=(2,), nominal_p=(0.009,), groups=changes.pop("groups", 2), steps=4, margin=0.05, control_blocks=0,
        guard_configurations=0, guard_loss=0.5, checked_share=1.0, plausible_ratio=50, **changes.pop("rules", {}),
    )  # fmt: skip
    until = changes.pop("until", "end")
    request = RaceRequest(
        purpose=changes.pop("purpose", "selftest"), model="toy_model", problem="small", suite="sha256:" + "0" * 64, target=target,
        candidate=InstalledSource(entry_point=f"{ARMS}.{candidate}"),
        baseline=InstalledSource(entry_point=f"{ARMS}.{changes.pop('baseline', 'stock:baseline')}"),
        configurations=changes.pop("configurations", None)
        or tuple(Configuration(rows=count, context=64, page_size=4) for count in rows),
        rules=rules, **changes,
    )  # fmt: skip
    return RaceOrder(request=request, alpha=0.01, until=until)


@pytest.fixture(scope="session")
def jail():
    """The best jail that works here."""
    return find_jail()
