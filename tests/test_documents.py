"""What the documents name exists: links, files, commands with their options, settings with their defaults, codes, targets of make."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gatekeeper.catalog import ROOT
from gatekeeper.cli import COMMANDS, LazyGroup, main
from gatekeeper.config import Settings
from gatekeeper.domain.repository import CONFIGURATION_PATH

DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
THEIRS = {
    CONFIGURATION_PATH,
    "fast_track.toml",
    "CODEOWNERS",
    "conftest.py",
    "setup.py",
    "pyproject.toml",
    "AGENTS.md",
    "k.py",
    "k/__init__.py",
}
"""Files of the repositories that are judged, and of examples."""
FAMILIES = "ISO|SCOPE|BENCH|COR|TIM|RUN|JAIL|HOOK|INIT|LOCAL|CONFIG|SRC|EFF|DECISION|STORE|REF|GIT|CI"
FOLDERS = "gatekeeper|policies|workers|kernels_under_test|benchmarks|docs|tests"
named = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)


def code_of(document: Path) -> list[str]:
    """Return the lines of the blocks of a document, and what stands between single backticks."""
    text = document.read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    return [line for block in blocks for line in block.splitlines()] + spans


def in_git() -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    return set(listed.stdout.split())


@named
def test_links_lead_to_files(document: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        if not target.startswith(("https://", "http://")):
            assert (document.parent / target.partition("#")[0]).exists(), target


@named
def test_files_that_are_named_exist(document: Path) -> None:
    known = in_git() or {str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()}
    ends = {"/".join(path.split("/")[-count:]) for path in known for count in (1, 2)}
    for name in code_of(document):
        if not re.fullmatch(rf"[\w.-]+(/[\w.-]+)*\.(py|toml|md|json|txt)|({FOLDERS})/[\w/.-]*", name) or name in THEIRS:
            continue
        assert (ROOT / name).exists() or (document.parent / name).exists() or name in ends, f"{name} does not exist"


def commands_of(document: Path) -> Iterator[list[str]]:
    for line in code_of(document):
        line = line.partition(" #")[0].strip()
        found = re.match(r"(?:GATEKEEPER_\w+=\S+ )*gatekeeper ([a-z][a-z-]+)\b(.*)", line)
        if found and not line.startswith("gatekeeper/"):
            yield [found[1], *shlex.split(found[2].replace("[", " ").replace("]", " "))]


@named
def test_commands_and_their_options_exist(document: Path) -> None:
    for name, *arguments in commands_of(document):
        assert name in COMMANDS, f"gatekeeper {name}"
        command = LazyGroup().get_command(click.Context(click.Command("x")), name)
        assert command is not None
        options = {each for param in command.params for each in (*param.opts, *param.secondary_opts)}
        for argument in arguments:
            if argument.startswith("--"):
                assert argument.partition("=")[0] in options, f"gatekeeper {name} {argument}"


def test_no_command_goes_without_a_document() -> None:
    seen = {name for document in DOCUMENTS for name, *_ in commands_of(document)}
    assert {"init", "check", "race", "serve", "worker", "waive", "approve"} <= seen
    assert (
        set(COMMANDS) - {name for name in COMMANDS if any(name in path.read_text("utf-8") for path in DOCUMENTS)}
        == set()
    )


@named
def test_targets_of_make_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in code_of(document):
        found = re.match(r"make ([a-z]+)", line)
        assert found is None or found[1] in targets, line


@named
def test_settings_that_are_named_exist(document: Path) -> None:
    for line in code_of(document):
        for name in re.findall(r"\bGATEKEEPER_([A-Z_]+[A-Z])\b", line):
            assert name.lower() in Settings.model_fields or line.startswith("GATEKEEPER_PORT=tcp"), name


def test_every_setting_is_in_a_table_with_its_default() -> None:
    told: dict[str, str] = {}
    for name in ("operating.md", "webhooks.md"):
        for row in re.findall(
            r"^\| (`[A-Z_]+`(?:, `[A-Z_]+`)*) \| ([^|]+) \|", (ROOT / "docs" / name).read_text("utf-8"), re.MULTILINE
        ):
            fields, defaults = re.findall(r"[A-Z_]+", row[0]), [part.strip("` ") for part in row[1].split(",")]
            assert len(fields) == len(defaults), row
            told |= dict(zip(fields, defaults, strict=True))
    assert {name.lower() for name in told} == set(Settings.model_fields)
    for name, shown in told.items():
        default = Settings.model_fields[name.lower()].default
        if shown in ("unset", "none", "[]", "{}"):
            assert default is None or not (
                default.get_secret_value() if hasattr(default, "get_secret_value") else default
            ), name
        elif isinstance(default, (int, float)):
            assert float(shown) == default, name
        else:
            assert shown == str(default), name


@named
def test_reason_codes_that_are_named_exist_in_the_code(document: Path) -> None:
    code = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("gatekeeper", "policies", "workers")
        for path in (ROOT / folder).rglob("*.py")
    )
    for name in code_of(document):
        if re.fullmatch(rf"({FAMILIES})_[A-Z_]+[A-Z]", name):
            of_a_setting = name.removeprefix("CONFIG_").lower() in Settings.model_fields
            assert re.search(rf"\b{name}\b", code) or of_a_setting, name


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """A repository with the example configuration on its base branch, and a branch to work on."""
    place = tmp_path / "vllm"
    for name, text in {
        CONFIGURATION_PATH: (ROOT / "docs" / "gatekeeper.example.toml").read_text(encoding="utf-8"),
        "vllm/__init__.py": "",
        "vllm/models/kimi_k3/nvidia/model.py": "def forward(x):\n    return x\n",
    }.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    git(place, "init", "--quiet", "--initial-branch=main")
    commit(place, "base")
    git(place, "checkout", "--quiet", "-b", "my-branch")
    return place


def git(place: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=place, check=True)


def commit(place: Path, message: str) -> None:
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "-m", message)


def write_example(place: Path) -> None:
    """Write the candidate of ``docs/candidate.md`` to the path that its first line names."""
    block = re.search(
        r"^```python\n# (\S+)\n(.*?)^```", (ROOT / "docs" / "candidate.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert block is not None
    (place / block[1]).parent.mkdir(parents=True, exist_ok=True)
    (place / block[1]).write_text(block[2])


def test_the_steps_of_the_page_about_candidates_lead_to_a_check_that_passes(
    upstream: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(upstream)
    write_example(upstream)
    assert main(["init", "vllm/models/kimi_k3/nvidia/specialized_decode"]) == 0
    manifest = upstream / "vllm/models/kimi_k3/nvidia/specialized_decode/fast_track.toml"
    text = manifest.read_text()
    assert 'specialized_decode.gate:candidate"' in text and 'specialized_decode.gate:enabled"' in text, "found by init"
    commit(upstream, "undecided")
    check = ["check", "--repo", ".", "--base", "main", "--head", "my-branch"]
    assert main(check) == 1 and "SCOPE_MANIFEST_TODO" in capsys.readouterr().out
    decided = re.sub(r'= "TODO: setting=value.*"', '= "additional_config.decode_backend=latency_specialized"', text)
    manifest.write_text(decided.replace('"TODO"', '"served"'))
    commit(upstream, "decided")
    assert main(check) == 0, capsys.readouterr().out


@pytest.mark.race
def test_the_candidate_that_copies_its_input_is_wrong_as_its_page_says(
    upstream: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(upstream)
    write_example(upstream)
    entry = ".::vllm.models.kimi_k3.nvidia.specialized_decode.gate:candidate"
    assert main(["race", "--model", "kimi_k3", "--candidate", entry, "--rows", "1,8"]) == 1
    assert capsys.readouterr().out.startswith("WRONG")
