"""The float64 reference of MLA against a plain computation, and the drawn tables."""

import pytest
import torch

from kernels_under_test.kimi_k3.cuda import mla_reference, mla_sizes
from kernels_under_test.kimi_k3.cuda.mla_tensors import draw_mla_inputs, draw_tables, pages_of, poison

LENGTHS = [0, 1, 63, 64, 65, 130]


def test_attention_is_the_softmax_over_the_scaled_scores() -> None:
    gen = torch.Generator().manual_seed(1)
    query = torch.randn(12, 576, dtype=torch.float64, generator=gen)
    keys = torch.randn(5, 576, dtype=torch.float64, generator=gen)
    latents, logs = mla_reference.attend(query, keys)
    for head in range(12):
        weights = [float(torch.exp(query[head] @ k / 192**0.5)) for k in keys]
        wanted = sum(w * k[:512] for w, k in zip(weights, keys, strict=True)) / sum(weights)
        assert torch.allclose(latents[head], wanted, atol=1e-2)
        assert float(logs[head]) == pytest.approx(float(torch.tensor(sum(weights)).log()), rel=1e-6)


def test_parts_of_ranks_merge_to_the_whole_and_invalid_ones_count_nothing() -> None:
    gen = torch.Generator().manual_seed(2)
    query = 3 * torch.randn(12, 576, dtype=torch.float64, generator=gen)
    keys = torch.randn(90, 576, dtype=torch.float64, generator=gen)
    whole, _ = mla_reference.attend(query, keys)
    parts = [mla_reference.attend(query, keys[a:b]) for a, b in ((0, 10), (10, 50), (50, 90))]
    latents = torch.stack([p[0] for p in parts] + [torch.full_like(whole, torch.nan)])
    for invalid in (-torch.inf, torch.inf, torch.nan):
        logs = torch.stack([p[1] for p in parts] + [torch.full_like(parts[0][1], invalid)])
        merged = mla_reference.merge(latents, logs)
        assert torch.isfinite(merged).all()
        assert float((merged - whole).norm() / whole.norm()) < 4e-3
    nothing = mla_reference.merge(latents[3:], torch.full((1, 12), -torch.inf, dtype=torch.float64))
    assert torch.equal(nothing, torch.zeros_like(nothing))


def test_tables_give_each_token_its_own_place() -> None:
    t = draw_mla_inputs(LENGTHS, 3, "cpu")
    rows = [mla_reference.rows_of(t, row) for row in range(len(LENGTHS))]
    assert [len(r) for r in rows] == LENGTHS
    every = torch.cat(rows)
    assert len(every.unique()) == sum(LENGTHS) and int(every.min()) >= mla_sizes.PAGE
    assert t["where"].tolist() == [int(r[-1]) if len(r) else -1 for r in rows]


def test_poison_leaves_only_what_may_be_read() -> None:
    t = draw_mla_inputs(LENGTHS, 4, "cpu")
    poison(t)
    for row, length in enumerate(LENGTHS):
        at = mla_reference.rows_of(t, row)
        if length:
            assert torch.isfinite(t["cache"][at[:-1]]).all()
            behind = int(at[-1]) // mla_sizes.PAGE * mla_sizes.PAGE + mla_sizes.PAGE
            assert torch.isnan(t["cache"][int(at[-1]) : behind]).all()
    assert torch.isnan(t["cache"][: mla_sizes.PAGE]).all()


def test_too_few_pages_or_columns_are_refused() -> None:
    assert pages_of([65, 0, 1]) == 4
    with pytest.raises(ValueError, match="expected at least 4 pages and 2 columns, found 3 and 2"):
        draw_tables([65, 0, 1], 3, 2, 0, "cpu")
    with pytest.raises(ValueError, match="found 4 and 1"):
        draw_tables([65, 0, 1], 4, 1, 0, "cpu")
