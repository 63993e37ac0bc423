"""Readings under the names, types, units and labels of NVIDIA's dcgm-exporter.

A page for dashboards and alert rules that were written for the exporter: the aggregator serves it for each
node, a collector for its own. `COUNTERS` says which metrics of the catalogue each name equals, `NOT_GIVEN` why others are
left out, and `parse_list` reads the exporter's own file of counters, by which somebody chooses. No NumPy here.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from telemetry.catalogue import BY_NAME
from telemetry.devices import Gpu
from telemetry.errors import ConfigError
from telemetry.gap import NOT_SUPPORTED, Gap, reason_of
from telemetry.metric import Table
from telemetry.text import counted
from telemetry.wire.exposition import COUNTER, GAUGE, Family, labels
from telemetry.wire.inventory import Inventory
from telemetry.wire.jobs import NodeJobs, holders_of

HOST_LABELS = ("Hostname", "hostname")
"""The label of dcgm-exporter with the node's name: the first up to release 4.8.2, the second since."""
LABEL = "label"
"""Type of a row of the exporter's file whose field is a label of all series."""
_OF_XID = ("err_code", "err_msg")
_NO_LABEL = re.compile(r"^[^a-zA-Z_]|[^a-zA-Z0-9_]")
_MIB = 1 / (1 << 20)
_KIB = 1 / 1024
_KB = 1e-3
_NS = 1e9


@dataclass(frozen=True, slots=True)
class Counter:
    """A name of the exporter, and what it equals here."""

    name: str
    help: str
    terms: tuple[tuple[str, float], ...]
    """Metrics of the catalogue with what each is multiplied by, added up. A metric of links is added up over those of
    the GPU. None for the last XID."""
    kind: str = GAUGE
    of_instance: str = ""
    """The metric of a MIG instance that it equals. Instances stand in place of their GPU, as at the exporter."""
    otherwise: tuple[tuple[str, float], ...] = ()
    """Terms for a GPU that does not support the first."""
    link: int | None = None
    """Of the GPU's links only the one with this number; None: all."""
    note: str = ""
    """Difference to the exporter's number, or where it comes from."""


def _gauge(name: str, text: str, metric: str, scale: float = 1.0, *, of_instance: str = "", note: str = "") -> Counter:
    return Counter(name, text, ((metric, scale),), GAUGE, of_instance, note=note)


def _count(name: str, text: str, metric: str, scale: float = 1.0, *, note: str = "") -> Counter:
    return Counter(name, text, ((metric, scale),), COUNTER, note=note)


def _violation(cause: str, text: str, metric: str) -> Counter:
    return _count(
        f"DCGM_FI_DEV_{cause}_VIOLATION",
        f"Time for which {text} held the clocks down (in ns).",
        f"gpu_clocks_event_{metric}_seconds_total",
        _NS,
        note="in ns, as DCGM has it; the exporter's list of default counters says us of the same number",
    )


def _links(event: str, text: str, metric: str) -> Counter:
    return _count(f"DCGM_FI_DEV_NVLINK_{event}", f"{text}, all links.", f"link_{metric}_total")


def _pipe(field: str, text: str, word: str, note: str = "") -> Counter:
    return _gauge(
        f"DCGM_FI_PROF_{field}_ACTIVE",
        f"Part of the time that {text} (0 to 1).",
        f"gpu_{word}_active_ratio",
        of_instance=f"instance_{word}_active_ratio",
        note=note,
    )


MOST_LINKS = 18
"""NVLinks that DCGM has names for."""
XID = "DCGM_FI_DEV_XID_ERRORS"
_GPM = "Hopper and newer, from GPM"
_GROWTH = "from GPM on Hopper and newer, else the growth of NVML's counter"
_CLOCK_REASONS = (
    "idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown",
    "hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clocks_setting",
)  # fmt: skip
"""Reasons for which clocks are limited, in the order of DCGM's bits."""

LISTED = (
    _gauge("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", "gpu_sm_clock_hertz", 1e-6),
    _gauge("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", "gpu_memory_clock_hertz", 1e-6),
    _gauge("DCGM_FI_DEV_MEMORY_TEMP", "Memory temperature (in C).", "gpu_memory_temperature_celsius"),
    _gauge("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", "gpu_temperature_celsius"),
    _gauge("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", "gpu_power_watts"),
    _count("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Energy since the driver was loaded (in mJ).", "gpu_energy_joules_total", 1e3),
    _count("DCGM_FI_DEV_PCIE_TX_THROUGHPUT", "Data sent over PCIe (in KB).", "gpu_pcie_transmit_bytes_total", _KB, note="a count of 1000 bytes, as its type says; DCGM gives the rate of 20 ms under that type"),
    _count("DCGM_FI_DEV_PCIE_RX_THROUGHPUT", "Data received over PCIe (in KB).", "gpu_pcie_receive_bytes_total", _KB, note="as the one before"),
    _count("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "PCIe retries.", "gpu_pcie_replays_total"),
    _gauge("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", "gpu_utilization_ratio", 100),
    _gauge("DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).", "gpu_memory_utilization_ratio", 100),
    _gauge("DCGM_FI_DEV_ENC_UTIL", "Encoder utilization (in %).", "gpu_encoder_utilization_ratio", 100),
    _gauge("DCGM_FI_DEV_DEC_UTIL", "Decoder utilization (in %).", "gpu_decoder_utilization_ratio", 100),
    Counter(XID, "The last XID error of this GPU; 0 while none is known.", ()),
    _gauge("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", "gpu_memory_free_bytes", _MIB),
    _gauge("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", "gpu_memory_used_bytes", _MIB, of_instance="instance_memory_used_bytes"),
    _gauge("DCGM_FI_DEV_FB_RESERVED", "Framebuffer memory reserved (in MiB).", "gpu_memory_reserved_bytes", _MIB),
    Counter(
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "Data sent and received over all NVLinks (in KiB).",
        (("gpu_nvlink_transmit_bytes_total", _KIB), ("gpu_nvlink_receive_bytes_total", _KIB)), COUNTER,
        otherwise=(("link_transmit_bytes_total", _KIB), ("link_receive_bytes_total", _KIB)),
        note="KiB, as NVML counts; the exporter names no unit, and DCGM's differs by release",
    ),
    _count("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "Rows remapped for uncorrectable errors.", "gpu_remapped_rows_uncorrectable"),
    _count("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "Rows remapped for correctable errors.", "gpu_remapped_rows_correctable"),
    _gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE", "Whether remapping of rows has failed.", "gpu_remapped_rows_failure"),
    _violation("POWER", "the power limit", "sw_power_cap"),
    _violation("THERMAL", "heat", "thermal"),
    _violation("SYNC_BOOST", "sync boost", "sync_boost"),
    _violation("BOARD_LIMIT", "a limit of the board", "board_limit"),
    _violation("LOW_UTIL", "low utilization", "low_utilization"),
    _violation("RELIABILITY", "the limit of a reliable voltage", "reliability"),
    _count("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "ECC errors corrected since the driver was loaded.", "gpu_ecc_volatile_corrected_total"),
    _count("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "ECC errors not corrected since the driver was loaded.", "gpu_ecc_volatile_uncorrected_total"),
    _count("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "ECC errors corrected in the life of the board.", "gpu_ecc_aggregate_corrected_total"),
    _count("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "ECC errors not corrected in the life of the board.", "gpu_ecc_aggregate_uncorrected_total"),
    _count("DCGM_FI_DEV_RETIRED_SBE", "Pages retired for single-bit errors.", "gpu_retired_pages_single_bit"),
    _count("DCGM_FI_DEV_RETIRED_DBE", "Pages retired for double-bit errors.", "gpu_retired_pages_double_bit"),
    _count("DCGM_FI_DEV_RETIRED_PENDING", "Whether pages wait to be retired.", "gpu_retired_pages_pending"),
    _links("CRC_FLIT_ERROR_COUNT_TOTAL", "CRC errors of flow control on NVLinks", "crc_errors"),
    _count("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "CRC errors of data on NVLinks, all links.", "gpu_nvlink_crc_data_errors_total"),
    _links("REPLAY_ERROR_COUNT_TOTAL", "Packets that NVLinks sent again", "replays"),
    _links("RECOVERY_ERROR_COUNT_TOTAL", "Number of times that an NVLink was trained again", "recoveries"),
    _pipe("GR_ENGINE", "the graphics or compute engine was busy", "graphics", _GPM),
    _pipe("SM", "an SM had a warp", "sm", _GPM),
    _gauge("DCGM_FI_PROF_SM_OCCUPANCY", "Warps on the SMs, of the most that they hold (0 to 1).", "gpu_sm_occupancy_ratio", of_instance="instance_sm_occupancy_ratio", note=_GPM),
    _pipe("PIPE_TENSOR", "the tensor pipe was active", "tensor", _GPM),
    _pipe("DRAM", "the memory interface was active", "dram", _GPM),
    _pipe("PIPE_FP64", "the FP64 pipe was active", "fp64", _GPM),
    _pipe("PIPE_FP32", "the FP32 pipe was active", "fp32", _GPM),
    _pipe("PIPE_FP16", "the FP16 pipe was active", "fp16", _GPM),
    _gauge("DCGM_FI_PROF_PCIE_TX_BYTES", "Bytes a second sent over PCIe.", "gpu_pcie_transmit_bytes_per_second", note=_GROWTH),
    _gauge("DCGM_FI_PROF_PCIE_RX_BYTES", "Bytes a second received over PCIe.", "gpu_pcie_receive_bytes_per_second", note=_GROWTH),
)  # fmt: skip
"""The names of the exporter's lists of default and of profiling counters."""

BESIDE = (
    _gauge("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "Power limit in force (in W).", "gpu_power_limit_watts"),
    _gauge("DCGM_FI_DEV_FAN_SPEED", "Fan speed (in %).", "gpu_fan_speed_ratio", 100),
    _gauge("DCGM_FI_PROF_NVLINK_TX_BYTES", "Bytes a second sent over all NVLinks.", "gpu_nvlink_transmit_bytes_per_second", note=_GROWTH),
    _gauge("DCGM_FI_PROF_NVLINK_RX_BYTES", "Bytes a second received over all NVLinks.", "gpu_nvlink_receive_bytes_per_second", note=_GROWTH),
)  # fmt: skip
"""Names in none of these lists that boards ask for all the same."""

BY_CHOICE = (
    _gauge("DCGM_FI_DEV_VIDEO_CLOCK", "Clock of the video engines (in MHz).", "gpu_video_clock_hertz", 1e-6),
    _gauge("DCGM_FI_DEV_MAX_SM_CLOCK", "Highest SM clock (in MHz).", "gpu_sm_clock_max_hertz", 1e-6),
    _gauge("DCGM_FI_DEV_MAX_MEM_CLOCK", "Highest memory clock (in MHz).", "gpu_memory_clock_max_hertz", 1e-6),
    _gauge("DCGM_FI_DEV_MAX_VIDEO_CLOCK", "Highest clock of the video engines (in MHz).", "gpu_video_clock_max_hertz", 1e-6),
    *(
        Counter(
            f"DCGM_FI_DEV_{word}_REASONS", "Reasons that limit the clocks, a bit each.",
            tuple((f"gpu_clocks_event_{reason}", float(1 << bit)) for bit, reason in enumerate(_CLOCK_REASONS)),
        )
        for word in ("CLOCK_THROTTLE", "CLOCKS_EVENT")
    ),
    *(
        _count(f"DCGM_FI_DEV_CLOCKS_EVENT_REASON_{word}_NS", f"Time for which {text} held the clocks down (in ns).", f"gpu_clocks_event_{metric}_seconds_total", _NS)
        for word, text, metric in (
            ("SW_POWER_CAP", "the power limit", "sw_power_cap"),
            ("SYNC_BOOST", "sync boost", "sync_boost"),
            ("SW_THERM_SLOWDOWN", "software, because of heat,", "sw_thermal_slowdown"),
            ("HW_THERM_SLOWDOWN", "hardware, because of heat,", "hw_thermal_slowdown"),
            ("HW_POWER_BRAKE_SLOWDOWN", "a power brake", "hw_power_brake_slowdown"),
        )
    ),
    _gauge("DCGM_FI_DEV_POWER_USAGE_INSTANT", "Power draw at this instant (in W).", "gpu_power_instant_watts"),
    _gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT", "Power limit that was requested (in W).", "gpu_power_limit_requested_watts"),
    _gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN", "Lowest power limit (in W).", "gpu_power_limit_min_watts"),
    _gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX", "Highest power limit (in W).", "gpu_power_limit_max_watts"),
    _gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF", "Power limit of the factory (in W).", "gpu_power_limit_default_watts"),
    _gauge("DCGM_FI_DEV_GPU_TEMP_LIMIT", "Degrees left before software throttling (in C).", "gpu_thermal_margin_celsius"),
    _gauge("DCGM_FI_DEV_GPU_MAX_OP_TEMP", "Highest temperature of operation (in C).", "gpu_temperature_max_operating_celsius"),
    _gauge("DCGM_FI_DEV_MEM_MAX_OP_TEMP", "Highest temperature of operation of the memory (in C).", "gpu_memory_temperature_max_operating_celsius"),
    _gauge("DCGM_FI_DEV_SLOWDOWN_TEMP", "Temperature of slowdown (in C).", "gpu_temperature_slowdown_celsius"),
    _gauge("DCGM_FI_DEV_SHUTDOWN_TEMP", "Temperature of shutdown (in C).", "gpu_temperature_shutdown_celsius"),
    _gauge("DCGM_FI_DEV_PSTATE", "Performance state, 0 the fastest.", "gpu_performance_state"),
    _gauge("DCGM_FI_DEV_PCIE_LINK_GEN", "PCIe generation in use.", "gpu_pcie_link_generation"),
    _gauge("DCGM_FI_DEV_PCIE_MAX_LINK_GEN", "Highest PCIe generation.", "gpu_pcie_link_generation_max"),
    _gauge("DCGM_FI_DEV_PCIE_LINK_WIDTH", "PCIe lanes in use.", "gpu_pcie_link_width"),
    _gauge("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", "Most PCIe lanes.", "gpu_pcie_link_width_max"),
    _gauge("DCGM_FI_DEV_FB_TOTAL", "Framebuffer memory (in MiB).", "gpu_memory_total_bytes", _MIB, of_instance="instance_memory_total_bytes"),
    _gauge("DCGM_FI_DEV_BAR1_TOTAL", "BAR1 memory (in MiB).", "gpu_bar1_total_bytes", _MIB),
    _gauge("DCGM_FI_DEV_BAR1_USED", "BAR1 memory used (in MiB).", "gpu_bar1_used_bytes", _MIB),
    _gauge("DCGM_FI_DEV_BAR1_FREE", "BAR1 memory free (in MiB).", "gpu_bar1_free_bytes", _MIB),
    _gauge("DCGM_FI_DEV_MIG_MODE", "Whether MIG is on.", "gpu_mig_mode"),
    _gauge("DCGM_FI_DEV_ECC_CURRENT", "Whether ECC is on.", "gpu_ecc_mode"),
    *(
        _count(
            f"DCGM_FI_DEV_ECC_{bits}_{short}_{word}",
            f"ECC errors {severity}, {text}, {since}.", f"gpu_ecc_{period}_{severity}_{place}_total",
        )
        for bits, severity in (("SBE", "corrected"), ("DBE", "uncorrected"))
        for short, period, since in (("VOL", "volatile", "since the driver was loaded"), ("AGG", "aggregate", "in the life of the board"))
        for word, place, text in (
            ("L1", "l1_cache", "L1 cache"), ("L2", "l2_cache", "L2 cache"), ("DEV", "dram", "memory"),
            ("REG", "register_file", "register file"), ("TEX", "texture_memory", "texture memory"),
        )
    ),
    _gauge("DCGM_FI_DEV_THRESHOLD_SRM", "Whether on-chip memory has had too many errors.", "gpu_ecc_sram_threshold_exceeded"),
    _gauge("DCGM_FI_DEV_ROW_REMAP_PENDING", "Whether a row waits to be remapped.", "gpu_remapped_rows_pending"),
    *(
        _gauge(f"DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_{word.upper()}", f"Memory banks whose supply of spare rows is: {word}.", f"gpu_remap_banks_{word}")
        for word in ("max", "high", "partial", "low", "none")
    ),
    _gauge("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", "Recovery action that the driver requests.", "gpu_recovery_action"),
    *(
        _links(f"COUNT_{event}", text, metric)
        for event, text, metric in (
            ("TX_PACKETS", "Packets sent over NVLinks", "transmit_packets"),
            ("TX_BYTES", "Bytes sent over NVLinks", "transmit_bytes"),
            ("RX_PACKETS", "Packets received over NVLinks", "receive_packets"),
            ("RX_BYTES", "Bytes received over NVLinks", "receive_bytes"),
            ("RX_MALFORMED_PACKET_ERRORS", "Packets of NVLinks that made no sense", "malformed_packets"),
            ("RX_BUFFER_OVERRUN_ERRORS", "Packets of NVLinks lost because a buffer was full", "buffer_overruns"),
            ("RX_ERRORS", "Packets of NVLinks received with an error", "receive_errors"),
            ("RX_REMOTE_ERRORS", "Packets of NVLinks that the far side had marked bad", "remote_errors"),
            ("RX_GENERAL_ERRORS", "Other errors of NVLinks on receiving", "general_errors"),
            ("LOCAL_LINK_INTEGRITY_ERRORS", "Errors of the integrity of NVLinks", "integrity_errors"),
            ("TX_DISCARDS", "Packets of NVLinks thrown away before sending", "transmit_discards"),
            ("LINK_RECOVERY_SUCCESSFUL_EVENTS", "Recoveries of NVLinks that succeeded", "recoveries_successful"),
            ("LINK_RECOVERY_FAILED_EVENTS", "Recoveries of NVLinks that failed", "recoveries_failed"),
            ("LINK_RECOVERY_EVENTS", "Recoveries of NVLinks", "recoveries"),
            ("RX_SYMBOL_ERRORS", "Symbol errors of NVLinks", "symbol_errors"),
            ("EFFECTIVE_ERRORS", "Errors of NVLinks left after correction", "effective_errors"),
        )
    ),
    *(
        Counter(
            f"DCGM_FI_PROF_NVLINK_L{link}_{short}_BYTES", f"Bytes a second {text} over NVLink {link}.",
            ((f"link_{way}_bytes_per_second", 1.0),), link=link, note=f"one of each link; {_GROWTH}",
        )
        for short, text, way in (("TX", "sent", "transmit"), ("RX", "received", "receive"))
        for link in range(MOST_LINKS)
    ),
    _gauge("DCGM_FI_PROF_PIPE_INT_ACTIVE", "Part of the time that the integer pipe was active (0 to 1).", "gpu_integer_active_ratio", note=_GPM),
    *(
        _gauge(f"DCGM_FI_PROF_PIPE_TENSOR_{word}_ACTIVE", f"Part of the time that the tensor pipe did {word} operations (0 to 1).", f"gpu_tensor_{word.lower()}_active_ratio", note=_GPM)
        for word in ("IMMA", "HMMA", "DFMA")
    ),
    *(
        _gauge(f"DCGM_FI_PROF_C2C_{short}_{what}_BYTES", f"Bytes a second {text} over C2C, {words}.", f"gpu_c2c_{metric}_bytes_per_second", note=f"Grace, {_GPM}")
        for short, text, way in (("TX", "sent", "transmit"), ("RX", "received", "receive"))
        for what, words, metric in (("ALL", "headers too", way), ("DATA", "without headers", f"{way}_data"))
    ),
    _gauge("DCGM_FI_DEV_C2C_LINK_COUNT", "C2C links to the CPU.", "gpu_c2c_links"),
    *(
        _count(f"DCGM_FI_DEV_C2C_LINK_ERROR_{word}", f"{text} of C2C, all links.", f"gpu_c2c_{metric}_total")
        for word, text, metric in (
            ("INTR", "CRC errors", "crc_errors"),
            ("REPLAY", "Packets sent again", "replays"),
            ("REPLAY_B2B", "Packets sent again right after one that was", "replays_back_to_back"),
        )
    ),
    _gauge("DCGM_FI_DEV_PWR_SMOOTHING_ENABLED", "Whether power smoothing is on.", "gpu_power_smoothing_enabled"),
    _gauge("DCGM_FI_DEV_PWR_SMOOTHING_APPLIED_TMP_CEIL", "Ceiling that power smoothing applies (in W).", "gpu_power_smoothing_ceiling_watts"),
    _gauge("DCGM_FI_DEV_PWR_SMOOTHING_APPLIED_TMP_FLOOR", "Floor that power smoothing applies (in W).", "gpu_power_smoothing_floor_watts"),
    _gauge("DCGM_FI_DEV_PWR_SMOOTHING_HW_CIRCUITRY_PERCENT_LIFETIME_REMAINING", "Lifetime left of the circuits of power smoothing (in %).", "gpu_power_smoothing_lifetime_ratio", 100),
    _gauge("DCGM_FI_DEV_PWR_SMOOTHING_ACTIVE_PRESET_PROFILE", "Profile of power smoothing in use.", "gpu_power_smoothing_profile"),
    _count("DCGM_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS", "Correctable errors of PCIe.", "gpu_pcie_correctable_errors_total"),
    _links("COUNT_FEC_HISTORY_15", "Symbols that error correction of NVLinks just could correct, the last bin", "fec_last_bin"),
)  # fmt: skip
"""Names that are served where the exporter's file of counters asks for them, and not before: each is a series a GPU."""

COUNTERS = (*LISTED, *BESIDE, *BY_CHOICE)
_BY_NAME = {counter.name: counter for counter in COUNTERS}

LABELS: dict[str, Callable[[Inventory, Gpu], str | None]] = {
    "DCGM_FI_DRIVER_VERSION": lambda node, _: node.driver_version,
    "DCGM_FI_NVML_VERSION": lambda node, _: node.nvml_version,
    "DCGM_FI_DEV_BRAND": lambda _, gpu: gpu.brand,
    "DCGM_FI_DEV_SERIAL": lambda _, gpu: gpu.serial,
    "DCGM_FI_DEV_VBIOS_VERSION": lambda _, gpu: gpu.vbios,
    "DCGM_FI_DEV_INFOROM_IMAGE_VER": lambda _, gpu: gpu.inforom,
    "DCGM_FI_DEV_NAME": lambda _, gpu: gpu.name,
    "DCGM_FI_DEV_UUID": lambda _, gpu: gpu.uuid,
    "DCGM_FI_DEV_MINOR_NUMBER": lambda _, gpu: None if gpu.minor is None else str(gpu.minor),
}
"""Fields that are labels of all series. The exporter writes the first one unless its file says otherwise."""


class NotGiven(NamedTuple):
    """A field of DCGM or of the exporter that is not served, and what is read in its place."""

    name: str
    reason: str
    metrics: tuple[str, ...] = ()
    """Metrics of the catalogue."""


NOT_GIVEN = (
    NotGiven("DCGM_FI_DEV_VGPU_LICENSE_STATUS", "the licence of a virtual GPU's guest, always 0 on a node that has its GPUs itself"),
    NotGiven("DCGM_EXP_CLOCK_EVENTS_COUNT", "the exporter's own count; take the times or the flags of each reason", ("gpu_clocks_event_sw_power_cap_seconds_total", "gpu_clocks_event_hw_thermal_slowdown_seconds_total")),
    NotGiven("DCGM_EXP_XID_ERRORS_COUNT", "the exporter's own count; each XID is an event with its time"),
    NotGiven("DCGM_EXP_GPU_HEALTH_STATUS", "DCGM's own verdict; kilowatch's are its alerts"),
    NotGiven("DCGM_EXP_P2P_STATUS", "a matrix of pairs that kilowatch does not read"),
    NotGiven("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "DCGM has numbers of its own for it", ("gpu_fabric_state", "gpu_fabric_status")),
    NotGiven("DCGM_FI_DEV_CPU_UTIL_TOTAL", "of the node, as a ratio; DCGM has it on Grace alone", ("node_cpu_utilization_ratio",)),
    NotGiven("DCGM_FI_DEV_CPU_TEMP_CURRENT", "of the node, the hottest CPU", ("node_cpu_temperature_celsius",)),
    NotGiven("DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS", "SXids are statements of the kernel log, and alerts"),
    NotGiven("DCGM_FI_DEV_CONNECTX_HEALTH", "states of each port; what is wrong with it is a rule", ("port_state", "port_physical_state")),
    NotGiven("DCGM_FI_DEV_CONNECTX_ACTIVE_PCIE_LINK_WIDTH", "of each port", ("port_pcie_link_width",)),
    NotGiven("DCGM_FI_DEV_CONNECTX_ACTIVE_PCIE_LINK_SPEED", "of each port, as a generation", ("port_pcie_link_generation",)),
    NotGiven("DCGM_FI_DEV_CONNECTX_EXPECT_PCIE_LINK_WIDTH", "what adapter and slot both have", ("port_pcie_link_width_possible",)),
    NotGiven("DCGM_FI_DEV_CONNECTX_EXPECT_PCIE_LINK_SPEED", "what adapter and slot both have", ("port_pcie_link_generation_possible",)),
    NotGiven("DCGM_FI_DEV_CONNECTX_CORRECTABLE_ERR_STATUS", "a count, not a register", ("port_pcie_correctable_errors_total",)),
    NotGiven("DCGM_FI_DEV_CONNECTX_UNCORRECTABLE_ERR_STATUS", "a count, not a register", ("port_pcie_uncorrectable_errors_total",)),
    NotGiven("DCGM_FI_DEV_CONNECTX_DEVICE_TEMPERATURE", "of each port", ("port_temperature_celsius",)),
    NotGiven("DCGM_FI_DEV_C2C_LINK_STATUS", "of each link; how many are active", ("gpu_c2c_links_active",)),
)  # fmt: skip
_NOT_GIVEN = {each.name: each for each in NOT_GIVEN}


@dataclass(frozen=True, slots=True)
class CounterList:
    """Counters and labels of a page."""

    counters: tuple[Counter, ...] = (*LISTED, *BESIDE)
    labels: tuple[str, ...] = ("DCGM_FI_DRIVER_VERSION",)
    missing: tuple[str, ...] = ()
    """A sentence for each name that was asked for and can't be given, with the line that asks for it."""


DEFAULT = CounterList()


def load_list(where: str, path: Path | None) -> CounterList:
    """Return what the exporter's file of counters asks for, the default without one. `where`: the setting that names
    it. Raises `ConfigError` for a file that can't be read, or has a line that is none."""
    if path is None:
        return DEFAULT
    try:
        text = path.expanduser().read_text("utf-8")
    except OSError as error:
        problem = error.strerror or str(error)
        raise ConfigError(where, f"{path} can't be read: {problem}", "Name a file that this user may read.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(where, f"{path} is no text", "Name the exporter's file of counters.") from error
    return parse_list(text, str(path))


def parse_list(text: str, where: str) -> CounterList:
    """Return what the exporter's file of counters asks for: `FIELD, type, help` a line, `#` before a comment.

    `where`: name of the file. Raises `ConfigError` with the number of a line that is none.
    """
    found: dict[str, Counter] = {}
    asked: list[str] = []
    missing: list[str] = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        place = f"{where}:{number}"
        name, kind, words = _fields(line, place)
        if name in found or name in asked:
            raise ConfigError(place, f"{name} is there twice", "Leave one of the lines.")
        counter = _BY_NAME.get(name)
        if name in LABELS and kind == LABEL:
            asked.append(name)
        elif counter is not None and kind != LABEL:
            found[name] = replace(counter, kind=kind, help=words or counter.help)
        else:
            missing.append(f"{place}: {name} is not served: {_why(name, kind)}")
    return CounterList(tuple(found.values()), tuple(asked), tuple(missing))


def _fields(line: str, place: str) -> tuple[str, str, str]:
    parts = [part.strip() for part in next(csv.reader([line], skipinitialspace=True))]
    if len(parts) != 3:
        raise ConfigError(
            place,
            f"{counted(len(parts), 'column')} where there should be three",
            "Write FIELD, type, help; a help with a comma in quotes.",
        )
    name, kind, words = parts
    if kind not in {GAUGE, COUNTER, LABEL}:
        raise ConfigError(place, f"{kind!r} is no type", "Write gauge, counter or label.")
    if not name.startswith(("DCGM_FI_", "DCGM_EXP_")):
        raise ConfigError(place, f"{name!r} is no field of DCGM", "Write its name: DCGM_FI_DEV_GPU_TEMP.")
    return name, kind, words


def _why(name: str, kind: str) -> str:
    if name in LABELS:
        return "it is a text: write label as its type"
    if name in _BY_NAME:
        return f"as a {kind} a reading would begin new series with each change: write gauge or counter as its type"
    known = _NOT_GIVEN.get(name)
    if known is None:
        return "kilowatch reads nothing that equals it"
    beside = f" ({', '.join(known.metrics)})" if known.metrics else ""
    return f"{known.reason}{beside}"


Columns = Callable[[str], Sequence[float]]
"""From the name of a metric to its values on a node, a row each of its table; gaps are NaN."""


class LastXid(NamedTuple):
    """The last XID of a GPU."""

    number: int
    text: str


_NO_XID = LastXid(0, "No Error")


def families(
    inventory: Inventory,
    columns: Columns,
    *,
    jobs: NodeJobs | None = None,
    xids: Mapping[str, LastXid] | None = None,
    wanted: CounterList = DEFAULT,
    host_label: str = HOST_LABELS[0],
) -> Iterator[Family]:
    """Yield a node's readings as the exporter would show them.

    `jobs`: who has its GPUs, where readings are to say so. `xids`: by UUID; None where nobody knows them.
    """
    gpus = [(row, gpu) for row, gpu in enumerate(inventory.gpus) if gpu.present]
    pairs = {gpu.uuid: _pairs(inventory, gpu, host_label, wanted.labels) for _, gpu in gpus}
    fragments = [labels(_with(pairs[gpu.uuid], _of_job(jobs, gpu.uuid))) for _, gpu in gpus]
    parts = list(_instances(inventory, pairs, jobs))
    split = {each.gpu for each in inventory.instances}
    links: dict[str, dict[int, int]] = {gpu.uuid: {} for _, gpu in gpus}
    for row, link in enumerate(inventory.links):
        if link.gpu in links:
            links[link.gpu][link.number] = row
    for counter in wanted.counters:
        if counter.name == XID:
            if xids is not None:
                yield _family(counter, _xids(xids, gpus, fragments))
            continue
        values = _values(counter, columns, gpus, links)
        samples = list(zip(fragments, values, strict=True))
        if counter.of_instance and parts:
            scale = counter.terms[0][1]
            column = [round(value * scale, 6) for value in columns(counter.of_instance)]
            samples = [sample for sample, (_, gpu) in zip(samples, gpus, strict=True) if gpu.uuid not in split]
            samples += [(its, value) for its, value in zip(parts, column, strict=True) if its]
        yield _family(counter, samples)


def _family(counter: Counter, samples: Sequence[tuple[str, float]]) -> Family:
    return Family(counter.name, counter.help, counter.kind, samples)


def _values(
    counter: Counter, columns: Columns, gpus: Sequence[tuple[int, Gpu]], links: Mapping[str, Mapping[int, int]]
) -> list[float]:
    only = counter.link
    rows = {gpu: [row for number, row in its.items() if only is None or number == only] for gpu, its in links.items()}
    found = _sums(counter.terms, columns, gpus, rows)
    if counter.otherwise and any(_unsupported(value) for value in found):
        other = _sums(counter.otherwise, columns, gpus, rows)
        found = [b if _unsupported(a) else a for a, b in zip(found, other, strict=True)]
    return [round(value, 6) for value in found]


def _sums(
    terms: Iterable[tuple[str, float]],
    columns: Columns,
    gpus: Sequence[tuple[int, Gpu]],
    links: Mapping[str, Sequence[int]],
) -> list[float]:
    total = [0.0] * len(gpus)
    for metric, scale in terms:
        column = columns(metric)
        if BY_NAME[metric].table is Table.LINK:
            its = [_of_links([column[row] for row in links[gpu.uuid]]) for _, gpu in gpus]
        else:
            its = [column[row] for row, _ in gpus]
        # A gap stays the first one: NaN + NaN need not keep a reason.
        total = [
            old if math.isnan(old) else new if math.isnan(new) else old + new * scale
            for old, new in zip(total, its, strict=True)
        ]
    return total


def _of_links(values: Sequence[float]) -> float:
    """Return the sum over the links that have the reading. A gap where one of them has it at other times: the sum
    without it would be a counter that falls, which is a reset to Prometheus."""
    here = [value for value in values if not _unsupported(value)]
    gaps = [value for value in here if math.isnan(value)]
    return gaps[0] if gaps else sum(here) if here else NOT_SUPPORTED


def _unsupported(value: float) -> bool:
    return math.isnan(value) and reason_of(value) is Gap.NOT_SUPPORTED


def _pairs(inventory: Inventory, gpu: Gpu, host_label: str, fields: Iterable[str]) -> dict[str, str | None]:
    domain, colon, rest = (gpu.pci or "").partition(":")
    return {
        "gpu": str(gpu.index),
        "UUID": gpu.uuid,
        "pci_bus_id": f"{domain:0>8}{colon}{rest}" if rest else None,
        "device": f"nvidia{gpu.index if gpu.minor is None else gpu.minor}",
        "modelName": gpu.name,
        host_label: inventory.node,
        **{field: LABELS[field](inventory, gpu) for field in fields},
    }


def _instances(
    inventory: Inventory, pairs: Mapping[str, dict[str, str | None]], jobs: NodeJobs | None
) -> Iterator[str]:
    """Yield the labels of each MIG instance; "" for one of a GPU that is gone."""
    for each in inventory.instances:
        if each.gpu not in pairs:
            yield ""
            continue
        own = {"GPU_I_PROFILE": each.profile or None, "GPU_I_ID": str(each.gpu_instance)}
        yield labels(_with({**pairs[each.gpu], **own}, _of_job(jobs, each.gpu, each.gpu_instance)))


def _with(device: Mapping[str, str | None], job: Mapping[str, str]) -> dict[str, str | None]:
    """Return the labels of a device with those of its job: what a pod's owner has named like one of the device's, or of
    an XID, is left out."""
    return {**device, **{name: value for name, value in job.items() if name not in {*device, *_OF_XID}}}


def _of_job(message: NodeJobs | None, gpu: str, instance: int | None = None) -> dict[str, str]:
    """Return the exporter's labels of the only job that has a GPU or an instance of it: `hpc_job` of a batch system,
    `pod`, `namespace` and `container` of Kubernetes, and those of the pod itself that its node's settings name. None
    where several have it."""
    if message is None:
        return {}
    found = holders_of(message, gpu, (instance,))
    if len(found) != 1:
        return {}
    ((key, step),) = [(each.job, each.step) for each in found]
    if key.scheduler == "kubernetes":
        namespace, _, pod = key.id.partition("/")
        own = next((job.labels for job in message.jobs if job.key == key), {})
        named = {_NO_LABEL.sub("_", name): value for name, value in own.items()}
        return {**named, "namespace": namespace, "pod": pod, "container": step}
    return {"hpc_job": key.id} if key.scheduler == "slurm" else {}


def _xids(
    last: Mapping[str, LastXid], gpus: Sequence[tuple[int, Gpu]], fragments: Sequence[str]
) -> list[tuple[str, float]]:
    found = []
    for (_, gpu), fragment in zip(gpus, fragments, strict=True):
        xid = last.get(gpu.uuid, _NO_XID)
        own = labels({"err_code": str(xid.number), "err_msg": xid.text})
        found.append((f"{fragment[:-1]},{own[1:]}", float(xid.number)))
    return found
