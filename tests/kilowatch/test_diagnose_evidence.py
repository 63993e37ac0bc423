"""The evidence card of a finding in saved logs: complete as JSON, short and whole as text."""

from __future__ import annotations

import io
import json
import shlex
import tarfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from alerts.diagnosis.finding import Finding
from kilowatch.__main__ import main
from kilowatch.saved_logs.reader import SavedLogReader

REMAP = "NVRM: Xid (PCI:0000:18:00): 63, Row Remapper: New row (0x00000000000a) marked for remapping, reset gpu to activate."
LOST = "NVRM: Xid (PCI:0000:18:00): 79, pid=7, name=a, GPU has fallen off the bus."
OTHER = "NVRM: Xid (PCI:0000:5d:00): 31, pid=9, name=b, Ch 00000008, intr 10000000. MMU Fault"
HUNG = "NVRM: Xid (PCI:0000:18:00): 119, pid=1, Timeout after 45s of waiting for RPC response from GPU0 GSP! Expected function 76."
UUID = "GPU-0b1c2d3e-0000-0000-0000-000000000001"


def syslog(clock: str, message: str, node: str = "n1") -> str:
    """Return a line of the kernel as syslog has it."""
    return f"Feb 23 {clock} {node} kernel: {message}\n"


def document(clock: str, celsius: int = 41, pending: str = "No", *, bus: str = "00000000:18:00.0") -> str:
    """Return an output of `nvidia-smi -q` of one GPU."""
    return f"""
==============NVSMI LOG==============

Timestamp                                 : Sun Feb 23 {clock} 2025
Driver Version                            : 570.86.15
Attached GPUs                             : 1
GPU {bus}
    Product Name                          : NVIDIA H100 80GB HBM3
    GPU UUID                              : {UUID}
    Serial Number                         : 165
    GPU Recovery Action                   : None
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : 1
        Pending                           : {pending}
        Remapping Failure Occurred        : No
    Temperature
        GPU Current Temp                  : {celsius} C
    Processes                             : None
"""


def findings(**files: str) -> dict[str, Finding]:
    """Return the findings of files by their faults."""
    reader = SavedLogReader()
    for name, text in files.items():
        reader.read_stream(io.BytesIO(text.encode()), name)
    return {one.fault: one for one in reader.reply().findings}


def lines_of(observed: list[Any]) -> list[str]:
    """Return what was observed, in short."""
    return [f"{one.what} {one.node} {one.gpus[0].pci if one.gpus else '-'}" for one in observed]


def test_what_else_happened_on_the_node_within_five_minutes_is_on_the_card() -> None:
    """Neither the finding's own lines, nor those of another node, nor what came later."""
    found = findings(
        log=syslog("16:20:00", OTHER)
        + syslog("16:24:00", LOST)
        + syslog("16:24:30", OTHER, "n2")
        + syslog("16:29:01", OTHER)
    )
    card = found["gpu_lost"].evidence
    assert card is not None
    assert lines_of(card.nearby) == ["XID 31 n1 0000:5d:00.0"]
    assert (card.nearby_total, card.nearby[0].line) == (1, syslog("16:20:00", OTHER).strip())


def test_times_of_different_clocks_are_never_compared() -> None:
    """A document names a year and no zone; the journal names a zone; the ring buffer counts from the boot."""
    iso = f"2025-02-23T16:24:00+00:00 n1 kernel: {LOST}\n"
    found = findings(journal=iso, dmesg=f"[1.5] {OTHER}\n", smi=document("16:24:00", pending="Yes"))
    assert [found[name].moment.clock for name in ("gpu_lost", "remap_pending")] == ["utc", "local"]  # type: ignore[union-attr]
    assert all(one.evidence is not None and not one.evidence.nearby for one in found.values())


@pytest.mark.parametrize(
    ("line", "clock", "text", "seconds"),
    [
        (f"2025-02-23T16:24:00+01:00 n1 kernel: {LOST}", "utc", "2025-02-23T16:24:00+01:00", 1740324240.0),
        (f"[Sun Feb 23 16:24:00 2025] {LOST}", "local", "2025-02-23T16:24:00", 1740327840.0),
        (f"Feb 23 16:24:00 n1 kernel: {LOST}", "yearless", "Feb 23 16:24:00", 53 * 86400 + 59040.0),
        (f"Feb 23 16:24:00 gpu2024 kernel: {LOST}", "yearless", "Feb 23 16:24:00", 53 * 86400 + 59040.0),
        (f"[12.5] {LOST}", "boot", "12.5 s after boot", 12.5),
        (LOST, None, None, None),
    ],
)
def test_a_moment_has_the_clock_that_its_stamp_names(
    line: str, clock: str | None, text: str | None, seconds: float | None
) -> None:
    """A year or a zone that is not named is not made up."""
    moment = findings(log=line + "\n")["gpu_lost"].moment
    if clock is None:
        assert moment is None
        return
    assert moment is not None
    assert (moment.clock, moment.text, moment.seconds, moment.file) == (clock, text, seconds, "log")


@pytest.mark.parametrize(
    ("text", "fault", "clock"),
    [
        ("[Feb 23 2025 16:24:00] [ERROR] [tid 1907] failed to enable NVLinks to train on one of the NVSwitch fabric devices", "fabric", "local"),
        ("Feb 23 16:24:00 n1 nv-fabricmanager[1907]: failed to find the GPU handle 7 in the multicast team", "fabric", "yearless"),
        ("2025-02-23T16:24:00+01:00 n1 nv-fabricmanager[1907]: failed to find the GPU handle 7 in the team", "fabric", "utc"),
        ("[Feb 23 2025 16:24:00] [ERROR] [tid 1610] No matching network interface found for any IP addresses in the node configuration file /etc/nvidia-imex/nodes_config.cfg.", "imex", "local"),
    ],
    ids=["Fabric Manager", "Fabric Manager in syslog", "Fabric Manager in the journal", "IMEX"],
)  # fmt: skip
def test_the_logs_of_daemons_give_findings_a_time(text: str, fault: str, clock: str) -> None:
    """In their own logs they name a date without a zone."""
    one = findings(log=text + "\n")[fault]
    seconds = {"local": 1740327840.0, "yearless": 53 * 86400 + 59040.0, "utc": 1740324240.0}
    assert one.moment is not None
    assert (one.moment.clock, one.moment.seconds) == (clock, seconds[clock])
    assert one.first


def test_what_fabric_manager_says_is_near_what_the_driver_says() -> None:
    log = "[Feb 23 2025 16:23:30] [ERROR] [tid 1907] failed to enable NVLinks to train on one of the NVSwitch fabric devices\n"
    found = findings(dmesg=f"[Sun Feb 23 16:24:00 2025] {LOST}\n", fabricmanager=log)
    card = found["gpu_lost"].evidence
    assert card is not None
    assert [(one.what, one.kind) for one in card.nearby] == [("fabric", "state")]


def test_the_history_of_a_board_is_what_else_the_files_have_of_it() -> None:
    """By its place where no file names the board, and never the finding itself."""
    log = syslog("12:00:00", REMAP) + syslog("16:24:00", LOST) + syslog("18:24:00", HUNG)
    found = findings(log=log + syslog("18:24:00", LOST.replace("18:00", "5d:00")))
    card = found["gsp_dead"].evidence
    assert card is not None
    assert lines_of(card.history) == ["XID 63 n1 0000:18:00.0", "XID 79 n1 0000:18:00.0"]
    assert (card.history_total, "by node and PCI address" in card.missing["history"]) == (2, True)


def test_a_board_is_known_again_in_another_node_by_its_serial_number(tmp_path: Path) -> None:
    """In an archive of several nodes: the board was in n1 when it was lost, and is in n2 now."""
    files = {
        "n1/dmesg": syslog("16:24:00", LOST, "n1"),
        "n1/smi": document("12:00:00"),
        "n2/dmesg": syslog("17:24:00", OTHER, "n2"),
        "n2/smi": document("18:00:00", pending="Yes", bus="00000000:5D:00.0"),
    }
    path = tmp_path / "case.tar"
    with tarfile.open(path, "w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    result = CliRunner().invoke(main, ["diagnose", "--json", str(path)])
    found = {one["fault"]: one for one in json.loads(result.stdout)["findings"]}
    assert (found["gpu_lost"]["node"], found["remap_pending"]["node"]) == ("n1", "n2")
    now, before = found["remap_pending"]["evidence"], found["gpu_lost"]["evidence"]
    assert [(one["what"], one["node"]) for one in now["history"]] == [("XID 79", "n1")]
    assert [(one["what"], one["node"]) for one in before["history"]] == [("remap_pending", "n2")]
    assert "history" not in now["missing"]


def test_a_state_that_lasts_is_no_history_of_itself() -> None:
    """Ten documents with the same row that waits, and the line that announced it."""
    many = "".join(document(f"16:{minute:02d}:00", pending="Yes") for minute in range(10))
    found = findings(smi=many, log=syslog("15:00:00", REMAP))
    card = found["remap_pending"].evidence
    assert card is not None
    assert (card.history, card.history_total) == ([], 0)


def test_readings_around_the_moment_are_a_table_where_the_files_have_several() -> None:
    """Of this GPU, within five minutes, on the same clock."""
    documents = "".join(document(f"16:{20 + n}:00", 50 + n) for n in range(10))
    log = f"[Sun Feb 23 16:24:00 2025] {LOST}\n"
    card = findings(smi=documents, dmesg=log)["gpu_lost"].evidence
    assert card is not None
    assert [at.text[11:19] for at in card.readings.at] == [f"16:{20 + n}:00" for n in range(10)]
    assert card.readings.columns["gpu_temperature_celsius"] == [50.0 + n for n in range(10)]
    journal = f"2025-02-23T16:24:00+00:00 n1 kernel: {LOST}\n"
    other = findings(smi=documents, journal=journal)["gpu_lost"].evidence
    assert other is not None
    assert not other.readings.at
    assert "can't be compared" in other.missing["readings"]


def test_rows_of_csv_are_readings_and_a_gap_stays_one() -> None:
    rows = [
        "timestamp, index, uuid, power.draw [W], temperature.gpu, remapped_rows.pending",
        f"2025/02/23 16:24:00.123, 0, {UUID}, 690.00 W, 61, No",
        f"2025/02/23 16:24:10.123, 0, {UUID}, [N/A], 62, No",
        f"2025/02/23 16:24:20.123, 0, {UUID}, nan, 63, Yes",
    ]
    log = f"[Sun Feb 23 16:24:05 2025] {REMAP}\n"
    found = findings(dmesg=log, csv="\n".join(rows) + "\n", smi=document("16:24:00"))
    card = found["remap_pending"].evidence
    assert card is not None
    columns = card.readings.columns
    assert columns["gpu_power_watts"][-3:] == [690.0, None, None]
    assert columns["gpu_temperature_celsius"] == [41.0, 61.0, 62.0, 63.0]
    assert columns["gpu_remapped_rows_pending"] == [0.0, 0.0, 0.0, 1.0]


def test_a_card_says_what_to_do_and_the_exact_commands() -> None:
    """The rule's owner, steps with the names of this node and GPU, and commands that the command line takes."""
    one = findings(log=syslog("16:24:00", LOST), smi=document("16:00:00"))["gpu_lost"]
    card = one.evidence
    assert card is not None
    assert (card.remedy.remediation, card.remedy.until) == ("reboot", "now")
    assert card.remedy.runbook == "docs/runbook.md#gpu-lost"
    assert any("n1" in step for step in card.remedy.steps)
    assert not any("{" in step for step in card.remedy.steps)
    commands = {each.name: shlex.split(each.command) for each in card.commands}
    assert commands["Recover"] == ["kilowatch", "recover", "n1/0", "--rule", "gpu_lost"]
    assert commands["Silence"][:5] == ["kilowatch", "silence", "rule=gpu_lost", "node=n1", f"uuid={UUID}"]
    result = CliRunner().invoke(main, [*commands["Recover"][1:], "--http", "127.0.0.1:9"])
    assert result.exit_code == 0
    assert "n1" in result.stdout


def test_without_a_node_there_is_no_command_and_the_card_says_why() -> None:
    card = findings(log=f"[12.5] {LOST}\n")["gpu_lost"].evidence
    assert card is not None
    assert not card.commands
    assert card.missing["node"] == "no file names the node"


def test_the_text_has_the_short_parts_and_with_evidence_the_whole_card(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(syslog("16:20:00", OTHER) + syslog("16:24:00", LOST) + syslog("18:00:00", HUNG))
    smi = tmp_path / "smi"
    smi.write_text("".join(document(f"16:{20 + n}:00", 50 + n) for n in range(10)))
    short = CliRunner().invoke(main, ["diagnose", str(path), str(smi)])
    assert "within 5 min: XID 31 GPU 0000:5d:00.0" in short.stdout
    assert "this board: XID 79 GPU 0\n" in short.stdout
    assert "recover: kilowatch recover n1/0 --rule gpu_lost" in short.stdout
    assert "what to do" not in short.stdout
    whole = CliRunner().invoke(main, ["diagnose", "--evidence", str(path), str(smi)])
    assert whole.exit_code == short.exit_code
    for words in (
        "within five minutes on this node",
        "what to do",
        "remedy: reboot",
        "commands",
        "this board in these files: 1 other fault",
        "missing",
    ):
        assert words in whole.stdout
