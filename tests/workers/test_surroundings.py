"""What stands around the jail: a claim alone is nothing, signs alone are nothing, and a claim against the signs is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gatekeeper.domain.catalog import JailLevel
from workers.surroundings import FIRST_PIDS, FIRST_USERS, Signs, around, claimed, read_signs

ALL = (1 << 41) - 1
VM = Signs(hypervisor=True, first_pids=True, first_users=True, capabilities=ALL, sockets=())
METAL = Signs(hypervisor=False, first_pids=True, first_users=True, capabilities=ALL, sockets=())
ROOTLESS = Signs(hypervisor=True, first_pids=False, first_users=False, capabilities=ALL, sockets=())
DROPPED = Signs(hypervisor=False, first_pids=False, first_users=True, capabilities=0xA80425FB & ~(1 << 19), sockets=())
PRIVILEGED = Signs(hypervisor=False, first_pids=False, first_users=True, capabilities=ALL, sockets=())
SOCKET = Signs(hypervisor=False, first_pids=False, first_users=False, capabilities=0, sockets=("/run/docker.sock",))


@pytest.mark.parametrize(
    ("signs", "word", "level", "why"),
    [
        (VM, "vm", JailLevel.VM_JAIL, ""),
        (VM, None, JailLevel.JAIL, "missing"),
        (METAL, "vm", JailLevel.JAIL, "no hypervisor"),
        (ROOTLESS, "vm", JailLevel.JAIL, "this is a container"),
        (ROOTLESS, "container", JailLevel.CONTAINER_JAIL, ""),
        (DROPPED, "container", JailLevel.CONTAINER_JAIL, ""),
        (DROPPED, None, JailLevel.JAIL, "missing"),
        (PRIVILEGED, "container", JailLevel.JAIL, "SYS_ADMIN"),
        (SOCKET, "container", JailLevel.JAIL, "/run/docker.sock"),
        (VM, "container", JailLevel.JAIL, "not a container"),
    ],
)
def test_the_weaker_of_claim_and_signs_counts(signs: Signs, word: str | None, level: JailLevel, why: str) -> None:
    found, reason = around(signs, (word, "" if word else "missing"))
    assert found is level
    assert why in reason and bool(why) is bool(reason)


@pytest.mark.parametrize(("text", "mode", "word"), [("vm\n", 0o644, "vm"), ("container", 0o644, "container"), ("vm", 0o666, None),
                                                    ("vm container", 0o644, None), ("", 0o644, None)])  # fmt: skip
def test_the_claim_is_a_file_that_only_root_can_write(tmp_path: Path, text: str, mode: int, word: str | None) -> None:
    path = tmp_path / "boundary"
    path.write_text(text)
    path.chmod(mode)
    expected = word if os.getuid() == 0 else None
    found, why = claimed(path)
    assert found == expected and bool(why) is (expected is None)


def test_without_a_file_nothing_is_claimed(tmp_path: Path) -> None:
    assert claimed(tmp_path / "nothing")[0] is None


def place(root: Path, *, flags: str, pids: int, users: int, bounding: str, socket: bool = False) -> Path:
    """A directory that looks like the parts of / that are read."""
    (root / "proc/self/ns").mkdir(parents=True)
    (root / "proc/cpuinfo").write_text(f"processor\t: 0\nflags\t\t: fpu {flags}\n")
    (root / "proc/self/status").write_text(f"Name:\tx\nCapBnd:\t{bounding}\n")
    for name, number in (("pid", pids), ("user", users)):
        (root / "proc/self/ns" / name).symlink_to(f"{name}:[{number}]")
    if socket:
        (root / "run").mkdir()
        (root / "run/docker.sock").touch()
    return root


def test_signs_are_read_from_the_kernel(tmp_path: Path) -> None:
    vm = place(tmp_path / "a", flags="hypervisor", pids=FIRST_PIDS, users=FIRST_USERS, bounding="000001ffffffffff")
    assert read_signs(vm) == VM
    inside = place(tmp_path / "b", flags="vme", pids=4026532200, users=4026532199, bounding="0", socket=True)
    assert read_signs(inside) == SOCKET
    assert read_signs(tmp_path / "c") == Signs(False, False, False, (1 << 64) - 1, ())


def test_the_signs_of_this_machine_can_be_read() -> None:
    here = read_signs()
    assert here.capabilities >= 0 and (Path("/proc/cpuinfo").read_text().find(" hypervisor") >= 0) is here.hypervisor
