"""One arm of a block as the harness holds it: a jailed process with its protocol, and an arena for each configuration."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gatekeeper.domain.samples import Arm
from kernels_under_test import contract
from kernels_under_test.contract import Role, Shape
from workers import arm as stub
from workers import wire
from workers.arena import Guarded, layout
from workers.devices.cpu import CpuDevice
from workers.devices.port import Device
from workers.jail import Bind, Jail, Limits
from workers.jailed import Ended, JailedProcess
from workers.models import Model, shape_fields
from workers.protocol import ArmChannel, ArmFailed
from workers.sources import Code

START_SECONDS = 60.0
SUPPORTS_SECONDS = 5.0
MEMORY_PATTERN = 165


class Runner:
    """The directory with the stub and what it imports, shown to every arm at ``/runner``; ``beside`` are more files for it."""

    def __init__(self, beside: Sequence[Path] = ()) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="gatekeeper-runner-")
        self.path = Path(self._place.name)
        self.path.chmod(0o755)
        for module in (stub, wire, contract):
            assert module.__file__ is not None
            shutil.copy(module.__file__, self.path)
        for file in beside:
            shutil.copy(file, self.path)

    def close(self) -> None:
        """Remove the directory."""
        self._place.cleanup()


class Side:
    """One arm's process. It is started early, waits frozen, and loads code only when its block begins."""

    def __init__(
        self,
        arm: Arm,
        code: Code,
        jail: Jail,
        runner: Runner,
        limits: Limits,
        *,
        perturb: bool = False,
        device: Device | None = None,
    ) -> None:
        self.arm, self.code, self.jail = arm, code, jail
        self.channel = ArmChannel()
        self.device = device or CpuDevice()
        self.arenas: list[Guarded] = []
        self.kernels: list[int | None] = []
        """Kernel nodes of each configuration's captured step; None where steps run eagerly."""
        self.stages: list[tuple[str, ...]] = []
        self.seconds = 0.0
        """Wall time for which the harness waited for this arm, and for no other."""
        self._ready = False
        self._perturb = perturb
        environment = dict(self.device.environment(jail))
        shown = Bind(runner.path, "/runner/stub")
        number = self.channel.theirs.fileno()
        argv = [jail.python, "-I", "-P", jail.inside(shown, "arm.py"), str(number), self.device.mode]
        binds = [shown, code.bind, *self.device.binds()]
        self.process: JailedProcess = jail.start(
            argv, binds=binds, pass_fds=[number], limits=self.device.limits(limits), environment=environment
        )
        self.channel.theirs.close()

    def ready(self) -> None:
        """Wait until the stub has started. Raises ArmFailed."""
        if not self._ready:
            self.channel.hello(START_SECONDS)
            self._ready = True

    def load(self, model: Model, shape: Shape, steps: int) -> Guarded:
        """Make the arena of a shape for runs of up to ``steps``; fill its weights, then :meth:`build`. Raises ArmFailed."""
        order = {
            "entry_point": self.code.entry_point,
            "root": self.code.root(self.jail),
            "bare": self.code.bare,
            "facts": model.facts(),
            "shape": shape_fields(shape),
            # Only in the untimed pass: fresh memory of the arm holds a pattern instead of zeros. No variable of the environment
            # says so, which the code under test could read.
            "pattern": MEMORY_PATTERN if self._perturb else 0,
        }
        self.channel.order(wire.Kind.DESCRIBE, order)
        workspace, most = self.channel.workspace(self.device.load_seconds), self.device.largest_workspace
        if workspace > most:
            raise ArmFailed("RUN_WORKSPACE", f"at most {most} bytes of workspace", str(workspace))
        self.arenas.append(self.device.arena(layout(model.problem.tensors(shape), steps, workspace)))
        return self.arenas[-1]

    def build(self, model: Model, shape: Shape, arena: Guarded) -> None:
        """Let the implementation build its step over an arena whose weights hold their values. Raises ArmFailed."""
        specs = model.problem.tensors(shape)
        order = {
            "layout": arena.table(),
            "sizes": arena.sizes,
            "given": [spec.name for spec in specs] + ["workspace"],
            "schedules": [spec.name for spec in specs if spec.role is Role.SCHEDULE],
            "outputs": [spec.name for spec in specs if spec.role is Role.OUTPUT],
        }
        self.channel.order(wire.Kind.LOAD, order, arena.descriptors)
        self.stages.append(self.channel.loaded(self.device.load_seconds))
        number = len(self.stages) - 1
        self.kernels.append(self.channel.kernels(number) if self.device.mode == "graph" else None)

    def supports(self, model: Model, shapes: Sequence[Shape]) -> list[str | None]:
        """Return for each shape None if it is served, else the reason why not. Raises ArmFailed."""
        order = {
            "entry_point": self.code.entry_point,
            "root": self.code.root(self.jail),
            "bare": self.code.bare,
            "facts": model.facts(),
            "shapes": [shape_fields(shape) for shape in shapes],
        }
        self.channel.order(wire.Kind.SUPPORTS, order)
        return self.channel.answers(len(shapes), SUPPORTS_SECONDS)

    def close(self) -> Ended:
        """Kill the process and give its memory back; return how it ended."""
        ended = self.process.kill()
        self.channel.close()
        for arena in self.arenas:
            arena.close()
        self.arenas = []
        return ended
