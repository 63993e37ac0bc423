"""The evidence of an incident: log lines, and earlier faults of the board and the slot. Pure."""

from __future__ import annotations

from urllib.parse import quote

from api.evidence import Evidence, EvidenceReply
from telemetry.text import counted, time_of_day
from tui.feed.wants import DocumentRequest
from tui.kit.flow import wrapped
from tui.kit.text import clean
from tui.theme import Line

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
    lines: list[Line] = [
        [],
        [("evidence", "head"), ("  kilowatch alerts show KEY has all of it", "dim")],
    ]
    for each in card.lines[:_LINES]:
        clock = f"  {time_of_day(each.at, utc=utc)} "
        words = wrapped(clean(each.line), max(20, width - len(clock)))[:2]
        lines += [[(clock if n == 0 else " " * len(clock), "dim"), (line, "")]
                  for n, line in enumerate(words)]  # fmt: skip
    if card.nearby_total:
        lines.append([("  within 5 min ", "dim"), (_nearby(card), "")])
    if card.history is not None and card.uuid:
        days = f" in {counted(card.history.days, 'day')}"
        for name, total in (("board", card.history.board_total), ("slot", card.history.slot_total)):
            lines.append([(f"  this {name} ", "dim"), (counted(total, "other fault") + days, "warn" if total else "")])  # fmt: skip
    return lines


def _nearby(card: Evidence) -> str:
    named = ", ".join(dict.fromkeys(clean(one.what) for one in card.nearby[:4]))
    more = card.nearby_total - min(4, len(card.nearby))
    return named + (f" and {more} more" if more > 0 else "")
