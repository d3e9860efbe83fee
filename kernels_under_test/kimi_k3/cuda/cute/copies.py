"""Copies by the copy engine, the barriers they complete on, and the wait of dependent launches, as inline PTX."""

# mypy: disallow-untyped-decorators=False, disallow-untyped-calls=False, disallow-any-generics=False, warn-return-any=False

from __future__ import annotations

from typing import Any

import cutlass.cute as cute
from cutlass import Int32, Int64, const_expr
from cutlass.cutlass_dsl import dsl_user_op

from kernels_under_test.kimi_k3.cuda.cute.emit import emit

UNWAITED = "unwaited"
"""What a mutant takes for ``pdl``: a dependent launch without its wait."""


@dsl_user_op
def bulk_copy(dst, src, size, bar, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """``size`` contiguous bytes to shared memory, completing on a barrier."""
    text = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0],[$1],$2,[$3];"
    return emit(text, "r,l,r,r,~{memory}", [Int32(dst), Int64(src), Int32(size), Int32(bar)], None, False, loc, ip)


@dsl_user_op
def bulk_store(dst, src, size, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """``size`` contiguous bytes from shared to global memory, as a group of its own of this thread."""
    text = "cp.async.bulk.global.shared::cta.bulk_group [$0],[$1],$2; cp.async.bulk.commit_group;"
    return emit(text, "l,r,r,~{memory}", [Int64(dst), Int32(src), Int32(size)], None, False, loc, ip)


@dsl_user_op
def bulk_stored(*, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Wait for all of this thread's bulk stores."""
    return emit("cp.async.bulk.wait_group 0;", "~{memory}", [], None, False, loc, ip)


@dsl_user_op
def tile_copy(dst, desc, bar, c0, c1, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """One box of a two-dimensional tensor map to shared memory."""
    text = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [$0],[$1,{$3,$4}],[$2];"
    args = [Int32(dst), desc, Int32(bar), Int32(c0), Int32(c1)]
    return emit(text, "r,l,r,r,r,~{memory}", args, None, False, loc, ip)


@dsl_user_op
def prefetch(src, size, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """``size`` contiguous bytes into L2."""
    text = "cp.async.bulk.prefetch.L2.global [$0], $1;"
    return emit(text, "l,r", [Int64(src), Int32(size)], None, False, loc, ip)


@dsl_user_op
def tile_prefetch(desc, c0, c1, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """One box of a two-dimensional tensor map into L2."""
    text = "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [$0,{$1,$2}];"
    return emit(text, "l,r,r", [desc, Int32(c0), Int32(c1)], None, False, loc, ip)


@dsl_user_op
def expect(bar, size, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Arrive, and expect ``size`` bytes."""
    text = "mbarrier.arrive.expect_tx.shared::cta.b64 _,[$0],$1;"
    return emit(text, "r,r,~{memory}", [Int32(bar), Int32(size)], None, False, loc, ip)


@dsl_user_op
def arrive(bar, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Arrive at a barrier of this CTA."""
    return emit("mbarrier.arrive.shared::cta.b64 _,[$0];", "r,~{memory}", [Int32(bar)], None, False, loc, ip)


@dsl_user_op
def wait(bar, phase, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Wait until a barrier's phase completes."""
    text = (
        "{ .reg .pred p; W${:uid}: mbarrier.try_wait.parity.shared::cta.b64 p,[$0],$1; @p bra D${:uid}; "
        "bra W${:uid}; D${:uid}: }"
    )
    return emit(text, "r,r,~{memory}", [Int32(bar), Int32(phase)], None, False, loc, ip)


@dsl_user_op
def release_to_copies(*, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Order this thread's reads of shared memory before later asynchronous copies into it.

    A barrier alone does not: ordinary loads and copies are different proxies, and the compiler lets an arrive leave while matrix
    loads before it are still in flight. Guests on the SM can hold those loads back for longer than a refill takes.
    """
    return emit("fence.proxy.async.shared::cta;", "~{memory}", [], None, False, loc, ip)


@dsl_user_op
def acquire_for_copies(*, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Order global memory that other threads wrote with ordinary stores, and that is visible here, before later bulk copies of it."""
    return emit("fence.proxy.async.global;", "~{memory}", [], None, False, loc, ip)


@dsl_user_op
def count_release(p, n, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Add to a word of global memory; whoever sees the sum sees what was written here before."""
    text = "red.release.gpu.global.add.u32 [$0], $1;"
    return emit(text, "l,r,~{memory}", [Int64(p), Int32(n)], None, False, loc, ip)


@dsl_user_op
def arrive_in_turn(p, last, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Count up to ``last`` and then back to zero; the old count. The last to arrive sees what the others wrote before."""
    text = "atom.acq_rel.gpu.global.inc.u32 $0, [$1], $2;"
    return emit(text, "=r,l,r,~{memory}", [Int64(p), Int32(last)], Int32, False, loc, ip)


@dsl_user_op
def wait_count(p, least, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Wait until a word of global memory, counted up by ``count_release``, is at least ``least``."""
    text = (
        "{ .reg .pred p; .reg .u32 v; W${:uid}: ld.acquire.gpu.global.u32 v,[$0]; setp.ge.u32 p,v,$1; @p bra D${:uid}; "
        "bra W${:uid}; D${:uid}: }"
    )
    return emit(text, "l,r,~{memory}", [Int64(p), Int32(least)], None, False, loc, ip)


@dsl_user_op
def sleep(nanoseconds, *, loc=None, ip=None):  # type: ignore[no-untyped-def]
    """Hold this thread for about so long (at most a millisecond)."""
    return emit("nanosleep.u32 $0;", "r,~{memory}", [Int32(nanoseconds)], None, False, loc, ip)


@cute.jit
def begin(pdl: Any, first: Any = False) -> None:
    """Wait for the kernels before this one and let the next one start.

    In this order the next-but-one kernel may read, before its own wait, what this kernel's predecessors wrote. With ``first`` the next
    one starts as soon as every CTA of this one has: it fills its ring a whole kernel earlier, but nothing is promised to the kernels
    behind it (``tactics.EARLY_READS`` says where that is allowed). ``UNWAITED`` in place of ``pdl`` makes a mutant that never waits.
    """
    if const_expr(pdl == UNWAITED):
        cute.arch.griddepcontrol_launch_dependents()
    elif const_expr(pdl and first):
        cute.arch.griddepcontrol_launch_dependents()
        cute.arch.griddepcontrol_wait()
    elif const_expr(pdl):
        cute.arch.griddepcontrol_wait()
        cute.arch.griddepcontrol_launch_dependents()
