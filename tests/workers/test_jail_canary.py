"""The canary: held by every jail that works here, and each way out that is left open on purpose is named by it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.domain.catalog import JailLevel
from gatekeeper.domain.errors import Retryable
from tests.workers.conftest import ROOT
from workers import canary, jail, launch, trial
from workers.jail import Bind, Jail, Limits, find_jail, process_jail

Order = dict[str, Any]


def separate() -> Jail:
    found = find_jail()
    if not found.separate:
        pytest.skip(f"no jail with namespaces works here: {' | '.join(found.notes)}")
    return found


def leaky(base: Jail, change: Callable[[Order, Order], None], **limits: int) -> Jail:
    """A jail like ``base`` but for what ``change`` does to the launcher's order and to the order of the inner launcher."""

    class Leaky(Jail):
        def _order(self, argv, binds, limits, environment, uid):
            order = super()._order(argv, binds, limits, environment, uid)
            if not self.separate:
                change(order, order)
                return order
            inner = json.loads(order["argv"][-1])
            change(order, inner)
            order["argv"] = [*order["argv"][:-1], json.dumps(inner)]
            return order

        def start(self, argv, **arguments):
            wanted = arguments.pop("limits", None) or Limits()
            return super().start(argv, limits=replace(wanted, **made), **arguments)

    made = limits
    return Leaky(base.level, base.own_user, base.control_groups)


def without(*words: str) -> Callable[[Order, Order], None]:
    """Leave words out of bubblewrap's command line."""

    def change(order: Order, inner: Order) -> None:
        argv, at = order["argv"], 0
        while at < len(argv):
            if argv[at : at + len(words)] == list(words):
                del argv[at : at + len(words)]
            at += 1

    return change


def shown(path: str) -> Callable[[Order, Order], None]:
    def change(order: Order, inner: Order) -> None:
        at = order["argv"].index("--remount-ro")
        order["argv"][at:at] = ["--ro-bind", path, path]

    return change


def unbounded(order: Order, inner: Order) -> None:
    argv = order["argv"]
    while "--size" in argv:
        at = argv.index("--size")
        del argv[at : at + 2]


def no_filter(order: Order, inner: Order) -> None:
    inner["seccomp"] = False


def no_limits(order: Order, inner: Order) -> None:
    order["rlimits"], inner["rlimits"] = {}, {}


def as_root(order: Order, inner: Order) -> None:
    inner["uid"], inner["no_new_privs"], inner["seccomp"] = None, False, False


def environment(order: Order, inner: Order) -> None:
    inner["environment"] = {**inner["environment"], "SECRET": os.environ["GATEKEEPER_CANARY"]}


LEAKS: dict[str, tuple[Callable[[Order, Order], None], dict[str, int], set[str]]] = {
    "network": (without("--unshare-net"), {}, {"an abstract socket of this machine", "a service of this machine"}),
    "processes of the host": (without("--unshare-pid"), {}, {"other processes"}),
    "a directory of the host": (shown("/etc"), {}, {"files of the host: /etc/passwd, /etc/shadow"}),
    "the root is writable": (without("--remount-ro", "/"), {}, {"writing"}),
    "no size of scratch space": (unbounded, {}, {"scratch space"}),
    "no filter": (no_filter, {}, {"system calls: no filter"}),
    "the environment": (environment, {}, {"environment"}),
    "no limits": (no_limits, {}, {"open files", "large files"}),
    "limits that are too wide": (lambda *_: None, {"memory": 1 << 30, "processes": 200}, {"private memory", "processes"}),
}  # fmt: skip


@pytest.mark.jail
@pytest.mark.parametrize("leak", LEAKS)
def test_each_way_out_is_named(leak: str) -> None:
    change, limits, names = LEAKS[leak]
    base = separate()
    if leak == "the root is writable" and base.own_user:
        names = set()  # another user cannot write there anyway; the second lock is what is looked at in the next test
    said = trial.complaint(leaky(base, change, **limits)) or ""
    assert all(name in said for name in names), said
    assert bool(said) is bool(names)


@pytest.mark.jail
def test_where_the_user_stays_root_that_is_named() -> None:
    base = separate()
    if not base.own_user:
        pytest.skip("this process may not change its user id")
    said = trial.complaint(leaky(base, as_root)) or ""
    for name in ("capabilities", "root", "system calls: no filter"):
        assert name in said, said
    assert "new privileges" not in said  # bubblewrap holds these by itself


@pytest.mark.parametrize(
    ("change", "name"), [(no_filter, "system calls"), (environment, "environment"), (no_limits, "open files")]
)
def test_the_fallback_is_put_on_trial_too(change: Callable[[Order, Order], None], name: str) -> None:
    assert name in (trial.complaint(leaky(process_jail(), change)) or "")


def test_the_ways_that_work_here_hold_the_canary() -> None:
    for way in dict.fromkeys((find_jail(), process_jail())):
        assert trial.complaint(way) is None


def test_a_harness_that_was_started_from_anywhere_is_no_reason_for_a_complaint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend("/tmp")
    assert trial.complaint(find_jail()) is None


def test_shared_memory_is_bounded_where_control_groups_are() -> None:
    base = process_jail()
    if not base.control_groups or "memory" not in trial.bounds():
        pytest.skip("no control group bounds memory here")
    assert "shared memory" in (trial.complaint(leaky(base, lambda *_: None, memory=1 << 30)) or "")


def test_an_inherited_descriptor_is_named() -> None:
    class Hands(Jail):
        def start(self, argv, **arguments):
            read, write = os.pipe()
            try:
                return super().start(argv, pass_fds=(read,), **arguments)
            finally:
                os.close(read)
                os.close(write)

    base = process_jail()
    assert "inherited descriptors: pipe:" in (
        trial.complaint(Hands(base.level, base.own_user, base.control_groups)) or ""
    )


def test_a_canary_that_ends_early_or_tries_less_is_a_complaint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "TEXT", "raise SystemExit(0)")
    assert "did not come to its end" in (trial.complaint(process_jail()) or "")
    monkeypatch.setattr(trial, "TEXT", 'print(\'{"tried": [], "reached": []}\')')
    said = trial.complaint(process_jail()) or ""
    assert "did not try" in said and "core dumps" in said and "left behind was not noticed" in said


@pytest.mark.jail
def test_where_the_canary_got_out_ranked_races_are_refused_and_the_reason_is_named(monkeypatch) -> None:
    separate()
    honest = jail.bubblewrap
    monkeypatch.setattr(
        jail, "bubblewrap", lambda *a, **k: [word for word in honest(*a, **k) if word != "--unshare-net"]
    )
    jail._tried.cache_clear()
    try:
        with pytest.raises(Retryable, match="JAIL_TOO_WEAK") as error:
            find_jail(JailLevel.JAIL)
        assert "a service of this machine" in str(error.value)
        fallback = find_jail(JailLevel.PROCESS)
        assert fallback.level is JailLevel.PROCESS and any(
            "a service of this machine" in note for note in fallback.notes
        )
    finally:
        jail._tried.cache_clear()


def test_a_machine_without_bubblewrap_falls_back_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jail, "BWRAP", tmp_path / "bwrap")
    jail._tried.cache_clear()
    try:
        assert find_jail().level is JailLevel.PROCESS and f"{tmp_path / 'bwrap'} is not installed" in find_jail().notes
        with pytest.raises(Retryable, match="is not installed"):
            find_jail(JailLevel.JAIL)
    finally:
        jail._tried.cache_clear()


def test_every_attempt_is_tried_somewhere_and_the_canary_needs_no_file_of_ours() -> None:
    kinds = {needs for needs, _ in canary.ATTEMPTS.values()}
    assert kinds == {"always", "user", "process", "jail", "memory", "processes"}
    assert len(trial.TEXT) < 64 << 10
    assert not [line for line in trial.TEXT.splitlines() if line.startswith(("from workers", "import workers"))]


def test_the_numbers_of_system_calls_are_those_of_this_machines_headers() -> None:
    found = [Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm-generic/unistd.h")]
    if not all(path.exists() for path in found):
        pytest.skip("no kernel headers are installed")
    for path, column in zip(found, (0, 1), strict=True):
        lines = [line.split() for line in path.read_text().splitlines() if line.startswith("#define __NR")]
        known = {
            line[1].replace("__NR3264_", "__NR_").removeprefix("__NR_"): line[2] for line in lines if len(line) > 2
        }
        wrong = {
            name: (number[column], known[name])
            for name, number in launch.FORBIDDEN.items()
            if name in known and str(number[column]) != known[name]
        }
        assert wrong == {} and len(known) > 300


def test_binds_of_other_jails_are_seen_where_they_should_be() -> None:
    bind = Bind(ROOT, "/tree")
    assert process_jail().inside(bind, "x") == f"{ROOT}/x"
    for level in (JailLevel.JAIL, JailLevel.CONTAINER_JAIL, JailLevel.VM_JAIL):
        assert Jail(level, False, False).inside(bind, "x") == "/tree/x"
