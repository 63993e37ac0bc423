"""The inventories that frames in the ring were made with: a frame has rows, and its inventory says of which devices.

The broker retains the newest inventory alone. One that was replaced before an aggregator had it, as at a start before the
broker's, would leave its frames with no meaning: so the newest one brings those before it whose rows are others.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from telemetry.wire.inventory import MOST_BEFORE, NO_SCHEMA, Inventory
from telemetry.wire.tables import KINDS

KEPT_SECONDS = 7 * 86400
"""Age at which one is left out that was replaced: a ring holds hours, of a small node days."""
_SECOND = 1_000_000_000
_FOREVER = 1 << 62


class PastInventories:
    """Of each change of rows the first inventory, the newest first."""

    def __init__(self, known: Iterable[Inventory] = ()) -> None:
        """`known`: those of an earlier start."""
        self.firsts = list(known)

    def joined(self, inventory: Inventory) -> Inventory:
        """Return a new inventory with those before it."""
        if not self.firsts or _rows(self.firsts[0]) != _rows(inventory):
            self.firsts.insert(0, _bare(inventory))
        ended = [_FOREVER, *(each.taken_at for each in self.firsts)]
        oldest = inventory.taken_at - KEPT_SECONDS * _SECOND
        self.firsts = [each for each, end in zip(self.firsts, ended, strict=False) if end >= oldest][: MOST_BEFORE + 1]
        if len(self.firsts) == 1:
            return inventory
        begun = self.firsts[0].taken_at == inventory.taken_at
        return msgspec.structs.replace(
            inventory,
            before=tuple(
                msgspec.structs.replace(each, schema=NO_SCHEMA) if each.schema == inventory.schema else each
                for each in self.firsts[begun:][:MOST_BEFORE]
            ),
        )


def _rows(inventory: Inventory) -> tuple[object, ...]:
    return (inventory.schema, *(kind.keys(inventory) for kind in KINDS.values()))


def _bare(inventory: Inventory) -> Inventory:
    """Return an inventory without what no frame needs: facts, and what GPUs can't read."""
    gpus = tuple(msgspec.structs.replace(gpu, capabilities={}) for gpu in inventory.gpus)
    return msgspec.structs.replace(inventory, host={}, gpus=gpus, pools=(), before=())
