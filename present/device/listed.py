"""Devices that the page of their node lists, in words: those of all tables without a page of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from api.device import DeviceReply
from present.device.reading import metric_text, plain, reading_text
from telemetry.text import ABSENT

_LACKING = {"not_supported", "not_read"}


class ListedTable(NamedTuple):
    """The devices of a table: a line for each, with its name and readings."""

    table: str
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]


def listed_tables(devices: Iterable[DeviceReply]) -> Iterator[ListedTable]:
    """Yield a table for each kind of device, without readings that none of its devices has."""
    for table, group in groupby(devices, lambda each: each.table):
        its = list(group)
        names = dict.fromkeys(
            name for each in its for name in (*each.readings, *each.gaps) if each.gaps.get(name) not in _LACKING
        )
        rows = [(each.name, *(_cell(each, name) for name in names)) for each in its]
        yield ListedTable(table, (table, *map(metric_text, names)), rows)


def _cell(one: DeviceReply, name: str) -> str:
    """Return a reading, or the reason of its gap."""
    if name in one.readings:
        return reading_text(name, one.readings[name])
    return plain(one.gaps.get(name, "")) or ABSENT
