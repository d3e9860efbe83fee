"""What a model under test gives the harness, and what a baseline or a candidate is.

The contract is structural: an implementation imports nothing from here, it only has to have these attributes. The harness
reads tensors by name from an arena that it owns; nothing that an implementation returns is ever believed.

One *step* is one decode step of the problem's layers. The arm's stub does, for t = 0, 1, ... n-1:

1. copy row t of every ``SCHEDULE`` tensor into the step buffer of the same name (lengths, slots: what serving prepares
   outside the layers), and put x(t) into ``x``;
2. call ``step()``, which reads ``x`` and the weights, advances the ``STATE`` tensors in place and overwrites every ``OUTPUT``;
3. copy every ``OUTPUT`` tensor into row t of its history tensor ``history.<name>``;
4. form x(t+1) = bf16(noise[t+1] + feedback(out(t))) with :func:`feedback`.

So nothing of step t+1 is known before step t is complete, and the oracle can follow the arm from its own history. An output has
bits that no comparison can hold against it (the last ones of a bf16); :func:`feedback` is made so that they are no rudder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

TABLE_ROWS = 4096
"""Rows of the feedback table; a power of two, so that a hash becomes a row number by its lowest bits."""
FEEDBACK_SHIFTS = (4, 16, 28, 40, 52)
"""Where the hash's five row numbers of 12 bits begin; the four lowest bits of a product are little mixed."""
FEEDBACK_SCALE = len(FEEDBACK_SHIFTS) ** -0.5

X = "x"
OUT = "out"
EXPERT_IDS = "expert_ids"


class Role(Enum):
    """What a tensor is for; the harness checks each role in its own way."""

    WEIGHT = "weight"
    """Read-only for the arm; compared byte for byte after each run."""
    METADATA = "metadata"
    """Read-only, constant over a run (block tables, slots)."""
    SCHEDULE = "schedule"
    """Read-only, one row for each step; the stub copies row t into the step buffer."""
    STATE = "state"
    """Advanced in place; its end value is compared with the oracle's, what a step does not address must not change."""
    INPUT = "input"
    """The step's input ``x``, written by the stub."""
    OUTPUT = "output"
    """Overwritten by every step; filled with a poison pattern before each run."""


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of the problem at one configuration. ``shape`` leaves out the step axis of a ``SCHEDULE`` or history tensor.

    ``dtype`` is a name of torch without its prefix: ``bfloat16``, ``float32``, ``float8_e4m3fn`` (which not every operation of torch
    knows), ``int32``, ``int64``, ``uint8``.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Role


@dataclass(frozen=True)
class Shape:
    """A configuration as an implementation sees it: counts of rows, tokens and ranks (see the service's ``Configuration``)."""

    rows: int
    query_tokens: int
    context: int
    page_size: int
    tensor_parallel: int = 1
    decode_context_parallel: int = 1
    expert_parallel: int = 1
    dtypes: Mapping[str, str] = ()  # type: ignore[assignment]

    @property
    def requests(self) -> int:
        """Number of requests B = rows / query tokens."""
        return self.rows // self.query_tokens


class Implementation(Protocol):
    """A baseline or a candidate: the object that an entry point ``module:attribute`` names.

    ``facts`` is the problem's plain-data description (a dict of ints, floats, strings and tuples): sizes, layer kinds, eps.
    """

    def supports(self, facts: Mapping[str, Any], shape: Shape) -> str | None:
        """Return None where this implementation serves the shape, else the reason why not, as one line of text."""
        ...

    def workspace(self, facts: Mapping[str, Any], shape: Shape) -> int:
        """Return how many bytes of scratch memory :meth:`build` wants as tensor ``workspace`` (uint8)."""
        ...

    def build(self, facts: Mapping[str, Any], shape: Shape, tensors: Mapping[str, Tensor]) -> Callable[[], None]:
        """Prepare once and return ``step``. ``tensors`` holds every tensor by name; they keep their addresses.

        May derive layouts from weights here only if the derived copy lies in ``workspace``. WEIGHT tensors hold their final
        values when this is called and keep them until the next ``build``; METADATA, SCHEDULE, STATE and INPUT tensors may be
        filled anew between runs without a ``build``, so their values must be read in each step. On a device the stub runs the
        returned step and captures it into a graph at once; all tensors then hold some run's values. An implementation may carry an
        attribute ``stages`` on the returned callable: the names of the kernels of one step, in order, for display.
        """
        ...


class Problem(Protocol):
    """The trusted description of one problem size of a model: which tensors exist and what they hold."""

    name: str
    facts: Mapping[str, Any]
    layers: int
    """Layers in one step."""

    def check(self, shape: Shape) -> str | None:
        """Return None where the problem is defined at this shape, else why not."""
        ...

    def tensors(self, shape: Shape) -> Sequence[TensorSpec]:
        """Return every tensor at this shape, in a fixed order."""
        ...

    def fill(
        self,
        shape: Shape,
        tensors: Mapping[str, Tensor],
        *,
        steps: int,
        seed: int,
        regime: str = "normal",
        only: Collection[Role] | None = None,
    ) -> None:
        """Write all weights, metadata, states and schedules (``steps`` rows each) for a seed of up to 128 bits.

        ``regime`` names the distribution of values; ``regimes`` lists those that exist. ``only`` limits the writing to tensors
        of these roles: a run's states, metadata and schedules may be drawn under a new seed while the weights stay. ``steps``
        must be the same for all roles of one run, since start lengths depend on it.

        Raises:
            ValueError: if the regime is unknown or ``steps`` is larger than the context.
        """
        ...

    regimes: Sequence[str]

    def bytes_needed(self, shape: Shape) -> int:
        """Return the least number of bytes that one step must move, each needed byte once, for the bandwidth floor."""
        ...

    def untouched(self, shape: Shape, tensors: Mapping[str, Tensor], steps: int) -> Mapping[str, Tensor]:
        """Return for each STATE tensor a bool tensor of the same shape: True where a run of ``steps`` must not write."""
        ...


@dataclass(frozen=True)
class Trace:
    """What the oracle says about one run of an arm, in float64.

    ``outputs[name]`` has shape [steps, ...]; ``states[name]`` is the end state, of an FP8 tensor in the unit that it is stored in.
    ``shortfall`` [steps, layers, rows], of the layers with experts, is how far the arm's worst chosen expert lies below the oracle's
    last chosen score (0 where the sets agree), in units of the score.
    """

    outputs: Mapping[str, Tensor]
    states: Mapping[str, Tensor]
    shortfall: Tensor


class Oracle(Protocol):
    """The reference, following one run of an arm: it takes the arm's inputs and expert ids and computes all else itself."""

    def follow(
        self, problem: Problem, shape: Shape, initial: Mapping[str, Tensor], x: Tensor, expert_ids: Tensor
    ) -> Trace:
        """Run the reference over ``x`` [steps, rows, hidden] with routing pinned to ``expert_ids`` [steps, layers, rows, k],
        where only layers with experts count.

        ``initial`` holds every tensor as it was before the run (weights, metadata, schedules, states); it is not changed.

        Raises:
            ValueError: if an id is out of range or repeated within a row.
        """
        ...


@dataclass(frozen=True)
class Exact:
    """Rows of a state or output before which a step rounds next to nothing: they are held against a floor of their own.

    ``where`` is a bool mask over the tensor's shape without its last axis; ``floor`` is the least limit of their rms relative
    error, from what honest implementations show.
    """

    name: str
    tensor: str
    where: Tensor
    floor: float


@runtime_checkable
class StepOracle(Protocol):
    """What an oracle may offer besides :class:`Oracle`: single steps over data that make small faults of constants large."""

    def stress(self, problem: Problem, shape: Shape, tensors: Mapping[str, Tensor], only: Collection[Role]) -> None:
        """Change freshly filled tensors of the roles in ``only``, in place, so that every constant of the model counts.

        Weights were filled in the regime :attr:`stress_regime`, all else as unit normal. ``x`` [rows, hidden], a run's first input,
        is among ``tensors`` where a run's data is drawn.
        """
        ...

    stress_regime: str
    left_out: Sequence[str]
    """Endings of the names of constants that no error can be projected on: without effect where ids are pinned, or the same as
    another's."""

    def exact(self, problem: Problem, shape: Shape, initial: Mapping[str, Tensor]) -> Sequence[Exact]:
        """Return the rows that can be compared nearly exactly after one step over stressed data."""
        ...

    def owners(self, problem: Problem, shape: Shape, initial: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return for each STATE tensor which request a single step writes its rows for: int64, the tensor's shape without its
        last axis; 0 where it writes none."""
        ...

    def misordered(self, problem: Problem, initial: Mapping[str, Tensor], expert_ids: Tensor) -> int:
        """Return how many of the choices [steps, layers, rows, k] took an expert before its twin, which comes first beyond any
        rounding: same router weights, larger bias, or the lower id where the bias is the same too."""
        ...


def feedback(out: Tensor, multipliers: Tensor, table: Tensor) -> Tensor:
    """Return what an output adds to the next step's input: five table rows, chosen by a hash of the output's bytes.

    Whoever can choose the hash by turning last bits of an output knows all inputs of a run in advance, and can run its steps side
    by side. One row of 4,096 is hit by turning one or two bits; five are 60 bits. The hash runs along the output (each prefix
    sum is mixed before it is added up), since from a sum of terms that do not depend on each other 60 bits are soon put together.

    Args:
        out: [rows, hidden] bfloat16, contiguous; its bytes are read as int16.
        multipliers: [hidden] int64, odd, drawn anew for each run.
        table: [4096, hidden] bfloat16; its columns' signs are drawn anew for each run, so that no product of it with a
            weight can be prepared.

    Returns:
        [rows, hidden] float32 of unit size. Integers modulo 2**64 and sums in a fixed order: the same on every device.
    """
    import torch

    words = out.contiguous().view(torch.int16).to(torch.int64)
    prefixes = (words * multipliers).cumsum(dim=-1)
    mixed = ((prefixes ^ (prefixes >> 29)) * multipliers).sum(dim=-1)
    shifts = torch.tensor(FEEDBACK_SHIFTS, device=out.device)
    first, *others = table[(mixed.unsqueeze(-1) >> shifts) & (TABLE_ROWS - 1)].float().unbind(1)
    for row in others:
        first += row
    added: Tensor = first * FEEDBACK_SCALE
    return added
