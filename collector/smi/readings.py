"""Readings of a log: a value or a typed gap for every metric of every GPU."""

from __future__ import annotations

from collections.abc import Iterable

from collector.smi.document import UNREACHABLE, Document, SmiGpu
from collector.smi.values import convert, gap_of
from collector.source import Rows
from telemetry.catalogue import CATALOGUE
from telemetry.gap import DEVICE_LOST, ERROR, NO_PERMISSION, NOT_SUPPORTED, Gap, reason_of
from telemetry.metric import Lane, Metric, Table
from telemetry.wire.schema import SCHEMA

_METRICS = tuple(metric for metric in CATALOGUE if metric.table is Table.GPU)
_PROCESSES = "processes"


def readings_of(document: Document) -> list[dict[str, float]]:
    """Return the readings of each GPU by metric name, in the order of the log; gaps are NaN.

    Every metric of the `gpu` table is included. A metric that the log lacks is `not_supported`, or
    `error` where the log is cut off before it; a GPU whose only content is that it is lost is
    `device_lost` throughout. Sums that nvidia-smi does not print are not computed: boards that
    count ECC errors by SRAM and DRAM (Turing and newer) have no total in their logs.
    """
    return [gpu_readings(gpu) for gpu in document.gpus]


def gpu_readings(gpu: SmiGpu) -> dict[str, float]:
    """Return the readings of one GPU by metric name."""
    if UNREACHABLE in gpu.values:
        return dict.fromkeys((metric.name for metric in _METRICS), _unreached(gpu))
    readings = {metric.name: _reading(gpu, metric) for metric in _METRICS}
    lost = Gap.DEVICE_LOST in {reason_of(value) for value in readings.values()}
    if lost or _reports_lost(gpu):
        answers = (
            metric.name
            for metric in _METRICS
            if _PROCESSES not in metric.readers("smi") and reason_of(readings[metric.name]) is None
        )
        if next(answers, None) is None:
            return dict.fromkeys(readings, DEVICE_LOST)
    return readings


def _unreached(gpu: SmiGpu) -> float:
    """Return the gap of a GPU that enumerates but could not be opened: no permission, else lost,
    whatever the message ("Unknown Error" is the usual one)."""
    gap = gap_of(gpu.values[UNREACHABLE])
    return NO_PERMISSION if gap is not None and reason_of(gap) is Gap.NO_PERMISSION else DEVICE_LOST


def _reports_lost(gpu: SmiGpu) -> bool:
    return any((gap := gap_of(raw)) is not None and reason_of(gap) is Gap.DEVICE_LOST for raw in gpu.values.values())


def _reading(gpu: SmiGpu, metric: Metric) -> float:
    """Return the number of the first path that has one; else the first gap other than
    `not_supported`."""
    paths: tuple[str, ...] = metric.readers("smi")
    absent = NOT_SUPPORTED if gpu.complete or not paths else ERROR
    found: float | None = None
    for path in paths:
        raw = gpu.values.get(path)
        if path == _PROCESSES and raw is not None:
            value = _process_count(gpu, raw)
        elif raw is not None:
            value = convert(raw, metric)
        else:
            inherited = _section_gap(gpu.values, path)
            if inherited is None:
                continue
            value = inherited
        if value == value:  # noqa: PLR0124 - no NaN
            return value
        if found is None or reason_of(found) is Gap.NOT_SUPPORTED:
            found = value
    return absent if found is None else found


def _section_gap(values: dict[str, str], path: str) -> float | None:
    """Return the gap of the section that `path` lies in: `<remapped_rows>N/A</remapped_rows>`."""
    while "/" in path:
        path = path.rpartition("/")[0]
        raw = values.get(path)
        if raw is not None and raw != "":
            return gap_of(raw)
    return None


def _process_count(gpu: SmiGpu, raw: str) -> float:
    """Count the compute processes: type C, also together with graphics (C+G) or MPS (M+C)."""
    if gpu.processes or raw.lower() in {"", "none"}:
        return float(sum(1 for kind in gpu.processes if not kind or "C" in kind))
    gap = gap_of(raw)
    return ERROR if gap is None else gap


def rows_of(document: Document, lanes: Iterable[Lane]) -> Rows:
    """Return the blocks of the `gpu` and `link` tables on these lanes, rows in the log's order."""
    gpus = readings_of(document)
    links = [
        {"link_state": 0.0 if speed is None else 1.0}
        | ({} if speed is None else {"link_speed_bytes_per_second": speed})
        for index in range(len(gpus))
        for _, speed in document.links.get(index, ())
    ]
    tables = {Table.GPU: gpus, Table.LINK: links}
    rows: Rows = {}
    for lane in lanes:
        for table, devices in tables.items():
            number = SCHEMA.index(table, lane)
            names = SCHEMA.blocks[number].names
            rows[number] = [[device.get(name, NOT_SUPPORTED) for name in names] for device in devices]
    return rows
