"""The slow lane of a simulated GPU: limits, memory, PCIe, NVLink totals, ECC, row remaps, fan."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from collector.simulated.boards import GpuBoard
from collector.simulated.columns import HEAD, Pick, layout
from collector.simulated.course import EffectSpan, FaultCourse
from collector.simulated.gpu import IDLE_LEVEL, PCIE_IDLE, PCIE_SENT, SimulatedGpu
from collector.simulated.programme import HOUR, LoadPhase
from collector.simulated.random import draw, unit
from telemetry.wire.schema import GPU_SLOW, SCHEMA

STORM_RATE = 6000
"""Corrected errors a second of an ECC storm under full load."""
_MIB = 1024 * 1024

_CONSTANT: dict[str, str] = {
    "gpu_power_limit_watts": "limit",
    "gpu_power_limit_requested_watts": "limit",
    "gpu_power_limit_default_watts": "limit",
    "gpu_power_limit_min_watts": "limit_min",
    "gpu_power_limit_max_watts": "limit_max",
    "gpu_thermal_margin_shutdown_celsius": "margin_shutdown",
    "gpu_thermal_margin_slowdown_celsius": "margin_slowdown",
    "gpu_sm_clock_max_hertz": "sm_max",
    "gpu_graphics_clock_max_hertz": "sm_max",
    "gpu_memory_clock_max_hertz": "memory_clock",
    "gpu_video_clock_max_hertz": "video_max",
    "gpu_memory_total_bytes": "memory_bytes",
    "gpu_memory_reserved_bytes": "reserved_bytes",
    "gpu_bar1_total_bytes": "bar1_bytes",
}
"""Columns that are a constant of the board, and its field."""

_UNITS_ACTIVE = {
    "gpu_graphics_active_ratio": 0.97,
    "gpu_sm_occupancy_ratio": 0.46,
    "gpu_integer_active_ratio": 0.17,
    "gpu_fp64_active_ratio": 0.0,
    "gpu_fp32_active_ratio": 0.21,
    "gpu_fp16_active_ratio": 0.04,
    "gpu_tensor_dfma_active_ratio": 0.0,
    "gpu_tensor_hmma_active_ratio": 0.46,
    "gpu_tensor_dmma_active_ratio": 0.0,
    "gpu_tensor_imma_active_ratio": 0.0,
}
"""Activity at full load, as of a transformer in training."""
LEAST = 0.998
_LEAST_LINK = ("gpu_nvlink_least_bytes_per_second", "gpu_nvlink_least_link")
_COMPUTED = (
    "gpu_fan_speed_ratio",
    "gpu_bar1_used_bytes",
    "gpu_bar1_free_bytes",
    "gpu_pcie_link_generation",
    "gpu_pcie_link_generation_max",
    "gpu_pcie_link_generation_device_max",
    "gpu_pcie_link_width",
    "gpu_pcie_link_width_max",
    "gpu_fabric_state",
    "gpu_processes",
    *_UNITS_ACTIVE,
    *_LEAST_LINK,
    "gpu_ecc_mode",
    "gpu_pcie_replays_total",
    "gpu_pcie_correctable_errors_total",
    "gpu_pcie_transmit_bytes_total",
    "gpu_pcie_receive_bytes_total",
    "gpu_nvlink_transmit_bytes_total",
    "gpu_nvlink_receive_bytes_total",
    "gpu_nvlink_crc_data_errors_total",
    "gpu_clocks_event_thermal_seconds_total",
    "gpu_ecc_volatile_corrected_total",
    "gpu_ecc_volatile_corrected_dram_total",
    "gpu_ecc_aggregate_corrected_total",
    "gpu_ecc_aggregate_corrected_dram_total",
    "gpu_remapped_rows_correctable",
    "gpu_remapped_rows_pending",
    "gpu_remap_banks_max",
    "gpu_remap_banks_high",
)

_ZEROS_OF_ALL = {
    "gpu_thermal_margin_max_operating_celsius",
    "gpu_encoder_utilization_ratio",
    "gpu_decoder_utilization_ratio",
    "gpu_jpeg_utilization_ratio",
    "gpu_ofa_utilization_ratio",
    "gpu_clocks_event_sync_boost_seconds_total",
    "gpu_clocks_event_board_limit_seconds_total",
    "gpu_clocks_event_low_utilization_seconds_total",
    "gpu_clocks_event_reliability_seconds_total",
    "gpu_pcie_replay_rollovers_total",
    "gpu_pcie_recoveries_total",
    "gpu_pcie_naks_received_total",
    "gpu_pcie_receiver_errors_total",
    "gpu_pcie_bad_tlp_total",
    "gpu_pcie_naks_sent_total",
    "gpu_pcie_bad_dllp_total",
    "gpu_pcie_non_fatal_errors_total",
    "gpu_pcie_fatal_errors_total",
    "gpu_pcie_unsupported_requests_total",
    "gpu_pcie_lcrc_errors_total",
    "gpu_pcie_lane_errors_total",
}
_ZEROS_WITH_ECC = {
    "gpu_thermal_margin_memory_max_celsius",
    "gpu_ecc_sram_threshold_exceeded",
    "gpu_remapped_rows_uncorrectable",
    "gpu_remapped_rows_failure",
    "gpu_remap_banks_partial",
    "gpu_remap_banks_low",
    "gpu_remap_banks_none",
    "gpu_channel_repair_pending",
    "gpu_tpc_repair_pending",
    *(
        f"gpu_ecc_{period}_{word}_total"
        for period in ("volatile", "aggregate")
        for word in (
            "uncorrected",
            "uncorrected_dram",
            "corrected_sram",
            "uncorrected_sram",
            "uncorrected_sram_parity",
            "uncorrected_sram_secded",
        )
    ),
}


def _absent(board: GpuBoard) -> Iterator[str]:
    """Yield the computed columns that a board doesn't have."""
    if not board.fan:
        yield "gpu_fan_speed_ratio"
    if not board.links:
        yield "gpu_fabric_state"
        yield "gpu_nvlink_transmit_bytes_total"
        yield "gpu_nvlink_receive_bytes_total"
        yield "gpu_nvlink_crc_data_errors_total"
    if not board.gpm:
        yield from _UNITS_ACTIVE
    if not board.gpm or not board.links:
        yield from _LEAST_LINK
    if not board.ecc:
        for name in SCHEMA.blocks[GPU_SLOW].names:
            if "_ecc_" in name or "_remap" in name:
                yield name


@cache
def slow_layout(board: GpuBoard) -> Pick:
    """Return the picker of a board's slow rows."""
    zeros = _ZEROS_OF_ALL | (_ZEROS_WITH_ECC if board.ecc else set())
    zeros |= {"gpu_mig_mode"} if board.mig else set()
    names = (*_CONSTANT, *_COMPUTED)
    return layout(GPU_SLOW, names, zeros=frozenset(zeros), absent=frozenset(_absent(board)))


def slow_count() -> int:
    """Return the number of computed values of slow rows, without `HEAD`."""
    return len(_CONSTANT) + len(_COMPUTED)


def corrected(gpu: SimulatedGpu, course: FaultCourse, second: int) -> int:
    """Return the corrected memory errors since the driver first loaded.

    One GPU in twelve has a few an hour at most, as healthy boards do; a storm has thousands a
    second, in step with the load, because only rows that are read are corrected.
    """
    own = gpu.seed
    count = 0
    if draw(own, "weak row") % 12 == 0:
        count = int((second - gpu.boot) * (0.2 + unit(own, "rate")) / HOUR)
    levels = gpu.job.programme.levels_until
    for start, end in course.storms:
        if second >= start:
            last = min(second, end - 1)
            load = levels(last + gpu.shift) - levels(start - 1 + gpu.shift)
            count += int(STORM_RATE * load)
    return count


def fan_speed(board: GpuBoard, temperature: float) -> float:
    """Return the fan's share of its maximum: 0 below 50 Celsius, 1 at the limit."""
    if temperature < 50.0:
        return 0.0
    return min(1.0, 0.30 + 0.70 * (temperature - 50.0) / (board.max_operating - 50.0))


def least_link(gpu: SimulatedGpu) -> int:
    """Return the number of the link that carries least, `LEAST` of an equal share; 0 without links."""
    return draw(gpu.seed, "least link") % max(1, gpu.board.links)


def slow(gpu: SimulatedGpu, second: int, span: EffectSpan) -> list[float]:
    """Return the row of the slow block at a second, which lies in `span`."""
    board, programme, own, course = gpu.board, gpu.job.programme, gpu.seed, gpu.course
    index = (second + gpu.shift) % HOUR
    level = programme.level[index]
    idle = level < IDLE_LEVEL
    phase = programme.phase[index]
    since = second - span.boot + 1
    load = programme.levels_until(second + gpu.shift) - programme.levels_until(span.boot - 1 + gpu.shift)
    bar1 = (2.0 if phase is LoadPhase.IDLE else 6.0) * _MIB
    total = corrected(gpu, course, second)
    volatile = total - (corrected(gpu, course, span.boot - 1) if span.boot > gpu.boot else 0)
    before = draw(own, "life") % 9 if draw(own, "weak row") % 12 == 0 else 0
    begun = [start for start, _ in course.remaps if second >= start]
    pending = any(start <= second < end for start, end in course.remaps)
    rows = (1 if draw(own, "remap") % 20 == 0 else 0) + len(begun)
    sent = load * board.nvlink_rate
    fan = fan_speed(board, gpu.temperature(second, span)) if board.fan else 0.0
    return list(
        slow_layout(board)(
            (
                *HEAD,
                *(float(getattr(board, name)) for name in _CONSTANT.values()),
                round(fan, 2),
                bar1,
                board.bar1_bytes - bar1,
                board.idle_generation if idle else 5,
                5,
                5,
                16,
                16,
                3,
                0 if phase is LoadPhase.IDLE else 1,
                *(round(level * most, 3) for most in _UNITS_ACTIVE.values()),
                level * board.nvlink_rate * 2 * LEAST / max(1, board.links),
                least_link(gpu),
                1,
                140 + draw(own, "replays") % 12 + since // 700_000,
                since // 90_000,
                int(load * board.pcie_rate * PCIE_SENT) + since * PCIE_IDLE[0],
                int(load * board.pcie_rate) + since * PCIE_IDLE[1],
                int(sent),
                int(sent * (0.999 + 0.002 * unit(own, "receive"))),
                0,
                # software limits the clocks for as long as heat does, by whatever
                span.sums.warm + (second - span.start + 1 if span.effect.warm else 0),
                volatile,
                volatile,
                before + total,
                before + total,
                rows,
                1.0 if pending else 0.0,
                board.banks - rows,
                rows,
            )
        )
    )
