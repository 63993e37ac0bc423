"""The evidence of an incident: log lines, and earlier faults of the board and the slot. Pure."""

from __future__ import annotations

from urllib.parse import quote

from api.evidence import EvidenceReply
from present.alert.evidence import history_rows, nearby_row
from telemetry.text import time_of_day
from tui.feed.wants import DocumentRequest
from tui.kit.flow import wrapped
from tui.kit.text import clean, fit
from tui.kit.theme import Line

_LINES = 2
_EVERY = 30.0
"""Seconds between two requests: it is collected once."""


def evidence_path(key: str) -> str:
    """Return the path of an incident's evidence."""
    return f"api/v1/incidents/{quote(key, safe='')}/evidence"


def evidence_request(key: str) -> DocumentRequest:
    """Return the request for the evidence."""
    return DocumentRequest(evidence_path(key), EvidenceReply, _EVERY)


def evidence_drawn(evidence: EvidenceReply | None, width: int, *, utc: bool) -> list[Line]:
    """Draw a short form of the evidence of the worst subject; nothing where there is none."""
    if evidence is None or not evidence.cards:
        return []
    card = evidence.cards[0]
    lines: list[Line] = [[], [("evidence", "head"), ("  kilowatch alerts show KEY has all of it", "dim")]]
    for each in card.lines[:_LINES]:
        clock = f"  {time_of_day(each.at, utc=utc)} "
        words = wrapped(clean(each.line), max(20, width - len(clock)))[:2]
        lines += [[(clock if n == 0 else " " * len(clock), "dim"), (line, "")] for n, line in enumerate(words)]
    rows = [nearby_row(card), *(row for row, _ in history_rows(card))]
    for row in rows:
        if row.value:
            value = fit(clean(row.value), max(20, width - len(row.label) - 3)).rstrip()
            lines.append([(f"  {row.label} ", "dim"), (value, row.tone)])
    return lines
