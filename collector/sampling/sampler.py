"""The tick: reads the source, builds a frame, hands it to the sinks. One task, one tick at a time.

A frame always leaves on time: when a source is late, raises or returns misshapen rows, the frame
holds gaps, so that operators see the fault instead of a silent node.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from collector.config import CollectorConfig
from collector.sampling import rows as readings
from collector.sampling.event_queue import EventQueue
from collector.sampling.reading import read
from collector.sampling.self_metrics import collector_metrics, node_metrics
from collector.sampling.xid_events import XidEvents
from collector.source import DeviceEvent, Pausable, Rows, Source
from telemetry.devices import Gpu, Port
from telemetry.gap import NOT_SUPPORTED
from telemetry.metric import Lane, Table
from telemetry.runtime.release import release
from telemetry.text import duration
from telemetry.wire import frame
from telemetry.wire.inventory import CommandKind, Inventory, NodeRole
from telemetry.wire.topics import phase_of

# The grid of ticks, which differs from node to node.
#
# Tick k of an interval falls at (k + phase) x interval seconds since 1970, the phase being a hash of
# the node's name: a fleet never ticks at once, and a node always ticks at the same phase.
# Pure: the loop that sleeps is `collector.sampling.sampler`.

LATE = 0.5
"""Share of an interval by which a tick may be late; a later one is skipped."""
GRAIN = 1e-4
"""Share of an interval below which two times are equal: a float of the wall clock is no finer."""


class Due(NamedTuple):
    """The next tick."""

    tick: int
    wait: float
    """Seconds until then; 0 when it is due now."""
    skipped: int
    """Ticks between the last one and this that were too late."""


def passed(now: float, interval: float, phase: float) -> int:
    """Return the number of the newest tick that has passed at `now` (seconds since 1970)."""
    return math.floor(now / interval - phase)


def next_tick(now: float, last: int, interval: float, phase: float) -> Due:
    """Return the tick after `last` that is not too late, and how long to wait for it."""
    position = now / interval - phase
    newest = math.floor(position)
    if newest > last and position - newest < LATE + GRAIN:
        return Due(newest, 0.0, newest - last - 1)
    tick = max(newest, last) + 1
    return Due(tick, (tick - position) * interval, tick - last - 1)


def rebase(last: int, step: float, interval: float) -> int:
    """Return the number of the last tick after the wall clock was set by `step` seconds.

    Setting the clock then skips no tick, and two ticks stay half to one and a half intervals apart.
    """
    return last + round(step / interval)


log = logging.getLogger(__name__)

DEADLINE = 0.8
"""Share of the interval that the source may take."""
LONGEST_DEADLINE = 5.0
"""Seconds: with a long interval, a hung GPU is still reported soon."""
LONGEST_COMMAND = 8.0
"""Seconds that a source may take to release a driver or to open it again."""
GRACE = 0.1
"""Share of the interval after the deadline at which a source that does not return is abandoned."""
FACTS_SECONDS = 60.0
"""Seconds between two readings of the host's facts."""
LONGEST_SLEEP = 2.0
"""Seconds after which a sleeping sampler checks whether the clock was set."""
SKIPPED_REPORT_EVERY = 60.0
"""Seconds between two events of skipped ticks."""

FIRMWARE_XIDS = frozenset({119, 120})
"""XIDs of a GPU's firmware (GSP) that no longer answers the driver."""
FRESH_NS = 300_000_000_000
"""Age of a line of the kernel's log above which it tells of an earlier time."""

BOTH = frozenset(Lane)
FAST = frozenset({Lane.FAST})


class Sink(Protocol):
    """Receiver of frames and inventories. Neither call may wait."""

    def frame(self, seq: int, payload: bytes) -> None:
        """Receive an encoded frame."""

    def inventory(self, inventory: Inventory) -> None:
        """Receive a changed inventory; later frames have its rows."""


class HostRows(Protocol):
    """Reader of the host around the GPUs."""

    @property
    def pending(self) -> bool:
        """Whether a reading is still to come that was begun."""

    def read(self, lanes: frozenset[Lane], now_ns: int) -> Rows:
        """Return the blocks of the `node` table on these lanes."""

    def drain_events(self) -> list[DeviceEvent]:
        """Return what happened to the host since the last call."""

    def close(self) -> None:
        """Close everything."""


class PortRows(Protocol):
    """Reader of the ports of the host's network adapters."""

    ports: tuple[Port, ...]
    """Replaced, never mutated, when they change."""

    def begin(self, gpus: Sequence[Gpu]) -> None:
        """Start a reading beside that of the source. Must not wait."""

    async def finish(self) -> Rows:
        """Return the block of the `port` table, with a row for each of `ports`."""

    def close(self) -> None:
        """Close everything."""


@dataclass(slots=True)
class Newest:
    """Newest readings of each block, for the node's own metrics page."""

    inventory: Inventory
    rows: Rows = field(default_factory=dict)
    taken: dict[int, float] = field(default_factory=dict)
    """When each block was read, monotonic seconds."""
    at: float = 0.0
    """When the newest frame was sampled, monotonic seconds."""
    sampled_at: int = 0
    """The same by the wall clock, ns since 1970."""
    xids: dict[str, int] = field(default_factory=dict)
    """Last XID of each GPU, by UUID."""


class Sampler:
    """Samples its source until it is cancelled."""

    def __init__(
        self,
        config: CollectorConfig,
        source: Source,
        session: int,
        events: EventQueue,
        sinks: Sequence[Sink],
        host: HostRows | None = None,
        others: Sequence[Callable[[], list[DeviceEvent]]] = (),
        facts: Mapping[str, str] | None = None,
        changing: Callable[[], Mapping[str, str]] = dict,
        guessed: NodeRole | None = None,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
        failing: Callable[[], Collection[object]] = tuple,
        sampled: Callable[[], None] = lambda: None,
        ports: PortRows | None = None,
    ) -> None:
        """`changing` returns facts of the host that may change; `guessed` is the node's role where neither
        settings nor GPUs tell it. `failing` returns the parts of the collector that failed; `sampled` is called
        after each tick."""
        self._config = config
        self._failing = failing
        self._sampled = sampled
        self._source = source
        self._session = session
        self._events = events
        self._sinks = sinks
        self._host = host
        self._ports = ports
        self._seen_ports: tuple[Port, ...] = ()
        self._others = others
        self._facts = facts or {}
        self._changing = changing
        self._guessed = guessed
        self._found_facts: Mapping[str, str] = {}
        self._facts_at = -math.inf
        self._xids = XidEvents()
        self._last_xids: dict[str, int] = {}
        self._wall_ns = wall_ns
        self._monotonic = monotonic
        self._phase = phase_of(config.node)
        self._slow_phase = phase_of(f"{config.node}/slow")
        self._silent: Callable[[int], bool] | None = getattr(source, "silent", None)
        self._commands: list[CommandKind] = []
        self._sleeper: asyncio.Future[None] | None = None
        """Set when the sleep is over."""
        self._released_until: float | None = None
        """End of the lease of a driver that is released, monotonic seconds."""
        self._version = 0
        self._seen: Inventory | None = None
        self._slow_tick: int | None = None
        self._problem = ""
        self._expected = 0
        self._skips_reported = (0, -SKIPPED_REPORT_EVERY)
        self.seq = -1
        """Number of the newest frame."""
        self.skipped = 0
        self.errors = 0
        """Ticks at which the source broke its contract: raised, overran or returned misshapen rows."""
        self.newest: Newest | None = None

    def command(self, kind: CommandKind) -> None:
        """Queue a command for the source and wake the sampler; a reading is never interrupted."""
        self._commands.append(kind)
        if self._sleeper is not None:
            _wake(self._sleeper)

    async def run(self) -> None:
        """Sample both lanes at once, then tick on the grid."""
        interval = self._config.interval
        now = self._wall_ns() / 1e9
        last = passed(now, interval, self._phase)
        offset = now - self._monotonic()
        await self.sample(last, BOTH)
        while True:
            now, mono = self._wall_ns() / 1e9, self._monotonic()
            step = (now - mono) - offset
            if abs(step) > interval / 4:
                log.warning("node=%s the clock was set by %.3f s", self._config.node, step)
                last = rebase(last, step, interval)
                offset = now - mono
            due = next_tick(now, last, interval, self._phase)
            if self._released_until is not None and mono >= self._released_until:
                await self._end_lease()
            if due.wait > 0:
                await self._sleep(min(due.wait, LONGEST_SLEEP))
                continue
            if due.skipped > 0:
                self._skip(due.skipped, mono)
            last = due.tick
            slow = passed(now, self._config.slow_interval, self._slow_phase)
            await self.sample(due.tick, FAST if slow == self._slow_tick else BOTH)

    async def sample(self, tick: int, lanes: frozenset[Lane]) -> None:
        """Read the lanes of a tick, build the frame and send it to the sinks."""
        if self._silent is not None and self._silent(tick):
            self._sampled()
            return  # a simulated node that is down sends nothing
        now_ns = self._wall_ns()
        if Lane.SLOW in lanes:
            self._slow_tick = passed(now_ns / 1e9, self._config.slow_interval, self._slow_phase)
        with_ports = self._ports if Lane.SLOW in lanes else None
        if with_ports is not None:
            with_ports.begin(self._source.inventory.gpus)
        rows = await self._read(lanes, tick, now_ns)
        ports = {} if with_ports is None else await with_ports.finish()
        if Lane.SLOW in lanes:
            self._look_at_facts()
        inventory = self._inventory(now_ns)
        self._gather(inventory, now_ns)
        if not readings.has_node(rows):
            rows = {**rows, **self._host_rows(inventory, lanes, now_ns), **ports}
        known = node_metrics(inventory, rows, self._expected)
        known |= collector_metrics(self._source, self.skipped, len(self._failing()), lanes)
        rows = {**rows, **readings.overlaid(rows, known)}
        self._emit(now_ns, rows)
        if self.newest is None or self.newest.inventory is not inventory:
            self.newest = Newest(inventory, xids=self._last_xids)
        self.newest.rows.update(rows)
        self.newest.at = self._monotonic()
        self.newest.taken.update(dict.fromkeys(rows, self.newest.at))
        self.newest.sampled_at = now_ns
        self._sampled()

    def flush_events(self) -> None:
        """Send the events that wait for a frame, in a frame without readings."""
        self._emit(self._wall_ns(), {})

    def _emit(self, now_ns: int, rows: Rows) -> None:
        events = self._events.drain()
        if not rows and not events:
            return
        self.seq += 1
        payload = frame.encode(frame.build(self._session, self.seq, now_ns, rows, events))
        for sink in self._sinks:
            sink.frame(self.seq, payload)

    async def _read(self, lanes: frozenset[Lane], tick: int, now_ns: int) -> Rows:
        interval = self._config.interval
        deadline = min(DEADLINE * interval, LONGEST_DEADLINE)
        rows, problem = await read(self._source, lanes, tick, now_ns, deadline, GRACE * interval)
        if problem:
            self._complain(problem)
        else:
            self._problem = ""
        return rows

    def _complain(self, problem: str) -> None:
        self.errors += 1
        if problem != self._problem:
            self._problem = problem
            log.error("node=%s source=%s: %s", self._config.node, self._config.source, problem)

    def _gather(self, inventory: Inventory, now_ns: int) -> None:
        """Queue the events of source and kernel log; merge the XIDs that both report."""
        found: list[DeviceEvent] = []
        for drain in (self._source.drain_events, *self._others):
            try:
                found += drain()
            except Exception as error:  # noqa: BLE001 - as in `collector.sampling.reading`
                self._complain(f"its events can't be read: {type(error).__name__}: {error}")
        gpus = {gpu.pci: gpu.uuid for gpu in inventory.gpus if gpu.pci is not None}
        for event in self._xids.merge(found, now_ns, gpus):
            self._events.add(event)
            number = event.data.get("xid")
            if event.kind == "xid" and event.gpu is not None and isinstance(number, int):
                self._last_xids[event.gpu] = number
            self._spare(event, now_ns)

    def _spare(self, event: DeviceEvent, now_ns: int) -> None:
        """Have a GPU left alone whose firmware has stopped: each call would wait for its time-out."""
        number = event.data.get("xid")
        fresh = now_ns - event.at < FRESH_NS
        stopped = event.kind == "xid" and number in FIRMWARE_XIDS and fresh
        if stopped and event.gpu is not None and isinstance(self._source, Pausable):
            self._source.pause(event.gpu, f"XID {number}")

    def _look_at_facts(self) -> None:
        """Read the facts of the host that may change, where the last reading is long ago."""
        if (now := self._monotonic()) - self._facts_at < FACTS_SECONDS:
            return
        self._facts_at = now
        try:
            found = self._changing()
        except Exception as error:  # noqa: BLE001 - as in `collector.sampling.reading`
            self._complain(f"facts of the host can't be read: {type(error).__name__}: {error}")
            return
        if found != self._found_facts:
            self._found_facts, self._seen = found, None

    def _inventory(self, now_ns: int) -> Inventory:
        """Return the inventory with the collector's fields; send it to the sinks when it is new."""
        found = self._source.inventory
        ports = found.ports if self._ports is None else self._ports.ports
        if self.newest is not None and found is self._seen and ports is self._seen_ports:
            return self.newest.inventory
        self._seen, self._seen_ports = found, ports
        self._version += 1
        if self._version > 1:
            self._slow_tick = None  # new rows have a slow lane too: read it at the next tick
        inventory = msgspec.structs.replace(
            found,
            node=self._config.node,
            cluster=self._config.cluster,
            session=self._session,
            version=self._version,
            taken_at=found.taken_at or now_ns,
            kilowatch=release(),
            role=role_in(found, self._config.role, self._guessed),
            host={**self._facts, **self._found_facts, **found.host},
            source=found.source or self._config.source,
            ports=_known_gpus(ports, found),
        )
        self._expected = max(self._expected, len(inventory.gpus))
        for sink in self._sinks:
            sink.inventory(inventory)
        return inventory

    def _host_rows(self, inventory: Inventory, lanes: frozenset[Lane], now_ns: int) -> Rows:
        node = readings.filled(inventory, readings.blocks(lanes, Table.NODE), NOT_SUPPORTED)
        if self._host is not None:
            try:
                found = self._host.read(lanes, now_ns)
                problem = readings.misshapen(inventory, found)
            except Exception as error:  # noqa: BLE001 - as in `collector.sampling.reading`
                found, problem = {}, f"{type(error).__name__}: {error}"
            if problem:
                self._complain(f"the host can't be read: {problem}")
            else:
                node.update(found)
        return node

    def _skip(self, ticks: int, mono: float) -> None:
        """Count skipped ticks; report them at most once a minute."""
        self.skipped += ticks
        reported, at = self._skips_reported
        if mono - at >= SKIPPED_REPORT_EVERY:
            self._skips_reported = (self.skipped, mono)
            many = self.skipped - reported
            self._events.add(
                DeviceEvent(
                    "ticks_skipped",
                    self._wall_ns(),
                    message=f"ticks skipped because they were too late: {many}",
                    data={"ticks": many},
                )
            )

    async def _sleep(self, seconds: float) -> None:
        """Sleep until the time or a command comes; then execute commands."""
        if not self._commands:
            # Not `asyncio.timeout`: it ends by cancelling, and this happens at every tick.
            loop = asyncio.get_running_loop()
            sleeper = self._sleeper = loop.create_future()
            timer = loop.call_later(seconds, _wake, sleeper)
            try:
                await sleeper
            finally:
                timer.cancel()
                self._sleeper = None
        commands, self._commands = self._commands, []
        for kind in commands:
            await self._execute(kind)

    async def _end_lease(self) -> None:
        """Open a driver again that was released and not resumed: whoever closed it may be gone, or be no operator."""
        seconds = self._config.release_seconds
        text = f"The driver is read again: it was released for {duration(seconds)}, and nobody resumed it."
        self._events.add(DeviceEvent("release_ended", self._wall_ns(), message=text))
        await self._execute(CommandKind.RESUME)

    async def _execute(self, kind: CommandKind) -> None:
        log.info("node=%s command=%s", self._config.node, kind)
        limit = LONGEST_COMMAND
        try:
            async with asyncio.timeout(limit):
                match kind:
                    case CommandKind.RELEASE:
                        if self._released_until is None:
                            lease = self._config.release_seconds
                            self._released_until = self._monotonic() + lease
                        await self._source.release()
                    case CommandKind.RESUME:
                        self._released_until = None
                        await self._source.resume()
                    case CommandKind.INVENTORY:
                        self._slow_tick = None  # the next tick reads the slow lane again,
                        self._seen = None  # and sends the inventory whether it changed or not
                    case CommandKind.RESEND:
                        pass  # answered by the publisher
        except TimeoutError:
            self._complain(f"{kind} took longer than {limit} s")
        except Exception as error:  # noqa: BLE001 - as in `collector.sampling.reading`
            self._complain(f"{kind} failed: {type(error).__name__}: {error}")


def _known_gpus(ports: tuple[Port, ...], inventory: Inventory) -> tuple[Port, ...]:
    """Return ports of which each is near a GPU of the inventory, or near none."""
    uuids = {gpu.uuid for gpu in inventory.gpus}
    if all(port.gpu is None or port.gpu in uuids for port in ports):
        return ports
    return tuple(port if port.gpu in uuids else msgspec.structs.replace(port, gpu=None) for port in ports)


def role_in(found: Inventory, named: NodeRole | None, guessed: NodeRole | None) -> str:
    """Return the role of a node: that of the settings, else of its source, else by its GPUs, else by its
    hardware."""
    return named or found.role or (NodeRole.GPU if found.gpus else guessed or "")


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
