"""What an NVIDIA device says of itself: why its clocks are lower than they could be, clocks, temperature, power, driver."""

from __future__ import annotations

import ctypes
from typing import Any

from workers.devices.port import Reading

REASONS = {
    0x1: "idle", 0x2: "applications clocks", 0x4: "software power cap", 0x8: "hardware slowdown", 0x10: "sync boost",
    0x20: "software thermal slowdown", 0x40: "hardware thermal slowdown", 0x80: "hardware power brake", 0x100: "display clocks",
}  # fmt: skip
"""Bits of nvmlClocksEventReasons."""
SLOWED = 0x8 | 0x20 | 0x40 | 0x80
"""Those that spoil a measurement. The power cap is how these devices run under load: it is recorded and no more."""
CLOCKS = {"graphics": 0, "sm": 1, "memory": 2}


class Nvml:
    """One device in NVIDIA's management library; ``missing`` says why there is none, and then readings are empty.

    ``library`` is another one in tests only.
    """

    def __init__(self, uuid: str, library: Any = None) -> None:
        self.missing, self.driver = "", ""
        self._device = ctypes.c_void_p()
        try:
            self._library = library or ctypes.CDLL("libnvidia-ml.so.1")
            self._call("nvmlInit_v2")
            self._call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(self._device))
            text = ctypes.create_string_buffer(96)
            self._call("nvmlSystemGetDriverVersion", text, 96)
            self.driver = text.value.decode()
        except OSError as error:
            self.missing = str(error)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise OSError(f"{name} failed with code {code}")

    def _number(self, name: str, *arguments: int, kind: type[Any] = ctypes.c_uint) -> int | None:
        """Return one number about the device; None where this one does not tell it."""
        value = kind()
        try:
            self._call(name, self._device, *arguments, ctypes.byref(value))
        except OSError:
            return None
        return int(value.value)

    def minor(self) -> int | None:
        """Return the number in the name of the device's file, ``/dev/nvidia<number>``."""
        return None if self.missing else self._number("nvmlDeviceGetMinorNumber")

    def read(self) -> Reading:
        """Return what the device says now."""
        if self.missing:
            return Reading()
        bits = self._number("nvmlDeviceGetCurrentClocksEventReasons", kind=ctypes.c_ulonglong) or 0
        clocks = {name: self._number("nvmlDeviceGetClockInfo", number) for name, number in CLOCKS.items()}
        return Reading(
            reasons=tuple(text for bit, text in REASONS.items() if bits & bit),
            slowed=tuple(text for bit, text in REASONS.items() if bits & bit & SLOWED),
            clocks={name: value for name, value in clocks.items() if value is not None},
            celsius=self._number("nvmlDeviceGetTemperature", 0),
            milliwatts=self._number("nvmlDeviceGetPowerUsage"),
        )
