"""Rows of the attack battery's group JAIL, each with its honest twin, at every level that works here. See ``docs/jail.md``."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path

import pytest

from tests.workers.test_jail import each_way, python
from workers.jail import Bind, Limits, base_environment, find_jail
from workers.jailed import Ending

MARK = "gk-canary-"


def open_folder(place: Path) -> Path:
    """A directory below a pytest one that any user may write."""
    made = place / "open"
    made.mkdir()
    made.chmod(0o777)
    for parent in (place, *place.parents[:3]):
        if parent.stat().st_uid == os.getuid() and parent != Path("/tmp"):
            parent.chmod(parent.stat().st_mode | 0o011)
    return made


@each_way
def test_a_daemon_is_gone_before_it_can_do_anything(way, tmp_path):
    """`jail-daemon`. The twin waits for its child, whose mark is there."""
    bind = Bind(open_folder(tmp_path), "/shared", writable=True)
    code = (
        "import os, time\n"
        "def late():\n"
        "  os.setsid()\n"
        "  if os.fork(): os._exit(0)\n"
        f"  time.sleep(0.4); open({way.inside(bind, 'late')!r}, 'w').close(); os._exit(0)\n"
        "if os.fork() == 0: late()\n"
        "os.wait(); time.sleep(0.05)\n"
    )
    ended = python(way, code, binds=[bind]).finish(10)
    assert ended.how is Ending.EXITED and ended.leftovers == 1 and not ended.clean
    twin = f"import os\nif os.fork() == 0: open({way.inside(bind, 'early')!r}, 'w').close(); os._exit(0)\nos.wait()\n"
    assert python(way, twin, binds=[bind]).finish(10).clean
    time.sleep(0.5)
    assert [path.name for path in (tmp_path / "open").iterdir()] == ["early"]


@each_way
def test_a_loop_that_ignores_signals_ends_on_time(way):
    """`jail-hang`."""
    began = time.monotonic()
    ignoring = (
        "import signal\nfor n in set(signal.Signals) - {9, 19}: signal.signal(n, signal.SIG_IGN)\nwhile True: pass"
    )
    ended = python(way, ignoring).finish(0.5)
    assert ended.how is Ending.KILLED and time.monotonic() - began < 3
    assert python(way, "for _ in range(1000): pass").finish(5).clean


@each_way
def test_a_bound_that_was_reached_is_counted_by_the_kernel(way):
    """`jail-fork-bomb`, `jail-memory`: a reason code, not only a child that ended somehow."""
    if not way.control_groups:
        pytest.skip("no control groups here: limits of single processes leave no trace")
    bomb = "import os, time\ntry:\n  while True:\n    if os.fork() == 0: time.sleep(9)\nexcept OSError: pass\n"
    assert "RUN_PIDS_LIMIT" in python(way, bomb, limits=Limits(processes=16)).finish(10).hit
    eats = "import mmap\nheld = []\nwhile True: held.append(mmap.mmap(-1, 1 << 20)); held[-1].write(b'x' * (1 << 20))\n"
    ended = python(way, eats, limits=Limits(memory=128 << 20)).finish(20)
    assert ended.hit == ("RUN_OOM",) and not ended.clean
    twin = "import os\nif os.fork() == 0: os._exit(0)\nos.wait(); x = bytearray(1 << 24)\n"
    ended = python(way, twin, limits=Limits(memory=128 << 20, processes=16)).finish(10)
    assert ended.clean and ended.hit == ()


@each_way
def test_nothing_that_is_written_waits_for_the_next_one(way):
    """`jail-env-inject`, `jail-result-file`: what shells, pip, Python and caches would read at home, and files called results."""
    # An interpreter that was installed below /tmp is shown where it lies, which may be the home of the jail.
    counts = f"""
import os
import sys
from pathlib import Path
home = Path.home()
def files():
    inside = [f for d, _, f in os.walk(home) if not Path(d).is_relative_to({sys.prefix!r})]
    return sum(map(len, inside))
"""
    writes = (
        counts
        + """
for name in (".bashrc", ".pip/pip.conf", ".config/pip/pip.conf", ".local/lib/python3.11/site-packages/usercustomize.py",
             ".cache/triton/kernel.so", "results.json", "nvidia-smi"):
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).write_text("x")
print(files())
"""
    )
    first = python(way, writes).finish(10)
    assert first.log == "7\n"
    looks = counts + "print(files(), os.environ['TMPDIR'] == os.environ['HOME'])"
    assert python(way, looks).finish(10).log == "0 True\n"


def test_every_cache_lies_at_home_and_nothing_that_loads_code_is_set():
    """`jail-env-inject`: private caches, no variable that makes programs load something."""
    made = base_environment("/somewhere")
    caches = {name for name in made if "CACHE" in name or name == "TORCH_EXTENSIONS_DIR"}
    assert {"XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH"} <= caches
    assert all(made[name].startswith("/somewhere") for name in caches | {"HOME", "TMPDIR"})
    assert not [name for name in made if name.startswith(("LD_", "PYTHON", "CUDA_INJECTION", "GATEKEEPER"))]
    assert made["PATH"] == "/usr/bin:/bin"


@each_way
def test_no_secret_of_the_harness_is_in_the_memory_of_the_candidate(way):
    """`jail-secret-in-process`. The twin holds the secret itself, so that the search is known to find one."""
    secret = MARK + os.urandom(16).hex()
    scan = f"""
import hashlib, re
for line in open("/proc/self/maps").read().splitlines():
    if not line.split()[1].startswith("r"): continue
    low, high = (int(each, 16) for each in line.split()[0].split("-"))
    with open("/proc/self/mem", "rb", 0) as memory:
        try: memory.seek(low); data = memory.read(high - low)
        except (OSError, ValueError, OverflowError): continue
    for found in re.findall(rb"gk-[c]anary-[0-9a-f]{{32}}", data):
        if hashlib.sha256(found).hexdigest() == {hashlib.sha256(secret.encode()).hexdigest()!r}: print("FOUND")
"""
    assert python(way, scan).finish(30).log == ""
    assert "FOUND" in python(way, f"kept = {secret!r}\n{scan}").finish(30).log


@each_way
def test_words_of_success_are_text_in_a_log(way):
    """`jail-stdout-marker`, `jail-exit-zero`: an end with status 0 and a boast is an end, and the text is cut and cleaned."""
    ended = python(way, "print('PASS 12.3x {\"outcome\": \"better\"}\\x1b[2J' + 'y' * 200000)").finish(10)
    assert ended.clean and "\x1b" not in ended.log and len(ended.log) <= 64 << 10


@each_way
def test_an_argument_is_never_taken_for_an_option(way):
    """`jail-argv`: arguments reach the program as they are, whatever they begin with."""
    odd = ["-c", "--", "-rf /", "a b", "$(id)", "--ro-bind", "\n"]
    process = way.start([way.python, "-I", "-S", "-c", "import sys; print(sys.argv[1:])", *odd])
    assert process.finish(10).log == f"{odd}\n"


@pytest.mark.jail
def test_there_is_no_place_for_a_file_of_results():
    """`jail-result-file`: results are made by the harness, outside; here nothing can be written but the private home."""
    jail = find_jail()
    if not jail.separate:
        pytest.skip("no jail with namespaces works here")
    code = """
from pathlib import Path
for name in ("/out/results.json", "results.json", "/results.json", "/runner/results.json", "/tmp/results.json"):
    try: Path(name).write_text("{}"); print("WROTE", name)
    except OSError: pass
"""
    assert python(jail, code).finish(10).log == "WROTE /tmp/results.json\n"
    assert not Path("/tmp/results.json").exists()


@pytest.mark.jail
def test_a_program_dropped_into_the_jail_is_seen_by_nobody_outside():
    """`jail-binary-trojan`: no directory on the jail's PATH can be written, and its /tmp is not ours."""
    jail = find_jail()
    if not jail.separate:
        pytest.skip("no jail with namespaces works here")
    code = """
import os
import sys
for folder in [*os.environ["PATH"].split(":"), "/usr/local/bin", "/usr/local/nvidia/bin", "/tmp"]:
    try:
        with open(folder + "/gatekeeper-trojan", "w") as file: file.write("#!/bin/sh\\n")
        print(folder)
    except OSError: pass
"""
    assert python(jail, code).finish(10).log == "/tmp\n"
    assert not Path("/tmp/gatekeeper-trojan").exists()
