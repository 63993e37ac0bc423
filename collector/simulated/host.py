"""The host of simulated GPUs: power at the wall, CPUs, memory, network and disks.

Columns about the collector itself (`SELF`) are gaps `not_read`, which the collector fills in. All
other columns of the `node` table are simulated.
"""

from __future__ import annotations

from collector.simulated.chassis import NodeChassis
from collector.simulated.columns import HEAD, layout
from collector.simulated.jobs import SimulatedJob
from collector.simulated.programme import HOUR, LoadPhase
from collector.simulated.random import NOISE_MASK, draw, unit
from telemetry.gap import NOT_READ
from telemetry.wire.schema import NODE_FAST, NODE_SLOW

SELF = (
    "node_driver_up",
    "node_gpus_expected",
    "node_gpus_answering",
    "node_ticks_skipped_total",
    "node_collector_tasks_failing",
    "node_collector_cpu_seconds_total",
    "node_collector_memory_bytes",
    "node_probes_abandoned_total",
)
"""Columns that a simulated node leaves to the collector, as gaps `not_read`."""

_FAST = (
    *SELF[:5],
    "node_wall_power_watts",
    "node_cpu_utilization_ratio",
    "node_load_1m",
    "node_processes_blocked",
    "node_memory_available_bytes",
    "node_cpu_package_energy_joules_total",
    "node_memory_energy_joules_total",
    "node_network_receive_bytes_total",
    "node_network_transmit_bytes_total",
    "node_disk_read_bytes_total",
    "node_disk_written_bytes_total",
)
_SLOW = (
    *SELF[5:],
    "node_memory_total_bytes",
    "node_cpus",
    "node_load_5m",
    "node_load_15m",
    "node_processes_uninterruptible",
    "node_uptime_seconds",
    "node_filesystem_free_bytes",
    "node_filesystem_free_ratio",
    "node_root_free_ratio",
    "node_clock_synchronised",
    "node_clock_offset_seconds",
    "node_pressure_cpu_waiting_seconds_total",
    "node_pressure_io_waiting_seconds_total",
    "node_pressure_io_stalled_seconds_total",
    "node_pressure_memory_waiting_seconds_total",
    "node_pressure_memory_stalled_seconds_total",
    "node_edac_correctable_errors_total",
    "node_edac_uncorrectable_errors_total",
    "node_oom_kills_total",
    "node_hung_tasks_total",
    "node_pcie_correctable_errors_total",
    "node_pcie_nonfatal_errors_total",
    "node_pcie_fatal_errors_total",
    "node_root_read_only",
    "node_network_mounts_failing",
    "node_network_mounts_missing",
    "node_network_mounts",
    "node_nvme_drives",
    "node_nvme_drives_live",
    "node_cpu_temperature_celsius",
    "node_cpu_headroom_celsius",
    "node_nvme_headroom_celsius",
    "node_nvme_spare_ratio",
    "node_nvme_worn_ratio",
    "node_services",
    "node_supplies",
    "node_fans",
    "node_nvme_critical",
    "node_nvme_media_errors_total",
    "node_services_down",
    "node_service_restarts_total",
    "node_unclean_boot",
    "node_crash_records",
    "node_supplies_failed",
    "node_fans_failed",
)
LACKED = frozenset({
    "node_nvswitches", "node_nvswitches_present", "node_fabric_manager_up", "node_imex_up",
    "node_lustre_imports", "node_lustre_imports_failing", "node_beegfs_targets", "node_beegfs_targets_failing",
    "node_ceph_sessions", "node_ceph_sessions_failing", "node_ceph_requests_homeless", "node_bmc_log_used_ratio",
})  # fmt: skip
"""Columns that no simulated node has, as gaps `not_supported`."""
_PICK_FAST = layout(NODE_FAST, _FAST)
_HEALTHY = frozenset({
    "node_machine_checks_total", "node_kernel_machine_check", "node_kernel_oops", "node_kernel_warning",
    "node_kernel_lockup", "node_bmc_log_critical",
})  # fmt: skip
"""Columns that are 0 on every simulated node."""
_PICK_SLOW = layout(NODE_SLOW, _SLOW, zeros=_HEALTHY, absent=LACKED)
_MEMORY_SHARE = 0.15
"""Energy of the memory over that of the packages."""
_MEMORY = {LoadPhase.IDLE: 0.02, LoadPhase.TRAINING: 0.34, LoadPhase.INFERENCE: 0.18, LoadPhase.EVALUATION: 0.30}


class SimulatedHost:
    """Host of a simulated node. Immutable after creation."""

    def __init__(
        self, chassis: NodeChassis, job: SimulatedJob, seed: int, node: str, base: float, noise: tuple[float, ...]
    ) -> None:
        self.chassis = chassis
        self.job = job
        self.base = base
        """Watts (direct current) without load, beside the GPUs'."""
        self.noise = noise
        own = draw(seed, node, "host")
        self.offset = own & NOISE_MASK
        self.free = 0.4 + 0.3 * unit(own, "disk")
        self.clock = (unit(own, "clock") - 0.5) * 2e-4

    def fast(self, second: int, boot: int, gpu_watts: float, hung: int) -> list[float]:
        """Return the row of the fast block. `gpu_watts` is the sum of the node's GPUs, `hung` the
        processes that hang in the driver, which count as load."""
        chassis, programme = self.chassis, self.job.programme
        at = second + self.job.shift
        level, phase = programme.level[at % HOUR], programme.phase[at % HOUR]
        luck = self.noise[(second + self.offset) & NOISE_MASK]
        direct = gpu_watts + self.base + chassis.swing * level
        load = programme.levels_until(at) - programme.levels_until(boot - 1 + self.job.shift)
        saving = programme.saving_until(at) - programme.saving_until(boot - 1 + self.job.shift)
        since = second - boot + 1
        joules = chassis.cpu_idle * since + chassis.cpu_swing * load
        return list(
            _PICK_FAST(
                (
                    *HEAD,
                    *(NOT_READ,) * 5,
                    direct / chassis.efficiency + 8.0 * (luck - 0.5),
                    0.015 + 0.22 * level + 0.01 * luck,
                    chassis.cpus * (0.01 + 0.24 * programme.deep[at % HOUR]) + hung,
                    0,
                    int(chassis.memory_bytes * (1.0 - _MEMORY[phase] - 0.01 * luck)),
                    joules,
                    _MEMORY_SHARE * joules,
                    int(chassis.network_rate * load) + 40_000 * since,
                    int(chassis.network_rate * load) + 55_000 * since,
                    int(chassis.read_rate * load),
                    int(chassis.checkpoint_rate * saving) + 90_000 * since,
                )
            )
        )

    def slow(self, second: int, boot: int, hung: int) -> list[float]:
        """Return the row of the slow block."""
        chassis, programme = self.chassis, self.job.programme
        deep = programme.deep[(second + self.job.shift) % HOUR]
        since = second - boot + 1
        luck = self.noise[(second * 3 + self.offset) & NOISE_MASK]
        heat = 41.0 + 22.0 * deep + 2.0 * luck
        return list(
            _PICK_SLOW(
                (
                    *HEAD,
                    *(NOT_READ,) * 3,
                    chassis.memory_bytes,
                    chassis.cpus,
                    chassis.cpus * (0.01 + 0.24 * (0.7 * deep + 0.3 * programme.mean)),
                    chassis.cpus * (0.01 + 0.24 * (0.3 * deep + 0.7 * programme.mean)),
                    hung,
                    second - boot + 90,
                    int(chassis.disk_bytes * (self.free + 0.01 * luck)),
                    self.free + 0.01 * luck,
                    self.free,
                    1.0,
                    self.clock + 2e-5 * (luck - 0.5),
                    0.02 * since,
                    0.01 * since,
                    0.004 * since,
                    *(0.0,) * 12,
                    chassis.mounts,
                    chassis.drives,
                    chassis.drives,
                    heat,
                    100.0 - heat,
                    48.0 - 0.2 * heat,
                    0.95,
                    0.03,
                    5.0,
                    6.0,
                    12.0,
                    *(0.0,) * 8,
                )
            )
        )
