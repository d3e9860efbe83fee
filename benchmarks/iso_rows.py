"""Counts false passes and false blocks over the isolation rows: python -m benchmarks.iso_rows"""

from __future__ import annotations

import tempfile
from pathlib import Path

from gatekeeper.domain.policy import Outcome
from tests.policies.isolation.attacks import ATTACKS
from tests.policies.isolation.guards import GUARDS
from tests.policies.isolation.rows import ROWS, Row


def passes(row: Row, trick: bool) -> bool:
    """Return whether a row's trick, or its honest twin, gets through."""
    with tempfile.TemporaryDirectory() as folder:
        return row.run(Path(folder), trick).outcome is Outcome.PASSED


def main() -> None:
    """Print both counts and the rows behind them, for the battery's rows and for those beyond it."""
    for table, rows in (("battery", ROWS), ("beyond", ATTACKS), ("guards", GUARDS)):
        wrong = {"false passes": [row.id for row in rows if passes(row, True)],
                 "false blocks": [row.id for row in rows if not passes(row, False)]}  # fmt: skip
        for name, ids in wrong.items():
            print(f"{table}: {name}: {len(ids)} of {len(rows)}", *ids)


if __name__ == "__main__":
    main()
