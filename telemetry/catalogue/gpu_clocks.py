"""GPU rows: clocks, clock limit reasons, utilisation, driver latency."""

from __future__ import annotations

from telemetry.catalogue.amd import AmdReader, Binary, File, Pick, Residency
from telemetry.catalogue.nvml import Call, Field, Gpm
from telemetry.metric import Kind, Lane, Metric, Unit

_MEGA = 1e6
_NANO = 1e-9
_AMD_CLOCKS: dict[str, tuple[AmdReader, ...]] = {
    "sm": (Binary("gfxclk", _MEGA, "mean"), File("pp_dpm_sclk", _MEGA, Pick.STARRED)),
    "memory": (Binary("uclk", _MEGA), File("pp_dpm_mclk", _MEGA, Pick.STARRED)),
    "video": (Binary("vclk0", _MEGA, "mean"), File("pp_dpm_vclk", _MEGA, Pick.STARRED)),
    "graphics": (Binary("gfxclk", _MEGA, "mean"), File("pp_dpm_sclk", _MEGA, Pick.STARRED)),
}
_AMD_DPM = {"sm": "sclk", "memory": "mclk", "video": "vclk", "graphics": "sclk"}
_AMD_THROTTLERS = {
    "sw_power_cap": ("ppt",),
    "sw_thermal_slowdown": ("socket_thm", "hbm_thm"),
    "hw_thermal_slowdown": ("prochot", "vr_thm"),
}
"""Throttlers of AMD by the word of the reason that means the same."""


def _clock(name: str, number: int, tags: tuple[str, str], text: str) -> Metric:
    return Metric(
        name=f"gpu_{name}_clock_hertz",
        unit=Unit.HERTZ,
        help=f"Clock of the {text} now.",
        sources={
            "nvml": (Call("nvmlDeviceGetClockInfo", _MEGA, (number,)),),
            "smi": tuple(f"clocks/{tag}" for tag in tags),
            "amd": _AMD_CLOCKS[name],
        },
        span=(0, 3e9) if name != "memory" else (0, 15e9),
    )


def _max_clock(name: str, number: int, tags: tuple[str, str], text: str) -> Metric:
    return Metric(
        name=f"gpu_{name}_clock_max_hertz",
        unit=Unit.HERTZ,
        lane=Lane.SLOW,
        help=f"Highest clock of the {text}.",
        sources={
            "nvml": (Call("nvmlDeviceGetMaxClockInfo", _MEGA, (number,)),),
            "smi": tuple(f"max_clocks/{tag}" for tag in tags),
            "amd": (File(f"pp_dpm_{_AMD_DPM[name]}", _MEGA, Pick.HIGHEST),),
        },
    )


def _reason(word: str, bit: int, text: str, *paths: str) -> Metric:
    """Return the row of a clock limit reason: 1 while it limits the clocks."""
    tags = tuple(
        f"clocks_{generation}_reasons/clocks_{generation}_reason_{tag}"
        for tag in (word, *paths)
        for generation in ("event", "throttle")
    )
    labels = tuple(
        f"clocks_{generation}_reasons/{label}" for label in (word, *paths) for generation in ("event", "throttle")
    )
    return Metric(
        name=f"gpu_clocks_event_{word}",
        unit=Unit.FLAG,
        help=f"1 while the clocks are limited by {text}.",
        sources={
            "nvml": (
                Call("nvmlDeviceGetCurrentClocksEventReasons", mask=bit),
                Call("nvmlDeviceGetCurrentClocksThrottleReasons", mask=bit),
            ),
            "smi": (*tags, *labels),
            "amd": tuple(Residency(names, flag=True) for key, names in _AMD_THROTTLERS.items() if key == word),
        },
        span=(0, 1),
    )


def _reason_time(word: str, field: int, lane: Lane, text: str, tag: str = "", label: str = "") -> Metric:
    return Metric(
        name=f"gpu_clocks_event_{word}_seconds_total",
        unit=Unit.SECONDS,
        kind=Kind.COUNTER,
        lane=lane,
        help=f"Time since the driver loaded (AMD: since the collector opened it) with the clocks limited by {text}.",
        sources={
            "nvml": (Field(field, _NANO),),
            "smi": (
                f"clocks_event_reasons_counters/clocks_event_reasons_counters_{tag}",
                f"clocks_event_reasons_counters/{label}",
            )
            if tag
            else (),
            "amd": tuple(Residency(names) for key, names in _AMD_THROTTLERS.items() if key == word),
        },
    )


def _utilization(
    name: str, call: Call, label: str, text: str, lane: Lane = Lane.FAST, amd: tuple[AmdReader, ...] = ()
) -> Metric:
    return Metric(
        name=f"gpu_{name}_ratio",
        unit=Unit.RATIO,
        lane=lane,
        help=text,
        sources={"nvml": (call,), "smi": (f"utilization/{label}_util", f"utilization/{label}"), "amd": amd},
        span=(0, 1),
    )


_PERCENT = 0.01

METRICS = (
    _clock("sm", 1, ("sm_clock", "sm"), "streaming multiprocessors"),
    _clock("memory", 2, ("mem_clock", "memory"), "memory"),
    _clock("video", 3, ("video_clock", "video"), "video engines"),
    _clock("graphics", 0, ("graphics_clock", "graphics"), "graphics engine"),
    _max_clock("sm", 1, ("sm_clock", "sm"), "streaming multiprocessors"),
    _max_clock("memory", 2, ("mem_clock", "memory"), "memory"),
    _max_clock("video", 3, ("video_clock", "video"), "video engines"),
    _max_clock("graphics", 0, ("graphics_clock", "graphics"), "graphics engine"),
    Metric(
        name="gpu_performance_state",
        unit=Unit.STATE,
        help="Performance state: 0 is the fastest, 15 the slowest.",
        sources={"nvml": (Call("nvmlDeviceGetPerformanceState"),), "smi": ("performance_state",)},
        span=(0, 15),
        states=tuple((number, f"P{number}") for number in range(16)),
    ),
    _reason("idle", 0x1, "idleness, which is healthy", "gpu_idle"),
    _reason("applications_clocks_setting", 0x2, "the application clocks setting", "user_defined_clocks"),
    _reason("sw_power_cap", 0x4, "the power limit, which is normal at full load"),
    _reason("hw_slowdown", 0x8, "hardware: heat, a power brake, or a state change"),
    _reason("sync_boost", 0x10, "a peer in its sync boost group"),
    _reason("sw_thermal_slowdown", 0x20, "software, because of heat"),
    _reason("hw_thermal_slowdown", 0x40, "hardware, because of heat", "hw_slowdown/hw_thermal_slowdown"),
    _reason(
        "hw_power_brake_slowdown",
        0x80,
        "hardware, because the power supply requested it",
        "hw_slowdown/hw_power_brake_slowdown",
    ),
    _reason("display_clocks_setting", 0x100, "the display clock setting", "display_clock_setting"),
    _reason("board_limit", 0x200, "a limit of the board"),
    _reason("reliability", 0x400, "the limit of a reliable voltage"),
    _reason_time("sw_power_cap", 74, Lane.FAST, "the power limit", "sw_power_cap", "sw_power_capping"),
    _reason_time("thermal", 75, Lane.SLOW, "heat, of whatever part"),
    _reason_time("sync_boost", 76, Lane.SLOW, "sync boost", "sync_boost", "sync_boost"),
    _reason_time("board_limit", 77, Lane.SLOW, "a limit of the board"),
    _reason_time("low_utilization", 78, Lane.SLOW, "low utilisation"),
    _reason_time("reliability", 79, Lane.SLOW, "the limit of a reliable voltage"),
    _reason_time(
        "sw_thermal_slowdown", 269, Lane.FAST, "software, because of heat", "sw_therm_slowdown", "sw_thermal_slowdown"
    ),
    _reason_time(
        "hw_thermal_slowdown", 270, Lane.FAST, "hardware, because of heat", "hw_therm_slowdown", "hw_thermal_slowdown"
    ),
    _reason_time("hw_power_brake_slowdown", 271, Lane.FAST, "a power brake", "hw_power_brake", "hw_power_braking"),
    _utilization(
        "utilization",
        Call("nvmlDeviceGetUtilizationRates", _PERCENT, pick="gpu"),
        "gpu",
        "Share of the last sample period in which a kernel ran; not how much of the GPU it used.",
        amd=(Binary("average_gfx_activity", _PERCENT), File("gpu_busy_percent", _PERCENT)),
    ),
    _utilization(
        "memory_utilization",
        Call("nvmlDeviceGetUtilizationRates", _PERCENT, pick="memory"),
        "memory",
        "Share of the last sample period in which memory was read or written.",
        amd=(Binary("average_umc_activity", _PERCENT), File("mem_busy_percent", _PERCENT)),
    ),
    _utilization(
        "encoder_utilization",
        Call("nvmlDeviceGetEncoderUtilization", _PERCENT, pick=0),
        "encoder",
        "Load of the video encoder.",
        Lane.SLOW,
    ),
    _utilization(
        "decoder_utilization",
        Call("nvmlDeviceGetDecoderUtilization", _PERCENT, pick=0),
        "decoder",
        "Load of the video decoder.",
        Lane.SLOW,
        (Binary("vcn_activity", _PERCENT, "mean"),),
    ),
    _utilization(
        "jpeg_utilization",
        Call("nvmlDeviceGetJpgUtilization", _PERCENT, pick=0),
        "jpeg",
        "Load of the JPEG engine.",
        Lane.SLOW,
        (Binary("jpeg_activity", _PERCENT, "mean"),),
    ),
    _utilization(
        "ofa_utilization",
        Call("nvmlDeviceGetOfaUtilization", _PERCENT, pick=0),
        "ofa",
        "Load of the optical flow accelerator.",
        Lane.SLOW,
    ),
    Metric(
        name="gpu_sm_active_ratio",
        unit=Unit.RATIO,
        help="Share of the multiprocessors that had a warp, from GPM (Hopper and newer).",
        sources={"nvml": (Gpm(2, _PERCENT),)},
        span=(0, 1),
    ),
    Metric(
        name="gpu_tensor_active_ratio",
        unit=Unit.RATIO,
        help="Share of the time in which the tensor cores were active, from GPM.",
        sources={"nvml": (Gpm(5, _PERCENT),)},
        span=(0, 1),
    ),
    Metric(
        name="gpu_dram_active_ratio",
        unit=Unit.RATIO,
        help="Memory bandwidth used, of its maximum, from GPM.",
        sources={"nvml": (Gpm(10, _PERCENT),)},
        span=(0, 1),
    ),
    *(
        Metric(
            name=f"gpu_{word}_ratio",
            unit=Unit.RATIO,
            help=f"{text}, from GPM: the mean since the reading before.",
            lane=Lane.SLOW,
            sources={"nvml": (Gpm(number, _PERCENT),)},
            span=(0, 1),
        )
        for word, number, text in (
            ("graphics_active", 1, "Share of the time in which the graphics or the compute engine was busy"),
            ("sm_occupancy", 3, "Warps on the multiprocessors, of the most that they can hold"),
            ("integer_active", 4, "Share of the time in which the integer units were active"),
            ("fp64_active", 11, "Share of the time in which the FP64 units were active"),
            ("fp32_active", 12, "Share of the time in which the FP32 units were active"),
            ("fp16_active", 13, "Share of the time in which the FP16 units were active"),
            ("tensor_dfma_active", 6, "Share of the time in which tensor cores did DFMA operations"),
            ("tensor_hmma_active", 7, "Share of the time in which tensor cores did HMMA operations"),
            ("tensor_dmma_active", 8, "Share of the time in which tensor cores did DMMA operations"),
            ("tensor_imma_active", 9, "Share of the time in which tensor cores did IMMA operations"),
        )
    ),
    Metric(
        name="gpu_xcd_clock_min_hertz",
        unit=Unit.HERTZ,
        lane=Lane.SLOW,
        help="Lowest clock of the compute dies of a GPU that has several (AMD's XCDs).",
        sources={"amd": (Binary("gfxclk", _MEGA, "min"),)},
        span=(0, 3e9),
    ),
    *(
        Metric(
            name=f"gpu_xcd_utilization_{word}_ratio",
            unit=Unit.RATIO,
            lane=Lane.SLOW,
            help=f"Use of the {text} compute die of a GPU that has several (AMD's XCDs).",
            sources={"amd": (Binary("xcd_busy", _PERCENT, word),)},
            span=(0, 1),
        )
        for word, text in (("min", "least used"), ("max", "most used"))
    ),
    Metric(
        name="gpu_driver_latency_seconds",
        unit=Unit.SECONDS,
        help="How long the driver took to answer for this GPU; an early sign of a faulty one.",
        origin="measured by the collector around its calls of this tick",
        span=(0, 0.1),
    ),
)
