"""Every form of line that drivers, kernels and tools are known to write."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.notations.kernel_log import Assembler, DriverNote, GpuLost, KernelRecord, SXid, Xid, parse_line
from telemetry.notations.kernel_stamp import Stamp, parse_stamp

LOGS = Path(__file__).parents[2] / "../shared/data/captures/kernel_log"
needs_captures = pytest.mark.skipif(not LOGS.is_dir(), reason="no ../shared/data/captures")
LABELLED: list[dict[str, Any]] = (
    [json.loads(line) for line in (LOGS / "labelled_lines.jsonl").read_text().splitlines()] if LOGS.is_dir() else []
)


def feed(text: str) -> list[KernelRecord]:
    """Return the records of a text of several lines."""
    assembler = Assembler()
    records = [assembler.feed(line) for line in text.split("\n")]
    return [record for record in records if record is not None]


@needs_captures
@pytest.mark.captures
@pytest.mark.parametrize("truth", LABELLED, ids=lambda truth: str(truth["xid"] or truth["sxid"]))
def test_every_labelled_line_says_what_its_label_says(truth: dict[str, Any]) -> None:
    """Number, address and MIG instance are the labels' truth."""
    (record,) = feed(truth["line"])
    assert (record.xid if isinstance(record, Xid) else None) == truth["xid"]
    assert (record.sxid if isinstance(record, SXid) else None) == truth["sxid"]
    if isinstance(record, Xid | SXid):
        assert record.bdf == truth["bdf"]
        assert record.pci == truth["bdf"].removesuffix(".0") + ".0"
    if isinstance(record, Xid):
        assert record.gpu_instance == truth["gpu_instance"]


@needs_captures
@pytest.mark.captures
def test_the_recorded_logs() -> None:
    """16 lines of Xid 13 and one 43 in the one, nothing about a GPU in the other."""
    burst = feed((LOGS / "gpud_dmesg_xid13_burst_then_43.log").read_text())
    assert [record.xid for record in burst if isinstance(record, Xid)] == [13] * 16 + [43]
    last = burst[-1]
    assert isinstance(last, Xid)
    assert (last.pci, last.pid, last.process) == ("0000:38:00.0", 2924364, "pt_main_thread")
    assert last.detail == "Ch 00000008"
    assert feed((LOGS / "gpud_kmsg_1.log").read_text()) == []


PREFIXES = (
    "",
    "[171167.620236] ",
    "[    5.123456] ",
    "[171167.620236][ T1234] ",
    "[Sun Feb 23 16:24:18 2025] ",
    "kernel: [16450076.435595] ",
    "kern  :warn  : 2025-01-21T04:41:44,284345+00:00 ",
    "4,1227,123456,-;",
    "4,1227,1234567890,c,1,-;",
    "<4>[   12.345678] ",
    "Feb 23 16:24:18 gpu-07 kernel: ",
    "Feb  3 16:24:18 gpu-07 kernel: [  99.000001] ",
    "2025-02-23T16:24:18.123456+01:00 gpu-07 kernel: [  99.000001] ",
    "2025-02-23T16:24:18+0100 gpu-07 kernel: ",
)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_any_prefix_will_do(prefix: str) -> None:
    """What stands before `NVRM:` changes nothing."""
    line = (
        "NVRM: Xid (PCI:0000:9b:00): 119, pid=4242, name=nvc:[driver], a b, "
        "Timeout after 6s of waiting for RPC response from GPU1 GSP!"
    )
    record = parse_line(prefix + line)
    assert isinstance(record, Xid)
    assert (record.xid, record.pci, record.pid, record.process) == (119, "0000:9b:00.0", 4242, "nvc:[driver]")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "NVRM: Xid (PCI:0000:b3:00.0): 48, pid='<unknown>', name=<unknown>, DBE at 0x1",
            Xid(48, "0000:b3:00.0", "0000:b3:00.0", "DBE at 0x1"),
        ),
        (
            "NVRM: Xid (0000:03:00): 13, 0001 00000000 0000a097",
            Xid(13, "0000:03:00.0", "0000:03:00", "0001 00000000 0000a097"),
        ),
        (
            "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 31, pid=7, Ch 00000008",
            Xid(31, "0000:01:00.0", "0000:01:00", "Ch 00000008", gpu_instance=5, pid=7),
        ),
        (
            "NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:01): 43",
            Xid(43, "0000:01:00.0", "0000:01:00", "", gpu_instance=5, compute_instance=1),
        ),
        (
            "NVRM: Xid (PCI:0018:01:00): 154, GPU recovery action changed from 0x0 (None) to "
            "0x2 (OS Reboot)",
            Xid(154, "0018:01:00.0", "0018:01:00", "GPU recovery action changed from 0x0 (None) "
                "to 0x2 (OS Reboot)", action=(0, 2)),
        ),
        (
            "NVRM: Xid (PCI:0000:01:00): 95, pid=7062, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, "
            "D-RST: No",
            Xid(95, "0000:01:00.0", "0000:01:00", "Uncontained: LTC TAG (0x2, 0x1). RST: Yes, "
                "D-RST: No", pid=7062, reset=True, drain_and_reset=False),
        ),
        (
            "NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link -1 (0x021425c6 "
            "0x00000000)",
            Xid(149, "0009:01:00.0", "0009:01:00", "NETIR_LINK_EVT  Fatal   XC0 i0 Link -1 "
                "(0x021425c6 0x00000000)", fatal=True, link=-1, registers=(0x021425C6, 0)),
        ),
        (
            "NVRM: Xid (PCI:0019:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 12 (0x040980c2",
            Xid(145, "0019:01:00.0", "0019:01:00", "RLW_RXPIPE Nonfatal XC0 i0 Link 12 (0x040980c2",
                fatal=False, link=12),
        ),
        (
            "NVRM: Xid (PCI:0003:00:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error "
            "detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
            Xid(74, "0003:00:00.0", "0003:00:00", "NVLink: fatal error detected on link 14(0x0, "
                "0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)", link=14,
                registers=(0, 0, 0x10000, 0, 0, 0, 0)),
        ),
        ("NVRM: Xid (PCI:not an address): 77, x", Xid(77, None, "not an address", "x")),
        ("NVRM: Xid (PCI:0000:01:00): 4711, new", Xid(4711, "0000:01:00.0", "0000:01:00", "new")),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress",
            SXid(12028, "0000:05:00.0", "0000:05:00.0", "Non-fatal, Link 32 egress", 3, False, 32),
        ),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Data {0x1, 0x2}",
            SXid(20034, "0000:05:00.0", "0000:05:00.0", "Data {0x1, 0x2}", 0, continuation=True),
        ),
        (
            "[7.5] NVRM: GPU 0000:29:00.0: GPU has fallen off the bus.",
            GpuLost("0000:29:00.0", "NVRM: GPU 0000:29:00.0: GPU has fallen off the bus."),
        ),
        (
            "NVRM: GPU at PCI:0000:29:00: GPU has fallen off the bus.",
            GpuLost("0000:29:00.0", "NVRM: GPU at PCI:0000:29:00: GPU has fallen off the bus."),
        ),
        (
            "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x25:0x65:1480)",
            DriverNote("init_failed", "0000:01:00.0",
                       "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x25:0x65:1480)"),
        ),
        (
            "NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!",
            DriverNote("nvlink_failed", None, "NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: "
                       "Failed to update Rx Detect Link mask!"),
        ),
        (
            "NVRM: API mismatch: the client has the version 580.1, but",
            DriverNote("mismatch", None, "NVRM: API mismatch: the client has the version 580.1, "
                       "but"),
        ),
        (
            "[9.1] INFO: task nvidia-smi:4711 blocked for more than 122 seconds.",
            DriverNote("task_hung", None, "INFO: task nvidia-smi:4711 blocked for more than 122 "
                       "seconds."),
        ),
        ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.1", None),
        ("[9.1] INFO: task nfsd:4711 blocked for more than 122 seconds.", None),
        ("12,5,99,-;NVRM: Xid (PCI:0000:01:00): 79, written by a program", None),
        ("usb 1-1: new device", None),
    ],
)  # fmt: skip
def test_lines_and_what_they_say(line: str, expected: KernelRecord | None) -> None:
    """The whole record."""
    assert parse_line(line) == expected


FORGED = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/user.slice/{},task=x,pid=7,uid=1000",
    "Out of memory: Killed process 123 ({}) total-vm:1kB, anon-rss:1kB",
    "traps: x[4711] trap invalid opcode ip:401000 sp:7ffd10 error:0 in {}[400000+1000]",
    "NVRM: x[4711]: segfault at 0 ip 0000000000401000 sp 00007ffd error 4 in {}[400000+1000]",
    "NVRM: Xid (PCI:[4711]: segfault at 0 ip 401000 sp 7ffd10 error 4 in a): 79, {}[55d4+1000]",
    "NVRM: GPU 1:1:1[4711]: segfault at 0 ip 401 sp 7ff error 4 in has fallen off the bus[4+1]",
    "NVRM: knvlinkAB: page allocation failure: order:9, nodemask=(null),cpuset={},mems_allowed=0",
    "input: {} as /devices/virtual/input/input7",
    "usb 1-1: Product: {}",
    'audit: type=1701 auid=1000 comm="{}" exe="/tmp/x" sig=11',
    "SXid (1:1:1): 2: page allocation failure: order:9",
    "cgroup: fork rejected by pids controller in /user.slice/{}",
    "warning: `x' uses wireless extensions\x0a{}",
)
"""Lines of the kernel into which it prints names that any local user chooses."""
STOLEN = (
    "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.",
    "NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.",
    "NVRM: The NVIDIA GPU 0000:01:00.0",
    "NVRM: fallen off the bus and is not responding to commands.",
    "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    "INFO: task nvidia-smi:4711 blocked for more than 122 seconds.",
)


@pytest.mark.parametrize("forged", FORGED)
@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_name_that_reads_like_the_driver_is_no_record(prefix: str, forged: str) -> None:
    for stolen in STOLEN:
        line = prefix + forged.format(stolen)
        assert parse_line(line) is None, line
        assert Assembler().feed(line) is None


@pytest.mark.parametrize(
    "prefix",
    [
        *PREFIXES,
        "gpu07: [171167.620236] ",
        "10.0.0.7: kern: warning: [2026-04-22T21:27:51.291660856Z]: ",
        "<4>Feb 14 05:03:41 node1 kernel: ",
        "<4>1 2025-02-23T16:24:18.123Z node1 kernel - - - ",
        "11月 15 14:15:47 node1 kernel: ",
        "févr. 15 07:56:59 node1 kernel: ",
        "[Mo Mär  3 16:24:18 2025] ",
        "[Fri Oct 14 14:56:49 2022 <    0.000012>] ",
        "[    5.123456 <    0.000012>] ",
        "[    5.123456][   C12] ",
        "Feb 23 16:24:18 node1 kernel[0]: ",
        "               ",
        "MESSAGE=",
    ],
)
def test_the_message_behind_every_prefix_that_tools_print(prefix: str) -> None:
    assert isinstance(parse_line(prefix + STOLEN[0]), Xid)
    assert isinstance(parse_line(prefix + STOLEN[1]), GpuLost)
    assert isinstance(parse_line(prefix + STOLEN[4]), SXid)


def test_a_recovery_action_in_digits_that_begin_with_a_zero() -> None:
    record = parse_line("NVRM: Xid (PCI:0000:01:00): 154, changed from 01 x to 02")
    assert isinstance(record, Xid)
    assert record.action == (1, 2)


def test_a_lost_gpu_told_in_three_lines_with_others_between() -> None:
    """And the same beginning with another end is no loss."""
    begin = "[1.1] NVRM: The NVIDIA GPU 0000:18:00.0"
    middle = "[1.1] NVRM: (PCI ID: 10de:2901) installed in this system has"
    end = "[1.1] NVRM: fallen off the bus and is not responding to commands."
    (record,) = feed("\n".join([begin, "[1.1] usb 1-1: reset", middle, "audit: x", end]))
    assert isinstance(record, GpuLost)
    assert record.pci == "0000:18:00.0"
    assert feed(f"{begin}\n{middle}\n[1.1] NVRM: not supported by this driver\nusb\n") == []
    (lone,) = feed(end)
    assert isinstance(lone, GpuLost)
    assert lone.pci is None
    one_line = (
        "NVRM: The NVIDIA GPU 0000:18:00.0 (PCI ID: 10de:2901) installed in this system has "
        "fallen off the bus and is not responding to commands."
    )
    (record,) = feed(one_line)
    assert isinstance(record, GpuLost)
    assert record.pci == "0000:18:00.0"


@pytest.mark.parametrize(
    ("prefix", "expected"),
    list(
        zip(
            PREFIXES,
            (
                Stamp(),
                Stamp(171167.620236),
                Stamp(5.123456),
                Stamp(171167.620236),
                Stamp(None, datetime(2025, 2, 23, 16, 24, 18)),  # noqa: DTZ001 - local time of the node
                Stamp(16450076.435595),
                Stamp(None, datetime(2025, 1, 21, 4, 41, 44, 284345, UTC)),
                Stamp(0.123456),
                Stamp(1234.56789),
                Stamp(12.345678),
                Stamp(None, datetime(2024, 2, 23, 16, 24, 18)),  # noqa: DTZ001
                Stamp(99.000001, datetime(2024, 2, 3, 16, 24, 18)),  # noqa: DTZ001
                Stamp(99.000001, datetime(2025, 2, 23, 16, 24, 18, 123456, timezone(timedelta(hours=1)))),
                Stamp(None, datetime(2025, 2, 23, 16, 24, 18, 0, timezone(timedelta(hours=1)))),
            ),
            strict=True,
        )
    ),
)
def test_the_time_of_every_prefix(prefix: str, expected: Stamp) -> None:
    """Syslog names no year; the caller does."""
    assert parse_stamp(prefix + "NVRM: Xid (PCI:0000:9b:00): 13, x", year=2024) == expected


def test_a_day_that_is_none_has_no_time() -> None:
    """Never an error."""
    assert parse_stamp("Feb 31 16:24:18 host kernel: NVRM: x", year=2024) == Stamp()
    assert parse_stamp("Feb 23 16:24:18 host kernel: NVRM: x") == Stamp()


@given(
    st.text(max_size=200),
    st.sampled_from(
        [
            "",
            "NVRM: Xid (",
            "NVRM: ",
            "SXid (PCI:",
            "NVRM: Xid (PCI:0000:01:00): 154, ",
            "NVRM: Xid (0:1:2): 154, from 01 x to ",
        ]
    ),
    st.text(max_size=200),
)
def test_no_text_raises(before: str, middle: str, after: str) -> None:
    """The kernel log is written by everything that runs. What is no kernel record is nothing else either."""
    line = before + middle + after
    stamp = parse_stamp(line, year=2025)
    assert isinstance(stamp, Stamp)
    for record in (parse_line(line), Assembler().feed(line)):
        assert record is None or isinstance(record, KernelRecord)


@given(st.integers(0, 200), st.sampled_from(PREFIXES))
def test_a_line_cut_anywhere_keeps_its_number_or_says_nothing(at: int, prefix: str) -> None:
    """Never another number: it counts only with what stands behind it, or at the line's end."""
    line = prefix + "NVRM: Xid (PCI:0000:01:00): 79, pid=12, name=x, GPU has fallen off the bus."
    record = parse_line(line[:at])
    if isinstance(record, Xid):
        assert record.xid == 79 or line[:at].endswith(": 7")
