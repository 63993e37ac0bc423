"""Kernel arguments that nodes of a kind share, and that a node therefore reports. Pure.

Others are left out: they may hold secrets, or are a node's own.
"""

from __future__ import annotations

MOST_ARGUMENTS = 1000
"""Characters of all kernel arguments: the border cuts longer texts."""
_ARGUMENTS = frozenset({
    "iommu", "intel_iommu", "amd_iommu", "pci", "pcie_aspm", "pcie_ports", "numa_balancing", "mitigations", "nosmt",
    "isolcpus", "nohz_full", "rcu_nocbs", "hugepages", "hugepagesz", "default_hugepagesz", "transparent_hugepage",
    "idle", "intel_pstate", "amd_pstate", "processor.max_cstate", "intel_idle.max_cstate", "cpufreq.default_governor",
    "init_on_alloc", "init_on_free", "crashkernel", "panic", "oops", "nmi_watchdog", "softlockup_panic", "hung_task_panic",
    "tsc", "clocksource", "swiotlb", "cgroup_enable", "cgroup_no_v1", "systemd.unified_cgroup_hierarchy", "cgroup.memory",
    "selinux", "apparmor", "security", "audit", "modprobe.blacklist", "rd.driver.blacklist", "nouveau.modeset", "nokaslr",
    "nvme_core.multipath", "nvme_core.io_timeout", "nvme.poll_queues", "psi", "mem", "maxcpus", "nr_cpus", "numa",
    "ipv6.disable", "net.ifnames", "biosdevname", "amdgpu.noretry",
})  # fmt: skip
"""Names of kernel arguments that are reported: others may hold secrets, or are a node's own."""
_FAMILIES = ("nvidia", "nvidia-drm.", "mlx5_core.", "ib_core.", "nohz", "amdgpu.", "spectre", "rcu")


def is_reported(argument: str) -> bool:
    """Return whether a node reports an argument, `iommu=pt`, by its name."""
    name = argument.partition("=")[0]
    return name in _ARGUMENTS or name.startswith(_FAMILIES)


def kept_arguments(line: str) -> str:
    """Return the arguments of /proc/cmdline that are reported, sorted."""
    kept = sorted({word for word in line.split() if is_reported(word)})
    while kept and len(" ".join(kept)) > MOST_ARGUMENTS:
        kept.pop()
    return " ".join(kept)
