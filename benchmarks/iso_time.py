"""Times the judgement of a change of 3,000 files: python -m benchmarks.iso_time"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.git_builder import Content
from tests.policies.isolation.scenes import judge, start


def main() -> None:
    """Print seconds from commits to findings, once with all files inside and once with all outside."""
    for where in ("kernels/cand", "elsewhere"):
        with tempfile.TemporaryDirectory() as folder:
            git, base = start(Path(folder))
            files: dict[str, Content] = {
                f"{where}/d{n % 30}/f{n}.py": f"import os\n\nn = {n}\n" * 20 for n in range(2999)
            }
            head = git.commit({**files, "kernels/cand/k.py": "k = 2\n"}, parent=base)
            begin = time.perf_counter()
            answer = judge(git.path, base, head)
            print(f"{where}: {answer.outcome}, {len(answer.findings)} findings, {time.perf_counter() - begin:.2f} s")


if __name__ == "__main__":
    main()
