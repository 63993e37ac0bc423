"""Evidence as text: a few facts for a page, and all of it for a terminal. Texts of the evidence are
printable already (`alerts.message.card`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from alerts.message.commands import show_of
from api.evidence import Evidence, EvidenceReadings, EvidenceReply, Remedy
from present.alert.evidence import NEARBY, NO_JOB, history_rows, job_text, nearby_row, nearby_what
from present.device.gpu import clock_limit_row
from present.device.reading import NONE, metric_text, plain, reading_text
from telemetry.catalogue import BY_NAME
from telemetry.metric import Kind, Unit
from telemetry.text import duration, time_of_day, timestamp

_SECOND = 1_000_000_000
_PAGE_LINES = 2
_PAGE_JOBS = 3
_PAGE_INSTANTS = (-300, -60, 0)
"""Seconds from the moment whose readings a page has, beside those of the collection."""
_PAGE_METRICS = (
    "gpu_temperature_celsius",
    "gpu_memory_temperature_celsius",
    "gpu_power_watts",
    "gpu_sm_clock_hertz",
    "gpu_ecc_volatile_uncorrected_total",
    "node_gpus_answering",
    "node_wall_power_watts",
)


def facts_of(evidence: EvidenceReply) -> Iterator[tuple[str, str]]:
    """Yield names and values of the short form that a page has; of the first card."""
    if not evidence.cards:
        if evidence.problem:
            yield "Evidence", f"{evidence.problem}; later: {show_of(evidence.incident)}"
        return
    card = evidence.cards[0]
    for line in card.lines[:_PAGE_LINES]:
        yield "Log", f"{time_of_day(line.at)} {line.line}"
    yield "Jobs there", _short_jobs(card)
    yield "Readings", _short_readings(card)
    nearby = nearby_row(card)
    yield nearby.label.capitalize(), nearby.value
    for row, _ in history_rows(card):
        if row.label == "this board" or card.slot or card.pci:
            yield row.label.capitalize(), f"{row.value}: {row.note}" if row.note else row.value
    yield "Act", card.remedy.until
    if len(evidence.cards) > 1:
        yield "Evidence", f"{len(evidence.cards)} cards: {show_of(evidence.incident)}"


def evidence_lines(evidence: EvidenceReply) -> Iterator[str]:
    """Yield all of the evidence as lines for a terminal."""
    yield f"{evidence.title or evidence.incident}"
    yield f"key {evidence.incident}"
    if evidence.problem:
        yield evidence.problem
    for card in evidence.cards:
        yield ""
        yield from card_lines(card)


def card_lines(card: Evidence) -> Iterator[str]:
    """Yield a card as lines for a terminal."""
    yield f"{card.severity.upper()} {card.summary}"
    for name, value in _identity(card):
        yield f"  {name:<9} {value}"
    if card.jobs_total is not None:
        held = [job_text(one) for one in card.jobs]
        if card.jobs_total > len(held):
            held.append(f"and {card.jobs_total - len(held)} more")
        yield from block("jobs at the moment", held or [NO_JOB])
    yield from block("log", [f"{time_of_day(one.at)}  {one.line}" for one in card.lines])
    yield from block("readings", _table(card.readings, card.moment))
    nearby = [f"{time_of_day(one.at)} {nearby_what(one)} {one.text or one.line}".rstrip() for one in card.nearby]
    if card.nearby_total > len(card.nearby):
        nearby.append(f"and {card.nearby_total - len(card.nearby)} more")
    yield from block(NEARBY, nearby)
    for row, faults in history_rows(card):
        known = [
            f"{timestamp(one.at)}  {one.rule} ({one.severity}) on {one.node} {one.place} board {one.serial}"
            for one in faults
        ]
        yield from block(f"{row.label}: {row.value}", known, empty=True)
    yield from block("what to do", remedy_lines(card.remedy))
    yield from block("commands", [f"{one.name}: {one.command}" for one in card.commands])
    yield from block("missing", [f"{part}: {why}" for part, why in card.missing.items()])


def _identity(card: Evidence) -> Iterator[tuple[str, str]]:
    facts = {
        "rule": card.rule, "node": card.node, "name": card.name, "gpu": card.index,
        "link": card.link, "model": card.model, "uuid": card.uuid, "serial": card.serial,
        "pci": card.pci, "slot": card.slot, "rack": card.rack, "owner": card.owner, "job": card.job,
        "user": card.user, "account": card.account, "process": card.process, "since": timestamp(card.moment),
    }  # fmt: skip
    for name, value in facts.items():
        if value:
            yield name, value


def block(head: str, lines: Iterable[str], *, empty: bool = False) -> Iterator[str]:
    """Yield a part of a card: its head, and its lines below; nothing without lines, unless `empty`."""
    shown = list(lines)
    if shown or empty:
        yield f"  {head}"
        for line in shown:
            yield f"    {line}"


def remedy_lines(remedy: Remedy) -> Iterator[str]:
    """Yield a remedy as lines: what it takes, how soon, what to do, the steps."""
    if remedy.remediation is not None:
        yield f"remedy: {remedy.remediation.text}"
    yield f"act: {remedy.until}"
    yield remedy.what
    for number, step in enumerate(remedy.steps, 1):
        yield f"{number}. {step}"
    if remedy.replace:
        yield f"replace: {remedy.replace}"
    if remedy.runbook:
        yield f"runbook: {remedy.runbook}"


def shown_columns(readings: EvidenceReadings) -> list[str]:
    """Return the metrics that say something: not those that this device lacks, nor flags and counters
    that are zero throughout."""
    return _shown(readings.columns, readings.gaps)


def _shown(columns: Mapping[str, Sequence[float | None]], gaps: Mapping[str, str]) -> list[str]:
    found = []
    for name, values in columns.items():
        present = [value for value in values if value is not None]
        if not present:
            if gaps.get(name) in {"not_supported", "no_permission"}:
                continue
        elif not any(present) and _is_silent_at_zero(name):
            continue
        found.append(name)
    return found


def _is_silent_at_zero(name: str) -> bool:
    metric = BY_NAME.get(name)
    return metric is not None and (metric.unit in {Unit.FLAG, Unit.STATE, Unit.COUNT} or metric.kind is Kind.COUNTER)


def _table(readings: EvidenceReadings, moment: int) -> Iterator[str]:
    distances = [abs(at - moment) for at in readings.at]
    times = list(map(time_of_day, readings.at))
    return readings_table(times, distances, readings.columns, readings.gaps)


def readings_table(
    times: Sequence[str],
    distances: Sequence[float],
    columns: Mapping[str, Sequence[float | None]],
    gaps: Mapping[str, str],
) -> Iterator[str]:
    """Yield a table: a column an instant (some of them, with the nearest to the moment), a row a metric.

    `distances`: of each instant from the moment. `gaps`: reasons of gaps at the last instant.
    """
    names = _shown(columns, gaps)
    if not names or not times:
        return
    last = len(times) - 1
    every = max(1, -(-last // 6))
    nearest = min(range(last + 1), key=distances.__getitem__)
    picked = sorted({*range(last, -1, -every), 0, nearest})
    rows = [["", *(times[number] for number in picked)]]
    rows += [[metric_text(name), *(reading_text(name, columns[name][n]) for n in picked)] for name in names]
    for row, name in zip(rows[1:], names, strict=True):
        if row[-1] == NONE and name in gaps:
            row[-1] = plain(gaps[name])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        yield "  ".join(cells).rstrip()


def _short_jobs(card: Evidence) -> str:
    """Return the jobs that the alert itself does not name."""
    if not card.jobs or (len(card.jobs) == 1 and card.labels.get("user")):
        return ""
    named = "; ".join(map(job_text, card.jobs[:_PAGE_JOBS]))
    rest = (card.jobs_total or 0) - _PAGE_JOBS
    return f"{named}; and {rest} more" if rest > 0 else named


def _short_readings(card: Evidence) -> str:
    readings = card.readings
    if not readings.at:
        return f"not read: {card.missing['readings']}" if "readings" in card.missing else ""
    last = len(readings.at) - 1
    picked = {last: None}
    for seconds in reversed(_PAGE_INSTANTS):
        wanted = card.moment + seconds * _SECOND
        nearest = min(range(last + 1), key=lambda n: abs(readings.at[n] - wanted))
        if abs(readings.at[nearest] - wanted) <= 45 * _SECOND:
            picked[nearest] = None
    numbers = sorted(picked)
    shown = set(shown_columns(readings))
    parts = [
        f"{metric_text(name)} " + " → ".join(reading_text(name, readings.columns[name][number]) for number in numbers)
        for name in _PAGE_METRICS
        if name in shown
    ]
    limits = clock_limit_row(lambda name: readings.columns[name][last] if name in shown else None)
    if limits.tone:
        parts.append(f"{limits.label} {limits.value}")
    times = ", ".join(_apart(readings.at[number] - card.moment) for number in numbers)
    return f"({times}) " + " · ".join(parts) if parts else ""


def _apart(difference: int) -> str:
    seconds = round(difference / _SECOND)
    if abs(seconds) < 1:
        return "0"
    return f"{'-' if seconds < 0 else '+'}{duration(abs(seconds))}"
