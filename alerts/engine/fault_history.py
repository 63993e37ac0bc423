"""Earlier faults of boards and slots, for evidence. Boards move: by serial number, and by place.

Pure. `note` is called with every incident of the last 30 days at a start, and with each that changes.
"""

from __future__ import annotations

from collections.abc import Iterable

from api.alerts import Alert, Incident, Severity
from api.evidence import FaultHistory, PastFault

DAYS = 30
KEPT_NS = DAYS * 86_400_000_000_000
LISTED = 20
MOST_FAULTS = 50_000
"""Faults that are remembered; beyond that the oldest are forgotten."""


class FaultIndex:
    """Pages and tickets about GPUs of the last 30 days, found by board and by slot."""

    def __init__(self) -> None:
        self._faults: dict[tuple[str, str], PastFault] = {}
        """By key of the alert and key of the incident, in the order of arrival."""
        self._boards: dict[str, dict[tuple[str, str], PastFault]] = {}
        self._slots: dict[tuple[str, str], dict[tuple[str, str], PastFault]] = {}

    def note(self, incidents: Iterable[Incident]) -> None:
        """Add the alerts of incidents, or replace those that are known."""
        for incident in incidents:
            for alert in incident.alerts:
                board = board_of(alert)
                if board and alert.severity is not Severity.INFO:
                    self._add(alert, incident.key, board)

    def _add(self, alert: Alert, incident: str, board: str) -> None:
        key = alert.key, incident
        before = self._faults.get(key)
        if before is not None and before.at == alert.since and before.serial == board:
            return
        if before is not None:
            self._remove(key)
        fault = PastFault(
            at=alert.since,
            rule=alert.rule,
            severity=alert.severity,
            node=alert.node,
            place=place_of(alert),
            serial=board,
            incident=incident,
        )
        self._faults[key] = fault
        self._boards.setdefault(board, {})[key] = fault
        if fault.place:
            self._slots.setdefault((fault.node, fault.place), {})[key] = fault
        if len(self._faults) > MOST_FAULTS:
            self._remove(next(iter(self._faults)))

    def _remove(self, key: tuple[str, str]) -> None:
        fault = self._faults.pop(key)
        boards, slots = self._boards[fault.serial], self._slots.get((fault.node, fault.place), {})
        boards.pop(key)
        slots.pop(key, None)
        if not boards:
            del self._boards[fault.serial]
        if not slots:
            self._slots.pop((fault.node, fault.place), None)

    def faults(self) -> Iterable[PastFault]:
        """Return all faults, oldest first."""
        return self._faults.values()

    def expire(self, now: int) -> None:
        """Forget what is older than 30 days; `now` in ns since 1970."""
        for key in [key for key, one in self._faults.items() if now - one.at > KEPT_NS]:
            self._remove(key)

    def of(self, alert: Alert, incident: str, now: int) -> FaultHistory:
        """Return the earlier faults of an alert's board and slot, without those of its own incident."""
        board = self._boards.get(board_of(alert), {})
        slot = self._slots.get((alert.node, place_of(alert)), {})
        both = [
            sorted(
                (one for one in found.values() if one.incident != incident and now - one.at <= KEPT_NS),
                key=lambda one: -one.at,
            )
            for found in (board, slot)
        ]
        return FaultHistory(
            days=DAYS,
            board=tuple(both[0][:LISTED]),
            board_total=len(both[0]),
            slot=tuple(both[1][:LISTED]),
            slot_total=len(both[1]),
        )


def board_of(alert: Alert) -> str:
    """Return the serial number of the board that an alert is about, else its UUID; "" for none."""
    if alert.gpu is None:
        return ""
    return board_at(alert.labels.get("serial"), alert.gpu)


def board_at(serial: str | None, uuid: str) -> str:
    """Return the serial number of a board, else its UUID."""
    return serial or uuid


def place_of(alert: Alert) -> str:
    """Return the physical slot that an alert is about, else the PCI address; "" where neither is known."""
    return slot_at(alert.labels.get("slot"), alert.labels.get("pci"))


def slot_at(slot: str | None, pci: str | None) -> str:
    """Return a physical slot as text, else the PCI address; "" where neither is known."""
    if slot:
        return f"slot {slot}"
    return f"PCI {pci}" if pci else ""
