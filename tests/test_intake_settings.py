"""What an operator sets about webhooks reaches the part that obeys it, and a setting that would open the gate stops the start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from gatekeeper import bootstrap
from gatekeeper.cli.serve import web_app
from gatekeeper.config import Settings
from gatekeeper.domain.errors import ConfigurationError
from gatekeeper.github.tenants import EVERYWHERE
from gatekeeper.services.deliveries import Quotas
from gatekeeper.web.errors import STATUS_OF_CODE

LONG, OTHER = "s" * 40, "t" * 40


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WEBHOOK_SECRET", "WEBHOOK_SECRETS", "PREVIOUS_WEBHOOK_SECRET", "ALLOWED_INSTALLATIONS", "BROKER_URL"):
        monkeypatch.delenv(f"GATEKEEPER_{name}", raising=False)


@pytest.mark.parametrize(
    ("values", "named", "found"),
    [
        ({}, "GATEKEEPER_WEBHOOK_SECRET is not set", "found nothing"),
        ({"webhook_secret": "short"}, "GATEKEEPER_WEBHOOK_SECRET is too short", "found 5 bytes"),
        (
            {"webhook_secret": LONG, "previous_webhook_secret": "old"},
            "GATEKEEPER_PREVIOUS_WEBHOOK_SECRET",
            "found 3 bytes",
        ),
        ({"webhook_secrets": {"demo/vllm": ["short"]}}, "GATEKEEPER_WEBHOOK_SECRETS, for demo/vllm,", "found 5 bytes"),
        (
            {"webhook_secrets": {"demo/vllm": [LONG] * 3}},
            "GATEKEEPER_WEBHOOK_SECRETS, for demo/vllm,",
            "found 3 secrets",
        ),
    ],
)
def test_a_secret_that_will_not_do_is_named_with_how_to_make_one(
    values: dict[str, object], named: str, found: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        bootstrap.keyring(Settings(**values))  # type: ignore[arg-type]
    said = str(refused.value)
    assert named in said and found in said and ("openssl rand -hex 32" in said) == ("bytes" in said)


def test_secrets_are_read_by_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEKEEPER_WEBHOOK_SECRET", LONG)
    monkeypatch.setenv("GATEKEEPER_PREVIOUS_WEBHOOK_SECRET", OTHER)
    monkeypatch.setenv(
        "GATEKEEPER_WEBHOOK_SECRETS", f'{{"Demo/vLLM": ["{OTHER}"], "installation:8": ["{LONG}", "{OTHER}"]}}'
    )
    monkeypatch.setenv("GATEKEEPER_ALLOWED_REPOSITORIES", '["Demo/vLLM"]')
    monkeypatch.setenv("GATEKEEPER_ALLOWED_INSTALLATIONS", "[8]")
    settings = bootstrap.load_settings()
    keyring = bootstrap.keyring(settings)
    assert keyring.secrets == {
        EVERYWHERE: (LONG.encode(), OTHER.encode()), "demo/vllm": (OTHER.encode(),),
        "installation:8": (LONG.encode(), OTHER.encode()),
    }  # fmt: skip
    assert (keyring.repositories, keyring.installations) == ({"demo/vllm"}, {8})
    assert LONG not in repr(settings) + str(settings) and OTHER not in repr(settings)
    assert LONG not in repr(keyring) and OTHER not in str(keyring)


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({}, "CONFIG_WEBHOOK_SECRET"),
        ({"webhook_secret": "short"}, "CONFIG_WEBHOOK_SECRET"),
        ({"webhook_secret": LONG, "previous_webhook_secret": ""}, "CONFIG_WEBHOOK_SECRET"),
        ({"webhook_secrets": {"demo/vllm": ["short"]}}, "CONFIG_WEBHOOK_SECRET"),
        ({"webhook_secret": "short", "webhook_secrets": {"demo/vllm": [LONG]}}, "CONFIG_WEBHOOK_SECRET"),
        ({"webhook_secret": LONG, "webhook_secrets": {"demo": [LONG]}}, "CONFIG_WEBHOOK_SECRETS"),
    ],
)
def test_hook_empty_secret_stops_the_start(values: dict[str, object], code: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        bootstrap.keyring(Settings(**values))  # type: ignore[arg-type]
    assert refused.value.code == code


def test_a_secret_for_everything_else_may_be_left_out() -> None:
    keyring = bootstrap.keyring(Settings(webhook_secrets={"demo/vllm": (LONG,)}))  # type: ignore[dict-item]
    assert set(keyring.secrets) == {"demo/vllm"}


def test_quotas_follow_the_settings_and_have_the_same_defaults() -> None:
    assert bootstrap.quotas(Settings()) == Quotas()
    narrow = Settings(
        repository_deliveries=1,
        sender_deliveries=2,
        repository_delivery_bytes=3,
        repository_intakes=4,
        author_intakes=5,
    )
    assert bootstrap.quotas(narrow) == Quotas(1, 2, 3, 4, 5)


def test_the_page_about_webhooks_names_every_setting_and_every_code() -> None:
    page = (Path(__file__).parents[1] / "docs" / "webhooks.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| (\S+) \|", page, re.MULTILINE))
    assert {name for name in Settings.model_fields if "webhook" in name or "deliver" in name or "intakes" in name} <= {
        name.lower() for name in rows
    }
    for name, default in rows.items():
        field = Settings.model_fields[name.lower()]
        if default.isdigit():
            assert int(default) == field.default, name
    for code, status in STATUS_OF_CODE.items():
        if code.startswith("HOOK_"):
            assert re.search(rf"^\| {status} \|[^|]*`{code}`", page, re.MULTILINE), code


@pytest.mark.parametrize(
    ("broker", "setting", "open"),
    [
        (None, None, True),
        (None, False, False),
        (None, True, True),
        ("redis://127.0.0.1:1/0", None, False),
        ("redis://127.0.0.1:1/0", True, True),
        ("redis://127.0.0.1:1/0", False, False),
    ],
)
def test_web_unauth_surface_follows_the_settings(broker: str | None, setting: bool | None, open: bool) -> None:
    assert bootstrap.documented(Settings(broker_url=broker, documentation=setting)) is open  # type: ignore[arg-type]


@pytest.mark.parametrize("setting", [True, False])
def test_web_unauth_surface_of_the_real_application(tmp_path: Path, setting: bool) -> None:
    settings = Settings(
        database_url=f"sqlite:///{tmp_path / 'gatekeeper.db'}",
        data_dir=tmp_path / "data",
        webhook_secret=LONG,  # type: ignore[arg-type]
        documentation=setting,
    )
    service = bootstrap.build(settings)
    try:
        client = TestClient(web_app(service), base_url="http://127.0.0.1")
        wanted = 200 if setting else 404
        assert [client.get(path).status_code for path in ("/docs", "/openapi.json")] == [wanted, wanted]
        assert [client.get(path).status_code for path in ("/redoc", "/docs/oauth2-redirect")] == [404, 404]
        for path in ("/", "/nothing"):
            assert ('href="/docs"' in client.get(path).text) is setting, "no page links to what is not there"
    finally:
        service.close()
