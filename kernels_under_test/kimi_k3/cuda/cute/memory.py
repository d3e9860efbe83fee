"""Loads from and stores to global and shared memory, as inline PTX."""

# mypy: disallow-untyped-decorators=False, disallow-untyped-calls=False, disallow-any-generics=False, warn-return-any=False

from __future__ import annotations

from cutlass import Int32, Int64, Uint32
from cutlass.cutlass_dsl import dsl_user_op

from kernels_under_test.kimi_k3.cuda.cute.emit import emit

WORDS = (Uint32,) * 4
FORMS = {
    "plain": "ld.global.v4.b32",
    "stream": "ld.global.nc.L1::no_allocate.v4.b32",
    "once": "ld.global.cs.v4.b32",
    "l2": "ld.global.cg.v4.b32",
}


@dsl_user_op
def load16(p, form="stream", *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Four words from global memory."""
    return emit(f"{FORMS[form]} {{$0,$1,$2,$3}}, [$4];", "=r,=r,=r,=r,l", [Int64(p)], WORDS, False, loc, ip)


@dsl_user_op
def load8(p, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Two read-only words from global memory."""
    return emit(
        "ld.global.nc.L1::no_allocate.v2.b32 {$0,$1}, [$2];", "=r,=r,l", [Int64(p)], (Uint32, Uint32), False, loc, ip
    )


@dsl_user_op
def load8_plain(p, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Two words that an earlier launch may have written."""
    return emit("ld.global.v2.b32 {$0,$1}, [$2];", "=r,=r,l", [Int64(p)], (Uint32, Uint32), False, loc, ip)


@dsl_user_op
def store16(p, a, b, c, d, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Four words to global memory."""
    args = [Int64(p), Uint32(a), Uint32(b), Uint32(c), Uint32(d)]
    return emit("st.global.v4.b32 [$0], {$1,$2,$3,$4};", "l,r,r,r,r,~{memory}", args, None, False, loc, ip)


@dsl_user_op
def store16_once(p, a, b, c, d, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Four words to global memory that no later kernel of this layer reads."""
    args = [Int64(p), Uint32(a), Uint32(b), Uint32(c), Uint32(d)]
    return emit("st.global.cs.v4.b32 [$0], {$1,$2,$3,$4};", "l,r,r,r,r,~{memory}", args, None, False, loc, ip)


@dsl_user_op
def store8(p, a, b, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Two words to global memory."""
    args = [Int64(p), Uint32(a), Uint32(b)]
    return emit("st.global.v2.b32 [$0], {$1,$2};", "l,r,r,~{memory}", args, None, False, loc, ip)


@dsl_user_op
def store4(p, a, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """One word to global memory."""
    return emit("st.global.b32 [$0], $1;", "l,r,~{memory}", [Int64(p), Uint32(a)], None, False, loc, ip)


@dsl_user_op
def store_shared4(p, a, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """One word to shared memory."""
    return emit("st.shared.b32 [$0], $1;", "r,r,~{memory}", [Int32(p), Uint32(a)], None, False, loc, ip)


@dsl_user_op
def store_shared16(p, a, b, c, d, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Four words to shared memory."""
    args = [Int32(p), Uint32(a), Uint32(b), Uint32(c), Uint32(d)]
    return emit("st.shared.v4.b32 [$0], {$1,$2,$3,$4};", "r,r,r,r,r,~{memory}", args, None, False, loc, ip)


@dsl_user_op
def zero_shared16(p, offset=0, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Sixteen zero bytes to shared memory; the offset is a constant."""
    text = f"{{ .reg .b32 z; mov.b32 z, 0; st.shared.v4.b32 [$0+{offset}], {{z,z,z,z}}; }}"
    return emit(text, "r,~{memory}", [Int32(p)], None, False, loc, ip)


@dsl_user_op
def shared16(p, offset=0, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Four words from shared memory; the offset is a constant."""
    text = f"ld.shared.v4.b32 {{$0,$1,$2,$3}}, [$4+{offset}];"
    return emit(text, "=r,=r,=r,=r,r", [Int32(p)], WORDS, False, loc, ip)


@dsl_user_op
def shared8(p, offset=0, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Two words from shared memory; the offset is a constant."""
    text = f"ld.shared.v2.b32 {{$0,$1}}, [$2+{offset}];"
    return emit(text, "=r,=r,r", [Int32(p)], (Uint32, Uint32), False, loc, ip)
