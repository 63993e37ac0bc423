"""Statements about faults outside of the GPU drivers: each row of the catalogue proves itself by its line."""

from __future__ import annotations

import re

import pytest

from alerts.rules.rule import load
from telemetry.notations.kernel_log import kernel_message, parse_line, parse_node_line
from telemetry.statements.node import (
    MARKS,
    SUSPICIOUS,
    FirmwareRecords,
    NodeNote,
    NodeStatement,
    find_node_statement,
    node_statements,
    suspicious,
)

ALL = list(node_statements().values())
names = pytest.mark.parametrize("said", ALL, ids=lambda one: one.name)
REPORTED = [one for one in ALL if one.severity != "ignore"]
STAMPS = ("", "[171167.620236] ", "4,1227,123456,-;", "Feb 23 16:24:18 gpu-07 kernel: ", "kern  :warn  : 2025-01-21T04:41:44,284345+00:00 ")  # fmt: skip


def note_of(text: str, stamp: str = "") -> NodeNote | None:
    """Return the statement of a line, or of the lines of a record."""
    records = FirmwareRecords()
    errors: list[str] = []
    message = ""
    for line in text.split("\n"):
        read = kernel_message(stamp + line)
        if read is None:
            return None
        message = read.text
        errors += records.feed(message)[1]
    errors += records.flush()
    return find_node_statement(errors[-1] if errors else message)


def test_the_catalogue_has_what_was_asked_for() -> None:
    assert {one.subsystem for one in REPORTED} == {
        "host memory", "CPU", "PCI Express", "storage", "file systems", "network file systems", "network", "kernel",
        "GPU driver", "daemons",
    }  # fmt: skip
    rules = {rule.name for rule in load()}
    for one in ALL:
        assert one.severity in {"page", "ticket", "info", "ignore"}, one.name
        assert one.meaning.endswith("."), one.name
        assert one.remedy.endswith("."), one.name
        assert one.source, one.name
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", one.date), one.name
        assert one.rule is None or one.rule in rules, one.name
        faults = {each.fault for each in ALL}
        assert {*one.caused_by, one.ended_by or one.fault} <= faults, one.name


@names
def test_the_line_of_a_row_is_that_statement(said: NodeStatement) -> None:
    note = note_of(said.example)
    assert note is not None
    assert note.statement.name == said.name


@names
def test_a_line_that_reads_alike_is_another(said: NodeStatement) -> None:
    for line in said.unlike:
        note = note_of(line)
        assert note is None or note.statement.fault != said.fault, line


@names
def test_the_line_of_a_row_is_found_in_a_large_log(said: NodeStatement) -> None:
    """By one of the marks, unless it is harmless and reads like nothing."""
    for line in said.example.split("\n"):
        text = line.partition("]: ")[2] or line
        if said.severity != "ignore" or suspicious(text, None):
            assert any(mark in line for mark in (*MARKS, "INFO: task ")), line


def test_each_word_that_reads_like_an_error_has_a_mark() -> None:
    """A line without a mark is never read, whatever it says."""
    optional = r"\(\?:[^()]*\)\??|\w\?|\\w\{\d,\d\}"
    words = re.sub(optional, "", SUSPICIOUS.pattern.removeprefix(r"\b(?:").removesuffix(r")\b"))
    for word in words.split("|"):
        initials, rest = word[1:].split("]") if word[0] == "[" else (word[0], word[1:])
        for initial in initials:
            assert any(mark in initial + rest for mark in MARKS), initial + rest


@pytest.mark.parametrize("stamp", STAMPS)
def test_a_statement_counts_behind_any_stamp(stamp: str) -> None:
    for said in ALL:
        if said.speaker != "gridd":  # a daemon writes to syslog
            note = note_of(said.example, stamp)
            assert note is not None, stamp + said.example
            assert note.statement.name == said.name


@pytest.mark.parametrize(
    ("line", "unit"),
    [
        ("EDAC MC1: 3 UE memory read error on CPU_SrcID#1_MC#1_Chan#0_DIMM#1 (channel:0 slot:1 page:0x1)", "CPU_SrcID#1_MC#1_Chan#0_DIMM#1"),
        ("nvme nvme12: Removing after probe failure status: -19", "nvme12"),
        ("EXT4-fs error (device sdc3): ext4_find_entry:1455: inode #2: comm x: reading directory lblock 0", "sdc3"),
        ("nfs: server 10.4.0.9 not responding, timed out", "10.4.0.9"),
        ("mlx5_core 0001:9c:00.1 rdma3: TX timeout detected", "0001:9c:00.1"),
        ("NETDEV WATCHDOG: CPU: 3: eth9 (ice): transmit queue 4 timed out 5012 ms", "eth9"),
        ("watchdog: BUG: soft lockup - CPU#127 stuck for 22s! [x:1]", "CPU#127"),
    ],
)  # fmt: skip
def test_the_unit_that_a_line_names(line: str, unit: str) -> None:
    note = note_of(line)
    assert note is not None
    assert note.unit == unit


@pytest.mark.parametrize("said", REPORTED, ids=lambda one: one.name)
@pytest.mark.parametrize(
    "forged",
    [
        "{head}[4711]: segfault at 0 ip 0000000000401000 sp 00007ffd error 4 in {line}[400000+1000]",
        "usb 1-1: Product: {line}",
        'audit: type=1701 auid=1000 comm="{line}" exe="/tmp/x" sig=11',
        "Feb 23 16:24:18 gpu-07 sshd[77]: {line}",
        "12,5,99,-;{line}",
    ],
    ids=["process", "usb", "audit", "program", "kmsg"],
)
def test_a_name_that_reads_like_a_statement_is_none(said: NodeStatement, forged: str) -> None:
    line = said.example.split("\n", maxsplit=1)[0]
    note = note_of(forged.format(head=line[:15], line=line))
    assert note is None or note.statement.severity == "ignore"


def test_the_collector_hears_what_no_reading_shows() -> None:
    """From the kernel alone; what a counter or a state shows too has its rule, and a GPU driver's catalogue the rest. A
    line may name the unit of what a reading shows."""
    heard = [said for said in ALL if said.heard]
    assert {said.fault for said in heard} >= {"drive_lost", "raid_lost", "filesystem_readonly", "nic_failed", "iommu_fault"}  # fmt: skip
    for said in ALL:
        line = said.example.split("\n", maxsplit=1)[0]
        assert parse_line(line) is None, line
        found = parse_node_line(f"4,1227,123456,-;{line}")
        note = note_of(line)
        names = said.names_unit and note is not None and note.statement is said and bool(note.unit)
        assert (found is not None and found.what == said.name) == (said.heard or names), line
        assert parse_node_line(f"12,1227,123456,-;{line}") is None, "a program's"
        assert parse_node_line(line) is None, "anybody's"


@pytest.mark.parametrize(
    ("message", "level", "expected"),
    [
        ("quxdrv 7: flux capacitor failed", None, True),
        ("quxdrv 7: BUG in the flux table", 6, True),
        ("quxdrv 7: the flux is gone", 3, True),
        ("quxdrv 7: the flux is gone", 4, False),
        ("quxdrv 7: flux debugging enabled", None, False),
        ("quxdrv 7: scan done, no errors", None, False),
        ("quxdrv 7: mounted with errors=remount-ro", None, False),
    ],
)
def test_what_reads_like_an_error(message: str, level: int | None, expected: bool) -> None:
    assert suspicious(message, level) is expected
