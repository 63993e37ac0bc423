"""Instance rows: the parts of a GPU that MIG has split off (NVML's MIG devices).

Of the slow lane: a GPU may have seven, and what NVML says of the whole GPU goes on beside. GPM counts by
GPU instance, over the time since the reading before; compute instances that share one have its numbers.
"""

from __future__ import annotations

from telemetry.catalogue.nvml import Call, Gpm, NvmlReader
from telemetry.metric import Lane, Metric, Table, Unit

_PERCENT = 0.01


def _instance(word: str, unit: Unit, text: str, reader: NvmlReader) -> Metric:
    return Metric(
        name=f"instance_{word}", unit=unit, table=Table.INSTANCE, lane=Lane.SLOW, help=text, sources={"nvml": (reader,)}
    )


METRICS = (
    _instance(
        "memory_used_bytes", Unit.BYTES, "Memory in use of the GPU instance.",
        Call("nvmlDeviceGetMemoryInfo_v2", pick="used"),
    ),
    _instance(
        "memory_total_bytes", Unit.BYTES, "Memory of the GPU instance.",
        Call("nvmlDeviceGetMemoryInfo_v2", pick="total"),
    ),
    _instance(
        "processes", Unit.COUNT, "Processes with a compute context on the instance.",
        Call("nvmlDeviceGetComputeRunningProcesses_v3", pick="len"),
    ),
    _instance(
        "sm_active_ratio", Unit.RATIO,
        "Share of the instance's multiprocessors that had a warp, from GPM (Hopper and newer).", Gpm(2, _PERCENT),
    ),
    _instance(
        "sm_occupancy_ratio", Unit.RATIO,
        "Warps on the instance's multiprocessors, of the most that they can hold, from GPM.", Gpm(3, _PERCENT),
    ),
    _instance(
        "tensor_active_ratio", Unit.RATIO,
        "Share of the time in which the instance's tensor cores were active, from GPM.", Gpm(5, _PERCENT),
    ),
    _instance(
        "dram_active_ratio", Unit.RATIO,
        "Memory bandwidth used, of the instance's maximum, from GPM.", Gpm(10, _PERCENT),
    ),
    *(
        _instance(
            f"{word}_active_ratio", Unit.RATIO,
            f"Share of the time in which the instance's {text}, from GPM.", Gpm(number, _PERCENT),
        )
        for word, number, text in (
            ("graphics", 1, "graphics or compute engine was busy"),
            ("fp64", 11, "FP64 units were active"),
            ("fp32", 12, "FP32 units were active"),
            ("fp16", 13, "FP16 units were active"),
        )
    ),
)  # fmt: skip
