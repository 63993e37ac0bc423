"""Faults of a node outside of its GPU drivers in saved logs."""

from __future__ import annotations

import pytest

from alerts.diagnosis.diagnosis import Diagnosis
from alerts.diagnosis.finding import Finding
from telemetry.statements.node import NodeStatement, node_statements

REPORTED = [one for one in node_statements().values() if one.severity in {"page", "ticket"}]
NIC = "mlx5_core 0000:9c:00.0 ib2: Link "
RECORD = next(one for one in REPORTED if one.name == "record_pcie_gpu").example


def diagnose(*lines: str) -> list[Finding]:
    """Return the findings of a log whose lines are a second apart."""
    diagnosis = Diagnosis()
    diagnosis.next_log("x")
    diagnosis.feed("".join(f"[{100 + n}.000000] {line}\n" for n, line in enumerate(lines)))
    return diagnosis.incidents()


def said(*lines: str) -> list[tuple[str, str, str | None]]:
    return [(one.severity.value, one.fault, one.unit) for one in diagnose(*lines)]


@pytest.mark.parametrize("statement", REPORTED, ids=lambda one: one.name)
def test_a_saved_log_with_a_statement_has_its_finding(statement: NodeStatement) -> None:
    stamp = "" if statement.speaker == "gridd" else "[100.0] "
    diagnosis = Diagnosis()
    diagnosis.next_log("x")
    diagnosis.feed("\n".join(stamp + line for line in statement.example.split("\n")))
    (one,) = diagnosis.incidents()
    assert (one.severity.value, one.fault) == (statement.severity, statement.fault)
    assert one.action.startswith(f"{statement.meaning} {statement.remedy}")
    assert diagnosis.unknown_lines("x") == {}


def test_what_a_lost_drive_takes_with_it_is_one_finding() -> None:
    (one,) = diagnose(
        "nvme nvme5: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff",
        "nvme nvme5: Removing after probe failure status: -19",
        "I/O error, dev nvme5n1, sector 64 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 2",
        "EXT4-fs (nvme5n1p3): Remounting filesystem read-only",
    )
    assert (one.severity.value, one.fault, one.unit, one.count) == ("page", "drive_lost", "nvme5", 4)
    assert "filesystem_readonly (nvme5n1p3)" in one.action


def test_a_drive_is_no_cause_of_what_another_has() -> None:
    found = said(
        "nvme nvme1: Removing after probe failure status: -19", "EXT4-fs (nvme10n1p3): Remounting filesystem read-only"
    )
    assert {unit for *_, unit in found} == {"nvme1", "nvme10n1p3"}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([NIC + "down"], [("ticket", "nic_link", "0000:9c:00.0")]),
        ([NIC + "down", NIC + "up"], []),
        ([NIC + "down", NIC + "up"] * 4, [("ticket", "nic_link", "0000:9c:00.0")]),
        (["nfs: server s3 not responding, still trying", "nfs: server s3 OK"], []),
        (["nfs: server s3 not responding, still trying", "nfs: server s4 OK"],
         [("page", "mount_dead", "s3")]),
        (["EDAC MC0: 1 CE memory read error on DIMM_A1 (channel:1)"] * 9,
         [("info", "host_memory_corrected", "DIMM_A1")]),
        (["EDAC MC0: 1 CE memory read error on DIMM_A1 (channel:1)"] * 10,
         [("ticket", "host_memory_corrected", "DIMM_A1")]),
    ],
)  # fmt: skip
def test_what_has_ended_and_what_comes_again(lines: list[str], expected: list[tuple[str, str, str | None]]) -> None:
    assert said(*lines) == expected


@pytest.mark.parametrize(
    "stamp",
    ["[{}.5] ", "Nov 20 10:00:{:02} n1 kernel: ", "Nov 20 10:00:01 n1 kernel: "],
    ids=["boot", "clock", "one second"],
)
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([NIC + "up", NIC + "down"], ["nic_link"]),
        ([NIC + "down", NIC + "up"], []),
        ([NIC + "down", NIC + "up", NIC + "down"], ["nic_link"]),
        (["nfs: server s3 OK", "nfs: server s3 not responding, still trying"], ["mount_dead"]),
        (["nfs: server s3 not responding, still trying", "nfs: server s3 OK"], []),
    ],
)
def test_a_log_with_its_newest_line_first_says_the_same(lines: list[str], expected: list[str], stamp: str) -> None:
    """By the times of its lines, and by their order where those are of one second."""
    log = [stamp.format(n) + line for n, line in enumerate(lines, 10)]
    log.append("Nov 20 11:00:00 n1 kernel: EDAC MC: failed" if "01" in stamp else "[1000] EDAC MC: failed")
    for text in (log, log[::-1]):
        diagnosis = Diagnosis()
        diagnosis.next_log("x")
        diagnosis.feed("\n".join(text))
        assert [one.fault for one in diagnosis.incidents()] == expected


def test_a_port_that_goes_down_in_the_new_year_is_down() -> None:
    """Syslog names no year."""
    times = "Dec 31 23:59:50 n1 kernel: ", "Jan  1 00:01:00 n1 kernel: "
    for states, expected in ((("up", "down"), ["nic_link"]), (("down", "up"), [])):
        diagnosis = Diagnosis()
        diagnosis.next_log("x")
        lines = (stamp + NIC + state for stamp, state in zip(times, states, strict=True))
        diagnosis.feed("\n".join(lines))
        assert [one.fault for one in diagnosis.incidents()] == expected


def test_a_finding_of_a_log_with_its_newest_line_first_begins_with_its_oldest() -> None:
    lines = [f"[{n}.5] nfs: server s3 not responding, still trying\n" for n in (30, 20, 10)]
    diagnosis = Diagnosis()
    diagnosis.next_log("x")
    diagnosis.feed("".join(lines))
    (one,) = diagnosis.incidents()
    assert (one.first, one.last) == ("10.5 s after boot", "30.5 s after boot")


def test_what_a_line_without_a_unit_ends_and_a_fault_without_one() -> None:
    path = "nvme 0000:4f:00.0: Failed reconnect attempt 3"
    assert said(path) == [("ticket", "storage_path", None)]
    assert said(path, "nvme nvme3: Successfully reconnected (1 attempt)") == []


def test_more_ends_than_are_kept_leave_a_fault_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alerts.diagnosis.node_faults.MOST_FAULTS", 2)
    silent = "nfs: server s2 not responding, timed out"
    assert said("nfs: server s1 OK", silent, "nfs: server s2 OK") == [("page", "mount_dead", "s2")]


def test_a_record_of_the_firmware_names_its_gpu() -> None:
    """A second record, of a bridge, is another."""
    (gpu, port) = diagnose(
        *RECORD.split("\n"),
        *RECORD.replace("{2}", "{3}")
        .replace("4f:00.0", "4e:01.0")
        .replace("0x10de", "0x8086")
        .replace("030200", "060400")
        .split("\n"),
    )
    assert (gpu.severity.value, gpu.fault, gpu.gpu) == ("page", "pcie_errors", "0000:4f:00.0")
    assert (port.severity.value, port.fault, port.unit) == ("ticket", "pcie_device_errors", "0000:4e:01.0")


def test_an_oops_is_told_with_the_module_of_its_stack() -> None:
    """That of a GPU's driver is a page."""
    lines = [
        "BUG: kernel NULL pointer dereference, address: 0000000000000010",
        "#PF: error_code(0x0000) - not-present page",
        "Oops: 0000 [#1] PREEMPT SMP NOPTI",
        "RIP: 0010:_nv041234rm+0x11/0x90 [nvidia]",
    ]
    diagnosis = Diagnosis()
    diagnosis.next_log("x")
    diagnosis.feed("".join(f"[50.1] {line}\n" for line in lines))
    (one,) = diagnosis.incidents()
    assert (one.severity.value, one.fault, one.count) == ("page", "kernel_oops", 2)
    assert "module nvidia." in one.action
    assert diagnosis.unknown_lines("x") == {}


@pytest.mark.parametrize(
    ("module", "severity"), [("nvidia_uvm", "page"), ("amdgpu", "page"), ("xe", "page"), ("xen_netback", "ticket")]
)
def test_an_oops_is_a_page_in_the_modules_of_gpus_only(module: str, severity: str) -> None:
    (one,) = diagnose(
        "BUG: kernel NULL pointer dereference, address: 0000000000000010", f"RIP: 0010:qux_poll+0x11/0x90 [{module}]"
    )
    assert (one.severity.value, one.fault) == (severity, "kernel_oops")


def test_a_task_that_hangs_in_the_driver_is_told_once() -> None:
    lines = [
        "[5.1] INFO: task python:12 blocked for more than 120 seconds.",
        "[5.1]  ? os_acquire_mutex+0x35/0x40 [nvidia]",
    ]
    diagnosis = Diagnosis()
    diagnosis.next_log("x")
    diagnosis.feed("\n".join(lines))
    assert [one.fault for one in diagnosis.incidents()] == ["driver_hung"]


def test_a_task_that_hangs_in_the_driver_takes_no_other_nodes_finding_away() -> None:
    hung = "Nov 20 10:00:{:02} {} kernel: INFO: task python:12 blocked for more than 120 seconds.\n"
    diagnosis = Diagnosis()
    diagnosis.next_log("x")
    diagnosis.feed(hung.format(1, "n2"))
    diagnosis.next_log("y")
    diagnosis.feed(
        hung.format(1, "n1")
        + hung.format(5, "n2")
        + hung.format(9, "n1")
        + "Nov 20 10:00:09 n1 kernel:  ? os_acquire_mutex+0x35/0x40 [nvidia]\n"
    )
    found = {(one.fault, one.node, one.count) for one in diagnosis.incidents()}
    assert found == {("driver_hung", "n1", 1), ("task_hung", "n1", 1), ("task_hung", "n2", 2)}


def test_lines_of_unknown_meaning_are_counted_by_part_of_the_node() -> None:
    diagnosis = Diagnosis()
    diagnosis.next_log("x")
    diagnosis.feed(
        "[1.0] nvme nvme0: the flux table failed\n"
        "[2.0] nvme nvme0: the flux table failed again\n"
        "[3.0] quxdrv 7: BUG in the flux table\n"
        "Feb 23 16:24:18 n1 sshd[77]: error: no flux\n"
        "<3>[4.0] quxdrv 7: the flux is gone\n"
        "the flux failed\n"
    )
    unknown = diagnosis.unknown_lines("x")
    assert {name: count for name, (count, _) in unknown.items()} == {"storage": 2, "kernel": 2}
    assert unknown["storage"][1] == "nvme nvme0: the flux table failed"
