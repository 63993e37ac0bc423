"""`kilowatch check`: whether a node is fit for work, and that nothing unknown counts as fit."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from collector.commands.once import NodeReading
from collector.config import CollectorConfig
from collector.host.role import NVIDIA, gpus_on_the_bus
from kilowatch.__main__ import main
from kilowatch.check.checks import check_node, driver_results, kernel_log_results, node_results, recent_records
from kilowatch.check.verdict import CheckResult, Verdict, reason_of, verdict_of
from telemetry.gap import DEVICE_LOST, ERROR, NO_PERMISSION, NOT_SUPPORTED
from telemetry.metric import Table
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import SCHEMA
from tests.fakes import FakeSource

XID_79 = "[12.5] NVRM: Xid (PCI:0000:18:00): 79, pid=7, name=a, GPU has fallen off the bus.\n"
XID_63 = "[12.5] NVRM: Xid (PCI:0000:18:00): 63, Row Remapper: New row marked for remapping.\n"
XID_13 = "[12.5] NVRM: Xid (PCI:0000:18:00): 13, pid=7, name=a, Graphics Exception: ESR 0x505730\n"


class Node:
    """A node of healthy GPUs whose single readings can be set."""

    def __init__(self, gpus: int = 2, **inventory: Any) -> None:
        made = FakeSource(gpus=gpus).inventory
        self.inventory = msgspec.structs.replace(made, node="n1", **inventory)
        self.rows = {
            number: [[0.0] * len(block.names) for _ in range(gpus if block.table is Table.GPU else 1)]
            for number, block in enumerate(SCHEMA.blocks)
            if block.table in {Table.GPU, Table.NODE}
        }
        for metric, value in (
            ("node_clock_synchronised", 1.0),
            ("node_root_free_ratio", 0.5),
            ("node_filesystem_free_ratio", 0.5),
            ("node_driver_up", 1.0),
            ("node_cpu_headroom_celsius", 40.0),
            ("node_nvme_headroom_celsius", 40.0),
            ("node_nvme_spare_ratio", 1.0),
            ("node_imex_up", 1.0),
            ("node_gpus_answering", gpus),
            ("node_gpus_expected", gpus),
        ):
            self.set(metric, value)

    def set(self, metric: str, value: float, row: int = 0) -> None:
        """Set one reading of a GPU, or of the node."""
        for number, block in enumerate(SCHEMA.blocks):
            if metric in block.names and number in self.rows:
                self.rows[number][row][block.names.index(metric)] = value
                return
        raise KeyError(metric)

    def lose(self, row: int, reason: float = DEVICE_LOST) -> None:
        """Leave nothing but gaps of a GPU."""
        for number, block in enumerate(SCHEMA.blocks):
            if block.table is Table.GPU:
                self.rows[number][row] = [reason] * len(block.names)

    @property
    def reading(self) -> NodeReading:
        return NodeReading(self.inventory, self.rows, [])


def kilowatch(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def found(results: Any) -> list[tuple[str, str]]:
    """Check and verdict of each result."""
    return [(one.check, one.verdict.value) for one in results]


def test_a_node_without_a_fault_is_fit() -> None:
    result = kilowatch("check", "--source", "simulated:two-dgx-h100?faults=none", "--gpus", "8")
    assert result.exit_code == 0, result.output
    assert "8 GPUs answer" in result.output
    assert result.output.splitlines()[-1].partition(":")[2].startswith(" fit, checked in")
    reply = json.loads(kilowatch("check", "--json", "--source", "simulated:two-dgx-h100?faults=none").stdout)
    assert (reply["verdict"], reply["reason"]) == ("fit", "")
    assert {one["check"] for one in reply["results"]} == {"driver", "GPUs", "node", "kernel log"}


def test_fewer_gpus_than_asked_for_are_no_fit_node() -> None:
    result = kilowatch("check", "--source", "simulated:two-dgx-h100?faults=none", "--gpus", "9")
    assert result.exit_code == 2
    assert "8 of 9 GPUs answer" in result.output


@pytest.mark.parametrize(
    ("metric", "value", "verdict"),
    [
        ("gpu_remapped_rows_failure", 1.0, "unfit"),
        ("gpu_recovery_action", 2.0, "unfit"),
        ("gpu_recovery_action", 4.0, "unfit"),
        ("gpu_remapped_rows_pending", 1.0, "degraded"),
        ("gpu_ecc_volatile_uncorrected_total", 3.0, "degraded"),
        ("gpu_clocks_event_sw_power_cap", 1.0, None),
    ],
)
def test_each_gpu_is_judged_by_its_states(metric: str, value: float, verdict: str | None) -> None:
    from kilowatch.check.checks import gpu_results

    node = Node()
    node.set("gpu_temperature_slowdown_celsius", 90.0, 0)
    node.set(metric, value, 1)
    results = list(gpu_results(node.reading))
    assert found(results) == ([("GPU 1", verdict)] if verdict else [("GPUs", "fit")])
    assert verdict is None or (results[0].action and results[0].rule)


def test_a_lost_gpu_makes_the_node_unfit_and_one_that_says_nothing_is_not_known() -> None:
    from kilowatch.check.checks import gpu_results

    node = Node(gpus=3)
    node.lose(1)
    assert found(driver_results(node.reading, None, 3)) == [("driver", "unfit")]
    assert ("GPU 1", "unfit") in found(gpu_results(node.reading))
    node = Node(gpus=3)
    node.lose(2, ERROR)
    assert found(gpu_results(node.reading)) == [("GPU 2", "not known")]


@pytest.mark.parametrize(
    ("state", "expected", "bus", "verdict"),
    [
        ("missing", None, 0, "fit"),
        ("missing", None, 8, "unfit"),
        ("missing", 8, None, "unfit"),
        ("missing", None, None, "unfit"),
        ("mismatched", None, 8, "unfit"),
        ("hung", None, 8, "unfit"),
        ("no_permission", None, 8, "not known"),
        ("unknown", None, 8, "not known"),
        ("released", None, 8, "not known"),
        ("up", None, 0, "fit"),
        ("up", None, 8, "unfit"),
        ("none", None, None, "fit"),
    ],
)
def test_a_driver_that_does_not_answer_is_no_fit_node(
    state: str, expected: int | None, bus: int | None, verdict: str
) -> None:
    """Unless there is no GPU that it could read."""
    reading = NodeReading(Inventory(node="n1", driver_state=state), {}, [])
    ((_, said),) = found(driver_results(reading, expected, bus))
    assert said == verdict


def test_gpus_are_counted_on_the_bus(tmp_path: Path) -> None:
    """A GPU that is passed to a virtual machine does not count, nor does its audio function."""
    drivers = tmp_path / "drivers"
    (drivers / "vfio-pci").mkdir(parents=True)
    for name, vendor, kind, driver in (
        ("0000:18:00.0", "0x10de", "0x030200", ""),
        ("0000:2a:00.0", "0x10de", "0x030000", ""),
        ("0000:2a:00.1", "0x10de", "0x040300", ""),
        ("0000:3a:00.0", "0x10de", "0x030200", "vfio-pci"),
        ("0000:00:02.0", "0x8086", "0x030000", ""),
    ):
        device = tmp_path / "devices" / name
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{kind}\n")
        if driver:
            (device / "driver").symlink_to(drivers / driver)
    assert gpus_on_the_bus(tmp_path / "devices", (NVIDIA,)) == 2
    assert gpus_on_the_bus(tmp_path / "none") is None


def test_the_node_is_judged_by_the_shipped_rules() -> None:
    node = Node()
    (well,) = node_results(node.reading)
    assert well.verdict is Verdict.FIT
    assert {"root_full", "clock_unsynchronised"} <= set(well.text.partition("rules ")[2].split(", "))
    node.set("node_root_free_ratio", 0.01)
    node.set("node_clock_synchronised", NOT_SUPPORTED)
    node.set("node_filesystem_free_ratio", NO_PERMISSION)
    results = list(node_results(node.reading))
    assert [(one.rule, one.verdict.value) for one in results[:2]] == [
        ("root_full", "degraded"),
        ("ring_disk_full", "not known"),
    ]
    assert "1.0%" in results[0].text


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (XID_79, "unfit"),
        (XID_63, "degraded"),
        (XID_13, "fit"),
        ("", "fit"),
        ("[1.0] usb 1-1: new device\n", "fit"),
        ("[1.0] NVRM: GPU 0000:18:00.0: an error that nobody has seen before\n", "not known"),
    ],
)
def test_the_kernel_log_is_judged_as_diagnose_does(tmp_path: Path, text: str, verdict: str) -> None:
    log = tmp_path / "kern.log"
    log.write_text(text)
    assert found(kernel_log_results(str(log), 60.0)) == [("kernel log", verdict)]


def test_a_kernel_log_that_can_not_be_read_is_not_known(tmp_path: Path) -> None:
    (missing,) = kernel_log_results(str(tmp_path / "none"), 60.0)
    assert (missing.verdict, missing.text) == (
        Verdict.UNKNOWN,
        f"{tmp_path}/none can't be read: No such file or directory",
    )
    assert found(kernel_log_results(str(tmp_path), 60.0)) == [("kernel log", "not known")]
    assert found(kernel_log_results(None, 60.0)) == [("kernel log", "left out")]


def test_old_records_of_the_kernel_do_not_count() -> None:
    """A pipe of packets reads as /dev/kmsg does: one record at a time."""
    read, write = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)
    try:
        now = 10_000.0  # a machine may have been up for less than two hours
        for seconds, text in ((-7200, "old"), (-60, "new"), (0, "newest")):
            os.write(write, f"3,1,{round((now + seconds) * 1e6)},-;{text}\n".encode())
        os.write(write, b"no header\n")
        texts = [one.rpartition(b";")[2].strip() for one in recent_records(read, now - 3600)]
        assert texts == [b"new", b"newest", b"no header"]
    finally:
        os.close(read)
        os.close(write)


def test_the_worst_counts_and_nothing_known_is_not_fit() -> None:
    def result(verdict: Verdict, text: str = "x") -> CheckResult:
        return CheckResult(check="part", verdict=verdict, text=text)

    assert verdict_of([]) is Verdict.UNKNOWN
    assert verdict_of([result(Verdict.LEFT_OUT)]) is Verdict.UNKNOWN
    assert verdict_of([result(Verdict.FIT), result(Verdict.LEFT_OUT)]) is Verdict.FIT
    assert verdict_of([result(Verdict.FIT), result(Verdict.UNKNOWN)]) is Verdict.UNKNOWN
    assert verdict_of([result(Verdict.UNKNOWN), result(Verdict.DEGRADED)]) is Verdict.DEGRADED
    several = [result(Verdict.UNFIT, "a"), result(Verdict.FIT), result(Verdict.UNFIT, "b")]
    assert verdict_of(several) is Verdict.UNFIT
    assert reason_of(several) == "part: a; part: b"
    assert reason_of([result(Verdict.FIT)]) == ""


async def test_the_whole_check_of_a_lost_gpu(tmp_path: Path) -> None:
    source = FakeSource(gpus=2)
    source.values = lambda block, tick: Node(2).rows.get(block, [])  # type: ignore[method-assign]
    source.lose(1)
    config = CollectorConfig(node="n1", source="nvml", state_dir=tmp_path, kernel_log=None)
    reply = await check_node(config, None, 60.0, source)
    assert reply.verdict is Verdict.UNFIT
    assert reply.results[0].verdict is Verdict.UNFIT
    assert "1 of 2 GPUs answer" in reply.reason
    assert source.closed


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [(["--gpus", "8"], 0, "fit"), (["--gpus", "9"], 1, "driver: 8 of 9 GPUs answer, as many as were asked for")],
)
def test_the_problem_detector_gets_one_short_line_and_its_own_codes(arguments: list[str], code: int, line: str) -> None:
    source = "simulated:two-dgx-h100?faults=none"
    result = kilowatch("check", "--plugin", "npd", "--source", source, *arguments)
    assert (result.exit_code, result.output) == (code, f"{line}\n")
    assert len(line) <= 80


def test_without_slurm_its_plugin_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = kilowatch("check", "--plugin", "slurm", "--source", "simulated:two-dgx-h100?faults=none")
    assert result.exit_code == 3
    assert "sinfo is not on the PATH" in result.output
