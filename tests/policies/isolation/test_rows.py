"""Every row of the isolation battery: the trick gets its outcome, its reason and its path; the honest twin passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gatekeeper.domain.policy import Outcome
from tests.policies.isolation.attacks import ATTACKS
from tests.policies.isolation.guards import GUARDS
from tests.policies.isolation.rows import ROWS, Row
from tests.policies.isolation.scenes import INSIDE, judge, start

BATTERY = 36


def test_every_row_of_the_battery_is_here() -> None:
    assert len({row.id.split()[0] for row in ROWS} - {"iso-symlink-in-base-root"}) == BATTERY


@pytest.mark.parametrize("row", [*ROWS, *ATTACKS, *GUARDS], ids=lambda row: row.id)
def test_trick(row: Row, tmp_path: Path) -> None:
    answer = row.run(tmp_path, True)
    assert answer.outcome is row.outcome, answer.findings
    for path in row.paths:
        assert answer.find(row.code, path), (row.code, path, answer.findings)


@pytest.mark.parametrize("row", [*ROWS, *ATTACKS, *GUARDS], ids=lambda row: row.id)
def test_honest_twin(row: Row, tmp_path: Path) -> None:
    answer = row.run(tmp_path, False)
    assert answer.outcome is Outcome.PASSED, answer.findings


def test_a_conflict_is_held_and_names_its_files(tmp_path: Path) -> None:
    git, base = start(tmp_path)
    more = [f"kernels/cand/c{number}.py" for number in range(4)]
    head = git.commit({**INSIDE, **dict.fromkeys(more, "a = 1\n")}, parent=base)
    moved = git.commit(dict.fromkeys(more, "b = 1\n"), parent=base)
    answer = judge(git.path, moved, head)
    assert answer.outcome is Outcome.PENDING
    (finding,) = answer.find("ISO_CONFLICT")
    assert finding.found == f"conflicts in {', '.join(more[:3])} and 1 more"
    assert finding.path == more[0]
