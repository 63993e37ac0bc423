"""Calls of the catalogue, bound to one GPU: made each tick, with result objects allocated once.

pynvml allocates result objects per call and raises for every code; at 1 Hz x 8 GPUs that would be
most of the cost. For the same reason each call is bound beforehand: `ask` is the C function with
its arguments, and one getter reads a number from the result.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import Array, byref, c_uint, c_ulonglong
from functools import partial
from typing import Any

from collector.nvml.binding import UNSUPPORTED, Code, Handle, function, structure
from telemetry.catalogue.nvml import Call

Getter = Callable[[Any], float]


class Attempt:
    """C function with its arguments and the object that it fills."""

    __slots__ = ("ask", "result")

    def __init__(self, name: str, result: Any, *arguments: Any) -> None:
        self.ask: Callable[[], int] = partial(function(name), *arguments)
        self.result = result


class Query:
    """Call bound to one GPU. `ask` returns NVML's code, and fills the result."""

    def __init__(self, attempts: list[Attempt]) -> None:
        self._attempts = attempts
        self.ask: Callable[[], int] = attempts[0].ask

    def insist(self, code: int) -> int:
        """Try older forms of the call while `code` means that the form is unsupported; return the
        last code."""
        while code in UNSUPPORTED and len(self._attempts) > 1:
            del self._attempts[0]
            self.ask = self._attempts[0].ask
            code = self.ask()
        return code

    def answer(self, pick: str | int | None) -> tuple[Getter, Any] | None:
        """Return the getter of member `pick`, and its object; None when this form of the result lacks
        it."""
        result = self._attempts[0].result
        if isinstance(pick, int):
            return _getter(result[pick], "value"), result[pick]
        *outer, name = (pick or "value").split(".")
        for each in outer:
            result = getattr(result, each)
        if not hasattr(result, name):
            return None
        get = _getter(result, name)
        if isinstance(getattr(result, name), Array):
            words: Any = get  # `first_bit` takes them all
            return (lambda its: tuple(words(its))), result  # type: ignore[return-value]
        return get, result


class Processes(Query):
    """Number of processes, queried with an empty buffer, which is the cheapest way."""

    def __init__(self, attempts: list[Attempt]) -> None:
        super().__init__(attempts)
        self._count = attempts[0].result
        self._ask = self.ask
        self.ask = self._ask_without_room

    def _ask_without_room(self) -> int:
        """Call the driver; "insufficient size" means success here."""
        self._count.value = 0
        code = self._ask()
        return Code.SUCCESS if code == Code.INSUFFICIENT_SIZE else code

    def answer(self, pick: str | int | None) -> tuple[Getter, Any]:
        """Return the getter of the number of processes."""
        del pick
        return _getter(self._count, "value"), self._count


def _getter(result: Any, name: str) -> Getter:
    """Return the getter of the C member, which is faster than pynvml's attribute access."""
    getter: Getter = getattr(type(result), name).__get__
    return getter


_WIDE = {
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetMemoryErrorCounter",
}
_STRUCTS: dict[str, tuple[tuple[str, str, str | None], ...]] = {
    "nvmlDeviceGetUtilizationRates": (("nvmlDeviceGetUtilizationRates", "c_nvmlUtilization_t", None),),
    "nvmlDeviceGetBAR1MemoryInfo": (("nvmlDeviceGetBAR1MemoryInfo", "c_nvmlBAR1Memory_t", None),),
    "nvmlDeviceGetMemoryInfo_v2": (
        ("nvmlDeviceGetMemoryInfo_v2", "c_nvmlMemory_v2_t", "nvmlMemory_v2"),
        ("nvmlDeviceGetMemoryInfo", "c_nvmlMemory_t", None),
    ),
    "nvmlDeviceGetRowRemapperHistogram": (
        ("nvmlDeviceGetRowRemapperHistogram", "c_nvmlRowRemapperHistogramValues", None),
    ),
    "nvmlDeviceGetSramEccErrorStatus": (("nvmlDeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t", None),),
    "nvmlDeviceGetRepairStatus": (("nvmlDeviceGetRepairStatus", "c_nvmlRepairStatus_t", None),),
    "nvmlDeviceGetGpuFabricInfoV": (
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t", None),
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t", None),
        ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t", None),
    ),
    "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles": (
        ("nvmlDeviceWorkloadPowerProfileGetCurrentProfiles", "c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t", None),
    ),
    "nvmlDeviceGetMarginTemperature": (
        ("nvmlDeviceGetMarginTemperature", "c_nvmlMarginTemperature_v1_t", "nvmlMarginTemperature_v1"),
    ),
}
"""Calls that fill a struct: C function, pynvml's struct, and its version where the struct does not
set it by itself; the newest form first."""
_DEFAULT_PICK = {"nvmlDeviceGetMarginTemperature": "marginTemperature"}


def bind(handle: Handle, call: Call) -> tuple[Query, str | int | None]:
    """Return the query of a `Call` of the catalogue, and the member to pick of its result. Functions
    of the form (device, numbers ..., pointer to one or two uint) need no entry; structs and 64-bit
    results are listed above."""
    name = call.function
    numbers = [c_uint(number) for number in call.args]
    pick = call.pick if call.pick is not None else _DEFAULT_PICK.get(name)
    if call.pick == "len":
        result: Any = c_uint()
        return Processes([Attempt(name, result, handle, byref(result), None)]), pick
    if name in _STRUCTS:
        attempts = []
        for symbol, struct_name, version in _STRUCTS[name]:
            result = structure(struct_name, version)
            attempts.append(Attempt(symbol, result, handle, *numbers, byref(result)))
        return Query(attempts), pick
    if isinstance(pick, int):
        results = (c_uint(), c_uint())
        return Query([Attempt(name, results, handle, *numbers, *map(byref, results))]), pick
    result = c_ulonglong() if name in _WIDE else c_uint()
    return Query([Attempt(name, result, handle, *numbers, byref(result))]), pick
