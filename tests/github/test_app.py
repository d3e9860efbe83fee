"""Identity: who the App says it is, which token it gets for what, and for how long it is used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gatekeeper.domain.errors import ConfigurationError, Conflict, Retryable
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.github.app import INSTALLED, NOT_INSTALLED, PERMISSIONS, RENEW_BEFORE, GithubApp, Identity
from gatekeeper.github.meter import Meter
from tests.github.sample_app import REPOSITORY, Clock, bodies, installed, keys
from tests.github.serving import served
from tests.github.world import APP, CLIENT_ID, INSTALLATION, Pull, World

PULL = f"/repos/{REPOSITORY.full_name}/pulls/1"
Sides = tuple[World, GithubApp, Clock]


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[Sides]:
    with installed(tmp_path) as made:
        made[0].repositories[7].pulls[1] = Pull("a" * 40)
        yield made


def test_a_token_is_asked_for_one_repository_and_the_permissions_that_are_used(sides: Sides) -> None:
    world, app, _ = sides
    assert app.client(REPOSITORY).get(PULL)["number"] == 1
    (asked,) = world.writes("access_tokens")
    assert asked.path == f"/app/installations/{INSTALLATION}/access_tokens"
    assert asked.body == {"repository_ids": [REPOSITORY.id], "permissions": PERMISSIONS}


def test_a_token_is_kept_and_replaced_before_it_ends(sides: Sides) -> None:
    world, app, clock = sides
    for _ in range(3):
        app.client(REPOSITORY).get(PULL)
    assert len(world.tokens) == 1
    clock.moment += world.token_seconds - RENEW_BEFORE - 1
    app.client(REPOSITORY).get(PULL)
    assert len(world.tokens) == 1
    clock.moment += 2
    app.client(REPOSITORY).get(PULL)
    assert len(world.tokens) == 2 and not [each for each in world.requests if each.status == 401]


def test_a_token_that_was_withdrawn_is_replaced_at_once(sides: Sides) -> None:
    world, app, _ = sides
    app.client(REPOSITORY).get(PULL)
    world.tokens.clear()
    assert app.client(REPOSITORY).get(PULL)["number"] == 1
    assert [each.status for each in world.requests if each.path == PULL] == [200, 401, 304]


def test_a_token_that_is_refused_for_good_is_not_asked_for_without_end(sides: Sides) -> None:
    world, app, _ = sides
    world.fail(401, on=PULL, times=9)
    with pytest.raises(Retryable, match="GITHUB_AUTHENTICATION"):
        app.client(REPOSITORY).get(PULL)
    assert len([each for each in world.requests if each.path == PULL]) == 2


def test_the_token_of_one_repository_does_not_open_another_of_the_same_installation(sides: Sides) -> None:
    world, app, _ = sides
    other = world.repository(9, "acme/secret")
    other.pulls[1] = Pull("a" * 40)
    with pytest.raises(Conflict, match="GITHUB_MISSING"):
        app.client(REPOSITORY).get("/repos/acme/secret/pulls/1")
    assert app.client(RepositoryRef(id=9, full_name="acme/secret")).get("/repos/acme/secret/pulls/1")["number"] == 1
    assert sorted(bodies(world.writes("access_tokens")), key=str) == [
        {"repository_ids": [7], "permissions": PERMISSIONS}, {"repository_ids": [9], "permissions": PERMISSIONS},
    ]  # fmt: skip


def test_a_name_that_another_repository_took_gives_no_access(sides: Sides) -> None:
    world, app, _ = sides
    world.repositories[7].full_name = "acme/renamed"
    world.repository(10, REPOSITORY.full_name, installation=INSTALLATION).pulls[1] = Pull("f" * 40)
    with pytest.raises(Conflict, match="GITHUB_MISSING"):
        app.client(REPOSITORY).get(PULL)


def test_an_installation_is_looked_up_once_and_again_after_a_while(sides: Sides) -> None:
    world, app, clock = sides

    def lookups() -> int:
        return sum(each.path.endswith("/installation") for each in world.requests)

    assert app.installation(REPOSITORY) == app.installation(REPOSITORY) == INSTALLATION
    assert lookups() == 1
    clock.moment += INSTALLED + 1
    app.installation(REPOSITORY)
    assert lookups() == 2


def test_a_repository_without_the_app_is_not_asked_about_each_time(sides: Sides) -> None:
    world, app, clock = sides
    world.repositories[7].installation = None
    for _ in range(3):
        with pytest.raises(Conflict, match="GITHUB_NOT_INSTALLED"):
            app.client(REPOSITORY)
    assert len(world.requests) == 1
    world.repositories[7].installation = INSTALLATION
    clock.moment += NOT_INSTALLED + 1
    assert app.client(REPOSITORY).get(PULL)["number"] == 1


def test_an_app_that_was_removed_or_suspended_says_so(sides: Sides) -> None:
    world, app, _ = sides
    client = app.client(REPOSITORY)
    client.get(PULL)
    world.repositories[7].installation = None
    world.tokens.clear()
    with pytest.raises(Conflict, match="GITHUB_NOT_INSTALLED"):
        client.get(PULL)
    world.repositories[7].installation = INSTALLATION
    world.suspended.add(INSTALLATION)
    with pytest.raises(Conflict, match="GITHUB_SUSPENDED"):
        app.client(REPOSITORY)


@pytest.mark.parametrize("name", [CLIENT_ID, str(APP)])
def test_the_apps_number_is_known_or_asked_for_once(tmp_path: Path, name: str) -> None:
    with installed(tmp_path, app=name) as (world, app, _):
        assert app.number() == app.number() == APP
        assert len(world.requests) == (0 if name.isdigit() else 1)


def test_a_missing_permission_is_told_as_that(sides: Sides) -> None:
    world, app, _ = sides
    app.client(REPOSITORY).get(PULL)
    world.granted["checks"] = "read"
    with pytest.raises(Retryable, match=r"GITHUB_PERMISSION.*Resource not accessible by integration"):
        app.client(REPOSITORY).send("POST", f"/repos/{REPOSITORY.full_name}/check-runs", {"name": "x"})


@pytest.mark.parametrize(
    ("name", "key", "url", "code"),
    [
        ("", None, "https://api.github.com", "CONFIG_GITHUB_APP"),
        ("my app", None, "https://api.github.com", "CONFIG_GITHUB_APP"),
        ("1", "no key", "https://api.github.com", "CONFIG_GITHUB_PRIVATE_KEY"),
        (
            "1",
            "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n",
            "",
            "CONFIG_GITHUB_PRIVATE_KEY",
        ),
        ("1", None, "http://api.github.com", "CONFIG_GITHUB_API_URL"),
        ("1", None, "https://me:secret@host/api/v3", "CONFIG_GITHUB_API_URL"),
        ("1", None, "ftp://host", "CONFIG_GITHUB_API_URL"),
    ],
)
def test_a_wrong_identity_refuses_to_start(name: str, key: str | None, url: str, code: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Identity(name, keys()[0] if key is None else key, url)
    assert caught.value.code == code and "PRIVATE KEY-----" not in str(caught.value)


def test_neither_key_nor_token_is_in_what_objects_print(sides: Sides) -> None:
    world, app, _ = sides
    app.client(REPOSITORY).get(PULL)
    shown = repr(Identity(CLIENT_ID, keys()[0])) + repr(vars(app))
    assert "PRIVATE KEY" not in shown and not any(token in shown for token in world.tokens)


def test_the_quota_is_metered(sides: Sides) -> None:
    world, app, _ = sides
    for _ in range(2):
        app.client(REPOSITORY).get(PULL)
    world.fail(500, on=PULL)
    with pytest.raises(Retryable):
        app.client(REPOSITORY).get(PULL)
    told = app.meter.read()
    assert told[str(INSTALLATION)] | {"resets_at": None} == {
        "reads": 3, "writes": 0, "not_modified": 1, "limited": 0, "failed": 1, "silent": 0, "limit": 5000,
        "remaining": world.remaining, "resets_at": None,
    }  # fmt: skip
    assert told["app"]["writes"] == 1 and told["app"]["reads"] == 1
    assert Meter().read() == {}


def test_an_enterprise_server_has_its_api_below_a_path(tmp_path: Path) -> None:
    world = World(keys()[1], Clock().now)
    world.repository(REPOSITORY.id, REPOSITORY.full_name).pulls[1] = Pull("a" * 40)
    with served(world) as url:
        app = GithubApp(Identity(CLIENT_ID, keys()[0], f"{url}/api/v3/"), tmp_path, now=world.now)
        assert app.client(REPOSITORY).get(PULL)["number"] == 1
