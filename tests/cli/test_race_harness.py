"""A harness whose result is larger than what a pipe holds comes to its end."""

from __future__ import annotations

import sys

from gatekeeper.cli.race_harness import run
from gatekeeper.domain.race import RaceOrder
from tests import race_samples as make

BIG = """
import sys
sys.stdin.read()
answer = open(sys.argv[1]).read()
sys.stdout.write(answer)
sys.stdout.flush()
print('{"event": "end", "outcome": "better"}', file=sys.stderr)
"""


def test_a_result_of_a_megabyte_is_read(tmp_path) -> None:
    result = make.result().model_copy(update={"reasons": ("x" * 1_000_000,)})
    (tmp_path / "answer.json").write_text(result.model_dump_json())
    order = RaceOrder(request=make.request(), alpha=0.01)
    found = run(order, (sys.executable, "-c", BIG, str(tmp_path / "answer.json")))
    assert found == result
