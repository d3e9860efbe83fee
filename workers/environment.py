"""What machine a race ran on, as read from the machine itself."""

from __future__ import annotations

import os
import platform
import socket
from datetime import datetime
from pathlib import Path

import torch

from gatekeeper.domain.race import RaceEnvironment
from workers.devices.port import Device
from workers.jail import Jail
from workers.loop.blocks import Cores


def cpu_model() -> str:
    """Return the processor's name as the kernel gives it, else the architecture."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        return platform.machine()
    return platform.machine()


def cores() -> Cores:
    """Return the arms' core and the harness's core: the last and the first one that this process may use."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        return Cores(tuple(usable), None, tuple(usable))
    return Cores((usable[-1],), (usable[0],), tuple(usable))


def environment(device: Device, jail: Jail, started: datetime, ended: datetime) -> RaceEnvironment:
    """Return the record of this machine and of the device that was raced on."""
    now = device.read()
    return RaceEnvironment(
        device=device.name,
        cpu_model=cpu_model(),
        machine=socket.gethostname(),
        versions={
            "python": platform.python_version(),
            "torch": torch.__version__,
            "kernel": platform.release(),
            "jail": f"{jail.level.value}{'; own user' if jail.own_user else ''}{'; cgroups' if jail.control_groups else ''}",
            **({"why no stronger jail": " | ".join(jail.notes)[:1000]} if jail.notes else {}),
            **device.versions(),
        },
        started_at=started,
        ended_at=ended,
        throttle_reasons=now.reasons,
        clocks=dict(now.clocks),
    )
