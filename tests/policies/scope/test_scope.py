"""The three scope policies over small trees in memory, each failing case beside the honest one."""

from __future__ import annotations

import importlib.util
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from gatekeeper.domain.catalog import JailLevel
from gatekeeper.domain.evidence import Approval, Evidence, ProbeEvidence, PullSubject, TreeSubject, Waiver
from gatekeeper.domain.policy import ApprovalRequirement, ProbeRequirement, outcome_of
from gatekeeper.domain.race import ProbeFault, ProbeResult
from gatekeeper.domain.repository import ModelRules
from gatekeeper.domain.scope import declare, outside_imports
from gatekeeper.domain.source import TreeEntry
from policies.merge import features_are_declared, manifest_is_valid, scope_is_probed

_spec = importlib.util.spec_from_file_location("manifests", Path(__file__).parents[2] / "domain" / "test_manifest.py")
assert _spec and _spec.loader
_manifests = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_manifests)
GOOD, PATH = _manifests.GOOD, _manifests.PATH
DIRECTORY = PATH.rpartition("/")[0]
HOOK = "stock/models/k3/nvidia/model.py"
HEAD, TREE = "a" * 40, "b" * 40
NOW = datetime(2026, 1, 2, tzinfo=UTC)


class Files:
    """A source tree in memory; each directory has the same made-up id."""

    id = "c" * 40

    def __init__(self, files):
        self.files = files

    def entry(self, path):
        if path in self.files:
            return TreeEntry(path=path, mode="100644", kind="blob", id="d" * 40)
        below = any(name.startswith(path + "/") for name in self.files)
        return TreeEntry(path=path, mode="040000", kind="tree", id=TREE) if below else None

    def walk(self, path=""):
        return (self.entry(name) for name in sorted(self.files) if name.startswith(path))

    def read(self, path):
        return self.files[path]

    def grep(self, needle, suffix=".py"):
        return tuple(sorted(n for n, data in self.files.items() if needle in data and n.endswith(suffix)))


def situation(manifest=GOOD, *, trusted=True, evidence=(), touched=(HOOK,), mandatory=(), extra=None):
    files = {PATH: manifest, f"{DIRECTORY}/gate.py": b"", f"{DIRECTORY}/kernels.py": b"",
             HOOK: b"from stock.models.k3.nvidia.fast.gate import enabled\n", **(extra or {})}  # fmt: skip
    tree = Files(files)
    key = SimpleNamespace(repository_id=1, number=2, head_sha=HEAD, policy_set="sha256:" + "0" * 64)
    changes = SimpleNamespace(changes=[SimpleNamespace(path=path) for path in touched])
    model = SimpleNamespace(name="kimi_k3", problem="kernels_under_test.kimi_k3.problem:load", default_problem="tiny")
    rules = ModelRules(
        name="k3", vendor="nvidia", root="stock/models/*/*", free=("fast",), hooks=("model.py", "linear.py")
    )
    subject = SimpleNamespace(
        snapshot=SimpleNamespace(key=key, author=SimpleNamespace(trusted=trusted, login="ann"), proposed=(changes,),
                                 merged=None),
        configuration=SimpleNamespace(
            mandatory_features=mandatory, maintainers=("@owner", "@ann"), teams={}, models=(rules,)
        ),
        catalog=SimpleNamespace(targets={"cpu": None}, models={"kimi_k3": model}),
        merged=tree, head=tree, base=tree, evidence=evidence, now=NOW,
    )  # fmt: skip
    return subject, (declare(tree, DIRECTORY),)


def codes(report):
    return [finding.code for finding in report.findings]


def test_honest_directory_passes_the_static_policies():
    subject, found = situation()
    assert codes(manifest_is_valid.judge_directories(subject, found)) == []
    assert (
        codes(features_are_declared.judge_directories(subject, found, features_are_declared.FeatureParameters())) == []
    )


@pytest.mark.parametrize(
    ("old", "new", "code", "line"),
    [
        (b'name = "cpu"', b'name = "moon"', "SCOPE_TARGET_UNKNOWN", 11),
        (b'problem = "kimi_k3"', b'problem = "other"', "SCOPE_PROBLEM_UNKNOWN", 6),
        (b"nvidia/model.py", b"nvidia/linear.py", "SCOPE_HOOKS", 9),
    ],
)
def test_manifest_against_gate_and_tree(old, new, code, line):
    manifest = GOOD.replace(old, new).replace(b"{ cpu = 1.5 }", b"{}")
    report = manifest_is_valid.judge_directories(*situation(manifest))
    assert (code, line) in [(finding.code, finding.line) for finding in report.findings]


def test_missing_manifest_fails():
    subject, _ = situation()
    found = (declare(Files({f"{DIRECTORY}/gate.py": b""}), DIRECTORY),)
    assert codes(manifest_is_valid.judge_directories(subject, found)) == ["SCOPE_MANIFEST_MISSING"]


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ({"other/x.py": b""}, "no such file"),
        ({PATH: GOOD, f"{DIRECTORY}/gate.py": b""}, "no such file"),
        ({f"{DIRECTORY}/gate.py": b""}, "no such file, nor one on the base branch; a directory for ordinary work"),
    ],
    ids=["new directory", "the change deletes it", "never had one"],
)
def test_a_directory_that_never_had_a_manifest_points_at_the_configuration(before, told):
    declared = declare(Files({f"{DIRECTORY}/gate.py": b""}), DIRECTORY, base=Files(before))
    (finding,) = declared.findings
    assert finding.code == "SCOPE_MANIFEST_MISSING"
    assert finding.found.startswith(told)
    assert (finding.found == told) == (told == "no such file")


def test_touched_hook_has_to_be_named():
    other = HOOK.replace("model.py", "linear.py")
    report = manifest_is_valid.judge_directories(*situation(touched=(HOOK, other)))
    assert [(f.code, f.expected) for f in report.findings] == [("SCOPE_HOOKS", other)]


@pytest.mark.parametrize(
    ("old", "new", "code", "line"),
    [
        (b'variable_context_length = "served"\n', b"", "SCOPE_FEATURE_SILENT", 20),
        (b'variable_context_length = "served"', b'variable_context_length = "refused"', "SCOPE_FEATURE_REFUSED", 22),
        (b"[claims]", b'teleport = "served"\n[claims]', "SCOPE_FEATURE_UNKNOWN", 23),
        (b"[claims]", b'speculative_decoding = "refused"\n[claims]', "SCOPE_FEATURE_CONTRADICTION", 23),
        (b'["1", "tp"]', b'["1"]', "SCOPE_FEATURE_CONTRADICTION", 21),
    ],
)
def test_features(old, new, code, line):
    subject, found = situation(GOOD.replace(old, new))
    report = features_are_declared.judge_directories(subject, found, features_are_declared.FeatureParameters())
    assert (code, line) in [(finding.code, finding.line) for finding in report.findings]


def test_refused_mandatory_feature_is_for_the_owner_and_repository_adds_features():
    subject, found = situation(GOOD.replace(b'length = "served"', b'length = "refused"'), mandatory=("lora",))
    report = features_are_declared.judge_directories(subject, found, features_are_declared.FeatureParameters())
    waivable = {finding.code: finding.waivable_by for finding in report.findings}
    assert waivable["SCOPE_FEATURE_REFUSED"] == ("@owner", "@ann") and waivable["SCOPE_FEATURE_SILENT"] == ()


@pytest.mark.parametrize(
    ("by", "head", "waived"),
    [("owner", HEAD, True), ("owner", "f" * 40, False), ("ann", HEAD, False), ("stranger", HEAD, False)],
)
def test_a_refused_mandatory_feature_passes_only_by_a_waiver_of_another_maintainer(by, head, waived):
    pull = PullSubject(repository_id=1, number=2, head_sha=head)
    waiver = Waiver(policy="features_are_declared", code="SCOPE_FEATURE_REFUSED", by=by, reason="agreed")
    evidence = (Evidence(subject=pull, recorded_at=NOW, body=waiver),)
    refused = GOOD.replace(b'variable_context_length = "served"', b'variable_context_length = "refused"')
    subject, found = situation(refused, evidence=evidence)
    report = features_are_declared.judge_directories(subject, found, features_are_declared.FeatureParameters())
    own = [finding for finding in report.findings if finding.code == "SCOPE_FEATURE_REFUSED"]
    assert [finding.effect == "note" for finding in own] == [waived]


def probe_report(**options):
    subject, found = situation(**options)
    return scope_is_probed.judge_directories(subject, found, scope_is_probed.ProbeParameters())


def evidence_of(*, request=None, tree=TREE, **changes):
    request = request or probe_report().requirements[0].request
    values = {"jail": JailLevel.JAIL, "entry_point_found": True, "seconds": 1.0,
              "supported": (True,) * len(request.advertised), "refused": ("no",) * len(request.refused), **changes}  # fmt: skip
    body = ProbeEvidence(request=request.digest(), result=ProbeResult(**values))
    return Evidence(subject=TreeSubject(tree=tree, directory=DIRECTORY), recorded_at=NOW, body=body)


def test_a_probe_is_asked_for_and_an_honest_one_passes():
    report = probe_report()
    requirement = report.requirements[0]
    assert isinstance(requirement, ProbeRequirement) and requirement.request.model.endswith("problem:load")
    assert requirement.request.platform_modules == ("stock.models.k3.nvidia.fast.gate",)
    assert outcome_of(probe_report(evidence=(evidence_of(),))) == "passed"


def test_evidence_about_another_tree_or_request_does_not_count():
    other = probe_report(manifest=GOOD.replace(b"64 }", b"128 }")).requirements[0].request
    for evidence in (evidence_of(tree="e" * 40), evidence_of(request=other)):
        assert probe_report(evidence=(evidence,)).requirements


def test_unknown_author_waits_for_an_approval_of_this_very_head():
    assert isinstance(probe_report(trusted=False).requirements[0], ApprovalRequirement)
    cases = (
        (HEAD, "owner", ProbeRequirement),
        ("f" * 40, "owner", ApprovalRequirement),
        (HEAD, "stranger", ApprovalRequirement),
        (HEAD, "ann", ApprovalRequirement),
    )
    for head, by, wanted in cases:
        subject = PullSubject(repository_id=1, number=2, head_sha=head)
        approval = Evidence(subject=subject, recorded_at=NOW, body=Approval(by=by))
        assert isinstance(probe_report(trusted=False, evidence=(approval,)).requirements[0], wanted)


def test_what_a_probe_found_fails():
    request = probe_report().requirements[0].request
    served, outside = len(request.advertised), len(request.refused)
    fault = ProbeFault(code="EFF_TORCH_GLOBAL", where="default dtype", expected="float32", found="float64")
    cases = {
        "EFF_TORCH_GLOBAL": {"faults": (fault,)},
        "SCOPE_SUPPORTS": {"supported": (False,) + (True,) * (served - 1)},
        "SCOPE_ENTRY_POINT": {"entry_point_found": False},
    }
    for code, changes in cases.items():
        report = probe_report(evidence=(evidence_of(**changes),))
        assert code in codes(report) and outcome_of(report) == "failed"
    for changes in ({"refused": ("",) + ("no",) * (outside - 1)}, {"supported": ()}, {"refused": ()}):
        assert codes(probe_report(evidence=(evidence_of(**changes),))) == ["SCOPE_SUPPORTS"]


def test_a_guard_that_never_says_yes_is_noted_and_stops_nothing():
    silent = ProbeFault(code="SCOPE_GUARD_SILENT", where="k3.gate:enabled", expected="yes, where it is set", found="no")
    report = probe_report(evidence=(evidence_of(faults=(silent,)),))
    assert outcome_of(report) == "passed"
    (note,) = [finding for finding in report.findings if finding.code == "SCOPE_GUARD_SILENT"]
    assert note.effect == "note"


def test_the_summary_of_a_probe_tells_what_was_wrong():
    request = probe_report().requirements[0].request
    served, outside = len(request.advertised), len(request.refused)
    honest = f"serves {served} of {served} advertised configurations, refuses {outside} of {outside} others"
    assert probe_report(evidence=(evidence_of(),)).summary.endswith(honest)
    too_much = probe_report(evidence=(evidence_of(refused=("",) + ("no",) * (outside - 1)),)).summary
    assert too_much.endswith(f"refuses {outside - 1} of {outside} others") and "0 fault" not in too_much


def test_a_weak_jail_holds():
    assert outcome_of(probe_report(evidence=(evidence_of(jail=JailLevel.PROCESS),))) == "pending"


def test_modules_that_others_import():
    package = DIRECTORY.replace("/", ".")
    files = {
        "other/a.py": f"import {package}.kernels".encode(),
        "stock/models/k3/nvidia/b.py": b"from .fast import gate",
        "other/c.py": b"fast = (",
        f"{DIRECTORY}/gate.py": b"from . import hidden",
        f"{DIRECTORY}/kernels.py": b"",
        f"{DIRECTORY}/hidden.py": b"",
    }
    assert outside_imports(Files(files), DIRECTORY) == (f"{package}.gate", f"{package}.kernels")
