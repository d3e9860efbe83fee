"""Every row of the isolation battery: the trick gets its outcome, its reason and its path; the honest twin passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gatekeeper.domain.policy import Outcome
from tests.policies.isolation.attacks import ATTACKS
from tests.policies.isolation.rows import ROWS, Row

BATTERY = 36


def test_every_row_of_the_battery_is_here() -> None:
    assert len({row.id.split()[0] for row in ROWS} - {"iso-symlink-in-base-root"}) == BATTERY


@pytest.mark.parametrize("row", [*ROWS, *ATTACKS], ids=lambda row: row.id)
def test_trick(row: Row, tmp_path: Path) -> None:
    answer = row.run(tmp_path, True)
    assert answer.outcome is row.outcome, answer.findings
    for path in row.paths:
        assert answer.find(row.code, path), (row.code, path, answer.findings)


@pytest.mark.parametrize("row", [*ROWS, *ATTACKS], ids=lambda row: row.id)
def test_honest_twin(row: Row, tmp_path: Path) -> None:
    answer = row.run(tmp_path, False)
    assert answer.outcome is Outcome.PASSED, answer.findings
