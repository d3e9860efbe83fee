"""How git is started, and what it may say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gatekeeper.domain.errors import ConfigurationError, GatekeeperError, Retryable
from gatekeeper.git import plumbing
from tests.git_builder import GitBuilder


@pytest.mark.parametrize("told", ["git version 2.37.9", "git version 1.9.0", "busybox", ""])
def test_an_old_git_is_refused_with_what_was_found(told: str) -> None:
    with pytest.raises(ConfigurationError, match=r"2\.38 or newer"):
        plumbing.check_version(told)


def test_a_new_git_is_accepted() -> None:
    assert plumbing.check_version("git version 2.38.0") == (2, 38)
    assert plumbing.check_version("git version 2.50.1 (Vendor Git-155)") == (2, 50)


def test_the_environment_comes_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_SSH_COMMAND", "touch x")
    monkeypatch.setenv("LD_PRELOAD", "x.so")
    monkeypatch.setenv("GATEKEEPER_SECRET", "x")
    made = plumbing.environment(Path("/r"))
    assert not {"GIT_SSH_COMMAND", "LD_PRELOAD", "GATEKEEPER_SECRET"} & set(made)
    assert made["GIT_ALLOW_PROTOCOL"] == "none"
    assert made["GIT_DIR"] == "/r"


@pytest.mark.parametrize(
    "text",
    [
        "https://me:hunter2@host/x",
        "Authorization: Basic hunter2",
        "token ghp_hunter2hunter2",
        "github_pat_hunter2hunter2",
        "a hunter2 b",
    ],
)
def test_ci_token_in_git_is_scrubbed(text: str) -> None:
    assert "hunter2" not in plumbing.scrub(text, ["hunter2"] if text.startswith("a ") else ())


def test_honest_text_is_left_alone() -> None:
    assert (
        plumbing.scrub("fatal: couldn't find remote ref refs/heads/a@b")
        == "fatal: couldn't find remote ref refs/heads/a@b"
    )


def test_limits_on_time_and_output(tmp_path: Path) -> None:
    repo = GitBuilder(tmp_path / "r.git")
    blob = repo.blob("x" * 5000)
    assert plumbing.run(repo.path, "cat-file", "blob", blob).output == b"x" * 5000
    with pytest.raises(GatekeeperError, match="GIT_OUTPUT"):
        plumbing.run(repo.path, "cat-file", "blob", blob, output_bytes=100)
    os.mkfifo(tmp_path / "never")  # nobody ever writes into it, so that git waits however quick or slow this machine is
    with pytest.raises(Retryable, match="GIT_TIMEOUT"):
        plumbing.run(repo.path, "hash-object", "--", str(tmp_path / "never"), seconds=0.2)


def test_ci_filename_injection_reaches_no_shell(tmp_path: Path) -> None:
    repo = GitBuilder(tmp_path / "r.git")
    for name in (f"$(touch {tmp_path}/m).py", f"`touch {tmp_path}/m`", f"; touch {tmp_path}/m"):
        with pytest.raises(GatekeeperError, match="GIT_FAILED"):
            plumbing.run(repo.path, "rev-parse", "--verify", "--end-of-options", name)
    assert not (tmp_path / "m").exists()


def test_no_transport_is_allowed_unless_asked_for(tmp_path: Path) -> None:
    repo = GitBuilder(tmp_path / "r.git")
    repo.commit({"a": "a\n"}, branch="main")
    for url in (f"file://{repo.path}", f"ext::sh -c 'touch {tmp_path}/m'"):
        with pytest.raises(GatekeeperError, match="not allowed"):
            plumbing.run(repo.path, "ls-remote", "--", url)
    assert plumbing.run(repo.path, "ls-remote", "--", f"file://{repo.path}", protocol="file").output
    assert not (tmp_path / "m").exists()
