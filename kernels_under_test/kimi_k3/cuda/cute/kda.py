"""KDA core of one token a request: forget gate, convolution, SiLU, L2 norms, decay, delta rule, output norm and gate.

A cluster of C CTAs serves one (head, request); CTA r owns 128 / C value rows, 16 lanes a row. With o = (alpha S) q + e (k q) both
products are reduced in one pass, and one float a CTA crosses the cluster.

At one or two rows a CTA's part of the state lies in registers. Above it is ``staged``: the copy engine brings it to shared memory
before the wait and takes it back behind the last use, so that up to three CTAs of 64 KB share an SM, and some load and store while
another computes (64 rows: 27 us instead of 35, where 128 registers of state spilled and only two CTAs found room).
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Float32, Int64, Uint8, Uint32
from cutlass.memory import SmemAllocator

from kernels_under_test.kimi_k3.cuda.cute import ptx
from kernels_under_test.kimi_k3.cuda.sizes import B_COLUMN, DIM, HEADS, WIDTH

LANES = 16
GROUPS = 128 // LANES
CHUNKS = DIM // LANES // 4
ROW = 4 * DIM
"""Bytes of a row of the state."""
BATCH = 8
PART = BATCH * GROUPS * ROW
"""Bytes of a staged state that all threads work on at a time: 64 rows."""
FAULTS = ("", "sentinel", "narrow")
"""What a mutant does: it writes the state of null slots, or keeps a slot's offset in 32 bits."""


class Kda:
    """Slots at or below 0 are null: their row becomes zero and no state is written.

    State, taps and the forget gate's weights are read before the wait: only this kernel writes the former, one whole step ago.
    """

    def __init__(
        self, m: int, *, c: int, per_sm: int = 1, staged: bool = False, pdl: Any = True, first: bool = False,
        fault: str = "",
    ) -> None:  # fmt: skip
        if fault not in FAULTS:
            raise ValueError(f"expected a fault out of {FAULTS}, found {fault!r}")
        if staged and (DIM // c) % (BATCH * GROUPS):
            raise ValueError(f"expected at most two CTAs for a staged state, found {c}")
        self.m, self.c, self.staged, self.pdl, self.first, self.fault = m, c, staged, pdl, first, fault
        self.rows = DIM // c
        self.passes = self.rows // GROUPS
        self.options: dict[str, Any] = {"min_blocks_per_mp": per_sm}
        if per_sm > 1:
            self.options["preferred_smem_carveout"] = 50
        if c > 1:
            self.options["cluster"] = (c, 1, 1)

    @cute.jit
    def __call__(
        self, proj: cute.Tensor, fb: cute.Tensor, cw: cute.Tensor, conv: cute.Tensor, alog: cute.Tensor, dt: cute.Tensor,
        slots: cute.Tensor, state: cute.Tensor, nw: cute.Tensor, out: cute.Tensor, stream: Any,
    ) -> None:  # fmt: skip
        self.kernel(proj, fb, cw, conv, alog, dt, slots, state, nw, out).launch(
            grid=(self.c, HEADS, self.m), block=(128, 1, 1), stream=stream, use_pdl=bool(self.pdl), **self.options
        )

    def gate_weights(self, fb: Any, head: Any, tid: Any) -> list[Any]:
        """This lane's 8 columns of 16 rows of the forget gate's up projection: a row is read by 16 neighbouring lanes."""
        base = ptx.addr(fb.iterator) + Int64(head * DIM) * (2 * DIM) + Int64(tid * 16)
        return [ptx.load16(base + 2048 * i) for i in range(16)]

    def gate_dots(self, weights: list[Any], f: list[Any]) -> list[Any]:
        """This lane's part of the forget gate for these rows."""
        return [self.dot(ptx.floats(words), f) for words in weights]

    def dot(self, a: list[Any], b: list[Any]) -> Any:
        """Their product."""
        value = a[0] * b[0]
        for e in range(1, len(a)):
            value = ptx.fma(a[e], b[e], value)
        return value

    @cute.kernel
    def kernel(
        self, proj: cute.Tensor, fb: cute.Tensor, cw: cute.Tensor, conv: cute.Tensor, alog: cute.Tensor, dt: cute.Tensor,
        slots: cute.Tensor, state: cute.Tensor, nw: cute.Tensor, out: cute.Tensor,
    ) -> None:  # fmt: skip
        C, R, P = self.c, self.rows, self.passes
        tid, _, _ = cute.arch.thread_idx()
        rank, head, req = cute.arch.block_idx()
        lane, warp = tid % 32, tid // 32
        grp, gl = tid // LANES, tid % LANES
        sm = SmemAllocator()
        if cutlass.const_expr(self.staged):
            stage = sm.allocate_array(Uint8, R * ROW, byte_alignment=128)
            bars = sm.allocate_array(Int64, 1, byte_alignment=8)
        vec = cute.make_layout(DIM)
        sq, sk, sa = (sm.allocate_tensor(Float32, vec, 16) for _ in range(3))
        sv, so, sf, sg = (sm.allocate_tensor(Float32, vec, 16) for _ in range(4))
        red = sm.allocate_tensor(Float32, cute.make_layout(32), 16)
        recv = sm.allocate_tensor(Float32, cute.make_layout(8), 16)
        if cutlass.const_expr(C > 1):
            cute.arch.cluster_arrive_relaxed()
        given = slots[req]
        live = given > 0
        if cutlass.const_expr(self.fault == "sentinel"):
            live = given > -1
        slot = cutlass.max(given, 0)
        base = rank * R
        sp = ptx.addr(state.iterator) + (Int64(slot) * (HEADS * DIM) + Int64(head * DIM + base)) * ROW
        if cutlass.const_expr(self.fault == "narrow"):
            sp = ptx.addr(state.iterator) + Int64(Uint32(slot * (HEADS * DIM) + head * DIM + base) * Uint32(ROW))
        if cutlass.const_expr(self.staged):
            hb, bar = ptx.saddr(stage), ptx.saddr(bars)
            if tid == 0:
                cute.arch.mbarrier_init(bars, 1)
                cute.arch.mbarrier_init_fence()
                ptx.expect(bar, R * ROW)
                for i in cutlass.range_constexpr(P // BATCH):
                    ptx.bulk_copy(hb + i * PART, sp + i * PART, PART, bar)
        else:
            hist = cute.make_rmem_tensor((P * CHUNKS * 4,), Float32)
            for p in cutlass.range_constexpr(P):
                for c in cutlass.range_constexpr(CHUNKS):
                    v = ptx.load16(sp + Int64((p * GROUPS + grp) * ROW + (c * LANES + gl) * 16), "once")
                    for e in cutlass.range_constexpr(4):
                        hist[(p * CHUNKS + c) * 4 + e] = ptx.as_float(v[e])
        ch = head * DIM + tid
        vch = head * DIM + base + (tid % R)
        tap = [[Float32(conv[slot, i, s * WIDTH + (vch if s == 2 else ch)]) for i in range(3)] for s in range(3)]
        wt = [[cw[s, i, (vch if s == 2 else ch)] for i in range(4)] for s in range(3)]
        dtv, al, nwv = dt[ch], alog[head], nw[base + tid % R]
        fw = self.gate_weights(fb, head, tid)
        ptx.begin(self.pdl, self.first)
        sf[tid] = Float32(proj[req, 4 * WIDTH + tid])
        xin = [proj[req, s * WIDTH + (vch if s == 2 else ch)] for s in range(3)]
        gate = Float32(proj[req, 3 * WIDTH + vch])
        b = Float32(proj[req, B_COLUMN + head])
        cute.arch.sync_threads()
        f = [ptx.as_float(v) for v in ptx.shared16(ptx.saddr(sf.iterator) + gl * 32)]
        f += [ptx.as_float(v) for v in ptx.shared16(ptx.saddr(sf.iterator) + gl * 32, 16)]
        sg[gl * GROUPS + grp] = ptx.scatter_sum(self.gate_dots(fw, f), gl)
        cute.arch.sync_threads()
        rg = ptx.rounded(sg[tid])
        z = []
        for s in cutlass.range_constexpr(3):
            a = tap[s][0] * wt[s][0]
            a = ptx.fma(tap[s][1], wt[s][1], a)
            a = ptx.fma(tap[s][2], wt[s][2], a)
            a = ptx.fma(Float32(xin[s]), wt[s][3], a)
            z.append(a * ptx.sigmoid(a))
        q, k, v0 = z
        alpha = cute.math.exp(-5.0 * ptx.sigmoid(cute.math.exp(al, fastmath=True) * (rg + dtv)), fastmath=True)
        beta = ptx.sigmoid(b)
        s1, s2, s3 = ptx.warp_sum(q * q), ptx.warp_sum(k * k), ptx.warp_sum(q * k)
        sq[tid] = q
        sk[tid] = k
        sa[tid] = alpha
        if lane == 0:
            red[warp] = s1
            red[8 + warp] = s2
            red[16 + warp] = s3
        if tid < R:
            sv[tid] = v0
        cute.arch.sync_threads()
        qq = (red[0] + red[1]) + (red[2] + red[3])
        kk = (red[8] + red[9]) + (red[10] + red[11])
        qk = (red[16] + red[17]) + (red[18] + red[19])
        fq = cute.math.rsqrt(qq + 1e-6) * (128.0**-0.5)
        fk = cute.math.rsqrt(kk + 1e-6)
        kq = qk * fq * fk
        qr, kr, ar = [], [], []
        for c in cutlass.range_constexpr(CHUNKS):
            o = (c * LANES + gl) * 16
            qr += [ptx.as_float(w) * fq for w in ptx.shared16(ptx.saddr(sq.iterator) + o)]
            kr += [ptx.as_float(w) * fk for w in ptx.shared16(ptx.saddr(sk.iterator) + o)]
            ar += [ptx.as_float(w) for w in ptx.shared16(ptx.saddr(sa.iterator) + o)]
        if cutlass.const_expr(self.staged):
            ptx.wait(bar, 0)
            for i in cutlass.range_constexpr(P // BATCH):
                self.update_part(i, hb + i * PART, qr, kr, ar, kq, beta, sv, so, tid)
                ptx.release_to_copies()
                cute.arch.sync_threads()
                if (tid == 0) & live:
                    ptx.bulk_store(sp + i * PART, hb + i * PART, PART)
        else:
            self.update_held(sp, hist, qr, kr, ar, kq, beta, sv, so, tid, live)
            cute.arch.sync_threads()
        ov = so[tid % R]
        part = ov * ov
        if cutlass.const_expr(R < 32):
            part = ptx.warp_sum(part, R)
        else:
            part = ptx.warp_sum(part)
            if lane == 0:
                red[24 + warp] = part
            cute.arch.sync_threads()
            part = red[24]
            for i in cutlass.range_constexpr(1, R // 32):
                part = part + red[24 + i]
        total = part
        if cutlass.const_expr(C > 1):
            cute.arch.cluster_wait()
            if tid < C:
                ptx.store_remote(ptx.remote(ptx.saddr(recv.iterator) + rank * 4, tid), part)
            cute.arch.cluster_arrive()
            cute.arch.cluster_wait()
            total = recv[0]
            for i in cutlass.range_constexpr(1, C):
                total = total + recv[i]
        rstd = cute.math.rsqrt(total * (1.0 / DIM) + 1e-5)
        if tid < R:
            out[req, vch] = (ov * rstd * nwv * ptx.sigmoid(gate) if live else Float32(0.0)).to(BFloat16)
            if live:
                conv[slot, 0, 2 * WIDTH + vch] = BFloat16(tap[2][1])
                conv[slot, 1, 2 * WIDTH + vch] = BFloat16(tap[2][2])
                conv[slot, 2, 2 * WIDTH + vch] = xin[2]
        if (rank == 0) & live:
            for s in cutlass.range_constexpr(2):
                conv[slot, 0, s * WIDTH + ch] = BFloat16(tap[s][1])
                conv[slot, 1, s * WIDTH + ch] = BFloat16(tap[s][2])
                conv[slot, 2, s * WIDTH + ch] = xin[s]
        if cutlass.const_expr(self.staged):  # noqa: SIM102 (a condition of the build, and one of the run)
            if tid == 0:
                ptx.bulk_stored()

    @cute.jit
    def update_held(
        self, sp: Any, hist: cute.Tensor, qr: Any, kr: Any, ar: Any, kq: Any, beta: Any, sv: cute.Tensor, so: cute.Tensor,
        tid: Any, live: Any,
    ) -> None:  # fmt: skip
        """Decay, delta rule and output of this lane's rows, the state in registers."""
        P = self.passes
        grp, gl = tid // LANES, tid % LANES
        W = CHUNKS * 4
        d1, d2 = [], []
        for p in cutlass.range_constexpr(P):
            a1, a2 = Float32(0.0), Float32(0.0)
            for e in cutlass.range_constexpr(W):
                decayed = hist[p * W + e] * ar[e]
                hist[p * W + e] = decayed
                a1 = ptx.fma(decayed, kr[e], a1)
                a2 = ptx.fma(decayed, qr[e], a2)
            d1.append(a1)
            d2.append(a2)
        for sh in cutlass.range_constexpr(3, -1, -1):
            for p in cutlass.range_constexpr(P):
                d1[p] = d1[p] + cute.arch.shuffle_sync_bfly(d1[p], 1 << sh)
                d2[p] = d2[p] + cute.arch.shuffle_sync_bfly(d2[p], 1 << sh)
        for p in cutlass.range_constexpr(P):
            r = p * GROUPS + grp
            e1 = (sv[r] - d1[p]) * beta
            if gl == 0:
                so[r] = ptx.fma(e1, kq, d2[p])
            for c in cutlass.range_constexpr(CHUNKS):
                w = [ptx.as_bits(ptx.fma(e1, kr[c * 4 + e], hist[p * W + c * 4 + e])) for e in range(4)]
                if live:
                    ptx.store16_once(sp + Int64(r * ROW + (c * LANES + gl) * 16), w[0], w[1], w[2], w[3])

    @cute.jit
    def update_part(
        self, i: cutlass.Constexpr, part: Any, qr: Any, kr: Any, ar: Any, kq: Any, beta: Any, sv: cute.Tensor,
        so: cute.Tensor, tid: Any,
    ) -> None:  # fmt: skip
        """The same for 64 rows in shared memory: lane l of a row's 16 gets the first product of row l or the second of row l - 8."""
        grp, gl, half = tid // LANES, tid % LANES, tid % 32 // LANES * LANES
        W = CHUNKS * 4
        at = part + grp * ROW + gl * 16
        decayed, dots = [], []
        for p in cutlass.range_constexpr(BATCH):
            words = [ptx.shared16(at, p * GROUPS * ROW + c * (LANES * 16)) for c in range(CHUNKS)]
            row = [ptx.as_float(w) for four in words for w in four]
            decayed.append([row[e] * ar[e] for e in range(W)])
        for side in (kr, qr):
            for p in cutlass.range_constexpr(BATCH):
                dots.append(self.dot(decayed[p], side))
        whole = ptx.scatter_sum(dots, gl)
        r = (i * BATCH + gl % BATCH) * GROUPS + grp
        error = (sv[r] - whole) * beta
        mine = cute.arch.shuffle_sync(error, half + gl % BATCH)
        if gl >= BATCH:
            so[r] = ptx.fma(mine, kq, whole)
        for p in cutlass.range_constexpr(BATCH):
            e1 = cute.arch.shuffle_sync(error, half + p)
            for c in cutlass.range_constexpr(CHUNKS):
                new = [ptx.as_bits(ptx.fma(e1, kr[c * 4 + e], decayed[p][c * 4 + e])) for e in range(4)]
                ptx.store_shared16(at + p * GROUPS * ROW + c * (LANES * 16), *new)


assert 2 * BATCH == LANES
