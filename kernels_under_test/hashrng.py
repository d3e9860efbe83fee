"""Random tensors from a counter: the same bits on every device and with every version of torch.

Word number i of a stream is a bijective mix of i, keyed by the seed and the stream's name, in integer arithmetic modulo
2**64. Only integers and one exact scaling follow, never ``log`` or ``cos``, whose last bits differ between machines. So any
element of any stream can be made alone: ``normal(seed, name, (n,), counter=k)[0]`` equals ``normal(seed, name, (n + k,))[k]``.

The mix is the finaliser of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014), applied
twice with two keys. It is no cipher; what must not be predictable is the seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB

_NORMAL_MEAN = 8 * 65535 // 2
"""Mean of the sum of eight uniform integers in [0, 65535]."""
_NORMAL_SCALE = (8 * (65536**2 - 1) / 12) ** -0.5
"""One over the standard deviation of that sum. The centred sum has 20 bits, so it is exact in float32."""

SEED_BITS = 128


def _signed(value: int) -> int:
    """Return the value modulo 2**64 as a signed 64-bit integer, which is what torch holds."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _keys(seed: int, stream: str) -> tuple[int, int]:
    if not 0 <= seed < 1 << SEED_BITS:
        raise ValueError(f"seed must be in [0, 2**{SEED_BITS}); found {seed}")
    digest = hashlib.blake2b(
        seed.to_bytes(16, "little") + stream.encode(), digest_size=16, person=b"hashrng-1"
    ).digest()
    return (
        _signed(int.from_bytes(digest[:8], "little")),
        _signed(int.from_bytes(digest[8:], "little")),
    )


def _fold_(words: Tensor, shift: int) -> Tensor:
    """words ^= words >> shift, as a logical shift, in place."""
    return words.bitwise_xor_((words >> shift).bitwise_and_((1 << (64 - shift)) - 1))


def _mix_(words: Tensor) -> Tensor:
    _fold_(words, 30).mul_(_signed(_MIX_1))
    _fold_(words, 27).mul_(_signed(_MIX_2))
    return _fold_(words, 31)


def words(seed: int, stream: str, count: int, *, counter: int = 0, device: torch.device | str = "cpu") -> Tensor:
    """Return words ``counter`` to ``counter + count - 1`` of a stream: [count] int64, all 64 bits uniform.

    Raises:
        ValueError: if the seed has more than 128 bits or is negative, or count or counter is negative.
    """
    if count < 0 or counter < 0:
        raise ValueError(f"count and counter must not be negative; found count={count}, counter={counter}")
    first, second = _keys(seed, stream)
    numbers = torch.arange(counter, counter + count, dtype=torch.int64, device=device)
    _mix_(numbers.mul_(_signed(_GOLDEN)).add_(first))
    return _mix_(numbers.bitwise_xor_(second))


def uniform(
    seed: int, stream: str, shape: Sequence[int], *, counter: int = 0, device: torch.device | str = "cpu"
) -> Tensor:
    """Return float32 of ``shape`` in [0, 1), multiples of 2**-24, all exact. ``counter`` counts elements."""
    bits = words(seed, stream, prod(shape), counter=counter, device=device)
    return ((bits >> 40) & 0xFFFFFF).to(torch.float32).mul_(2.0**-24).reshape(tuple(shape))


def normal(
    seed: int, stream: str, shape: Sequence[int], *, counter: int = 0, device: torch.device | str = "cpu"
) -> Tensor:
    """Return float32 of ``shape``: centred sums of eight uniform 16-bit integers, mean 0, variance 1, within 4.9.

    Two words make one element; ``counter`` counts elements. The kurtosis is 2.85 (a true normal has 3).
    """
    pairs = words(seed, stream, 2 * prod(shape), counter=2 * counter, device=device)
    total = pairs & 0xFFFF
    for shift in (16, 32, 48):
        total += (pairs >> shift) & 0xFFFF
    centred = total.reshape(-1, 2).sum(dim=1) - _NORMAL_MEAN
    return centred.to(torch.float32).mul_(_NORMAL_SCALE).reshape(tuple(shape))


def integers(
    seed: int,
    stream: str,
    low: int,
    high: int,
    shape: Sequence[int],
    *,
    counter: int = 0,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Return int64 of ``shape``, uniform in [low, high) up to a bias below (high - low) / 2**63.

    Raises:
        ValueError: if the range is empty or wider than 2**40.
    """
    if not 0 < high - low <= 1 << 40:
        raise ValueError(f"range must hold between 1 and 2**40 integers; found low={low}, high={high}")
    bits = words(seed, stream, prod(shape), counter=counter, device=device)
    return ((bits & ((1 << 63) - 1)) % (high - low) + low).reshape(tuple(shape))


def permutation(seed: int, stream: str, count: int, *, counter: int = 0, device: torch.device | str = "cpu") -> Tensor:
    """Return a permutation of 0 .. count - 1: [count] int64. ``counter`` counts words, ``count`` of them are used."""
    return torch.argsort(words(seed, stream, count, counter=counter, device=device), stable=True)
