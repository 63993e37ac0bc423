"""What ails a node beside its GPUs, from the files of its kernel to the notice: the real reader of the host
on a tree of files, the shipped rules and the incident manager."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from api.alerts import Action, Severity
from collector.host import Host
from collector.host.mounts import Mounts
from collector.simulated import SimulatedSource, scenario
from collector.source import Rows
from telemetry.gap import Gap, reason_of
from telemetry.metric import Lane
from telemetry.wire.schema import NODE_SLOW, SCHEMA
from tests.alerts.scenes import Scene
from tests.alerts.test_scenes import CALM, roomy
from tests.collector.network_tree import Tree
from tests.collector.node_trees import NETWORK, chip, counts, device, drive

EDAC = "sys/devices/system/edac/mc/mc0"
COLUMNS = tuple(
    number
    for number, name in enumerate(SCHEMA.blocks[NODE_SLOW].names)
    if name.startswith(
        (
            "node_edac_",
            "node_oom_",
            "node_hung_",
            "node_pressure_",
            "node_pcie_",
            "node_cpu_",
            "node_nvme_",
            "node_network_mounts_",
        )
    )
)


class OnTree(SimulatedSource):
    """A simulated node whose kernel's counts are read from a tree of files."""

    def read_from(self, root: Path) -> None:
        """Set the tree."""
        self.host = Host(root, disk=root, ipmitool="")

    async def read(self, lanes: frozenset[Lane], tick: int, now_ns: int, deadline: float) -> Rows:
        """Return the simulated rows, with what the host reads in the place of its counts."""
        rows = await super().read(lanes, tick, now_ns, deadline)
        if Lane.SLOW in lanes:
            real = self.host.read(frozenset({Lane.SLOW}))[NODE_SLOW][0]
            row = list(rows[NODE_SLOW][0])
            for column in COLUMNS:
                row[column] = real[column]
            rows[NODE_SLOW] = [row]
        return rows


def put(root: Path, **files: int) -> None:
    """Write counts of the memory controller, of /proc/vmstat, of hung tasks and of pressure (µs)."""
    for folder in (EDAC, "proc/sys/kernel", "proc/pressure"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        match name:
            case "oom_kill":
                (root / "proc/vmstat").write_text(f"nr_free_pages 1\noom_kill {value}\n")
            case "hung":
                (root / "proc/sys/kernel/hung_task_detect_count").write_text(f"{value}\n")
            case "stalled":
                lines = [f"{word} avg10=0.00 avg60=0.00 avg300=0.00 total={value}\n" for word in ("some", "full")]
                (root / "proc/pressure/memory").write_text("".join(lines))
            case "heat":
                chip(
                    Tree(root), 0, "coretemp", temp1_label="Package id 0", temp1_input=value * 1000, temp1_crit=100_000
                )
            case "drives":
                for number in range(8):
                    state = "live" if number < value else "dead"
                    drive(Tree(root), number, state=state)
            case "correctable" | "nonfatal" | "fatal":
                counts(device(Tree(root), "0000:01:00.0", "pci0000:00", NETWORK), **{name: value})
            case "missing":
                line = "filer:/data /kilowatch-none nfs4 defaults 0 0\n"
                (root / "etc").mkdir(exist_ok=True)
                (root / "proc/self").mkdir(exist_ok=True)
                (root / "proc/self/mountinfo").write_text("28 1 0:1 / / rw - ext4 /dev/sda rw\n")
                (root / "etc/fstab").write_text(line * value)
            case _:
                (root / EDAC / name).write_text(f"{value}\n")


async def calm(tmp_path: Path) -> tuple[Scene, Path]:
    """Return a node that has been well for a while, with counts from before, and its tree."""
    root = tmp_path / "root"
    put(root, ce_count=40, ue_count=1, oom_kill=7, hung=2, stalled=9_000_000, heat=60, drives=8, fatal=0, missing=0)
    simulated = scenario("two-dgx-h100", faults="")
    sources = {name: OnTree(simulated, name) for name in simulated.nodes}
    for source in sources.values():
        source.read_from(root)
    scene = Scene({"dgx-01": sources["dgx-01"]}, roomy(simulated), tmp_path)
    await scene.play(CALM, every=15)
    assert scene.notices == []
    return scene, root


@pytest.mark.parametrize(
    ("counts", "severity", "title"),
    [
        ({"ue_count": 2}, Severity.PAGE, "the main memory of dgx-01 has an error"),
        ({"ce_count": 141}, Severity.TICKET, "the main memory of dgx-01 is corrected"),
        ({"hung": 3}, Severity.TICKET, "a task of dgx-01 hangs in the kernel"),
        ({"stalled": 40_000_000}, Severity.TICKET, "dgx-01 stands still for want of memory"),
        ({"fatal": 1}, Severity.TICKET, "a PCI Express link of dgx-01 had a fatal error"),
        ({"nonfatal": 1}, Severity.TICKET, "PCI Express of dgx-01 lost transactions"),
        ({"correctable": 500}, Severity.TICKET, "PCI Express of dgx-01 is corrected"),
        ({"heat": 96}, Severity.TICKET, "a CPU of dgx-01 is 4"),
        ({"drives": 7}, Severity.TICKET, "an NVMe drive of dgx-01 is gone"),
        ({"missing": 1}, Severity.TICKET, "a network file system of dgx-01 is not mounted"),
    ],
)
async def test_a_count_that_grows_is_told_once(
    tmp_path: Path, counts: dict[str, int], severity: Severity, title: str
) -> None:
    scene, root = await calm(tmp_path)
    put(root, **counts)
    await scene.play(420, every=15)
    [notice] = [one for one in scene.notices if one.action is Action.TRIGGER]
    assert notice.incident.severity is severity
    assert notice.incident.title.startswith(title)


async def test_file_systems_that_several_nodes_lose_are_one_incident(tmp_path: Path) -> None:
    """The children stay, as those of an NFS mount whose server is gone do. A failover is none."""
    simulated = scenario("two-dgx-h100", faults="")
    nodes = {name: OnTree(simulated, name) for name in simulated.nodes}
    now, holds = [0.0], tmp_path / "holds"
    watchers = []
    for name, source in nodes.items():
        root = tmp_path / name
        put(root, ce_count=0, ue_count=0, missing=0)
        (root / "proc/self/mountinfo").write_text("40 28 0:52 / /scratch rw - nfs4 filer:/scratch rw\n")
        source.read_from(root)
        source.host._mounts.close()
        watchers.append(Mounts(root, ("sh", "-c", f"[ ! -e {holds} ] || exec sleep 600"), lambda: now[0]))
        source.host._mounts = watchers[-1]
    scene = Scene(nodes, roomy(simulated), tmp_path)

    async def play(seconds: int) -> None:
        for _ in range(seconds // 15):
            now[0] += 15
            await scene.play(15, every=15)
            for watcher in watchers:  # an answer takes a moment
                for one in watcher._tries.values():
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        one.child.wait(0.0 if holds.exists() else 60.0)

    try:
        await play(int(CALM))
        assert scene.notices == []
        holds.touch()
        await play(240)
        [notice] = [one for one in scene.notices if one.action is Action.TRIGGER]
        assert notice.incident.severity is Severity.PAGE
        assert {one.node for one in scene.pipeline.alerts() if one.rule == "mount_failing"} == set(nodes)
        told = [event.message for source in nodes.values() for event in source.host.drain_events()]
        assert told == ["/scratch (nfs4 of filer:/scratch) does not answer"] * 2
        holds.unlink()
        await play(420)
        assert [one.action for one in scene.notices] == [Action.TRIGGER, Action.RESOLVE]
    finally:
        for watcher in watchers:
            watcher.close()


def pread_of_the_kernel(fd: int, size: int, offset: int, real: Callable[[int, int, int], bytes] = os.pread) -> bytes:
    """Read as from /sys, where an open file of a device that is gone has no content."""
    if os.fstat(fd).st_nlink == 0:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
    return real(fd, size, offset)


async def test_traps_tell_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job at its own limit, a few corrected errors, a restart, and a driver of EDAC that is unloaded."""
    monkeypatch.setattr(os, "pread", pread_of_the_kernel)
    scene, root = await calm(tmp_path)
    put(root, oom_kill=9, ce_count=60, stalled=20_000_000)
    await scene.play(60, every=15)
    assert [one.rule for one in scene.pipeline.alerts() if one.rule.startswith("node_")] == ["node_oom_kill"]
    put(root, ce_count=0, ue_count=0, oom_kill=0, hung=0, stalled=0)
    await scene.play(60, every=15)
    for name in ("ce_count", "ue_count"):
        (root / EDAC / name).unlink()
    await scene.play(60, every=15)
    value = scene.fleet.matrices[NODE_SLOW].counters
    column = SCHEMA.blocks[NODE_SLOW].counters.index("node_edac_uncorrectable_errors_total")
    assert reason_of(float(value[0, column])) is Gap.NOT_SUPPORTED
    assert scene.notices == []
