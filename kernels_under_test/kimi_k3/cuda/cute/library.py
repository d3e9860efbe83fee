"""The compiled kernels, loaded without the DSL."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any


class Library:
    """kernels.so as the build wrote it.

    Raises:
        FileNotFoundError: if the library is missing.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise FileNotFoundError(f"expected the compiled kernels at {path}: run the build first")
        import torch
        import tvm_ffi

        torch.zeros(1, device="cuda")
        ctypes.CDLL(f"libcudart.so.{(torch.version.cuda or '13').split('.')[0]}", mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi(), mode=ctypes.RTLD_GLOBAL)
        self._module = tvm_ffi.load_module(str(path))
        self._found: dict[str, Any] = {}

    def __getitem__(self, symbol: str) -> Any:
        if symbol not in self._found:
            self._found[symbol] = self._module[symbol]
        return self._found[symbol]
