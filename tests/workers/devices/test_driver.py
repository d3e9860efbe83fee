"""The driver's calls against a library that plays it: sizes, descriptors, and errors that name the call."""

from __future__ import annotations

import ctypes

import pytest

from workers.devices.driver import Driver, DriverError, Memory


class Library:
    """Plays libcuda: keeps what it was asked, and fails at the call named ``fails``."""

    def __init__(self, fails=""):
        self.fails, self.asked = fails, []

    def __getattr__(self, name):
        def call(*arguments):
            self.asked.append(name)
            self.__dict__.setdefault("arguments", {})[name] = arguments
            if name == self.fails:
                return 2
            answer = getattr(self, f"_{name}", None)
            return answer(*arguments) if answer and name[0] != "_" else 0

        if name.startswith("_"):
            raise AttributeError(name)
        return call

    def answer(self, name, function):
        self.__dict__[f"_{name}"] = function


def set_to(value):
    def fill(pointer, *_):
        pointer._obj.value = value
        return 0

    return fill


@pytest.fixture
def library():
    made = Library()
    made.answer("cuMemGetAllocationGranularity", set_to(1 << 21))
    made.answer("cuMemCreate", set_to(77))
    made.answer("cuMemAddressReserve", set_to(0x7000_0000))
    made.answer("cuMemExportToShareableHandle", set_to(9))
    made.answer("cuMemImportFromShareableHandle", set_to(78))
    return made


def test_memory_is_made_in_whole_pieces_mapped_and_exported(library):
    driver = Driver(library)
    memory = driver.make((1 << 21) + 1)
    assert memory == Memory(handle=77, pointer=0x7000_0000, size=1 << 22)
    assert driver.export(memory) == 9
    properties = library.arguments["cuMemCreate"][2]._obj
    assert (properties.kind, properties.handles, properties.location.kind) == (1, 1, 1)
    assert ctypes.sizeof(properties) == 32 and ctypes.sizeof(library.arguments["cuMemSetAccess"][2]._obj) == 12
    driver.drop(memory)
    assert library.asked[-3:] == ["cuMemUnmap", "cuMemAddressFree", "cuMemRelease"]


def test_memory_of_another_process_is_mapped_at_its_size(library):
    memory = Driver(library).adopt(5, 1 << 22)
    assert (memory.handle, memory.size) == (78, 1 << 22)
    assert library.arguments["cuMemImportFromShareableHandle"][1].value == 5


@pytest.mark.parametrize("call", ["cuInit", "cuMemCreate", "cuMemSetAccess"])
def test_a_call_that_fails_is_named_with_its_error(library, call):
    library.fails = call
    library.answer("cuGetErrorName", lambda _code, text: setattr(text._obj, "value", b"CUDA_ERROR_OUT_OF_MEMORY") or 0)
    with pytest.raises(DriverError, match=rf"{call}: CUDA_ERROR_OUT_OF_MEMORY \(2\)"):
        Driver(library).make(1)


def test_only_kernels_are_counted_among_a_graphs_nodes(library):
    kinds = {11: 0, 12: 1, 13: 0, 14: 2}

    def nodes(_graph, handles, count):
        count._obj.value = len(kinds)
        for index, handle in enumerate(kinds if handles is not None else ()):
            handles[index] = handle
        return 0

    library.answer("cuGraphGetNodes", nodes)
    library.answer("cuGraphNodeGetType", lambda node, kind: setattr(kind._obj, "value", kinds[node.value]) or 0)
    assert Driver(library).kernel_nodes(5) == 2


def test_a_machine_without_the_driver_says_so():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        with pytest.raises(DriverError, match=r"libcuda.so.1; found none"):
            Driver()
    else:
        pytest.skip("this machine has the driver")
