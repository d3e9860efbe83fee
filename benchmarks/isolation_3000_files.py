"""Time of judging a change of 3,000 files: snapshot, both comparisons, merge and, where installed, the static policies.

Run: ``python benchmarks/isolation_3000_files.py``. Prints seconds; nothing is asserted.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gatekeeper.cli.check import run_check
from gatekeeper.domain.errors import ConfigurationError
from gatekeeper.domain.snapshot import Author, PullFacts
from gatekeeper.git.repository import Repository
from gatekeeper.git.snapshots import build
from tests.git_builder import GitBuilder

FILES = 3_000
CONFIGURATION = 'schema = 1\n[[models]]\nname = "m"\nroot = "vllm/models"\nfree = ["m0"]\n'
DIGEST = "sha256:" + "0" * 64


def main() -> None:
    """Build the repository, then time the snapshot alone and the whole check."""
    with tempfile.TemporaryDirectory() as folder:
        made = GitBuilder(Path(folder) / "r.git")
        stock = {f"vllm/models/m{n % 40}/f{n}.py": f"import os\nvalue = {n}\n" for n in range(FILES)}
        base = made.commit({**stock, ".github/gatekeeper.toml": CONFIGURATION}, branch="main")
        head = made.commit(dict.fromkeys(stock, "changed = 1\n"), parent=base, branch="topic")
        started = time.perf_counter()
        repository = Repository(made.path)
        facts = PullFacts(number=1, author=Author(id=1, login="ada"), base_ref="main")
        snapshot = build(
            1, "up/repo", facts, repository, head_sha=head, base_sha=base, policy_set=DIGEST, configuration=DIGEST
        )
        repository.close()
        print(f"snapshot of {len(snapshot.proposed[0].changes)} files: {time.perf_counter() - started:.2f} s")
        started = time.perf_counter()
        try:
            checked = run_check(made.path, "main", "topic")
        except ConfigurationError as error:
            print(f"whole check not measured: {error}")
            return
        print(f"whole check ({len(checked.results)} policies): {time.perf_counter() - started:.2f} s")


if __name__ == "__main__":
    main()
