"""The evidence of a finding in saved logs as text: a few lines, or the whole card."""

from __future__ import annotations

from collections.abc import Iterator

from alerts.diagnosis.finding import Finding, FindingEvidence, FindingGpu, Observation
from alerts.message.evidence_text import block, readings_table, remedy_lines
from present.alert.evidence import NEARBY, counted_words
from telemetry.text import counted
from telemetry.text.printable import one_line

_LINE = 160


def short_lines(finding: Finding) -> Iterator[str]:
    """Yield the parts of a card that fit a line each; none that is empty."""
    card = finding.evidence
    if card is None:
        return
    if card.nearby:
        yield f"within 5 min: {_words(card.nearby, card.nearby_total)}"
    if card.history:
        yield f"this board: {_words(card.history, card.history_total)}"
    for one in card.commands[:1]:
        yield f"{one.name.lower()}: {one_line(one.command)}"


def whole_lines(finding: Finding) -> Iterator[str]:
    """Yield a card as lines."""
    card = finding.evidence
    if card is None:
        return
    for line in _blocks(finding, card):
        yield line.removeprefix("  ")


def _blocks(finding: Finding, card: FindingEvidence) -> Iterator[str]:
    if card.readings.gpu is not None:
        table = _table(finding, card)
        yield from block(f"readings of GPU {_gpu(card.readings.gpu)}", table)
    yield from block(NEARBY, _listed(card.nearby, card.nearby_total))
    board = f"this board in these files: {counted(card.history_total, 'other fault')}"
    listed = list(_listed(card.history, card.history_total))
    yield from block(board, listed, empty=bool(finding.gpus))
    yield from block("what to do", remedy_lines(card.remedy))
    yield from block("commands", [f"{one.name}: {one.command}" for one in card.commands])
    yield from block("missing", [f"{part}: {why}" for part, why in card.missing.items()])


def _table(finding: Finding, card: FindingEvidence) -> Iterator[str]:
    readings, moment = card.readings, finding.moment
    begin = 0.0 if moment is None else moment.seconds
    distances = [abs(at.seconds - begin) for at in readings.at]
    return readings_table([one_line(at.text) for at in readings.at], distances, readings.columns, {})


def _listed(observed: list[Observation], total: int) -> Iterator[str]:
    for one in observed:
        where = ", ".join(f"GPU {_gpu(gpu)}" for gpu in one.gpus[:4])
        often = f"x{one.count}" if one.count > 1 else ""
        node = one.node or ""
        when = "no time" if one.at is None else one.at.text
        facts = (when, f"{one.what} ({one.severity})", often, node, where, one.line[:_LINE])
        yield one_line("  ".join(part for part in facts if part))
    if total > len(observed):
        yield f"and {total - len(observed)} more"


def _words(observed: list[Observation], total: int) -> str:
    words = [one.what + (f" GPU {_gpu(one.gpus[0])}" if len(one.gpus) == 1 else "") for one in observed]
    return one_line(counted_words(words, total))


def _gpu(gpu: FindingGpu) -> str:
    """Return the shortest name of a GPU."""
    named = str(gpu.index) if gpu.index is not None else gpu.pci or gpu.uuid
    return one_line(named or "(unnamed)")
