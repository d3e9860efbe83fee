"""An NVIDIA device as the place where tensors live."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Literal

import torch

from gatekeeper.domain.catalog import HardwareTarget
from workers.arena import Place
from workers.devices import driver as driver_module
from workers.devices import graph_loop
from workers.devices.cuda_arena import CudaArena
from workers.devices.driver import Driver
from workers.devices.nvml import Nvml
from workers.devices.nvrtc import compile_cubin
from workers.devices.port import Reading
from workers.jail import Bind, Jail, Limits

LOOP = Path(__file__).with_name("loop.cu")
BUILT = "/built"
"""Where the jail shows ``build/kernels/<architecture>`` of the checkout: kernels that were compiled ahead of time."""
GAUGE_BYTES = 256 << 20
"""The harness's own kernel before a timed run copies so much: a tenth of a millisecond, and it empties the second-level cache."""
GAUGE_TRIES = 5
GAUGE_FACTOR, GAUGE_SECONDS = 3.0, 0.0005
"""How much longer than usual it may take, by the clock outside. Kernels of another process get their turns of about a millisecond."""


def open_device(target: HardwareTarget, root: Path) -> CudaDevice | str:
    """Return this machine's first device; a text that says what is there instead, if it is none of the target's architecture."""
    if not torch.cuda.is_available():
        return f"no CUDA device (torch {torch.__version__}, built for CUDA {torch.version.cuda})"
    major, minor = torch.cuda.get_device_capability(0)
    if target.architecture not in (f"sm_{major}{minor}", f"sm_{major}{minor}a"):
        return f"{torch.cuda.get_device_name(0)!r} of architecture sm_{major}{minor}"
    return CudaDevice(target.architecture, root / "build" / "kernels" / target.architecture)


class CudaDevice:
    """Arenas lie in the device's memory, steps run as graphs. Implements :class:`workers.devices.port.Device`."""

    place = torch.device("cuda", 0)
    mode: Literal["eager", "graph"] = "graph"
    largest_workspace = 16 << 30
    together = 4
    load_seconds = 180.0

    def __init__(self, architecture: str, built: Path) -> None:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.zeros(1, device=self.place)
        self.name = torch.cuda.get_device_name(0)
        properties = torch.cuda.get_device_properties(0)
        self._nvml = Nvml(f"GPU-{properties.uuid}")
        self._driver = Driver()
        self._built = built if built.is_dir() else None
        self._digest = digest_of(built) if self._built else ""
        self._folder = tempfile.TemporaryDirectory(prefix="gatekeeper-loop-")
        self._cubin = Path(self._folder.name) / "loop.cubin"
        self._cubin.write_bytes(compile_cubin(LOOP.read_text(encoding="utf-8"), architecture))
        self._source = torch.zeros(GAUGE_BYTES, dtype=torch.uint8, device=self.place)
        self._target = torch.zeros_like(self._source)
        self._usual = median(self._copied() for _ in range(20))

    def arena(self, places: dict[str, Place]) -> CudaArena:
        """Make the memory of one arm at one configuration."""
        return CudaArena(places, self._driver)

    def settle(self) -> None:
        """Return when everything that the harness has begun on this device is done."""
        torch.cuda.synchronize()

    def gauge(self) -> str | None:
        """Copy a fixed amount of memory; if it takes too long every time, something else runs on the device.

        Kernels that a frozen process has queued before run on: neither signals nor control groups stop them.
        """
        most = GAUGE_FACTOR * self._usual + GAUGE_SECONDS
        fastest = min(until(self._copied, most))
        if fastest <= most:
            return None
        return f"a copy that takes {self._usual * 1e6:.0f} us by itself took {fastest * 1e6:.0f} us"

    def _copied(self) -> float:
        """Return the seconds that one copy took, by the harness's clock."""
        torch.cuda.synchronize()
        began = time.perf_counter()
        self._target.copy_(self._source)
        torch.cuda.synchronize()
        return time.perf_counter() - began

    def read(self) -> Reading:
        """Return what the device says of itself now."""
        return self._nvml.read()

    def stub(self) -> Sequence[Path]:
        """Return the files that the arm's stub needs beside it."""
        modules = [Path(str(module.__file__)) for module in (graph_loop, driver_module)]
        return [*modules, self._cubin]

    def binds(self) -> Sequence[Bind]:
        """Return the device's files and the kernels that were compiled ahead of time."""
        minor = self._nvml.minor()
        own = [f"nvidia{minor}"] if minor is not None else [p.name for p in Path("/dev").glob("nvidia[0-9]*")]
        files = [Path("/dev", name) for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", *own)]
        shown = [Bind(path, str(path), device=True) for path in files if path.exists()]
        return [*shown, *([Bind(self._built, BUILT)] if self._built else [])]

    def environment(self, jail: Jail) -> Mapping[str, str]:
        """Return where the driver's libraries and the compiled kernels lie."""
        folders = {str(Path(line.split()[-1]).parent) for line in _maps() if "/libcuda.so" in line}
        found = {}
        if folders:
            # The jail has no cache of libraries, which Triton would ask for the driver's place.
            found = {"LD_LIBRARY_PATH": ":".join(sorted(folders)), "TRITON_LIBCUDA_PATH": min(folders)}
        if self._built:
            found["GATEKEEPER_BUILT"] = jail.inside(Bind(self._built, BUILT))
        return found

    def limits(self, limits: Limits) -> Limits:
        """Return bounds that a process with a CUDA context fits into."""
        return replace(limits, memory=64 << 30, processes=512, file_size=4 << 30, open_files=4096, scratch=4 << 30)

    def versions(self) -> Mapping[str, str]:
        """Return the driver, CUDA and the digest of the kernels that were compiled ahead of time."""
        found = {"driver": self._nvml.driver, "cuda": str(torch.version.cuda)}
        if self._nvml.missing:
            found["nvml"] = f"not there: {self._nvml.missing}"
        return found | ({"compiled kernels": self._digest} if self._built else {})

    def close(self) -> None:
        """Give back the device's memory and the folder of the loop's kernels."""
        del self._source, self._target
        torch.cuda.empty_cache()
        self._folder.cleanup()


def until(measure: Callable[[], float], most: float) -> list[float]:
    """Return measurements until one is at most ``most``, or ``GAUGE_TRIES`` of them."""
    taken: list[float] = []
    while len(taken) < GAUGE_TRIES and (not taken or taken[-1] > most):
        taken.append(measure())
    return taken


def digest_of(folder: Path) -> str:
    """Return ``sha256:<hex>`` over names and bytes of the shared libraries in a folder, in the order of their names."""
    total = hashlib.sha256()
    for path in sorted(folder.glob("*.so")):
        data = path.read_bytes()
        total.update(f"{path.name} {len(data)}\n".encode() + data)
    return f"sha256:{total.hexdigest()}"


def _maps() -> list[str]:
    return Path("/proc/self/maps").read_text().splitlines()
