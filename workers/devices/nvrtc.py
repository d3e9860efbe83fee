"""Compiles CUDA source to a cubin with the runtime compiler that torch brings along."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

OPTIONS = ("--fmad=false", "--std=c++17")
"""No fused multiply-add: what torch rounds twice is rounded twice here."""


class CompileError(RuntimeError):
    """The source does not compile, or there is no compiler; the message says which."""


def compile_cubin(source: str, architecture: str, library: Any = None) -> bytes:
    """Return the cubin of CUDA source for an architecture such as ``sm_90a``. ``library`` is another compiler in tests only.

    Raises:
        CompileError: if no compiler is found or the source does not compile.
    """
    compiler = library or _library()
    program = ctypes.c_void_p()
    _call(compiler, "nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"loop.cu", 0, None, None)
    try:
        options = [f"--gpu-architecture={architecture}".encode(), *(option.encode() for option in OPTIONS)]
        given = (ctypes.c_char_p * len(options))(*options)
        if compiler.nvrtcCompileProgram(program, len(options), given):
            raise CompileError(f"the loop's source does not compile for {architecture}: {_log(compiler, program)}")
        return _read(compiler, program, "CUBIN")
    finally:
        compiler.nvrtcDestroyProgram(ctypes.byref(program))


def _log(compiler: Any, program: ctypes.c_void_p) -> str:
    return _read(compiler, program, "ProgramLog").rstrip(b"\0").decode("utf-8", "replace")[:2000]


def _read(compiler: Any, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _call(compiler, f"nvrtcGet{what}Size", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    _call(compiler, f"nvrtcGet{what}", program, buffer)
    return buffer.raw


def _call(compiler: Any, name: str, *arguments: Any) -> None:
    code = getattr(compiler, name)(*arguments)
    if code:
        raise CompileError(f"{name} failed with code {code}")


def _candidates() -> Iterator[str]:
    major = (torch.version.cuda or "13").split(".")[0]
    yield f"libnvrtc.so.{major}"
    packages = Path(torch.__file__).parents[1]
    for pattern in ("nvidia/*/lib/libnvrtc.so.*", "torch/lib/libnvrtc*.so*"):
        yield from (str(path) for path in sorted(packages.glob(pattern)) if "builtins" not in path.name)


def _library() -> ctypes.CDLL:
    tried = []
    for name in _candidates():
        try:
            return ctypes.CDLL(name)
        except OSError:
            tried.append(name)
    raise CompileError(f"expected CUDA's runtime compiler; found none as {', '.join(tried)}")
