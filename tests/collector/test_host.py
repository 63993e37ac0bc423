"""The machine's own readings: from a tree of files, and from the machine that runs the tests."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.host import Host, facts, proc
from collector.host.clock import read_clock
from collector.host.open_file import OpenFile
from telemetry.gap import Gap, reason_of
from telemetry.metric import Lane
from telemetry.wire.schema import NODE_FAST, NODE_SLOW, SCHEMA
from tests.kit.waiting import end_of_patience

BOTH, FAST = frozenset(Lane), frozenset({Lane.FAST})

STAT = """cpu  {user} 0 500 {idle} 100 0 40 10 7 0
cpu0 1 0 1 1 1 0 0 0 0 0
cpu1 1 0 1 1 1 0 0 0 0 0
intr 1 2 3
ctxt 99
procs_running 3
procs_blocked {blocked}
softirq 1 2
"""
NET = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs
    lo: 777 1 0 0 0 0 0 0 777 1 0 0 0 0 0 0
  eth0: {received} 1 0 0 0 0 0 0 50 1 0 0 0 0 0 0
  ib0:1000 1 0 0 0 0 0 0 2000 1 0 0 0 0 0 0
 bond0: 4000 1 0 0 0 0 0 0 5000 1 0 0 0 0 0 0
 docker0: 8 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0
"""
DISKS = """   7       0 loop0 5 0 900 0 5 0 900 0 0 0 0
 259       0 nvme0n1 5 0 {sectors} 0 5 0 4 0 0 0 0 0 0 0 0
 259       1 nvme0n1p1 5 0 1000 0 5 0 4 0 0 0 0 0 0 0 0
   8       0 sda 5 0 10 0 5 0 20 0 0 0 0
 253       0 dm-0 5 0 77 0 5 0 77 0 0 0 0
"""


PRESSURE = """some avg10=0.00 avg60=1.25 avg300=0.10 total={some}
full avg10=0.00 avg60=0.00 avg300=0.00 total={full}
"""
EDAC = "sys/devices/system/edac/mc"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with two network cards, two disks, two CPU packages, and things that are not."""
    write(
        tmp_path,
        {
            "proc/stat": STAT.format(user=1000, idle=8000, blocked=2),
            "proc/loadavg": "1.25 2.50 3.75 2/500 4242\n",
            "proc/meminfo": "MemTotal:       1000 kB\nMemFree: 10 kB\nMemAvailable:    600 kB\n"
            "HugePages_Total:       4\n",
            "proc/uptime": "12345.67 99.00\n",
            "proc/net/dev": NET.format(received=30),
            "proc/diskstats": DISKS.format(sectors=100),
            "proc/vmstat": "nr_free_pages 7\noom_killer 9\noom_kill 3\n",
            "proc/sys/kernel/hung_task_detect_count": "4\n",
            "proc/pressure/cpu": PRESSURE.format(some=1_500_000, full=0),
            "proc/pressure/io": PRESSURE.format(some=2_500_000, full=2_000_000),
            "proc/pressure/memory": PRESSURE.format(some=750_000, full=250_000),
            f"{EDAC}/mc0/ce_count": "5\n",
            f"{EDAC}/mc0/ue_count": "0\n",
            f"{EDAC}/mc1/ce_count": "2\n",
            f"{EDAC}/mc1/ue_count": "1\n",
            "proc/cpuinfo": "processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\n\nprocessor\t: 1\n"
            "model name\t: Fast CPU @ 3 GHz\n",
            "proc/sys/kernel/hostname": "box\n",
            "proc/sys/kernel/osrelease": "6.1.0\n",
            "etc/os-release": 'NAME=Debian\nPRETTY_NAME="Debian GNU/Linux 12"\n',
            "sys/class/dmi/id/product_name": "DGX H100\n",
            "sys/class/powercap/intel-rapl:0/name": "package-0\n",
            "sys/class/powercap/intel-rapl:0/energy_uj": "4000000\n",
            "sys/class/powercap/intel-rapl:0/max_energy_range_uj": "10000000\n",
            "sys/class/powercap/intel-rapl:1/name": "package-1\n",
            "sys/class/powercap/intel-rapl:1/energy_uj": "9000000\n",
            "sys/class/powercap/intel-rapl:1/max_energy_range_uj": "10000000\n",
            "sys/class/powercap/intel-rapl:0:0/name": "core\n",
            "sys/class/powercap/intel-rapl:0:0/energy_uj": "1000000\n",
            "sys/class/powercap/intel-rapl:0:0/max_energy_range_uj": "10000000\n",
            "sys/class/powercap/intel-rapl:0:1/name": "dram\n",
            "sys/class/powercap/intel-rapl:0:1/energy_uj": "1500000\n",
            "sys/class/powercap/intel-rapl:0:1/max_energy_range_uj": "2000000\n",
            "sys/class/powercap/intel-rapl:1:0/name": "dram\n",
            "sys/class/powercap/intel-rapl:1:0/energy_uj": "250000\n",
            "sys/class/powercap/intel-rapl:1:0/max_energy_range_uj": "2000000\n",
            "sys/class/powercap/intel-rapl-mmio:0/name": "package-0\n",
            "sys/class/powercap/intel-rapl-mmio:0/energy_uj": "4000000\n",
            "sys/class/powercap/intel-rapl-mmio:0/max_energy_range_uj": "10000000\n",
            "sys/class/powercap/intel-rapl:2/name": "psys\n",
            "sys/class/powercap/intel-rapl:2/energy_uj": "7000000\n",
            "sys/class/powercap/intel-rapl:2/max_energy_range_uj": "10000000\n",
        },
    )
    for number, state in enumerate("SRDSD", 1):  # a name may hold what ends a name
        write(tmp_path, {f"proc/{number}/stat": f"{number} (a) D (b) {state} 1 1 1 0 -1\n"})
    for path in (
        "class/net/eth0/device",
        "class/net/ib0/device",
        "class/net/bond0",
        "block/nvme0n1/device",
        "block/sda/device",
        "block/loop0",
        "block/dm-0",
    ):
        (tmp_path / "sys" / path).mkdir(parents=True)
    return tmp_path


def readings(host: Host, lanes: frozenset[Lane] = BOTH) -> dict[str, float]:
    """Return a reading of the host, by metric name without `node_`."""
    found = host.read(lanes)
    assert set(found) == {NODE_FAST, NODE_SLOW} if lanes == BOTH else {NODE_FAST}
    return {
        name.removeprefix("node_"): value
        for block, rows in found.items()
        for name, value in zip(SCHEMA.blocks[block].names, rows[0], strict=True)
    }


def test_every_reading_is_right(root: Path) -> None:
    host = Host(root, disk=root, ipmitool="")
    first = readings(host)
    assert reason_of(first["cpu_utilization_ratio"]) is Gap.NOT_READ  # needs two readings
    write(root, {"proc/stat": STAT.format(user=1300, idle=8100, blocked=5)})
    got = readings(host)
    host.close()
    assert got["cpu_utilization_ratio"] == 0.75
    assert got["processes_blocked"] == 5
    assert got["processes_uninterruptible"] == 2
    assert got["cpus"] == 2
    assert (got["load_1m"], got["load_5m"], got["load_15m"]) == (1.25, 2.5, 3.75)
    assert got["memory_available_bytes"] == 600 * 1024
    assert got["memory_total_bytes"] == 1000 * 1024
    assert got["uptime_seconds"] == 12345.67
    assert got["cpu_package_energy_joules_total"] == 13.0
    assert got["memory_energy_joules_total"] == 1.75
    assert got["network_receive_bytes_total"] == 30 + 1000
    assert got["network_transmit_bytes_total"] == 50 + 2000
    assert got["disk_read_bytes_total"] == (100 + 10) * 512
    assert got["disk_written_bytes_total"] == (4 + 20) * 512
    assert got["pressure_cpu_waiting_seconds_total"] == 1.5
    assert got["pressure_io_waiting_seconds_total"] == 2.5
    assert got["pressure_io_stalled_seconds_total"] == 2.0
    assert got["pressure_memory_waiting_seconds_total"] == 0.75
    assert got["pressure_memory_stalled_seconds_total"] == 0.25
    assert got["edac_correctable_errors_total"] == 7
    assert got["edac_uncorrectable_errors_total"] == 1
    assert got["oom_kills_total"] == 3
    assert got["hung_tasks_total"] == 4
    assert got["clock_synchronised"] == read_clock().synchronised
    state = os.statvfs(root)
    share = shutil.disk_usage(root)
    free = share.free / (share.used + share.free)
    assert got["filesystem_free_ratio"] == pytest.approx(free, rel=0.2)
    assert got["root_free_ratio"] == pytest.approx(free, rel=0.2)
    assert got["filesystem_free_bytes"] == pytest.approx(state.f_bavail * state.f_frsize, rel=0.2)


def test_processes_that_sleep_without_an_end_are_counted_once_a_minute(root: Path) -> None:
    now = [0.0]
    host = Host(root, ipmitool="", monotonic=lambda: now[0])
    assert readings(host)["processes_uninterruptible"] == 2
    write(root, {"proc/6/stat": "6 (nvidia-smi) D 1 1\n", "proc/7/stat": "nonsense\n"})
    (root / "proc/8").mkdir()  # has just ended
    now[0] = 59.0
    assert readings(host)["processes_uninterruptible"] == 2
    now[0] = 60.0
    assert readings(host)["processes_uninterruptible"] == 3
    host.close()


def test_energy_goes_on_when_a_counter_starts_anew(root: Path) -> None:
    host = Host(root, ipmitool="")
    energy = root / "sys/class/powercap/intel-rapl:1/energy_uj"
    seen = []
    for microjoules in (9_000_000, 9_900_000, 400_000, 5_000_000, 100_000):
        energy.write_text(f"{microjoules}\n")
        seen.append(readings(host, FAST)["cpu_package_energy_joules_total"])
    host.close()
    assert seen == pytest.approx([13.0, 13.9, 14.4, 19.0, 24.1])


def test_memory_has_a_range_of_its_own_and_desktops_have_no_counter_of_it(root: Path) -> None:
    host = Host(root, ipmitool="")
    zone = root / "sys/class/powercap/intel-rapl:0:1"
    seen = []
    for microjoules in (1_500_000, 1_900_000, 100_000):
        (zone / "energy_uj").write_text(f"{microjoules}\n")
        seen.append(readings(host, FAST)["memory_energy_joules_total"])
    host.close()
    assert seen == pytest.approx([1.75, 2.15, 2.35])
    for name in ("intel-rapl:0:1", "intel-rapl:1:0"):
        (root / f"sys/class/powercap/{name}/name").write_text("uncore\n")
    host = Host(root, ipmitool="")
    got = readings(host, FAST)
    host.close()
    assert reason_of(got["memory_energy_joules_total"]) is Gap.NOT_SUPPORTED
    assert got["cpu_package_energy_joules_total"] == 13.0


def test_what_is_not_there_is_a_gap_and_never_0(tmp_path: Path) -> None:
    host = Host(tmp_path, disk=tmp_path / "gone", ipmitool="")
    own = ("driver_up", "gpus_expected", "gpus_answering", "ticks_skipped_total",
           "collector_cpu_seconds_total", "collector_memory_bytes", "probes_abandoned_total", "collector_tasks_failing")  # fmt: skip
    deadline = end_of_patience()
    while True:  # until each thread has looked once
        got = readings(host)
        waits = {name for name, value in got.items() if reason_of(value) is Gap.NOT_READ} - {*own}
        if not waits - {"wall_power_watts"} or time.monotonic() > deadline:
            break
        time.sleep(0.01)
    host.close()
    got.pop("clock_offset_seconds")  # of the kernel, not of the tree
    got.pop("clock_synchronised")
    assert 0 < got.pop("root_free_ratio") <= 1  # of the file system, not of the tree
    assert got.pop("root_read_only") == 0
    got.pop("wall_power_watts")  # in test_host_wall
    for name, value in got.items():
        assert reason_of(value) is (Gap.NOT_READ if name in own else Gap.NOT_SUPPORTED), name


def test_a_machine_in_a_container_has_only_virtual_cards(root: Path) -> None:
    for name in ("eth0", "ib0"):
        (root / "sys/class/net" / name / "device").rmdir()
    host = Host(root, ipmitool="")
    got = readings(host)
    host.close()
    assert got["network_receive_bytes_total"] == 30 + 1000 + 4000 + 8


def test_a_card_that_is_plugged_in_is_found_with_the_slow_lane(root: Path) -> None:
    host = Host(root, ipmitool="")
    assert readings(host)["disk_read_bytes_total"] == 110 * 512
    (root / "sys/block/sdb/device").mkdir(parents=True)
    disks = DISKS.format(sectors=100) + "   8      16 sdb 5 0 1000 0 5 0 0 0 0 0 0\n"
    write(root, {"proc/diskstats": disks})
    assert readings(host, FAST)["disk_read_bytes_total"] == 110 * 512
    assert readings(host)["disk_read_bytes_total"] == 1110 * 512
    host.close()


@pytest.mark.parametrize(
    ("file", "text", "metric"),
    [
        ("stat", "nonsense\n", "cpu_utilization_ratio"),
        ("stat", "cpu  1 2 3\n", "processes_blocked"),
        ("loadavg", "", "load_1m"),
        ("diskstats", "8 0\n", "disk_read_bytes_total"),
        ("net/dev", "a\nb\neth0: x\n", "network_receive_bytes_total"),
        ("uptime", "\n", "uptime_seconds"),
        ("vmstat", "oom_kill many\n", "oom_kills_total"),
        ("sys/kernel/hung_task_detect_count", "", "hung_tasks_total"),
        ("pressure/memory", "some avg10=0.00\n", "pressure_memory_waiting_seconds_total"),
        ("pressure/io", "some total=1\nfull total=x\n", "pressure_io_stalled_seconds_total"),
        ("../sys/devices/system/edac/mc/mc1/ue_count", "?\n", "edac_uncorrectable_errors_total"),
    ],
)
def test_text_that_makes_no_sense_is_an_error_gap(root: Path, file: str, text: str, metric: str) -> None:
    write(root, {f"proc/{file}": text})
    host = Host(root, ipmitool="")
    got = readings(host)
    host.close()
    assert reason_of(got[metric]) is Gap.ERROR
    assert reason_of(got["memory_available_bytes"]) is None  # one bad file spoils no other


@pytest.mark.parametrize(
    ("file", "text", "metric"),
    [
        ("vmstat", "nr_free_pages 7\noom_killer 9\n", "oom_kills_total"),
        ("pressure/memory", "some total=1\n", "pressure_memory_stalled_seconds_total"),
        ("pressure/cpu", "", "pressure_cpu_waiting_seconds_total"),
    ],
)
def test_a_count_that_the_kernel_does_not_keep_is_not_supported(root: Path, file: str, text: str, metric: str) -> None:
    write(root, {f"proc/{file}": text})
    host = Host(root, ipmitool="")
    got = readings(host)
    host.close()
    assert reason_of(got[metric]) is Gap.NOT_SUPPORTED


def test_pressure_that_is_switched_off_at_boot_is_not_supported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a kernel has the files, and refuses to read them; none here is booted so."""
    host = Host(root, ipmitool="")

    def refuse(file: OpenFile) -> bytes:
        if "pressure" in file.path.parts:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return file.path.read_bytes()

    monkeypatch.setattr(OpenFile, "read", refuse)
    got = readings(host)
    host.close()
    assert reason_of(got["pressure_cpu_waiting_seconds_total"]) is Gap.NOT_SUPPORTED
    assert reason_of(got["pressure_memory_stalled_seconds_total"]) is Gap.NOT_SUPPORTED
    assert got["oom_kills_total"] == 3


def test_memory_controllers_without_a_driver_are_not_supported_and_never_0(root: Path) -> None:
    host = Host(root, ipmitool="")
    shutil.rmtree(root / EDAC)
    (root / EDAC / "power").mkdir(parents=True)
    got = readings(host)
    assert reason_of(got["edac_correctable_errors_total"]) is Gap.NOT_SUPPORTED
    assert reason_of(got["edac_uncorrectable_errors_total"]) is Gap.NOT_SUPPORTED
    write(root, {f"{EDAC}/mc0/ce_count": "8\n", f"{EDAC}/mc0/ue_count": "0\n"})
    got = readings(host)  # the driver is loaded now
    host.close()
    assert got["edac_correctable_errors_total"] == 8
    assert got["edac_uncorrectable_errors_total"] == 0


def test_the_free_share_is_what_df_shows_and_none_of_an_image_that_is_full_by_nature(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(root, disk=root, ipmitool="")
    fields = dict.fromkeys(("f_frsize", "f_bsize"), 4096)
    sizes = {"f_blocks": 1000, "f_bfree": 200, "f_bavail": 100, "f_flag": 0}
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(**fields, **sizes))
    got = readings(host)
    assert got["filesystem_free_bytes"] == 409_600
    assert got["filesystem_free_ratio"] == got["root_free_ratio"] == pytest.approx(1 / 9)
    sizes |= {"f_bfree": 0, "f_bavail": 0, "f_flag": os.ST_RDONLY}
    got = readings(host)
    assert reason_of(got["root_free_ratio"]) is Gap.NOT_SUPPORTED
    assert got["filesystem_free_ratio"] == 0
    sizes["f_blocks"] = 0
    got = readings(host)
    host.close()
    assert reason_of(got["filesystem_free_ratio"]) is Gap.NOT_SUPPORTED


def test_an_old_kernel_without_available_memory(root: Path) -> None:
    write(root, {"proc/meminfo": "MemTotal: 1000 kB\nMemFree: 10 kB\n"})
    host = Host(root, ipmitool="")
    got = readings(host)
    host.close()
    assert reason_of(got["memory_available_bytes"]) is Gap.NOT_SUPPORTED
    assert got["memory_total_bytes"] == 1000 * 1024


def test_energy_that_only_root_may_read() -> None:
    zone = "sys/class/powercap/intel-rapl:0"
    with tempfile.TemporaryDirectory() as name:  # tmp_path is closed to all other users
        open_to_all = Path(name)
        open_to_all.chmod(0o755)
        write(
            open_to_all,
            {
                f"{zone}/name": "package-0\n",
                f"{zone}/energy_uj": "5\n",
                f"{zone}/max_energy_range_uj": "10\n",
                "proc/uptime": "5.0 5.0\n",
            },
        )
        (open_to_all / zone / "energy_uj").chmod(0)
        host = Host(open_to_all, ipmitool="")
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)  # root may read everything: use the user nobody
        try:
            got = readings(host)
        finally:
            if root:
                os.seteuid(0)
        host.close()
    assert reason_of(got["cpu_package_energy_joules_total"]) is Gap.NO_PERMISSION
    assert got["uptime_seconds"] == 5.0


def test_facts_for_people(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert facts(root) == {
        "hostname": "box",
        "kernel": "6.1.0",
        "os": "Debian GNU/Linux 12",
        "cpu": "Fast CPU @ 3 GHz",
        "cpus": "2",
        "product": "DGX H100",
    }
    assert facts(tmp_path_factory.mktemp("empty")) == {}


def test_this_very_machine() -> None:
    """The real /proc: every file that Linux always has is understood."""
    host = Host(disk=Path.cwd(), ipmitool="")
    first = readings(host)
    busy = sum(number * number for number in range(2_000_000))  # some work between two readings
    got = readings(host)
    host.close()
    assert busy > 0
    for name in (
        "load_1m",
        "processes_blocked",
        "processes_uninterruptible",
        "memory_available_bytes",
        "memory_total_bytes",
        "cpus",
        "uptime_seconds",
        "filesystem_free_bytes",
        "filesystem_free_ratio",
        "oom_kills_total",
        "clock_synchronised",
    ):
        assert reason_of(got[name]) is None, name
    assert 0 < got["memory_available_bytes"] <= got["memory_total_bytes"]
    assert got["cpus"] == os.sysconf("SC_NPROCESSORS_ONLN")
    assert got["uptime_seconds"] >= first["uptime_seconds"] > 0
    assert 0 < got["cpu_utilization_ratio"] <= 1
    assert {"hostname", "kernel"} <= set(facts())
    clock = got["clock_offset_seconds"]
    assert reason_of(clock) in {None, Gap.NOT_SUPPORTED, Gap.NO_PERMISSION}


@given(st.binary(max_size=300))
def test_no_text_breaks_a_parser(text: bytes) -> None:
    for parse in (
        proc.cpu,
        proc.loads,
        proc.state,
        lambda data: proc.memory(data, "MemAvailable"),
        proc.uptime,
        lambda data: proc.network(data, {"eth0"}),
        lambda data: proc.disks(data, {"sda"}),
    ):
        try:
            found = parse(text)
        except (ValueError, IndexError, KeyError):
            continue  # what the collector makes a gap of
        assert found is not None
