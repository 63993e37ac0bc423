"""Boards and slots of the fleet that had many incidents: by serial number, for boards move."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from alerts.engine.fault_history import FaultIndex, board_at, slot_at
from api.alerts import Remediation
from telemetry.fleet import Fleet
from telemetry.metric import Table

NS = 1_000_000_000


class RepeatedFaultFinder:
    """The incidents of the last 30 days, and the rows of the boards and slots that had them."""

    def __init__(self, remediations: Mapping[str, Remediation], own: Collection[str]) -> None:
        """`remediations`: remediation by name of a rule; `own`: rules about repetitions, which do not count."""
        self.index = FaultIndex()
        """`note` it with the incidents of the journal at a start, and with each that changes."""
        self._remediations = remediations
        self._own = frozenset(own)
        self._rows: dict[str, int] = {}
        self._fleet: tuple[int, int] | None = None

    def find(
        self, fleet: Fleet, wall: int, of: str, count: int, window: float, remediations: Collection[Remediation]
    ) -> dict[int, int]:
        """Return row and number as `alerts.rules.input.RepeatedFaults` does, at a wall time in ns."""
        self.index.expire(wall)
        counted: dict[tuple[str, str], set[str]] = {}
        boards: dict[tuple[str, str], set[str]] = {}
        for fault in self.index.faults():
            remediation = self._remediations.get(fault.rule)
            late = wall - fault.at > window * NS
            if late or fault.rule in self._own or (remediation is not None and remediation not in remediations):
                continue
            key = ("", fault.serial) if of == "board" else (fault.node, fault.place)
            counted.setdefault(key, set()).add(fault.incident)
            boards.setdefault(key, set()).add(fault.serial)
        found = {}
        for key, incidents in counted.items():
            if len(incidents) < count or (of == "slot" and len(boards[key]) < 2):
                continue
            row = self._board_row(fleet, key[1]) if of == "board" else _slot_row(fleet, *key)
            if row is not None:
                found[row] = len(incidents)
        return found

    def _board_row(self, fleet: Fleet, board: str) -> int | None:
        """Return the row that a board has now."""
        version = id(fleet), fleet.version
        if self._fleet != version:
            self._fleet = version
            self._rows = {
                board_at(gpu.serial, gpu.uuid): node.rows[Table.GPU].start + number
                for node in fleet.nodes.values()
                for number, gpu in enumerate(node.inventory.gpus)
            }
        return self._rows.get(board)


def _slot_row(fleet: Fleet, name: str, place: str) -> int | None:
    node = fleet.nodes.get(name)
    for number, gpu in enumerate(node.inventory.gpus if node is not None and place else ()):
        if slot_at(gpu.slot, gpu.pci) == place:
            return int(node.rows[Table.GPU].start) + number if node is not None else None
    return None
