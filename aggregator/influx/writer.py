"""From a batch to requests in the spool: means, changes, roll-ups, events and holes, as lines."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aggregator.influx.aggregates import SpanAggregates, last_columns
from aggregator.influx.lines import MILLISECOND, Chunk, LineColumn, LineEncoder
from aggregator.influx.names import (
    ANNOUNCED,
    EVENTS,
    HOLES,
    JOBS,
    METRICS,
    RAW,
    device_tags,
    frames_field,
    gap_field,
    measurement,
    policy,
    tags,
    text_field,
    whole,
)
from aggregator.influx.names import changes as changes_of
from aggregator.influx.segments import Loss, SpoolRecord
from aggregator.influx.state_changes import StateChanges, names_of
from aggregator.store.protocol import Hole, StoredDevice
from aggregator.store.rollup import high, low, readings
from api.fleet import StoredEvent
from api.jobs import JobRow
from telemetry.wire.schema import SCHEMA

SECOND = 1_000_000_000
JOB_FIGURES = (
    "gpu_hours", "coverage", "utilization_ratio", "energy_joules", "energy_coverage", "wall_joules",
    "wall_coverage", "cost", "memory_peak_bytes", "sm_active_ratio", "tensor_active_ratio",
    "dram_active_ratio",
)  # fmt: skip
"""Figures of a job's summary that are fields, all of them floats."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines, and the retention policy that they go to."""

    policy: str
    chunk: Chunk


class Writer:
    """Writes batches and spans as lines; used by one thread at a time."""

    def __init__(self, cluster: str, lines: int) -> None:
        """`lines`: most lines of one chunk."""
        self._cluster = cluster
        self._encoder = LineEncoder(lines)
        self._devices: dict[int, StoredDevice] = {}
        self._gpus: dict[tuple[str, str], StoredDevice] = {}
        self._tags: dict[int, npt.NDArray[np.object_]] = {}
        """By block and device number, made when they are first used."""

    def add_devices(self, devices: Iterable[StoredDevice]) -> None:
        """Add devices whose rows may come."""
        for device in devices:
            self._devices[device.id] = device
            self._gpus[device.node, device.key] = device

    def close(self) -> None:
        """Close the engine."""
        self._encoder.close()

    # -- Readings --------------------------------------------------------------------------------

    def points(self, block: int, cells: SpanAggregates, step: int = 0) -> Iterator[Lines]:
        """Yield lines with readings or means, or with a roll-up of `step` seconds."""
        columns = _rolled(block, cells) if step else _plain(block, cells)
        table = SCHEMA.blocks[block].table
        chunks = self._encoder.encode(measurement(table, step), self._of(block, cells.device), cells.first, columns)
        yield from (Lines(policy(step), chunk) for chunk in chunks)

    def changes(self, block: int, found: StateChanges) -> Iterator[Lines]:
        """Yield lines with changes of states."""
        names = names_of(block)
        columns = [LineColumn(name, np.ascontiguousarray(found.values[:, at])) for at, name in enumerate(names)]
        chunks = self._encoder.encode(
            changes_of(SCHEMA.blocks[block].table), self._of(block, found.device), found.at, columns
        )
        yield from (Lines(RAW, chunk) for chunk in chunks)

    def _of(self, block: int, device: npt.NDArray[np.int64]) -> npt.NDArray[np.object_]:
        known = self._tags.setdefault(block, np.empty(0, object))
        top = int(device.max(initial=-1)) + 1
        if top > len(known):
            room = np.empty(max(top, 2 * len(known)) - len(known), object)
            known = self._tags[block] = np.concatenate([known, room])
        found = known[device]
        for number in np.unique(device[np.array([each is None for each in found])]).tolist():
            known[number] = self._named(block, number)
        result: npt.NDArray[np.object_] = known[device]
        return result

    def _named(self, block: int, number: int) -> str:
        device = self._devices[number]
        gpu = self._gpus.get((device.node, device.key.rpartition("/")[0]))
        return device_tags(self._cluster, SCHEMA.blocks[block].table, device, gpu)

    # -- Events ----------------------------------------------------------------------------------

    def events(self, events: Iterable[StoredEvent]) -> Iterator[Lines]:
        """Yield lines with events; an event written twice replaces itself."""
        texts = []
        moments = []
        for stored in events:
            event = stored.event
            code = event.data.get("code", event.data.get("xid"))
            named = tags({"cluster": self._cluster, "node": event.node, "kind": event.kind,
                          "gpu": event.gpu, "code": code if _is_code(code) else None})  # fmt: skip
            moment = event.at // MILLISECOND
            texts.append(
                f"{EVENTS}{named} count=1i,id={text_field(event.id)},text={text_field(event.message)} {moment}\n"
            )
            moments.append(moment)
        yield from _texts(texts, moments)

    def holes(self, holes: Iterable[Hole], at: int) -> Iterator[Lines]:
        """Yield lines with holes: frames that are lost for good."""
        texts = []
        for hole in holes:
            named = tags({"cluster": self._cluster, "node": hole.node, "reason": hole.reason})
            texts.append(
                f"{HOLES}{named} frames={hole.last - hole.first + 1}i,first={hole.first}i,"
                f"last={hole.last}i,session={text_field(str(hole.session))} "
                f"{at // MILLISECOND}\n"
            )
        yield from _texts(texts, [at // MILLISECOND] * len(texts))

    def jobs(self, ended: Iterable[JobRow]) -> Iterator[Lines]:
        """Yield lines with jobs that have ended; `ended`: all of each second in which one of them did, in an order
        that lasts. Those of one user that ended in one second are a millisecond apart, for points with the
        same tags and time are one; written again, they replace themselves."""
        texts, moments, ranks = [], [], Counter[tuple[str, int]]()
        for row in ended:
            if row.end is None:
                continue
            named = tags(
                {"cluster": self._cluster, "scheduler": row.scheduler, "user": row.user, "account": row.account}
            )
            second = row.end // SECOND
            moment = second * 1000 + ranks[named, second] % 1000
            ranks[named, second] += 1
            texts.append(f"{JOBS}{named} {_job_fields(row, row.end)} {moment}\n")
            moments.append(moment)
        yield from _texts(texts, moments)

    def losses(self, losses: Iterable[Loss], at: int) -> Iterator[Lines]:
        """Yield lines that announce what the spool had no room for."""
        texts = []
        for number, loss in enumerate(losses):
            named = tags({"cluster": self._cluster, "reason": loss.reason})
            texts.append(
                f"{HOLES}{named} points={loss.points}i,from_ms={loss.first}i,"
                f"to_ms={loss.last}i {at // MILLISECOND + number}\n"
            )
        yield from _texts(texts, [at // MILLISECOND] * len(texts))


def _job_fields(row: JobRow, end: int) -> str:
    """Return the fields of a job; what is not known is left out."""
    fields: dict[str, str] = {
        name: text_field(text)
        for name, text in (
            ("id", row.id), ("name", row.job_name), ("queue", row.queue), ("owner", row.owner),
            ("phase", row.phase), ("state", row.state), ("first_node", min(row.nodes, default="")),
        )
        if text
    }  # fmt: skip
    whole_ones = {
        "restart": row.restart, "nodes": len(row.nodes), "gpus": row.gpus, "exit_code": row.exit_code,
        "begin_ms": row.begin // MILLISECOND, "end_ms": end // MILLISECOND,
    }  # fmt: skip
    numbers: dict[str, float | None] = {
        "seconds": (end - row.begin) / SECOND,
        "wait_seconds": row.wait_seconds,
        "time_limit_seconds": row.time_limit_seconds,
    }
    if (summary := row.summary) is not None:
        whole_ones["gpus_idle"] = summary.gpus_idle
        numbers |= {name: getattr(summary, name) for name in JOB_FIGURES}
    fields |= {name: f"{value}i" for name, value in whole_ones.items() if value is not None}
    fields |= {name: repr(float(value)) for name, value in numbers.items() if value is not None}
    return ",".join(f"{name}={value}" for name, value in fields.items())


def _is_code(code: object) -> bool:
    """Return whether a code is a number of a closed list, and so may be a tag."""
    return isinstance(code, int) and 0 <= code < 10_000


def _plain(block: int, cells: SpanAggregates) -> list[LineColumn]:
    lane = SCHEMA.blocks[block].lane
    columns = _values(block, cells)
    columns.append(LineColumn(frames_field(lane), cells.readings, whole=True))
    for place, reason in enumerate(ANNOUNCED):
        counts = cells.gaps[:, place]
        if counts.any():
            shown = np.where(counts > 0, counts.astype(np.float64), np.nan)
            columns.append(LineColumn(gap_field(reason, lane), shown, whole=True))
    return columns


def _rolled(block: int, cells: SpanAggregates) -> list[LineColumn]:
    found = SCHEMA.blocks[block]
    gauges = len(found.gauges)
    columns = _values(block, cells)
    columns.append(LineColumn(frames_field(found.lane), cells.readings, whole=True))
    for at, name in enumerate(found.names):
        many = cells.known[:, at]
        if not many.any():
            continue
        counted = np.where(many > 0, many.astype(np.float64), np.nan)
        columns.append(LineColumn(readings(name), counted, whole=True))
        if at < gauges:
            columns.append(LineColumn(low(name), cells.low[:, at]))
            columns.append(LineColumn(high(name), cells.high[:, at]))
    return columns


def _values(block: int, cells: SpanAggregates) -> list[LineColumn]:
    """Return the value of each metric: mean of a gauge, last of a counter or a state."""
    found = SCHEMA.blocks[block]
    many = cells.known[:, : len(found.gauges)]
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(many > 0, cells.total / many, np.nan).astype(np.float32)
    last = {place: at for at, place in enumerate(last_columns(found))}
    columns = []
    for place, name in enumerate(found.names):
        if not cells.known[:, place].any():
            continue  # no device has it: no field at all
        if place in last:
            values: npt.NDArray[np.floating] = cells.newest[:, last[place]]
            if place < len(found.gauges):
                values = values.astype(np.float32)
        else:
            values = means[:, place]
        columns.append(LineColumn(name, values, whole(METRICS[name])))
    return columns


def _texts(texts: list[str], moments: list[int]) -> Iterator[Lines]:
    if texts:
        chunk = Chunk("".join(texts).encode(), len(texts), min(moments), max(moments))
        yield Lines(EVENTS, chunk)


def packed(lines: Iterable[Lines], most: int) -> list[SpoolRecord]:
    """Return requests of `most` lines at most (a chunk is never divided), in order by policy."""
    waiting: dict[str, list[Chunk]] = {}
    records = []
    for each in lines:
        chunks = waiting.setdefault(each.policy, [])
        if chunks and sum(chunk.points for chunk in chunks) + each.chunk.points > most:
            records.append(_record(each.policy, chunks))
            chunks.clear()
        chunks.append(each.chunk)
    return records + [_record(name, chunks) for name, chunks in waiting.items() if chunks]


def _record(name: str, chunks: list[Chunk]) -> SpoolRecord:
    body = gzip.compress(b"".join(chunk.text for chunk in chunks), 1, mtime=0)
    first, last = min(chunk.first for chunk in chunks), max(chunk.last for chunk in chunks)
    return SpoolRecord(name, sum(chunk.points for chunk in chunks), first, last, body)
