"""Chooses where a race's tensors live, by its target, and refuses a machine that is not of the target's kind."""

from __future__ import annotations

import re
from pathlib import Path

from gatekeeper.domain.catalog import HardwareTarget
from gatekeeper.domain.errors import Retryable
from workers.devices.cpu import CpuDevice
from workers.devices.port import Device


def find_device(target: HardwareTarget, root: Path) -> Device:
    """Return the device of a target. ``root`` is the checkout, below which ``build/kernels`` may hold compiled kernels.

    Raises:
        Retryable: ``RACE_DEVICE`` if this machine has no device whose name the target's pattern matches in full, or one of another
            architecture: that is the machine's doing, not the candidate's.
    """
    device: Device
    if target.architecture == "cpu":
        device = CpuDevice()
    else:
        from workers.devices.cuda import open_device

        opened = open_device(target, root)
        if isinstance(opened, str):
            raise no_device(target, opened)
        device = opened
    if not re.fullmatch(target.device_pattern, device.name):
        device.close()
        raise no_device(target, f"{device.name!r}")
    return device


def no_device(target: HardwareTarget, found: str) -> Retryable:
    """Return the error for a machine without the target's device."""
    return Retryable(
        f"this machine is no {target.name} ({target.title})", code="RACE_DEVICE",
        expected=f"a device of architecture {target.architecture} whose name matches {target.device_pattern!r}", found=found,
    )  # fmt: skip
