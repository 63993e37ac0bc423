"""NVML as plain functions: the only file that imports pynvml.

Calls made once use pynvml's functions (`once`). Calls made each tick use the C functions directly
(`function`, `structure`): see `queries` and `readings`.
https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_uint, sizeof
from enum import IntEnum
from typing import Any

import pynvml

from telemetry.errors import DriverError

Handle = Any
"""nvmlDevice_t."""


class Code(IntEnum):
    """Return codes that are handled differently."""

    SUCCESS = 0
    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    LIB_RM_VERSION_MISMATCH = 18
    ARGUMENT_VERSION_MISMATCH = 25
    DEPRECATED = 26
    GPU_NOT_FOUND = 28


UNSUPPORTED = frozenset({2, 3, 13, 25, 26})
"""Codes of a call that this GPU, driver or library does not support: try the next alternative.
Old drivers return 2 for an unknown field id or link."""
LOST = frozenset({Code.GPU_IS_LOST, Code.GPU_NOT_FOUND})
GONE = frozenset({1, 9, 12, 18})
"""Codes of a driver that is gone as a whole."""

# ---- called once: pynvml's functions ----


def start() -> None:
    """Load the library and initialise it. Raises `DriverError` with NVML's code."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise DriverError(str(error), error.value) from error


def stop() -> None:
    """Shut NVML down; ignore errors."""
    try:
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return


def once(function: str, *arguments: Any) -> Any:
    """Call a pynvml function; return None when it is not supported or fails.

    Raises `DriverError` when the GPU is lost or needs a reset, or the driver is gone.
    """
    try:
        return getattr(pynvml, function)(*arguments)
    except (AttributeError, UnicodeDecodeError):
        return None
    except pynvml.NVMLError as error:
        if error.value in GONE | LOST or error.value == Code.RESET_REQUIRED:
            raise DriverError(str(error), error.value) from error
        return None


def device(index: int) -> Handle:
    """Return the handle of a GPU. Raises `DriverError`."""
    try:
        return pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        raise DriverError(str(error), error.value) from error


def address(handle: Handle) -> int:
    """Return a number that identifies a handle."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def platform(handle: Handle) -> Any:
    """Return the place of the module in its rack (GB200 and similar), or None."""
    place = pynvml.c_nvmlPlatformInfo_v2_t()
    return place if once("nvmlDeviceGetPlatformInfo", handle, byref(place)) is not None else None


# ---- called each tick: bound once ----

Function = Callable[..., int]


def function(name: str) -> Function:
    """Return a C function; a stub that returns FUNCTION_NOT_FOUND when the library lacks it."""
    try:
        found: Function = pynvml._nvmlGetFunctionPointer(name)  # noqa: SLF001 - its one lookup
    except pynvml.NVMLError as error:
        code = int(error.value)
        return lambda *_arguments: code
    return found


def structure(name: str, version: str | None = None) -> Any:
    """Return a new pynvml struct, with a version where the struct does not set it itself."""
    made = getattr(pynvml, name)()
    if version is not None:
        made.version = getattr(pynvml, version)
    return made


def array_of(name: str, length: int) -> Any:
    """Return a new array of a pynvml struct."""
    return (getattr(pynvml, name) * length)()


# ---- GPM ----


def gpm_supported(handle: Handle) -> bool:
    """Return whether the GPU has performance monitoring."""
    support = once("nvmlGpmQueryDeviceSupport", handle)
    return support is not None and bool(support.isSupportedDevice)


def gpm_samples() -> tuple[Any, Any] | None:
    """Return two new samples; None when the library refuses."""
    samples = once("nvmlGpmSampleAlloc"), once("nvmlGpmSampleAlloc")
    return None if None in samples else samples


def gpm_request(ids: list[int], *, of_instance: bool = False) -> tuple[Any, memoryview, Function, Function]:
    """Return the struct that requests `ids`, the bytes of its metrics (id, code, number and three
    pointers each), the call that samples (a GPU, or an instance of it) and the call that computes."""
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(ids)
    for metric, number in zip(request.metrics, ids, strict=False):
        metric.metricId = number
    start = type(request).metrics.offset
    size = sizeof(pynvml.c_nvmlGpmMetric_t) * len(ids)
    answers = memoryview(request).cast("B")[start : start + size]
    sampling = function("nvmlGpmMigSampleGet" if of_instance else "nvmlGpmSampleGet")
    return request, answers, sampling, function("nvmlGpmMetricsGet")


# ---- events ----

XID_EVENT: int = pynvml.nvmlEventTypeXidCriticalError


class EventSet:
    """NVML event set: the queue of events of registered GPUs."""

    def __init__(self) -> None:
        """Make an empty set. Raises `DriverError`."""
        try:
            self._set = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            raise DriverError(str(error), error.value) from error
        self._data = pynvml.c_nvmlEventData_t()
        self._wait = function("nvmlEventSetWait_v2")

    def register(self, handle: Handle, types: int) -> bool:
        """Register for events of a GPU; return whether it supports them."""
        try:
            types &= pynvml.nvmlDeviceGetSupportedEventTypes(handle)
            if types:
                pynvml.nvmlDeviceRegisterEvents(handle, types, self._set)
        except pynvml.NVMLError:
            return False
        return bool(types)

    def wait(self, milliseconds: int) -> int:
        """Wait for one event; return NVML's code (10: none came). Then `event` returns it."""
        return self._wait(self._set, byref(self._data), c_uint(milliseconds))

    def event(self) -> tuple[int, int, int, int]:
        """Return address of the device, type, data and GPU instance of the event."""
        data = self._data
        return address(data.device), data.eventType, data.eventData, data.gpuInstanceId

    def close(self) -> None:
        """Free the set; ignore errors."""
        try:
            pynvml.nvmlEventSetFree(self._set)
        except pynvml.NVMLError:
            return
