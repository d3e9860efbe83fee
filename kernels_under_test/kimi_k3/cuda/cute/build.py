"""Compile the candidate's kernels ahead of time, without a device, and link them into one library.

    CUTE_DSL_ARCH=sm_90a python -m kernels_under_test.kimi_k3.cuda.cute.build OUT [rows ...] [kernels ...] [--chosen] [--mutants]

OUT gets kernels.so and kernels.json: registers, stack frame and digest of each cubin. With --chosen only the variants in use are
built; --mutants adds those that no timed layer uses: planted faults, the delay, the residuals of a layer that opens
a block, and the merge of eight ranks' parts.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from kernels_under_test.kimi_k3.cuda.cute import mla_tactics, mla_variants
from kernels_under_test.kimi_k3.cuda.cute.tactics import (
    BESIDE,
    EXPERT_SHAPES,
    MUTANTS,
    OPENING,
    PRODUCTS,
    chosen,
    name,
    tactics,
)
from kernels_under_test.kimi_k3.cuda.kernel_lists import candidate, mla_candidate
from kernels_under_test.kimi_k3.cuda.sizes import (
    BLOCKS,
    DIM,
    EXPERTS,
    HEADS,
    HIDDEN,
    INTER,
    LATENT,
    OUT_SHARD,
    PARTS,
    PROJECTION,
    ROWS,
    SHARED,
    TOP_K,
    UNIT,
    WIDTH,
)  # fmt: skip


def kernel_object(kernel: str, rows: int, tactic: dict[str, Any]) -> Any:
    """The CuTe DSL kernel of a variant, not yet compiled."""
    from kernels_under_test.kimi_k3.cuda.cute import (
        beside,
        delay,
        experts,
        experts_stream,
        finalise,
        kda,
        residual,
        ring,
        route,
        skinny,
    )

    args = dict(tactic)
    if kernel == "delay":
        return delay.Delay(**args)
    if kernel in mla_tactics.KERNELS:
        return mla_variants.kernel_object(kernel, rows, tactic)
    if kernel in PRODUCTS:
        n, k, epilogue = PRODUCTS[kernel]
        kind = ring.Ring if args.pop("design") == "ring" else skinny.Skinny
        return kind(rows, n, k, epilogue=epilogue, **args)
    if kernel in BESIDE:
        fault = args.pop("fault", "")
        product = kernel_object("shared_down", rows, args)
        if kernel == "route_shared_down":
            return beside.RouteBesideSkinny(route.Route(rows, first=product.first), product)
        group = route.Group(rows, threads=product.threads, first=product.first)
        return beside.RoutedGroupsBesideRing(route.Route(rows, first=product.first), group, product, fault)
    if kernel == "experts":
        return experts_stream.StreamedExperts(**args)
    if kernel in EXPERT_SHAPES:
        n, k = EXPERT_SHAPES[kernel]
        return experts.Experts(kernel.removeprefix("experts_"), n, k, **args)
    simple = {
        "attention_residual": residual.Residual,
        "ffn_residual": residual.Residual,
        "kda": kda.Kda,
        "tail_finalise": finalise.Finalise,
    }
    return simple[kernel](rows, **args)


def signature(kernel: str, m: int, opens: bool = False) -> Sequence[tuple[str, tuple[int | None, ...]]]:
    """Dtype and shape of every tensor a kernel takes, in order; all are contiguous. None is a size known only at run time. A layer
    that ``opens`` a block has room for it."""
    if kernel in mla_tactics.KERNELS:
        return mla_variants.signature(kernel, m)
    bf, f32, i32, u8 = "BFloat16", "Float32", "Int32", "Uint8"
    row = (bf, (m, HIDDEN))
    units = TOP_K * m
    experts = [
        (i32, (1,)), (i32, (units,)), (i32, (units * UNIT,)), (i32, (units * UNIT,)),
    ]  # fmt: skip
    residual = [row, (bf, (PARTS - 1, m, HIDDEN)), row, (bf, (m, BLOCKS + opens, HIDDEN)), *[(bf, (HIDDEN,))] * 3, row]
    routing = [(f32, (m, EXPERTS)), (f32, (EXPERTS,)), (i32, (m, TOP_K)), (f32, (m, TOP_K))]
    shared = [(bf, (m, SHARED)), (bf, (HIDDEN, SHARED)), row]
    if kernel in PRODUCTS:
        n, k, epilogue = PRODUCTS[kernel]
        y = {
            "store": [(bf, (m, n))] * 3,
            "front": [(f32, (m, EXPERTS)), (bf, (m, LATENT)), (bf, (m, SHARED))],
            "tail": [row, (bf, (m, OUT_SHARD)), (bf, (m, OUT_SHARD))],
        }[epilogue]
        return [(bf, (m, k)), (bf, (n, k)), *y]
    if kernel == "experts":
        weights = [
            tensor
            for n, k in EXPERT_SHAPES.values()
            for tensor in ((i32, (EXPERTS, n * k // 8)), (u8, (EXPERTS, n * k // 32)))
        ]
        return [(bf, (m, LATENT)), *weights, *experts, (i32, (units,)), (bf, (units, INTER)), (bf, (units, LATENT))]
    if kernel in EXPERT_SHAPES:
        n, k = EXPERT_SHAPES[kernel]
        source = (bf, (m, k)) if kernel == "experts_in" else (bf, (units, k))
        out = (bf, (units, n // 2 if kernel == "experts_in" else n))
        return [source, (i32, (EXPERTS, n * k // 8)), (u8, (EXPERTS, n * k // 32)), (i32, (units,)), out]
    table: dict[str, Sequence[tuple[str, tuple[int | None, ...]]]] = {
        "delay": [(i32, (1,))],
        "attention_residual": residual,
        "ffn_residual": residual,
        "kda": [
            (bf, (m, PROJECTION)), (bf, (WIDTH, DIM)), (f32, (3, 4, WIDTH)), (bf, (None, 3, 3 * WIDTH)), (f32, (HEADS,)),
            (f32, (WIDTH,)), (i32, (m,)), (f32, (None, HEADS, DIM, DIM)), (f32, (DIM,)), (bf, (m, WIDTH)),
        ],
        "route_shared_down": [*routing, (i32, (units,)), *shared],
        "route_group_shared_down": [*routing, *experts, (i32, (units,)), (i32, (1,)), *shared],
        "tail_finalise": [
            (bf, (m * TOP_K, LATENT)), (f32, (m, TOP_K)), (bf, (PARTS - 1, m, LATENT)), (bf, (LATENT,)), (bf, (m, LATENT)),
            (bf, (m, HIDDEN)), (bf, ((PARTS - 1) * m, OUT_SHARD)), (bf, (m, OUT_SHARD)),
        ],
    }  # fmt: skip
    return table[kernel]


def compile_variant(kernel: str, rows: int, index: int | str, out: Path) -> dict[str, Any]:
    """Compile one variant to an object file; returns its facts."""
    import cutlass
    import cutlass.cute as cute
    from cutlass.cute.runtime import make_fake_stream, make_fake_tensor

    def fake(dtype: str, shape: tuple[int | None, ...]) -> Any:
        strides: list[Any] = [1]
        for size in reversed(shape[1:]):
            strides.insert(0, cute.sym_int(64) if size is None else strides[0] * size)
        align = 4 if dtype == "Int32" and (len(shape) == 1 or None in shape) else 16
        sizes = tuple(cute.sym_int() if size is None else size for size in shape)
        return make_fake_tensor(getattr(cutlass, dtype), sizes, tuple(strides), assumed_align=align)

    table = mla_tactics.tactics if kernel in mla_tactics.KERNELS else tactics
    tactic = table(kernel, rows)[index] if isinstance(index, int) else special(kernel)[index][2]
    symbol = name(kernel, rows, index)
    # The DSL cuts the names of its dumps short: two variants built at once would read each other's from one folder.
    dump = out / "dump" / symbol
    dump.mkdir(parents=True, exist_ok=True)
    compiled = cute.compile(
        kernel_object(kernel, rows, tactic),
        *(fake(*spec) for spec in signature(kernel, rows, "opens" in tactic)),
        make_fake_stream(use_tvm_ffi_env_stream=True),
        options=f"--enable-tvm-ffi --keep-cubin --dump-dir {dump}",
    )
    cubin = compiled.__cubin__
    compiled.export_to_c(str(out / f"{symbol}.o"), function_name=symbol)
    facts = {
        "symbol": symbol,
        "kernel": kernel,
        "rows": rows,
        "tactic": tactic,
        "sha256": hashlib.sha256(cubin).hexdigest(),
    }
    return facts | resources(cubin)


def resources(cubin: bytes) -> dict[str, int]:
    """Registers and stack frame (bytes; above 0 it means spills) of the kernel in a cubin, from its .nv.info section."""
    offset = struct.unpack_from("<Q", cubin, 0x28)[0]
    size, count, strings = struct.unpack_from("<HHH", cubin, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", cubin, offset + i * size) for i in range(count)]
    names = sections[strings][4]
    found: dict[str, int] = {}
    for section in sections:
        start = names + section[0]
        if cubin[start : cubin.index(b"\0", start)] != b".nv.info":
            continue
        at, end = section[4], section[4] + section[5]
        while at < end:
            form, attribute, length = struct.unpack_from("<BBH", cubin, at)
            if form == 4:
                if attribute in (0x2F, 0x11):
                    key = "registers" if attribute == 0x2F else "frame"
                    found[key] = max(found.get(key, 0), struct.unpack_from("<II", cubin, at + 4)[1])
                at += length
            at += 4
    return found


def _job(job: tuple[str, int, int | str, str]) -> dict[str, Any]:
    kernel, rows, index, out = job
    try:
        return compile_variant(kernel, rows, index, Path(out))
    except Exception as error:  # reported per variant, and again by the caller
        return {"symbol": name(kernel, rows, index), "error": f"{type(error).__name__}: {str(error)[:2000]}"}


def special(kernel: str) -> dict[str, tuple[str, int, dict[str, Any]]]:
    """Variants of a kernel's kind of layer that no layer uses."""
    return mla_tactics.SPECIAL if kernel in mla_tactics.KERNELS else MUTANTS | OPENING


def variants(kernel: str, rows: int, chosen_only: bool) -> Iterable[int]:
    """Numbers of the variants to build."""
    if kernel in mla_tactics.KERNELS:
        return (mla_tactics.chosen(kernel, rows),) if chosen_only else range(len(mla_tactics.tactics(kernel, rows)))
    return (chosen(kernel, rows),) if chosen_only else range(len(tactics(kernel, rows)))


def build(
    out: Path,
    rows: Iterable[int] = ROWS,
    kernels: Iterable[str] | None = None,
    chosen_only: bool = False,
    mutants: bool = False,
) -> list[dict[str, Any]]:
    """Compile all variants and link the library.

    Raises:
        RuntimeError: if a variant does not compile.
    """
    out.mkdir(parents=True, exist_ok=True)
    jobs: list[tuple[str, int, int | str, str]] = [
        (kernel, m, index, str(out))
        for m in rows
        for kernel in dict.fromkeys((*candidate(m), *mla_candidate(m)))
        if kernels is None or kernel in kernels
        for index in variants(kernel, m, chosen_only)
    ]
    if mutants:
        jobs.append(("delay", 1, 0, str(out)))
        for table in (MUTANTS, OPENING, mla_tactics.SPECIAL):
            jobs += [(kernel, m, fault, str(out)) for fault, (kernel, m, _) in table.items()]
    workers = int(os.environ.get("BUILD_WORKERS", "2"))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        facts = list(pool.map(_job, jobs, chunksize=4))
    failed = [f for f in facts if "error" in f]
    (out / "kernels.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    if failed:
        raise RuntimeError(
            f"{len(failed)} variants do not compile: " + "; ".join(f"{f['symbol']}: {f['error']}" for f in failed[:4])
        )
    link(out)
    return facts


def link(out: Path) -> None:
    """All objects and the DSL's static runtime into kernels.so."""
    import cutlass

    root = Path(cutlass.__file__).resolve().parents[2]
    runtime = sorted(root.rglob("libcuda_dialect_runtime_static.a"))
    if not runtime:
        raise RuntimeError(f"expected the DSL's static runtime below {root}")
    objects = [str(p) for p in sorted(out.glob("k3_*.o"))]
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        "-O1",
        "-o",
        str(out / "kernels.so"),
        *objects,
        str(Path(__file__).with_name("raise.c")),
    ]
    subprocess.run([*command, str(runtime[0]), "-lstdc++", "-ldl", "-lpthread"], check=True)


if __name__ == "__main__":
    wanted = [int(a) for a in sys.argv[2:] if a.isdigit()] or list(ROWS)
    named = [a for a in sys.argv[2:] if not a.isdigit() and not a.startswith("--")] or None
    done = build(Path(sys.argv[1]), wanted, named, "--chosen" in sys.argv, "--mutants" in sys.argv)
    sys.stdout.write("".join(f"{f['symbol']} {f.get('registers')} registers, frame {f.get('frame')}\n" for f in done))
