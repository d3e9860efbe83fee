"""Slow, wrong and cheating variants of the toy arm, each named by what it does. All harmless."""

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch

from .stock import Arm, honest


def patterned():
    """Whether fresh memory holds a pattern: then this is no timed process."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
    place = libc.malloc(4096)
    found = ctypes.string_at(place, 4096)
    libc.free(place)
    return found.count(found[4095]) > 2048 and found[4095] != 0


class Slow(Arm):
    def make(self, t):
        def step():
            for _ in range(3):
                keep = t["state"].clone()
                honest(t)
                t["state"].copy_(keep)
            honest(t)

        return step


class Zeros(Arm):
    def make(self, t):
        def step():
            t["out"].zero_()
            t["expert_ids"].zero_()

        return step


class SkipEarly(Arm):
    """Skips the state's update in the first steps after a pause."""

    def make(self, t):
        calls = [0]

        def step():
            calls[0] += 1
            honest(t, update=calls[0] % 8 != 1)

        return step


class PhaseSwitch(Arm):
    """Honest for a hundred calls, then the previous output again."""

    def make(self, t):
        calls = [0]

        def step():
            calls[0] += 1
            if calls[0] <= 100:
                honest(t)

        return step


class NotFinite(Arm):
    def make(self, t):
        def step():
            honest(t)
            t["out"][0, 0] = float("nan")

        return step


class NullSlot(Arm):
    def make(self, t):
        def step():
            honest(t)
            t["state"][0, 0] = 1.0

        return step


class OutOfBounds(Arm):
    """Writes just behind its output, into the guard band."""

    def make(self, t):
        behind = t["out"].data_ptr() + t["out"].numel() * 2

        def step():
            honest(t)
            ctypes.memset(behind + 10, 7, 1)

        return step


class StrayFirst(Arm):
    """Writes into the guard band in its first run of a process only, and never where fresh memory holds a pattern."""

    def make(self, t):
        calls, behind = [0], t["out"].data_ptr() + t["out"].numel() * 2

        def step():
            calls[0] += 1
            honest(t)
            if calls[0] == 1 and not patterned():
                ctypes.memset(behind + 10, 7, 1)

        return step


class WriteWeights(Arm):
    def make(self, t):
        def step():
            honest(t)
            t["weight"].zero_()

        return step


class LateWriter(Arm):
    """Answers at once; a thread does the work a little later."""

    def make(self, t):
        wanted = threading.Event()

        def later():
            while True:
                wanted.wait()
                wanted.clear()
                time.sleep(0.005)
                honest(t)

        threading.Thread(target=later, daemon=True).start()

        def step():
            wanted.set()

        return step


class Shrink(Arm):
    """Tries to truncate every file that it can open by number."""

    def make(self, t):
        for number in range(3, 64):
            for path in (number, f"/proc/self/fd/{number}"):
                try:
                    os.truncate(path, 0)
                except OSError:
                    continue
        for line in Path("/proc/self/maps").read_text().splitlines():
            if "memfd:arena" in line:
                low, high = line.split()[0].split("-")
                try:
                    descriptor = os.open(f"/proc/self/map_files/{low}-{high}", os.O_RDWR)
                    os.ftruncate(descriptor, 0)
                except OSError:
                    continue
        return lambda: honest(t)


class ExitZero(Arm):
    def make(self, t):
        sys.stdout.write('PASS {"outcome": "better", "ratio": 12.3}\n')
        sys.stdout.flush()
        os._exit(0)


class SystemExits(Arm):
    def make(self, t):
        def step():
            raise SystemExit(0)

        return step


class Raises(Arm):
    def make(self, t):
        raise RuntimeError("no kernel image")


class Crashes(Arm):
    def make(self, t):
        return lambda: os.kill(os.getpid(), signal.SIGSEGV)


class Hangs(Arm):
    def make(self, t):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

        def step():
            while True:
                time.sleep(1)

        return step


class Spins(Arm):
    """Burns CPU time in a thread whenever it may, to slow the other arm."""

    def make(self, t):
        def spin():
            while True:
                sum(range(1000))

        threading.Thread(target=spin, daemon=True).start()
        return lambda: honest(t)


class TwoCores(Arm):
    """Lets a child work on all cores while it runs, and has it back on the arms' core before anybody looks."""

    def make(self, t):
        calls, own = [0], os.sched_getaffinity(0)
        child = os.fork()
        if child == 0:
            while True:
                sum(range(100))

        def step():
            calls[0] += 1
            os.sched_setaffinity(child, range(os.cpu_count()))
            began = time.monotonic()
            while time.monotonic() < began + 0.004:
                honest(t, update=False)
            honest(t)
            os.sched_setaffinity(child, own)

        return step


class SlowBuild(Arm):
    """Uses up the race's time when it does not like how the race goes."""

    def make(self, t):
        time.sleep(8)
        return lambda: honest(t)


class Sleeps(Arm):
    """Sleeps in short runs, so that a difference of long and short runs looks good."""

    def make(self, t):
        def step():
            time.sleep(0.002)
            honest(t)

        return step


class Daemon(Arm):
    def make(self, t):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(60)
            os._exit(0)
        return lambda: honest(t)


class Declines(Arm):
    def supports(self, facts, shape):
        return "\x1b[31monly one row\n" if shape.rows > 1 else None


class ServesAll(Arm):
    def supports(self, facts, shape):
        return None


class Speaks(Arm):
    """Puts a frame of its own on every socket that it finds."""

    def make(self, t):
        import socket

        def step():
            for number in range(3, 64):
                try:
                    socket.socket(fileno=os.dup(number)).send(b"\x80\x04pickle")
                except OSError:
                    continue
            honest(t)

        return step


class Leftover(Arm):
    """Adds the last bit of what the run before left in its scratch: right within rounding, and never the same twice."""

    def make(self, t):
        scratch = torch.zeros_like(t["out"], dtype=torch.float32)

        def step():
            honest(t)
            t["out"].add_(1e-3 * scratch.roll(7, 1).to(torch.bfloat16))
            scratch.copy_(t["out"])

        return step


class LastRow(Arm):
    """The output of the last row is another one's, from three rows on."""

    def build(self, facts, shape, t):
        def step():
            honest(t)
            if shape.rows >= 3:
                t["out"][-1] = t["out"][0]

        return step


class LateDrift(Arm):
    """After two hundred steps the state begins to lose a part of itself."""

    def make(self, t):
        calls = [0]

        def step():
            calls[0] += 1
            honest(t)
            if calls[0] > 200:
                t["state"][t["slots"]] *= 0.9

        return step


class EndsAtFour(Arm):
    def build(self, facts, shape, t):
        return (lambda: os._exit(3)) if shape.rows >= 4 else (lambda: honest(t))


class Looks(Arm):
    """Raises with all that it can see, so that a test can read it."""

    def make(self, t):
        raise RuntimeError("|".join([*sorted(os.environ), *sys.argv]))


for _name, _class in list(globals().items()):
    if isinstance(_class, type) and issubclass(_class, Arm) and _class is not Arm:
        globals()[_name.lower()] = _class()
