"""One inline PTX statement."""

# mypy: disallow-untyped-decorators=False, disallow-untyped-calls=False, disallow-any-generics=False, warn-return-any=False

from __future__ import annotations

from typing import Any

from cutlass._mlir.dialects import llvm


def emit(text: str, cons: str, args: list[Any], res: Any, pure: bool, loc: Any, ip: Any) -> Any:
    """One asm statement; ``res`` is None, a type, or a tuple of types."""
    ops = [a.ir_value(loc=loc, ip=ip) for a in args]
    several = isinstance(res, tuple)
    kind = llvm.StructType.get_literal([r.mlir_type for r in res]) if several else res.mlir_type if res else None
    value = llvm.inline_asm(
        kind,
        ops,
        text,
        cons,
        has_side_effects=not pure,
        is_align_stack=False,
        asm_dialect=llvm.AsmDialect.AD_ATT,
        loc=loc,
        ip=ip,
    )
    if several:
        return tuple(r(llvm.extractvalue(r.mlir_type, value, [i], loc=loc, ip=ip)) for i, r in enumerate(res))
    return res(value) if res else None
