"""A store with pull requests in every state, made of real documents, so that every page has something to show."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from gatekeeper.domain.catalog import HardwareTarget, JailLevel, Noise
from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.domain.evidence import Evidence, Origin, RaceEvidence, TreeSubject
from gatekeeper.domain.jobs import JobKind
from gatekeeper.domain.policy import (
    ApprovalRequirement,
    Check,
    Effect,
    Finding,
    Outcome,
    PolicyResult,
    RaceRequirement,
    Requirement,
    Severity,
)
from gatekeeper.domain.race import (
    InstalledSource,
    RaceEnvironment,
    RaceOutcome,
    RaceRequest,
    RaceResult,
    RaceRules,
    RaceStatus,
    TreeSource,
)
from gatekeeper.domain.samples import (
    Arm,
    ArmRecord,
    Block,
    ConfigurationRecord,
    ErrorFigures,
    ErrorLimits,
    ErrorRecord,
    Group,
    Run,
    SelfProof,
)
from gatekeeper.domain.snapshot import Author, ChangedFile, ChangeKind, Comparison, Snapshot, SnapshotKey
from gatekeeper.domain.verdict import Verdict, decide
from gatekeeper.store.unit_of_work import Store, UnitOfWork

NOW = datetime(2026, 11, 30, 4, 15, tzinfo=UTC)
SET = "sha256:" + "5e" * 32
DIRECTORY = "vllm/models/kimi_k3/nvidia/specialized_decode"
TITLES = {
    Check.ISOLATION: ("isolation", "Changes stay inside the model's own directory"),
    Check.SCOPE: ("manifest", "The manifest says what is served"),
    Check.BENCHMARKS: ("kernel_is_faster", "Strictly faster than the stock path"),
    Check.CONTRIBUTOR_LOG: ("log_for_foreign_targets", "A log for every target that is not ours"),
}

TARGET = HardwareTarget(
    name="cpu", title="Two CPU cores", architecture="cpu", device_pattern=".*", owned=True, minimum_jail=JailLevel.JAIL,
    bandwidth_bytes_per_second=1e12, longest_race_seconds=600,
    noise=Noise(block_sd=0.02, mean_upper_95=0.004, blocks=50, recorded="2026-11-29, two cores"),
)  # fmt: skip
RULES = RaceRules(
    looks=(4, 6, 10), nominal_p=(0.002, 0.003, 0.006), groups=2, steps=8, margin=0.05, control_blocks=2,
    guard_configurations=0, guard_loss=0.02, checked_share=0.25, plausible_ratio=3.0,
)  # fmt: skip
ROWS = (1, 8)


def configuration(rows: int) -> Configuration:
    """Return a configuration of the tiny problem."""
    return Configuration(rows=rows, context=512, page_size=32, decode_context_parallel=2, dtypes={"kv_cache": "bf16"})


def request(number: int = 1) -> RaceRequest:
    """Return the race request of a pull request."""
    return RaceRequest(
        model="kimi_k3", problem="tiny", suite="sha256:" + "ab" * 32, target=TARGET,
        candidate=TreeSource(
            repository_id=99, tree=f"{number:040x}", directory=DIRECTORY,
            entry_point="vllm.models.kimi_k3.nvidia.specialized_decode.gate:candidate",
        ),
        baseline=InstalledSource(entry_point="kernels_under_test.kimi_k3.baseline:StockBaseline"),
        configurations=tuple(configuration(rows) for rows in ROWS), rules=RULES,
    )  # fmt: skip


def race_result(gain: float, *, error: float = 0.9, seed: int = 1) -> RaceResult:
    """Return a finished race whose candidate is ``gain`` times as fast; ``error`` is its error over the baseline's."""
    noise = random.Random(seed)
    records = tuple(_record(rows, gain, error, noise) for rows in ROWS)
    environment = RaceEnvironment(
        device="cpu", cpu_model="x86-64, 2 cores", machine="worker-1", versions={"python": "3.11.2", "torch": "2.13.0"},
        started_at=NOW - timedelta(seconds=38), ended_at=NOW,
    )  # fmt: skip
    outcome = RaceOutcome.BETTER if gain > 1.05 and error < 1.5 else RaceOutcome.NOT_BETTER
    return RaceResult(
        status=RaceStatus.FINISHED, outcome=outcome, jail=JailLevel.PROCESS, environment=environment, configurations=records
    )  # fmt: skip


def _record(rows: int, gain: float, error: float, noise: random.Random) -> ConfigurationRecord:
    base = ErrorFigures(rms=0.02, median_row=0.018, largest=0.05, gain=1e-4)
    mine = ErrorFigures(rms=0.02 * error, median_row=0.018 * min(error, 1.1), largest=0.05 * error, gain=1.2e-4)
    floors = ErrorLimits(rms=0.01, median_row=0.01, gain=1e-3)
    errors = tuple(
        ErrorRecord(
            tensor=tensor, kind="output" if tensor == "out" else "state", check=check, steps=64, rows=rows, sequences=8 * rows,
            candidate=mine, baseline=base, floors=floors, limits=ErrorLimits(rms=0.03, median_row=0.0207, gain=1e-3),
        )
        for tensor in ("out", "layer 0 state")
        for check in ("chain", "timed")
    )  # fmt: skip
    arm = ArmRecord(stages=("norm", "qkv", "attention"), mode="eager", communication="shard")
    return ConfigurationRecord(
        configuration=configuration(rows), layers=2, bytes_needed=1000, baseline=arm, candidate=arm, errors=errors,
        self_proofs=tuple(SelfProof(name=name, refused=True, figure=1.0) for name in PROOFS),
        blocks=tuple(_block(index, gain, noise) for index in range(10)),
        control=tuple(_block(index, 1.0, noise) for index in range(2)),
    )  # fmt: skip


PROOFS = ("zeros", "previous", "echo", "one_element")


def _block(index: int, gain: float, noise: random.Random) -> Block:
    effect = noise.gauss(0, 0.008)
    groups = []
    for group in range(2):
        seeds = [f"{index:x}{group:x}{run:x}" for run in range(2)]
        sides = [
            (Arm.BASELINE, seeds[0]),
            (Arm.CANDIDATE, seeds[0]),
            (Arm.CANDIDATE, seeds[1]),
            (Arm.BASELINE, seeds[1]),
        ]
        runs = []
        for arm, seed in sides:
            steps = 8 + (int(seed, 16) * 3 + group) % 9
            speed = gain * (1 + effect) if arm is Arm.CANDIDATE else 1.0
            runs.append(
                Run(arm=arm, seed=seed, steps=steps, nanoseconds=int(steps * 2_400_000 / speed * noise.gauss(1, 0.002)))
            )
        groups.append(Group(order="ABBA", runs=tuple(runs)))
    return Block(
        pair=index // 2, swapped=bool(index % 2), first_started=Arm.CANDIDATE if index % 2 else Arm.BASELINE,
        data_seed=f"{index:x}", groups=tuple(groups),
    )  # fmt: skip


def result(
    check: Check,
    outcome: Outcome | None = Outcome.PASSED,
    summary: str = "",
    findings: tuple[Finding, ...] = (),
    requirements: tuple[Requirement, ...] = (),
) -> PolicyResult:
    """Return one policy's result with the usual names."""
    policy, title = TITLES[check]
    return PolicyResult(
        policy=policy, check=check, severity=Severity.BLOCKING, title=title, outcome=outcome, findings=findings,
        summary=summary or f"{title.lower()}", requirements=requirements, parameters="sha256:" + "00" * 32,
    )  # fmt: skip


def snapshot(number: int, title: str, author: str = "ada") -> Snapshot:
    """Return a snapshot of pull request ``number`` that adds one file."""
    change = ChangedFile(
        path=f"{DIRECTORY}/gate.py",
        kind=ChangeKind.ADDED,
        old_mode=None,
        new_mode="100644",
        old_blob=None,
        new_blob="b" * 40,
    )
    comparison = Comparison(base_tree="c" * 40, head_tree="d" * 40, changes=(change,))
    return Snapshot(
        key=SnapshotKey(
            repository_id=99, number=number, head_sha=f"{number:02x}" * 20, base_sha="ba" * 20, merge_tree="e" * 40,
            policy_set=SET,
        ),
        repository="demo/vllm", title=title, author=Author(id=5, login=author), base_ref="main", head_tree="d" * 40,
        base_tree="c" * 40, merge_bases=("ba" * 20,), proposed=(comparison,), merged=comparison,
        configuration="sha256:" + "0c" * 32,
    )  # fmt: skip


OUTSIDE = Finding(
    code="ISO_PATH_OUTSIDE", message="a file outside the model's own directory was changed", expected=f"{DIRECTORY}/**",
    found="modified", path="vllm/v1/core/sched/scheduler.py", line=214, waivable_by=("scheduler-owners",),
)  # fmt: skip
HOOK = Finding(
    code="ISO_HOOK_UNGUARDED", message="a hook runs without the opt-in", expected="inside `if enabled()`",
    found="self.decode = fast_decode", path="vllm/models/kimi_k3/nvidia/model.py", line=88, effect=Effect.HOLD,
    waivable_by=("kimi-owners",),
)  # fmt: skip


def store_verdict(
    uow: UnitOfWork, shot: Snapshot, results: tuple[PolicyResult, ...], evidence: tuple[str, ...] = (), minute: int = 0
) -> Verdict:
    """Store a snapshot with one more verdict in its chain."""
    digest = uow.put_snapshot(shot)
    latest = uow.latest_verdict(digest)
    verdict = decide(
        snapshot=digest, policy_set=SET, policy_set_name="demo", evidence=evidence, results=results,
        supersedes=latest[0] if latest else None, now=NOW + timedelta(minutes=minute),
    )  # fmt: skip
    uow.put_verdict(verdict)
    return verdict


def race_evidence(uow: UnitOfWork, number: int, outcome: RaceResult, origin: Origin = Origin.OURS) -> str:
    """Store a race's request and its result; return the digest of the evidence."""
    asked = request(number)
    name = uow.put_document("race_request", asked)
    subject = TreeSubject(
        tree=f"{number:040x}", directory=DIRECTORY, suite=asked.suite, target="cpu", target_digest=TARGET.digest()
    )
    body = RaceEvidence(request=name, result=outcome)
    return uow.put_evidence(Evidence(subject=subject, origin=origin, recorded_at=NOW, body=body))


def seed(store: Store) -> None:
    """Fill a store: 1 passed after waiting, 2 failed, 3 slower, 4 held, 5 error, 6 documentation, 7 only announced."""
    good = (
        result(Check.ISOLATION),
        result(Check.SCOPE),
        result(Check.CONTRIBUTOR_LOG, None, "no log is needed: all targets are ours"),
    )
    wants = RaceRequirement(request=request(1))
    with store.begin() as uow:
        uow.remember_repository(RepositoryRef(id=99, full_name="demo/vllm"), 3)
        first = snapshot(1, "Latency-specialised decode for Kimi K3 on NVIDIA")
        waits = result(Check.BENCHMARKS, Outcome.PENDING, "a race is needed", requirements=(wants,))
        store_verdict(uow, first, (*good, waits))
        proof = race_evidence(uow, 1, race_result(1.21))
        claim = race_evidence(uow, 1, race_result(1.4, seed=5), Origin.CONTRIBUTED)
        faster = result(Check.BENCHMARKS, summary="the candidate is right and strictly faster on 2 configurations")
        store_verdict(uow, first, (*good, faster), (proof, claim), minute=2)
        uow.mark_published(
            "page", 99, 1, snapshot=first.digest(), verdict=store_of(uow, first), head_sha=first.key.head_sha
        )

        broken = result(
            Check.ISOLATION, Outcome.FAILED, "2 changes are outside the model's own directory", (OUTSIDE, HOOK)
        )
        store_verdict(uow, snapshot(2, "Faster decode (touches the scheduler)", "grace"), (broken, *good[1:], faster))

        slow = race_evidence(uow, 3, race_result(0.94, seed=3))
        slower = Finding(
            code="BENCH_WORSE",
            message="the candidate is slower than the stock path",
            expected="ratio above 1.05",
            found="0.94",
        )
        results = (*good, result(Check.BENCHMARKS, Outcome.FAILED, "slower than the stock path", (slower,)))
        store_verdict(uow, snapshot(3, "Fused router"), results, (slow,))

        held = result(Check.ISOLATION, Outcome.PENDING, "1 change needs its owner", (HOOK,))
        fourth = snapshot(4, "Decode with one more hook", "lin")
        approval = ApprovalRequirement(head_sha=fourth.key.head_sha, author="lin")
        queued = RaceRequirement(request=request(4))
        asks = result(Check.BENCHMARKS, Outcome.PENDING, "a race is needed", requirements=(queued, approval))
        store_verdict(uow, fourth, (held, *good[1:], asks))
        uow.put_document("race_request", request(4))
        uow.enqueue(JobKind.RACE, request(4).digest())

        bug = Finding(
            code="INTERNAL_ERROR",
            message="a policy stopped with an error",
            found="KeyError: 'hooks'",
            effect=Effect.NOTE,
        )
        store_verdict(
            uow,
            snapshot(5, "Hooks nobody knows"),
            (*good[:1], result(Check.SCOPE, Outcome.ERROR, "gatekeeper could not decide", (bug,)), faster),
        )
        nothing = tuple(result(check, None, "no specialised tree touched") for check in list(Check)[1:])
        store_verdict(
            uow,
            snapshot(6, "Documentation: fix a typo", "noor"),
            (
                result(Check.ISOLATION, summary="no specialised tree touched").model_copy(
                    update={"policy": "applicability", "title": "Which pull requests are judged"}
                ),
                *nothing,
            ),
        )
        uow.remember_pull(
            99,
            7,
            title='<script>alert(1)</script> & "quotes"',
            author_id=6,
            author_login="mallory",
            base_ref="main",
            draft=True,
            open=True,
            head_sha="7" * 40,
        )
        uow.enqueue(JobKind.INTAKE, "99:7", delivery_id="72d3162e-cc78-11e3-81ab-4c9367dc0958")


def store_of(uow: UnitOfWork, shot: Snapshot) -> str:
    """Return the digest of a snapshot's latest verdict."""
    latest = uow.latest_verdict(shot.digest())
    assert latest is not None
    return latest[0]
