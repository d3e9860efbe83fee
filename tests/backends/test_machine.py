"""What the workers of one machine share: its quiet moments, and folders that nothing leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gatekeeper.backends.machine import WANTED_SECONDS, Machine, beside_a_race, lane_of
from gatekeeper.domain.errors import ConfigurationError, Postponed
from tests import race_samples as make


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "scratch"


def test_a_probe_and_a_race_never_run_together_but_races_on_different_devices_may(place: Path) -> None:
    here, there = Machine(place), Machine(place)
    with here.racing("h200"), there.racing(), pytest.raises(Postponed, match="RUN_MACHINE_TAKEN"), there.probing():
        raise AssertionError("a probe beside a race")
    with here.probing():
        for second in (there.probing, there.racing):
            with pytest.raises(Postponed), second():
                raise AssertionError("something beside a probe")


def test_two_races_never_share_their_cores_or_their_device(place: Path) -> None:
    here, there = Machine(place), Machine(place)
    for lane in ("cpu", "h200"):
        with here.racing(lane), pytest.raises(Postponed) as taken, there.racing(lane):
            raise AssertionError("two races in one lane")
        assert taken.value.found == "another race runs or waits"
        with there.racing(lane):
            pass
    target = make.target()
    assert (lane_of(target), lane_of(target.model_copy(update={"name": "cpu-large"}))) == ("cpu", "cpu")
    assert lane_of(target.model_copy(update={"architecture": "sm_90a", "name": "h200"})) == "h200"


def test_a_probe_that_waits_goes_before_the_next_race(place: Path) -> None:
    machine = Machine(place)
    with machine.racing(), pytest.raises(Postponed), machine.probing():
        pass
    with pytest.raises(Postponed), machine.racing():
        raise AssertionError("a race before the probe that waits")
    with machine.probing():
        pass
    with machine.racing():
        pass


def test_a_probe_that_never_comes_back_does_not_stop_races_for_ever(place: Path) -> None:
    machine = Machine(place)
    with machine.racing(), pytest.raises(Postponed), machine.probing():
        pass
    long_ago = (place / "wanted").stat().st_mtime - WANTED_SECONDS - 1
    os.utime(place / "wanted", (long_ago, long_ago))
    with machine.racing():
        pass


def test_scratch_is_removed_with_its_run_and_another_process_leaves_it_alone(place: Path) -> None:
    machine = Machine(place)
    with machine.scratch() as folder:
        (folder / "gatekeeper-runner-x").mkdir()
        assert Machine(place).sweep() == 0 and folder.is_dir()
    assert not folder.exists()


KILLED = (
    "import os, signal, sys; from pathlib import Path; from gatekeeper.backends.machine import Machine\n"
    "with Machine(Path(sys.argv[1])).scratch() as folder, Machine(Path(sys.argv[1])).racing():\n"
    "    (folder / 'left').write_text('behind')\n"
    "    print(folder, flush=True)\n"
    "    os.kill(os.getpid(), signal.SIGKILL)\n"
)


def test_what_a_killed_process_left_is_swept_at_the_next_start_and_its_lock_is_free(place: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(place)], capture_output=True, text=True)
    folder = Path(killed.stdout.strip())
    assert killed.returncode == -signal.SIGKILL and (folder / "left").exists()
    machine = Machine(place)
    assert not folder.exists()
    with machine.probing():
        pass


@pytest.mark.parametrize("mode", [0o777, 0o730])
def test_a_folder_that_others_can_write_to_is_refused(place: Path, mode: int) -> None:
    place.mkdir()
    place.chmod(mode)
    with pytest.raises(ConfigurationError, match="CONFIG_SCRATCH"):
        Machine(place)


def test_a_link_in_its_place_is_refused(place: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    place.symlink_to(elsewhere)
    with pytest.raises(ConfigurationError, match="CONFIG_SCRATCH"):
        Machine(place)


def test_jailed_code_of_another_user_can_reach_its_files_and_change_nothing(place: Path) -> None:
    before = os.umask(0o077)
    try:
        place.mkdir()
        with Machine(place).scratch() as folder:
            modes = [path.stat().st_mode & 0o777 for path in (place, folder)]
            others = (folder / "lock").stat().st_mode & 0o077
    finally:
        os.umask(before)
    assert (modes, others) == ([0o711, 0o711], 0)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core cannot be kept free")
def test_beside_a_race_every_thread_leaves_the_arms_core_and_comes_back() -> None:
    usable, stop = os.sched_getaffinity(0), threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    try:
        with beside_a_race(usable):
            found = [os.sched_getaffinity(thread) for thread in (0, other.native_id)]
            child = subprocess.run(
                [sys.executable, "-c", "import os; print(len(os.sched_getaffinity(0)))"], capture_output=True
            )
        assert found == [usable - {max(usable)}] * 2
        assert int(child.stdout) == len(usable) - 1
        assert [os.sched_getaffinity(thread) for thread in (0, other.native_id)] == [usable] * 2
    finally:
        stop.set()
        other.join()
