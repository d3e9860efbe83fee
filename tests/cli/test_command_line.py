"""The command line as scripts see it: exit statuses, one JSON document, and lines that can be read from a pipe."""

from __future__ import annotations

import json

import click
import pytest

from gatekeeper.cli import COMMANDS, LazyGroup, main
from gatekeeper.cli.answers import Answering, json_flag
from gatekeeper.domain.errors import Rejected
from gatekeeper.engine import load_policies

OF_EVERY_FINDING = {"policy", "code", "severity", "path", "line", "expected", "found", "message"}


@click.command(cls=Answering)
@json_flag
@click.option("--how", required=True)
def broken(how: str, json_wanted: bool) -> int:
    """Fail in one way or another."""
    if how == "usage":
        raise click.BadParameter("expected another way", param_hint="--how")
    raise {
        "rejected": Rejected("no\x1b[2J", code="LOCAL_X", expected="a", found="b"),
        "system": PermissionError(13, "Permission denied", "/somewhere"),
        "bug": ZeroDivisionError("division by zero"),
        "stop": KeyboardInterrupt(),
    }[how]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command line know one more command."""
    others = LazyGroup.get_command
    monkeypatch.setattr(
        LazyGroup, "get_command", lambda self, ctx, name: broken if name == "broken" else others(self, ctx, name)
    )


@pytest.mark.usefixtures("command")
@pytest.mark.parametrize(
    ("how", "status", "code", "text"),
    [
        ("rejected", 3, "LOCAL_X", "gatekeeper: LOCAL_X: no\\x1b[2J (expected a; found b)\n"),
        ("system", 3, "OS_ERROR", "gatekeeper: OS_ERROR: Permission denied: /somewhere\n"),
        ("bug", 3, "INTERNAL_ERROR", "ZeroDivisionError"),
    ],
)
def test_a_command_that_cannot_decide_says_so_in_both_ways(
    how: str, status: int, code: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["broken", "--how", how]) == status
    told = capsys.readouterr()
    assert told.out == "" and text in told.err
    assert main(["broken", "--how", how, "--json"]) == status
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert document["outcome"] == "error" and text in told.err
    [finding] = document["findings"]
    assert finding["code"] == code and set(finding) >= OF_EVERY_FINDING


@pytest.mark.usefixtures("command")
def test_wrong_usage_and_an_interrupt_have_their_own_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broken"]) == 64
    assert main(["broken", "--how", "usage", "--json"]) == 64
    assert main(["broken", "--how", "stop"]) == 130
    assert main(["brocken"]) == 64
    assert main([]) == 64
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("name", "key"), [("policies", "id"), ("targets", "name"), ("models", "name")])
def test_what_is_installed_is_one_document_or_one_line_an_entry(
    name: str, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["outcome"], document["findings"]) == ("passed", [])
    entries = document[name]
    assert entries and all(field.isidentifier() for entry in entries for field in entry)
    assert main([name]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [entry[key] for entry in entries]
    assert all(entry["title"] in line for entry, line in zip(entries, lines[1:], strict=True))


def test_a_policy_is_explained_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    for name, (policy, explanation) in load_policies().items():
        assert main(["policies", name]) == 0
        told = capsys.readouterr().out
        assert explanation in told and f"gatekeeper/{policy.check}" in told
        assert all(f"  {parameter} = " in told for parameter in policy.parameters.model_fields)
    assert main(["policies", "no_such"]) == 64
    assert main(["policies", "isolation", "--json"]) == 0
    [entry] = json.loads(capsys.readouterr().out)["policies"]
    assert entry["parameters"]["max_files"]["default"] == 3000


def test_the_name_of_a_check_lists_its_policies(capsys: pytest.CaptureFixture[str]) -> None:
    of_scope = [name for name, (policy, _) in load_policies().items() if policy.check == "scope"]
    assert main(["policies", "scope"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == of_scope
    assert main(["policies", "scope", "--json"]) == 0
    assert [entry["id"] for entry in json.loads(capsys.readouterr().out)["policies"]] == of_scope
    assert main(["policies", "isolation"]) == 0
    assert "Other policies of the check gatekeeper/isolation: " in capsys.readouterr().out
    assert main(["policies", "no_such"]) == 64
    assert "or a check: " in capsys.readouterr().err


def test_help_lists_every_command_with_its_whole_sentence_where_the_terminal_is_narrow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    assert main(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "..." not in shown.partition("Commands:")[2]
    for name in COMMANDS:
        command = LazyGroup().get_command(click.Context(click.Command("x")), name)
        assert command is not None and command.help is not None
        sentence = " ".join(command.help.split("\n\n")[0].split()).split(". ")[0].rstrip(".")
        assert f" {name} {sentence}" in shown
