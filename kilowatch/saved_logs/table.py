"""The table that `nvidia-smi` prints without arguments, and CSV of `nvidia-smi --query-gpu`."""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Mapping

from alerts.diagnosis.finding import Finding, FindingGpu, of_gpus, with_rule
from alerts.diagnosis.log_time import time_of_document
from alerts.diagnosis.snapshot import UNREAD_ACTION, GpuSnapshot, denied_by, evaluate_snapshots, proved_by, unproved
from alerts.xid.catalogue import XidSeverity
from collector.smi.values import convert, gap_of, is_denied, is_error
from kilowatch.saved_logs.evidence import GpuReadings
from kilowatch.saved_logs.part import Part
from telemetry.catalogue import BY_NAME
from telemetry.gap import reason_of
from telemetry.notations.pci import normal_pci
from telemetry.text import counted

LOST = re.compile(r"is lost|fallen off|requires? (?:a )?reset|requires restart", re.IGNORECASE)
"""Words in place of a value of a GPU that can't be reached."""

DENIED = "save it as root: its user may not read {}"
"""Problem of a document that was saved without permission."""

# The table. Its first row of a GPU ends with the count of uncorrected errors, its second has fan,
# temperature and power; `ERR!` is what the driver could not read.

_TITLE = re.compile(r"^\| NVIDIA-SMI \S", re.MULTILINE)
_FIRST = re.compile(
    r"^\|\s{1,4}(\d{1,3})\s{1,3}(\S[^|]{0,60}?)\s{1,40}(\S{1,6})?\s{0,4}\|\s{1,4}"
    r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s{1,4}(\S{1,6})\s{1,4}\|"
    r"\s{1,40}(\S[^|]{0,30}?)\s{0,4}\|\s*$"
)


def table_of(text: str) -> Part | None:
    """Return what the table of a bare `nvidia-smi` says; None for a text without one.

    Without a finding it proves nothing: repairs that wait, the recovery action and the limits of
    temperature are not in it.
    """
    if _TITLE.search(text) is None:
        return None
    part = Part("table of nvidia-smi", of_driver=True)
    lines = text.split("\n")
    seen: set[tuple[str, str]] = set()
    for number, line in enumerate(lines):
        row = _FIRST.match(line.rstrip()) if line.startswith("|") else None
        if row is None:
            continue
        more = [each for each in lines[number + 1 : number + 3] if each.startswith("|")]
        pci = normal_pci(row[4])
        gpu = FindingGpu(index=int(row[1]), pci=pci, name=row[2].strip())
        part.gpus.append(gpu)
        for one in _of_row(row, [line, *more]):
            if (one.fault, row[4]) not in seen:
                seen.add((one.fault, row[4]))
                part.findings.append(with_rule(of_gpus(one, [gpu])))
    if not part.gpus:
        part.broken = True
        part.problem = "the table has no GPU in it; it is cut off"
    else:
        part.problem = (
            f"a table of {counted(len(part.gpus), 'GPU')} shows neither repairs of the memory that wait, nor "
            "the recovery action, nor the limits of temperature: save `nvidia-smi -q`"
        )
    return part


def _of_row(row: re.Match[str], lines: list[str]) -> list[Finding]:
    found = []
    shown = [" ".join(each.split()) for each in lines]
    ecc = row[6].strip()
    if ecc.isdigit() and int(ecc[:15]) > 0:
        found.append(
            Finding(
                severity=XidSeverity.TICKET,
                fault="ecc_volatile",
                line=shown[0],
                lines=shown[:1],
                action=f"{ecc} uncorrected memory errors since the driver "
                "loaded. Look for XIDs 48, 94 and 95 in the kernel log, and reset the GPU when "
                "it is next idle.",
            )
        )
    broken = [each for each in shown if "ERR!" in each or "Unknown Error" in each]
    if any(LOST.search(each) for each in shown):
        found.append(
            Finding(
                severity=XidSeverity.PAGE,
                fault="gpu_lost",
                line=shown[0],
                lines=shown,
                action="The driver no longer reaches this GPU. Drain the node and reboot it.",
            )
        )
    elif broken:
        found.append(
            Finding(severity=XidSeverity.TICKET, fault="gpu_unread", line=broken[0], lines=broken, action=UNREAD_ACTION)
        )
    return found


# CSV: a line of names, then a line a GPU and moment. The newest line of each GPU counts.

_METRICS = {
    "temperature.gpu": "gpu_temperature_celsius",
    "temperature.gpu.tlimit": "gpu_thermal_margin_celsius",
    "remapped_rows.correctable": "gpu_remapped_rows_correctable",
    "remapped_rows.uncorrectable": "gpu_remapped_rows_uncorrectable",
    "remapped_rows.pending": "gpu_remapped_rows_pending",
    "remapped_rows.failure": "gpu_remapped_rows_failure",
    "retired_pages.single_bit_ecc.count": "gpu_retired_pages_single_bit",
    "retired_pages.sbe": "gpu_retired_pages_single_bit",
    "retired_pages.double_bit.count": "gpu_retired_pages_double_bit",
    "retired_pages.dbe": "gpu_retired_pages_double_bit",
    "retired_pages.pending": "gpu_retired_pages_pending",
    "ecc.errors.uncorrected.volatile.total": "gpu_ecc_volatile_uncorrected_total",
    "ecc.errors.uncorrected.volatile.dram": "gpu_ecc_volatile_uncorrected_dram_total",
    "ecc.errors.uncorrected.volatile.device_memory": "gpu_ecc_volatile_uncorrected_dram_total",
    "ecc.errors.uncorrected.volatile.sram": "gpu_ecc_volatile_uncorrected_sram_total",
    "clocks_event_reasons.hw_thermal_slowdown": "gpu_clocks_event_hw_thermal_slowdown",
    "clocks_throttle_reasons.hw_thermal_slowdown": "gpu_clocks_event_hw_thermal_slowdown",
    "clocks_event_reasons.hw_power_brake_slowdown": "gpu_clocks_event_hw_power_brake_slowdown",
    "clocks_throttle_reasons.hw_power_brake_slowdown": "gpu_clocks_event_hw_power_brake_slowdown",
    "gpu_recovery_action": "gpu_recovery_action",
    "mig.mode.current": "gpu_mig_mode",
}
"""Metrics of the catalogue by the name that `nvidia-smi --help-query-gpu` has for them."""
_SHOWN = {
    **_METRICS,
    "temperature.memory": "gpu_memory_temperature_celsius",
    "power.draw": "gpu_power_watts",
    "power.draw.average": "gpu_power_watts",
    "power.limit": "gpu_power_limit_watts",
    "enforced.power.limit": "gpu_power_limit_watts",
    "clocks.sm": "gpu_sm_clock_hertz",
    "clocks.current.sm": "gpu_sm_clock_hertz",
    "utilization.gpu": "gpu_utilization_ratio",
    "memory.used": "gpu_memory_used_bytes",
    "clocks_event_reasons.sw_power_cap": "gpu_clocks_event_sw_power_cap",
    "clocks_throttle_reasons.sw_power_cap": "gpu_clocks_event_sw_power_cap",
    "pcie.link.gen.current": "gpu_pcie_link_generation",
    "pcie.link.width.current": "gpu_pcie_link_width",
}
"""Metrics whose readings around a finding are shown, beside those that are judged."""
MOST_ROWS = 20_000
"""Rows of CSV that are kept for the readings around a finding: the newest."""
_ADDRESS = ("pci.bus_id", "gpu_bus_id")
_IDENTITY = ("uuid", "gpu_uuid", *_ADDRESS, "index", "serial", "gpu_serial")
_NAMES = frozenset({*_METRICS, *_IDENTITY, "name", "gpu_name", "timestamp", "driver_version", "pstate",
                    "utilization.gpu", "utilization.memory", "memory.used", "memory.total",
                    "power.draw", "clocks.sm", "clocks.current.sm", "count"})  # fmt: skip


def csv_of(text: str) -> Part | None:
    """Return what CSV of `nvidia-smi --query-gpu` says, also within another text; None without any."""
    lines = text.split("\n")
    part: Part | None = None
    gpus: dict[str, GpuSnapshot] = {}
    rows: deque[tuple[GpuSnapshot, dict[str, str]]] = deque(maxlen=MOST_ROWS)
    columns: list[str] = []
    for line in lines:
        if columns and line.count(",") >= len(columns) - 1:
            cells = next(csv.reader([line.replace("\0", "")], skipinitialspace=True))
            if len(cells) == len(columns) and _columns(line) is None:
                row = dict(zip(columns, map(str.strip, cells), strict=True))
                key, gpu = _snapshot(row)
                rows.append((gpu, row))
                if key not in gpus or not gpus[key].lost:
                    gpus[key] = gpu
                continue
        columns = _columns(line) or []
        if columns:
            part = part or Part("CSV of nvidia-smi", of_driver=True)
    if part is None:
        return None
    found = list(gpus.values())
    part.gpus = [gpu.identity for gpu in found if gpu.pci or gpu.uuid or gpu.index is not None]
    part.findings = evaluate_snapshots(found)
    part.readings = [
        GpuReadings(gpu.identity, time_of_document(row["timestamp"], ""), _readings(row))
        for gpu, row in rows
        if "timestamp" in row
    ]
    part.shows, part.lacks = proved_by(found)
    if not found:
        part.problem = "CSV with the names of its columns and no line of a GPU"
    elif not part.shows:
        part.problem = "no column of it shows the health of a GPU, only load, power or clocks: save `nvidia-smi -q`"
    elif denied := denied_by(found):
        part.problem, part.broken = DENIED.format("; ".join(denied)), True
    elif silent := unproved(found):
        part.problem = f"{len(silent)} of {len(found)} GPUs have no value that shows their health"
        part.broken = True
    return part


def _columns(line: str) -> list[str] | None:
    """Return the names of columns that a line has, without their units; None for another line."""
    if "," not in line and line.strip() not in _METRICS:
        return None
    names = [name.strip().partition(" [")[0] for name in line.strip().split(",")]
    known = [name for name in names if name in _NAMES]
    words = all(re.fullmatch(r"[A-Za-z][\w.]{1,80}", name) for name in names)
    return names if words and (len(known) > 1 or names[0] in _METRICS) else None


def _snapshot(cells: dict[str, str]) -> tuple[str, GpuSnapshot]:
    words = {name: cells.get(name, "") for name in _IDENTITY}
    known = {name: word for name, word in words.items() if word and gap_of(word) is None}
    index = known.get("index", "")
    gpu = GpuSnapshot(
        pci=normal_pci(known.get("pci.bus_id") or known.get("gpu_bus_id") or ""),
        name=cells.get("name") or cells.get("gpu_name") or "GPU",
        readings=_readings(cells, _METRICS),
        lost=next((word.strip("[]") for word in cells.values() if LOST.search(word)), ""),
        index=int(index) if index.isascii() and index.isdigit() and len(index) < 4 else None,
        uuid=known.get("uuid") or known.get("gpu_uuid"),
        serial=known.get("serial") or known.get("gpu_serial"),
        unread=[f"{name}: {word.strip('[]')}" for name, word in cells.items() if is_error(word)],
        denied=[name for column, name in _METRICS.items() if is_denied(cells.get(column, ""))],
    )
    return gpu.uuid or gpu.pci or index, gpu


def _readings(cells: Mapping[str, str], metrics: Mapping[str, str] = _SHOWN) -> dict[str, float]:
    """Return the readings of a row, without gaps."""
    readings = {}
    for column, name in metrics.items():
        if column not in cells:
            continue
        word = cells[column]
        if column.startswith("temperature.") and word.lstrip("-").isdigit():
            word += " C"  # the one quantity that CSV has without its unit
        if reason_of(value := convert(word, BY_NAME[name])) is None:
            readings[name] = value
    return readings
