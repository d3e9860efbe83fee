"""Instructions that CuTe DSL has no function for, as inline PTX; all build for sm_90a, sm_100a and sm_103a.

``pure`` instructions may be merged and moved by the compiler; everything that touches memory keeps its place.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import Any

import cutlass.cute as cute
from cutlass import Constexpr, Float32, Int32, Int64, Uint32
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T, dsl_user_op

from kernels_under_test.kimi_k3.cuda.cute.copies import (  # noqa: F401 (one name for all instructions)
    UNWAITED,
    acquire_for_copies,
    arrive,
    arrive_in_turn,
    begin,
    bulk_copy,
    bulk_store,
    bulk_stored,
    count_release,
    expect,
    prefetch,
    release_to_copies,
    sleep,
    tile_copy,
    tile_prefetch,
    wait,
    wait_count,
)
from kernels_under_test.kimi_k3.cuda.cute.emit import emit
from kernels_under_test.kimi_k3.cuda.cute.memory import (  # noqa: F401
    load8,
    load8_plain,
    load16,
    shared8,
    shared16,
    store4,
    store8,
    store16,
    store16_once,
    store_shared4,
    store_shared16,
    zero_shared16,
)

WORDS = (Uint32,) * 4


def addr(pointer: Any) -> Any:
    """64-bit global address."""
    return Int64(pointer.toint())


def saddr(pointer: Any) -> Any:
    """32-bit shared address."""
    return Int32(pointer.toint())


@dsl_user_op
def as_float(bits, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """The float with these bits."""
    return Float32(llvm.bitcast(T.f32(), Uint32(bits).ir_value(loc=loc, ip=ip), loc=loc, ip=ip))


@dsl_user_op
def as_bits(x, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """The bits of a float."""
    return Uint32(llvm.bitcast(T.i32(), Float32(x).ir_value(loc=loc, ip=ip), loc=loc, ip=ip))


def low(word: Any) -> Any:
    """The bf16 in the low half, as float."""
    return as_float(word << 16)


def high(word: Any) -> Any:
    """The bf16 in the high half, as float."""
    return as_float(word & 0xFFFF0000)


def floats(words: Any) -> list[Any]:
    """All bf16 values of some words, in memory order."""
    return [half(w) for w in words for half in (low, high)]


@dsl_user_op
def fma(a, b, c, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """a b + c in fp32."""
    return emit("fma.rn.f32 $0,$1,$2,$3;", "=f,f,f,f", [Float32(a), Float32(b), Float32(c)], Float32, True, loc, ip)


@dsl_user_op
def pack(lo, hi, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Two floats rounded to bf16 in one word."""
    return emit("cvt.rn.bf16x2.f32 $0,$2,$1;", "=r,f,f", [Float32(lo), Float32(hi)], Uint32, True, loc, ip)


def rounded(x: Any) -> Any:
    """A float rounded to bf16, as float."""
    return low(pack(x, x))


@dsl_user_op
def multiply_pairs(a, b, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Two bf16 products at once."""
    return emit("mul.rn.bf16x2 $0,$1,$2;", "=r,r,r", [Uint32(a), Uint32(b)], Uint32, True, loc, ip)


@dsl_user_op
def select_or(a, b, c, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """(a & b) | c in one instruction."""
    args = [Uint32(a), Uint32(b), Uint32(c)]
    return emit("lop3.b32 $0,$1,$2,$3,0xEA;", "=r,r,r,r", args, Uint32, True, loc, ip)


@dsl_user_op
def mma(a, b, c, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """D = A (16 x 16, rows) B (16 x 8, columns) + C: bf16 in, fp32 sums, one warp."""
    text = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {$0,$1,$2,$3},{$4,$5,$6,$7},{$8,$9},{$10,$11,$12,$13};"
    return emit(text, "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f", [*a, *b, *c], (Float32,) * 4, True, loc, ip)


@dsl_user_op
def matrices4(p, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Four 8 x 8 matrices from shared memory, one row address a lane."""
    text = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0,$1,$2,$3},[$4];"
    return emit(text, "=r,=r,=r,=r,r", [Int32(p)], WORDS, False, loc, ip)


@dsl_user_op
def matrices2(p, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Two 8 x 8 matrices from shared memory."""
    text = "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {$0,$1},[$2];"
    return emit(text, "=r,=r,r", [Int32(p)], (Uint32, Uint32), False, loc, ip)


@dsl_user_op
def matrices4_turned(p, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Four 8 x 8 matrices from shared memory, each transposed, one row address a lane."""
    text = "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {$0,$1,$2,$3},[$4];"
    return emit(text, "=r,=r,=r,=r,r", [Int32(p)], WORDS, False, loc, ip)


@dsl_user_op
def remote(p, rank, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """The cluster address of a shared address in another CTA."""
    return emit("mapa.shared::cluster.u32 $0, $1, $2;", "=r,r,r", [Int32(p), Int32(rank)], Int32, True, loc, ip)


@dsl_user_op
def store_remote(p, v, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """A float to another CTA's shared memory."""
    args = [Int32(p), Float32(v)]
    return emit("st.shared::cluster.f32 [$0], $1;", "r,f,~{memory}", args, None, False, loc, ip)


@dsl_user_op
def warp_max(v, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """The largest unsigned word of a warp."""
    return emit("redux.sync.max.u32 $0,$1,0xffffffff;", "=r,r", [Uint32(v)], Uint32, False, loc, ip)


@dsl_user_op
def warp_min(v, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """The smallest unsigned word of a warp."""
    return emit("redux.sync.min.u32 $0,$1,0xffffffff;", "=r,r", [Uint32(v)], Uint32, False, loc, ip)


@dsl_user_op
def shared_add(p, v, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Atomic add in shared memory; returns the old word."""
    text = "atom.shared.add.u32 $0,[$1],$2;"
    return emit(text, "=r,r,r,~{memory}", [Int32(p), Uint32(v)], Uint32, False, loc, ip)


@dsl_user_op
def tanh(x, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """The hardware's approximate tanh."""
    return emit("tanh.approx.f32 $0,$1;", "=f,f", [Float32(x)], Float32, True, loc, ip)


@dsl_user_op
def exp2(x, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """2^x, approximate; 0 for minus infinity."""
    return emit("ex2.approx.ftz.f32 $0,$1;", "=f,f", [Float32(x)], Float32, True, loc, ip)


@dsl_user_op
def log2(x, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """log2(x), approximate."""
    return emit("lg2.approx.ftz.f32 $0,$1;", "=f,f", [Float32(x)], Float32, True, loc, ip)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return cute.arch.rcp_approx(1.0 + cute.math.exp(-x, fastmath=True))


def situ(gate: Any, up: Any) -> Any:
    """4 tanh(gate / 4) sigmoid(gate) 25 tanh(up / 25)."""
    return 4.0 * tanh(gate * 0.25) * sigmoid(gate) * (25.0 * tanh(up * (1.0 / 25.0)))


def warp_sum(v: Any, width: int = 32) -> Any:
    """The sum over groups of ``width`` lanes, in every lane."""
    step = width // 2
    while step:
        v = v + cute.arch.shuffle_sync_bfly(v, step)
        step //= 2
    return v


@cute.jit
def swap(low: Float32, high: Float32, upper: Any, half: Constexpr) -> Any:
    """One step of ``scatter_sum``: keep one of two values, give the other to the lane ``half`` away."""
    keep = high if upper else low
    give = low if upper else high
    return keep + cute.arch.shuffle_sync_bfly(give, half)


def scatter_sum(values: list[Any], lane: Any) -> Any:
    """Sums of n values over groups of n lanes (n a power of two) in n - 1 shuffles; lane l of a group gets the sum of value l."""
    half = len(values) // 2
    while half:
        upper = (lane & half) != 0
        values = [swap(values[i], values[i + half], upper, half) for i in range(half)]
        half //= 2
    return values[0]


__all__ = [name for name in globals() if not name.startswith("_")]
