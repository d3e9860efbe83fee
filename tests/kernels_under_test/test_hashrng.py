"""hashrng: pinned vectors, agreement with plain integers, streams, ranges and distributions."""

import hashlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_under_test import hashrng

MASK = (1 << 64) - 1

PINNED_WORDS = ["c6a2accc1e65efeb", "fd02e34af46e672d", "22f76c12e9af4c19"]
PINNED_NORMAL_BITS = [-1079644716, 1051781905, -1110435967, 1077300848]
PINNED_UNIFORM = [2912224.0, 8812538.0, 7674218.0, 12461115.0]
PINNED_INTEGERS = [-2, 1, 2, 0, -2, -1, 1, 4]
PINNED_PERMUTATION = [2, 5, 4, 0, 3, 7, 1, 6]


def plain_words(seed: int, stream: str, counter: int, count: int) -> list[int]:
    """The generator once more, in Python integers."""
    digest = hashlib.blake2b(
        seed.to_bytes(16, "little") + stream.encode(), digest_size=16, person=b"hashrng-1"
    ).digest()
    first, second = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")

    def mix(z: int) -> int:
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    return [mix(mix((i * 0x9E3779B97F4A7C15 + first) & MASK) ^ second) for i in range(counter, counter + count)]


def unsigned(words: torch.Tensor) -> list[int]:
    return [word & MASK for word in words.tolist()]


def test_pinned_vectors() -> None:
    assert [f"{w:016x}" for w in unsigned(hashrng.words(0, "", 3))] == PINNED_WORDS
    assert hashrng.normal((1 << 128) - 1, "x", (4,)).view(torch.int32).tolist() == PINNED_NORMAL_BITS
    assert hashrng.uniform(7, "u", (4,)).mul(2**24).tolist() == PINNED_UNIFORM
    assert hashrng.integers(7, "i", -5, 5, (8,)).tolist() == PINNED_INTEGERS
    assert hashrng.permutation(7, "p", 8).tolist() == PINNED_PERMUTATION


@settings(max_examples=40, deadline=None)
@given(st.integers(0, (1 << 128) - 1), st.text(max_size=12), st.integers(0, 1 << 40), st.integers(0, 9))
def test_words_agree_with_plain_integers(seed: int, stream: str, counter: int, count: int) -> None:
    assert unsigned(hashrng.words(seed, stream, count, counter=counter)) == plain_words(seed, stream, counter, count)


@pytest.mark.parametrize("draw", [hashrng.normal, hashrng.uniform])
def test_a_counter_continues_a_stream(draw) -> None:
    assert torch.equal(draw(3, "s", (5,), counter=7), draw(3, "s", (12,))[7:])


def test_normal_is_the_exact_centred_sum() -> None:
    words = plain_words(11, "n", 0, 2000)
    sums = [
        sum((w >> s) & 0xFFFF for w in words[i : i + 2] for s in (0, 16, 32, 48)) - 262140 for i in range(0, 2000, 2)
    ]
    scale = torch.tensor((8 * (65536**2 - 1) / 12) ** -0.5, dtype=torch.float32)
    assert torch.equal(hashrng.normal(11, "n", (1000,)), torch.tensor(sums, dtype=torch.float32) * scale)


def test_moments_of_normal_and_uniform() -> None:
    normal = hashrng.normal(1, "moments", (200_000,)).double()
    assert abs(normal.mean()) < 0.01
    assert abs(normal.var() - 1) < 0.02
    assert 2.8 < (normal**4).mean() < 2.9
    uniform = hashrng.uniform(1, "moments", (200_000,))
    assert abs(uniform.mean() - 0.5) < 0.003
    assert uniform.min() >= 0
    assert uniform.max() < 1


def test_streams_and_seeds_are_unrelated() -> None:
    one = hashrng.normal(1, "a", (20_000,))
    for other in (
        hashrng.normal(1, "b", (20_000,)),
        hashrng.normal(2, "a", (20_000,)),
        hashrng.normal(1, "a", (20_001,))[1:],
    ):
        assert abs(torch.corrcoef(torch.stack((one, other)))[0, 1]) < 0.03


@given(st.integers(1, 200), st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_permutation_holds_every_number_once(count: int, seed: int) -> None:
    assert sorted(hashrng.permutation(seed, "p", count).tolist()) == list(range(count))


def test_integers_cover_their_range() -> None:
    found = hashrng.integers(5, "i", -2, 3, (1000,))
    assert sorted(set(found.tolist())) == [-2, -1, 0, 1, 2]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: hashrng.words(-1, "", 1), "seed must be in"),
        (lambda: hashrng.words(1 << 128, "", 1), "seed must be in"),
        (lambda: hashrng.words(0, "", -1), "must not be negative"),
        (lambda: hashrng.integers(0, "", 3, 3, (1,)), "range must hold"),
    ],
)
def test_bad_arguments_are_named(call, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()
