"""Bandwidth and arithmetic of this node's GPUs, measured by the driver's own library; a program of its own.

It prints one JSON document. It needs no root and no CUDA toolkit: `libcuda.so.1` comes with the driver; for AMD's
GPUs it needs ROCm's `libamdhip64.so`. A matrix product needs `torch` or `cupy`, where one of them is installed beside kilowatch.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

CUDA = ("libcuda.so.1",)
HIP = ("libamdhip64.so.7", "libamdhip64.so.6", "/opt/rocm/lib/libamdhip64.so")
"""AMD's runtime comes with ROCm, not with the driver."""
SIZE = 256 * 2**20
"""Bytes of one copy."""
COPIES = 8
"""Copies of a measurement, after one that is not counted."""
EDGE = 8192
"""Rows and columns of the matrices."""
NEEDS = "needs torch or cupy in kilowatch's environment"
_TO_GPU, _TO_HOST = 1, 2
Found = dict[str, float]


class GpuRuntimeError(Exception):
    """A call of a GPU's library that failed, in words."""


class GpuRuntime(ABC):
    """The dozen functions of a maker's library that are needed."""

    def __init__(self, libraries: Sequence[str]) -> None:
        """`libraries` are names of the library, of which the first that is there is taken. Raises
        `GpuRuntimeError` where none is, or no GPU."""
        problem = ""
        for name in libraries:
            try:
                self._library = ctypes.CDLL(name)
                break
            except OSError as error:
                problem = problem or f"{name} can't be loaded: {error}"
        else:
            raise GpuRuntimeError(problem)
        self.count = self.open()

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises `GpuRuntimeError` for any answer but success."""
        function = getattr(self._library, name, None)
        if function is None:
            raise GpuRuntimeError(f"the driver has no {name}")
        code = function(*arguments)
        if code:
            raise GpuRuntimeError(f"{name} failed with {code}")

    @abstractmethod
    def open(self) -> int:
        """Open the library; return the number of GPUs."""

    @abstractmethod
    def use(self, number: int) -> None:
        """Choose the GPU of the next calls."""

    @abstractmethod
    def memory(self) -> ctypes.c_void_p:
        """Return memory of the chosen GPU."""

    @abstractmethod
    def pinned(self) -> ctypes.c_void_p:
        """Return memory of the host that the GPU reads by itself."""

    @abstractmethod
    def free(self, place: ctypes.c_void_p, *, of_host: bool) -> None:
        """Give memory back."""

    @abstractmethod
    def to_gpu(self, place: ctypes.c_void_p, host: ctypes.c_void_p) -> None:
        """Copy from the host."""

    @abstractmethod
    def to_host(self, host: ctypes.c_void_p, place: ctypes.c_void_p) -> None:
        """Copy to the host."""

    @abstractmethod
    def to_peer(self, to: ctypes.c_void_p, other: int, place: ctypes.c_void_p, number: int) -> None:
        """Copy from the memory of GPU `number` to that of another."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until all copies are done."""

    def rate(self, copy: Callable[[], None]) -> float:
        """Return the bytes a second of a copy."""
        copy()
        self.wait()
        began = time.perf_counter()
        for _ in range(COPIES):
            copy()
        self.wait()
        return SIZE * COPIES / (time.perf_counter() - began)


_BYTES = ctypes.c_size_t(SIZE)


class CudaRuntime(GpuRuntime):
    """NVIDIA's driver."""

    def open(self) -> int:
        """Make a context of each GPU."""
        self.call("cuInit", 0)
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        self._contexts = [self._context(number) for number in range(count.value)]
        return count.value

    def _context(self, number: int) -> ctypes.c_void_p:
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), number)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        return context

    def use(self, number: int) -> None:
        """Make a GPU's context the current one."""
        self.call("cuCtxSetCurrent", self._contexts[number])

    def memory(self) -> ctypes.c_void_p:
        """Return memory of the GPU."""
        place = ctypes.c_void_p()
        self.call("cuMemAlloc_v2", ctypes.byref(place), _BYTES)
        return place

    def pinned(self) -> ctypes.c_void_p:
        """Return page-locked memory."""
        place = ctypes.c_void_p()
        self.call("cuMemAllocHost_v2", ctypes.byref(place), _BYTES)
        return place

    def free(self, place: ctypes.c_void_p, *, of_host: bool) -> None:
        """Free memory by its kind."""
        self.call("cuMemFreeHost" if of_host else "cuMemFree_v2", place)

    def to_gpu(self, place: ctypes.c_void_p, host: ctypes.c_void_p) -> None:
        """Copy over PCI Express."""
        self.call("cuMemcpyHtoD_v2", place, host, _BYTES)

    def to_host(self, host: ctypes.c_void_p, place: ctypes.c_void_p) -> None:
        """Copy over PCI Express."""
        self.call("cuMemcpyDtoH_v2", host, place, _BYTES)

    def to_peer(self, to: ctypes.c_void_p, other: int, place: ctypes.c_void_p, number: int) -> None:
        """Copy over NVLink, where there is one."""
        self.call("cuMemcpyPeer", to, self._contexts[other], place, self._contexts[number], _BYTES)

    def wait(self) -> None:
        """Wait for the current context."""
        self.call("cuCtxSynchronize")


class HipRuntime(GpuRuntime):
    """AMD's runtime."""

    def open(self) -> int:
        """Count the GPUs."""
        self.call("hipInit", 0)
        count = ctypes.c_int()
        self.call("hipGetDeviceCount", ctypes.byref(count))
        return count.value

    def use(self, number: int) -> None:
        """Choose a GPU for this thread."""
        self.call("hipSetDevice", number)

    def memory(self) -> ctypes.c_void_p:
        """Return memory of the GPU."""
        place = ctypes.c_void_p()
        self.call("hipMalloc", ctypes.byref(place), _BYTES)
        return place

    def pinned(self) -> ctypes.c_void_p:
        """Return page-locked memory."""
        place = ctypes.c_void_p()
        self.call("hipHostMalloc", ctypes.byref(place), _BYTES, 0)
        return place

    def free(self, place: ctypes.c_void_p, *, of_host: bool) -> None:
        """Free memory by its kind."""
        self.call("hipHostFree" if of_host else "hipFree", place)

    def to_gpu(self, place: ctypes.c_void_p, host: ctypes.c_void_p) -> None:
        """Copy over PCI Express."""
        self.call("hipMemcpy", place, host, _BYTES, _TO_GPU)

    def to_host(self, host: ctypes.c_void_p, place: ctypes.c_void_p) -> None:
        """Copy over PCI Express."""
        self.call("hipMemcpy", host, place, _BYTES, _TO_HOST)

    def to_peer(self, to: ctypes.c_void_p, other: int, place: ctypes.c_void_p, number: int) -> None:
        """Copy over xGMI, where there is a link."""
        self.call("hipMemcpyPeer", to, other, place, number, _BYTES)

    def wait(self) -> None:
        """Wait for the chosen GPU."""
        self.call("hipDeviceSynchronize")


def runtime(libraries: Sequence[str]) -> GpuRuntime:
    """Return the runtime of a library by its name. Raises `GpuRuntimeError`."""
    return HipRuntime(libraries) if "amdhip" in libraries[0] else CudaRuntime(libraries)


def bandwidths(gpus: GpuRuntime) -> Found:
    """Return the slowest GPU's bandwidth to and from the host, and from GPU to GPU, bytes a second."""
    count, places = gpus.count, []
    for number in range(count):
        gpus.use(number)
        places.append(gpus.memory())
    to, back, peer = [], [], []
    for number, place in enumerate(places):
        gpus.use(number)
        host = gpus.pinned()
        to.append(gpus.rate(partial(gpus.to_gpu, place, host)))
        back.append(gpus.rate(partial(gpus.to_host, host, place)))
        gpus.free(host, of_host=True)
    for number in range(count if count > 1 else 0):
        other = (number + 1) % count
        gpus.use(number)
        peer.append(gpus.rate(partial(gpus.to_peer, places[other], other, places[number], number)))
    for number, place in enumerate(places):
        gpus.use(number)
        gpus.free(place, of_host=False)
    found = {"to gpu bandwidth": min(to), "from gpu bandwidth": min(back)} if count else {}
    return found | ({"gpu to gpu bandwidth": min(peer)} if peer else {})


def arithmetic() -> Found:
    """Return the operations a second of the slowest GPU in a product of half-precision matrices. Raises
    `GpuRuntimeError` where nothing that can compute it is installed."""
    if find_spec("torch") is not None:
        return {"gemm": _by_torch()}
    if find_spec("cupy") is not None:
        return {"gemm": _by_cupy()}
    raise GpuRuntimeError(NEEDS)


def _by_torch() -> float:
    import torch  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

    rates = []
    for number in range(torch.cuda.device_count()):
        device = f"cuda:{number}"
        a = torch.randn((EDGE, EDGE), device=device, dtype=torch.float16)
        rates.append(_products(lambda: a @ a, lambda: torch.cuda.synchronize(device)))  # noqa: B023
    return min(rates)


def _by_cupy() -> float:
    import cupy  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

    rates = []
    for number in range(cupy.cuda.runtime.getDeviceCount()):
        with cupy.cuda.Device(number):
            a = cupy.random.standard_normal((EDGE, EDGE), dtype="float32").astype("float16")
            rates.append(_products(lambda: a @ a, cupy.cuda.runtime.deviceSynchronize))  # noqa: B023
    return min(rates)


def _products(product: Callable[[], object], wait: Callable[[], object]) -> float:
    product()
    wait()
    began = time.perf_counter()
    for _ in range(COPIES):
        product()
    wait()
    return 2.0 * EDGE**3 * COPIES / (time.perf_counter() - began)


def main(*libraries: str) -> None:
    """Measure the GPUs of each library, and print what was found and why the rest was not: of GPUs of two makers,
    what the slowest has."""
    found: Found = {}
    problems: dict[str, str] = {}
    for library in libraries or CUDA:
        names = {"cuda": CUDA, "hip": HIP}.get(library, (library,))
        try:
            more = bandwidths(runtime(names))
        except GpuRuntimeError as error:
            problems["gpu bandwidth"] = str(error)
            continue
        found |= {name: min(value, found.get(name, value)) for name, value in more.items()}
    try:
        found |= arithmetic()
    except (GpuRuntimeError, RuntimeError, ImportError) as error:
        problems["gemm"] = str(error)
    sys.stdout.write(json.dumps({"found": found, "problems": problems}))


if __name__ == "__main__":
    main(*sys.argv[1:])
