"""Every rule about ports and nodes, from the files of six kinds of nodes to whoever is called.

The real collector reads trees of /sys, /proc and /etc and publishes over a real broker; the real aggregator evaluates
the shipped rules, whose times alone are divided. First all traps at once, which page nobody; then each fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import urllib.request
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from alerts.rules.rule import FOLDER, read
from api.alerts import Severity
from collector.host import (
    bit_errors,
    bmc,
    fabric,
    kernel_health,
    machine,
    mounts,
    nvme_health,
    programs,
    storage_clients,
)
from collector.host.clock import ClockState
from telemetry.catalogue import BY_NAME
from telemetry.devices import Gpu
from telemetry.gap import NOT_SUPPORTED
from telemetry.metric import Table
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import SCHEMA
from tests.alerts.pager import Pager
from tests.brokers import Mosquitto
from tests.collector import node_trees
from tests.collector.bus import collecting, config_of
from tests.collector.network_tree import Tree
from tests.endtoend import watch as watch_module
from tests.endtoend.watch import Watch, toml, until, watching
from tests.fakes import FakeSource

BEEGFS = "proc/fs/beegfs/c1/storage_target_state"
CEPH = "sys/kernel/debug/ceph/c1/mds_sessions"
PERIOD = 3.0
WINDOW = 14.0
"""Seconds of the windows of rates, which count as much in it as the shipped ones in theirs."""
TIMES = {"hold": 2.0, "keep": 14.0, "settle": 0.2}
FILES = ("port_rules.toml", "node_rules.toml")
OF_GPUS = {"fabric_never", "fabric_setup"}
"""Rules of rules.toml that this page is about too."""


def sooner(text: str) -> str:
    """Return rules with short times."""
    return re.sub(
        r"^(hold|keep|settle) = [\d.]+$", lambda match: f"{match[1]} = {TIMES[match[1]]}", text, flags=re.MULTILINE
    )


def divided(text: str) -> str:
    """Return rules with short times and windows; what a rate counts in its window stays."""
    return re.sub(
        r"level = ([\d.e-]+), window = ([\d.]+)",
        lambda match: f"level = {float(match[1]) * float(match[2]) / WINDOW:.8f}, window = {WINDOW}",
        sooner(text),
    )


class Quiet(FakeSource):
    """GPUs of which nothing is read, but what a test says."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(0)
        self.said: dict[str, float] = {}
        self.inventory = Inventory(
            node="",
            source="fake",
            driver_state="up" if tree.gpus else "none",
            gpus=tuple(
                Gpu(uuid=f"GPU-{tree.root.name}-{number}", index=number, name="H100", pci=pci)
                for number, pci in enumerate(tree.gpus)
            ),
        )

    def values(self, block: int, tick: int) -> list[list[float]]:
        names = SCHEMA.blocks[block].names
        count = len(self.inventory.gpus) if SCHEMA.blocks[block].table_name == "gpu" else 0
        return [[self.said.get(name, NOT_SUPPORTED) for name in names] for _ in range(count)]


@dataclass
class Site:
    """The nodes, and what is common to them."""

    folder: Path
    trees: dict[str, Tree] = field(default_factory=dict)
    sources: dict[str, Quiet] = field(default_factory=dict)
    synchronised: bool = True
    state: SimpleNamespace | None = None
    """What statvfs says of the head node's root."""

    def port(self, node: str, adapter: str, file: str) -> Path:
        return self.trees[node].root / f"sys/class/infiniband/{adapter}/ports/1" / file

    def pci(self, node: str, address: str) -> Path:
        return (self.trees[node].root / "sys/bus/pci/devices" / address).resolve()


def put(path: Path, text: object) -> None:
    """Write a file in place, as the kernel does: readers keep it open. One of /sys is written at once, so that nobody
    sees half of it."""
    if "/proc/" in str(path) or not path.exists():
        path.write_text(f"{text}\n")
        return
    new = f"{text}\n".encode()
    with path.open("r+b", buffering=0) as file:
        file.write(new.ljust(path.stat().st_size, b"\n"))


def count(path: Path, more: int, full: int = 1 << 60) -> None:
    """Count on; before a counter is full somebody resets it."""
    value = int(path.read_text()) + more
    put(path, value if value < full else 0)


def pressure(site: Site, resource: str, seconds: int) -> None:
    path = site.trees["dgx"].root / "proc/pressure" / resource
    total = int(path.read_text().rsplit("=", 1)[1]) + seconds * 10**6
    line = "avg10=0.00 avg60=0.00 avg300=0.00 total="
    put(path, f"some {line}{total}\nfull {line}{total}")


def send(site: Site) -> None:
    """One of the four rails of the tray sends less."""
    for number in range(4):
        count(site.port("gb200", f"mlx5_{number}", "counters/port_xmit_data"), 10**8 if number == 2 else 10**9)


def restart(site: Site, unit: str) -> None:
    group = site.trees["head"].root / f"sys/fs/cgroup/system.slice/{unit}.service"
    group.rename(site.folder / f"{unit}.{len(list(site.folder.iterdir()))}")
    node_trees.unit(site.trees["head"], unit)


def phy(site: Site, name: str, more: int) -> None:
    counted = site.trees["hgx"].counted["ens25f0np0"]
    site.trees["hgx"].counted["ens25f0np0"] = counted | {name: counted[name] + more}


def root_of(site: Site, **fields: int) -> None:
    site.state = SimpleNamespace(
        **{"f_frsize": 4096, "f_blocks": 1000, "f_bfree": 500, "f_bavail": 500, "f_flag": 0} | fields
    )


def say(site: Site, **readings: float) -> None:
    site.sources["gb200"].said |= readings


CASES: dict[str, Callable[[Site], object]] = {
    "port_down": lambda s: [put(s.port(node, "mlx5_0", "state"), "1: DOWN") for node in ("dgx", "gb200")],
    "port_gone": lambda s: (s.trees["storage"].root / "sys/class/infiniband/mlx5_1").rename(s.folder / "away"),
    "port_down_other": lambda s: put(s.trees["dgx"].root / "sys/class/net/eno1/operstate", "down"),
    "port_flapping": lambda s: count(s.port("dgx", "mlx5_2", "counters/link_downed"), 2, 255),
    "port_bit_errors": lambda s: count(s.port("dgx", "mlx5_2", "counters/symbol_error"), 150, 65535),
    "port_retraining": lambda s: count(s.port("dgx", "mlx5_2", "counters/link_error_recovery"), 20, 255),
    "port_integrity": lambda s: count(s.port("dgx", "mlx5_2", "counters/local_link_integrity_errors"), 1, 15),
    "port_receive_errors": lambda s: count(s.port("dgx", "mlx5_3", "counters/port_rcv_errors"), 700, 65535),
    "port_slow": lambda s: put(s.port("dgx", "mlx5_5", "rate"), "200 Gb/sec (2X NDR)"),
    "port_timeouts": lambda s: count(s.port("hgx", "mlx5_0", "hw_counters/local_ack_timeout_err"), 200),
    "port_counters_full": lambda s: put(s.port("dgx", "mlx5_6", "counters/link_downed"), 255),
    "port_congested": lambda s: count(s.port("dgx", "mlx5_3", "counters/port_xmit_discards"), 16_000, 65535),
    "pause_storm": lambda s: phy(s, "rx_prio3_pause_duration", 10**7),
    "port_ber": lambda s: phy(s, "rx_corrected_bits_phy", 10**9),
    "port_hot": lambda s: put(s.pci("dgx", "0000:49:00.0") / "hwmon/hwmon9/temp1_input", 81_000),
    "port_pcie_narrow": lambda s: put(s.pci("dgx", "0000:59:00.0") / "current_link_width", 8),
    "rail_behind": send,
    "fabric_never": lambda s: say(s, gpu_fabric_state=2),
    "fabric_setup": lambda s: say(s, gpu_fabric_configuration=5),
    "memory_uncorrected": lambda s: count(s.trees["dgx"].root / node_trees.EDAC / "mc0/ue_count", 1),
    "memory_corrected": lambda s: count(s.trees["dgx"].root / node_trees.EDAC / "mc1/ce_count", 150),
    "node_oom_kill": lambda s: put(s.trees["dgx"].root / "proc/vmstat", "oom_kill 3"),
    "node_hung_task": lambda s: count(s.trees["dgx"].root / "proc/sys/kernel/hung_task_detect_count", 1),
    "memory_pressure": lambda s: pressure(s, "memory", 40),
    "io_pressure": lambda s: pressure(s, "io", 200),
    "root_full": lambda s: root_of(s, f_bavail=10, f_bfree=10),
    "ring_disk_full": lambda s: root_of(s, f_bavail=10, f_bfree=10),
    "root_read_only": lambda s: root_of(s, f_flag=os.ST_RDONLY),
    "clock_unsynchronised": lambda s: setattr(s, "synchronised", False),
    "mount_failing": lambda s: (s.folder / "stale").touch(),
    "mount_missing": lambda s: put(s.trees["head"].root / "proc/self/mountinfo", "28 1 259:2 / / rw - ext4 /dev/vda rw"),
    "nvme_lost": lambda s: put(s.trees["storage"].root / "sys/class/nvme/nvme3/state", "dead"),
    "node_pcie_fatal": lambda s: node_trees.counts(s.pci("dgx", "0000:29:00.0"), fatal=1, correctable=0),
    "node_pcie_nonfatal": lambda s: node_trees.counts(s.pci("storage", "0000:30:00.0"), nonfatal=1),
    "node_pcie_corrected": lambda s: count_aer(s.pci("hgx", "0000:c0:00.0")),
    "cpu_hot": lambda s: put(s.trees["storage"].root / "sys/class/hwmon/hwmon0/temp1_input", 93_000),
    "fabric_manager_down": lambda s: node_trees.unit(s.trees["dgx"], "nvidia-fabricmanager", runs=False),
    "imex_down": lambda s: node_trees.unit(s.trees["gb200"], "nvidia-imex", runs=False),
    "service_down": lambda s: node_trees.unit(s.trees["head"], "slurmctld", runs=False),
    "service_restarting": lambda s: restart(s, "munge"),
    "nvswitch_lost": lambda s: (s.trees["dgx"].root / "sys/bus/pci/devices/0000:05:00.0").unlink(missing_ok=True),
    "nvme_worn": lambda s: put(s.trees["dgx"].root / "said/nvme", node_trees.SMART.format(1)),
    "nvme_hot": lambda s: put(s.trees["desktop"].root / "sys/class/hwmon/hwmon1/temp1_input", 93_000),
    "lustre_import_failing": lambda s: put(s.trees["gb200"].root / "proc/fs/lustre/osc/a/import", "    state: DISCONN"),
    "beegfs_target_failing": lambda s: put(s.trees["storage"].root / BEEGFS, "[Target ID: 101] @ beegfs-storage s1 [ID: 1]: Offline / Good "),
    "ceph_client_failing": lambda s: put(s.trees["head"].root / CEPH, "mds.0 hung"),
    "machine_check": lambda s: put(s.trees["hgx"].root / "proc/sys/kernel/tainted", 16),
    "kernel_lockup": lambda s: put(s.trees["gb200"].root / "proc/sys/kernel/tainted", 1 << 14),
    "kernel_oops": lambda s: put(s.trees["storage"].root / "proc/sys/kernel/tainted", 128 + 512),
    "bmc_log_critical": lambda s: put(s.trees["dgx"].root / "said/sel elist", node_trees.SEL + node_trees.AC_LOST),
    "bmc_log_full": lambda s: put(s.trees["dgx"].root / "said/sel info", node_trees.SEL_INFO.format(97)),
    "supply_failed": lambda s: put(s.trees["dgx"].root / "said/Power Supply", node_trees.SUPPLIES.format(", Failure detected")),
    "fan_failed": lambda s: put(s.trees["dgx"].root / "said/Fan", node_trees.FANS.format("cr", 400)),
    "node_unclean_boot": lambda s: None,
    "node_panicked": lambda s: None,
}  # fmt: skip
"""What makes each rule fire; it is done again and again until it does. The last two are of a node that comes later."""
ONCE = {"port_gone"}


def count_aer(folder: Path) -> None:
    found = int((folder / "aer_dev_correctable").read_text().rsplit(maxsplit=1)[1])
    node_trees.counts(folder, correctable=found + 2000)


TRAPS: tuple[Callable[[Site], object], ...] = (
    # counters that are full, and that were reset
    lambda s: put(s.port("dgx", "mlx5_7", "counters/symbol_error"), 65535),
    lambda s: put(s.port("dgx", "mlx5_7", "counters/excessive_buffer_overrun_errors"), 15),
    lambda s: put(s.port("dgx", "mlx5_7", "counters/port_xmit_wait"), 4294967295),
    lambda s: put(s.port("dgx", "mlx5_6", "counters/link_downed"), 0),
    # a file that refuses, and a file that is not there
    lambda s: put(s.port("dgx", "mlx5_7", "counters/port_rcv_errors"), "N/A (no PMA)"),
    lambda s: s.port("dgx", "mlx5_7", "counters/link_downed").unlink(missing_ok=True),
    # the subnet manager restarts: the link is up, and is set up anew
    lambda s: put(s.port("storage", "mlx5_0", "state"), "2: INIT"),
    # congestion notifications are how it is meant to work; a job that was killed
    lambda s: count(s.port("hgx", "mlx5_2", "hw_counters/np_cnp_sent"), 10**6),
    lambda s: put(s.port("hgx", "mlx5_2", "hw_counters/local_ack_timeout_err"), 40),
    # pauses of a busy fabric, a management port that went down and came back long ago
    lambda s: phy(s, "rx_prio3_pause_duration", 20_000),
    lambda s: put(s.trees["dgx"].root / "sys/class/net/eno1/carrier_down_count", 2),
    # an interface that gets another name
    lambda s: rename(s, "desktop", "enp5s0", "lan0"),
    # a daemon that ends at once where it has nothing to do, an empty place of a supply, a fan without a reading
    lambda s: node_trees.unit(s.trees["desktop"], "nvidia-fabricmanager", runs=False),
    # a link that trains again now and then
    lambda s: put(s.port("dgx", "mlx5_4", "counters/link_error_recovery"), 3),
    lambda s: pressure(s, "memory", 5),
    # a warning of the kernel, a driver out of its tree, an entry of the BMC's log that is none to worry about
    lambda s: put(s.trees["desktop"].root / "proc/sys/kernel/tainted", 512 + 4096),
    lambda s: put(s.trees["dgx"].root / "said/sel elist", node_trees.SEL + node_trees.AC_LOST.replace("3a", "39").replace("Asserted", "Deasserted")),
    # a mirror that is written again, a session that begins
    lambda s: put(s.trees["storage"].root / BEEGFS, "[Target ID: 101] @ beegfs-storage s1 [ID: 1]: Online / Needs-resync "),
    lambda s: put(s.trees["head"].root / CEPH, "mds.0 opening"),
)  # fmt: skip


def rename(site: Site, node: str, before: str, after: str) -> None:
    folder = site.trees[node].root / "sys/class/net"
    if (folder / before).is_symlink():
        (folder / before).rename(folder / after)


def build(folder: Path) -> Site:
    """Build the six trees, well in all."""
    site = Site(folder)
    kinds = {"dgx": node_trees.dgx, "hgx": node_trees.hgx, "gb200": node_trees.gb200_tray,
             "desktop": node_trees.desktop, "storage": node_trees.storage, "head": node_trees.head}  # fmt: skip
    for name, kind in kinds.items():
        site.trees[name] = kind(folder / "trees" / name)
        node_trees.put(site.trees[name].root, {"proc/uptime": "100000.0 1\n", "proc/sys/kernel/hung_task_detect_count": "0\n",
                                                 "proc/sys/kernel/tainted": "512\n", "proc/interrupts": "MCE: 0 0  Machine check exceptions\n"})  # fmt: skip
    node_trees.put(
        site.trees["storage"].root, {BEEGFS: "[Target ID: 101] @ beegfs-storage s1 [ID: 1]: Online / Good \n"}
    )
    node_trees.put(site.trees["head"].root, {CEPH: "mds.0 open\n"})
    dgx, head = site.trees["dgx"], site.trees["head"]
    node_trees.put(
        site.pci("dgx", "0000:49:00.0") / "hwmon/hwmon9", {"temp1_input": "50000\n", "temp1_label": "Module0\n"}
    )
    dgx.slot("0000:59:00.0")
    site.trees["gb200"].slot("0000:03:00.0", now=8, most=16, slot=8)  # a slot of eight lanes: well
    node_trees.programs(dgx, folder / "bin")
    home = "40 28 0:52 / /home rw - nfs4 filer:/home rw\n"
    lustre_line = "41 28 0:53 / /scratch rw - lustre 10.0.0.1@o2ib:/fs rw\n"
    node_trees.put(head.root, {"proc/self/mountinfo": f"28 1 259:2 / / rw - ext4 /dev/vda rw\n{home}{lustre_line}"})
    node_trees.put(site.trees["gb200"].root, {"proc/fs/lustre/osc/a/import": "    state: FULL\n"})
    site.trees["hgx"].counted["ens25f0np0"] = {"rx_prio3_pause_duration": 0, "rx_corrected_bits_phy": 0}
    (folder / "bin/stat").write_text(
        f'#!/bin/sh\n[ -e "{folder}/stale" ] && {{ echo "Stale file handle" >&2; exit 1; }}\nexit 0\n'
    )
    (folder / "bin/stat").chmod(0o755)
    (folder / "links").write_text("dgx:mlx5_0 leaf-1 1\ngb200:mlx5_0 leaf-1 2\ndgx:mlx5_2 leaf-2 1\n")
    root_of(site)
    return site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The trees, and what of the machine itself stands in for that of a node."""
    site = build(tmp_path)
    for module, name, value in (
        (bmc, "BMC_SECONDS", PERIOD),
        (bmc, "LOG_SECONDS", PERIOD),
        (nvme_health, "DRIVE_SECONDS", PERIOD),
        (programs, "_POLL", 0.1),
        (kernel_health, "COUNT_SECONDS", 0.0),
        (mounts, "PERIOD", PERIOD),
        (storage_clients, "PERIOD", PERIOD),
        (bit_errors, "LEAST_SECONDS", 0.5),
        (fabric, "WAIT", 5.0),
    ):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(machine, "read_clock", lambda: ClockState(site.synchronised, 1e-4))
    monkeypatch.setattr(fabric, "EthtoolReader", lambda: site.trees["hgx"].statistics)
    real = os.statvfs

    def statvfs(path: Any) -> Any:
        ours = str(path).startswith(str(site.folder))
        return site.state if ours and site.state is not None else real(path)

    monkeypatch.setattr(os, "statvfs", statvfs)
    return site


@contextlib.asynccontextmanager
async def running(site: Site, name: str, broker: Mosquitto) -> AsyncIterator[None]:
    """Run the collector of a node."""
    config = config_of(
        broker.config,
        site.folder / "state" / name,
        node=name,
        source="nvml",
        interval=PERIOD,
        slow_interval=PERIOD,
        node_readings=True,
        host_root=site.trees[name].root,
        topology=site.folder / "links",
        ring_enabled=False,
    )
    site.sources[name] = source = Quiet(site.trees[name])
    async with collecting(config, source):
        yield


def firing(watch: Watch) -> dict[str, list[dict[str, Any]]]:
    """Return the alerts that fire, by rule."""
    found = watch.get("/api/v1/alerts?state=firing") or {"alerts": []}
    by_rule: dict[str, list[dict[str, Any]]] = {}
    for alert in found["alerts"]:
        if alert["rule"] in CASES:  # the GPUs of these trees are read by nobody
            by_rule.setdefault(alert["rule"], []).append(alert)
    return by_rule


def test_every_rule_of_ports_and_nodes_is_on_this_page() -> None:
    shipped = {rule.name for file in FILES for rule in read(FOLDER / file)}
    assert shipped | OF_GPUS == set(CASES)


@pytest.mark.systems
async def test_each_fault_of_six_kinds_of_nodes_is_told_and_no_trap_is(
    site: Site, tmp_path: Path, mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [divided((FOLDER / file).read_text()) for file in FILES]
    texts.append(sooner((FOLDER / "rules.toml").read_text()))
    monkeypatch.setattr(watch_module, "RULES", "\n".join(texts))
    pager = Pager()
    shipped = {rule.name: rule.severity for file in FILES for rule in read(FOLDER / file)}
    async with pager.listening(), contextlib.AsyncExitStack() as stack:
        settings = toml({"oncall": pager.settings(tmp_path)})
        watch = stack.enter_context(watching(tmp_path / "watch", mosquitto, settings, "tests.endtoend.hurried"))
        nodes = list(site.trees)
        for name in nodes:
            await stack.enter_async_context(running(site, name, mosquitto))
        await until("the nodes", lambda: _known(watch) == set(nodes), 200)
        await asyncio.sleep(4 * PERIOD)
        assert firing(watch) == {}, "all are well"
        await asyncio.to_thread(shown_everywhere, watch)
        for _ in range(5):
            for trap in TRAPS:
                trap(site)
            await asyncio.sleep(PERIOD)
        assert firing(watch).keys() <= {"port_counters_full"}
        assert _said(pager) == [], "a trap called somebody"
        put(site.port("storage", "mlx5_0", "state"), "4: ACTIVE")
        site.trees["back"] = node_trees.desktop(tmp_path / "trees/back")
        node_trees.boots(site.trees["back"], "boot", "login", "boot")
        node_trees.put(
            site.trees["back"].root, {"proc/uptime": "60.0 1\n", "var/lib/systemd/pstore/dmesg-efi-1": "Oops"}
        )
        await stack.enter_async_context(running(site, "back", mosquitto))
        seen: dict[str, list[dict[str, Any]]] = {}
        done: set[str] = set()
        for _ in range(60):
            for rule, fault in CASES.items():
                if rule not in seen and rule not in done:
                    fault(site)
                    done |= {rule} & ONCE
            await asyncio.sleep(PERIOD)
            seen |= await asyncio.to_thread(firing, watch)
            if seen.keys() >= CASES.keys():
                break
        assert CASES.keys() - seen.keys() == set()
        switch = {alert["labels"]["switch"] for alert in seen["port_down"]}
        assert switch == {"leaf-1"}
        pages = {rule for rule, severity in shipped.items() if severity is Severity.PAGE}
        await until("a page", lambda: _pages(pager) & pages)


def _known(watch: Watch) -> set[str]:
    """Return the nodes of which a frame has come."""
    found = watch.get("/api/v1/nodes") or {"nodes": []}

    return {each["node"] for each in found["nodes"] if each["seq"] >= 0}


def shown_everywhere(watch: Watch) -> None:
    """Check that what was read is on the page for Prometheus and in the API, by the same rows."""
    for node in ("dgx", "hgx", "gb200"):
        page = watch.get(f"/api/v1/nodes/{node}")
        with urllib.request.urlopen(f"http://{watch.http}/metrics/node/{node}", timeout=30) as answer:
            text = answer.read().decode()
        assert page["readings"]["node_nvme_drives"] > 0
        assert f'kilowatch_node_services{{cluster="default",node="{node}"}}' in text or node == "hgx"
        for port in page["ports"]:
            assert port["port"]["role"] in {"compute", "storage", "management", "member"}
            for name in port["readings"]:
                assert BY_NAME[name].table is Table.PORT
                assert f'kilowatch_{name}{{cluster="default",node="{node}",port="{port["port"]["adapter"]}' in text, (
                    name
                )


def _said(pager: Pager) -> list[str]:
    """Return the calls about these rules that rang as pages."""
    payloads = [call.body["payload"] for call in pager.calls if "payload" in call.body]
    return [
        payload["summary"]
        for payload in payloads
        if payload["severity"] == "critical" and payload["custom_details"].get("Rule", "").split(" ")[0] in CASES
    ]


def _pages(pager: Pager) -> set[str]:
    """Return the rules that somebody was called for, by all that the pages say."""
    text = str([call.body for call in pager.calls])
    return {rule for rule in CASES if re.search(rf"\b{rule}\b", text)}


@pytest.mark.systems
async def test_ports_of_one_switch_are_one_incident_and_a_reboot_of_it_is_one(
    site: Site, tmp_path: Path, mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes on leaf-1 lose their port: one incident. The switch comes back and goes again: the same. A port of
    leaf-2 is another."""
    monkeypatch.setattr(watch_module, "RULES", divided((FOLDER / "port_rules.toml").read_text()))
    pager = Pager()
    leaf = [site.port(node, "mlx5_0", "state") for node in ("dgx", "gb200")]
    async with pager.listening(), contextlib.AsyncExitStack() as stack:
        settings = toml({"oncall": pager.settings(tmp_path)})
        watch = stack.enter_context(watching(tmp_path / "watch", mosquitto, settings, "tests.endtoend.hurried"))
        for name in ("dgx", "gb200"):
            await stack.enter_async_context(running(site, name, mosquitto))
        await until("the nodes", lambda: _known(watch) == {"dgx", "gb200"}, 200)
        await until("the ports", lambda: _up(watch) >= {"dgx", "gb200"}, 200)

        def fallen() -> list[dict[str, Any]]:
            """The incidents about ports that are down, those that are over too."""
            found = watch.get("/api/v1/incidents?from=-1h") or {"incidents": []}
            every = {each["key"]: each for each in (*found["incidents"], *watch.incidents())}
            return [one for one in every.values() if any(alert["rule"] == "port_down" for alert in one["alerts"])]

        def both_down() -> bool:
            its = [one for one in fallen() if not one.get("closed")]
            firing_ = {
                a["node"] for one in its for a in one["alerts"] if a["state"] == "firing" and a["rule"] == "port_down"
            }
            return firing_ == {"dgx", "gb200"}

        def move(state: str) -> None:
            for file in leaf:
                put(file, state)

        move("1: DOWN")  # two real ports of one switch
        with contextlib.suppress(AssertionError):
            await until("both ports down", both_down, 40)
        assert both_down(), (fallen(), watch.get("/api/v1/alerts"), watch.get("/api/v1/ports"))
        (first,) = fallen()
        assert {alert["labels"]["switch"] for alert in first["alerts"]} == {"leaf-1"}
        move("4: ACTIVE")  # the switch is back, and reboots once more
        await until("both ports up", lambda: _up(watch) >= {"dgx", "gb200"}, 100)
        move("1: DOWN")
        await until("both ports down again", both_down, 100)
        (again,) = fallen()
        assert again["key"] == first["key"]
        put(site.port("dgx", "mlx5_2", "state"), "1: DOWN")
        await until("the other switch", lambda: len(fallen()) == 2, 100)


def _up(watch: Watch) -> set[str]:
    """Return the nodes of which the first port is up."""
    lines = (watch.get("/api/v1/ports") or {"lines": []})["lines"]
    return {line["node"] for line in lines if line["name"] == "mlx5_0/1" and line["up"]}
