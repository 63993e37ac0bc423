"""Small numbers for runs and devices, so that a row of readings carries no text.

The store keeps the numbers for good; ingest assigns new ones, and each batch names those.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aggregator.store.protocol import CollectorRun, StoredDevice, StoredState
from telemetry.wire.inventory import Inventory
from telemetry.wire.tables import StoredName


class IdRegistry:
    """The numbers assigned so far, and those that no batch has named yet."""

    def __init__(self, known: StoredState) -> None:
        self._runs = {(run.node, run.session): run.id for run in known.runs}
        self._devices: dict[str, dict[str, int]] = {}
        """By node and key."""
        for device in known.devices:
            self._devices.setdefault(device.node, {})[device.key] = device.id
        self._next_run = max(self._runs.values(), default=-1) + 1
        self._next_device = max((device.id for device in known.devices), default=-1) + 1
        self._by_number: dict[int, tuple[str, int]] | None = None
        self._new_runs: list[CollectorRun] = []
        self._ended_runs: list[tuple[str, int]] = []
        self._new_devices: list[StoredDevice] = []

    def run(self, node: str, session: int) -> int:
        """Return the number of a node's session."""
        number = self._runs.get((node, session))
        if number is None:
            number = self._runs[node, session] = self._next_run
            self._next_run += 1
            self._new_runs.append(CollectorRun(number, node, session))
        return number

    def devices(self, node: str, keys: Sequence[str], names: Iterable[StoredName]) -> list[int]:
        """Return the numbers of GPUs, links, ports or a node (`aggregator.store.protocol.StoredDevice`)."""
        known = self._devices.setdefault(node, {})
        found = []
        for key, (index, name) in zip(keys, names, strict=True):
            number = known.get(key)
            if number is None:
                number = known[key] = self._next_device
                self._next_device += 1
                self._new_devices.append(StoredDevice(number, node, key, index, name))
            found.append(number)
        return found

    def had(self, node: str, key: str) -> bool:
        """Return whether a node has or had a device."""
        return key in self._devices.get(node, ())

    def unknown(self, inventory: Inventory) -> int:
        """Return how many devices of an inventory, and of those before it, have no number yet."""
        known = self._devices.get(inventory.node, {}).keys()
        keys: set[str] = set()
        for each in (inventory, *inventory.before):
            keys.update(gpu.uuid for gpu in each.gpus)
            keys.update(f"{link.gpu}/{link.number}" for link in each.links)
            keys.update(port.id for port in each.ports)
            keys.update(instance.uuid for instance in each.instances)
        return len(keys - known)

    def end_run(self, node: str, session: int) -> None:
        """Remove a session of which no frame can come any more. Its rows in the store stay."""
        number = self._runs.pop((node, session), None)
        if number is not None:
            self._ended_runs.append((node, session))

    def drain_ended(self) -> list[tuple[str, int]]:
        """Return the sessions that were removed since the last call, by node and session."""
        ended, self._ended_runs = self._ended_runs, []
        return ended

    def run_of(self, number: int) -> CollectorRun | None:
        """Return the session that has a number; None where none has it. Slow: for a fault."""
        if self._by_number is None or number not in self._by_number:
            self._by_number = {run: key for key, run in self._runs.items()}
        found = self._by_number.get(number)
        return None if found is None else CollectorRun(number, *found)

    def drain_new(self) -> tuple[list[CollectorRun], list[StoredDevice]]:
        """Return the new runs and devices since the last call, which the caller must store."""
        new = self._new_runs, self._new_devices
        self._new_runs, self._new_devices = [], []
        return new
