"""Packings of MXFP4 codes, decoded here the way the kernels do it."""

import pytest
import torch
from torch import Tensor

from kernels_under_test.kimi_k3.cuda import mxfp4

MASK, SMALL = 0x81C081C0, 0x01C001C0


def decode(word: Tensor) -> list[Tensor]:
    """Four words of two bf16 from one packed word, as 64-bit integers."""
    w = word.long() & 0xFFFFFFFF
    third = ((w << 6) & SMALL) | ((w << 1) & 0x80008000)
    fourth = ((w >> 3) & SMALL) | ((w << 2) & 0x80008000)
    return [v & 0xFFFFFFFF for v in (w & MASK, (w << 3) & MASK, third, fourth)]


def halves(word: Tensor) -> tuple[Tensor, Tensor]:
    """The two bf16 of a word, times 2^126, in fp64 (exact also for subnormals)."""
    out = []
    for bits in (word & 0xFFFF, word >> 16):
        signed = torch.where(bits >= 32768, bits - 65536, bits).to(torch.int16)
        out.append(signed.view(torch.bfloat16).double() * 2.0**126)
    return out[0], out[1]


def test_all_codes_decode_exactly() -> None:
    codes = torch.stack([(torch.arange(16) + shift) % 16 for shift in range(8)], dim=-1)
    wanted = mxfp4.values(codes.repeat(1, 4), torch.full((16, 1), 127))[:, :8].double()
    pairs = [half for word in decode(mxfp4.pack(codes)) for half in halves(word)]
    assert torch.equal(torch.stack(pairs, dim=-1), wanted)


def test_scales_are_powers_of_two_per_32() -> None:
    scales = torch.tensor([[127, 120]], dtype=torch.uint8)
    value = mxfp4.values(torch.full((1, 64), 2), scales)
    assert torch.equal(value, torch.cat((torch.ones(1, 32), torch.full((1, 32), 2.0**-7)), dim=1))


def test_tiles_hold_every_code_once_in_the_documented_place() -> None:
    gen = torch.Generator().manual_seed(1)
    codes = torch.randint(0, 16, (2, 32, 256), generator=gen, dtype=torch.uint8)
    scales = torch.randint(100, 130, (2, 32, 8), generator=gen, dtype=torch.uint8)
    words, lifted = mxfp4.tiles(codes, scales, paired=False)
    e, tile, half, g, chunk, block, t = 1, 1, 1, 5, 1, 2, 3
    at = (((tile * 2 + chunk) * 2 + half) * 32 + g * 4 + t) * 4 + block
    row, column = tile * 16 + half * 8 + g, chunk * 128 + block * 32 + t * 8
    assert words[e, at] == mxfp4.pack(codes[e, row, column : column + 8])
    assert lifted[e, ((tile * 2 + chunk) * 8 + g) * 8 + half * 4 + block] == scales[e, row, chunk * 4 + block] + 26


def test_paired_tiles_take_eight_gates_and_their_ups() -> None:
    codes = torch.arange(32, dtype=torch.uint8)[None, :, None].expand(1, 32, 128) % 16
    scales = torch.full((1, 32, 4), 120, dtype=torch.uint8)
    words, _ = mxfp4.tiles(codes.contiguous(), scales, paired=True)
    tiles = words.view(2, 2, 8, 4, 4)
    for tile in range(2):
        for half in range(2):
            wanted = (half * 16 + tile * 8 + torch.arange(8)) % 16
            assert torch.equal(tiles[tile, half, :, 0, 0], mxfp4.pack(wanted[:, None].expand(8, 8)))


@pytest.mark.parametrize("block", [16, 32])
def test_a_word_of_the_stock_packing_decodes_to_one_column_of_each_of_eight_blocks(block: int) -> None:
    gen = torch.Generator().manual_seed(2)
    codes = torch.randint(0, 16, (1, 2, 16 * block), generator=gen, dtype=torch.uint8)
    packed = mxfp4.words(codes, block)
    assert packed.shape == (1, 2, 2 * block) and packed.dtype == torch.int32
    wanted = mxfp4.values(codes, torch.full((1, 2, 16 * block // 32), 127, dtype=torch.uint8)).double()
    for row, chunk, i in ((0, 0, 0), (1, 1, 5), (1, 0, block - 1)):
        word = packed[0, row, chunk * block + i].long() & 0xFFFFFFFF
        for half in range(2):
            same = (word >> (16 * half)) & 0xFFFF
            both = same | (same << 16)
            for j, decoded in enumerate(decode(both)):
                column = chunk * 8 * block + (4 * half + j) * block + i
                assert halves(decoded)[0] == wanted[0, row, column]
