"""The evidence on the page of an incident: a few lines, printable, nothing where there is none."""

from __future__ import annotations

from rich.cells import cell_len

from api.alerts import Severity, Subject
from api.evidence import Evidence, EvidenceLine, EvidenceReply, FaultHistory, NearbyEvent
from tui.screens.incident_evidence import evidence_drawn, evidence_path

NOON = 1_785_585_600_000_000_000


def test_the_lines_and_the_history_are_drawn() -> None:
    card = Evidence(
        alert="a",
        rule="gpu_lost",
        severity=Severity.PAGE,
        subject=Subject.GPU,
        summary="it is lost",
        moment=NOON,
        collected=NOON,
        uuid="GPU-1",
        lines=(EvidenceLine(at=NOON, kind="xid", line="NVRM: \x1b[2J Xid 79 " + "word " * 60),) * 5,
        nearby=(NearbyEvent(at=NOON, kind="alert", what="gpu_hot"),) * 5,
        nearby_total=9,
        history=FaultHistory(board_total=2),
    )
    drawn = evidence_drawn(EvidenceReply(at=NOON, incident="i", cards=(card,)), 60, utc=True)
    texts = ["".join(piece for piece, _ in line) for line in drawn]
    assert all(text.isprintable() and cell_len(text) <= 60 for text in texts)
    assert sum("NVRM:" in text for text in texts) == 2
    assert "  within 5 min gpu_hot x5 (9 in all)" in texts
    assert "  this board 2 other faults in 30 days" in texts
    assert "  this slot no other fault in 30 days" in texts


def test_nothing_is_drawn_without_evidence() -> None:
    assert evidence_drawn(None, 60, utc=True) == []
    assert evidence_drawn(EvidenceReply(at=NOON, incident="i"), 60, utc=True) == []


def test_a_key_is_one_part_of_the_path() -> None:
    assert evidence_path("a/b?c") == "api/v1/incidents/a%2Fb%3Fc/evidence"
