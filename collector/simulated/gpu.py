"""Simulated GPU: its readings at any second, from closed forms.

Power of a second is `share * (idle + span * level + swing * (n[s] - n[s-1]))`: the job's demand,
reduced by faults, plus noise. The noise is a difference, so that the energy counter, the exact sum,
has a closed form: `idle * s + span * sum of levels + swing * n[s]`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from collector.simulated.boards import GpuBoard
from collector.simulated.chassis import full_power
from collector.simulated.columns import HEAD, Pick, layout
from collector.simulated.course import EffectSpan, FaultCourse, course
from collector.simulated.faults import SimulatedFault
from collector.simulated.jobs import SimulatedJob
from collector.simulated.programme import FULL_LEVEL, HOUR, LoadPhase
from collector.simulated.random import NOISE_MASK, NOISE_SIZE, draw, noise, unit
from telemetry.wire.schema import GPU_FAST

AIR = 25.0
IDLE_LEVEL = 0.02
_MIB = 1024 * 1024
_STEP = 15e6  # clocks come in steps of 15 MHz
_FADE = 90  # seconds until the temperature no longer depends on the span before
_MEMORY = {LoadPhase.IDLE: 0.0, LoadPhase.TRAINING: 0.93, LoadPhase.INFERENCE: 0.86, LoadPhase.EVALUATION: 0.88}
"""Share of the memory that a job takes in each phase."""

TRAFFIC = (
    "gpu_pcie_transmit_bytes_per_second",
    "gpu_pcie_receive_bytes_per_second",
    "gpu_nvlink_transmit_bytes_per_second",
    "gpu_nvlink_receive_bytes_per_second",
)
PCIE_SENT = 0.4
"""Bytes that a GPU sends over PCI Express, by those that it receives for its load."""
PCIE_IDLE = (20_000, 24_000)
"""Bytes a second sent and received over PCI Express without a load."""

FAST = (
    "gpu_power_watts",
    "gpu_power_average_watts",
    "gpu_power_instant_watts",
    "gpu_memory_power_watts",
    "gpu_temperature_celsius",
    "gpu_memory_temperature_celsius",
    "gpu_thermal_margin_celsius",
    "gpu_sm_clock_hertz",
    "gpu_graphics_clock_hertz",
    "gpu_memory_clock_hertz",
    "gpu_video_clock_hertz",
    "gpu_performance_state",
    "gpu_clocks_event_idle",
    "gpu_clocks_event_sw_power_cap",
    "gpu_clocks_event_hw_slowdown",
    "gpu_clocks_event_sw_thermal_slowdown",
    "gpu_clocks_event_hw_thermal_slowdown",
    "gpu_clocks_event_hw_power_brake_slowdown",
    "gpu_utilization_ratio",
    "gpu_memory_utilization_ratio",
    "gpu_sm_active_ratio",
    "gpu_tensor_active_ratio",
    "gpu_dram_active_ratio",
    *TRAFFIC,
    "gpu_driver_latency_seconds",
    "gpu_memory_used_bytes",
    "gpu_memory_free_bytes",
    "gpu_energy_joules_total",
    "gpu_clocks_event_sw_power_cap_seconds_total",
    "gpu_clocks_event_sw_thermal_slowdown_seconds_total",
    "gpu_clocks_event_hw_thermal_slowdown_seconds_total",
    "gpu_clocks_event_hw_power_brake_slowdown_seconds_total",
)
"""Columns that `SimulatedGpu.fast` computes, in its order."""

_FAST_ZEROS = frozenset(
    {
        "gpu_clocks_event_applications_clocks_setting",
        "gpu_clocks_event_sync_boost",
        "gpu_clocks_event_display_clocks_setting",
        "gpu_clocks_event_board_limit",
        "gpu_clocks_event_reliability",
        "gpu_recovery_action",
    }
)


@cache
def fast_layout(board: GpuBoard) -> Pick:
    """Return the picker of a board's fast rows."""
    absent = set()
    if board.hot_memory is None:
        absent |= {"gpu_memory_power_watts", "gpu_memory_temperature_celsius"}
    if not board.gpm:
        absent |= {"gpu_sm_active_ratio", "gpu_tensor_active_ratio", "gpu_dram_active_ratio"}
    if not board.links:
        absent |= {name for name in TRAFFIC if "nvlink" in name}
    return layout(GPU_FAST, FAST, zeros=_FAST_ZEROS, absent=frozenset(absent))


@dataclass(slots=True)
class SimulatedGpu:
    """GPU of a simulated node. All fields are constant from tick to tick."""

    board: GpuBoard
    job: SimulatedJob
    seed: int
    index: int
    boot: int
    """Second since the scenario's start (negative) at which the driver loaded."""
    shift: int
    """Added to a second to find it in the programme."""
    offset: int
    """Added to a second to find it in the noise."""
    idle: float
    """Watts."""
    span: float
    """Watts from idle to full load."""
    swing: float
    """Watts of noise."""
    air: float
    """Temperature of the air that reaches it, Celsius."""
    rise: float
    """Degrees above the air in a long run at the limit."""
    quality: float
    """Clock at the limit, relative to the model's."""
    memory: tuple[tuple[float, float], ...]
    """Bytes used and free in each phase."""
    course: FaultCourse = field(init=False)
    noise: tuple[float, ...] = field(init=False)
    pick: Pick = field(init=False)

    @classmethod
    def of(
        cls,
        board: GpuBoard,
        job: SimulatedJob,
        seed: int,
        node: str,
        index: int,
        boot: int,
        air: float,
        faults: list[tuple[SimulatedFault, bool]],
    ) -> SimulatedGpu:
        """Return a GPU; `faults` are those that may concern it, and whether it is their peer."""
        own = draw(seed, node, index)
        idle = board.idle * (0.97 + 0.08 * unit(own, "idle"))
        usable = board.memory_bytes - board.reserved_bytes
        used = [usable * _MEMORY[phase] * (0.98 + 0.02 * unit(own, "memory")) // _MIB * _MIB for phase in LoadPhase]
        gpu = cls(
            board=board,
            job=job,
            seed=own,
            index=index,
            boot=boot,
            shift=job.shift if job.synchronous else job.shift + draw(own, "shift") % HOUR,
            offset=draw(own, "noise") % NOISE_SIZE,
            idle=idle,
            span=full_power(board, unit(own, "full")) - idle,
            swing=0.009 * board.limit,
            air=air,
            rise=(board.hot - AIR) * (0.95 + 0.1 * unit(own, "paste")),
            quality=0.985 + 0.03 * unit(own, "silicon"),
            memory=tuple((bytes_, usable - bytes_) for bytes_ in used),
        )
        gpu.noise = noise(seed)
        gpu.pick = fast_layout(board)
        gpu.course = course(node, index, boot, faults, gpu.energy_until, gpu.capped_until)
        return gpu

    def energy_until(self, second: int) -> float:
        """Return the joules that the job demands up to and with a second, from an arbitrary zero."""
        return (
            self.idle * second
            + self.span * self.job.programme.levels_until(second + self.shift)
            + self.swing * self.noise[(second + self.offset) & NOISE_MASK]
        )

    def capped_until(self, second: int) -> int:
        """Return the seconds at the power limit up to and with a second, from an arbitrary zero."""
        return self.job.programme.capped_until(second + self.shift)

    def watts(self, second: int, span: EffectSpan) -> float:
        """Return the mean watts of a second, which lies in `span`."""
        noise, at = self.noise, second + self.offset
        asked = (
            self.idle
            + self.span * self.job.programme.level[(second + self.shift) % HOUR]
            + self.swing * (noise[at & NOISE_MASK] - noise[(at - 1) & NOISE_MASK])
        )
        return span.effect.power * asked

    def temperature(self, second: int, span: EffectSpan) -> float:
        """Return the core temperature in Celsius, unrounded."""
        share = span.effect.power
        fade = 1.0 - (second - span.start) / _FADE
        if fade > 0.0:
            share += (span.power_before - share) * fade * fade
        felt = self.job.programme.core[(second + self.shift) % HOUR]
        warm = self.air + self.rise * share * (self.idle + self.span * felt) / self.board.limit
        if self.course.hot_spans:
            limit = self.board.max_operating - self.board.margin_slowdown + 1.0
            warm += max(0.0, limit - warm) * self.course.heat(second)
        return warm

    def fast(self, second: int, span: EffectSpan) -> tuple[float, list[float]]:
        """Return the watts and the row of the fast block at a second, which lies in `span`."""
        board, programme, effect, sums = self.board, self.job.programme, span.effect, span.sums
        hours, index = divmod(second + self.shift, HOUR)
        level, phase = programme.level[index], programme.phase[index]
        at = second + self.offset
        noise = self.noise
        luck, luck_before = noise[at & NOISE_MASK], noise[(at - 1) & NOISE_MASK]
        dither = noise[(at * 7 + 1931) & NOISE_MASK]
        share = effect.power
        watts = share * (self.idle + self.span * level + self.swing * (luck - luck_before))
        energy = (
            self.idle * second
            + self.span * (hours * programme.levels[-1] + programme.levels[index])
            + self.swing * luck
        )
        warm = int(self.temperature(second, span) + 0.5)
        full = level >= FULL_LEVEL
        capped = full and share >= 0.9
        elapsed = second - span.start + 1
        cap_sum = sums.capped
        if share >= 0.9:
            cap_sum += hours * programme.capped[-1] + programme.capped[index] - span.capped_before
        if level < IDLE_LEVEL:
            clock, state, memory_clock = board.sm_idle, board.idle_state, board.memory_clock_idle
            busy, idle = 0, 1.0
        else:
            state, memory_clock, idle = 0, board.memory_clock, 0.0
            peak = board.sm_capped * (0.985 + 0.03 * dither) * self.quality if full else board.sm_max
            clock = int(peak * effect.clock / _STEP) * _STEP
            if phase is LoadPhase.TRAINING:  # waiting for peers is a kernel that spins
                busy = 100 if level > 0.3 else 41
            else:
                busy = min(100, int(level * 132 + 3 * dither))
        deep = programme.deep[index]
        hot_memory = board.hot_memory or 0.0
        used, free = self.memory[phase]
        latency = 0.0009 + 0.0006 * dither
        if effect.slow_driver:
            latency += 0.4 * level
        return watts, list(
            self.pick(
                (
                    *HEAD,
                    watts,
                    watts,
                    watts + 0.03 * board.limit * level * (dither - 0.5) * share,
                    33.0 + 85.0 * deep * share,
                    warm,
                    int(self.air + 8.0 + (hot_memory - AIR - 8.0) * deep * share + 0.5),
                    board.max_operating - warm,
                    clock,
                    clock,
                    memory_clock,
                    clock * 0.78 // _STEP * _STEP,
                    state,
                    idle,
                    1.0 if capped else 0.0,
                    1.0 if effect.hot or effect.power_brake else 0.0,
                    1.0 if effect.warm else 0.0,
                    1.0 if effect.hot else 0.0,
                    1.0 if effect.power_brake else 0.0,
                    busy * 0.01,
                    int(level * 58.0 + 2.0 * dither) * 0.01,
                    level * 0.84,
                    level * 0.47 if phase is LoadPhase.TRAINING else level * 0.21,
                    level * 0.52,
                    level * board.pcie_rate * PCIE_SENT + PCIE_IDLE[0],
                    level * board.pcie_rate + PCIE_IDLE[1],
                    level * board.nvlink_rate,
                    level * board.nvlink_rate,
                    latency,
                    used,
                    free,
                    sums.energy + share * (energy - span.energy_before),
                    cap_sum,
                    sums.warm + (elapsed if effect.warm else 0),
                    sums.hot + (elapsed if effect.hot else 0),
                    sums.power_brake + (elapsed if effect.power_brake else 0),
                )
            )
        )
