"""What stands around the jail: a machine of its own, a container, or nothing that counts. Found out, not merely claimed.

The kernel shows whether this is a virtual machine or a container. It cannot show what the wall is worth: a virtual machine that
also holds the service's secrets protects nothing. So two things are needed, and the weaker one counts: the word of whoever built
the image, in a file that only root can write, and signs that the word can be true. See ``docs/jail.md``.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from gatekeeper.domain.catalog import JailLevel

CLAIM = Path("/etc/gatekeeper/boundary")
"""Holds one word, ``vm`` or ``container``: "nothing but this worker lives inside this wall". Missing: no wall counts."""
FIRST_PIDS, FIRST_USERS = 0xEFFFFFFC, 0xEFFFFFFD
"""Inode numbers of the machine's own PID and user namespace (``include/linux/proc_ns.h`` of Linux); no other one has them."""
OPENS_CONTAINERS = {"SYS_MODULE": 16, "SYS_RAWIO": 17, "SYS_PTRACE": 19, "SYS_ADMIN": 21, "DAC_READ_SEARCH": 2}
"""Capabilities (``include/uapi/linux/capability.h``) with which root in a container is root of the host."""
RUNTIME_SOCKETS = ("run/docker.sock", "run/containerd/containerd.sock", "run/podman/podman.sock", "run/crio/crio.sock")
"""Whoever reaches one of these can start a container without walls."""
LEVELS = {"vm": JailLevel.VM_JAIL, "container": JailLevel.CONTAINER_JAIL}


@dataclass(frozen=True)
class Signs:
    """What the kernel shows of the place that this process runs in."""

    hypervisor: bool
    """The processor says that a hypervisor runs beneath (CPUID leaf 1, ECX bit 31; on ARM the device tree or firmware names)."""
    first_pids: bool
    """True in the machine's own PID namespace: not in a container."""
    first_users: bool
    """True in the machine's own user namespace: root is root of the machine."""
    capabilities: int
    """Bounding set: what a process here could ever get."""
    sockets: tuple[str, ...]
    """Control sockets of container runtimes in reach."""

    def doubts(self, word: str) -> list[str]:
        """Return why a claimed wall cannot be there; an empty list where nothing speaks against it."""
        if word == "vm":
            found = [] if self.hypervisor else ["no hypervisor is seen"]
            return found + ([] if self.first_pids else ["this is a container, whose neighbours share the machine"])
        found = ["this is the machine's own process namespace, not a container"] if self.first_pids else []
        if self.first_users:
            able = [name for name, bit in OPENS_CONTAINERS.items() if self.capabilities >> bit & 1]
            found += [f"the container keeps the capabilities {', '.join(able)}"] if able else []
        return found + ([f"a container runtime can be reached: {', '.join(self.sockets)}"] if self.sockets else [])


def read_signs(root: Path = Path("/")) -> Signs:
    """Return the signs of this place; ``root`` is another directory in tests only."""
    status = _text(root / "proc/self/status")
    bounding = next((line.split()[1] for line in status.splitlines() if line.startswith("CapBnd")), "f" * 16)
    return Signs(
        hypervisor=_hypervisor(root),
        first_pids=_namespace(root, "pid") == FIRST_PIDS,
        first_users=_namespace(root, "user") == FIRST_USERS,
        capabilities=int(bounding, 16),
        sockets=tuple("/" + name for name in RUNTIME_SOCKETS if (root / name).exists()),
    )


def claimed(path: Path = CLAIM) -> tuple[str | None, str]:
    """Return (word, "") of the claim; (None, why) where there is none that counts."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            word = file.read(100).decode("ascii", "replace").strip()
    except OSError:
        return None, f"{path} does not say what this machine is for"
    if found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return None, f"{path} can be written by others than root"
    if word not in LEVELS:
        return None, f"{path}: expected one of {', '.join(sorted(LEVELS))}; found {word[:40]!r}"
    return word, ""


def around(signs: Signs, claim: tuple[str | None, str]) -> tuple[JailLevel, str]:
    """Return the level that a working jail has in this place, and why it is not a higher one."""
    word, missing = claim
    if word is None:
        return JailLevel.JAIL, missing
    doubts = signs.doubts(word)
    if doubts:
        return JailLevel.JAIL, f"claimed to be a {word}, but {'; '.join(doubts)}"
    return LEVELS[word], ""


def _hypervisor(root: Path) -> bool:
    for line in _text(root / "proc/cpuinfo").splitlines():
        if line.startswith("flags") and "hypervisor" in line.split():
            return True
    return (root / "proc/device-tree/hypervisor").exists() or (root / "sys/hypervisor/type").exists()


def _namespace(root: Path, kind: str) -> int:
    try:
        target = os.readlink(root / "proc/self/ns" / kind)  # noqa: PTH115  (a link to no file: "pid:[4026531836]")
        return int(target.partition("[")[2].rstrip("]"))
    except (OSError, ValueError):
        return 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
