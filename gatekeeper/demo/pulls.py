"""The sample pull requests: what each changes, and which verdict must come of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gatekeeper.catalog import ROOT
from gatekeeper.demo.upstream import SAMPLE, Changes, base_files
from gatekeeper.domain.policy import Outcome

NVIDIA = "vllm/models/kimi_k3/nvidia"
DIRECTORY = f"{NVIDIA}/specialized_decode"
PACKAGE = DIRECTORY.replace("/", ".")
HOOK = f"{NVIDIA}/model.py"
HOUSE = ROOT / "kernels_under_test" / "kimi_k3"

MANIFEST = f"""\
schema = 1
model = "kimi_k3"
vendor = "nvidia"
directory = "{DIRECTORY}"
switch = "additional_config.decode_backend=latency_specialized"
problem = "kimi_k3"
entry_point = "{PACKAGE}.entry:candidate"
guard = "{PACKAGE}.opt_in:enabled"
hooks = ["{HOOK}"]

[[targets]]
name = "cpu"
tensor_parallel = [1]
decode_context_parallel = ["2"]

[serves]
rows = [1, 2]
query_tokens = [1]
context = {{ min = 32, max = 64 }}
page_sizes = [4]

[features]
decode_context_parallel = "served"
variable_context_length = "served"
speculative_decoding = "refused"
expert_parallel = "refused"

[claims]
speedup = {{ cpu = 1.05 }}
"""


@dataclass(frozen=True)
class SamplePull:
    """One sample pull request. ``codes`` are reason codes that its verdict must show; ``races`` whether it gets to a race."""

    number: int
    title: str
    author: tuple[int, str]
    changes: Changes = field(repr=False)
    expected: Outcome
    failing: Mapping[str, Outcome] = field(default_factory=dict)
    codes: frozenset[str] = frozenset()
    races: bool = False


def sample_pulls() -> tuple[SamplePull, ...]:
    """Return all sample pull requests, by number."""
    ada, ben = (501, "ada"), (502, "ben")
    honest = specialised(house("candidate"), "specialised")
    failed = Outcome.FAILED
    return (
        SamplePull(
            1, "Latency-specialised decode for Kimi K3", ada, honest | hooked(), Outcome.PASSED, races=True
        ),
        SamplePull(
            2, "Specialised decode, and let the scheduler prefer it", ben, honest | hooked() | core_edit(), failed,
            {"isolation": failed}, frozenset({"ISO_PATH_OUTSIDE"}),
        ),
        SamplePull(
            3, "Specialised decode with its own sampler", ben, honest | hooked() | core_move(), failed,
            {"isolation": failed}, frozenset({"ISO_DELETE_OUTSIDE"}),
        ),
        SamplePull(
            4, "Specialised decode, always on", ben, honest | unguarded_hook(), failed,
            {"isolation": failed}, frozenset({"ISO_HOOK_UNGUARDED"}),
        ),
        SamplePull(
            5, "Specialised decode without papers", ben, _without(honest, "fast_track.toml") | hooked(), failed,
            {"scope": failed}, frozenset({"SCOPE_MANIFEST_MISSING"}),
        ),
        SamplePull(
            6, "Specialised decode that does not speak of context lengths", ben,
            honest | hooked() | manifest('variable_context_length = "served"\n', ""), failed,
            {"scope": failed}, frozenset({"SCOPE_FEATURE_SILENT"}),
        ),
        SamplePull(
            7, "Even faster decode", ben, specialised(house("candidate"), "specialised", "wrong") | hooked(), failed,
            {"benchmarks": failed}, frozenset({"COR_MISMATCH"}), races=True,
        ),
        SamplePull(
            8, "Careful decode", ada, specialised(house("baseline"), "specialised", "slow") | hooked(), failed,
            {"benchmarks": failed}, races=True,
        ),
        SamplePull(
            9, "Say how to switch the specialised path on", ada,
            {"docs/serving.md": base_files()["docs/serving.md"] + b"\nSet `decode_backend` to choose another path.\n"},
            Outcome.PASSED,
        ),
    )  # fmt: skip


def house(part: str) -> dict[str, bytes]:
    """Return the Python files of the house candidate or of the stock baseline, by file name."""
    return {path.name: path.read_bytes() for path in sorted((HOUSE / part).glob("*.py"))}


def specialised(files: Mapping[str, bytes], *parts: str) -> dict[str, bytes | None]:
    """Return the changes that add a specialised directory: implementation, opt-in, entry point and manifest."""
    made: dict[str, bytes] = dict(files)
    for part in parts:
        made |= {path.name: path.read_bytes() for path in sorted((SAMPLE / part).glob("*.py"))}
    made["fast_track.toml"] = MANIFEST.encode()
    return {f"{DIRECTORY}/{name}": data for name, data in made.items()}


def hooked() -> Changes:
    """Return the call-in that an honest change needs: an import, the guard's answer, and one branch behind it."""
    text = base_files()[HOOK].decode()
    imported = f"from {PACKAGE} import opt_in\n"
    text = text.replace(
        "from vllm.models.kimi_k3.nvidia.linear", imported + "from vllm.models.kimi_k3.nvidia.linear", 1
    )
    stock = "    def forward(self, hidden, metadata):\n        for layer in self.layers:\n"
    guarded = (
        "    def forward(self, hidden, metadata):\n"
        "        specialised = opt_in.enabled(self.config)\n"
        "        if specialised:\n"
        "            return opt_in.forward(self, hidden, metadata)\n"
        "        for layer in self.layers:\n"
    )
    return {HOOK: _replaced(text, stock, guarded)}


def unguarded_hook() -> Changes:
    """Return a call-in that does not ask whether anybody wants it."""
    text = base_files()[HOOK].decode()
    stock = "        for layer in self.layers:\n            hidden = layer.forward(hidden, metadata)\n        return hidden\n"
    always = f"        from {PACKAGE} import opt_in\n\n        return opt_in.forward(self, hidden, metadata)\n"
    return {HOOK: _replaced(text, stock, always)}


def core_edit() -> Changes:
    """Return an edit of the scheduler."""
    path = "vllm/core/scheduler.py"
    text = base_files()[path].decode()
    return {path: _replaced(text, "request = self.waiting.pop(0)", "request = self.waiting.pop()")}


def core_move() -> Changes:
    """Return a move of a core file into the specialised directory; a rename shows only its new path in many tools."""
    path = "vllm/core/sampler.py"
    return {path: None, f"{DIRECTORY}/sampler.py": base_files()[path]}


def manifest(old: str, new: str) -> Changes:
    """Return the manifest with one passage replaced."""
    return {f"{DIRECTORY}/fast_track.toml": _replaced(MANIFEST, old, new)}


def files_needed() -> tuple[Path, ...]:
    """Return the folders that the sample is made from, for the check that an installation is complete."""
    return (SAMPLE / "base", SAMPLE / "specialised", HOUSE / "candidate", HOUSE / "baseline")


def _without(changes: Changes, name: str) -> dict[str, bytes | None]:
    return {path: data for path, data in changes.items() if not path.endswith(f"/{name}")}


def _replaced(text: str, old: str, new: str) -> bytes:
    if old not in text:
        raise ValueError(f"the sample has changed: expected to find {old!r}")
    return text.replace(old, new, 1).encode()
