"""PCI Express errors, CPUs, drives and network file systems, on the trees of six kinds of nodes."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.config import CollectorConfig
from collector.host import Host
from collector.host.fabric import Fabric
from collector.host.hardware import AER_SECONDS, FIND_SECONDS, Hardware, total
from telemetry.gap import Gap, reason_of
from telemetry.metric import Lane
from telemetry.wire.schema import NODE_SLOW, SCHEMA
from tests.collector import node_trees
from tests.collector.network_tree import Tree
from tests.collector.node_trees import counts, drive

NONE = Gap.NOT_SUPPORTED.word
EXPECTED: dict[Callable[[Path], Tree], dict[str, float | str]] = {
    node_trees.dgx: {
        "pcie_correctable_errors_total": 0, "pcie_fatal_errors_total": 0,
        "cpu_temperature_celsius": 55, "cpu_headroom_celsius": 45, "nvme_drives": 10,
        "nvme_drives_live": 10, "edac_uncorrectable_errors_total": 0, "network_mounts": 2,
        "network_mounts_missing": 0, "ports": 10, "nvswitches": 4, "nvswitches_present": 4, "services": 3,
        "services_down": 0, "fabric_manager_up": 1, "imex_up": NONE, "unclean_boot": 0,
    },
    node_trees.hgx: {
        "pcie_correctable_errors_total": 0, "cpu_temperature_celsius": 61.25,
        "cpu_headroom_celsius": NONE, "nvme_drives": 1, "nvme_drives_live": 1,
        "edac_uncorrectable_errors_total": 0, "network_mounts": 1, "network_mounts_missing": 0,
        "ports": 19, "nvswitches": NONE, "services": NONE, "unclean_boot": NONE,
    },
    node_trees.gb200_tray: {
        "pcie_correctable_errors_total": 0, "cpu_temperature_celsius": NONE,
        "cpu_headroom_celsius": NONE, "nvme_drives": 4, "nvme_drives_live": 4,
        "edac_uncorrectable_errors_total": 0, "network_mounts": 1, "network_mounts_missing": 0,
        "ports": 4, "imex_up": 1, "services": 1, "services_down": 0, "fabric_manager_up": NONE,
    },
    node_trees.desktop: {
        "pcie_correctable_errors_total": 0, "cpu_temperature_celsius": 71,
        "cpu_headroom_celsius": NONE, "nvme_drives": 1, "nvme_drives_live": 1,
        "edac_uncorrectable_errors_total": NONE, "network_mounts": 0, "network_mounts_missing": 0,
        "ports": 1, "nvme_headroom_celsius": 45.8, "fabric_manager_up": 0, "services": 0, "services_down": 0,
    },
    node_trees.storage: {
        "pcie_correctable_errors_total": 0, "cpu_temperature_celsius": 48,
        "cpu_headroom_celsius": 47, "nvme_drives": 12, "nvme_drives_live": 12,
        "edac_uncorrectable_errors_total": 0, "network_mounts": 0, "network_mounts_missing": 0,
        "ports": 2,
    },
    node_trees.head: {
        "pcie_correctable_errors_total": NONE, "pcie_fatal_errors_total": NONE,
        "cpu_temperature_celsius": NONE, "cpu_headroom_celsius": NONE, "nvme_drives": NONE,
        "nvme_drives_live": NONE, "edac_uncorrectable_errors_total": NONE, "network_mounts": 1,
        "network_mounts_missing": 1, "ports": 1, "services": 3, "services_down": 0, "crash_records": NONE,
    },
}  # fmt: skip


def readings(host: Host) -> dict[str, float]:
    """Return a slow reading, by metric name without `node_`."""
    row = host.read(frozenset({Lane.SLOW}))[NODE_SLOW][0]
    names = SCHEMA.blocks[NODE_SLOW].names
    return {name.removeprefix("node_"): value for name, value in zip(names, row, strict=True)}


def shown(value: float) -> float | str:
    """Return a reading, or the word of its gap."""
    reason = reason_of(value)
    return value if reason is None else reason.word


@pytest.mark.parametrize("kind", EXPECTED, ids=lambda kind: kind.__name__)
async def test_a_node_of_each_kind_is_read_as_it_is(tmp_path: Path, kind: Callable[[Path], Tree]) -> None:
    tree = kind(tmp_path)
    host = Host(tmp_path, disk=tmp_path, ipmitool="", nvme="", services=CollectorConfig().services)
    fabric = Fabric("n1", tmp_path, wait=60)
    try:
        got = {name: shown(value) for name, value in readings(host).items()}
        fabric.begin([])
        await fabric.finish()
        got["ports"] = len(fabric.ports)
    finally:
        host.close()
        fabric.close()
    assert {name: got[name] for name in EXPECTED[kind]} == pytest.approx(EXPECTED[kind])
    assert not {"error", "no_permission"} & set(got.values())
    assert len(tree.gpus) == {"dgx": 8, "hgx": 8, "gb200_tray": 4, "desktop": 4}.get(kind.__name__, 0)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return node_trees.dgx(tmp_path)


def test_errors_of_adapters_drives_and_the_bridges_above_a_gpu_are_counted_once(tree: Tree) -> None:
    hardware = Hardware(tree.root)
    hardware.find()
    gpu = (tree.root / "sys/bus/pci/devices" / tree.gpus[0]).resolve()
    counts(gpu, correctable=100, fatal=100)  # NVML counts these
    counts((tree.root / "sys/bus/pci/devices/0000:19:00.0").resolve(), correctable=3, fatal=1)
    counts(gpu.parent, correctable=4, nonfatal=2)
    counts(gpu.parents[1], correctable=5)  # the switch above an adapter too
    counts((tree.root / "sys/bus/pci/devices/0000:c0:00.0").resolve(), nonfatal=1)
    assert hardware.pcie_errors() == (12, 3, 1)


def test_other_devices_and_functions_of_guests_do_not_count(tree: Tree) -> None:
    sound = node_trees.device(tree, "0000:00:1f.0", "pci0000:00", "0x040300")
    counts(sound, fatal=9)
    guest = node_trees.device(tree, "0000:00:1e.0", "pci0000:00", node_trees.NETWORK)
    (guest / "physfn").mkdir()
    counts(guest, fatal=9)
    hardware = Hardware(tree.root)
    hardware.find()
    assert hardware.pcie_errors() == (0, 0, 0)


def test_a_device_that_is_taken_out_is_no_error_and_a_new_one_is_found_later(tree: Tree) -> None:
    now = [0.0]
    hardware = Hardware(tree.root, lambda: now[0])
    hardware.find()
    adapter = (tree.root / "sys/bus/pci/devices/0000:19:00.0").resolve()
    for file in adapter.glob("aer_dev_*"):
        file.unlink()
    assert hardware.pcie_errors() == (0, 0, 0)
    new = node_trees.device(tree, "0000:00:1d.0", "pci0000:00", node_trees.NETWORK)
    counts(new, correctable=7)
    hardware.find()
    assert hardware.pcie_errors() == (0, 0, 0)
    now[0] += FIND_SECONDS
    hardware.find()
    assert hardware.pcie_errors() == (7, 0, 0)


@pytest.mark.parametrize("state", ["dead", "resetting", "deleting", None])
def test_a_drive_that_stops_or_leaves_stays_counted(tree: Tree, state: str | None) -> None:
    hardware = Hardware(tree.root)
    assert hardware.nvme() == (10, 10)
    folder = tree.root / "sys/class/nvme/nvme3"
    if state is None:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    else:
        (folder / "state").write_text(f"{state}\n")
    assert hardware.nvme() == (10, 9)
    drive(tree, 3)
    assert hardware.nvme() == (10, 10)


def test_a_drive_that_comes_back_under_another_number_is_the_same(tree: Tree) -> None:
    hardware = Hardware(tree.root)
    hardware.nvme()
    (tree.root / "sys/class/nvme/nvme3").rename(tree.root / "sys/class/nvme/nvme11")
    assert hardware.nvme() == (10, 10)


def test_a_critical_temperature_that_no_cpu_has_is_none(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    node_trees.chip(tree, 0, "coretemp", temp1_label="Package id 0", temp1_input=40_000, temp1_crit=0)
    hardware = Hardware(tmp_path)
    hardware.find()
    assert hardware.cpu_temperature() == (40,)
    with pytest.raises(FileNotFoundError):
        hardware.cpu_headroom()


def test_files_that_make_no_sense_are_error_gaps(tree: Tree) -> None:
    now = [0.0]
    host = Host(tree.root, disk=tree.root, ipmitool="", monotonic=lambda: now[0])
    try:
        readings(host)
        now[0] += AER_SECONDS
        (tree.root / "sys/class/hwmon/hwmon0/temp1_input").write_text("hot\n")
        (tree.root / "sys/bus/pci/devices/0000:19:00.0/aer_dev_fatal").write_text("\n")
        (tree.root / "proc/self/mountinfo").write_text("nonsense\n")
        got = readings(host)
    finally:
        host.close()
    for name in (
        "cpu_temperature_celsius",
        "cpu_headroom_celsius",
        "pcie_fatal_errors_total",
        "network_mounts",
        "network_mounts_failing",
        "network_mounts_missing",
    ):
        assert reason_of(got[name]) is Gap.ERROR, name


def test_a_root_that_becomes_read_only_is_seen(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(tree.root, disk=tree.root, ipmitool="")
    try:
        assert readings(host)["root_read_only"] == 0
        fields = {"f_frsize": 4096, "f_blocks": 9, "f_bfree": 4, "f_bavail": 4, "f_flag": os.ST_RDONLY}
        monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(**fields))
        assert readings(host)["root_read_only"] == 1
    finally:
        host.close()


@given(st.binary(max_size=100))
def test_no_text_breaks_the_parser(text: bytes) -> None:
    try:
        found = total(text)
    except (ValueError, IndexError):  # an `error` gap
        return
    assert math.isfinite(found)


def test_counts_of_pci_express_are_read_a_share_at_a_time(tree: Tree) -> None:
    """Each device once in a minute, a quarter of them at a tick of fifteen seconds."""
    now = [0.0]
    hardware = Hardware(tree.root, lambda: now[0])
    hardware.find()
    assert hardware.pcie_errors() == (0, 0, 0)
    devices = {file.parent.resolve() for file in (tree.root / "sys/devices").rglob("aer_dev_fatal")}
    for folder in devices:
        counts(folder, fatal=1)
    seen = []
    for _ in range(4):
        now[0] += AER_SECONDS / 4
        seen.append(hardware.pcie_errors()[2])
    steps = [after - before for before, after in itertools.pairwise([0.0, *seen])]
    assert max(steps) - min(steps) <= 3  # the last share is what is left
    assert all(step > 0 for step in steps)
    assert seen[-1] == hardware.pcie_errors()[2] > 40
