"""The checks of `kilowatch check`: what one reading of this node and its kernel log show.

Nothing is run on the GPUs, and nothing is changed. GPUs are judged as `kilowatch diagnose` judges a
document of nvidia-smi, the kernel log as that command judges one, and the node by the shipped rules.
"""

from __future__ import annotations

import asyncio
import errno
import math
import os
import stat
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from alerts.diagnosis.diagnosis import Diagnosis
from alerts.diagnosis.finding import Finding
from alerts.diagnosis.snapshot import GpuSnapshot, evaluate_snapshots, proved_by, unproved
from alerts.engine.instant import node_verdicts
from alerts.rules.condition import BAD, UNKNOWN
from alerts.rules.names import format_value
from alerts.rules.rule import load
from alerts.xid.catalogue import XidSeverity
from api.alerts import Severity
from collector.commands.once import OPENING_SECONDS, NodeReading, read_node
from collector.config import CollectorConfig
from collector.host.role import AMD, NVIDIA, PCI, gpus_on_the_bus
from collector.source import Source
from collector.sources import is_elsewhere
from kilowatch.check.measurements import measured
from kilowatch.check.verdict import CheckReply, CheckResult, Verdict, reason_of, verdict_of, worst_first
from telemetry.devices import Gpu
from telemetry.gap import Gap
from telemetry.gap import reason_of as gap_of
from telemetry.metric import Table
from telemetry.text import counted, duration
from telemetry.wire.schema import SCHEMA

KERNEL_LOG = Path("/dev/kmsg")
MOST_LOG = 8 * 1024 * 1024
"""Bytes at the end of a log file that are read."""
QUICK_SECONDS = 0.5
"""Seconds that a quick check waits for what answers late."""
_RECORD = 16 * 1024
"""Bytes of a record of /dev/kmsg at most."""
_UNFIT = frozenset({"driver_down", "driver_mismatch", "driver_hung", "gpus_unread", "recovery_drain"})
"""Rules that are tickets, for no running job is lost by them, but with which no work may begin."""
_ABSENT = frozenset({Gap.NOT_SUPPORTED, Gap.NOT_READ})
"""Reasons for which a rule has no verdict in a cluster either."""


class CheckDepth(StrEnum):
    """How much is checked."""

    QUICK = "quick"
    """Nothing is waited for: a driver that is being opened is not known."""
    USUAL = "usual"
    FULL = "full"
    """With measurements, on a node that nobody uses."""


async def check_node(
    config: CollectorConfig,
    gpus: int | None,
    seconds: float,
    source: Source | None = None,
    depth: CheckDepth = CheckDepth.USUAL,
) -> CheckReply:
    """Check this node. `gpus`: how many it must have, None where only those that are there count;
    `seconds`: age of the oldest line of the kernel log that counts. Raises `ConfigError` or `SourceError`."""
    began, at = time.monotonic(), time.time_ns()
    longest = QUICK_SECONDS if depth is CheckDepth.QUICK else OPENING_SECONDS
    reading = await read_node(config, source, longest)
    elsewhere = is_elsewhere(config.source)
    results = [
        *driver_results(reading, gpus, None if elsewhere else _on_the_bus(config.host_root, reading.inventory.source)),
        *gpu_results(reading),
        *node_results(reading),
        *kernel_log_results(None if elsewhere else config.kernel_log, seconds),
    ]
    values: dict[str, float] = {}
    if depth is CheckDepth.FULL:
        more, values = await asyncio.to_thread(measured, reading)
        results += more
    return CheckReply(
        node=config.node,
        verdict=verdict_of(results),
        reason=reason_of(results),
        at=at,
        seconds=round(time.monotonic() - began, 3),
        results=worst_first(results),
        measured=values,
    )


def _on_the_bus(root: Path, source: str) -> int | None:
    """Return the GPUs that the PCI bus of a node has of the makers whose drivers a source reads."""
    makers = {"amd": (AMD,), "nvml": (NVIDIA,), "nvidia-smi": (NVIDIA,)}
    return gpus_on_the_bus(root / PCI, makers.get(source, (NVIDIA, AMD)))


def driver_results(reading: NodeReading, expected: int | None, on_the_bus: int | None) -> Iterator[CheckResult]:
    """Compare the GPUs that answer with those that must be there."""
    inventory = reading.inventory
    answering = sum(gpu.present and not _lost(reading, row) for row, gpu in enumerate(inventory.gpus))
    state, wanted = inventory.driver_state, max(expected or 0, on_the_bus or 0, len(inventory.gpus))
    if state not in {"up", "none", "released"} and (wanted or on_the_bus is None):
        unknown = state in {"unknown", "no_permission"}
        text = inventory.driver_message or f"the driver is {state}"
        yield CheckResult(
            check="driver",
            verdict=Verdict.UNKNOWN if unknown else Verdict.UNFIT,
            text=text,
            action="kilowatch doctor",
            rule=None if unknown else "driver_down",
        )
    elif state == "released":
        text = "the collector has released the driver on request, so that no GPU was read"
        yield CheckResult(check="driver", verdict=Verdict.UNKNOWN, text=text)
    elif answering < wanted:
        text = f"{answering} of {counted(wanted, 'GPU')} answer"
        why = (
            ", as many as were asked for"
            if wanted == expected
            else ", as many as are on the PCI bus or were here before"
        )
        yield CheckResult(
            check="driver",
            verdict=Verdict.UNFIT,
            text=text + why,
            rule="gpus_unread",
            action="Look for a lost GPU in the kernel log; reboot, then reseat or replace it.",
        )
    elif not wanted:
        yield CheckResult(check="driver", verdict=Verdict.FIT, text="no GPU in this node")
    else:
        text = f"{counted(answering, 'GPU')} answer{'s' if answering == 1 else ''}"
        if inventory.driver_version:
            text += f", driver {inventory.driver_version}"
        yield CheckResult(check="driver", verdict=Verdict.FIT, text=text)


def _lost(reading: NodeReading, row: int) -> bool:
    """Return whether no value of a GPU was read, and at least one because the GPU is lost."""
    reasons = {gap_of(value) for value in _values(reading, row).values()}
    return None not in reasons and Gap.DEVICE_LOST in reasons


def _values(reading: NodeReading, row: int) -> dict[str, float]:
    return {
        name: value
        for number, block in enumerate(SCHEMA.blocks)
        if block.table is Table.GPU and number in reading.rows
        for name, value in zip(block.names, reading.rows[number][row], strict=True)
    }


def gpu_results(reading: NodeReading) -> Iterator[CheckResult]:
    """Judge each GPU by its states."""
    inventory = reading.inventory
    snapshots = [_snapshot(reading, row, gpu) for row, gpu in enumerate(inventory.gpus)]
    found = evaluate_snapshots(snapshots)
    for one in found:
        if (verdict := _verdict(one)) is not None:
            yield _of_finding(one, verdict)
    blind = unproved(snapshots)
    for gpu in blind:
        yield CheckResult(
            check=_named(gpu.index), verdict=Verdict.UNKNOWN, text="it answers, but nothing of its health can be read"
        )
    if snapshots and not found and not blind:
        shown, _ = proved_by(snapshots)
        text = f"no fault in {', '.join(shown)}"
        yield CheckResult(check="GPUs", verdict=Verdict.FIT, text=text)


def _snapshot(reading: NodeReading, row: int, gpu: Gpu) -> GpuSnapshot:
    values = {name: value for name, value in _values(reading, row).items() if not math.isnan(value)}
    lost = not gpu.present or _lost(reading, row)
    return GpuSnapshot(
        pci=gpu.pci,
        name=gpu.name,
        readings=values,
        lost="GPU is lost" if lost else "",
        index=gpu.index,
        uuid=gpu.uuid,
        serial=gpu.serial,
        slot=gpu.slot,
    )


def _verdict(finding: Finding) -> Verdict | None:
    """Return the verdict of a finding; None for one that says nothing of the node."""
    if finding.severity is XidSeverity.PAGE or finding.rule in _UNFIT:
        return Verdict.UNFIT
    return Verdict.DEGRADED if finding.severity is XidSeverity.TICKET else None


def _of_finding(finding: Finding, verdict: Verdict, check: str = "") -> CheckResult:
    named = _named(finding.index, finding.gpu)
    line = finding.line.partition(": ")[2] or finding.line
    return CheckResult(
        check=check or named,
        verdict=verdict,
        text=f"{named}: {finding.line}" if check else line,
        action=finding.action,
        rule=finding.rule,
    )


def _named(index: int | None, pci: str | None = None) -> str:
    return f"GPU {index}" if index is not None else f"GPU {pci}" if pci else "GPUs"


def node_results(reading: NodeReading) -> Iterator[CheckResult]:
    """Judge the node by the shipped rules that need no history."""
    well = []
    for one in node_verdicts(load(), reading.inventory, reading.rows):
        rule, metric = one.rule, next(iter(one.rule.when.metrics()))
        if rule.name in _OF_DRIVER:
            continue  # `driver_results` says it, and more of it
        if one.verdict == BAD:
            facts = {"where": "this node", "node": "this node", "value": format_value(metric, one.value)}
            unfit = rule.severity is Severity.PAGE or rule.name in _UNFIT
            yield CheckResult(
                check="node",
                verdict=Verdict.UNFIT if unfit else Verdict.DEGRADED,
                text=rule.summary.format_map(facts),
                action=" ".join(rule.steps[:1]),
                rule=rule.name,
            )
        elif one.verdict == UNKNOWN:
            reason = gap_of(one.value)
            if reason is not None and reason not in _ABSENT:
                yield CheckResult(
                    check="node",
                    verdict=Verdict.UNKNOWN,
                    rule=rule.name,
                    text=f"{metric}: {reason.word.replace('_', ' ')}",
                )
        else:
            well.append(rule.name)
    if well:
        text = f"no fault by the rules {', '.join(well)}"
        yield CheckResult(check="node", verdict=Verdict.FIT, text=text)


_OF_DRIVER = frozenset({"driver_down", "driver_mismatch", "gpus_unread"})


def kernel_log_results(setting: str | None, seconds: float) -> list[CheckResult]:
    """Judge the lines of the kernel log that are at most so many seconds old. `setting`: of the collector;
    a log file is read from its end, whatever the age of its lines."""
    if setting is None:
        text = "not read: the settings leave it out, or the readings are of another machine"
        return [CheckResult(check="kernel log", verdict=Verdict.LEFT_OUT, text=text)]
    path = KERNEL_LOG if setting == "auto" else Path(setting)
    try:
        lines, span = _recent(path, seconds)
    except OSError as error:
        text = f"{path} can't be read: {error.strerror or error}"
        action = "Run it as root, or with CAP_SYSLOG, as Slurm and node-problem-detector do."
        return [CheckResult(check="kernel log", verdict=Verdict.UNKNOWN, text=text, action=action)]
    log = Diagnosis()
    log.next_log(str(path))
    log.feed(lines.decode(errors="replace"))
    found = [
        _of_finding(one, verdict, "kernel log") for one in log.incidents() if (verdict := _verdict(one)) is not None
    ]
    count, first = log.unknown_errors(str(path))
    if count:
        text = f"{counted(count, 'error')} of the driver that kilowatch does not know, the first: {first}"
        found.append(CheckResult(check="kernel log", verdict=Verdict.UNKNOWN, text=text))
    if not found:
        text = f"no fault of a GPU in {span}"
        found.append(CheckResult(check="kernel log", verdict=Verdict.FIT, text=text))
    return found


def _recent(path: Path, seconds: float) -> tuple[bytes, str]:
    """Return the newest part of a kernel log, and words for what it is. Raises `OSError`."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(os.fstat(file).st_mode):
            records = recent_records(file, time.monotonic() - seconds)
            words = f"{counted(len(records), 'line')} of the last {duration(seconds)}"
            return b"".join(records), words
        os.lseek(file, max(0, os.fstat(file).st_size - MOST_LOG), os.SEEK_SET)
        data = b"".join(iter(lambda: os.read(file, 1 << 20), b""))
    finally:
        os.close(file)
    return data, f"the last {counted(data.count(bytes([10])), 'line')} of {path}"


def recent_records(file: int, oldest: float) -> list[bytes]:
    """Return the records of /dev/kmsg that were written since `oldest`, monotonic seconds. Each read returns one;
    one that does not say when it was written counts."""
    found: list[bytes] = []
    while True:
        try:
            record = os.read(file, _RECORD)
        except BlockingIOError:
            return found
        except BrokenPipeError:  # the buffer wrapped around; the next read goes on
            continue
        if not record:
            return found
        fields = record.partition(b";")[0].split(b",")
        at = float(fields[2]) / 1e6 if len(fields) > 2 and fields[2].isdigit() else math.inf
        if at >= oldest:
            found.append(record)
