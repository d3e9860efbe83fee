"""The oracle's self-proof: what is planted is refused at any width, and where it cannot be refused that is said."""

from __future__ import annotations

import pytest
import torch

from gatekeeper.domain.correctness import error_limits
from gatekeeper.domain.samples import ErrorFigures, ErrorRecord
from tests.workers.conftest import toy_order
from workers.judge import FLOORS
from workers.proof import exceeds, figures_of, plants, proofs

RULES = toy_order().request.rules


def limits(honest: ErrorFigures, sequences: int):
    floors = FLOORS["output"]
    record = ErrorRecord(
        tensor="out", kind="output", check="proof", steps=1, rows=1, sequences=sequences, candidate=honest, baseline=honest,
        floors=floors, limits=floors,
    )  # fmt: skip
    return error_limits(record, RULES)


def proved(width: int, steps: int = 16, rows: int = 16, noise: float = 5e-3, spoilt: float = 0.0):
    made = torch.Generator().manual_seed(width)
    wanted = torch.randn(steps, rows, width, generator=made, dtype=torch.float64)
    out = wanted * (1 + noise * torch.randn(steps, rows, width, generator=made, dtype=torch.float64))
    out[0, 0, 1] += spoilt
    planted = plants(out, torch.randn(steps, rows, width, generator=made, dtype=torch.float64))
    refuses = lambda honest, found: exceeds(found, limits(honest, rows))  # noqa: E731
    return {proof.name: proof for proof in proofs(planted, out, wanted, refuses)}, planted, out, wanted


@pytest.mark.parametrize("width", [32, 128, 7168])
def test_every_planted_answer_is_refused_at_every_width(width):
    found, *_ = proved(width)
    assert set(found) == {"zeros", "previous", "echo", "one_element"}
    assert all(proof.refused for proof in found.values())


def test_only_the_limit_of_single_elements_refuses_one_element_at_full_width():
    found, planted, out, wanted = proved(7168)
    figures = figures_of(planted["one_element"], wanted)
    most = limits(figures_of(out, wanted), 16)
    assert not exceeds(figures, most.model_copy(update={"element": None}))
    assert found["one_element"].figure == pytest.approx(4.0, abs=0.2)


def test_one_element_is_refused_however_far_off_the_stock_paths_own_elements_are():
    found, *_ = proved(128, spoilt=3.0)
    assert found["one_element"].refused and found["zeros"].refused


def test_one_step_has_no_previous_output():
    out = torch.ones(1, 2, 8, dtype=torch.float64)
    assert set(plants(out, out)) == {"zeros", "echo", "one_element"}
