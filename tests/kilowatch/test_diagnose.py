"""`kilowatch diagnose` and `kilowatch xid`, as people type them."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from kilowatch.__main__ import main
from kilowatch.saved_logs.reader import SavedLogReader

CAPTURES = Path(__file__).parents[2] / "../shared/data/captures"
HEALTHY = sorted(
    path
    for kind in ("smi_xml", "smi_text", "smi_capture", "misc", "kernel_log")
    for path in (CAPTURES / kind).glob("*")
    if path.suffix != ".jsonl"
)
UNPROVED = {"pai_nvidia_smi_outdated_gpu.xml", "telegraf_a100-sxm4-v12.xml"}
"""Nearly all is N/A; four GPUs are announced and one is there."""
LOST = "[12.5] NVRM: Xid (PCI:0000:18:00): 79, pid=7, name=a, GPU has fallen off the bus.\n"
DEAD = "Unable to determine the device handle for GPU 0000:18:00.0: GPU is lost.\n"
SMI = """
==============NVSMI LOG==============

Timestamp                                 : Sun Feb 23 16:24:18 2025
Driver Version                            : 570.86.15
Attached GPUs                             : 1
GPU 00000000:3B:00.0
    Product Name                          : NVIDIA A100-SXM4-40GB
    GPU UUID                              : GPU-0b1c2d3e-0000-0000-0000-000000000001
    GPU Recovery Action                   : {action}
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : 1
        Pending                           : {pending}
        Remapping Failure Occurred        : No
    Temperature
        GPU Current Temp                  : 30 C
    Processes                             : None
"""


def kilowatch(*arguments: str, stdin: bytes | None = None) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, list(arguments), input=stdin)


def diagnosed(*arguments: str, stdin: bytes | None = None) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and incidents."""
    result = kilowatch("diagnose", "--json", *arguments, stdin=stdin)
    return result.exit_code, json.loads(result.stdout)["findings"]


@pytest.mark.captures
@pytest.mark.skipif(not HEALTHY, reason="no ../shared/data/captures")
@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.name)
def test_healthy_captures_have_no_incident(path: Path) -> None:
    """Real recordings, none of which implies a page or a ticket; two prove too little."""
    code, incidents = diagnosed(str(path))
    assert code == (3 if path.name in UNPROVED else 0)
    assert {one["severity"] for one in incidents} <= {"info", "ignore"}


def test_an_incident_has_all_its_fields() -> None:
    """From standard input; exit code 2 for a page."""
    code, (one,) = diagnosed("-", stdin=LOST.encode())
    assert code == 2
    assert set(one) == {
        "severity", "fault", "rule", "node", "xids", "sxids", "sub_codes", "links", "unit", "gpu", "index", "uuid",
        "serial", "slot", "gpus", "count", "first", "last", "moment", "action", "line", "lines", "files",
        "evidence",
    }  # fmt: skip
    assert (one["severity"], one["fault"], one["xids"], one["sxids"], one["gpu"], one["count"]) == (
        "page", "gpu_lost", [79], [], "0000:18:00.0", 1,
    )  # fmt: skip
    assert one["line"] == LOST.strip()
    assert "reboot" in one["action"]


@pytest.mark.parametrize(
    ("action", "pending", "code", "faults"),
    [
        ("None", "No", 0, []),
        ("None", "Yes", 1, ["remap_pending"]),
        ("Reset", "Yes", 2, ["recovery_action", "remap_pending"]),
    ],
)
def test_a_saved_document(tmp_path: Path, action: str, pending: str, code: int, faults: list[str]) -> None:
    """And its exit code."""
    path = tmp_path / "smi.txt"
    path.write_text(SMI.format(action=action, pending=pending))
    assert diagnosed(str(path))[0] == code
    assert [one["fault"] for one in diagnosed(str(path))[1]] == faults


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("30 C", "GPU is lost", "gpu_lost"),
        ("30 C", "GPU requires reset", "recovery_action"),
        ("GPU Recovery Action                   : None",
         "GPU Reset Status\n        Reset Required                    : Yes", "recovery_action"),
        ("GPU Recovery Action                   : None",
         "GPU Reset Status\n        Reset Required                    : No", None),
    ],
)  # fmt: skip
def test_words_in_which_a_gpu_asks_for_help(old: str, new: str, fault: str | None) -> None:
    """Also those of older drivers."""
    text = SMI.format(action="None", pending="No")
    assert old in text
    _, incidents = diagnosed("-", stdin=text.replace(old, new).encode())
    assert [one["fault"] for one in incidents] == ([fault] if fault else [])


def test_a_whole_bug_report_gzipped(tmp_path: Path) -> None:
    """Sections with the kernel log and nvidia-smi in one file: one incident per cause."""
    noise = "".join(f"[{n}.1] eth0: link becomes ready\n" for n in range(5000))
    report = (
        f"Start of NVIDIA bug report log file.\n____\n\n*** /var/log/dmesg\n{noise}{LOST}"
        f"____\n\n/usr/bin/nvidia-smi --query\n{SMI.format(action='None', pending='Yes')}\n"
        f"____\n\njournalctl -b -0\nFeb 23 16:24:18 n1 kernel: {LOST.partition('] ')[2]}\n{DEAD}"
    )
    path = tmp_path / "nvidia-bug-report.log.gz"
    path.write_bytes(gzip.compress(report.encode()) + gzip.compress(b"the end\n"))
    code, incidents = diagnosed(str(path))
    assert code == 2
    assert [(one["severity"], one["fault"], one["gpu"]) for one in incidents] == [
        ("page", "gpu_lost", "0000:18:00.0"),
        ("ticket", "remap_pending", "0000:3b:00.0"),
    ]
    path.write_bytes(gzip.compress(report.encode())[:-20])  # cut off while it was copied
    assert diagnosed(str(path))[0] == 2


def test_several_files_are_one_node(tmp_path: Path) -> None:
    """The GPU that the log calls lost is the one that nvidia-smi can't open."""
    log, smi = tmp_path / "dmesg", tmp_path / "smi"
    log.write_text(LOST)
    smi.write_text(DEAD)
    code, (one,) = diagnosed(str(log), str(smi))
    assert (code, one["fault"], one["xids"], one["count"]) == (2, "gpu_lost", [79], 2)


def test_a_ticket_is_exit_code_1_and_readable(tmp_path: Path) -> None:
    """For people: severity, fault, place, number, what to do, the line."""
    path = tmp_path / "kern.log"
    path.write_text("[1.5] NVRM: Xid (PCI:0000:01:00): 977, new\n")
    result = kilowatch("diagnose", str(path))
    assert result.exit_code == 1
    for word in ("TICKET", "unknown_xid", "0000:01:00.0", "XID 977", "1.5"):
        assert word in result.output


def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    """The error is one line with a remedy; a file of another format is a note, not a fault."""
    missing = kilowatch("diagnose", str(tmp_path / "none"))
    assert missing.exit_code == 3
    assert "no such file" in missing.output
    other = tmp_path / "other.txt"
    other.write_text("hello\n")
    result = kilowatch("diagnose", "--json", str(other))
    assert result.exit_code == 3
    reply = json.loads(result.stdout)
    assert (reply["answer"], reply["findings"]) == ("could not judge", [])
    assert "neither a kernel log" in reply["files"][0]["problems"][0]
    assert "neither a kernel log" in result.stderr


def test_a_log_of_utf_16_and_windows_line_ends(tmp_path: Path) -> None:
    """As PowerShell saves what it got over ssh."""
    path = tmp_path / "dmesg.txt"
    path.write_bytes(LOST.replace("\n", "\r\n").encode("utf-16"))
    code, (one,) = diagnosed(str(path))
    assert (code, one["line"]) == (2, LOST.strip())


PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}


@pytest.mark.parametrize("kind", PACKERS)
def test_a_compressed_log_is_read_and_a_truncated_one_is_noted(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "dmesg"
    packed = PACKERS[kind](LOST.encode()) + PACKERS[kind](b"the end\n")
    path.write_bytes(packed)
    assert "could not judge" not in kilowatch("diagnose", str(path)).output
    path.write_bytes(packed[:-6])
    result = kilowatch("diagnose", str(path))
    assert result.exit_code == 2, "what came before is judged"
    assert f"the {kind} file is cut off" in result.output


@pytest.mark.parametrize("kind", PACKERS)
def test_a_packed_log_of_more_than_a_part_is_read_to_its_end(tmp_path: Path, kind: str) -> None:
    """Its lines are similar, so that few compressed bytes become several parts."""
    path = tmp_path / "dmesg"
    path.write_bytes(PACKERS[kind](b"[1.0] nothing of ours\n" * 800_000 + LOST.encode()))
    _, (one,) = diagnosed(str(path))
    assert one["fault"] == "gpu_lost"


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff" + b"\xff" * 60, "damaged gzip file"),
        (b"BZh9" + b"rubbish" * 9, "damaged bzip2 file"),
        (b"\xfd7zXZ\x00" + b"rubbish" * 9, "damaged xz file"),
        (b"\x28\xb5\x2f\xfd" + b"rubbish", "zstd -dc FILE | kilowatch diagnose -"),
    ],
    ids=["gzip", "bzip2", "xz", "zstd"],
)
def test_a_damaged_compressed_log_is_an_error_with_its_reason(tmp_path: Path, start: bytes, words: str) -> None:
    path = tmp_path / "dmesg"
    path.write_bytes(start)
    result = kilowatch("diagnose", str(path))
    assert result.exit_code == 3
    assert words in result.output


def test_times_with_the_time_since_the_line_before() -> None:
    """As `dmesg -d` and `dmesg -dT` print them."""
    for stamp, text in (
        ("[Fri Oct 14 14:56:49 2022 <    0.000012>]", "2022-10-14T14:56:49"),
        ("[   12.500000 <    0.000012>]", "12.500000 s after boot"),
    ):
        _, (one,) = diagnosed("-", stdin=LOST.replace("[12.5]", stamp).encode())
        assert one["first"] == text


def test_a_task_that_hangs_in_the_driver_is_of_the_driver() -> None:
    log = (
        "[ 1000.0] INFO: task python:1234 blocked for more than 120 seconds.\n"
        "[ 1000.0]  os_acquire_rwlock_write+0x35/0x50 [nvidia]\n"
    )
    result = kilowatch("diagnose", "-", stdin=log.encode())
    assert (result.exit_code, result.stderr) == (2, "")


@pytest.mark.parametrize("form", ["json", "json-sse", "json-seq", "json-pretty", "export"])
def test_the_journal_in_every_form_has_its_times_and_its_writers(form: str) -> None:
    """Two of the kernel, a day apart, and a monitor that repeats one."""
    message = "NVRM: Xid (PCI:0000:18:00): 48, pid=7, name=a, DBE"
    entries = [
        {"__REALTIME_TIMESTAMP": f"{at}000000", "MESSAGE": message, "_TRANSPORT": by}
        for at, by in ((1737434504, "kernel"), (1737520904, "kernel"), (1737530000, "stdout"))
    ]
    shape = {"json": "{}", "json-sse": "data: {}", "json-seq": "\x1e{}"}.get(form, "{}")
    if form == "export":
        parts = ["".join(f"{key}={word}\n" for key, word in each.items()) for each in entries]
    else:
        indent = "\t" if form == "json-pretty" else None
        parts = [shape.format(json.dumps(each, indent=indent)) for each in entries]
    _, (one,) = diagnosed("-", stdin="\n".join(parts).encode())
    assert (one["count"], one["first"]) == (2, "2025-01-21T04:41:44+00:00")
    assert one["last"] == "2025-01-22T04:41:44+00:00"


def test_messages_that_were_cut_out_of_the_journal_are_read_one_by_one() -> None:
    text = "".join(f"MESSAGE=NVRM: Xid (PCI:0000:{at}8:00): 79, pid=7, lost\n" for at in range(3))
    _, found = diagnosed("-", stdin=text.encode())
    assert {one["gpu"] for one in found} == {f"0000:{at}8:00.0" for at in range(3)}


def test_nvidia_smi_that_fails_is_a_ticket() -> None:
    """The driver as a whole does not answer."""
    text = b"Failed to initialize NVML: Driver/library version mismatch\n"
    code, (one,) = diagnosed("-", stdin=text)
    assert (code, one["fault"], one["severity"]) == (1, "driver_mismatch", "ticket")


def test_links_of_a_saved_nvlink_status() -> None:
    """The second of two GPUs has none."""
    text = (
        "GPU 0: NVIDIA A100 (UUID: GPU-a)\n\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n"
        "GPU 1: NVIDIA A100 (UUID: GPU-b)\n"
        "NVML: Unable to retrieve NvLink information as all links are inActive\n"
    )
    code, (one,) = diagnosed("-", stdin=text.encode())
    assert (code, one["fault"], one["severity"]) == (2, "nvlink_down", "page")


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_never_raises_on_any_bytes(data: bytes) -> None:
    """But for what is packed and damaged, which is said."""
    reader = SavedLogReader()
    for prefix in (b"", LOST.encode(), SMI.encode(), b"<nvidia_smi_log><gpu>"):
        if not (prefix + data).startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")):
            reader.read_stream(io.BytesIO(prefix + data), "test")
    assert any(one.fault == "gpu_lost" for one in reader.incidents())


def test_a_folder_of_other_files_is_summed_up(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"notes-{number}").write_text("hello\n")
    result = kilowatch("diagnose", str(tmp_path))
    assert result.exit_code == 3
    lines = result.stdout.splitlines()
    assert len(lines) == 5
    assert lines[-1].startswith("5 more files: could not judge: unknown format")


def test_xid_explains_a_number() -> None:
    """Known and unknown, for people and as JSON."""
    assert "fallen" not in kilowatch("xid", "79").output  # our sentences, not the driver's
    assert "PCI Express" in kilowatch("xid", "79").output
    known = json.loads(kilowatch("xid", "63", "--json").stdout)
    assert (known["severity"], known["nvidia_action"]) == ("ticket", "IGNORE")
    assert "no catalogue" in kilowatch("xid", "977").output
    assert kilowatch("xid", "many").exit_code == 64
