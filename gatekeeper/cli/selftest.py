"""``gatekeeper selftest``: races planted faults, cheats, slow twins and honest controls, and says which the gate got wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from queue import SimpleQueue

import click
from rich.console import Console
from rich.table import Table

from gatekeeper.backends.machine import Machine
from gatekeeper.catalog import ROOT, load_catalog
from gatekeeper.cli.faults import writable
from gatekeeper.cli.race import RULES, quiet_machine
from gatekeeper.domain.boundary_pool import branching_contexts
from gatekeeper.domain.catalog import HardwareTarget, ModelUnderTest
from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.correctness import judge_correctness
from gatekeeper.domain.planted import Answer, Expected, Kind, Planted, read_index, surprise
from gatekeeper.domain.race import (
    InstalledSource,
    RaceOrder,
    RaceOutcome,
    RaceRequest,
    RaceResult,
    RaceRules,
    RaceStatus,
)

ALPHA = 0.01
TRIES = 3
"""A void race says nothing; it is repeated."""


SEARCH = {"boundary_points": 12, "untimed_checks": ()}
"""For mutants that a boundary search must see. Of 12 points no mutant of the corpus is missed by all in one of 400 draws."""
BETWEEN = {"guard_configurations": 1}
BETWEEN_ROWS = (3, 4)
SEARCHED_ROWS, SEARCHED_CONTEXT = (1, 3, 4, 7, 8), 64


@dataclass(frozen=True)
class Form:
    """How much is asked of a selftest. Rows are those of the untimed checks and of whole races."""

    rules: RaceRules
    rows: tuple[int, ...]
    timed_rows: tuple[int, ...]
    """Where the house candidate is faster on every machine tried: at 8 rows it was between 0.95 and 1.3 times the stock path."""
    clock_only: bool
    """Time only what the clock must see; cheats that a process must see are then shown to be no wrong answer of the gate, no more."""

    def times(self, planted: Planted) -> bool:
        """Return whether a mutant gets a whole race."""
        return planted.timed and (planted.seen_by in ("clock", "between", "late") or not self.clock_only)


WHOLE = Form(RULES, rows=(1, 8), timed_rows=(1, 2), clock_only=False)
QUICK = Form(
    RULES.model_copy(
        update={
            "looks": (4,), "nominal_p": (ALPHA,), "steps": 5, "checked_share": 0.1, "chain_sequences": 8,
            "control_blocks": 0,  # a third of the time, for machines that the whole form is for
        }
    ),
    rows=(4,), timed_rows=(1,), clock_only=True,
)  # fmt: skip


@click.command()
@click.option("--model", default="kimi_k3", show_default=True, help="A model under test that has mutants.")
@click.option("--target", default="cpu", show_default=True, help="Hardware target of this machine.")
@click.option("--only", multiple=True, metavar="NAME", help="Only this mutant; may be given more than once.")
@click.option("--group", multiple=True, type=click.Choice([kind.value for kind in Kind]), help="Only this kind.")
@click.option("--quick", is_flag=True, help="Fewer rows and runs, and one look at what only the clock can see.")
@click.option("--jobs", default=min(2, os.cpu_count() or 1), show_default=True, type=click.IntRange(1, 16),
              help="Untimed checks at the same time.")  # fmt: skip
@click.option("--json", "json_file", type=click.Path(dir_okay=False, allow_dash=True), help="Write every answer here.")
def selftest(
    model: str,
    target: str,
    only: tuple[str, ...],
    group: tuple[str, ...],
    quick: bool,
    jobs: int,
    json_file: str | None,
) -> int:
    """Measure the gate's own errors: race planted faults and cheats, and honest controls.

    Exit status: 0 if every planted one is stopped for the right reason and every honest one passes; 1 if not; 3 if one could not
    be decided.
    """
    if json_file not in (None, "-") and not writable(Path(str(json_file))):
        raise click.UsageError(
            f"expected --json as a file in an existing directory that may be written; found {json_file!r}"
        )
    catalog = load_catalog()
    if model not in catalog.models:
        raise click.UsageError(f"expected --model as one of {sorted(catalog.models)}; found {model!r}")
    if target not in catalog.targets:
        raise click.UsageError(f"expected --target as one of {sorted(catalog.targets)}; found {target!r}")
    corpus = _chosen(model, only, group)
    console = Console(stderr=json_file == "-")
    began = time.monotonic()
    answers = {}
    form = QUICK if quick else WHOLE
    with quiet_machine(Machine()):
        for planted, answer in run_all(corpus, catalog.models[model], catalog.targets[target], jobs=jobs, form=form):
            answers[planted.name] = answer
            wrong = surprise(planted, answer)
            console.print(f"{'ok ' if wrong is None else 'BAD'} {planted.name:34} {answer.outcome:12} {answer.seconds:5.0f} s  "
                          f"{wrong or ' '.join(answer.codes)}", markup=False, highlight=False, soft_wrap=True)  # fmt: skip
    seconds = time.monotonic() - began
    show(console, corpus, answers, seconds)
    left = [planted.name for planted in corpus if planted.timed and not form.times(planted)]
    if left:
        console.print(f"not timed in the quick form: {', '.join(left)}")
    status = status_of(corpus, answers)
    if json_file:
        with click.open_file(json_file, "w", encoding="utf-8") as stream:
            stream.write(json.dumps(document(corpus, answers, status, seconds), indent=2) + "\n")
    return status


def _chosen(model: str, only: Sequence[str], group: Sequence[str]) -> tuple[Planted, ...]:
    path = ROOT / "kernels_under_test" / model / "mutants" / "index.toml"
    corpus = read_index(path.read_text(encoding="utf-8"), f"{model}/mutants/{path.name}")
    unknown = sorted(set(only) - {planted.name for planted in corpus})
    if unknown:
        names = [planted.name for planted in corpus]
        near = sorted({one for name in unknown for one in get_close_matches(name, names, n=3)})
        hint = f"; did you mean {' or '.join(near)}?" if near else f"; they are in {path}"
        raise click.UsageError(f"expected --only as a mutant's name; found {', '.join(unknown)}{hint}")
    return tuple(
        planted for planted in corpus
        if (not only or planted.name in only) and (not group or planted.kind.value in group)
    )  # fmt: skip


def run_all(
    corpus: Sequence[Planted], model: ModelUnderTest, target: HardwareTarget, *, jobs: int, form: Form
) -> Iterator[tuple[Planted, Answer]]:
    """Yield what each mutant got. Untimed checks run side by side, races one after another and beside nothing else."""
    untimed = [planted for planted in corpus if not form.times(planted)]
    with ExitStack() as stack:
        free: SimpleQueue[Harness] = SimpleQueue()
        for _ in range(jobs):
            free.put(stack.enter_context(Harness()))

        def judge(planted: Planted) -> Answer:
            harness = free.get()
            try:
                return judged(planted, order(planted, model, target, form), harness.ask)
            finally:
                free.put(harness)

        pool = ThreadPoolExecutor(jobs)
        stack.callback(pool.shutdown, cancel_futures=True)  # who stops this waits for what runs, not for all the rest
        yield from zip(untimed, pool.map(judge, untimed), strict=True)
        for planted in corpus:
            if form.times(planted):
                yield planted, judge(planted)


def judged(planted: Planted, wanted: RaceOrder, ask: Callable[[RaceOrder], RaceResult | str]) -> Answer:
    """Let a harness judge one mutant; a void race is repeated, an order that it refuses is an error of ours."""
    began = time.monotonic()
    for _ in range(TRIES):
        answer = _answer(planted, wanted, ask(wanted))
        if answer.outcome != RaceOutcome.VOID.value:
            break
    return answer.model_copy(update={"seconds": round(time.monotonic() - began, 1)})


def order(planted: Planted, model: ModelUnderTest, target: HardwareTarget, form: Form) -> RaceOrder:
    """Return the race of a mutant against the stock path; up to its correctness pass where its time does not matter."""
    timed = form.times(planted)
    changes = SEARCH if planted.seen_by == "boundary" else BETWEEN if planted.seen_by == "between" else {}
    request = RaceRequest(
        purpose="selftest",
        model=model.name,
        problem=model.default_problem,
        suite=model.suite,
        target=target,
        candidate=InstalledSource(entry_point=f"kernels_under_test.{model.name}.mutants.{planted.at}"),
        baseline=InstalledSource(entry_point=model.baseline),
        configurations=tuple(advertised_at(rows) for rows in (form.timed_rows if timed else form.rows)),
        guard_pool=tuple(advertised_at(rows) for rows in BETWEEN_ROWS) if changes is BETWEEN else (),
        boundary_pool=boundary_points() if changes is SEARCH else (),
        rules=form.rules.model_copy(update=changes),
    )
    return RaceOrder(request=request, alpha=ALPHA, until="end" if timed else "correctness")


def advertised_at(rows: int) -> Configuration:
    """Return the configuration that mutants are raced at."""
    return Configuration(rows=rows, context=256, page_size=8, decode_context_parallel=2)


def boundary_points() -> tuple[Configuration, ...]:
    """Return the configurations that the boundary search of a mutant draws from: all but what is advertised."""
    return tuple(
        Configuration(rows=rows, context=context, page_size=page, decode_context_parallel=ranks)
        for rows in SEARCHED_ROWS
        for page in (4, 8)
        for ranks in (1, 2)
        for context in branching_contexts(1, SEARCHED_CONTEXT, page, ranks)
    )


class Harness:
    """A harness that answers order after order; one that has ended is started anew. Use as a context."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the context)

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._said.close()

    def ask(self, wanted: RaceOrder) -> RaceResult | str:
        """Return the result, or in words why there is none."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "workers.race", "--lines"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, cwd=ROOT,
            )  # fmt: skip
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(wanted.model_dump_json().encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: there is no line to read either
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            return self._ended()
        told = json.loads(line)
        return json.dumps(told["error"])[:300] if "error" in told else RaceResult.model_validate(told)

    def _ended(self) -> str:
        assert self._process is not None
        self._process.communicate()
        status, self._process = self._process.returncode, None
        self._said.seek(0)
        last = self._said.read().decode("utf-8", "replace").strip().rsplit("\n", 1)[-1]
        return f"the harness ended with {status}: {last[-250:]}"


def _answer(planted: Planted, wanted: RaceOrder, result: RaceResult | str) -> Answer:
    if isinstance(result, str):
        return Answer(
            name=planted.name, outcome=RaceOutcome.VOID.value, codes=("RACE_HARNESS",), seconds=0, reasons=(result,)
        )
    reasons = judge_correctness(wanted.request.rules, result)
    blamed = [reason for reason in reasons if reason.outcome is result.outcome] or reasons
    codes = tuple(dict.fromkeys(reason.code for reason in blamed)) or _codes_of(result)
    outcome = result.outcome.value
    if wanted.until == "correctness" and result.status is RaceStatus.ABANDONED:  # it came to the end of what was asked
        left = {reason.outcome for reason in reasons}
        outcome = RaceOutcome.HELD.value if left == {RaceOutcome.HELD} else outcome if left else Expected.RIGHT.value
    return Answer(
        name=planted.name,
        outcome=outcome,
        codes=codes,
        seconds=0,
        reasons=tuple(f"{reason.code} at {reason.where}: {reason.message}; {reason.found}" for reason in blamed[:5])
        or result.reasons,
    )


def _codes_of(result: RaceResult) -> tuple[str, ...]:
    return tuple(dict.fromkeys(reason.split(" ", 1)[0].rstrip(":") for reason in result.reasons))


def status_of(corpus: Sequence[Planted], answers: dict[str, Answer]) -> int:
    """Return the exit status: 1 for one that was missed or blocked, else 3 for one that nothing was shown about."""
    wrong = [planted for planted in corpus if surprise(planted, answers[planted.name])]
    if any(answers[planted.name].outcome != RaceOutcome.VOID.value for planted in wrong):
        return 1
    return 3 if wrong else 0


def show(console: Console, corpus: Sequence[Planted], answers: dict[str, Answer], seconds: float) -> None:
    """Print the counts by kind and by what must see a mutant, and the sums."""
    table = Table("kind", "seen by", "planted", "as it must be", "missed or blocked", "void", "seconds")
    groups = list(dict.fromkeys((planted.kind, planted.seen_by) for planted in corpus))
    for kind, seen_by in sorted(groups):
        mine = [planted for planted in corpus if (planted.kind, planted.seen_by) == (kind, seen_by)]
        table.add_row(kind.value, seen_by, *_counts(mine, answers))
    table.add_section()
    table.add_row("all", "", *_counts(corpus, answers))
    console.print(table)
    console.print(f"{seconds:.0f} s")


def _counts(mine: Sequence[Planted], answers: dict[str, Answer]) -> list[str]:
    wrong = [planted for planted in mine if surprise(planted, answers[planted.name])]
    void = sum(answers[planted.name].outcome == RaceOutcome.VOID.value for planted in wrong)
    spent = sum(answers[planted.name].seconds for planted in mine)
    return [str(len(mine)), str(len(mine) - len(wrong)), str(len(wrong) - void), str(void), f"{spent:.0f}"]


def document(corpus: Sequence[Planted], answers: dict[str, Answer], status: int, seconds: float) -> dict[str, object]:
    """Return the JSON document: the outcome, and for every mutant what it is, what it got and what was wrong about that."""
    return {
        "outcome": {0: "passed", 1: "failed", 3: "error"}[status],
        "seconds": round(seconds, 1),
        "mutants": [
            {
                **planted.model_dump(mode="json", by_alias=True),
                "got": answers[planted.name].outcome,
                "codes": list(answers[planted.name].codes),
                "reasons": list(answers[planted.name].reasons),
                "seconds": answers[planted.name].seconds,
                "surprise": surprise(planted, answers[planted.name]),
            }
            for planted in corpus
        ],
    }
