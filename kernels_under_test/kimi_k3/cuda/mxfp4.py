"""MXFP4 weights: values of codes, and the two packings. Codes are 0..15 (sign in bit 3), scale bytes are E8M0."""

from __future__ import annotations

import torch
from torch import Tensor

MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
PLACES = ((6, 15), (3, 12), (0, 14), (9, 13))
"""Of each pair of codes: lowest bit of the magnitude, and the sign bit, inside a 16-bit half."""


def values(codes: Tensor, scales: Tensor) -> Tensor:
    """Codes [..., K] and scale bytes [..., K / 32] to fp32 values."""
    table = torch.tensor(MAGNITUDES, device=codes.device)
    value = table[(codes & 7).long()] * torch.where(codes >= 8, -1.0, 1.0)
    return value * torch.exp2(scales.float() - 127.0).repeat_interleave(32, dim=-1)


def pack(codes: Tensor) -> Tensor:
    """Codes [..., 8] to one int32 word: pair p lies at PLACES[p], its first code in the low half."""
    word = torch.zeros(codes.shape[:-1], dtype=torch.int32, device=codes.device)
    for i in range(8):
        code = codes[..., i].to(torch.int32)
        magnitude, sign = PLACES[i // 2]
        half = 16 * (i % 2)
        word |= ((code & 7) << (magnitude + half)) | ((code >> 3) << (sign + half))
    return word


def tiles(codes: Tensor, scales: Tensor, *, paired: bool) -> tuple[Tensor, Tensor]:
    """The candidate's packing of [E, N, K]: words [E, N K / 8] and scale bytes plus 26 [E, N K / 32].

    With ``paired`` the first half of the rows are gates and the second half ups; a tile of 16 takes 8 of each.
    """
    e, n, k = codes.shape
    if paired:
        order = torch.arange(n, device=codes.device).view(2, n // 16, 8).transpose(0, 1).reshape(-1)
        codes, scales = codes[:, order], scales[:, order]
    words = pack(codes.view(e, n // 16, 2, 8, k // 128, 4, 4, 8))
    words = words.permute(0, 1, 4, 2, 3, 6, 5).reshape(e, -1)
    lifted = (scales + 26).view(e, n // 16, 2, 8, k // 128, 4)
    return words.contiguous(), lifted.permute(0, 1, 4, 3, 2, 5).reshape(e, -1).contiguous()


def words(codes: Tensor, block: int) -> Tensor:
    """The stock packing of [E, N, K]: int32 [E, N, K / 8]. Word i of a chunk of 8 x block columns holds columns j x block + i for
    j = 0..7, four in each half, so that one word decodes to one column of each of eight blocks."""
    e, n, k = codes.shape
    parts = codes.view(e, n, k // (8 * block), 2, 4, block).to(torch.int32)
    word = torch.zeros(e, n, k // (8 * block), block, dtype=torch.int32, device=codes.device)
    for half in range(2):
        for i, (magnitude, sign) in enumerate(PLACES):
            code = parts[:, :, :, half, i]
            word |= ((code & 7) << (magnitude + 16 * half)) | ((code >> 3) << (sign + 16 * half))
    return word.view(e, n, k // 8)
