"""Rows by name: puts the values of a simulated device into the order of the frame's columns.

A device computes its values in an order of its own, named once in a tuple; an `itemgetter` made
from the schema then picks a whole row at C speed, so a row of 38 columns costs less than a
microsecond to lay out and no code knows a column's number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import cast

from telemetry.gap import NOT_SUPPORTED
from telemetry.wire.schema import SCHEMA

Pick = Callable[[Sequence[float]], tuple[float, ...]]
"""From computed values (with the two of `HEAD` before them) to a row."""

HEAD: tuple[float, float] = (NOT_SUPPORTED, 0.0)
"""First two of the computed values: the gap and the zero that many columns share."""


def layout(
    block: int, names: Sequence[str], *, zeros: frozenset[str] = frozenset(), absent: frozenset[str] = frozenset()
) -> Pick:
    """Return the picker of one block's rows.

    `names` are the computed values in order, `zeros` the columns that are always 0, `absent` those
    that this device doesn't have, whatever is computed; all other columns are gaps. Raises
    `KeyError` for a name that isn't in the block: a metric was renamed.
    """
    columns = SCHEMA.blocks[block].names
    unknown = ({*names} | zeros) - {*columns}
    if unknown:
        raise KeyError(", ".join(sorted(unknown)))
    place = {name: len(HEAD) + number for number, name in enumerate(names)}
    place.update(dict.fromkeys(zeros, 1))
    place.update(dict.fromkeys(absent, 0))
    places = [place.get(name, 0) for name in columns]
    if len(places) == 1:  # an itemgetter of one gives the bare value
        return lambda values: (values[places[0]],)
    return cast(Pick, itemgetter(*places))


def unsupported(pick: Pick, block: int, count: int) -> dict[str, str]:
    """Return the metrics of a block that a device laid out by `pick` will never have.

    `count` is the number of computed values.
    """
    probe = pick((0.0, 1.0) + (1.0,) * count)
    return {
        name: "not_supported" for name, value in zip(SCHEMA.blocks[block].names, probe, strict=True) if value == 0.0
    }
