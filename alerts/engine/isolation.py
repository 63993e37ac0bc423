"""Isolation of faults in the rule engine: each costs the node, the rule or the event that it came from.

Nothing here is used while all works. After an exception, the nodes that cause it are found by trying
each alone, and events by halves; the fleet is then evaluated without these nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from telemetry.fleet import Fleet

T = TypeVar("T")


class NodeFaults(Exception):  # noqa: N818 - faults by node, not one error
    """Exceptions of single nodes: the others can be evaluated without them."""

    def __init__(self, errors: Mapping[str, Exception]) -> None:
        super().__init__(", ".join(errors))
        self.errors = dict(errors)

    @classmethod
    def blame(cls, names: Iterable[str], check: Callable[[str], object], error: Exception) -> None:
        """Raise the faults of the nodes on which `check` raises, from `error`; return where it raises
        on none, for then no single node is the cause."""
        errors: dict[str, Exception] = {}
        for name in names:
            try:
                check(name)
            except Exception as found:  # noqa: BLE001 - kept by the node's name
                errors[name] = found
        if errors:
            raise cls(errors) from error


class FleetWithout:
    """The fleet without the nodes that are set aside; made again only when it or they change."""

    def __init__(self) -> None:
        self._key: tuple[int, frozenset[str]] | None = None
        self._view = Fleet()
        self._made = 0

    def of(self, fleet: Fleet, names: Collection[str]) -> Fleet:
        """Return a fleet that shares the matrices of `fleet`, and in which the rows of some nodes are
        free. Its version is below zero, so that it differs from that of every other fleet."""
        left_out = frozenset(name for name in names if name in fleet.nodes)
        if not left_out:
            self._key = None
            return fleet
        key = fleet.version, left_out
        if key != self._key:
            self._key, self._made = key, self._made + 1
            view = self._view = Fleet(
                {name: node for name, node in fleet.nodes.items() if name not in left_out},
                fleet.matrices,
                {table: list(entries) for table, entries in fleet.devices.items()},
                fleet.by_uuid,
                fleet.free,
                fleet.columns,
                -1 - self._made,
            )
            for name in left_out:
                for table, at in fleet.nodes[name].rows.items():
                    view.devices[table][at] = [None] * (at.stop - at.start)
        return self._view


def culprits(found: Sequence[T], works: Callable[[Sequence[T]], bool]) -> list[T]:
    """Return the events on which something raises, found by halves; none where it works
    with all of them together."""
    if not found or works(found):
        return []
    if len(found) == 1:
        return list(found)
    middle = len(found) // 2
    return culprits(found[:middle], works) + culprits(found[middle:], works)
