"""The `node` table of this machine: one row of the fast block each tick, one of the slow at times.

A value that can't be read is a gap with its reason, never 0: `not_supported` when it is not there,
`no_permission`, or `error` when it can't be parsed. Columns about the collector itself are
`not_read` here; the sampler fills them in.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from collector.config import BmcConfig
from collector.host import proc
from collector.host.bmc import BmcService, bmc_tasks
from collector.host.bmc_log import FILE, BmcLog
from collector.host.boot import Boot
from collector.host.clock import read_clock
from collector.host.hardware import Hardware
from collector.host.kernel_health import KernelHealth
from collector.host.memory_errors import MemoryErrors
from collector.host.mounts import Mounts
from collector.host.nvme_health import drive_task
from collector.host.open_file import OpenFile, read_small
from collector.host.parts import PartLog
from collector.host.programs import Programs
from collector.host.rapl import Zones, memory, packages
from collector.host.services import Services
from collector.host.storage_clients import StorageClients
from collector.host.wall import PROGRAMS, WallMeter
from collector.source import DeviceEvent, Rows
from telemetry.gap import ERROR, NO_PERMISSION, NOT_READ, NOT_SUPPORTED
from telemetry.metric import Lane
from telemetry.wire.schema import NODE_FAST, NODE_SLOW, SCHEMA

Found = dict[str, float]
"""Readings by metric name."""


COUNT_SECONDS = 60.0
"""Seconds between two counts of the processes in uninterruptible sleep."""


HUNG_TASKS = "sys/kernel/hung_task_detect_count"
"""Count of tasks that hung, below /proc; older kernels have none."""


class Host:
    """Reader of this machine. A fast reading takes about 100 us and waits for nothing slow."""

    def __init__(
        self,
        root: Path = Path("/"),
        disk: Path = Path("/"),
        ipmitool: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        services: Sequence[str] = (),
        nvme: str | None = None,
        bmc: BmcConfig | None = None,
        state_dir: Path | None = None,
    ) -> None:
        """`root` is where proc, sys and dev are; `disk` any path on the file system that holds the
        ring; `ipmitool` its path or FreeIPMI's, found if not given; "" means never to query the BMC;
        `services` are units whose state is read; `nvme` as `ipmitool`, of nvme-cli; `bmc` is the controller over
        Redfish; `state_dir` keeps which entries of its log were seen."""
        self._root = root
        self._disk = disk
        installed = (found for name in PROGRAMS if (found := shutil.which(name)))
        path = next(installed, None) if ipmitool is None else ipmitool
        self._wall = WallMeter(root, path or None, monotonic=monotonic)
        names = ("stat", "loadavg", "meminfo", "uptime", "net/dev", "diskstats", "vmstat",
                 "pressure/cpu", "pressure/io", "pressure/memory", HUNG_TASKS)  # fmt: skip
        self._files = {name: OpenFile(root / "proc" / name) for name in names}
        self._parts = PartLog(monotonic)
        self._memory_errors = MemoryErrors(root, self._parts)
        self._hardware = Hardware(root, monotonic, self._parts)
        self._mounts = Mounts(root, monotonic=monotonic)
        tool = ipmitool if ipmitool is not None else shutil.which("ipmitool")
        has_ipmitool = bool(tool) and Path(tool or "").name != "ipmi-dcmi"
        smart = shutil.which("nvme") if nvme is None else nvme
        service = None if bmc is None else _redfish(bmc, self._parts)
        self._bmc_log = BmcLog(None if state_dir is None else state_dir / FILE)
        of_bmc = bmc_tasks(root, tool if has_ipmitool else None, service, self._bmc_log, self._parts)
        leave = (lambda: None) if service is None else service.close
        self._programs = Programs(
            [*of_bmc, drive_task(root, smart or None, self._parts)], monotonic=monotonic, leave=leave
        )
        self._services = Services(root, services, monotonic)
        self._storage = StorageClients(root, monotonic)
        self._kernel = KernelHealth(root, monotonic)
        self._boot = Boot(root)
        self._packages: Zones | None = None
        self._memory: Zones | None = None
        self._nics: list[str] = []
        self._interfaces: list[str] = []
        self._real: list[str] = []
        """Interfaces (of `interfaces`) that have a device."""
        self._drives: list[str] = []
        self._cpu: proc.Cpu | None = None
        self._busy = NOT_READ
        self._inspected = False
        self._monotonic = monotonic
        self._asleep = NOT_READ
        self._counted_at: float | None = None

    def read(self, lanes: frozenset[Lane], now_ns: int = 0) -> Rows:
        """Return the `node` blocks of these lanes, one row each. Never raises and never waits for
        more than the kernel's own small files. `now_ns` is the tick's wall clock."""
        if not self._inspected or Lane.SLOW in lanes:
            self._inspect()
        rows: Rows = {}
        if Lane.FAST in lanes:
            found = {"node_wall_power_watts": self._wall.watts()}
            found |= self._guard(self._read_cpu, "cpu_utilization_ratio", "processes_blocked")
            found |= self._guard(self._read_load, "load_1m")
            found |= self._guard(self._read_memory, "memory_available_bytes")
            found |= self._guard(self._read_energy, "cpu_package_energy_joules_total")
            found |= self._guard(self._read_memory_energy, "memory_energy_joules_total")
            found |= self._guard(self._read_network, "network_receive_bytes_total", "network_transmit_bytes_total")
            found |= self._guard(self._read_disks, "disk_read_bytes_total", "disk_written_bytes_total")
            rows[NODE_FAST] = [_row(NODE_FAST, found)]
        if Lane.SLOW in lanes:
            found = self._guard(self._read_cpus, "cpus")
            found |= self._guard(self._read_loads, "load_5m", "load_15m")
            found |= self._guard(self._read_total, "memory_total_bytes")
            found |= self._guard(self._read_sleepers, "processes_uninterruptible")
            found |= self._guard(self._read_uptime, "uptime_seconds")
            found |= self._guard(self._read_disk_space, "filesystem_free_bytes", "filesystem_free_ratio")
            found |= self._guard(self._read_root_space, "root_free_ratio")
            found |= self._guard(self._read_clock, "clock_offset_seconds")
            found |= self._guard(self._read_synchronised, "clock_synchronised")
            found |= self._read_health()
            found |= self._read_devices()
            rows[NODE_SLOW] = [_row(NODE_SLOW, found)]
        return rows

    @property
    def pending(self) -> bool:
        """Whether a reading is still to come that was begun."""
        return self._mounts.pending

    def drain_events(self) -> list[DeviceEvent]:
        """Return what happened to network file systems, services and other parts, and what the BMC's log got, since
        the last call."""
        return (
            self._mounts.drain_events()
            + self._services.drain_events()
            + self._bmc_log.drain_events()
            + self._parts.drain_events()
        )

    def close(self) -> None:
        """Close all files, end the thread, and kill the children."""
        self._wall.close()
        self._programs.close()
        self._mounts.close()
        for file in self._files.values():
            file.close()
        self._memory_errors.close()
        self._hardware.close()
        for zones in (self._packages, self._memory):
            if zones is not None:
                zones.close()

    def _inspect(self) -> None:
        """Find disks, network cards and energy counters; they come and go."""
        self._inspected = True
        self._nics = self._find_nics()
        blocks = self._root / "sys/block"
        # partitions aren't there; loops, RAM disks, RAID and LVM have no device of their own and
        # would count the bytes of the disks below them twice
        self._drives = [path.parent.name for path in blocks.glob("*/device")]
        if self._packages is None:
            try:
                self._packages, self._memory = packages(self._root), memory(self._root)
            except (OSError, ValueError):
                self._packages = self._memory = None

    def _find_nics(self) -> list[str]:
        """Return the interfaces that have a device: bytes of bridges, bonds and tunnels cross a card
        too. In a container none has a device: then return all but the loopback."""
        try:
            names = proc.interfaces(self._files["net/dev"].read())
        except (OSError, ValueError):
            return []
        if names != self._interfaces:
            self._interfaces = names
            folder = self._root / "sys/class/net"
            self._real = [name for name in names if (folder / name / "device").exists()]
        return self._real or names

    @staticmethod
    def _guard(read: Callable[[], tuple[float, ...]], *names: str) -> Found:
        """Return the readings by name; on failure all of them are gaps."""
        try:
            values = read()
        except PermissionError:
            values = (NO_PERMISSION,) * len(names)
        except (FileNotFoundError, NotADirectoryError, KeyError):
            values = (NOT_SUPPORTED,) * len(names)
        except (OSError, ValueError, IndexError):
            values = (ERROR,) * len(names)
        return {f"node_{name}": value for name, value in zip(names, values, strict=True)}

    def _read_cpu(self) -> tuple[float, float]:
        now, before = proc.cpu(self._files["stat"].read()), self._cpu
        if before is not None and now.total > before.total:
            self._busy = min(1.0, max(0.0, (now.busy - before.busy) / (now.total - before.total)))
        self._cpu = now
        return self._busy, float(now.blocked)

    def _read_load(self) -> tuple[float]:
        return (proc.loads(self._files["loadavg"].read())[0],)

    def _read_memory(self) -> tuple[float]:
        return (float(proc.memory(self._files["meminfo"].read(), "MemAvailable")),)

    def _read_energy(self) -> tuple[float]:
        if self._packages is None:
            raise FileNotFoundError("no RAPL")
        return (self._packages.joules(),)

    def _read_memory_energy(self) -> tuple[float]:
        if self._memory is None:
            raise FileNotFoundError("no RAPL")
        return (self._memory.joules(),)

    def _read_network(self) -> tuple[float, float]:
        received, sent = proc.network(self._files["net/dev"].read(), self._nics)
        if not self._nics:
            raise FileNotFoundError("no network card")
        return float(received), float(sent)

    def _read_disks(self) -> tuple[float, float]:
        read, written = proc.disks(self._files["diskstats"].read(), self._drives)
        if not self._drives:
            raise FileNotFoundError("no disk")
        return float(read), float(written)

    def _read_cpus(self) -> tuple[float]:
        return (float(proc.cpu(self._files["stat"].read()).cpus),)

    def _read_loads(self) -> tuple[float, float]:
        return proc.loads(self._files["loadavg"].read())[1:]

    def _read_total(self) -> tuple[float]:
        return (float(proc.memory(self._files["meminfo"].read(), "MemTotal")),)

    def _read_sleepers(self) -> tuple[float]:
        """Count the processes in state D, at most once in `COUNT_SECONDS`: 2,000 processes take 20 ms.
        A file of a process answers at once, whatever the process waits for."""
        now = self._monotonic()
        if self._counted_at is None or now - self._counted_at >= COUNT_SECONDS:
            self._asleep = float(_count_asleep(self._root / "proc"))
            self._counted_at = now
        return (self._asleep,)

    def _read_uptime(self) -> tuple[float]:
        return (proc.uptime(self._files["uptime"].read()),)

    def _read_health(self) -> Found:
        """Return pressure, errors of the memory, and what the kernel counts of killed and hung tasks."""
        found = self._guard(self._read_cpu_pressure, "pressure_cpu_waiting_seconds_total")
        for resource in ("io", "memory"):
            found |= self._guard(
                partial(self._read_pressure, resource),
                f"pressure_{resource}_waiting_seconds_total",
                f"pressure_{resource}_stalled_seconds_total",
            )
        found |= self._guard(
            self._memory_errors.counts, "edac_correctable_errors_total", "edac_uncorrectable_errors_total"
        )
        found |= self._guard(self._read_oom_kills, "oom_kills_total")
        return found | self._guard(self._read_hung_tasks, "hung_tasks_total")

    def _read_devices(self) -> Found:
        """Return errors of PCI Express, heat of the CPUs, drives, and network file systems."""
        hardware = self._hardware
        hardware.find()
        found = self._guard(
            hardware.pcie_errors,
            "pcie_correctable_errors_total",
            "pcie_nonfatal_errors_total",
            "pcie_fatal_errors_total",
        )
        found |= self._guard(hardware.cpu_temperature, "cpu_temperature_celsius")
        found |= self._guard(hardware.cpu_headroom, "cpu_headroom_celsius")
        found |= self._guard(hardware.nvme, "nvme_drives", "nvme_drives_live")
        found |= self._guard(hardware.nvme_headroom, "nvme_headroom_celsius")
        found |= self._guard(hardware.switches, "nvswitches", "nvswitches_present")
        found |= self._guard(
            lambda: self._services.counts(hardware.has_switches),
            "services",
            "services_down",
            "service_restarts_total",
            "fabric_manager_up",
            "imex_up",
        )
        found |= self._guard(self._boot.unclean, "unclean_boot")
        found |= self._guard(self._boot.crash_records, "crash_records")
        found |= self._storage.readings()
        found |= self._guard(
            self._kernel.taints, "kernel_machine_check", "kernel_oops", "kernel_warning", "kernel_lockup"
        )
        found |= self._guard(self._kernel.machine_checks, "machine_checks_total")
        found |= self._programs.readings()
        found |= self._guard(self._read_only, "root_read_only")
        return found | self._guard(
            self._read_mounts, "network_mounts", "network_mounts_failing", "network_mounts_missing"
        )

    def _pressure(self, resource: str) -> bytes:
        """Return a file of /proc/pressure. Raises `FileNotFoundError` where it is switched off."""
        try:
            return self._files[f"pressure/{resource}"].read()
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:  # `psi=0` at boot leaves the files
                raise FileNotFoundError("pressure is not recorded") from error
            raise

    def _read_cpu_pressure(self) -> tuple[float]:
        return (proc.pressure(self._pressure("cpu"), "some"),)

    def _read_pressure(self, resource: str) -> tuple[float, float]:
        text = self._pressure(resource)
        return proc.pressure(text, "some"), proc.pressure(text, "full")

    def _read_oom_kills(self) -> tuple[float]:
        return (float(proc.statistic(self._files["vmstat"].read(), "oom_kill")),)

    def _read_hung_tasks(self) -> tuple[float]:
        return (float(int(self._files[HUNG_TASKS].read())),)

    def _read_disk_space(self) -> tuple[float, float]:
        state = os.statvfs(self._disk)
        return float(state.f_bavail * state.f_frsize), _free_share(state)

    def _read_root_space(self) -> tuple[float]:
        state = os.statvfs(self._root)
        if state.f_flag & os.ST_RDONLY:  # an image is full by its nature
            raise FileNotFoundError("nobody can write to it")
        return (_free_share(state),)

    def _read_mounts(self) -> tuple[float, float, float]:
        mounts, failing, missing = self._mounts.counts()
        return float(mounts), NOT_READ if failing is None else float(failing), float(missing)

    def _read_only(self) -> tuple[float]:
        return (float(bool(os.statvfs(self._root).f_flag & os.ST_RDONLY)),)

    @staticmethod
    def _read_clock() -> tuple[float]:
        clock = read_clock()
        if not clock.synchronised:  # no chrony, no ntpd: then there is no estimate
            raise FileNotFoundError("the clock is not synchronised")
        return (clock.estimated_error,)

    @staticmethod
    def _read_synchronised() -> tuple[float]:
        return (float(read_clock().synchronised),)


def _redfish(config: BmcConfig, parts: PartLog) -> BmcService:
    from collector.host.redfish import RedfishBmc  # noqa: PLC0415 - few nodes need HTTP here

    return RedfishBmc(config, parts)


def _free_share(state: os.statvfs_result) -> float:
    """Return the free share of a file system, of what `df` counts: without the blocks kept for root.
    Raises `FileNotFoundError` where a file system has no size of its own, as one of proc."""
    used = state.f_blocks - state.f_bfree
    if not used + state.f_bavail:
        raise FileNotFoundError("a file system without a size")
    return state.f_bavail / (used + state.f_bavail)


def _count_asleep(folder: Path) -> int:
    """Return how many processes are in uninterruptible sleep. Raises `FileNotFoundError` where there
    is no process at all."""
    seen = asleep = 0
    with os.scandir(folder) as entries:
        numbers = [entry.name for entry in entries if entry.name.isdigit()]
    for number in numbers:
        try:
            letter = proc.state(read_small(f"{folder}/{number}/stat"))
        except (OSError, ValueError, IndexError):  # it has ended meanwhile
            continue
        seen += 1
        asleep += letter == b"D"
    if not seen:
        raise FileNotFoundError("no processes")
    return asleep


def _row(block: int, found: Found) -> list[float]:
    """Return a row of the block; the sampler fills in what is missing."""
    return [found.get(name, NOT_READ) for name in SCHEMA.blocks[block].names]


def facts(root: Path = Path("/")) -> dict[str, str]:
    """Return host name, kernel, operating system, CPU, product, BIOS, serial number and identity for the
    inventory, as far as this process may read them (serial numbers are root's)."""
    cpuinfo = _text(root / "proc/cpuinfo")
    dmi = root / "sys/class/dmi/id"
    found = {
        "hostname": _text(root / "proc/sys/kernel/hostname"),
        "kernel": _text(root / "proc/sys/kernel/osrelease"),
        "os": _value(_text(root / "etc/os-release"), "PRETTY_NAME", "="),
        "cpu": _value(cpuinfo, "model name", ":") or _value(cpuinfo, "Model", ":"),
        "cpus": str(cpuinfo.count("processor\t:") or ""),
        "vendor": _text(dmi / "sys_vendor"),
        # boards without DMI (Arm) have their name in the device tree
        "product": _text(dmi / "product_name") or _text(root / "proc/device-tree/model"),
        "bios": _text(dmi / "bios_version"),
        "serial": _text(dmi / "product_serial"),
        "machine": _identity(_text(root / "etc/machine-id")),
    }
    return {key: value for key, value in found.items() if value}


def _text(path: Path) -> str:
    """Return the content of a small file, "" when it is missing or can't be read."""
    try:
        return path.read_text(errors="replace").strip("\0\n ")
    except OSError:
        return ""


def _identity(machine: str) -> str:
    """Return an identity of this machine that outlives its name. machine-id(5) itself is not to leave the
    machine."""
    if not machine or machine == "uninitialized":
        return ""
    return hashlib.blake2b(machine.encode(), digest_size=8, person=b"kilowatch").hexdigest()


def _value(text: str, key: str, separator: str) -> str:
    """Return the value of the first `key` in lines of `key separator value`."""
    for line in text.splitlines():
        word, found, rest = line.partition(separator)
        if found and word.strip() == key:
            return rest.strip().strip('"')
    return ""
