"""What a device says of itself, told by a library that plays NVIDIA's."""

from __future__ import annotations

import pytest

from workers.devices.nvml import SLOWED, Nvml
from workers.devices.port import Reading


class Library:
    """Answers with fixed numbers; a function that is in ``fails`` returns an error."""

    def __init__(self, bits=0, fails=()):
        self.bits, self.fails = bits, fails

    def __getattr__(self, name):
        def call(*arguments):
            if name in self.fails:
                return 3
            if name == "nvmlSystemGetDriverVersion":
                arguments[0].value = b"580.1"
            elif name == "nvmlDeviceGetCurrentClocksEventReasons":
                arguments[-1]._obj.value = self.bits
            elif name == "nvmlDeviceGetClockInfo":
                arguments[-1]._obj.value = 1000 + arguments[1]
            elif name.startswith("nvmlDeviceGet") and name != "nvmlDeviceGetHandleByUUID":
                arguments[-1]._obj.value = 7
            return 0

        return call


def test_a_device_that_is_well_has_reasons_that_spoil_nothing():
    found = Nvml("GPU-1", Library(bits=0x1 | 0x4))
    assert found.driver == "580.1" and found.minor() == 7
    reading = found.read()
    assert reading.reasons == ("idle", "software power cap") and reading.slowed == ()
    assert reading.clocks == {"graphics": 1000, "sm": 1001, "memory": 1002}
    assert (reading.celsius, reading.milliwatts) == (7, 7)


@pytest.mark.parametrize("bit", [0x8, 0x20, 0x40, 0x80])
def test_a_device_that_protects_itself_is_slowed(bit):
    assert bit & SLOWED and len(Nvml("GPU-1", Library(bits=bit)).read().slowed) == 1


def test_what_a_device_does_not_tell_is_left_out():
    reading = Nvml("GPU-1", Library(fails=("nvmlDeviceGetClockInfo", "nvmlDeviceGetTemperature"))).read()
    assert reading.clocks == {} and reading.celsius is None and reading.milliwatts == 7


def test_without_the_library_readings_are_empty_and_the_reason_is_kept():
    found = Nvml("GPU-1", Library(fails=("nvmlInit_v2",)))
    assert "nvmlInit_v2" in found.missing and found.read() == Reading() and found.minor() is None
