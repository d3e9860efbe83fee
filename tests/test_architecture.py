"""The structure holds: import contracts, discovery of policies, targets, models and policy sets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gatekeeper.catalog import ROOT, load_catalog
from gatekeeper.cli import COMMANDS, LazyGroup, main
from gatekeeper.domain.errors import ConfigurationError
from gatekeeper.domain.policy_set import parse_policy_set
from gatekeeper.engine import load_policies, open_book, open_installed_books


def test_import_contracts_hold() -> None:
    linter = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "0 broken" in done.stdout, done.stdout[-2000:] + done.stderr[-500:]


def test_every_policy_set_fits_the_installed_policies_and_has_a_digest_of_its_own() -> None:
    books = open_installed_books()
    assert {"default", "demo"} <= set(books)
    assert len({book.digest for book in books.values()}) == len(books)
    assert {item.policy.id for item in books["default"].installed} == set(load_policies())


@pytest.mark.parametrize(
    "text",
    [
        'schema = 1\nname = "x"\n[policies.no_such_policy]\nseverity = "off"\n',
        'schema = 1\nname = "x"\n[policies.isolation.parameters]\nno_such_parameter = 1\n',
    ],
)
def test_a_misspelt_name_in_a_policy_set_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="CONFIG_POLICY_SET"):
        open_book(parse_policy_set(text, source="x.toml"))


def test_targets_and_models_are_installed() -> None:
    catalog = load_catalog()
    assert "cpu" in catalog.targets
    assert catalog.models["kimi_k3"].kernels_per_layer == {"baseline": 23, "candidate": 13}


def test_every_command_can_be_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    group = LazyGroup()
    for name in COMMANDS:
        assert group.get_command(None, name) is not None  # type: ignore[arg-type]
        assert main([name, "--help"]) == 0
    assert main(["check", "--no-such-option"]) == 64
