"""One race from its order to its result: scope, correctness, A/A control, looks, until the statistics say stop."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any

from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.correctness import judge_correctness
from gatekeeper.domain.race import RaceOrder, RaceOutcome, RaceResult, RaceStatus
from gatekeeper.domain.race_decision import decide_race, judge_times
from gatekeeper.domain.samples import Arm, ConfigurationRecord, RaceFault, SupportAnswer
from gatekeeper.domain.sequential import next_look
from workers import stops
from workers.environment import environment
from workers.loop import untimed
from workers.loop.blocks import ArmFault, BlockRun, Course, Pair, Plan
from workers.loop.draw import Draw
from workers.loop.late import Late, draw_late, run_late
from workers.loop.runs import Interference
from workers.models import shape_of
from workers.protocol import ArmFailed
from workers.records import Records
from workers.searching import drawn, search_drawn
from workers.side import Side
from workers.stops import Stop
from workers.waiting import Waiting

CHAIN_PLAN = Plan(0, False, Arm.BASELINE)
Progress = Callable[[dict[str, Any]], None]
Timed = tuple[Plan, Sequence[int]]
"""A block to time: how its pair starts, and the numbers of the configurations that it runs."""
_random = random.SystemRandom()


class Session:
    """Runs one race. ``progress`` is called with small JSON-ready dicts."""

    def __init__(self, order: RaceOrder, course: Course, progress: Progress, *, deadline: float) -> None:
        self._request, self._alpha, self._course = order.request, order.alpha, course
        self._progress, self._deadline, self._until = progress, deadline, order.until
        self._rules = order.request.rules
        self._started = datetime.now(UTC)
        self._guards = self._draw_guards()
        self._points = drawn(order.request)
        self._all = (*order.request.configurations, *self._guards)
        self._steps = [min(2 * self._rules.steps, c.context // c.query_tokens) for c in self._all]
        """Most steps of a timed run at each configuration. A short context shortens its own runs and no other's."""
        communication, mode = order.request.target.communication, course.device.mode
        self._records = [Records(c, course.model, self._rules, communication, mode) for c in self._all]
        self._boundaries: tuple[ConfigurationRecord, ...] = ()
        self._long_at = untimed.longest_at(self._all) if self._rules.long_steps else None
        self._supports: list[SupportAnswer] = []
        self._faults: list[RaceFault] = []
        self._blocks_done = 0
        self._waiting = Waiting(self._start, course.device.together)
        """The next blocks' pairs, which start up while the oracle is at work."""
        self._waited = dict.fromkeys(Arm, 0.0)

    def _draw_guards(self) -> list[Configuration]:
        """Draw the guard configurations from the pool, secretly and anew for each race; an advertised one is no guard."""
        advertised = {configuration.label for configuration in self._request.configurations}
        pool = [c for c in self._request.guard_pool if c.label not in advertised]
        return _random.sample(pool, min(self._rules.guard_configurations, len(pool)))

    def run(self) -> RaceResult:
        """Run the race and return its result; whatever an arm does ends in a result."""
        try:
            self._check_problem()
            # The pair of the correctness pass starts up while the candidate is asked what it serves.
            sides = self._start(CHAIN_PLAN, perturb=True)
            try:
                if self._until == "end":
                    self._ask_supports()
            except BaseException:
                for side in sides.values():
                    side.close()
                raise
            self._correctness(sides)
            self._search()
            if self._until == "correctness":
                raise Stop(RaceStatus.ABANDONED, RaceOutcome.VOID)
            self._race()
        except Stop as stop:
            if stop.fault is not None:
                self._faults.append(stop.fault)
            return self._result(stop.status, stop.outcome)
        finally:
            self._waiting.close()
        return self._result(RaceStatus.FINISHED, RaceOutcome.VOID)

    def _check_problem(self) -> None:
        longest = max(c.context for c in self._request.configurations)
        if longest < self._rules.steps:
            found = f"at most {longest}"
            expected = f"an advertised context of at least {self._rules.steps}: a run has so many steps"
            raise stops.void("BENCH_CONTEXT_SHORT", "race", expected, found)
        for configuration in self._all:
            reason = self._course.model.problem.check(shape_of(configuration))
            if reason is not None:
                raise stops.void("RACE_CONFIGURATION", configuration.label, "a configuration of the problem", reason)

    def _ask_supports(self) -> None:
        """Ask the candidate, in a jail of its own, which configurations it serves."""
        asked = [(c, "advertised") for c in self._request.configurations]
        asked += [(c, "refused") for c in self._request.refused] + [(c, "guard") for c in self._guards]
        asked += [(c, "boundary") for c in self._points]
        course = self._course
        side = Side(Arm.CANDIDATE, course.candidate, course.jail, course.runner, course.limits, device=course.device)
        try:
            side.ready()
            answers = side.supports(course.model, [shape_of(c) for c, _ in asked])
        except ArmFailed as failed:
            ended = side.process.finish(0.5) if failed.code == "RUN_NO_RESULT" else side.process.kill()
            raise stops.of_arm(ArmFault(Arm.CANDIDATE, failed, ended), control=False) from failed
        finally:
            side.close()
        for (configuration, kind), reason in zip(asked, answers, strict=True):
            answer = {"configuration": configuration, "asked_as": kind, "declined": reason is not None}
            self._supports.append(SupportAnswer.model_validate({**answer, "reason": reason or ""}))
        self._progress({"event": "supports", "asked": len(asked), "declined": sum(a.declined for a in self._supports)})
        if any(a.declined and a.asked_as != "refused" for a in self._supports):
            raise Stop(RaceStatus.STOPPED, RaceOutcome.DECLINED)
        if any(not a.declined and a.asked_as == "refused" for a in self._supports):
            raise Stop(RaceStatus.STOPPED, RaceOutcome.WRONG)

    def _correctness(self, sides: dict[Arm, Side]) -> None:
        """Make the untimed runs: one pair of processes, every configuration; the oracle follows while the next are made."""
        plan = untimed.Plan(self._course.model, self._all, self._rules)
        chains, steps = 0, 0

        def work(block: BlockRun) -> None:
            nonlocal chains, steps
            untimed.build_all(plan, block, self._all)
            for number, record in enumerate(self._records):
                record.stages = {arm: sides[arm].stages[number] for arm in Arm}
                record.kernels = {arm: sides[arm].kernels[number] for arm in Arm}
            for check in (untimed.CHAIN, untimed.REGIME, untimed.ONE_STEP):
                oracle = ThreadPoolExecutor(1)
                try:
                    done = []
                    for one in untimed.run_tasks(plan, block, check):
                        done.append(oracle.submit(self._records[one.task.number].untimed, one))
                        chains, steps = chains + 1, max(steps, one.task.steps)
                    for followed in done:
                        followed.result()
                finally:
                    oracle.shutdown(cancel_futures=True)
                self._stop_if_wrong()
            steps = max(steps, self._long_chain(plan, block))
            unsteady = list(untimed.run_again(plan, block, self._all))
            for number, record in enumerate(self._records):
                record.steady([one for one in unsteady if one.number == number])

        self._in_block(CHAIN_PLAN, sides, work, awake=False)
        self._progress({"event": "correctness", "chains": chains, "steps": steps})
        self._stop_if_wrong()

    def _long_chain(self, plan: untimed.Plan, block: BlockRun) -> int:
        """Run the long chain, if the rules ask for one; return its steps."""
        if self._long_at is None:
            return 0
        record, most = self._records[self._long_at], self._rules.long_steps
        record.goes_long = True
        for piece in untimed.run_long(plan, block, self._long_at, most):
            record.long(piece)
            if record.faults:
                break
        self._stop_if_wrong()
        return most

    def _search(self) -> None:
        """Try the boundary points that were drawn for this race."""
        if not self._points:
            return
        served = self._until == "end"
        searched = search_drawn(
            self._request, self._course, self._points, served, lambda: self._in_time({}, CHAIN_PLAN), time.monotonic
        )
        self._boundaries = searched.records
        self._faults.extend(searched.faults)
        self._progress({"event": "boundaries", "points": len(self._points)})
        self._stop_if_wrong()

    def _first_blocks(self) -> list[Timed]:
        """Return the blocks before the first look; the A/A unit stands at a random place among them."""
        first = next_look(self._rules, 0)
        assert first is not None
        units = [(pair, False) for pair in range(first // 2)]
        for pair in range(self._rules.control_blocks // 2 + self._rules.control_blocks % 2):
            units.insert(_random.randrange(len(units) + 1), (pair, True))
        advertised = range(len(self._request.configurations))
        everything = range(len(self._all))
        return _blocks([(pair, advertised if control else everything, control) for pair, control in units])

    def _race(self) -> None:
        """Run blocks until a look decides."""
        blocks = self._first_blocks()
        advertised = range(len(self._request.configurations))
        while True:
            self._run_blocks(blocks)
            configurations = [r.record() for r in self._records[: len(advertised)]]
            guards = [r.record() for r in self._records[len(advertised) :]]
            decision = judge_times(self._request, configurations, guards, self._alpha)
            estimate = {figure.label: round(figure.ratio, 4) for figure in decision.figures}
            self._progress({"event": "look", "blocks": self._blocks_done, "estimate": estimate})
            if decision.outcome is not None or decision.next_look is None:
                return
            live = [n for n in advertised if self._all[n].label in decision.undecided]
            have = len(self._records[live[0]].blocks) // 2
            blocks = _blocks([(pair, live, False) for pair in range(have, decision.next_look // 2)])

    def _run_blocks(self, blocks: Sequence[Timed]) -> None:
        """Run blocks one after the other. The next pairs of processes start while the oracle is at work."""
        for index, (plan, numbers) in enumerate(blocks):
            upcoming = [plan for plan, _ in blocks[index:]]
            sides = self._waiting.take(upcoming)
            left = self._block(plan, sides, numbers)
            self._waiting.fill(upcoming[1:])
            for follow in left:
                follow()
            self._blocks_done += 1
            self._progress({"event": "block", "done": self._blocks_done, "pair": plan.pair, "control": plan.control})
            self._stop_if_wrong()

    def _block(self, plan: Plan, sides: dict[Arm, Side], numbers: Sequence[int]) -> list[Callable[[], None]]:
        """Time one block; return what is left for the oracle: the pairs of runs that were drawn, at least one at each
        configuration, and those of the block's late checks."""
        draw = Draw(self._rules.checked_share)
        configurations = [self._all[n] for n in numbers]
        lates = [] if plan.control else draw_late(self._course.model, self._rules, configurations)
        asked: list[tuple[Late, Pair]] = []

        def keep(number: int, pair: Pair, timed: bool) -> None:
            self._records[number].inspect(pair, control=plan.control)
            if timed and not plan.control:
                draw.offer(number, pair)

        def timed(block: BlockRun) -> None:
            shapes, steps = [shape_of(c) for c in configurations], [self._steps[n] for n in numbers]
            regimes = ["normal"] * len(numbers)
            shapes += [shapes[late.index] for late in lates]
            steps += [late.steps for late in lates]
            regimes += [late.weights for late in lates]
            block.load(shapes, steps, regimes)
            found = block.timed(
                self._rules.groups,
                lambda index, pair, timed: keep(numbers[index], pair, timed),
                count=len(numbers),
                between=lambda: asked.extend(run_late(block, lates, len(numbers))),
            )
            for index, measured in found.items():
                self._records[numbers[index]].add(measured, control=plan.control)

        self._in_block(plan, sides, timed)
        left: list[Callable[[], None]] = [
            partial(self._records[number].follow, pair, "timed") for number, pair in draw.chosen()
        ]
        return left + [partial(self._records[numbers[late.index]].late, late, pair) for late, pair in asked]

    def _start(self, plan: Plan, *, perturb: bool = False) -> dict[Arm, Side]:
        self._in_time({}, plan)
        return self._course.start(plan, perturb=perturb)

    def _in_time(self, sides: dict[Arm, Side], plan: Plan) -> None:
        if time.monotonic() > self._deadline:
            now = {arm: sides[arm].seconds if sides and not plan.control else 0.0 for arm in Arm}
            most = self._request.target.longest_race_seconds
            raise stops.late(most, *(self._waited[arm] + now[arm] for arm in (Arm.BASELINE, Arm.CANDIDATE)))

    def _in_block(
        self, plan: Plan, sides: dict[Arm, Side], work: Callable[[BlockRun], None], *, awake: bool = True
    ) -> None:
        block = BlockRun(self._course, plan, sides, tick=lambda: self._in_time(sides, plan), awake=awake)
        try:
            with block:
                work(block)
            self._account(sides, plan)
        except ArmFault as fault:
            raise stops.of_arm(fault, control=plan.control) from fault
        except Interference as seen:
            raise stops.of_interference(seen, control=plan.control) from seen
        except TimeoutError as error:
            raise stops.void("RUN_FREEZE", "race", "a process tree that freezes and ends", str(error)) from error
        left = block.leftovers.get(Arm.CANDIDATE, 0)
        if left and not plan.control:
            self._faults.append(stops.leftover(left))

    def _account(self, sides: dict[Arm, Side], plan: Plan) -> None:
        if not plan.control:
            for arm, side in sides.items():
                self._waited[arm] += side.seconds

    def _stop_if_wrong(self) -> None:
        outcomes = {reason.outcome for reason in judge_correctness(self._rules, self._result(RaceStatus.ABANDONED))}
        if RaceOutcome.VOID in outcomes:
            raise Stop(RaceStatus.ABANDONED, RaceOutcome.VOID)
        if RaceOutcome.WRONG in outcomes:
            raise Stop(RaceStatus.STOPPED, RaceOutcome.WRONG)

    def _result(self, status: RaceStatus, outcome: RaceOutcome = RaceOutcome.VOID) -> RaceResult:
        timed = status is RaceStatus.FINISHED
        count = len(self._request.configurations)
        records = [record.record(timed=timed) for record in self._records]
        result = RaceResult(
            status=status,
            outcome=outcome,
            alpha=self._alpha,
            jail=self._course.jail.level,
            environment=environment(self._course.device, self._course.jail, self._started, datetime.now(UTC)),
            configurations=tuple(records[:count]),
            guards=tuple(records[count:]),
            boundaries=self._boundaries,
            supports=tuple(self._supports),
            faults=tuple(self._faults),
        )
        if not timed:
            reasons = [f"{fault.code}: {fault.found}"[:500] for fault in self._faults]
            return result.model_copy(update={"reasons": tuple(reasons)})
        decision = decide_race(self._request, result, self._alpha)
        decided = decision.outcome or RaceOutcome.VOID
        reasons = [f"{reason.code} at {reason.where}: {reason.message}" for reason in decision.because(decided)]
        return RaceResult.model_validate({**result.model_dump(), "outcome": decided, "reasons": tuple(reasons)})


def _blocks(units: Sequence[tuple[int, Sequence[int], bool]]) -> list[Timed]:
    """Return the blocks of units of (pair, configurations, control)."""
    return [(plan, numbers) for pair, numbers, control in units for plan in Plan.unit(pair, control=control)]
