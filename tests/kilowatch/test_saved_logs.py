"""Answers for each saved file: a finding, a clean bill, or that it could not be judged.

The table of captures was made by reading the files. Where there is no recording of a format, the text
below is built by the published form with values of our own.
"""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from alerts.diagnosis.snapshot import CHECKED
from collector.smi.failure import Failure
from collector.smi.file import documents_of
from collector.smi.values import gap_of
from kilowatch.saved_logs.archive import node_of_name
from kilowatch.saved_logs.reader import DiagnosisReply, SavedLogReader, part_of_document
from kilowatch.saved_logs.table import MOST_ROWS
from telemetry.catalogue import BY_NAME

CAPTURES = Path(__file__).parents[2] / "../shared/data/captures"

CLEAN, UNJUDGED, TICKET, PAGE = "clean", "could not judge", "ticket", "page"
READ = {
    # A burst of errors of a program; no fault of a GPU.
    "kernel_log/gpud_dmesg_xid13_burst_then_43.log": (CLEAN, "kernel log"),
    # NVSwitches are opened, interfaces come up; no error of the driver in sixteen hours.
    "kernel_log/gpud_kmsg_1.log": (CLEAN, "kernel log"),
    # A table of lines with remarks, no log.
    "kernel_log/labelled_lines.jsonl": (UNJUDGED, "unknown format"),
    # Every link active; says nothing of errors.
    "misc/azurenhc_good_nvlink_status.txt": (CLEAN, "nvidia-smi nvlink -s"),
    "misc/gpud_nvlink_status_a100.txt": (CLEAN, "nvidia-smi nvlink -s"),
    # Captures of a dozen commands, `nvidia-smi -q` among them.
    "smi_capture/linux-x86_64__nvidia-geforce-rtx-4080-super__595.71.05.txt": (CLEAN, "nvidia-smi -q"),
    "smi_capture/linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.txt": (CLEAN, "nvidia-smi topo -m"),
    # Lifetime counts of corrected errors and finished remaps, none pending.
    "smi_text/thamada_A40x10.q.txt": (CLEAN, "nvidia-smi -q"),
    "smi_text/thamada_RTX4090.q.txt": (CLEAN, "nvidia-smi -q"),
    "smi_xml/nvidia-k8s-test-infra_hw_a100.xml": (CLEAN, "nvidia-smi -q"),
    "smi_xml/nvidia-k8s-test-infra_hw_gb200.xml": (CLEAN, "nvidia-smi -q"),
    "smi_xml/nvidia-k8s-test-infra_hw_h100.xml": (CLEAN, "nvidia-smi -q"),
    "smi_xml/pai_nvidia_smi_out_of_order.xml": (CLEAN, "nvidia-smi -q"),
    # Utilization only, and that is N/A.
    "smi_xml/pai_nvidia_smi_outdated_gpu.xml": (UNJUDGED, "nvidia-smi -q"),
    # Announces four GPUs and holds one.
    "smi_xml/telegraf_a100-sxm4-v12.xml": (UNJUDGED, "nvidia-smi -q"),
    "smi_xml/telegraf_a10g.xml": (CLEAN, "nvidia-smi -q"),
    "smi_xml/telegraf_gtx-1660-ti.xml": (CLEAN, "nvidia-smi -q"),
    "smi_xml/telegraf_rtx-3080-v13.xml": (CLEAN, "nvidia-smi -q"),
    "smi_xml/telegraf_rtx-3090-v12.xml": (CLEAN, "nvidia-smi -q"),
    "smi_xml/telegraf_tesla-t4.xml": (CLEAN, "nvidia-smi -q"),
    # Percentiles of power; load, power and clocks of one GPU over time.
    "traces/acmetrace_cdf_gpu_power_kalos.csv": (UNJUDGED, "unknown format"),
    "traces/gpupowerbench_5050_3090_gpudata.csv": (UNJUDGED, "CSV of nvidia-smi"),
    "traces/gpupowerbench_Transient_Response_A100_TR_gpudata.csv": (UNJUDGED, "CSV of nvidia-smi"),
}


def replied(**files: str | bytes) -> DiagnosisReply:
    """Return what files say together."""
    reader = SavedLogReader()
    for name, text in files.items():
        reader.read_stream(io.BytesIO(text.encode() if isinstance(text, str) else text), name)
    return reader.reply()


def faults(reply: DiagnosisReply) -> list[str]:
    """Return severity and fault of each finding, in one word each."""
    return [f"{one.severity} {one.fault}" for one in reply.findings]


@pytest.mark.captures
@pytest.mark.skipif(not CAPTURES.is_dir(), reason="no ../shared/data/captures")
def test_every_capture_is_in_the_table() -> None:
    there = {path.relative_to(CAPTURES).as_posix() for path in CAPTURES.rglob("*") if path.is_file()}
    assert there - {"SOURCES.md"} == set(READ)


@pytest.mark.captures
@pytest.mark.skipif(not CAPTURES.is_dir(), reason="no ../shared/data/captures")
@pytest.mark.parametrize("name", READ)
def test_a_capture_says_what_its_reader_would(name: str) -> None:
    reader = SavedLogReader()
    reader.read(CAPTURES / name)
    reply = reader.reply()
    (file,) = reply.files
    answer, form = READ[name]
    assert (reply.answer, file.answer) == (answer, answer)
    assert form in file.formats
    assert bool(file.shows) is (answer == CLEAN) or "a100-sxm4" in name
    assert bool(file.problems) is (answer == UNJUDGED)
    if answer == CLEAN:
        assert file.lacks, "a clean bill says what it does not prove"
    if form == "kernel log":
        assert "uncorrected memory errors" in file.lacks
    if "-q" in form and answer == CLEAN:
        assert "XIDs" in file.lacks


PATHS = {path for metric in CHECKED for path in BY_NAME[metric].readers("smi")}
"""Where nvidia-smi prints what a clean bill rests on."""


@pytest.mark.captures
@pytest.mark.skipif(not CAPTURES.is_dir(), reason="no ../shared/data/captures")
@pytest.mark.parametrize("word", ["Unknown Error", "ERR!", "[Unknown Error]", "Insufficient Permissions"])
def test_no_clean_bill_survives_an_error_in_place_of_a_value(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any value of a family that `diagnose` lists as judged, of any GPU of any recording, beside a healthy neighbour
    whose values are there."""
    tried = 0
    for name, (answer, form) in READ.items():
        if form != "nvidia-smi -q" or answer != CLEAN:
            continue
        documents = documents_of((CAPTURES / name).read_text(), name)
        assert not isinstance(documents, Failure)
        gpus = documents[0].gpus
        for raw, neighbour in zip(gpus, [*gpus[1:], gpus[0]], strict=True):
            pair = [raw] if raw is neighbour else [raw, neighbour]
            document = replace(documents[0], gpus=pair)
            part = part_of_document(document, name, whole=True)
            assert not part.findings
            assert not part.problem
            for path in PATHS.intersection(raw.values):
                if gap_of(raw.values[path]) is not None:
                    continue  # nothing rests on it
                with monkeypatch.context() as patch:
                    patch.setitem(raw.values, path, word)
                    part = part_of_document(document, name, whole=True)
                assert part.findings or part.problem, (name, raw.bus_id, path)
                tried += 1
    assert tried > 200


# Formats without a recording.

STATUS = "GPU {}: NVIDIA H100 (UUID: GPU-00000000-0000-0000-0000-00000000000{})\n"
UP = "\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n"
DOWN = "\t Link 0: <inactive>\n\t Link 1: <inactive>\n"
HALF = "\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"
NONE = "NVML: Unable to retrieve NvLink information as all links are inActive\n"
ERRORS = "".join(
    f"\t Link {link}: {kind} Errors: {{{kind.lower()}}}\n" for link in (0, 1) for kind in ("Replay", "Recovery", "CRC")
)
CAPABLE = "\t Link 0, P2P is supported: true\n\t Link 0, Access to system memory supported: true\n"


def status(*blocks: str) -> str:
    """Return output about one GPU a block."""
    return "".join(STATUS.format(n, n) + block for n, block in enumerate(blocks))


def errors(replay: int = 0, recovery: int = 0, crc: int = 0) -> str:
    """Return the error counters of two links."""
    return ERRORS.format(replay=replay, recovery=recovery, crc=crc)


def topology(*rows: str) -> str:
    """Return a matrix of `nvidia-smi topo -m`."""
    head = "".join(f"\tGPU{n}" for n in range(len(rows)))
    body = "".join(f"GPU{n}\t{row.replace(' ', chr(9))}\t0-31\t0\t\tN/A\n" for n, row in enumerate(rows))
    return f"\x1b[4m{head}\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n{body}\nLegend:\n\n  X    = Self\n"


TABLE = """Sun Feb 23 16:24:18 2025
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:18:00.0 Off | {ecc:>20} |
| N/A   41C    P0   {power:>13} /  700W |       0MiB /  81559MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
"""
FM = "[Feb 23 2025 16:24:{:02d}] [{}] [tid 1907] {}\n"
SYSLOG = "Feb 23 16:24:18 n1 nv-fabricmanager[1907]: {}\n"
READY = FM.format(30, "INFO", "Successfully configured all the available NVSwitches to route GPU NVLink traffic.")
FM_ERROR = FM.format(20, "ERROR", "failed to enable NVLinks to train on one of the NVSwitch fabric devices")
FM_START = FM.format(10, "INFO", "Fabric Manager starting up, NVSwitch fabric of 4 devices")
FM_FATAL = FM.format(
    40,
    "ERROR",
    "detected NVSwitch fatal error 10003 on fid 0 on NVSwitch pci bus id 00000000:05:00.0 physical id 3 port 33",
)
FM_MINOR = FM.format(
    41,
    "ERROR",
    "detected NVSwitch non-fatal error 12028 on fid 0 on NVSwitch pci bus id 00000000:05:00.0 physical id 3 port 12",
)
DIAG = """+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Hardware  ----------+------------------------------------------------|
| PCIe                      | Pass - All                                     |
| GPU Memory                | {:46} |
+---------------------------+------------------------------------------------+
"""
HEALTH = """+---------------------------+----------------------------------------------------------+
| Health Monitor Report                                                                |
+===========================+==========================================================+
| Overall Health            | {}                                                  |
"""
HEALTH_GPU = """| GPU                       |                                                          |
| -> 2                      | {}                                                  |
|    -> Errors              |                                                          |
|       -> PCIe system      | {}                                                  |
|                           | Detected more than 8 PCIe replays per minute for GPU 2   |
|                           | Reconnect PCIe card. Run system side PCIE diagnostic     |
+---------------------------+----------------------------------------------------------+
"""
KERNEL = "Feb 23 16:{:02d}:18 n1 kernel: {}\n"
MODULE = KERNEL.format(1, "nvidia: loading out-of-tree module taints kernel.")
MLX = "mlx5_core 0000:3b:00.0: "
XID = "[12.5] NVRM: Xid (PCI:0000:18:00): 79, pid=7, name=a, GPU has fallen off the bus.\n"


def diag(*results: dict[str, object], name: str = "Memory") -> str:
    """Return an output of `dcgmi diag -j`."""
    tests = [{"name": name, "results": list(results)}]
    return json.dumps({"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}]}})


def failed(severity: int) -> dict[str, object]:
    """Return a failed test of GPU 3."""
    warning = {"warning": "Memory test found 2 errors", "error_id": 37, "error_severity": severity}
    return {"gpu_id": "3", "status": "Fail", "warnings": [warning]}


def section(name: str, *lines: str) -> str:
    """Return output of `nvidia-smi -q -d`."""
    return (
        "\n==============NVSMI LOG==============\n\nTimestamp        : Sun Feb 23 16:24:18 2025\n"
        "Driver Version   : 570.86.15\nAttached GPUs    : 1\nGPU 00000000:18:00.0\n"
        f"    {name}\n" + "".join(f"        {line}\n" for line in lines)
    )


WRITTEN = {
    "nvlink -s": (status(UP, UP), CLEAN, []),
    "nvlink -s, one GPU without": (status(UP, UP, DOWN), PAGE, ["page nvlink_down"]),
    "nvlink -s, one link": (status(UP, HALF), TICKET, ["ticket nvlink_down"]),
    "nvlink -s, all inactive": (status(DOWN, DOWN), UNJUDGED, []),
    "nvlink -s, all inactive in words": (status(NONE, NONE), UNJUDGED, []),
    "nvlink -s, no peer to compare": (status(HALF), UNJUDGED, []),
    "nvlink -s without UUIDs": ("GPU 0: Tesla V100\n" + UP + "GPU 1: Tesla V100\n" + UP, CLEAN, []),
    "nvlink -e": (status(errors(), errors()), CLEAN, []),
    "nvlink -e, replays of unknown age": (status(errors(replay=7), errors()), UNJUDGED, []),
    "nvlink -e, recoveries": (status(errors(recovery=1), errors()), TICKET, ["ticket nvlink_noise"]),
    "nvlink -c": (status(CAPABLE, CAPABLE), UNJUDGED, []),
    "topo -m": (topology("X NV18 NV18", "NV18 X NV18", "NV18 NV18 X"), CLEAN, []),
    "topo -m, a GPU with fewer": (
        topology("X NV12 NV12 NV4", "NV12 X NV12 NV4", "NV12 NV12 X NV4", "NV4 NV4 NV4 X"),
        TICKET, ["ticket nvlink_down"],
    ),
    "topo -m, a GPU without": (
        topology("X NV12 NV12 SYS", "NV12 X NV12 SYS", "NV12 NV12 X SYS", "SYS SYS SYS X"),
        TICKET, ["ticket nvlink_down"],
    ),
    "topo -m of PCI Express": (topology("X PHB SYS", "PHB X SYS", "SYS SYS X"), UNJUDGED, []),
    "topo -m of bridged pairs": (
        topology("X NV12 SYS SYS", "NV12 X SYS SYS", "SYS SYS X NV12", "SYS SYS NV12 X"), UNJUDGED, [],
    ),
    "topo -m, cut off": (topology("X NV18 NV18", "NV18 X NV18").replace("GPU1\t", "GPU1\tGPU2\t", 1), UNJUDGED, []),
    "table": (TABLE.format(ecc=0, power="69W"), UNJUDGED, []),
    "table, errors": (TABLE.format(ecc=2, power="69W"), TICKET, ["ticket ecc_volatile"]),
    "table, ERR!": (TABLE.format(ecc=0, power="ERR!"), TICKET, ["ticket gpu_unread"]),
    "CSV of load": ("index, power.draw [W], utilization.gpu [%]\n0, 69.10 W, 0 %\n", UNJUDGED, []),
    "CSV of health": (
        "index, uuid, remapped_rows.pending, ecc.errors.uncorrected.volatile.total\n0, GPU-a, No, 0\n1, GPU-b, No, 0\n",
        CLEAN, [],
    ),
    "CSV, pending": ("index, uuid, remapped_rows.pending\n0, GPU-a, No\n1, GPU-b, Yes\n", TICKET, ["ticket remap_pending"]),
    "CSV, lost": ("index, uuid, remapped_rows.pending\n0, GPU-a, No\n1, GPU-b, [GPU is lost]\n", PAGE, ["page gpu_lost"]),
    "CSV without rows": ("index, uuid, remapped_rows.pending\n", UNJUDGED, []),
    "CSV, a GPU of N/A": ("index, uuid, remapped_rows.pending\n0, GPU-a, No\n1, GPU-b, [N/A]\n", UNJUDGED, []),
    "-q -d TEMPERATURE": (
        section("Temperature", "GPU Current Temp   : 41 C", "GPU Slowdown Temp  : 89 C"), CLEAN, [],
    ),
    "-q -d TEMPERATURE, too hot": (
        section("Temperature", "GPU Current Temp   : 90 C", "GPU Slowdown Temp  : 89 C"), PAGE, ["page thermal_hw"],
    ),
    "-q -d TEMPERATURE, refused": (
        section("Temperature", "GPU Current Temp   : 41 C", "GPU Slowdown Temp  : Insufficient Permissions"), UNJUDGED, [],
    ),
    "-q, a slot of generation 2 of 5 at work": (
        section("PCI", "GPU Link Info", "    PCIe Generation", "        Max : 5", "        Current : 2",)
        + "    Utilization\n        Gpu : 100 %\n    Temperature\n        GPU Current Temp : 41 C\n        GPU Slowdown Temp : 89 C\n",
        TICKET, ["ticket pcie_slow"],
    ),
    "a vGPU without a licence": (
        section("vGPU Software Licensed Product", "License Status : Unlicensed (Restricted)"),
        TICKET, ["ticket vgpu_unlicensed"],
    ),
    "a vGPU with a licence": (
        section("vGPU Software Licensed Product", "License Status : Licensed (Expiry: 2027-1-2 3:4:5 GMT)")
        + "    Temperature\n        GPU Current Temp : 41 C\n        GPU Slowdown Temp : 89 C\n",
        CLEAN, [],
    ),
    "a handle that is not found": (
        "Unable to determine the device handle for GPU 0000:D8:00.0: Not Found\n", PAGE, ["page gpu_lost"],
    ),
    "CSV, a value of errors": (
        "index, uuid, remapped_rows.pending, fan.speed [%]\n0, GPU-a, No, 30 %\n1, GPU-b, No, [Unknown Error]\n",
        TICKET, ["ticket gpu_unread"],
    ),
    "CSV, refused": ("index, uuid, remapped_rows.pending\n0, GPU-a, [Insufficient Permissions]\n", UNJUDGED, []),
    "-q -d UTILIZATION": (section("Utilization", "Gpu   : 0 %", "Memory : 0 %"), UNJUDGED, []),
    "-q -d ROW_REMAPPER": (
        section("Remapped Rows", "Correctable Error : 0", "Uncorrectable Error : 1", "Pending : Yes",
                "Remapping Failure Occurred : No"), TICKET, ["ticket remap_pending"],
    ),
    "fabricmanager.log": (FM_START + READY, CLEAN, []),
    "fabricmanager.log, an error at last": (FM_START + FM_ERROR, TICKET, ["ticket fabric"]),
    "fabricmanager.log, an error, then well": (FM_START + FM_ERROR + READY, CLEAN, ["info fabric"]),
    "fabricmanager.log, a switch": (FM_START + READY + FM_FATAL + FM_MINOR, PAGE, ["page nvswitch_fatal", "ignore nvswitch_noise"]),
    "Fabric Manager in syslog": (
        SYSLOG.format("Successfully configured all the available NVSwitches to route GPU NVLink traffic."), CLEAN, [],
    ),
    "Fabric Manager in syslog, a failure": (SYSLOG.format("failed to find the GPU handle 7 in the multicast team"), TICKET, ["ticket fabric"]),
    "fabricmanager.log, its middle": (FM_START, UNJUDGED, []),
    "fabricmanager.log of unknown form": ("Fabric Manager: all is well\n", UNJUDGED, []),
    "diag -j": (diag({"gpu_id": "0", "status": "Pass"}, {"gpu_id": "1", "status": "Pass"}), CLEAN, []),
    "diag -j, failed": (diag(failed(6)), TICKET, ["ticket diagnostics_failed"]),
    "diag -j, to isolate": (diag(failed(2)), PAGE, ["page diagnostics_failed"]),
    "diag -j, a warning": (diag({"gpu_id": "0", "status": "Pass"}, {"gpu_id": "1", "status": "Warn", "warnings": ["old"]}), CLEAN, ["info diagnostics_failed"]),
    "diag -j, skipped": (diag({"gpu_id": "0", "status": "Skip"}), UNJUDGED, []),
    "diag -j, not run": (json.dumps({"DCGM Diagnostic": {"runtime_error": "no host engine"}}), UNJUDGED, []),
    "diag -j, cut off": (diag({"gpu_id": "0", "status": "Pass"})[:-20], UNJUDGED, []),
    "diag as a table": (DIAG.format("Pass - All"), CLEAN, []),
    "diag as a table, failed": (DIAG.format("Fail - GPU: 2"), TICKET, ["ticket diagnostics_failed"]),
    "health": (HEALTH.format("Healthy"), CLEAN, []),
    "health, a warning": (HEALTH.format("Warning") + HEALTH_GPU.format("Warning", "Warning"), TICKET, ["ticket health_watch"]),
    "health, a failure": (HEALTH.format("Failure") + HEALTH_GPU.format("Failure", "Failure"), PAGE, ["page health_watch"]),
    "health as JSON": (
        json.dumps({"body": {"Overall Health": {"value": "Failure"}, "GPU": {"children": {"2": {"value": "Failure"}}}}}),
        PAGE, ["page health_watch"],
    ),
    "health without watches": ("Health watches not enabled. Please enable watches.\n", UNJUDGED, []),
    "syslog without the driver": (KERNEL.format(1, "eth0: link becomes ready"), UNJUDGED, []),
    "syslog with the driver": (MODULE + KERNEL.format(2, "eth0: link becomes ready"), CLEAN, []),
    "syslog of programs": ("Feb 23 16:24:18 n1 sshd[77]: session opened\n", UNJUDGED, []),
    "mlx5, well": (MODULE + KERNEL.format(2, MLX + "Port module event: module 0, Cable plugged"), CLEAN, []),
    "mlx5, a cable": (MODULE + KERNEL.format(2, MLX + "Port module event[error]: module 0, Cable error, High Temperature"), TICKET, ["ticket nic_module"]),
    "mlx5, dead": (MODULE + KERNEL.format(2, MLX + "poll_health:801:(pid 0): device's health compromised - reached miss count"), PAGE, ["page nic_failed"]),
    "mlx5, down": (MODULE + KERNEL.format(2, MLX[:-2] + " ib0: Link down"), TICKET, ["ticket nic_link"]),
    "mlx5, down and up": (MODULE + KERNEL.format(2, MLX[:-2] + " ib0: Link down") + KERNEL.format(3, MLX[:-2] + " ib0: Link up"), CLEAN, []),
    "mlx5, refused registers": (MODULE + KERNEL.format(2, MLX + "mlx5_cmd_out_err: ACCESS_REG(0x805) op_mod(0x1) failed, status bad parameter"), CLEAN, []),
    "an Oops under a driver that loaded": (MODULE + KERNEL.format(2, "Oops: 0002 [#1] PREEMPT SMP NOPTI"), TICKET, ["ticket kernel_oops"]),
    "a dead mount without a driver": (KERNEL.format(2, "nfs: server store7 not responding, still trying"), PAGE, ["page mount_dead"]),
    "a mount that came back": (MODULE + KERNEL.format(2, "nfs: server store7 not responding, still trying") + KERNEL.format(3, "nfs: server store7 OK"), CLEAN, []),
    "a virtual GPU without a licence": (MODULE + "Feb 23 16:24:18 n1 nvidia-gridd[837]: Valid GRID license not found. GPU features will be restricted.\n", TICKET, ["ticket licence"]),
    "an error that no catalogue has": (MODULE + KERNEL.format(2, "quxdrv 7: flux capacitor failed"), UNJUDGED, []),
    "an error by its level": (MODULE + "kern  :err   : [   12.500000] quxdrv 7: the flux is gone\n", UNJUDGED, []),
    "an error of a program": (MODULE + "Feb 23 16:24:18 n1 sshd[77]: error: no flux\n", CLEAN, []),
    "errors of a boot that is well": (MODULE + KERNEL.format(2, "i8042: probe of i8042 failed with error -5") + KERNEL.format(3, "ACPI Error: AE_ALREADY_EXISTS, During name lookup/catalog"), CLEAN, []),
    "bug report without its end": ("Start of NVIDIA bug report log file.\n[1.000000] nvidia: loaded\n", UNJUDGED, []),
    "bug report": ("Start of NVIDIA bug report log file.\n[1.000000] nvidia: loaded\nEnd of NVIDIA bug report log file.\n", CLEAN, []),
    "empty": ("", UNJUDGED, []),
    "blanks": ("\n \n", UNJUDGED, []),
    "prose": ("the GPUs are all fine\n", UNJUDGED, []),
    "binary": ("\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0", UNJUDGED, []),
    "JSON": ('{"gpus": [{"healthy": true}]}', UNJUDGED, []),
    "a web page": ("<!doctype html><html>404</html>", UNJUDGED, []),
    "XML, cut off": ('<?xml version="1.0" ?>\n<nvidia_smi_log>\n<driver_version>570</driver_ver', UNJUDGED, []),
    "nvidia-smi -L": ("GPU 0: NVIDIA H100 (UUID: GPU-a)\n", UNJUDGED, []),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_a_format_says_what_its_reader_would(name: str) -> None:
    """A finding, a clean bill with what it proves, or a reason why there is none."""
    text, answer, expected = WRITTEN[name]
    reply = replied(file=text)
    (file,) = reply.files
    assert (faults(reply), reply.answer, file.answer) == (expected, answer, answer), file.problems
    assert answer != CLEAN or file.shows
    assert answer != UNJUDGED or file.problems
    assert all(one.line and one.lines and one.action and one.files == ["file"] for one in reply.findings)


def test_63_retired_pages_are_not_hidden_behind_one_that_waits() -> None:
    """Every finding of a GPU is there, the worst first: the spare memory that is used up before the reset."""
    text = section("Retired Pages", "Single Bit ECC : 40", "Double Bit ECC : 23", "Pending Page Blacklist : Yes")
    reply = replied(smi=text)
    assert faults(reply) == ["ticket remap_exhausted", "ticket remap_pending"]
    assert "(40 pages retired for single bit errors, 23 for double bit errors)" in reply.findings[0].line
    assert reply.findings[0].first == "Sun Feb 23 16:24:18 2025"


def test_a_finding_of_the_log_has_the_identity_that_nvidia_smi_shows() -> None:
    """Node, index, UUID, serial and slot, beside the address, the rule and the lines."""
    smi = (
        "\n==============NVSMI LOG==============\n\nAttached GPUs : 1\nGPU 00000000:18:00.0\n"
        "    Product Name  : NVIDIA H100\n    GPU UUID : GPU-0b1c2d3e\n    Serial Number : 165\n"
        "    GPU Recovery Action : None\n    Platform Info\n        Slot Number : 4\n    Processes : None\n"
    )
    reply = replied(dmesg=KERNEL.format(1, XID[7:].strip()), smi=smi)
    (one,) = reply.findings
    assert (one.node, one.gpu, one.index, one.uuid, one.serial, one.slot, one.rule) == (
        "n1", "0000:18:00.0", 0, "GPU-0b1c2d3e", "165", "slot 4", "gpu_lost",
    )  # fmt: skip
    assert one.files == ["dmesg"]
    assert one.lines == [KERNEL.format(1, XID[7:]).strip()]


def test_a_kernel_log_without_the_driver_counts_beside_a_gpu_that_answers() -> None:
    """A healthy node's ring buffer has no line of the driver; alone it proves nothing."""
    log = KERNEL.format(1, "eth0: link becomes ready")
    smi = section("Temperature", "GPU Current Temp   : 41 C", "GPU Slowdown Temp  : 89 C")
    assert replied(dmesg=log).answer == UNJUDGED
    assert replied(dmesg=log, smi=smi).answer == CLEAN


def test_a_ticket_counts_more_than_a_file_that_could_not_be_judged() -> None:
    ticket = WRITTEN["CSV, pending"][0]
    both = replied(a=ticket, b="prose\n")
    assert (both.answer, [file.answer for file in both.files]) == (TICKET, [TICKET, UNJUDGED])


REPORT = "Start of NVIDIA bug report log file.\n\nuname -a\nLinux {} 5.15.0-91-generic #101-Ubuntu SMP x86_64\n{}End of NVIDIA bug report log file.\n"


def test_bug_reports_of_several_nodes_are_kept_apart(tmp_path: Path) -> None:
    """In a folder, a tar and a zip: the same address on two nodes is two findings."""
    files = {
        "a/nvidia-bug-report.log": REPORT.format("dgx-01", XID),
        "b/nvidia-bug-report.log": REPORT.format("dgx-02", XID),
        "c/nvidia-bug-report.log": REPORT.format("dgx-03", "[1.000000] nvidia: loaded\n"),
    }
    folder = tmp_path / "reports"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)
    with tarfile.open(tmp_path / "reports.tar.gz", "w:gz") as archive:
        archive.add(folder, "reports")
    with zipfile.ZipFile(tmp_path / "reports.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in files.items():
            packed.writestr(name, text)
    for path in (folder, tmp_path / "reports.tar.gz", tmp_path / "reports.zip"):
        reader = SavedLogReader()
        reader.read(path)
        reply = reader.reply()
        assert [(one.node, one.fault) for one in reply.findings] == [("dgx-01", "gpu_lost"), ("dgx-02", "gpu_lost")], (
            path
        )
        assert sorted(file.answer for file in reply.files) == [CLEAN, PAGE, PAGE]


def test_an_archive_that_is_cut_off_could_not_be_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were read before count; and an archive of zeros ends."""
    monkeypatch.setattr("telemetry.files.expansion.FREE_BYTES", 4 * 1024 * 1024)
    log = tmp_path / "dmesg"
    log.write_text("[1.000000] nvidia: loaded\n" * 4000)
    whole = tmp_path / "a.tar"
    with tarfile.open(whole, "w") as archive:
        archive.add(log, "n1/dmesg")
        archive.add(log, "n2/dmesg")
    (tmp_path / "cut.tar").write_bytes(whole.read_bytes()[:150_000])
    reader = SavedLogReader()
    reader.read(tmp_path / "cut.tar")
    reply = reader.reply()
    assert reply.answer == UNJUDGED
    assert any("cut off" in problem for file in reply.files for problem in file.problems)
    zeros = tmp_path / "zeros"
    zeros.write_bytes(bytes(4 * 1024 * 1024))
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.write(zeros, "a")
        packed.write(zeros, "b")
    reader = SavedLogReader()
    reader.read(tmp_path / "bomb.zip")
    assert any("expand to more" in problem for file in reader.reply().files for problem in file.problems)
    reader = SavedLogReader(100_000)
    reader.read(whole)
    assert any("holds more than" in problem for file in reader.reply().files for problem in file.problems)


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("dgx-01/nvidia-bug-report.log.gz", "dgx-01"),
        ("reports/gpu07/var/log/dmesg", "gpu07"),
        ("nvidia-bug-report-dgx-02.log.gz", "dgx-02"),
        ("logs/gpu-03_dmesg.txt", "gpu-03"),
        ("reports/nvidia-bug-report.log.gz", None),
        ("dmesg", None),
        ("01/dmesg", None),
    ],
)
def test_the_node_of_a_file_in_a_folder(name: str, node: str | None) -> None:
    assert node_of_name(name) == node


FM_LINE = FM.format(10, "INFO", "NVSwitch fabric is well")


@pytest.mark.parametrize("text", [FM_START + READY + FM_LINE * 20_000], ids=["Fabric Manager"])
def test_lines_that_were_not_read_are_no_clean_bill(text: str) -> None:
    reply = replied(log=text)
    assert reply.answer == UNJUDGED
    assert "only the first 20,000 lines" in " ".join(reply.files[0].problems)


UNKNOWN_ERROR = KERNEL.format(2, "NVRM: GPU3 _quxRecover: engine 7 failed to settle, status 0x62")


def test_an_error_of_the_driver_that_no_catalogue_has_is_no_clean_bill() -> None:
    """Statement of unknown meaning: neither that a GPU is broken, nor that all is well."""
    reply = replied(log=MODULE + UNKNOWN_ERROR * 2)
    assert (reply.answer, reply.findings) == (UNJUDGED, [])
    [problem] = reply.files[0].problems
    assert "2 lines of the driver speak of an error that no catalogue of kilowatch has" in problem
    assert "engine 7 failed to settle" in problem
    assert reply.files[0].shows == []


@pytest.mark.parametrize(
    "line",
    [
        KERNEL.format(2, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.148.08"),
        KERNEL.format(2, "usb 1-1: device descriptor read error, NVRM: engine 7 failed to settle"),
        "Nov 20 10:00:01 dgx-01 gpud[77]: NVRM: GPU3 _quxRecover: engine 7 failed to settle\n",
    ],
    ids=["no error", "another module", "a program"],
)
def test_what_only_the_driver_itself_says_takes_a_clean_bill_away(line: str) -> None:
    assert replied(log=MODULE + line).answer == CLEAN


LOADING = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.148.08\n"
FOREIGN = "qla2xxx foo: unknown failed error 7\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LOADING, CLEAN),
        (LOADING + "usb 1-1: new device found\n", CLEAN),
        (LOADING + FOREIGN, UNJUDGED),
        (FOREIGN + LOADING, UNJUDGED),
        ("[1.500000] " + LOADING + "[2.500000] " + FOREIGN, UNJUDGED),
        (FOREIGN + "[1.500000] " + LOADING, CLEAN),
        ("Nov 20 10:00:01 n1 kernel: " + LOADING + "Nov 20 10:00:01 n1 foo[7]: failed\n", CLEAN),
        ("[    8.1] " + LOADING, CLEAN),
        ("[    8.1] " + LOADING + "[    9.2] " + FOREIGN, UNJUDGED),
    ],
    ids=["the driver", "a device", "behind", "before", "stamped", "a report", "a program", "tenths", "tenths, behind"],
)
def test_a_kernel_log_without_stamps_is_judged_by_every_line(text: str, expected: str) -> None:
    """`dmesg -t` and `journalctl -k -o cat`. Beside stamped lines, one without is of another tool."""
    reply = replied(log=text)
    assert (reply.answer, reply.findings) == (expected, [])
    if expected == UNJUDGED:
        (problem,) = reply.files[0].problems
        assert "1 line reads like an error that no catalogue" in problem


def test_a_known_fault_counts_more_than_an_unknown_error() -> None:
    fault = KERNEL.format(3, "NVRM: Xid (PCI:0000:18:00): 79, pid=4711, GPU has fallen off the bus.")
    reply = replied(log=MODULE + UNKNOWN_ERROR + fault)
    assert reply.answer == PAGE
    assert [one.fault for one in reply.findings] == ["gpu_lost"]


def test_text_that_was_not_searched_is_no_clean_bill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kilowatch.saved_logs.reader.MAX_SMI_BYTES", 1000)
    reply = replied(log=FM_START + READY + FM_LINE * 100)
    assert reply.answer == UNJUDGED
    assert "only the first 1,000 characters" in " ".join(reply.files[0].problems)


def test_the_newest_row_of_a_long_csv_counts() -> None:
    """Of one with more rows than are kept."""
    row = "GPU-1, {}\n"
    text = "uuid, remapped_rows.failure\n" + row.format(0) * (MOST_ROWS + 1) + row.format(1)
    assert replied(log=text).answer != CLEAN


def test_a_kernel_log_is_judged_by_parts_of_the_node() -> None:
    reply = replied(
        log=MODULE
        + KERNEL.format(2, "nvme nvme4: Removing after probe failure status: -19")
        + KERNEL.format(3, "mlx5_core 0000:9c:00.0: flux capacitor failed")
    )
    (file,) = reply.files
    assert (reply.answer, file.answer) == (PAGE, PAGE)
    told = {name: answer for name, answer in file.subsystems.items() if answer != "clean"}
    assert told == {"storage": "fault", "network": "can't say"}
    assert file.subsystems["GPU driver"] == "clean"
    assert any("network: 1 line reads like an error" in problem for problem in file.problems)
    assert not any("storage" in show or "network," in show.split("file systems, ")[-1] for show in file.shows)
