"""A small repository with a specialised directory, and the three policies of the isolation check asked about a change to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gatekeeper.domain import repository as configurations
from gatekeeper.domain.catalog import Catalog
from gatekeeper.domain.evidence import Evidence, PullSubject, Waiver
from gatekeeper.domain.policy import Finding, Outcome, PolicyInput, outcome_of, worst
from gatekeeper.domain.snapshot import Author, PullFacts
from gatekeeper.git.repository import Repository
from gatekeeper.git.snapshots import build
from policies.merge import applicability, isolation
from policies.merge import effects as effects_policy
from tests.git_builder import Content, GitBuilder

DIGEST = "sha256:" + "0" * 64
NOW = datetime(2026, 1, 2, tzinfo=UTC)
CONFIGURATION = """
schema = 1
maintainers = ["@mira"]
references = ["kernels/*/workload.toml", "kernels/*/reference.py", "trusted"]
escalate = ["requirements", "csrc", "docs"]
refuse = ["core"]

[teams]
"@acme/model" = ["@olga"]

[[models]]
name = "small"
root = "kernels"
free = ["cand", "spec_*"]
tests = ["tests/cand"]
hooks = ["hook.py"]
hook_budget = 12

[[models]]
name = "other"
root = "others"
free = ["cand"]
"""
OWNERS = """
* @root
/kernels/ @acme/model @paul
/csrc/ @carl  # @nobody reads comments
"""
MANIFEST = """
schema = 1
model = "small"
vendor = "any"
directory = "kernels/cand"
switch = "x=y"
problem = "kimi_k3"
entry_point = "kernels.cand.k:candidate"
guard = "kernels.cand.gate:enabled"
hooks = ["kernels/hook.py"]
[[targets]]
name = "cpu"
tensor_parallel = [1]
[serves]
rows = [1]
query_tokens = [1]
context = { min = 1, max = 64 }
page_sizes = [4]
"""
HOOK = """\
import core.a


class Layer(core.a.Base):
    def forward(self, x):
        y = core.a.run(x)
        return y
"""
LONG = "".join(f"value_{number} = {number}\n" for number in range(40))
BASE: dict[str, Content] = {
    ".github/gatekeeper.toml": CONFIGURATION,
    ".github/CODEOWNERS": OWNERS,
    "core/a.py": LONG,
    "core/b.py": "b = 1\n",
    "csrc/x.cu": "// x\n",
    "docs/index.md": "docs\n",
    "kernels/cand/fast_track.toml": MANIFEST,
    "kernels/cand/gate.py": "def enabled(config):\n    return bool(config)\n",
    "kernels/cand/k.py": LONG.replace("value", "kernel"),
    "kernels/cand/workload.toml": "size = 1\n",
    "kernels/hook.py": HOOK,
    "kernels/stock.py": "stock = 1\n",
    "others/cand/k.py": "other = 1\n",
    "others/model.py": "model = 1\n",
    "tests/cand/test_k.py": "def test():\n    assert True\n",
    "trusted/oracle.py": "oracle = 1\n",
}
INSIDE: dict[str, Content] = {"kernels/cand/k.py": LONG.replace("value", "kernel") + "more = 1\n"}
"""The edit that makes a change a fast-track one and is right by itself."""


@dataclass(frozen=True)
class Answer:
    """What the three policies say together."""

    outcome: Outcome
    findings: tuple[Finding, ...]
    summary: str

    def codes(self) -> set[str]:
        return {finding.code for finding in self.findings}

    def find(self, code: str, path: str | None = None) -> list[Finding]:
        return [each for each in self.findings if each.code == code and path in (None, each.path)]


def waiver(
    head: str, code: str, by: str, path: str | None = None, *, number: int = 1, policy: str = "isolation"
) -> Evidence:
    subject = PullSubject(repository_id=1, number=number, head_sha=head)
    return Evidence(
        subject=subject, recorded_at=NOW, body=Waiver(policy=policy, code=code, path=path, by=by, reason="agreed")
    )


def judge(
    git: Path, base: str, head: str, *, evidence: Iterable[Evidence] = (), parameters: dict[str, object] | None = None,
    effects: dict[str, object] | None = None,
) -> Answer:  # fmt: skip
    """Build the snapshot of ``head`` on ``base`` and ask applicability, effects and isolation; the last two with parameters.

    Raises what git or the policies raise; the engine turns that into ``error``.
    """
    repository = Repository(git)
    try:
        base_files = repository.tree(repository.commit_tree(base))
        rules = configurations.read(base_files)
        facts = PullFacts(number=1, author=Author(id=1, login="ada"), base_ref="main")
        snapshot = build(
            1,
            "up/repo",
            facts,
            repository,
            head_sha=head,
            base_sha=base,
            policy_set=DIGEST,
            configuration=rules.digest(),
        )
        subject = PolicyInput(
            snapshot=snapshot, configuration=rules, catalog=Catalog(), base=base_files,
            head=repository.tree(snapshot.head_tree),
            merged=repository.tree(snapshot.merge_tree) if snapshot.merge_tree else None,
            evidence=tuple(evidence), now=NOW,
        )  # fmt: skip
        reports = [
            applicability.judge(subject, applicability.POLICY.parameters()),
            effects_policy.judge(subject, effects_policy.EffectsParameters(**(effects or {}))),
            isolation.judge(subject, isolation.IsolationParameters(**(parameters or {}))),
        ]
    finally:
        repository.close()
    outcomes = [outcome for report in reports if (outcome := outcome_of(report)) is not None]
    findings = tuple(finding for report in reports for finding in report.findings)
    return Answer(worst(outcomes), findings, reports[0].summary)


def start(folder: Path) -> tuple[GitBuilder, str]:
    """Return a builder with the base repository, and its commit on ``main``."""
    git = GitBuilder(folder / "upstream.git")
    return git, git.commit(BASE, branch="main")
