"""``gatekeeper init``: a skeleton that is right but for its author's decisions, and never passes without them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from gatekeeper.catalog import load_catalog
from gatekeeper.cli import main
from gatekeeper.cli.check import run_check
from gatekeeper.cli.proposing import limits_of
from gatekeeper.cli.skeleton import Limits
from gatekeeper.domain.advertised import advertised, guard_pool
from gatekeeper.domain.features import KNOWN_FEATURES
from gatekeeper.domain.manifest import Claims, Manifest, Serves, TargetScope, read
from gatekeeper.domain.policy import Outcome
from gatekeeper.domain.toml_lines import parse
from kernels_under_test.contract import Shape
from kernels_under_test.kimi_k3.candidate import gate as house
from kernels_under_test.kimi_k3.problem import load
from tests.checkout import checkout, git, put
from tests.git_builder import GitBuilder

ROOT = "stock/models/kimi_k3/nvidia"
FAST = f"{ROOT}/fast_one"
PATH = f"{FAST}/fast_track.toml"
RULES = f"""\
schema = 1
maintainers = ["@mira"]
mandatory_features = ["lora", "house_feature"]
refuse = ["stock/models/kimi_k3/nvidia/fast_closed"]
[[models]]
name = "kimi_k3"
vendor = "nvidia"
root = "{ROOT}"
free = ["fast_*"]
hooks = ["model.py", "linear.py"]
hook_budget = 40
[[models]]
name = "any"
root = "stock/models/*/*"
free = ["fast_*"]
"""
BASE = {
    ".github/gatekeeper.toml": RULES,
    f"{ROOT}/__init__.py": "",
    f"{ROOT}/model.py": "def forward(x):\n    return x\n",
    f"{ROOT}/linear.py": "scale = 1\n",
    f"{ROOT}/state.py": "state = 1\n",
    f"{ROOT}/fast_old/a.py": "x = 1\n",
    "stock/models/other_moe/acme/model.py": "pass\n",
}
GATE = "from .other import x\n\n\nclass C:\n    pass\n\n\ncandidate = C()\n\n\ndef enabled(config):\n    return config.switches.get('fast') == '1'\n"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return checkout(tmp_path / "r", BASE)


@pytest.fixture
def work(repo: Path) -> Path:
    """A work tree in which a contributor has begun: a directory of their own and a hook file."""
    put(repo, f"{FAST}/gate.py", GATE)
    put(repo, f"{ROOT}/model.py", f"from {FAST.replace('/', '.')} import gate\n" + BASE[f"{ROOT}/model.py"])
    return repo


def told(capsys: pytest.CaptureFixture[str]) -> dict:
    return json.loads(capsys.readouterr().out)


def codes(document: dict) -> list[str]:
    return [finding["code"] for finding in document["findings"]]


def test_an_untouched_skeleton_fails_check_and_a_decided_one_passes(work: Path) -> None:
    assert main(["init", "--repo", str(work)]) == 0
    git(work, "add", "-A")
    git(work, "commit", "-m", "begin")
    checked = run_check(work, "main", "HEAD")
    assert checked.outcome is Outcome.FAILED
    undecided = {
        finding.message
        for result in checked.results
        for finding in result.findings
        if finding.code == "SCOPE_MANIFEST_TODO"
    }
    mandatory = ("decode_context_parallel", "variable_context_length", "lora", "house_feature")
    keys = ("switch", *(f"features.{name}" for name in mandatory))
    assert undecided == {f"`{key}` is still to be decided" for key in keys}

    text = (work / PATH).read_text()
    put(work, PATH, re.sub('"TODO: setting[^"]*"', '"fast=1"', text).replace('"TODO"', '"served"'))
    git(work, "commit", "-am", "decide")
    assert run_check(work, "main", "HEAD").outcome is Outcome.PASSED


def test_one_decision_alone_is_not_enough(work: Path) -> None:
    main(["init", "--repo", str(work)])
    data = (work / PATH).read_bytes()
    marks = data.count(b'"TODO')
    assert marks == 5
    for position in [match.start() for match in re.finditer(b'"TODO[^"]*"', data)]:
        rest = re.sub(b'\\A"TODO[^"]*"', b'"served"', data[position:])
        manifest, findings = read(data[:position] + rest, PATH)
        assert manifest is None and len(findings) == marks - 1


def test_what_is_found_out_is_proposed(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(work, f"{ROOT}/state.py", "state = 2\n")  # changed, and no hook
    assert main(["init", "--repo", str(work), "--json"]) == 0
    document = told(capsys)
    assert (document["outcome"], document["path"], document["base"]) == ("passed", PATH, "main")
    assert document["findings"] == [] and document["hooks"] == [f"{ROOT}/model.py"]
    assert {finding["code"] for finding in document["undecided"]} == {"SCOPE_MANIFEST_TODO"}
    values = parse((work / PATH).read_bytes())[0].values  # type: ignore[union-attr]
    package = FAST.replace("/", ".")
    assert values["hooks"] == [f"{ROOT}/model.py"]
    assert (values["model"], values["vendor"], values["problem"]) == ("kimi_k3", "nvidia", "kimi_k3")
    assert (values["entry_point"], values["guard"]) == (f"{package}.gate:candidate", f"{package}.gate:enabled")
    assert [target["name"] for target in values["targets"]] == [
        name for name, target in load_catalog().targets.items() if target.owned
    ]
    limits = limits_of(load_catalog().models["kimi_k3"])
    assert values["serves"]["page_sizes"] == list(limits.page_sizes) != []
    assert values["serves"]["context"]["max"] == limits.context
    assert values["targets"][0]["decode_context_parallel"] == list(map(str, limits.decode_context_parallel))


def test_every_shape_that_is_proposed_can_be_raced(work: Path) -> None:
    problem, candidate = load("tiny"), house.candidate
    main(["init", "--repo", str(work)])
    text = re.sub('"TODO: setting[^"]*"', '"fast=1"', (work / PATH).read_text()).replace('"TODO"', '"served"')
    manifest, findings = read(text.encode(), PATH)
    assert manifest is not None and findings == []
    chosen = advertised(manifest, "cpu", "sha256:" + "0" * 64)
    assert chosen.complete
    for one in (*chosen.configurations, *guard_pool(manifest, "cpu", "sha256:" + "0" * 64)):
        shape = Shape(**one.model_dump())
        assert problem.check(shape) is None and candidate.supports(problem.facts, shape) is None, one.label


def test_every_key_stands_there_with_a_line_that_explains_it(work: Path) -> None:
    main(["init", "--repo", str(work)])
    lines = (work / PATH).read_text().splitlines()
    keys = {field.alias or name for name, field in Manifest.model_fields.items()}
    keys |= set(TargetScope.model_fields) | set(Serves.model_fields) | set(Claims.model_fields) | set(KNOWN_FEATURES)
    for key in keys:
        places = [n for n, line in enumerate(lines) if re.match(rf"(# )?\[*{key}\]*( =|$)", line)]
        assert places, f"{key} is missing"
        for place in places:
            above = next(n for n in range(place - 1, -1, -1) if not re.match(r"(# )?(\w+ = |\[\[?\w+\]?\]$)", lines[n]))
            assert lines[above].startswith("# ") or "  # " in lines[place], f"{key} is not explained"


def test_hooks_are_those_that_the_branch_has_committed_too(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(work, "add", "-A")
    git(work, "commit", "-m", "hook")
    put(work, f"{ROOT}/linear.py", "scale = 2\n")
    assert main(["init", "--repo", str(work), "--json"]) == 0
    assert told(capsys)["hooks"] == [f"{ROOT}/linear.py", f"{ROOT}/model.py"]


def test_a_moved_base_does_not_make_its_own_changes_hooks(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(work, "add", "-A")
    git(work, "commit", "-m", "hook")
    git(work, "checkout", "--quiet", "main")
    put(work, f"{ROOT}/linear.py", "scale = 3\n")
    git(work, "commit", "-am", "theirs")
    git(work, "checkout", "--quiet", "topic")
    assert main(["init", "--repo", str(work), "--json"]) == 0
    assert told(capsys)["hooks"] == [f"{ROOT}/model.py"]


def test_a_manifest_that_is_there_is_kept_unless_forced(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(work, PATH, "mine\n")
    assert main(["init", "--repo", str(work), "--json"]) == 1
    document = told(capsys)
    assert (document["outcome"], codes(document), document["path"]) == ("failed", ["INIT_EXISTS"], None)
    assert (work / PATH).read_text() == "mine\n"
    assert main(["init", "--repo", str(work), "--json", "--force"]) == 0
    assert told(capsys)["overwritten"] is True
    assert "schema = 1" in (work / PATH).read_text()
    assert [file.name for file in (work / FAST).iterdir() if file.name.startswith(".")] == []


def test_nothing_is_written_through_a_link(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outside = tmp_path / "outside"
    put(tmp_path, "outside/fast_track.toml", "theirs\n")
    (work / PATH).symlink_to(outside / "fast_track.toml")
    (work / ROOT / "fast_link").symlink_to(outside, target_is_directory=True)
    for directory in (FAST, f"{ROOT}/fast_link"):
        for more in ([], ["--force"]):
            assert main(["init", "--repo", str(work), directory, *more]) == 1
    assert (outside / "fast_track.toml").read_text() == "theirs\n"
    assert list(outside.iterdir()) == [outside / "fast_track.toml"]


def test_a_directory_that_is_not_there_is_made(repo: Path) -> None:
    assert main(["init", "--repo", str(repo), f"{ROOT}/fast_new"]) == 0
    text = (repo / ROOT / "fast_new" / "fast_track.toml").read_text()
    assert 'guard = "TODO: module:attribute, such as ' in text and "hooks = []" in text


def test_the_directory_may_be_told_from_a_directory_below(repo: Path) -> None:
    assert main(["init", "--repo", str(repo / ROOT), "fast_new"]) == 0
    assert main(["init", "--repo", str(repo), str(repo / ROOT / "fast_two")]) == 0
    assert (repo / ROOT / "fast_new" / "fast_track.toml").exists()
    assert (repo / ROOT / "fast_two" / "fast_track.toml").exists()


@pytest.mark.parametrize(
    "directory",
    [
        "", ".", "/", "..", ROOT, f"{ROOT}/slow", f"{FAST}/deeper", f"{ROOT}/fast-one", f"{ROOT}/Fast_one", f"{ROOT}/fast_a b",
        f"{ROOT}/fast_closed", f"{ROOT}/fast_\n", f"{ROOT}/model.py", ".git/fast_one", f"{ROOT}/../../../../fast_one",
    ],
)  # fmt: skip
def test_a_directory_that_is_not_free_is_refused(
    repo: Path, directory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path for path in repo.rglob("*"))
    assert main(["init", "--repo", str(repo), directory, "--json"]) == 1
    [finding] = told(capsys)["findings"]
    assert finding["code"] == "INIT_DIRECTORY" and f"{ROOT}/fast_*" in finding["expected"]
    assert sorted(path for path in repo.rglob("*")) == before


@pytest.mark.parametrize(
    ("directory", "why", "expected"),
    [
        (f"{ROOT}/slow", "is not free", "`free` of .github/gatekeeper.toml"),
        (f"{ROOT}/fast-one", "is not free", "`free` of .github/gatekeeper.toml"),
        (f"{ROOT}/fast_a b", "cannot import a package of this name", "underscores"),
    ],
)
def test_a_refused_directory_says_why(
    repo: Path, directory: str, why: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "--repo", str(repo), directory, "--json"]) == 1
    [finding] = told(capsys)["findings"]
    assert why in finding["message"] and expected in finding["expected"]


def test_a_missing_configuration_points_to_an_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = checkout(tmp_path / "bare", {"a": "1"})
    assert main(["init", "--repo", str(bare), FAST]) == 3
    assert "docs/gatekeeper.example.toml" in capsys.readouterr().err


def test_a_file_in_the_place_of_the_directory_is_refused(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(repo, f"{ROOT}/fast_file", "text\n")
    assert main(["init", "--repo", str(repo), f"{ROOT}/fast_file", "--force"]) == 1
    assert (repo / ROOT / "fast_file").read_text() == "text\n"


def test_none_or_several_touched_directories_are_a_question(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--repo", str(repo), "--json"]) == 1
    [finding] = told(capsys)["findings"]
    assert (finding["code"], finding["found"]) == ("INIT_DIRECTORY", "none is touched")
    for name in ("fast_a", "fast_b"):
        put(repo, f"{ROOT}/{name}/k.py", "k = 1\n")
    put(repo, f"{ROOT}/fast_c/k.pyc", "ignored\n")
    put(repo, ".git/info/exclude", "*.pyc\n")
    assert main(["init", "--repo", str(repo), "--json"]) == 1
    [finding] = told(capsys)["findings"]
    assert finding["expected"] == f"one of {ROOT}/fast_a, {ROOT}/fast_b"


def test_wildcards_of_a_root_tell_model_and_vendor(repo: Path) -> None:
    directory = "stock/models/other_moe/acme/fast_x"
    assert main(["init", "--repo", str(repo), directory]) == 0
    values = parse((repo / directory / "fast_track.toml").read_bytes())[0].values  # type: ignore[union-attr]
    assert (values["model"], values["vendor"]) == ("other_moe", "acme")
    assert values["problem"] == f"TODO: one of {', '.join(load_catalog().models)}"
    assert values["serves"]["rows"].startswith("TODO")
    assert main(["init", "--repo", str(repo), directory, "--problem", "kimi_k3", "--force"]) == 0
    values = parse((repo / directory / "fast_track.toml").read_bytes())[0].values  # type: ignore[union-attr]
    assert values["problem"] == "kimi_k3" and values["serves"]["rows"] == [1, 2, 4, 8]


def test_a_name_that_no_manifest_can_hold_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = RULES.replace('"house_feature"', '"House\\nfeature"')
    repo = checkout(tmp_path / "r", BASE | {".github/gatekeeper.toml": rules})
    assert main(["init", "--repo", str(repo), FAST, "--json"]) == 1
    assert codes(told(capsys)) == ["SCOPE_MANIFEST_VALUE"]
    assert not (repo / FAST).exists()


def test_a_repository_that_demands_nothing_still_gets_no_silent_pass(tmp_path: Path) -> None:
    rules = RULES.replace('mandatory_features = ["lora", "house_feature"]', "mandatory_features = []")
    repo = checkout(tmp_path / "r", BASE | {".github/gatekeeper.toml": rules})
    put(repo, f"{FAST}/gate.py", GATE)
    assert main(["init", "--repo", str(repo)]) == 0
    data = (repo / PATH).read_bytes().replace(b'"TODO"', b'"served"')
    assert [finding.code for finding in read(data, PATH)[1]] == ["SCOPE_MANIFEST_TODO"]


@pytest.mark.parametrize("option", ["--problem", "--target"])
def test_a_name_that_is_not_installed_is_wrong_usage(
    work: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "--repo", str(work), option, "nope"]) == 64
    assert "expected one of" in capsys.readouterr().err
    assert not (work / PATH).exists()


def test_limits_that_are_not_counts_are_left_open(tmp_path: Path) -> None:
    model = load_catalog().models["kimi_k3"]
    file = tmp_path / "kernels_under_test" / "kimi_k3" / "problems" / f"{model.default_problem}.toml"
    file.parent.mkdir(parents=True)
    for text in ("", "limits = 3\n", '[limits]\nrows = "8"\ncontext = true\npage_sizes = 4\n'):
        file.write_text(text)
        assert limits_of(model, tmp_path) == Limits()


def test_what_cannot_be_decided_is_told_as_json_with_status_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def error(where: Path, *more: str) -> str:
        assert main(["init", "--repo", str(where), "--json", *more]) == 3
        document = told(capsys)
        assert document["outcome"] == "error"
        [code] = codes(document)
        return str(code)

    plain = tmp_path / "plain"
    plain.mkdir()
    assert error(plain) == "LOCAL_WORK_TREE"
    GitBuilder(tmp_path / "bare.git").commit(BASE, branch="main")
    assert error(tmp_path / "bare.git") == "LOCAL_WORK_TREE"
    without = checkout(tmp_path / "without", {"a": "1"})
    assert error(without, FAST) == "CONFIG_MISSING"
    assert error(without, FAST, "--base", "nope") == "LOCAL_REVISION"
    bad = checkout(tmp_path / "bad", BASE | {".github/gatekeeper.toml": "schema = = 1\n"})
    assert error(bad, FAST) == "CONFIG_SYNTAX"
    other = checkout(tmp_path / "other", BASE)
    git(other, "branch", "-m", "main", "trunk")
    assert error(other, FAST) == "INIT_BASE"
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{other}", "shallow")
    assert error(tmp_path / "shallow", FAST) == "ISO_SHALLOW"


def test_a_clone_that_lacks_what_has_to_be_read_gets_no_skeleton(
    repo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(repo, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "--quiet", "--filter=blob:none", "--no-checkout", f"file://{repo}", "partial")
    assert main(["init", "--repo", str(tmp_path / "partial"), FAST, "--base", "origin/main", "--json"]) == 3
    assert codes(told(capsys)) == ["ISO_SHALLOW"]
    assert not (tmp_path / "partial" / FAST).exists()
    git(tmp_path / "partial", "checkout", "--quiet", "topic")
    assert main(["init", "--repo", str(tmp_path / "partial"), FAST, "--base", "origin/main"]) == 0


def test_unrelated_history_is_refused_and_a_detached_head_is_not(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(work, "checkout", "--quiet", "--detach")
    assert main(["init", "--repo", str(work)]) == 0
    git(work, "checkout", "--quiet", "--orphan", "alone")
    git(work, "commit", "-m", "alone")
    capsys.readouterr()
    assert main(["init", "--repo", str(work), "--force", "--json"]) == 1
    assert codes(told(capsys)) == ["ISO_NO_MERGE_BASE"]


def test_a_linked_work_tree_is_a_work_tree(work: Path, tmp_path: Path) -> None:
    git(work, "worktree", "add", "--quiet", str(tmp_path / "linked"), "main")
    assert main(["init", "--repo", str(tmp_path / "linked"), f"{ROOT}/fast_w"]) == 0
    assert (tmp_path / "linked" / ROOT / "fast_w" / "fast_track.toml").exists()


def test_a_policy_file_serves_before_the_base_has_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repo = checkout(tmp_path / "a clone", {f"{ROOT}/model.py": "pass\n"})
    (tmp_path / "p.toml").write_text(RULES)
    assert main(["init", "--repo", str(repo), FAST, "--policy", str(tmp_path / "p.toml")]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    git(repo, "add", "-A")
    git(repo, "commit", "-m", "begin")
    words = shlex.split(last.partition("gatekeeper ")[2])
    assert main(words) == 1  # what the answer says to run next is a command that works
    assert "SCOPE_MANIFEST_TODO" in capsys.readouterr().out
