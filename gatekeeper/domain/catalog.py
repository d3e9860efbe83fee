"""What is installed: hardware targets and models under test, as read from their TOML files."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from gatekeeper.domain.documents import Document, Value


class JailLevel(StrEnum):
    """How far untrusted code was kept from the host, weakest first. Every race and probe result carries the level reached."""

    PROCESS = "process"
    JAIL = "jail"
    CONTAINER_JAIL = "container+jail"
    VM_JAIL = "vm+jail"

    @property
    def rank(self) -> int:
        """Position from weakest (0) to strongest."""
        return list(JailLevel).index(self)


class Noise(Value):
    """What A/A races on this target have shown. Figures are relative (0.01 is 1 %)."""

    block_sd: float = Field(gt=0, description="standard deviation of an A/A block value, log ratio")
    mean_upper_95: float = Field(ge=0, description="upper 95 % bound of the absolute A/A mean, log ratio")
    blocks: int = Field(ge=0, description="number of A/A blocks in the record")
    recorded: str = Field(description="date and machine class of the record")


class HardwareTarget(Document):
    """A kind of machine that races run on: one file in ``workers/targets/``; the queue name is ``race.<name>``."""

    name: str = Field(pattern=r"^[a-z0-9_]+$")
    title: str
    architecture: str = Field(description="cpu, sm_90a, sm_100a, sm_103a")
    device_pattern: str = Field(description="regular expression that the device name must match in full")
    owned: bool = Field(description="true if this installation runs workers of this target")
    minimum_jail: JailLevel
    bandwidth_bytes_per_second: float = Field(gt=0, description="measured copy bandwidth, for the plausibility floor")
    noise: Noise
    longest_race_seconds: int = Field(gt=0)
    communication: str = Field(default="shard", pattern=r"^(shard|real)$")


class OnArchitecture(Value):
    """What stands for a model's own parts on targets of one architecture: table ``[on.<architecture>]`` of its ``model.toml``."""

    problems: tuple[str, ...]
    default_problem: str
    reference: str = Field(description="module:attribute of the oracle factory")
    problem: str = Field(description="module:attribute of the problem loader")
    baseline: str = Field(description="module:attribute of the stock baseline")
    candidate: str = Field(description="module:attribute of the house candidate")
    kernels_per_layer: dict[str, int] = Field(default={}, description="kernels per layer by arm: baseline, candidate")
    folder: str = Field(default="problems", description="folder of the problems' files, below the model's")
    tensor_parallel: int = Field(default=1, gt=0, description="ranks that the problem's one rank belongs to")
    page_size: int = Field(default=8, gt=0, description="tokens of a cache page where nobody says otherwise")


class ModelUnderTest(Document):
    """A model whose kernels can be judged: one folder in ``kernels_under_test/``."""

    name: str = Field(pattern=r"^[a-z0-9_]+$")
    title: str
    problems: tuple[str, ...]
    default_problem: str
    reference: str = Field(description="module:attribute of the oracle factory")
    problem: str = Field(description="module:attribute of the problem loader")
    baseline: str = Field(description="module:attribute of the stock baseline")
    candidate: str = Field(description="module:attribute of the house candidate")
    kernels_per_layer: dict[str, int] = Field(default={}, description="kernels per layer by arm: baseline, candidate")
    suite: str = Field(
        pattern=r"^sha256:[0-9a-f]{64}$", description="digest of everything that the gate trusts of this model"
    )
    on: dict[str, OnArchitecture] = Field(default={}, description="other parts, by the architecture of a target")

    def parts(self, target: HardwareTarget) -> OnArchitecture | None:
        """Return what is raced on a target: the model's own parts on a CPU; None where it has none for the architecture."""
        if target.architecture == "cpu":
            own = self.model_dump(include=set(OnArchitecture.model_fields) - {"folder", "tensor_parallel", "page_size"})
            return OnArchitecture(**own)
        return self.on.get(target.architecture)


class Catalog(Value):
    """All targets and models of this installation, by name."""

    targets: dict[str, HardwareTarget] = {}
    models: dict[str, ModelUnderTest] = {}
