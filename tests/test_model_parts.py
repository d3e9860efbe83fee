"""What a model's file says for targets of one architecture: which parts are raced there, and what is wrong with a file."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from gatekeeper.catalog import ROOT, load_catalog
from gatekeeper.cli.race import RULES
from gatekeeper.domain.errors import ConfigurationError
from gatekeeper.domain.manifest import read
from gatekeeper.domain.requests import race_request
from gatekeeper.domain.source import TreeEntry
from tests.domain.test_manifest import GOOD, PATH


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An installation with the model's trusted files alone."""
    for name in (
        "workers/targets",
        "kernels_under_test/kimi_k3/problems",
        "kernels_under_test/kimi_k3/device/problems",
    ):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "kernels_under_test/kimi_k3/model.toml", tmp_path / "kernels_under_test/kimi_k3")
    return tmp_path


def test_a_target_gets_the_parts_of_its_architecture():
    catalog = load_catalog()
    model = catalog.models["kimi_k3"]
    own = model.parts(catalog.targets["cpu"])
    assert (own.default_problem, own.baseline, own.tensor_parallel, own.folder) == (
        "tiny",
        model.baseline,
        1,
        "problems",
    )
    card = model.parts(catalog.targets["h200"])
    assert (card.default_problem, card.tensor_parallel, card.page_size) == ("rank_kda", 8, 64)
    assert card.baseline.endswith("device.stock:baseline") and card.candidate.endswith("device.cute:candidate")
    assert model.parts(catalog.targets["gb300"]) is None


def test_targets_that_nobody_measured_can_decide_no_race():
    targets = load_catalog().targets
    assert {name for name, target in targets.items() if target.noise.blocks < 50} == {"b200", "gb300", "h200"}
    assert not any(targets[name].owned for name in ("b200", "gb300", "h200"))


def test_problems_of_an_architecture_must_be_those_of_its_folder(root):
    load_catalog(root)
    (root / "kernels_under_test/kimi_k3/device/problems/more.toml").write_text("")
    with pytest.raises(ConfigurationError) as wrong:
        load_catalog(root)
    assert (wrong.value.code, wrong.value.expected) == ("CATALOG_MODEL", "more, rank_kda") and "sm_90a" in str(
        wrong.value
    )


@pytest.mark.parametrize(
    ("target", "problem", "baseline"),
    [
        ("h200", "rank_kda", "kernels_under_test.kimi_k3.device.stock:baseline"),
        ("gb300", "tiny", "kernels_under_test.kimi_k3.baseline.stock:baseline"),
    ],
)
def test_a_verdicts_race_is_of_the_parts_for_its_target(target, problem, baseline):
    manifest, findings = read(GOOD.replace(b"cpu", target.encode()), PATH)
    assert manifest is not None, findings
    tree = SimpleNamespace(
        entry=lambda _path: TreeEntry(path=manifest.directory, mode="040000", kind="tree", id="b" * 40)
    )
    key = SimpleNamespace(repository_id=1, policy_set="sha256:" + "0" * 64)
    subject = SimpleNamespace(catalog=load_catalog(), merged=tree, snapshot=SimpleNamespace(key=key))
    request = race_request(subject, manifest, target, RULES)
    assert (request.target.name, request.problem, request.baseline.entry_point) == (target, problem, baseline)
