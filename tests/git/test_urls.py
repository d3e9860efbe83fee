"""Only the operator's address and plain names reach git."""

from __future__ import annotations

import pytest

from gatekeeper.domain.errors import ConfigurationError, Rejected
from gatekeeper.git.urls import branch_ref, pull_ref, remote

BAD = [
    "ext::sh -c touch% x", "-uhttps://github.com", "ssh://-oProxyCommand=x/", "ssh://github.com", "git@github.com:a/b",
    "http://169.254.169.254", "https://169.254.169.254", "https://[::1]", "https://2852039166", "https://0x7f000001",
    "https://user@github.com", "https://user:pw@github.com", "https://github.com@evil.example", "https://github.com/path",
    "https://github.com?x", "https://github.com#x", "file://host/path", "file:///a/../b", "http://github.com",
    "https://github.com\\@evil.example", "https://git\nhub.com", "/srv/git", "", "https://", "fd::17/x", "git://github.com",
    "https://github.com:x", "https://localhost", "file:///",
]  # fmt: skip


@pytest.mark.parametrize("url", BAD)
def test_ci_git_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="CI_URL"):
        remote(url)


@pytest.mark.parametrize(
    ("base", "scheme", "url"),
    [
        ("https://github.com", "https", "https://github.com/up/repo.git"),
        ("https://git.example.org:8443/", "https", "https://git.example.org:8443/up/repo.git"),
        ("http://127.0.0.1:8080", "http", "http://127.0.0.1:8080/up/repo.git"),
        ("file:///srv/git", "file", "file:///srv/git/up/repo.git"),
    ],
)
def test_honest_addresses_pass(base: str, scheme: str, url: str) -> None:
    made = remote(base)
    assert (made.scheme, made.url("up/repo")) == (scheme, url)


@pytest.mark.parametrize(
    "name", ["../x", "a/..", "-a/b", "a/-b", "a", "a/b/c", "a/b.git", "a/b\n", "a/b?c", "a@b/c", "a/ b", "/", "./b"]
)
def test_repository_names_are_plain(name: str) -> None:
    with pytest.raises(Rejected, match="CI_URL"):
        remote("https://github.com").url(name)


def test_refs_are_built_from_checked_parts() -> None:
    assert branch_ref("release/1.2") == "refs/heads/release/1.2"
    assert pull_ref(12) == "refs/pull/12/head"
    for number in (0, -1, True, 10**12):
        with pytest.raises(Rejected, match="CI_REF"):
            pull_ref(number)
