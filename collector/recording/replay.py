"""A recording as a source: replays one of its nodes, frame by frame, at any speed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path

from collector.recording.file import RecordedMessage, read
from collector.sampling.rows import OF_SOURCES, blocks, filled, misshapen
from collector.source import DeviceEvent, Rows
from telemetry.devices import Event
from telemetry.errors import ConfigError, SourceError, WireError
from telemetry.gap import NOT_READ, NOT_SUPPORTED, STALE
from telemetry.metric import Lane, Table
from telemetry.wire import frame, inventory
from telemetry.wire.frame import Frame
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import SCHEMA, Schema
from telemetry.wire.topics import Topic

_REMEMBERED = 1000
"""Event ids: an event is recorded twice, alone and in a frame, and reported once."""


class RecordingSource:
    """Source whose readings are those of the newest frame at the replayed instant."""

    def __init__(
        self, path: Path, node: str | None = None, interval: float = 1.0, speed: float = 1.0, loop: bool = True
    ) -> None:
        """`node` may be left out when only one was recorded; `interval` is that of the ticks to
        come; `speed` 10 plays ten recorded seconds in each second."""
        self.path = path
        self.node = node
        self.loop = loop
        self._step = int(interval * speed * 1e9)
        self._source = f"recording:{path.name}"
        self.inventory = Inventory(node="", source=self._source)
        self._schema = SCHEMA
        self._entries: Iterator[RecordedMessage] = iter(())
        self._next: RecordedMessage | None = None
        self._begin = 0
        self._first_tick: int | None = None
        self._newest: Rows = {}
        self._over = False
        self._events: list[DeviceEvent] = []
        self._known: deque[str] = deque(maxlen=_REMEMBERED)

    async def open(self) -> None:
        """Find the node. Raises `SourceError` for a bad file, `ConfigError` for a wrong node."""
        nodes, described = set(), set()
        for entry in read(self.path):
            if entry.kind is Topic.FRAME:
                nodes.add(entry.node)
            elif entry.kind is Topic.INVENTORY:
                described.add(entry.node)
        nodes &= described
        if not nodes:
            raise SourceError(f"{self.path} holds no node with its inventory and frames.")
        known = f"Recorded are {', '.join(sorted(nodes)[:20])}."
        if self.node is None and len(nodes) > 1:
            raise ConfigError(
                "collector.source",
                f"{self.path.name} holds {len(nodes)} nodes",
                f"Choose one: recording:{self.path}#{min(nodes)}. {known}",
            )
        if self.node is not None and self.node not in nodes:
            raise ConfigError("collector.source", f"{self.path.name} holds no node {self.node!r}", known)
        self.node = self.node or nodes.pop()
        self._rewind()

    async def read(self, lanes: frozenset[Lane], tick: int, now_ns: int, deadline: float) -> Rows:
        """Return the newest recorded rows of each block on these lanes."""
        del deadline
        if self._first_tick is None:
            self._first_tick = tick
        # Half a step later than the frame itself, so that a tick never falls between two.
        position = self._begin + (tick - self._first_tick) * self._step + self._step // 2
        while self._next is not None and self._next.at <= position:
            self._play(self._next, now_ns)
            self._next = next(self._entries, None)
        wanted = blocks(lanes, *Table)
        if self._over:
            return filled(self.inventory, wanted, STALE)
        if self._next is None:
            self._end()
        rows = {number: self._newest[number] for number in wanted if number in self._newest}
        if misshapen(self.inventory, rows):  # a new inventory came, and no frame after it yet
            rows = {}
        tables = blocks(lanes, *OF_SOURCES)
        return filled(self.inventory, tables, NOT_READ) | rows

    def drain_events(self) -> list[DeviceEvent]:
        """Return the recorded events since the last call, as if they happened now."""
        events, self._events = self._events, []
        return events

    async def release(self) -> None:
        """Do nothing: there is no driver."""

    async def resume(self) -> None:
        """Do nothing: there is no driver."""

    async def close(self) -> None:
        """Close the file."""
        self._entries, self._next = iter(()), None

    def _rewind(self) -> None:
        self._entries = (entry for entry in read(self.path) if entry.node == self.node)
        self._next = next(self._entries, None)
        self._first_tick = None
        self._known.clear()
        events = list(self._events)
        while self._next is not None and self._next.kind is not Topic.FRAME:
            self._play(self._next, self._next.at)
            self._next = next(self._entries, None)
        self._begin = self._next.at if self._next is not None else 0
        self._events = events  # events before the first frame are dropped

    def _end(self) -> None:
        if self.loop:
            self._rewind()
        else:
            self._over = True

    def _play(self, entry: RecordedMessage, now_ns: int) -> None:
        try:
            match entry.kind:
                case Topic.FRAME:
                    self._receive_frame(frame.decode(entry.payload), now_ns)
                case Topic.BACKFILL:
                    pass  # old frames, sent again
                case Topic.INVENTORY:
                    self._receive_inventory(inventory.decode(entry.payload, Inventory))
                case Topic.EVENT:
                    self._note(entry.payload, now_ns)
                case Topic.STATUS | Topic.COMMAND | Topic.REPLY | Topic.JOBS:
                    pass
        except WireError:
            return  # it was as broken on the bus

    def _receive_frame(self, found: Frame, now_ns: int) -> None:
        for payload in found.events:
            self._note(payload, now_ns)
        if found.schema != self._schema.id:
            return  # its inventory was not recorded: the columns are unknown
        frame.check(found, self._schema)
        for packed in found.blocks:
            number, rows = translated(packed, self._schema)
            if number is not None:
                self._newest[number] = rows

    def _receive_inventory(self, found: Inventory) -> None:
        self._schema = found.schema
        self.inventory = Inventory(
            node="",
            source=self._source,
            host=found.host,
            driver_version=found.driver_version,
            cuda_version=found.cuda_version,
            nvml_version=found.nvml_version,
            driver_state=found.driver_state,
            driver_message=found.driver_message,
            gpus=found.gpus,
            links=found.links,
            ports=found.ports,
            instances=found.instances,
            pools=found.pools,
        )

    def _note(self, payload: bytes, now_ns: int) -> None:
        event = inventory.decode(payload, Event)
        if event.id not in self._known:
            self._known.append(event.id)
            self._events.append(DeviceEvent(event.kind, now_ns, event.gpu, event.pci, event.message, dict(event.data)))


def translated(packed: frame.PackedBlock, schema: Schema) -> tuple[int | None, list[list[float]]]:
    """Return a block as rows of this release: its number (None when there is none such now), and
    its rows, with the gap `not_supported` in columns that the recording does not have."""
    rows = frame.unpack(packed, schema)
    old = schema.blocks[packed.block]
    if not old.known:
        return None, []
    try:
        number = SCHEMA.index(old.table, old.lane)
    except KeyError:
        return None, []
    names = SCHEMA.blocks[number].names
    if old.names == names:
        return number, rows
    place = {name: column for column, name in enumerate(old.names)}
    picked = [place.get(name) for name in names]
    return number, [[NOT_SUPPORTED if column is None else row[column] for column in picked] for row in rows]
