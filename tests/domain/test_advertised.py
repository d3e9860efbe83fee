"""Advertised, refused and guard configurations: invariants over drawn manifests."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gatekeeper.domain.advertised import EnumerationRules, Scope, advertised, guard_pool
from gatekeeper.domain.manifest import ContextRange, Manifest, Serves, TargetScope
from gatekeeper.domain.outside import refused

sizes = st.lists(st.integers(1, 64), min_size=1, max_size=6, unique=True).map(lambda found: tuple({1, *found}))


@st.composite
def manifests(draw):
    low = draw(st.integers(1, 100))
    tensor = draw(st.sampled_from([(1,), (2,), (8, 16)]))
    feature = st.sampled_from(["served", "refused"])
    return Manifest(
        schema_version=1, model="k3", vendor="nvidia", directory="a/fast", switch="s", problem="p",
        entry_point="a.fast.gate:candidate", guard="a.fast.gate:enabled",
        targets=(TargetScope(name="cpu", tensor_parallel=tensor, decode_context_parallel=("1", "tp")),),
        serves=Serves(
            rows=draw(sizes), query_tokens=(1, *draw(st.sampled_from([(), (2,), (4,)]))),
            context=ContextRange(min=low, max=low + draw(st.integers(4, 1 << 20))),
            page_sizes=draw(st.sampled_from([(4,), (32, 64)])), dtypes={"kv_cache": ("bf16", "fp8_e4m3")},
        ),
        features={"expert_parallel": draw(feature), "speculative_decoding": draw(feature)},
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(manifests())
def test_invariants(manifest):
    scope = Scope(manifest, manifest.target("cpu"))
    first = advertised(manifest, "cpu", "policy")
    assert first == advertised(manifest, "cpu", "policy")
    labels = [point.label for point in first.configurations]
    assert len(set(labels)) == len(labels)
    assert all(scope.holds(point) for point in first.configurations)
    cells = {(point.rows, point.query_tokens) for point in first.configurations}
    fitting = {
        cell for cell in scope.cells if any(cell[1] <= context for _, context in scope.edges(EnumerationRules()))
    }
    assert cells >= fitting
    contexts = {(point.page_size, point.context) for point in first.configurations}
    assert contexts >= set(scope.edges(EnumerationRules()))
    outside = refused(manifest, "cpu", "policy")
    assert outside and not any(scope.holds(point) for point in outside)
    assert len({point.label for point in outside}) == len(outside)
    pool = [point.label for point in guard_pool(manifest, "cpu", "policy")]
    assert not set(pool) & set(labels) and len(set(pool)) == len(pool)


@given(manifests())
@settings(max_examples=20, deadline=None)
def test_free_text_does_not_choose_the_sample(manifest):
    reworded = manifest.model_copy(update={"switch": "other words", "model": "k4"})
    assert advertised(reworded, "cpu", "policy") == advertised(manifest, "cpu", "policy")


@given(manifests(), st.integers(1, 5))
@settings(max_examples=20, deadline=None)
def test_a_bound_is_told(manifest, most):
    found = advertised(manifest, "cpu", "policy", EnumerationRules(most=most, sample=0))
    assert len(found.configurations) <= most
    assert found.complete is (found.needed <= most)
