"""The evidence card of each finding: readings around its moment, what else the files tell of its node, the
history of its board, the remedy and the commands. Pure, and bounded in every part.

The cards of pages are made of what a cluster knows (`alerts.message.card`); these of what the files tell,
which may name neither the node nor the zone of a time. What can't be told is named on the card.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import msgspec

from alerts.diagnosis.finding import Finding, FindingEvidence, FindingGpu, FindingReadings, Observation
from alerts.diagnosis.log_time import FindingTime
from alerts.diagnosis.merging import shows_as
from alerts.message.card import AROUND_NS, GPU_METRICS, NEARBY, remedy_of, runbook_file
from alerts.message.commands import past_of, recover_at, silence_of
from alerts.rules.rule import Rule
from alerts.xid.catalogue import XidSeverity
from api.alerts import Severity
from api.evidence import EvidenceCommand
from telemetry.wire.topics import is_name

AROUND_SECONDS = AROUND_NS / 1e9
MOST_INSTANTS = 40
"""Instants of the readings on a card."""
MOST_PAST = 20
"""Other faults of a board on a card."""
_SEARCHED = 500
"""Observations on either side of a moment that are looked at: a forged log may have 50,000 at once."""
_SEVERITIES = {
    XidSeverity.PAGE: Severity.PAGE,
    XidSeverity.TICKET: Severity.TICKET,
    XidSeverity.INFO: Severity.INFO,
    XidSeverity.IGNORE: Severity.INFO,
}


@dataclass(frozen=True, slots=True)
class GpuReadings:
    """Readings of a GPU that a document or a row has."""

    gpu: FindingGpu
    at: FindingTime | None
    values: Mapping[str, float]
    """By metric, without gaps."""


class EvidenceIndex:
    """Everything that the files tell, by node and time, by board, and by GPU."""

    def __init__(
        self,
        observed: Iterable[Observation],
        occurred: Iterable[Observation],
        readings: Iterable[tuple[str | None, GpuReadings]],
    ) -> None:
        """`observed`: everything that counts as nearby. `occurred`: one for each occurrence of a fault.
        `readings`: each with the name of its node."""
        self._times: dict[tuple[object, ...], list[tuple[float, int, Observation]]] = {}
        for number, one in enumerate(observed):
            if one.at is not None:
                key = (one.node, *one.at.axis)
                self._times.setdefault(key, []).append((one.at.seconds, number, one))
        for around in self._times.values():
            around.sort(key=lambda each: each[:2])
        self._boards: dict[tuple[str | None, str], list[Observation]] = {}
        self._states: dict[tuple[str | None, str], list[Observation]] = {}
        known: set[tuple[object, ...]] = set()
        for one in occurred:
            for board in {_board(gpu, one.node) for gpu in one.gpus}:
                if one.severity.rank > XidSeverity.TICKET.rank:
                    continue
                if one.kind == "lines":
                    self._boards.setdefault(board, []).append(one)
                elif (key := (board, one.node, one.fault)) not in known:  # it lasts, until it is seen no more
                    known.add(key)
                    self._states.setdefault(board, []).append(one)
        self._own = {
            board: Counter((one.node, _time_key(one.at)) for one in found) for board, found in self._boards.items()
        }
        self._readings: dict[tuple[str | None, str], list[GpuReadings]] = {}
        for node, each in readings:
            self._readings.setdefault(_board(each.gpu, node), []).append(each)

    def card(self, finding: Finding, rule: Rule | None) -> FindingEvidence:
        """Return the card of a finding; `rule`: that of its name."""
        missing: dict[str, str] = {}
        nearby, near_total = self._nearby(finding, missing)
        history, past_total = self._history(finding, missing)
        if finding.node is None:
            missing["node"] = "no file names the node"
        gpu = finding.gpus[0] if len(finding.gpus) == 1 else FindingGpu()
        place = {
            "node": finding.node, "gpu": None if gpu.index is None else str(gpu.index),
            "uuid": gpu.uuid, "pci": gpu.pci, "serial": gpu.serial, "slot": gpu.slot,
        }  # fmt: skip
        return FindingEvidence(
            readings=self._around(finding, missing),
            nearby=nearby,
            nearby_total=near_total,
            history=history,
            history_total=past_total,
            remedy=remedy_of(
                rule,
                _SEVERITIES[finding.severity],
                None if rule is None else rule.remediation,
                finding.action,
                "" if rule is None else runbook_file(rule.runbook),
                {name: word for name, word in place.items() if word},
            ),
            commands=list(_commands(finding, gpu, rule)),
            missing=missing,
        )

    def _nearby(self, finding: Finding, missing: dict[str, str]) -> tuple[list[Observation], int]:
        """Return what else the files tell of the node within five minutes, and how much of it there is."""
        moment = finding.moment
        if moment is None:
            missing["nearby"] = "the file has no times"
            return [], 0
        line = self._times.get((finding.node, *moment.axis), [])
        first = bisect_left(line, moment.seconds - AROUND_SECONDS, key=lambda each: each[0])
        end = bisect_right(line, moment.seconds + AROUND_SECONDS, key=lambda each: each[0])
        middle = bisect_left(line, moment.seconds, key=lambda each: each[0])
        searched = line[max(first, middle - _SEARCHED) : min(end, middle + _SEARCHED)]
        own = set(finding.lines)
        others = [each[2] for each in searched if each[2].line not in own]
        others.sort(key=lambda one: abs(_seconds(one) - moment.seconds))
        total = end - first - (len(searched) - len(others))
        return sorted(others[:NEARBY], key=_seconds), total

    def _history(self, finding: Finding, missing: dict[str, str]) -> tuple[list[Observation], int]:
        """Return other pages and tickets of the finding's boards, and how many there are."""
        if not finding.gpus:
            return [], 0
        if any(not (gpu.serial or gpu.uuid) for gpu in finding.gpus):
            missing["history"] = (
                "no file names the serial number or UUID of the board: what is known of it is by node and PCI address"
            )
        own = (finding.node, _time_key(finding.moment))
        found: dict[int, Observation] = {}
        total = 0
        for board in dict.fromkeys(_board(gpu, finding.node) for gpu in finding.gpus):
            states = [one for one in self._states.get(board, []) if not _is_of(one, finding)]
            past = self._boards.get(board, [])
            total += len(states) + len(past) - self._own.get(board, Counter())[own]
            lines = (one for one in past if (one.node, _time_key(one.at)) != own)
            others = chain(states, lines)
            found |= {id(one): one for one in islice(others, MOST_PAST)}
        return list(found.values())[:MOST_PAST], total

    def _around(self, finding: Finding, missing: dict[str, str]) -> FindingReadings:
        """Return the readings of the finding's GPU around its moment: of the first that has some."""
        moment = finding.moment
        for gpu in finding.gpus:
            whole = self._readings.get(_board(gpu, finding.node), [])
            timed = [(each.at, each) for each in whole if each.at is not None]
            if len(timed) < 2:
                continue
            if moment is None:
                missing["readings"] = "the finding has no time, so that they can't be placed"
                continue
            alike = [each for each in timed if each[0].axis == moment.axis]
            if not alike:
                missing["readings"] = (
                    f"their times are {_CLOCKS.get(timed[0][0].clock, 'unknown')}, that of the finding "
                    f"is {_CLOCKS.get(moment.clock, 'unknown')}: they can't be compared"
                )
                continue
            near = [each for each in alike if abs(each[0].seconds - moment.seconds) <= AROUND_SECONDS]
            near.sort(key=lambda each: abs(each[0].seconds - moment.seconds))
            if len(near) < 2:
                missing["readings"] = "the files have fewer than two within five minutes"
                continue
            kept = sorted(near[:MOST_INSTANTS], key=lambda each: each[0].seconds)
            missing.pop("readings", None)
            return _columns(gpu, kept)
        if finding.gpus:
            missing.setdefault("readings", "the files have those of one moment at most")
        return FindingReadings()


def with_evidence(findings: Sequence[Finding], index: EvidenceIndex, rules: Mapping[str, Rule]) -> list[Finding]:
    """Return findings, each with its card."""
    return [msgspec.structs.replace(one, evidence=index.card(one, rules.get(one.rule or ""))) for one in findings]


_CLOCKS = {
    "utc": "of a named zone",
    "local": "without a zone",
    "yearless": "without a year or zone",
    "boot": "since a boot",
}


def _is_of(state: Observation, finding: Finding) -> bool:
    """Return whether a state that a document shows is that of a finding, not another fault."""
    if state.node != finding.node:
        return False
    asked = state.fault.startswith("recovery") and bool(finding.xids)
    return asked or shows_as(finding.fault, state.fault)


def _board(gpu: FindingGpu, node: str | None) -> tuple[str | None, str]:
    """Return what identifies a board: its serial number or UUID, wherever it is, else its place."""
    if gpu.serial or gpu.uuid:
        return None, gpu.serial or str(gpu.uuid)
    return node, gpu.pci or f"#{gpu.index}"


def _seconds(one: Observation) -> float:
    return 0.0 if one.at is None else one.at.seconds


def _time_key(at: FindingTime | None) -> tuple[object, ...]:
    return () if at is None else (*at.axis, at.seconds)


def _columns(gpu: FindingGpu, kept: Sequence[tuple[FindingTime, GpuReadings]]) -> FindingReadings:
    names = [name for name in GPU_METRICS if any(name in each.values for _, each in kept)]
    return FindingReadings(
        gpu=gpu,
        at=[at for at, _ in kept],
        columns={name: [each.values.get(name) for _, each in kept] for name in names},
    )


def _commands(finding: Finding, gpu: FindingGpu, rule: Rule | None) -> Iterator[EvidenceCommand]:
    """Yield the commands for a finding, as pages have them; none without the name of its node."""
    node = finding.node
    if node is None or not is_name(node):
        return
    if rule is not None:
        place = f"{node}/{gpu.index}" if gpu.index is not None else gpu.uuid or node
        if recover := recover_at(place, rule.remediation, rule.name):
            yield EvidenceCommand(name="Recover", command=recover)
        conditions = [f"rule={rule.name}", f"node={node}"]
        conditions += [f"uuid={gpu.uuid}"] if gpu.uuid else []
        yield EvidenceCommand(name="Silence", command=silence_of(conditions))
    yield EvidenceCommand(name="Past", command=past_of(node))
