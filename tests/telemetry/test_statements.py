"""Statements of the driver in plain words: each row of the catalogue proves itself by its line."""

from __future__ import annotations

import re
from collections import Counter
from itertools import product

import pytest

from telemetry.notations.kernel_log import Assembler, DriverNote, GpuLost, KernelRecord, SXid, Xid
from telemetry.statements.catalogue import SPEAKERS, Statement, statements

ALL = list(statements().values())
BY_KERNEL = [one for one in ALL if one.speaker in {"nvrm", "uvm", "modeset", "drm", "device", "amdgpu", "port", "task"}]
OF_DAEMONS = [one for one in ALL if one not in BY_KERNEL]
names = pytest.mark.parametrize("said", ALL, ids=lambda one: one.name)


def record_of(line: str) -> KernelRecord | None:
    return Assembler().feed(line)


def test_the_catalogue_has_what_was_asked_for() -> None:
    """150 statements of every speaker, of each severity, each with source and date."""
    assert len(ALL) >= 150
    assert {one.speaker for one in ALL} == set(SPEAKERS)
    assert set(Counter(one.severity for one in ALL)) == {"page", "ticket", "info"}
    for one in ALL:
        assert one.source, one.name
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", one.date), one.name
        assert one.meaning.endswith("."), one.name
        assert one.remedy.endswith("."), one.name
    assert len({one.example for one in ALL}) == len(ALL)


@names
def test_the_line_of_a_row_is_that_statement(said: Statement) -> None:
    """A GPU that has fallen off the bus was a record of its own before there was a catalogue."""
    record = record_of(said.example)
    if said.name == "gpu_fallen_off":
        assert isinstance(record, GpuLost)
        assert record.pci == "0000:9b:00.0"
        return
    assert isinstance(record, DriverNote)
    assert record.what == said.name
    assert record.detail == said.example.strip()


@names
def test_no_row_matches_the_line_of_another_with_another_verdict(said: Statement) -> None:
    begins = SPEAKERS[said.speaker]
    for other in ALL:
        if re.match(f"{begins}(?:{said.pattern})", other.example) is not None:
            assert (other.fault, other.severity) == (said.fault, said.severity), other.name


@pytest.mark.parametrize(
    "prefix",
    ["", "[171167.620236] ", "[171167.620236][ T1234] ", "4,1227,123456,-;", "Feb 23 16:24:18 gpu-07 kernel: ",
     "kern  :warn  : 2025-01-21T04:41:44,284345+00:00 ", "MESSAGE="],
)  # fmt: skip
def test_the_kernels_statements_count_behind_any_stamp(prefix: str) -> None:
    for said in BY_KERNEL:
        assert record_of(prefix + said.example) is not None, prefix + said.example


@pytest.mark.parametrize("prefix", ["", "Feb 23 16:24:18 gpu-07 ", "2025-02-23T16:24:18+0100 gpu-07 "])
def test_the_daemons_statements_count_as_syslog_has_them(prefix: str) -> None:
    for said in OF_DAEMONS:
        record = record_of(prefix + said.example)
        assert isinstance(record, DriverNote), prefix + said.example
        assert record.what == said.name


def test_a_daemons_own_log_names_no_daemon_and_is_understood() -> None:
    for said in OF_DAEMONS:
        if said.speaker in {"fabric_manager", "imex"}:
            text = said.example.partition("]: ")[2]
            record = record_of(f"[Nov 22 2026 10:11:12] [ERROR] [tid 812] {text}")
            assert isinstance(record, DriverNote)
            assert record.what == said.name


FORGERIES = (
    "{head}[4711]: segfault at 0 ip 0000000000401000 sp 00007ffd error 4 in {line}[400000+1000]",
    "{head}: page allocation failure: order:9, mode:0x40dc0, nodemask=(null),cpuset={line},mems_allowed=0",
    "{head} invoked oom-killer: gfp_mask=0x1, order=0, oom_score_adj=0 {line}",
    "oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/user.slice/{line},task=x,pid=7,uid=1000",
    "traps: x[4711] trap invalid opcode ip:401000 sp:7ffd10 error:0 in {line}[400000+1000]",
    "usb 1-1: Product: {line}",
    "input: {line} as /devices/virtual/input/input7",
    'audit: type=1701 auid=1000 comm="{line}" exe="/tmp/x" sig=11',
)
"""Lines of the kernel with names that any user chooses: a process has 15 characters."""


@pytest.mark.parametrize(
    ("said", "forged"), list(product(BY_KERNEL, FORGERIES)), ids=lambda one: getattr(one, "name", "")
)
def test_a_name_that_reads_like_a_statement_is_none(said: Statement, forged: str) -> None:
    text = forged.format(head=said.example[:15], line=said.example)
    for line in (text, f"[171167.620236] {text}", f"4,1227,123456,-;{text}"):
        assert record_of(line) is None, line


def test_a_line_that_a_program_wrote_to_the_kernels_log_is_none() -> None:
    for said in ALL:
        assert record_of(f"12,5,99,-;{said.example}") is None
        assert record_of(f"30,5,99,-;{said.example}") is None


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025",
        "NVRM: GPU at PCI:0000:4f:00: GPU-fade0000-0000-4000-8000-000000000003",
        "NVRM: GPU Board Serial Number: 1654323000003",
        "NVRM: GPU0 nvAssertFailedNoLog: Assertion failed: 0 @ kernel_gsp.c:1446",
        "NVRM: nvCheckOkFailedNoLog: Check failed: Generic Error: Invalid state [NV_ERR_INVALID_STATE] (0x00000040)",
        "nvidia-uvm: Loaded the UVM driver, major device number 508.",
        "nvidia-modeset: Loading NVIDIA Kernel Mode Setting Driver for UNIX platforms  580.95.05",
        "nvidia-nvswitch3: open (major=510)",
        "nvidia 0000:4f:00.0: enabling device (0000 -> 0003)",
        "pcieport 0000:4e:00.0: PME: Signaling with IRQ 121",
        "pci 0000:4f:00.0: [10de:2901] type 00 class 0x030200 PCIe Endpoint",
        "Feb 23 16:24:18 gpu-07 nvidia-persistenced[1412]: Started (1412)",
        "Feb 23 16:24:18 gpu-07 systemd[1]: Started nvidia-fabricmanager.service",
        "[Nov 22 2026 10:11:12] [INFO] [tid 1803] multicast group 1 is allocated.",
    ],
)
def test_an_ordinary_line_is_no_statement(line: str) -> None:
    assert record_of(line) is None


def test_a_line_with_a_number_is_told_by_its_number_alone() -> None:
    """However it goes on."""
    for said in ALL:
        words = said.example.partition(": ")[2]
        assert isinstance(record_of(f"NVRM: Xid (PCI:0000:4f:00): 119, pid=7, name=x, {words}"), Xid)
        switch = record_of(f"nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 22003, Fatal, {words}")
        assert isinstance(switch, SXid)


@pytest.mark.parametrize(
    ("line", "pci"),
    [
        ("NVRM: GPU 0000:4f:00.0: rm_init_adapter failed, device minor number 3", "0000:4f:00.0"),
        ("pcieport 0000:4e:00.0: AER: Correctable error message received from 0000:4f:00.0", "0000:4f:00.0"),
        ("pcieport 0000:4e:00.0: DPC: ERR_FATAL detected", "0000:4e:00.0"),
        (
            "[drm:nv_drm_load [nvidia_drm]] *ERROR* [nvidia-drm] [GPU ID 0x00094f00] Failed to allocate NvKmsKapiDevice",
            "0009:4f:00.0",
        ),
        ("NVRM: GPU5 _kgspRpcRecvPoll: GSP RM heartbeat timed out", None),
    ],
)
def test_the_address_that_a_statement_is_about(line: str, pci: str | None) -> None:
    """Of the device that sent an error, where a port reports it."""
    record = record_of(line)
    assert isinstance(record, DriverNote)
    assert record.pci == pci
