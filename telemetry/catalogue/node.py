"""Node rows: the machine around the GPUs, and the collector itself."""

from __future__ import annotations

from telemetry.metric import Kind, Lane, Metric, Table, Unit


def _gauge(
    name: str, unit: Unit, text: str, origin: str, lane: Lane = Lane.FAST, span: tuple[float, float] | None = None
) -> Metric:
    return Metric(name=f"node_{name}", unit=unit, table=Table.NODE, lane=lane, help=text, origin=origin, span=span)


def _counter(name: str, unit: Unit, text: str, origin: str, lane: Lane = Lane.FAST) -> Metric:
    return Metric(
        name=f"node_{name}_total", unit=unit, kind=Kind.COUNTER, table=Table.NODE, lane=lane, help=text, origin=origin
    )


_STAT, _NET, _DISK, _MEM = "/proc/stat", "/proc/net/dev", "/proc/diskstats", "/proc/meminfo"
_SELF = "the collector itself"
_AER = "AER, /sys/bus/pci/devices/*/aer_dev_"
_MOUNTS = "/proc/self/mountinfo"
_SMART = "nvme smart-log (root)"
_UNITS = "/sys/fs/cgroup/system.slice"
_LUSTRE = "/proc/fs/lustre/{mdc,osc}/*/import"
_BMC = "Redfish, or ipmitool sdr, once a minute"
_BMC_LOG = "Redfish, or ipmitool sel, every 5 min"
_BEEGFS = "/proc/fs/beegfs/*/{meta,storage}_target_state"
_CEPH = "/sys/kernel/debug/ceph/*"
_TAINT = "/proc/sys/kernel/tainted"
_PRESSURE, _EDAC = "/proc/pressure", "EDAC, /sys/devices/system/edac/mc"

METRICS = (
    _gauge("driver_up", Unit.FLAG, "1 while the GPU driver answers.", _SELF, span=(0, 1)),
    _gauge("gpus_expected", Unit.COUNT, "GPUs that this node has had, lost ones included.", _SELF),
    _gauge("gpus_answering", Unit.COUNT, "GPUs that answered in this tick.", _SELF),
    _gauge(
        "wall_power_watts",
        Unit.WATTS,
        "Power of the whole machine, where its sensors report it.",
        "IPMI DCMI through ipmitool or FreeIPMI, or hwmon",
        span=(0, 12000),
    ),
    _counter("cpu_package_energy_joules", Unit.JOULES, "Energy of the CPU packages.", "RAPL, /sys/class/powercap"),
    _counter(
        "memory_energy_joules",
        Unit.JOULES,
        "Energy of the memory, where the packages do not contain it.",
        "RAPL (dram), /sys/class/powercap",
    ),
    _gauge(
        "cpu_utilization_ratio",
        Unit.RATIO,
        "Share of all cores that was busy since the tick before.",
        _STAT,
        span=(0, 1),
    ),
    _gauge("load_1m", Unit.COUNT, "Load average of one minute.", "/proc/loadavg"),
    _gauge(
        "processes_blocked",
        Unit.COUNT,
        "Processes that wait for a disk; the kernel counts no other uninterruptible sleep here.",
        _STAT,
    ),
    _gauge("memory_available_bytes", Unit.BYTES, "Memory that programs can still allocate.", _MEM),
    _gauge("memory_total_bytes", Unit.BYTES, "Memory of the machine.", _MEM, Lane.SLOW),
    _gauge("cpus", Unit.COUNT, "Logical CPUs online.", _STAT, Lane.SLOW),
    _gauge("load_5m", Unit.COUNT, "Load average of five minutes.", "/proc/loadavg", Lane.SLOW),
    _gauge("load_15m", Unit.COUNT, "Load average of 15 minutes.", "/proc/loadavg", Lane.SLOW),
    _gauge(
        "processes_uninterruptible",
        Unit.COUNT,
        "Processes in uninterruptible sleep (D state), once a minute; they accumulate while a driver "
        "or a mount hangs. In a container without the host's processes only its own.",
        "/proc/*/stat",
        Lane.SLOW,
    ),
    _gauge("uptime_seconds", Unit.SECONDS, "Time since boot.", "/proc/uptime", Lane.SLOW),
    _gauge(
        "filesystem_free_bytes", Unit.BYTES, "Free space of the file system that holds the ring.", "statvfs", Lane.SLOW
    ),
    _gauge(
        "filesystem_free_ratio",
        Unit.RATIO,
        "Free share of the file system that holds the ring, of what users without privileges may fill.",
        "statvfs",
        Lane.SLOW,
        (0, 1),
    ),
    _gauge(
        "root_free_ratio",
        Unit.RATIO,
        "Free share of the root file system; none where it is read-only, as that of a live image.",
        "statvfs",
        Lane.SLOW,
        (0, 1),
    ),
    _gauge(
        "clock_synchronised",
        Unit.FLAG,
        "1 while a time service (chrony, ntpd, PTP) disciplines the clock.",
        "adjtimex",
        Lane.SLOW,
        (0, 1),
    ),
    _counter(
        "pressure_cpu_waiting_seconds",
        Unit.SECONDS,
        "Time in which at least one task waited for a CPU.",
        f"{_PRESSURE}/cpu (some)",
        Lane.SLOW,
    ),
    _counter(
        "pressure_io_waiting_seconds",
        Unit.SECONDS,
        "Time in which at least one task waited for a disk.",
        f"{_PRESSURE}/io (some)",
        Lane.SLOW,
    ),
    _counter(
        "pressure_io_stalled_seconds",
        Unit.SECONDS,
        "Time in which all tasks that had work waited for a disk.",
        f"{_PRESSURE}/io (full)",
        Lane.SLOW,
    ),
    _counter(
        "pressure_memory_waiting_seconds",
        Unit.SECONDS,
        "Time in which at least one task waited for memory.",
        f"{_PRESSURE}/memory (some)",
        Lane.SLOW,
    ),
    _counter(
        "pressure_memory_stalled_seconds",
        Unit.SECONDS,
        "Time in which all tasks that had work waited for memory: the node swaps, or evicts the programs that it runs.",
        f"{_PRESSURE}/memory (full)",
        Lane.SLOW,
    ),
    _counter(
        "edac_correctable_errors",
        Unit.COUNT,
        "Corrected errors of the main memory, all controllers. It begins at 0 when the EDAC driver is loaded.",
        f"{_EDAC} (ce_count)",
        Lane.SLOW,
    ),
    _counter(
        "edac_uncorrectable_errors",
        Unit.COUNT,
        "Errors of the main memory that could not be corrected, all controllers.",
        f"{_EDAC} (ue_count)",
        Lane.SLOW,
    ),
    _counter(
        "oom_kills",
        Unit.COUNT,
        "Processes that the kernel killed for want of memory, those at the limit of their own cgroup included.",
        "/proc/vmstat (oom_kill)",
        Lane.SLOW,
    ),
    _counter(
        "hung_tasks",
        Unit.COUNT,
        "Times that the kernel found a task in uninterruptible sleep for two minutes; one that stays so counts "
        "again. Older kernels do not count.",
        "/proc/sys/kernel/hung_task_detect_count",
        Lane.SLOW,
    ),
    _counter(
        "pcie_correctable_errors",
        Unit.COUNT,
        "PCI Express errors that the hardware corrected: of network adapters, NVMe drives, NVSwitches, and the "
        "bridges above these and above GPUs. Those of NVIDIA's GPUs themselves are rows of the GPU.",
        f"{_AER}correctable",
        Lane.SLOW,
    ),
    _counter(
        "pcie_nonfatal_errors",
        Unit.COUNT,
        "PCI Express transactions of these devices that were lost; their link goes on.",
        f"{_AER}nonfatal",
        Lane.SLOW,
    ),
    _counter(
        "pcie_fatal_errors",
        Unit.COUNT,
        "PCI Express errors of these devices after which a link is not to be trusted.",
        f"{_AER}fatal",
        Lane.SLOW,
    ),
    _gauge(
        "cpu_temperature_celsius",
        Unit.CELSIUS,
        "Temperature of the hottest CPU.",
        "hwmon (coretemp, k10temp)",
        Lane.SLOW,
        (-20, 130),
    ),
    _gauge(
        "cpu_headroom_celsius",
        Unit.CELSIUS,
        "Degrees that the CPU nearest to its critical temperature has left.",
        "hwmon (temp*_crit)",
        Lane.SLOW,
        (-50, 150),
    ),
    _gauge(
        "nvme_drives",
        Unit.COUNT,
        "Local NVMe drives that this node has had since the collector started.",
        "/sys/class/nvme",
        Lane.SLOW,
    ),
    _gauge(
        "nvme_drives_live",
        Unit.COUNT,
        "Local NVMe drives whose controller is live.",
        "/sys/class/nvme/*/state",
        Lane.SLOW,
    ),
    _gauge(
        "root_read_only",
        Unit.FLAG,
        "1 while nothing can be written to the root file system.",
        "statvfs",
        Lane.SLOW,
        (0, 1),
    ),
    _gauge(
        "network_mounts",
        Unit.COUNT,
        "Network file systems that are mounted (NFS, Lustre, BeeGFS, Ceph, Weka and others), at most 64.",
        _MOUNTS,
        Lane.SLOW,
    ),
    _gauge(
        "network_mounts_failing",
        Unit.COUNT,
        "Those that do not answer within 10 s, are stale, or were cut off. A child of its own tries each once a "
        "minute.",
        "stat -f",
        Lane.SLOW,
    ),
    _gauge(
        "network_mounts_missing",
        Unit.COUNT,
        "Network file systems of /etc/fstab that are not mounted.",
        "/etc/fstab",
        Lane.SLOW,
    ),
    _gauge(
        "nvme_headroom_celsius",
        Unit.CELSIUS,
        "Degrees that the NVMe drive nearest to its critical temperature has left.",
        "hwmon (nvme, temp*_crit)",
        Lane.SLOW,
        (-50, 150),
    ),
    _gauge(
        "nvme_critical",
        Unit.COUNT,
        "NVMe drives that warn: spare blocks used up, worn out, read-only, too hot. Once an hour.",
        _SMART,
        Lane.SLOW,
    ),
    _gauge(
        "nvme_worn_ratio",
        Unit.RATIO,
        "Share of its life that the most worn NVMe drive has used; may exceed 1.",
        _SMART,
        Lane.SLOW,
        (0, 1),
    ),
    _gauge(
        "nvme_spare_ratio",
        Unit.RATIO,
        "Spare blocks above the threshold, of the NVMe drive that has least.",
        _SMART,
        Lane.SLOW,
        (0, 1),
    ),
    _counter(
        "nvme_media_errors",
        Unit.COUNT,
        "Errors of the medium that the NVMe drives could not correct, all of them.",
        _SMART,
        Lane.SLOW,
    ),
    _gauge(
        "nvswitches",
        Unit.COUNT,
        "NVSwitches that this node has had since the collector started.",
        "/sys/bus/pci/devices (class 0680 of NVIDIA)",
        Lane.SLOW,
    ),
    _gauge("nvswitches_present", Unit.COUNT, "NVSwitches that are on the PCI bus.", "/sys/bus/pci/devices", Lane.SLOW),
    _gauge(
        "services",
        Unit.COUNT,
        "Services of `collector.services` that are enabled on this node.",
        f"{_UNITS}, /etc/systemd/system",
        Lane.SLOW,
    ),
    _gauge("services_down", Unit.COUNT, "Those of them that do not run.", _UNITS, Lane.SLOW),
    _counter(
        "service_restarts", Unit.COUNT, "Restarts of these services since the collector started.", _UNITS, Lane.SLOW
    ),
    _gauge(
        "fabric_manager_up", Unit.FLAG, "1 while Fabric Manager runs, where it is enabled.", _UNITS, Lane.SLOW, (0, 1)
    ),
    _gauge(
        "imex_up",
        Unit.FLAG,
        "1 while the IMEX daemon runs, where it is enabled and its nodes_config.cfg names several nodes.",
        _UNITS,
        Lane.SLOW,
        (0, 1),
    ),
    _gauge(
        "unclean_boot",
        Unit.FLAG,
        "1 where the boot before this one ended without a shutdown: power, a panic or a reset.",
        "/var/log/wtmp",
        Lane.SLOW,
        (0, 1),
    ),
    _gauge(
        "crash_records",
        Unit.COUNT,
        "Files that a panic of the last 24 h has left.",
        "pstore, /var/lib/systemd/pstore",
        Lane.SLOW,
    ),
    _gauge("lustre_imports", Unit.COUNT, "Connections of the Lustre client to its targets.", _LUSTRE, Lane.SLOW),
    _gauge(
        "lustre_imports_failing",
        Unit.COUNT,
        "Those whose state is neither FULL nor IDLE: it reconnects, recovers, or was evicted.",
        _LUSTRE,
        Lane.SLOW,
    ),
    _gauge(
        "beegfs_targets",
        Unit.COUNT,
        "Targets that the BeeGFS client knows, of metadata and of files.",
        _BEEGFS,
        Lane.SLOW,
    ),
    _gauge(
        "beegfs_targets_failing",
        Unit.COUNT,
        "Those that are not online: what lies there alone can't be read.",
        _BEEGFS,
        Lane.SLOW,
    ),
    _gauge(
        "ceph_sessions",
        Unit.COUNT,
        "Sessions of the kernel's CephFS client with its metadata servers. Root alone may read them.",
        f"{_CEPH}/mds_sessions (root)",
        Lane.SLOW,
    ),
    _gauge(
        "ceph_sessions_failing",
        Unit.COUNT,
        "Those that hang, reconnect or were rejected; all of them while the cluster blocks the client.",
        f"{_CEPH}/{{mds_sessions,status}} (root)",
        Lane.SLOW,
    ),
    _gauge(
        "ceph_requests_homeless",
        Unit.COUNT,
        "Requests of the client for which no storage server is up.",
        f"{_CEPH}/osdc (root)",
        Lane.SLOW,
    ),
    _counter(
        "machine_checks",
        Unit.COUNT,
        "Machine check exceptions of the CPUs since boot; one that all CPUs took counts for each.",
        "/proc/interrupts (MCE)",
        Lane.SLOW,
    ),
    _gauge(
        "kernel_machine_check",
        Unit.FLAG,
        "1 where a CPU reported a machine check since boot.",
        f"{_TAINT} (M)",
        Lane.SLOW,
        (0, 1),
    ),
    _gauge(
        "kernel_oops",
        Unit.FLAG,
        "1 where the kernel found a fault of its own since boot and killed the task that it was in.",
        f"{_TAINT} (D)",
        Lane.SLOW,
        (0, 1),
    ),
    _gauge(
        "kernel_warning",
        Unit.FLAG,
        "1 where the kernel gave a warning with a trace since boot.",
        f"{_TAINT} (W)",
        Lane.SLOW,
        (0, 1),
    ),
    _gauge(
        "kernel_lockup",
        Unit.FLAG,
        "1 where a CPU was held by the kernel for more than 20 s since boot.",
        f"{_TAINT} (L)",
        Lane.SLOW,
        (0, 1),
    ),
    _gauge(
        "bmc_log_critical",
        Unit.COUNT,
        "Critical entries that the BMC's log got in the last 24 h. Those of before the first start of the collector "
        "do not count.",
        _BMC_LOG,
        Lane.SLOW,
    ),
    _gauge(
        "bmc_log_used_ratio",
        Unit.RATIO,
        "Used share of the BMC's log, where it loses new entries when it is full.",
        _BMC_LOG,
        Lane.SLOW,
        (0, 1),
    ),
    _gauge("supplies", Unit.COUNT, "Power supplies that are there.", _BMC, Lane.SLOW),
    _gauge(
        "supplies_failed", Unit.COUNT, "Power supplies that failed, are about to, or have no input.", _BMC, Lane.SLOW
    ),
    _gauge("fans", Unit.COUNT, "Fans that are there.", _BMC, Lane.SLOW),
    _gauge(
        "fans_failed",
        Unit.COUNT,
        "Fans beyond their limits, or slower than a fifth of the median of all.",
        _BMC,
        Lane.SLOW,
    ),
    _counter("network_receive_bytes", Unit.BYTES, "Bytes received, all but loopback.", _NET),
    _counter("network_transmit_bytes", Unit.BYTES, "Bytes sent, all but loopback.", _NET),
    _counter("disk_read_bytes", Unit.BYTES, "Bytes read from whole disks.", _DISK),
    _counter("disk_written_bytes", Unit.BYTES, "Bytes written to whole disks.", _DISK),
    _counter("collector_cpu_seconds", Unit.SECONDS, "CPU time of the collector.", _SELF, Lane.SLOW),
    _gauge("collector_memory_bytes", Unit.BYTES, "Resident memory of the collector.", _SELF, Lane.SLOW),
    _gauge(
        "collector_tasks_failing",
        Unit.COUNT,
        "Tasks and threads of the collector that ended by a fault and have not worked for a while since.",
        _SELF,
    ),
    _counter("ticks_skipped", Unit.COUNT, "Ticks that were skipped because they came too late.", _SELF),
    _counter("probes_abandoned", Unit.COUNT, "Driver calls abandoned because they hung.", _SELF, Lane.SLOW),
    _gauge("clock_offset_seconds", Unit.SECONDS, "Estimated error of the clock.", "adjtimex", Lane.SLOW),
)
