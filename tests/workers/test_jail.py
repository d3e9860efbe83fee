"""Jails at every level that works here: what is seen, how trees end, that frozen means still."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from gatekeeper.domain.catalog import JailLevel
from gatekeeper.domain.errors import Retryable
from tests.workers.conftest import ROOT
from workers.jail import Bind, Jail, Limits, complaint, find_jail, process_jail
from workers.jailed import Ending, JailedProcess
from workers.loop.runs import IDLE_SECONDS
from workers.processes import state_of


def ways() -> list[Jail]:
    """Every way of holding a process that this machine offers, the weaker ones by name."""
    by_signals = Jail(JailLevel.PROCESS, False, False)
    return list(dict.fromkeys([find_jail(), process_jail(), by_signals]))


def python(jail: Jail, code: str, **changes):
    return jail.start([jail.python, "-I", "-S", "-c", code], **changes)


each_way = pytest.mark.parametrize(
    "way", ways(), ids=lambda j: f"{j.level.value}-{'groups' if j.control_groups else 'signals'}"
)


@each_way
def test_every_ending_is_typed(way):
    assert python(way, "print('hello')").finish(10).log == "hello\n"
    assert python(way, "raise SystemExit(7)").finish(10).status == 7
    died = python(way, "import os; os.kill(os.getpid(), 11)").finish(10)
    assert (died.how, died.status) == (Ending.SIGNALLED, signal.SIGSEGV)
    hung = python(way, "import time, signal; signal.signal(15, signal.SIG_IGN); time.sleep(60)").finish(0.3)
    assert hung.how is Ending.KILLED and not hung.clean


@each_way
def test_a_process_that_has_just_been_started_can_be_killed(way):
    # The launcher enters its control group by itself; a kill may come before that.
    for delay in (0, 0, 0, 0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.04):
        process = python(way, "import time; time.sleep(60)")
        time.sleep(delay)
        assert process.kill().how is Ending.KILLED
        assert not process.alive()


def test_killing_does_not_wait_for_a_process_outside_its_group():
    class Empty:
        """A group that the process has not entered."""

        def kill(self):
            pass

        remove = kill

        def limits_hit(self):
            return ()

        def cpu_seconds(self):
            return 0.0

        def processes(self):
            return []

    sleeping = subprocess.Popen(["/bin/sleep", "60"])
    ended = JailedProcess(sleeping, Empty(), None, own_processes=1).kill()  # type: ignore[arg-type]
    assert ended.how is Ending.KILLED and sleeping.returncode == -signal.SIGKILL


@each_way
def test_a_frozen_tree_uses_no_cpu_time_and_a_daemon_dies_with_it(way):
    code = "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork(): os._exit(0)\nwhile True: pass"
    process = python(way, code)
    deadline = time.monotonic() + 10
    while process.cpu_time() < 0.2 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.freeze()
    before = process.cpu_time()
    time.sleep(0.1)
    assert process.cpu_time() - before < IDLE_SECONDS
    process.thaw()
    pids = process.processes()
    ended = process.kill()
    assert ended.leftovers >= 1
    assert all(state_of(pid) in ("X", "Z") or pid not in process.processes() for pid in pids)
    assert process.kill() is ended


@each_way
def test_the_environment_is_built_and_nothing_is_inherited(way, monkeypatch):
    monkeypatch.setenv("GK_CANARY", "secret")
    seen = python(way, "import os; print(sorted(os.environ))", environment={"MORE": "1"}).finish(10).log
    assert "GK_CANARY" not in seen and "MORE" in seen


@pytest.mark.jail
def test_a_jail_shows_only_what_is_bound(tmp_path):
    jail = find_jail()
    if jail.level is JailLevel.PROCESS:
        pytest.skip("bubblewrap does not work here")
    (tmp_path / "file").write_text("bound")
    tmp_path.chmod(0o755)
    bind = Bind(tmp_path, "/tree")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\0gatekeeper-test-abstract")
    listener.listen()
    code = f"""
import os, socket
print(open({jail.inside(bind, "file")!r}).read())
for attempt in (lambda: open("/tree/new", "w"), lambda: open("/usr/new", "w"), lambda: open({str(ROOT / "pyproject.toml")!r}),
                lambda: socket.create_connection(("169.254.169.254", 80), 1), lambda: os.kill({os.getpid()}, 0),
                lambda: socket.socket(socket.AF_UNIX).connect("\\0gatekeeper-test-abstract"), lambda: os.nice(-5)):
    try: attempt(); print("REACHED")
    except OSError: print("held")
print(os.getuid() != 0, len([p for p in os.listdir("/proc") if p.isdigit()]))
"""
    lines = python(jail, code, binds=[bind]).finish(10).log.split()
    listener.close()
    assert lines[0] == "bound" and "REACHED" not in lines and lines.count("held") == 7
    assert lines[-2] == "True" and int(lines[-1]) <= 3


@pytest.mark.parametrize(
    "code", ["import os\nfor _ in range(100): os.fork() or __import__('time').sleep(5)", "x = bytearray(1 << 30)"]
)
def test_limits_hold(code, jail):
    if jail.level is JailLevel.PROCESS:
        pytest.skip("bubblewrap does not work here")
    ended = python(jail, code, limits=Limits(memory=256 << 20, processes=16)).finish(10)
    assert not ended.clean


class Leaky(Jail):
    """Says that it is a jail and starts the command on the bare machine."""

    def _order(self, argv, binds, limits, environment, uid):
        return {"argv": list(argv), "environment": environment, "no_new_privs": True}


def test_a_jail_that_lets_the_canary_out_is_refused():
    assert "files of the host" in (complaint(Leaky(JailLevel.JAIL, False, False)) or "")
    assert complaint(process_jail()) is None


def test_too_weak_is_an_error_with_expected_and_found():
    with pytest.raises(Retryable, match="JAIL_TOO_WEAK") as error:
        find_jail(JailLevel.VM_JAIL)
    assert error.value.expected == "vm+jail"


@each_way
def test_jailed_processes_die_with_a_killed_harness(way):
    script = (
        "import sys, time\n"
        "from gatekeeper.domain.catalog import JailLevel\n"
        "from workers.jail import Jail\n"
        f"jail = Jail(JailLevel({way.level.value!r}), {way.own_user}, {way.control_groups})\n"
        "process = jail.start([jail.python, '-I', '-S', '-c', 'while True: pass'])\n"
        "time.sleep(0.5)\n"
        "print(*process.processes(), flush=True)\n"
        "time.sleep(60)\n"
    )
    harness = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert harness.stdout is not None
    pids = [int(pid) for pid in harness.stdout.readline().split()]
    assert pids
    harness.kill()
    harness.wait()
    harness.stdout.close()
    deadline = time.monotonic() + 5
    while any(state_of(pid) not in ("X", "Z") for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert all(state_of(pid) in ("X", "Z") for pid in pids)


@each_way
def test_ways_to_another_core_a_namespace_a_keyring_or_another_process_are_refused_and_threads_are_not(way):
    code = """
import ctypes, os, threading
libc = ctypes.CDLL(None, use_errno=True)
def refused(call):
    ctypes.set_errno(0)
    try: return call() == -1 and ctypes.get_errno() == 1
    except PermissionError: return True
calls = {
    "affinity": lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)),
    "user": lambda: libc.unshare(0x10000000),
    "clone": lambda: libc.syscall(56 if os.uname().machine == "x86_64" else 220, 0x10000000 | 17, 0, 0, 0, 0),
    "io_uring": lambda: libc.syscall(425, 4, None),
    "keyring": lambda: libc.syscall(250 if os.uname().machine == "x86_64" else 219, 0, -3, 1),
    "ptrace": lambda: libc.ptrace(0, 0, None, None),
}
if os.uname().machine == "x86_64": calls["x32"] = lambda: libc.syscall(0x40000000 + 39)
print([name for name, call in calls.items() if not refused(call)])
thread = threading.Thread(target=lambda: print("thread")); thread.start(); thread.join()
if os.fork() == 0: os._exit(0)
print(os.wait()[1])
"""
    assert python(way, code).finish(10).log == "[]\nthread\n0\n"


@each_way
def test_arms_die_first_where_memory_is_short(way):
    assert python(way, "print(open('/proc/self/oom_score_adj').read())").finish(10).log.strip() == "1000"


@each_way
def test_what_is_printed_reaches_nobody_with_control_characters(way):
    assert python(way, "print('a\\0b\\x1b[31m\\tc')").finish(10).log == "ab[31m\tc\n"
