"""Calls of the catalogue, bound to one GPU: asked each tick into result objects made once.

pynvml makes its result objects anew and raises for every code; at 1 Hz x 8 GPUs that would be most
of the cost. For the same reason what is done each tick is bound beforehand: `ask` is the C function
with its arguments, and a reading is taken out of the result by one getter.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_uint, c_ulonglong
from functools import partial
from typing import Any

from collector.nvml.binding import UNSUPPORTED, Code, Handle, function, structure
from telemetry.metric import Call

Getter = Callable[[Any], float]


class Attempt:
    """One C function with its arguments and the object that it fills."""

    __slots__ = ("ask", "result")

    def __init__(self, name: str, result: Any, *arguments: Any) -> None:
        self.ask: Callable[[], int] = partial(function(name), *arguments)
        self.result = result


class Query:
    """One question to one GPU. `ask` answers with NVML's code; then the result has the answer."""

    def __init__(self, attempts: list[Attempt]) -> None:
        self._attempts = attempts
        self.ask: Callable[[], int] = attempts[0].ask

    def insist(self, code: int) -> int:
        """Ask by older forms of the call, where `code` says that the newest is unknown and as long
        as there are any; return the last code."""
        while code in UNSUPPORTED and len(self._attempts) > 1:
            del self._attempts[0]
            self.ask = self._attempts[0].ask
            code = self.ask()
        return code

    def answer(self, pick: str | int | None) -> tuple[Getter, Any] | None:
        """Return how to take member `pick` out of an answer, and out of what; None when this form
        of the answer lacks it."""
        result = self._attempts[0].result
        if isinstance(pick, int):
            return _getter(result[pick], "value"), result[pick]
        name = pick or "value"
        return (_getter(result, name), result) if hasattr(result, name) else None


class Processes(Query):
    """How many processes there are: asked with no room for their names, which is the cheapest."""

    def __init__(self, attempts: list[Attempt]) -> None:
        super().__init__(attempts)
        self._count = attempts[0].result
        self._ask = self.ask
        self.ask = self._ask_without_room

    def _ask_without_room(self) -> int:
        """Call the driver; too little room is the answer that is wanted."""
        self._count.value = 0
        code = self._ask()
        return Code.SUCCESS if code == Code.INSUFFICIENT_SIZE else code

    def answer(self, pick: str | int | None) -> tuple[Getter, Any]:
        """Return how to take the number of processes."""
        del pick
        return _getter(self._count, "value"), self._count


def _getter(result: Any, name: str) -> Getter:
    """The member itself: pynvml's structs look at each in Python when it is asked for by name."""
    getter: Getter = getattr(type(result), name).__get__
    return getter


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
