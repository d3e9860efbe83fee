"""Which device a target gets, and what is said where this machine has none of that kind."""

from __future__ import annotations

import pytest

from gatekeeper.domain.catalog import HardwareTarget, JailLevel, Noise
from gatekeeper.domain.errors import Rejected, Retryable
from workers.devices.cpu import CpuDevice
from workers.devices.find import find_device
from workers.models import load_model


def target(architecture: str, pattern: str) -> HardwareTarget:
    noise = Noise(block_sd=0.03, mean_upper_95=0.01, blocks=50, recorded="made up for tests: not a measurement")
    return HardwareTarget(
        name="made_up", title="made up", architecture=architecture, device_pattern=pattern, owned=False,
        minimum_jail=JailLevel.PROCESS, bandwidth_bytes_per_second=1e12, noise=noise, longest_race_seconds=60,
    )  # fmt: skip


def test_a_cpu_target_gets_the_machine_itself(tmp_path):
    device = find_device(target("cpu", "cpu"), tmp_path)
    assert isinstance(device, CpuDevice) and (device.mode, device.gauge(), device.read().slowed) == ("eager", None, ())


def test_a_name_that_the_pattern_does_not_match_in_full_is_refused(tmp_path):
    with pytest.raises(Retryable) as refused:
        find_device(target("cpu", "cp"), tmp_path)
    assert refused.value.code == "RACE_DEVICE" and refused.value.found == "'cpu'" and "'cp'" in refused.value.expected


def test_a_machine_without_the_device_says_what_was_expected(tmp_path):
    with pytest.raises(Retryable) as refused:
        find_device(target("sm_90a", "NVIDIA H200"), tmp_path)
    assert refused.value.code == "RACE_DEVICE" and "made_up" in str(refused.value)
    assert "sm_90a" in refused.value.expected and "'NVIDIA H200'" in refused.value.expected


def test_a_model_without_parts_for_an_architecture_is_refused(tmp_path):
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "model.toml").write_text('problem = "a:b"\nreference = "a:c"\n')
    with pytest.raises(Rejected) as refused:
        load_model("plain", "small", tmp_path, "sm_90a")
    assert refused.value.expected == "one of ['cpu']" and refused.value.found == "sm_90a"
