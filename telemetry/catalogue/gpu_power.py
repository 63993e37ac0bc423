"""GPU rows: power, energy, temperature, fan."""

from __future__ import annotations

from typing import Any

from telemetry.catalogue.amd import Binary, Sensor
from telemetry.catalogue.nvml import Call, Field
from telemetry.metric import Kind, Lane, Metric, Unit

_MILLI, _MICRO = 1e-3, 1e-6
_NANO, _PERCENT = 1e-9, 0.01
_PROFILES = (
    (0, "Max-P"), (1, "Max-Q"), (2, "compute"), (3, "memory bound"), (4, "network"), (5, "balanced"),
    (6, "LLM inference"), (7, "LLM training"), (8, "RBM"), (9, "DCPCIe"), (10, "HMMA sparse"), (11, "HMMA dense"),
    (12, "sync balanced"), (13, "HPC"), (14, "MIG"), (15, "Max-Q 1"), (16, "network bound"), (17, "high-throughput inference"),
    (18, "medium-throughput inference"), (19, "low-latency inference"), (20, "training"), (21, "inference"), (22, "Max-Q 2"),
    (23, "Max-Q 3"), (24, "low-priority background"), (255, "none"),
)  # fmt: skip
"""Numbers and words of `NVML_POWER_PROFILE_...` in nvml.h."""
_MODULE, _MEMORY = 1, 2  # power scopes of fields 185 to 192
_CEILING = "gpu_power_readings/gpu_ceiling_power_limit"  # where driver 610 moved the limits to


def _limit(tag: str) -> tuple[str, ...]:
    return (f"gpu_power_readings/{tag}", f"{_CEILING}/{tag}", f"power_readings/{tag}")


def _blackwell(word: str, unit: Unit, field: Field, text: str, **more: Any) -> Metric:
    return Metric(name=f"gpu_{word}", unit=unit, lane=Lane.SLOW, help=text, sources={"nvml": (field,)}, **more)


METRICS = (
    Metric(
        name="gpu_power_watts",
        unit=Unit.WATTS,
        help="Board power: a 1 s average, but the instant value on GA100 (A100) and older.",
        sources={
            "nvml": (Call("nvmlDeviceGetPowerUsage", _MILLI), Field(185, _MILLI)),
            "smi": (
                "gpu_power_readings/power_draw",
                "gpu_power_readings/average_power_draw",
                "gpu_power_readings/instant_power_draw",
                "gpu_power_readings/instantaneous_power_draw",
                "power_readings/power_draw",
                "power_readings/average_power_draw",
                "power_readings/instant_power_draw",
            ),
            "amd": (Binary("socket_power"), Sensor("power1_average", _MICRO), Sensor("power1_input", _MICRO)),
        },
        span=(0, 1200),
    ),
    Metric(
        name="gpu_power_average_watts",
        unit=Unit.WATTS,
        help="Board power, mean of the last second.",
        sources={
            "nvml": (Field(185, _MILLI),),
            "smi": ("gpu_power_readings/average_power_draw",),
            "amd": (Binary("average_socket_power"), Sensor("power1_average", _MICRO)),
        },
        span=(0, 1200),
    ),
    Metric(
        name="gpu_power_instant_watts",
        unit=Unit.WATTS,
        help="Board power at this instant; swings widely, use energy for means.",
        sources={
            "nvml": (Field(186, _MILLI),),
            "smi": ("gpu_power_readings/instant_power_draw", "gpu_power_readings/instantaneous_power_draw"),
            "amd": (Binary("current_socket_power"), Sensor("power1_input", _MICRO)),
        },
        span=(0, 1200),
    ),
    Metric(
        name="gpu_module_power_watts",
        unit=Unit.WATTS,
        help="Power of the whole module (GPU, CPU and memory of a GB200); contains the GPU's.",
        sources={
            "nvml": (Field(186, _MILLI, _MODULE), Field(185, _MILLI, _MODULE)),
            "smi": (
                "module_power_readings/instant_power_draw",
                "module_power_readings/instantaneous_power_draw",
                "module_power_readings/average_power_draw",
                "module_power_readings/power_draw",
            ),
        },
        span=(0, 3000),
    ),
    Metric(
        name="gpu_memory_power_watts",
        unit=Unit.WATTS,
        help="Power of the GPU's memory; contained in the GPU's.",
        sources={
            "nvml": (Field(185, _MILLI, _MEMORY), Field(186, _MILLI, _MEMORY)),
            "smi": (
                "gpu_memory_power_readings/average_power_draw",
                "gpu_memory_power_readings/power_draw",
                "gpu_memory_power_readings/instant_power_draw",
                "gpu_memory_power_readings/instantaneous_power_draw",
            ),
        },
        span=(0, 200),
    ),
    Metric(
        name="gpu_energy_joules_total",
        unit=Unit.JOULES,
        kind=Kind.COUNTER,
        help="Energy since the driver loaded; its rate is the best mean power.",
        sources={
            "nvml": (Field(83, _MILLI), Call("nvmlDeviceGetTotalEnergyConsumption", _MILLI)),
            "amd": (Binary("energy_accumulator", 2**-16),),
        },
    ),
    Metric(
        name="gpu_temperature_celsius",
        unit=Unit.CELSIUS,
        help="Temperature of the GPU's core; AMD: the hottest spot.",
        sources={
            "nvml": (Call("nvmlDeviceGetTemperature", args=(0,)),),
            "smi": ("temperature/gpu_temp", "temperature/gpu_current_temp", "temperature/gpu"),
            "amd": (
                Binary("temperature_hotspot"),
                Sensor("temp:junction/input", _MILLI),
                Sensor("temp:edge/input", _MILLI),
            ),
        },
        span=(20, 95),
    ),
    Metric(
        name="gpu_memory_temperature_celsius",
        unit=Unit.CELSIUS,
        help="Temperature of the GPU's memory (HBM); most GeForce and inference cards have none.",
        sources={
            "nvml": (Field(82),),
            "smi": ("temperature/memory_temp", "temperature/memory_current_temp", "temperature/memory"),
            "amd": (Binary("temperature_mem"), Sensor("temp:mem/input", _MILLI)),
        },
        span=(20, 105),
    ),
    Metric(
        name="gpu_thermal_margin_celsius",
        unit=Unit.CELSIUS,
        help="Degrees left before software throttling (T.Limit); 0 and below is throttling.",
        sources={
            "nvml": (Call("nvmlDeviceGetMarginTemperature"),),
            "smi": (
                "temperature/gpu_temp_tlimit",
                "temperature/gpu_t_limit_temp",
                "temperature/gpu_current_t_limit_temp",
            ),
        },
        span=(-10, 70),
    ),
    Metric(
        name="gpu_fan_speed_ratio",
        unit=Unit.RATIO,
        lane=Lane.SLOW,
        help="Requested fan speed, of its maximum; a call takes 137 us, so it is on the slow lane.",
        sources={
            "nvml": (Call("nvmlDeviceGetFanSpeed", 0.01),),
            "smi": ("fan_speed",),
            "amd": (Sensor("pwm1", 1 / 255),),
        },
        span=(0, 1),
    ),
    Metric(
        name="gpu_power_limit_watts",
        unit=Unit.WATTS,
        lane=Lane.SLOW,
        help="Power limit in force now, the lowest of all that apply.",
        sources={
            "nvml": (Call("nvmlDeviceGetEnforcedPowerLimit", _MILLI), Field(190, _MILLI)),
            "smi": (
                "gpu_power_readings/current_power_limit",
                f"{_CEILING}/current_power_limit",
                "gpu_power_readings/enforced_power_limit",
                "power_readings/enforced_power_limit",
                "gpu_power_readings/power_limit",
                "power_readings/power_limit",
            ),
            "amd": (Sensor("power1_cap", _MICRO),),
        },
        span=(0, 1200),
    ),
    Metric(
        name="gpu_power_limit_requested_watts",
        unit=Unit.WATTS,
        lane=Lane.SLOW,
        help="Power limit that an administrator has requested.",
        sources={
            "nvml": (Field(192, _MILLI), Call("nvmlDeviceGetPowerManagementLimit", _MILLI)),
            "smi": (
                "gpu_power_readings/requested_power_limit",
                f"{_CEILING}/requested_power_limit",
                "gpu_power_readings/power_limit",
                "power_readings/power_limit",
            ),
            "amd": (Sensor("power1_cap", _MICRO),),
        },
        span=(0, 1200),
    ),
    Metric(
        name="gpu_power_limit_default_watts",
        unit=Unit.WATTS,
        lane=Lane.SLOW,
        help="Power limit that the board has from the factory.",
        sources={
            "nvml": (Field(189, _MILLI), Call("nvmlDeviceGetPowerManagementDefaultLimit", _MILLI)),
            "smi": _limit("default_power_limit"),
            "amd": (Sensor("power1_cap_default", _MICRO),),
        },
        span=(0, 1200),
    ),
    Metric(
        name="gpu_power_limit_min_watts",
        unit=Unit.WATTS,
        lane=Lane.SLOW,
        help="Lowest power limit that can be set.",
        sources={
            "nvml": (Field(187, _MILLI), Call("nvmlDeviceGetPowerManagementLimitConstraints", _MILLI, pick=0)),
            "smi": _limit("min_power_limit"),
            "amd": (Sensor("power1_cap_min", _MICRO),),
        },
        span=(0, 1200),
    ),
    Metric(
        name="gpu_power_limit_max_watts",
        unit=Unit.WATTS,
        lane=Lane.SLOW,
        help="Highest power limit that can be set.",
        sources={
            "nvml": (Field(188, _MILLI), Call("nvmlDeviceGetPowerManagementLimitConstraints", _MILLI, pick=1)),
            "smi": _limit("max_power_limit"),
            "amd": (Sensor("power1_cap_max", _MICRO),),
        },
        span=(0, 1200),
    ),
    Metric(
        name="gpu_module_power_limit_watts",
        unit=Unit.WATTS,
        lane=Lane.SLOW,
        help="Power limit of the whole module (GB200 and alike).",
        sources={
            "nvml": (Field(190, _MILLI, _MODULE),),
            "smi": (
                "module_power_readings/current_power_limit",
                "module_power_readings/enforced_power_limit",
                "module_power_readings/power_limit",
            ),
        },
        span=(0, 3000),
    ),
    Metric(
        name="gpu_temperature_shutdown_celsius",
        unit=Unit.CELSIUS,
        lane=Lane.SLOW,
        help="Core temperature at which the board switches off; boards with T.Limit have none.",
        sources={
            "nvml": (Call("nvmlDeviceGetTemperatureThreshold", args=(0,)),),
            "smi": ("temperature/gpu_temp_max_threshold", "temperature/gpu_shutdown_temp"),
            "amd": (Sensor("temp:junction/emergency", _MILLI),),
        },
    ),
    Metric(
        name="gpu_temperature_slowdown_celsius",
        unit=Unit.CELSIUS,
        lane=Lane.SLOW,
        help="Core temperature at which hardware throttles.",
        sources={
            "nvml": (Call("nvmlDeviceGetTemperatureThreshold", args=(1,)),),
            "smi": ("temperature/gpu_temp_slow_threshold", "temperature/gpu_slowdown_temp"),
            "amd": (Sensor("temp:junction/crit", _MILLI),),
        },
    ),
    Metric(
        name="gpu_temperature_max_operating_celsius",
        unit=Unit.CELSIUS,
        lane=Lane.SLOW,
        help="Core temperature at which software throttles.",
        sources={
            "nvml": (Call("nvmlDeviceGetTemperatureThreshold", args=(3,)),),
            "smi": ("temperature/gpu_temp_max_gpu_threshold", "temperature/gpu_max_operating_temp"),
        },
    ),
    Metric(
        name="gpu_memory_temperature_max_operating_celsius",
        unit=Unit.CELSIUS,
        lane=Lane.SLOW,
        help="Memory temperature at which software throttles.",
        sources={
            "nvml": (Call("nvmlDeviceGetTemperatureThreshold", args=(2,)),),
            "smi": ("temperature/gpu_temp_max_mem_threshold", "temperature/memory_max_operating_temp"),
            "amd": (Sensor("temp:mem/crit", _MILLI),),
        },
    ),
    Metric(
        name="gpu_temperature_target_celsius",
        unit=Unit.CELSIUS,
        lane=Lane.SLOW,
        help="Core temperature that the fan and the clocks steer to.",
        sources={
            "nvml": (Call("nvmlDeviceGetTemperatureThreshold", args=(5,)),),
            "smi": ("temperature/gpu_target_temperature", "temperature/gpu_target_temperature_specification"),
        },
    ),
    Metric(
        name="gpu_thermal_margin_shutdown_celsius",
        unit=Unit.CELSIUS,
        lane=Lane.SLOW,
        help="Thermal margin at which the board switches off (a negative number).",
        sources={
            "nvml": (Field(193),),
            "smi": (
                "temperature/gpu_temp_max_tlimit_threshold",
                "temperature/gpu_shutdown_t_limit_temp",
                "temperature/gpu_shutdown_t_limit_temp_specification",
            ),
        },
    ),
    Metric(
        name="gpu_thermal_margin_slowdown_celsius",
        unit=Unit.CELSIUS,
        lane=Lane.SLOW,
        help="Thermal margin at which hardware throttles.",
        sources={
            "nvml": (Field(194),),
            "smi": (
                "temperature/gpu_temp_slow_tlimit_threshold",
                "temperature/gpu_slowdown_t_limit_temp",
                "temperature/gpu_slowdown_t_limit_temp_specification",
            ),
        },
    ),
    Metric(
        name="gpu_thermal_margin_memory_max_celsius",
        unit=Unit.CELSIUS,
        lane=Lane.SLOW,
        help="Thermal margin at which software throttles for the memory.",
        sources={
            "nvml": (Field(195),),
            "smi": (
                "temperature/gpu_temp_max_mem_tlimit_threshold",
                "temperature/memory_max_operating_t_limit_temp",
                "temperature/memory_max_operating_t_limit_temp_specification",
            ),
        },
    ),
    Metric(
        name="gpu_thermal_margin_max_operating_celsius",
        unit=Unit.CELSIUS,
        lane=Lane.SLOW,
        help="Thermal margin at which software throttles for the core.",
        sources={
            "nvml": (Field(196),),
            "smi": (
                "temperature/gpu_temp_max_gpu_tlimit_threshold",
                "temperature/gpu_max_operating_t_limit_temp",
                "temperature/gpu_max_operating_t_limit_temp_specification",
            ),
        },
    ),
    _blackwell(
        "power_smoothing_enabled",
        Unit.FLAG,
        Field(251),
        "Whether power smoothing is on (Blackwell): the GPU then holds its power between a floor and a ceiling while the load "
        "falls and rises.",
    ),
    _blackwell(
        "power_smoothing_floor_watts",
        Unit.WATTS,
        Field(255),
        "Floor that power smoothing applies: an idle GPU may draw as much.",
    ),
    _blackwell("power_smoothing_ceiling_watts", Unit.WATTS, Field(254), "Ceiling that power smoothing applies."),
    _blackwell(
        "power_smoothing_profile", Unit.COUNT, Field(264), "Number of the preset profile of power smoothing in use."
    ),
    _blackwell(
        "power_smoothing_lifetime_ratio",
        Unit.RATIO,
        Field(258, _PERCENT),
        "Lifetime that is left of the circuits that burn power while it is smoothed.",
        span=(0, 1),
    ),
    _blackwell(
        "power_smoothing_limited_seconds_total",
        Unit.SECONDS,
        Field(309, _NANO),
        "Time for which power smoothing limited the GPU.",
        kind=Kind.COUNTER,
    ),
    _blackwell(
        "edpp_multiplier_ratio",
        Unit.RATIO,
        Field(274, _PERCENT),
        "Multiplier of the peak current for which the board is designed (EDPp): below 1 the GPU is held to less.",
    ),
    *(
        Metric(
            name=f"gpu_power_balancing_{word}_total",
            unit=Unit.COUNT,
            kind=Kind.COUNTER,
            lane=Lane.SLOW,
            help=f"{text}, added up by the driver to balance power between GPUs. NVML names no unit: compare its growth with "
            "that of other GPUs of the job, and with its own.",
            sources={"nvml": (Field(field),)},
        )
        for word, field, text in (
            ("frequency", 272, "Frequency of the GPU"),
            ("activity", 273, "Activity factor of the GPU"),
        )
    ),
    Metric(
        name="gpu_workload_power_profile",
        unit=Unit.STATE,
        lane=Lane.SLOW,
        help="Workload power profile in force; the one with the lowest number where there are several. It moves limits and clocks.",
        sources={
            "nvml": (
                Call(
                    "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles", pick="enforcedProfilesMask.mask", first_bit=True
                ),
            )
        },
        states=_PROFILES,
    ),
)
