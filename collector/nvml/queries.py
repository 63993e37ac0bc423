"""Calls of the catalogue, bound to one GPU: asked each tick into result objects made once.

pynvml makes its result objects anew and raises for every code; at 1 Hz x 8 GPUs that would be most
of the cost.
"""

from __future__ import annotations

from ctypes import byref, c_uint, c_ulonglong
from typing import Any

from collector.nvml.binding import UNSUPPORTED, Code, Handle, function, structure
from telemetry.metric import Call


class Attempt:
    """One C function with its arguments and the object that it fills."""

    __slots__ = ("arguments", "function", "result")

    def __init__(self, name: str, result: Any, *arguments: Any) -> None:
        self.function = function(name)
        self.result = result
        self.arguments = arguments


class Query:
    """One question to one GPU. `ask` answers with NVML's code; then `value` has the answer."""

    def __init__(self, attempts: list[Attempt]) -> None:
        self._attempts = attempts
        self._use(0)

    def ask(self) -> int:
        """Call the driver; an older form of the call is tried where the newest is unknown."""
        code = self._function(*self._arguments)
        while code in UNSUPPORTED and len(self._attempts) > 1:
            del self._attempts[0]
            self._use(0)
            code = self._function(*self._arguments)
        return code

    def value(self, pick: str | int | None) -> float | None:
        """Return the answer's member `pick`; None when this form of the answer lacks it."""
        if isinstance(pick, int):
            return self._result[pick].value  # type: ignore[no-any-return]
        found: float | None = getattr(self._result, pick or "value", None)
        return found

    def _use(self, number: int) -> None:
        attempt = self._attempts[number]
        self._function, self._arguments = attempt.function, attempt.arguments
        self._result = attempt.result


class Processes(Query):
    """How many processes there are: asked with no room for their names, which is the cheapest."""

    def ask(self) -> int:
        """Call the driver; too little room is the answer that is wanted."""
        self._result.value = 0
        code = super().ask()
        return Code.SUCCESS if code == Code.INSUFFICIENT_SIZE else code

    def value(self, pick: str | int | None) -> float | None:
        """Return the number of processes."""
        del pick
        return float(self._result.value)


_WIDE = {
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetMemoryErrorCounter",
}
_STRUCTS: dict[str, tuple[tuple[str, str, str | None], ...]] = {
    "nvmlDeviceGetUtilizationRates": (
        ("nvmlDeviceGetUtilizationRates", "c_nvmlUtilization_t", None),
    ),
    "nvmlDeviceGetBAR1MemoryInfo": (("nvmlDeviceGetBAR1MemoryInfo", "c_nvmlBAR1Memory_t", None),),
    "nvmlDeviceGetMemoryInfo_v2": (
        ("nvmlDeviceGetMemoryInfo_v2", "c_nvmlMemory_v2_t", "nvmlMemory_v2"),
        ("nvmlDeviceGetMemoryInfo", "c_nvmlMemory_t", None),
    ),
    "nvmlDeviceGetRowRemapperHistogram": (
        ("nvmlDeviceGetRowRemapperHistogram", "c_nvmlRowRemapperHistogramValues", None),
    ),
    "nvmlDeviceGetSramEccErrorStatus": (
        ("nvmlDeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t", None),
    ),
    "nvmlDeviceGetRepairStatus": (("nvmlDeviceGetRepairStatus", "c_nvmlRepairStatus_t", None),),
    "nvmlDeviceGetGpuFabricInfoV": (
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t", None),
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t", None),
        ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t", None),
    ),
    "nvmlDeviceGetMarginTemperature": (
        (
            "nvmlDeviceGetMarginTemperature",
            "c_nvmlMarginTemperature_v1_t",
            "nvmlMarginTemperature_v1",
        ),
    ),
}
"""Calls that fill a struct: C function, pynvml's struct, and its version where the struct does not
set it by itself; the newest form first."""
_DEFAULT_PICK = {"nvmlDeviceGetMarginTemperature": "marginTemperature"}


def bind(handle: Handle, call: Call) -> tuple[Query, str | int | None]:
    """Return the question that a `Call` of the catalogue stands for, and what to pick of its
    answer. Any function of the form (device, numbers ..., pointer to one or two uint) will do
    without further ado; structs and 64-bit answers are listed above."""
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
