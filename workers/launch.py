"""The first program of every jailed process: it binds itself to limits and to its parent's life, then becomes another program.

It is run by path with ``python -I -S`` and imports the standard library only, because it also runs inside the jail, where
nothing of ours but this file may be visible. Its one argument is a JSON object (see :func:`main`).
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import signal
import struct
import sys
from types import FrameType
from typing import Any

PR_SET_PDEATHSIG = 1
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
LAST_CAPABILITY = 63
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
FORBIDDEN = {
    # Another core or priority.
    "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    # Namespaces, whose end the kernel works off later, and mounts.
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "open_by_handle_at": (304, 265),
    # What outlives a process: keys, and queues and memory of System V and POSIX.
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "shmget": (29, 194), "semget": (64, 190),
    "msgget": (68, 186), "mq_open": (240, 180),
    # Faults and workers that no freezer holds.
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    # Other processes.
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "kcmp": (312, 272), "perf_event_open": (298, 241), "bpf": (321, 280), "lookup_dcookie": (212, 18),
    "fanotify_init": (300, 262),
    # The machine itself. Most want privileges besides; a second lock costs nothing.
    "personality": (135, 92), "modify_ldt": (154, None), "iopl": (172, None), "ioperm": (173, None), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "syslog": (103, 116),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "adjtimex": (159, 171), "clock_adjtime": (305, 266), "sethostname": (170, 161), "setdomainname": (171, 162),
    "vhangup": (153, 58),
}  # fmt: skip
"""System calls that are refused: name to its number on x86-64 and on AArch64. ``arch/x86/entry/syscalls/syscall_64.tbl`` and
``include/uapi/asm-generic/unistd.h`` of Linux 6.1 have the numbers."""
MACHINES = {"x86_64": (0, 0xC000003E, 56, 435), "aarch64": (1, 0xC00000B7, 220, 435)}
"""By machine: column in ``FORBIDDEN``, the kernel's number of the machine, clone, clone3."""
NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID and _NEWNET."""


def main(order: dict[str, Any]) -> None:
    """Obey an order and exec.

    Keys, all optional but ``argv`` and ``environment``: ``parent`` (pid that must still be the parent), ``cgroups`` (files
    named ``cgroup.procs`` to write this pid into), ``rlimits`` (name without prefix -> value), ``cpus`` (list), ``uid`` (become
    this user and group), ``no_new_privs`` (bool), ``seccomp`` (bool: refuse the system calls of ``FORBIDDEN``; it needs
    ``no_new_privs``), ``worst`` (bool: the first to die where memory is short), ``warden`` (bool: stay behind as the reaper of
    all descendants).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if order.get("session"):
        os.setsid()
    for file in order.get("cgroups", ()):
        with open(file, "w") as procs:  # noqa: PTH123  (pathlib would be a fifth of the start-up time)
            procs.write("0")
    if order.get("cpus"):
        os.sched_setaffinity(0, order["cpus"])
    if order.get("warden"):
        guard(libc)
    if order.get("worst"):
        with open("/proc/self/oom_score_adj", "w") as score:  # noqa: PTH123
            score.write("1000")
    for name, value in order.get("rlimits", {}).items():
        resource.setrlimit(getattr(resource, "RLIMIT_" + name), (value, value))
    if order.get("uid") is not None:
        become(libc, order["uid"])
    if order.get("no_new_privs"):
        demand(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    if order.get("seccomp"):
        program = syscall_filter(os.uname().machine)
        buffer = ctypes.create_string_buffer(program, len(program))
        pointer = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
        demand(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_char_p(pointer), 0, 0), "seccomp")
    # Set last: the kernel forgets it when credentials change.
    demand(libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0), "pdeathsig")
    if order.get("parent") and not order.get("warden") and os.getppid() != order["parent"]:
        os._exit(1)
    os.execve(order["argv"][0], order["argv"], order["environment"])  # noqa: S606


def become(libc: ctypes.CDLL, uid: int) -> None:
    """Give up every capability and all groups for good and go on as user and group ``uid``."""
    for capability in range(LAST_CAPABILITY + 1):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def numbers(machine: str) -> dict[str, int]:
    """Return the numbers of the system calls that are refused on a machine, by name.

    Raises:
        OSError: for a machine whose numbers are not known here.
    """
    if machine not in MACHINES:
        raise OSError(errno.ENOSYS, f"no system call filter for {machine}; known are {sorted(MACHINES)}")
    return {name: number for name, both in FORBIDDEN.items() if (number := both[MACHINES[machine][0]]) is not None}


def syscall_filter(machine: str) -> bytes:
    """Return the classic BPF program, eight bytes an instruction, that refuses ``FORBIDDEN`` and lets all else through.

    Raises:
        OSError: for a machine whose numbers are not known here.
    """
    numbers_of = numbers(machine)
    _, architecture, clone, clone3 = MACHINES[machine]
    load, equal, above, any_bit, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, refuse, absent = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
    rules: list[tuple[int, int, int, int]] = [(load, 0, 0, 4), (equal, 1, 0, architecture), (answer, 0, 0, refuse)]
    # The second call table of x86-64 (x32) starts at this number.
    rules += [(load, 0, 0, 0), (above, 0, 1, 0x40000000), (answer, 0, 0, refuse)]
    # clone3 hides its flags in memory; told that there is none, the C library takes clone.
    rules += [(equal, 0, 1, clone3), (answer, 0, 0, absent)]
    for number in numbers_of.values():
        rules += [(equal, 0, 1, number), (answer, 0, 0, refuse)]
    rules += [(equal, 0, 3, clone), (load, 0, 0, 16), (any_bit, 0, 1, NEW_NAMESPACES), (answer, 0, 0, refuse)]
    rules += [(answer, 0, 0, allow)]
    return b"".join(struct.pack("=HBBI", code, true, false, value) for code, true, false, value in rules)


def guard(libc: ctypes.CDLL) -> None:
    """Fork: the child goes on, the parent reaps every descendant, passes signals' meaning on and ends as the child did.

    As the subreaper it keeps daemons of the child inside its own tree, so that they can be found, frozen and killed even
    where neither a pid namespace nor a cgroup is to be had. It dies with the harness and takes its tree along.
    """
    demand(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "subreaper")
    child = os.fork()
    if child == 0:
        return

    def fell(_signal: int, _frame: FrameType | None) -> None:
        for _ in range(100):
            alive = descendants(os.getpid())
            if not alive:
                break
            for pid in alive:
                end(pid)
            reap()
        os._exit(137)

    signal.signal(signal.SIGTERM, fell)
    demand(libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0), "pdeathsig")
    while True:
        pid, status = os.wait()
        if pid == child:
            for left in descendants(os.getpid()):
                end(left)
            code = os.waitstatus_to_exitcode(status)
            if code < 0:
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
                os.kill(os.getpid(), -code)
            os._exit(code if code >= 0 else 128 - code)


def descendants(root: int) -> list[int]:
    """Return the pids below ``root``, read from /proc; a pid that ends meanwhile is left out."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:  # noqa: PTH123
                    parents[int(name)] = int(stat.read().rsplit(b")", 1)[1].split()[1])
            except OSError:
                continue
    found: list[int] = []
    level = {root}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level}
        found.extend(level)
    return found


def end(pid: int) -> None:
    """Kill one process; that it is gone already is fine."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def reap() -> None:
    """Collect every child that has ended, without waiting."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return


def demand(result: int, what: str) -> None:
    """Raise OSError if a prctl call failed."""
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what} was refused")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
