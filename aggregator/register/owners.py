"""Owners of alerts, as the settings name them: `[[owners]]`. Pure.

The first entry that fits an alert names the person or team that it belongs to. What no entry is for has the owner that
its node names itself, by the label `owner` of `collector.labels`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from aggregator.register.expected import NodeMatch, pattern_covers
from aggregator.register.facts import own_labels
from telemetry.errors import ConfigError, did_you_mean
from telemetry.wire.inventory import Inventory

MOST_ENTRIES = 200
_CALLED = ("circuits", "panels", "sources", "budgets", "ups", "nodes")
"""Tables of the [power] section whose names an alert may have."""


class OwnerEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person or team, and which alerts belong to them: all that is written must fit."""

    name: str
    """Name of the person or team, as pages show it."""
    match: NodeMatch | None = None
    """Nodes, as in `[[expected]]`. [all, and what belongs to no node]"""
    circuits: tuple[str, ...] = ()
    """Patterns of the names of circuits, budgets, UPSs and supplies: `R12-*`. [all]"""
    rules: tuple[str, ...] = ()
    """Patterns of rules: `port_*`. [all]"""

    def fits(self, rule: str, inventory: Inventory | None, labels: Mapping[str, str], name: str) -> bool:
        """Return whether an alert is meant. `inventory`, `labels`: of its node, None where it has none; `name`: of its
        circuit, budget, UPS or supply, "" where it is about none."""
        return (
            (not self.rules or _any_fits(self.rules, rule))
            and (not self.circuits or (name != "" and _any_fits(self.circuits, name)))
            and (self.match is None or (inventory is not None and self.match.fits(inventory, labels)))
        )

    def covers(self, other: OwnerEntry) -> bool:
        """Return whether every alert that another entry is for is meant; False where the patterns don't show it."""
        return (
            _all_cover(self.rules, other.rules)
            and _all_cover(self.circuits, other.circuits)
            and (self.match is None or (other.match is not None and self.match.covers(other.match)))
        )


class Owners:
    """Owners of alerts, by the entries of the settings and the labels that nodes give themselves."""

    def __init__(self, entries: Sequence[OwnerEntry] = ()) -> None:
        self._entries = entries

    def of(self, rule: str, inventory: Inventory | None, labels: Mapping[str, str], name: str) -> str:
        """Return the owner of an alert; "" where nobody is named. The arguments are those of `OwnerEntry.fits`,
        `labels` without those that the node gives itself."""
        own = {} if inventory is None else own_labels(inventory)
        known = {**labels, **own}
        fitting = (one.name for one in self._entries if one.fits(rule, inventory, known, name))
        return next(fitting, own.get("owner", ""))


def check_owners(entries: Sequence[OwnerEntry], power: Mapping[str, Any], rules: Callable[[], Collection[str]]) -> None:
    """Raise `ConfigError` for entries that can't work, and for one that no alert can reach. `power`: the section as
    written; `rules`: names of the rules in force, asked for where an entry names any."""
    if len(entries) > MOST_ENTRIES:
        raise ConfigError("owners", f"there are {len(entries)} entries", f"Write {MOST_ENTRIES} at most, by patterns.")
    named = _names(power)
    for number, entry in enumerate(entries):
        where = f"owners[{number}]"
        if not entry.name.strip() or not entry.name.isprintable():
            raise ConfigError(f"{where}.name", "it names nobody", "Write the name of a person or team, in one line.")
        if entry.match is not None and entry.match.everyone:
            raise ConfigError(
                f"{where}.match",
                "it says nothing about the nodes",
                'Write match = { node = "dgx-*" }, or leave it out.',
            )
        if entry.match is not None and entry.circuits:
            raise ConfigError(where, "no alert is about a node and a circuit", "Write an entry for each.")
        _check_patterns(f"{where}.rules", entry.rules, rules() if entry.rules else (), "rule")
        if named:
            _check_patterns(
                f"{where}.circuits", entry.circuits, named, "circuit, budget, UPS or node (for its supplies) of [power]"
            )
        for above, other in enumerate(entries[:number]):
            if other.covers(entry):
                raise ConfigError(
                    where,
                    f"owners[{above}], {other.name!r}, is for all of these",
                    "The first that fits counts: move the narrower one up, or leave one out.",
                )


def _check_patterns(where: str, patterns: Iterable[str], known: Collection[str], what: str) -> None:
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise ConfigError(where, f"{pattern!r} fits no {what}", did_you_mean(pattern, known))


def _names(power: Mapping[str, Any]) -> list[str]:
    """Return the names of [power], those of nodes that stand in a circuit alone too."""
    tables = [found for table in _CALLED if isinstance(found := power.get(table), Mapping)]
    circuits = power.get("circuits")
    fed = (
        [one.get("nodes", ()) for one in circuits.values() if isinstance(one, Mapping)]
        if isinstance(circuits, Mapping)
        else []
    )
    return [str(name) for its in (*tables, *fed) for name in its]


def _all_cover(wide: Sequence[str], narrow: Sequence[str]) -> bool:
    return not wide or (narrow != () and all(any(pattern_covers(one, each) for one in wide) for each in narrow))


def _any_fits(patterns: Iterable[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
