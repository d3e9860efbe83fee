"""The few functions of the CUDA driver that torch has no name for: memory with a descriptor, and kernels from a cubin.

Standard library and torch only: the arm's stub uses this file too, copied beside it. Memory that is made here can be handed to
another process as a file descriptor, whatever PID and user namespace that process lives in.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

PINNED, DESCRIPTOR, ON_DEVICE, READ_WRITE = 1, 1, 1, 3
"""CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_LOCATION_TYPE_DEVICE, PROT_READWRITE."""
KERNEL_NODE = 0


class DriverError(RuntimeError):
    """A call of the driver failed; the message names both."""


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("kind", ctypes.c_int), ("ordinal", ctypes.c_int))


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


@dataclass(frozen=True)
class Memory:
    """Memory of the device, mapped into this process."""

    handle: int
    pointer: int
    size: int

    def bytes(self) -> Tensor:
        """Return all of it as a tensor [size] uint8. The memory is not kept by the tensor."""

        class View:
            __cuda_array_interface__ = {
                "shape": (self.size,), "typestr": "|u1", "data": (self.pointer, False), "version": 3, "strides": None,
            }  # fmt: skip

        return torch.as_tensor(View(), device="cuda")


class Driver:
    """Calls into libcuda of one device. ``library`` is another one in tests only.

    Raises:
        DriverError: at any call that fails; a device's first context is torch's.
    """

    def __init__(self, library: Any = None, ordinal: int = 0) -> None:
        if library is None:
            try:
                library = ctypes.CDLL("libcuda.so.1")
            except OSError as error:
                raise DriverError(f"expected the CUDA driver as libcuda.so.1; found none ({error})") from error
        self._library, self._ordinal = library, ordinal
        self._call("cuInit", 0)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(text))
            raise DriverError(f"{name}: {(text.value or b'unknown error').decode()} ({code})")

    def _properties(self) -> Properties:
        return Properties(kind=PINNED, handles=DESCRIPTOR, location=Location(ON_DEVICE, self._ordinal))

    def granularity(self) -> int:
        """Return what sizes of memory have to be a multiple of, in bytes."""
        found = ctypes.c_size_t()
        self._call("cuMemGetAllocationGranularity", ctypes.byref(found), ctypes.byref(self._properties()), 0)
        return found.value

    def make(self, size: int) -> Memory:
        """Make memory of at least ``size`` bytes that can be exported, and map it."""
        step = self.granularity()
        size = -(-size // step) * step
        handle = ctypes.c_ulonglong()
        self._call(
            "cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(self._properties()), ctypes.c_ulonglong(0)
        )  # fmt: skip
        return self._map(handle.value, size)

    def export(self, memory: Memory) -> int:
        """Return a new file descriptor of memory made here; whoever gets it can map the memory."""
        descriptor = ctypes.c_int(-1)
        self._call(
            "cuMemExportToShareableHandle", ctypes.byref(descriptor), ctypes.c_ulonglong(memory.handle), DESCRIPTOR,
            ctypes.c_ulonglong(0),
        )  # fmt: skip
        return descriptor.value

    def adopt(self, descriptor: int, size: int) -> Memory:
        """Map another process's memory of ``size`` bytes; the descriptor stays the caller's."""
        handle = ctypes.c_ulonglong()
        self._call(
            "cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(descriptor), DESCRIPTOR
        )  # fmt: skip
        return self._map(handle.value, size)

    def _map(self, handle: int, size: int) -> Memory:
        pointer = ctypes.c_ulonglong()
        self._call(
            "cuMemAddressReserve", ctypes.byref(pointer), ctypes.c_size_t(size), ctypes.c_size_t(0), ctypes.c_ulonglong(0),
            ctypes.c_ulonglong(0),
        )  # fmt: skip
        self._call(
            "cuMemMap", pointer, ctypes.c_size_t(size), ctypes.c_size_t(0), ctypes.c_ulonglong(handle), ctypes.c_ulonglong(0)
        )  # fmt: skip
        access = Access(location=Location(ON_DEVICE, self._ordinal), flags=READ_WRITE)
        self._call("cuMemSetAccess", pointer, ctypes.c_size_t(size), ctypes.byref(access), ctypes.c_size_t(1))
        return Memory(handle, pointer.value, size)

    def drop(self, memory: Memory) -> None:
        """Unmap memory and give it back; other processes that map it keep it."""
        pointer, size = ctypes.c_ulonglong(memory.pointer), ctypes.c_size_t(memory.size)
        self._call("cuMemUnmap", pointer, size)
        self._call("cuMemAddressFree", pointer, size)
        self._call("cuMemRelease", ctypes.c_ulonglong(memory.handle))

    def functions(self, cubin: bytes, names: Sequence[str]) -> list[ctypes.c_void_p]:
        """Load a cubin into the current context and return its kernels of these names."""
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), cubin)
        found = []
        for name in names:
            function = ctypes.c_void_p()
            self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
            found.append(function)
        return found

    def launch(self, function: ctypes.c_void_p, grid: int, block: int, stream: int, arguments: Sequence[Any]) -> None:
        """Launch a kernel; ``arguments`` are ctypes values in the order of its parameters."""
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(value) for value in arguments))
        self._call("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, 0, ctypes.c_void_p(stream), pointers, None)

    def kernel_nodes(self, graph: int) -> int:
        """Return how many of a graph's nodes are kernels."""
        count = ctypes.c_size_t(0)
        self._call("cuGraphGetNodes", ctypes.c_void_p(graph), None, ctypes.byref(count))
        nodes = (ctypes.c_void_p * max(count.value, 1))()
        self._call("cuGraphGetNodes", ctypes.c_void_p(graph), nodes, ctypes.byref(count))
        kernels = 0
        for node in nodes[: count.value]:
            kind = ctypes.c_int(-1)
            self._call("cuGraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(kind))
            kernels += kind.value == KERNEL_NODE
        return kernels
