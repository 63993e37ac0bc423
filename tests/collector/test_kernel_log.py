"""The reader of the kernel's messages: growing files, FIFOs, and what may not be read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collector.host import kernel_log
from collector.host.kernel_log import MAX_WAITING, KernelLog
from collector.source import DeviceEvent
from telemetry.notations.kernel_log import KernelRecord
from tests.kit.waiting import wait_until

XID = "NVRM: Xid (PCI:0000:01:00): {}, pid=7, name=python3, something\n"
BOUND = 30.0


class Reading:
    """A log under test and what came out of it."""

    def __init__(self, log: KernelLog) -> None:
        self.log = log
        self.came: list[DeviceEvent] = []

    def xids(self, count: int) -> list[object]:
        """Wait for so many, and return all."""

        def enough() -> bool:
            self.came += self.log.drain()
            return len(self.came) >= count

        wait_until(enough)
        return [event.data.get("xid") for event in self.came]


@pytest.fixture
def reading() -> Iterator[Callable[[KernelLog], Reading]]:
    """Start a log, and close it whatever happens."""
    logs: list[KernelLog] = []

    def start(log: KernelLog) -> Reading:
        logs.append(log)
        log.start()
        return Reading(log)

    yield start
    for log in logs:
        log.close()
        assert log.state == "closed"
        assert not log._thread.is_alive()


def append(path: Path, text: str) -> None:
    """Write as a logger does."""
    with path.open("a") as file:
        file.write(text)


def test_only_what_is_written_from_now_on_counts(tmp_path: Path, reading: Callable[[KernelLog], Reading]) -> None:
    """Lines come in halves; a event carries what the line says."""
    path = tmp_path / "kern.log"
    path.write_text(XID.format(13))
    seen = reading(KernelLog(path, clock=lambda: 42))
    wait_until(lambda: seen.log.state == "reading")
    append(path, "usb 1-1: new device\n" + XID.format(79)[:30])
    append(path, XID.format(79)[30:])
    assert seen.xids(1) == [79]
    (event,) = seen.came
    assert event == DeviceEvent(
        "xid",
        42,
        pci="0000:01:00.0",
        message="XID 79: something",
        data={"xid": 79, "pid": 7, "process": "python3", "line": XID.format(79).strip(), "source": "kernel"},
    )


def test_a_fault_of_the_node_that_only_the_log_tells(tmp_path: Path, reading: Callable[[KernelLog], Reading]) -> None:
    """With the part that the line names; what readings show too, and a program's line, are no events."""
    path = tmp_path / "kern.log"
    path.write_text(
        "<4>EDAC MC3: 2 UE memory scrubbing error on DIMM#1 (channel:0 slot:1 page:0x1)\n"
        "sshd[7]: ice 0000:9c:00.0: Adapter removed\n"
        "[171167.620236] ice 0000:9c:00.0: Adapter removed\n"
        "[171168.620236] XFS (sdb1): Filesystem has been shut down due to log error (0x2).\n"
    )
    seen = reading(KernelLog(path, from_start=True, clock=lambda: 42))
    seen.xids(2)
    assert [(one.kind, one.pci, one.data["what"], one.data["unit"]) for one in seen.came] == [
        ("node_log", None, "adapter_gone", "0000:9c:00.0"),
        ("node_log", None, "xfs_shut_down", "sdb1"),
    ]


def test_a_line_on_which_we_fail_costs_that_line_alone(
    tmp_path: Path, reading: Callable[[KernelLog], Reading], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is reported as it is, and the XIDs behind it are read on."""
    path = tmp_path / "kern.log"
    path.write_text("")
    seen = reading(KernelLog(path, from_start=True))
    whole = kernel_log.event_of

    def failing(record: KernelRecord, line: str, at: int) -> DeviceEvent:
        if "31" in line:
            raise ValueError("a bug of ours")
        return whole(record, line, at)

    monkeypatch.setattr(kernel_log, "event_of", failing)
    append(path, XID.format(31) + XID.format(48))
    assert seen.xids(2) == [None, 48]
    assert seen.log.unreadable == 1
    assert (seen.log.state, seen.came[0].data["line"]) == ("reading", XID.format(31).strip())


def test_a_recovery_action_of_an_unknown_form_ends_no_reader(
    tmp_path: Path, reading: Callable[[KernelLog], Reading]
) -> None:
    path = tmp_path / "kern.log"
    path.write_text("")
    seen = reading(KernelLog(path, from_start=True))
    append(path, "NVRM: Xid (PCI:0000:01:00): 154, from 01 x to 02\n" + XID.format(79))
    assert seen.xids(2) == [154, 79]


def test_the_time_in_a_line_is_used(tmp_path: Path, reading: Callable[[KernelLog], Reading]) -> None:
    """With its zone; else the time is when it came."""
    path = tmp_path / "kern.log"
    path.write_text("2025-02-23T16:24:18.5+01:00 host kernel: " + XID.format(79) + XID.format(48))
    seen = reading(KernelLog(path, from_start=True, clock=lambda: 42))
    seen.xids(2)
    assert [event.at for event in seen.came] == [1740324258_500_000_000, 42]


def test_a_file_is_followed_through_rotation_and_truncation(
    tmp_path: Path, reading: Callable[[KernelLog], Reading]
) -> None:
    """As `tail -F` does; no line is lost between the two files."""
    path = tmp_path / "kern.log"
    path.write_text("")
    seen = reading(KernelLog(path, from_start=True))
    append(path, XID.format(31))
    assert seen.xids(1) == [31]
    path.rename(tmp_path / "kern.log.1")
    path.write_text(XID.format(48) + XID.format(63))
    assert seen.xids(3) == [31, 48, 63]
    path.write_text(XID.format(94))  # shorter than before: cut and begun again
    assert seen.xids(4) == [31, 48, 63, 94]


def test_a_file_that_is_not_there_yet_is_waited_for(tmp_path: Path, reading: Callable[[KernelLog], Reading]) -> None:
    """Its absence is one event, and the first line of the file counts."""
    path = tmp_path / "kern.log"
    seen = reading(KernelLog(path))
    wait_until(lambda: seen.log.state == "absent")
    path.write_text(XID.format(79))
    assert seen.xids(2) == [None, 79]
    assert seen.came[0].kind == "driver_log"
    assert "not there" in seen.came[0].message
    assert seen.log.state == "reading"
    assert seen.log.message == ""


def test_a_fifo_outlives_its_writers(tmp_path: Path, reading: Callable[[KernelLog], Reading]) -> None:
    """Two writers, one after the other."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    seen = reading(KernelLog(path))
    wait_until(lambda: seen.log.state == "reading")
    for number in (13, 43):
        append(path, XID.format(number))
    assert seen.xids(2) == [13, 43]


def test_what_may_not_be_read_is_one_event_with_its_cure(
    tmp_path: Path, reading: Callable[[KernelLog], Reading], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read anything, so the kernel's answer is put in its mouth when root runs this."""
    monkeypatch.setattr("collector.host.kernel_log._LONGEST_PAUSE", 0.05)
    path = tmp_path / "kern.log"
    path.write_text("")
    path.chmod(0)
    if os.access(path, os.R_OK):

        def refuse(*_: object, **__: object) -> int:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr("collector.host.kernel_log.os.open", refuse)
    seen = reading(KernelLog(path))
    seen.xids(1)
    assert seen.log.state == "no_permission"
    assert "CAP_SYSLOG" in seen.came[0].message
    assert seen.came[0].data["state"] == "no_permission"
    path.chmod(0o600)
    monkeypatch.undo()
    wait_until(lambda: seen.log.state == "reading")  # it is tried again


def test_a_folder_is_a_failure_and_no_crash(tmp_path: Path, reading: Callable[[KernelLog], Reading]) -> None:
    """A wrong path in the configuration."""
    seen = reading(KernelLog(tmp_path))
    seen.xids(1)
    assert seen.log.state == "failed"
    assert "Is a directory" in seen.log.message


def test_a_storm_keeps_the_newest_and_counts_the_rest(tmp_path: Path, reading: Callable[[KernelLog], Reading]) -> None:
    """Memory stays small without a reader."""
    path = tmp_path / "kern.log"
    path.write_text("".join(XID.format(number) for number in range(MAX_WAITING + 100)))
    log = reading(KernelLog(path, from_start=True)).log
    wait_until(lambda: log.dropped == 100)
    xids = [event.data["xid"] for event in log.drain()]
    assert xids == list(range(100, MAX_WAITING + 100))


def test_records_of_the_kernel_device(reading: Callable[[KernelLog], Reading]) -> None:
    """The real /dev/kmsg where there is one: it opens, waits and closes, or says why not."""
    log = reading(KernelLog()).log
    wait_until(lambda: log.state != "new")
    assert log.state in {"reading", "absent", "no_permission", "failed"}
    assert (log.message == "") == (log.state == "reading")


def test_a_log_that_was_never_started_closes() -> None:
    """And closes twice."""
    log = KernelLog("/nowhere")
    log.close()
    log.close()
    assert log.drain() == []
