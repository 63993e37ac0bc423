"""The parts of one collector, how they are connected, and a summary of a run."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from collector.config import CollectorConfig
from collector.host.check_results import CheckResults
from collector.jobs.service import JobsService, jobs_switched_off
from collector.jobs.source import KnowsJobs
from collector.publish.publisher import Publisher
from collector.ring.ring import Ring
from collector.ring.writer import RingWriter
from collector.sampling.event_queue import EventQueue
from collector.sampling.known_devices import RememberedDevices
from collector.sampling.past_inventories import PastInventories
from collector.sampling.sampler import HostRows, PortRows, Sampler
from collector.source import DeviceEvent, Source
from collector.sources import is_elsewhere, is_probed
from telemetry.runtime.supervision import ProgressMarks, Supervisor, TaskState
from telemetry.wire.inventory import CommandKind, Inventory, NodeRole

SLOWEST_SAMPLE = 10.0
"""Seconds without a sample after which a collector of a short interval counts as blocked."""
SLOWEST_SEND = 20.0
"""Seconds with frames that wait at a connection, and in which nothing is sent, after which a publisher counts as
blocked: each of its messages is sent or ends the connection within ten."""
STALE_INTERVALS = 3.0
"""As in `telemetry.fleet`, which needs NumPy: older readings are stale."""


class KernelLines(Protocol):
    """Events read from the kernel log, such as XIDs: `collector.host.kernel_log`."""

    state: str
    """`failed` while a fault keeps it from reading."""
    message: str
    """The problem; "" without one."""

    async def run(self) -> None:
        """Read until cancelled."""

    def drain(self) -> list[DeviceEvent]:
        """Return the events since the last call, oldest first."""

    def close(self) -> None:
        """Stop reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorSummary:
    """Counts of one run of a collector, from start to stop."""

    node: str
    session: int
    frames: int
    """Frames sampled."""
    frames_published: int
    """Live frames handed to the network."""
    frames_unsent: int
    """Frames that the network did not take in time: they went to the ring only."""
    frames_unkept: int
    """Frames that the ring could not keep."""
    frames_resent: int
    frames_gone: int
    """Requested frames that the ring no longer had."""
    ticks_skipped: int
    source_errors: int
    events: int
    events_dropped: int
    connects: int
    commands: int
    commands_malformed: int
    commands_refused: int
    """Commands that this collector does not obey, and those beyond the rate limit."""


class CollectorAssembly:
    """The parts of one collector, connected."""

    def __init__(
        self,
        config: CollectorConfig,
        source: Source,
        kernel: KernelLines | None,
        host: HostRows | None,
        facts: Mapping[str, str],
        ports: PortRows | None = None,
        changing: Callable[[], Mapping[str, str]] = dict,
        guessed: NodeRole | None = None,
    ) -> None:
        self.config = config
        self.source = source
        self.session = secrets.randbits(48)
        self.kernel = kernel
        self.opened = False
        """Whether the source was opened."""
        self.ended = False
        """Whether the last frame was built."""
        self.closing = False
        """Whether tasks end on purpose."""
        self.supervisor = Supervisor(self._task_changed)
        """Runs all tasks and threads."""
        self.marks = ProgressMarks(
            {
                "sample": max(SLOWEST_SAMPLE, STALE_INTERVALS * config.interval),
                "frame sent": max(SLOWEST_SEND, STALE_INTERVALS * config.interval),
                "frame stored": math.inf,  # a disk that is away is no fault of ours
            },
            vital=("sample", "frame sent"),
        )
        self.marks.rest("frame sent")
        self._sending: int | None = None
        """Number of the connection at which frames wait."""
        self.started = asyncio.Event()
        """Set when it samples, and its page listens where the settings want one."""
        self.reporting = asyncio.Event()
        """Set when the first message was handed to the network."""
        self._awaited = {"sample"} if config.metrics_listen is None else {"sample", "page"}
        self.ring_writer: RingWriter | None = None
        self._memory: RememberedDevices | None = None
        if config.ring_enabled:
            ring = Ring(config.state_dir / "ring", config.ring_bytes, durable=config.ring_sync)
            self.ring_writer = RingWriter(
                ring, self.session, self._ring_changed, lambda: self.marks.mark("frame stored")
            )
            if is_probed(source):
                self._memory = RememberedDevices(config.state_dir, time.time_ns())
        self._past = PastInventories() if self._memory is None else self._memory.past
        self.publisher = Publisher(
            config, self.session, self.ring_writer, self._execute, time.time_ns, self.note, self._sent
        )
        self.jobs: JobsService | None = None
        if config.jobs.enabled and (not is_elsewhere(config.source) or isinstance(source, KnowsJobs)):
            self.jobs = JobsService(
                config.jobs,
                config.node,
                self.session,
                source,
                self.publisher.jobs,
                state_dir=config.state_dir if config.ring_enabled else None,
                host_root=config.host_root,
            )
        elif not config.jobs.enabled:
            self.publisher.jobs(jobs_switched_off(self.session, time.time_ns()))
        self.events = EventQueue(config.node, self.session, lambda _, payload: self.publisher.event(payload))
        checks = None if is_elsewhere(config.source) else CheckResults(config.state_dir)
        self.sampler = Sampler(
            config,
            source,
            self.session,
            self.events,
            [self],
            host,
            [
                *([] if kernel is None else [kernel.drain]),
                *([] if host is None else [host.drain_events]),
                *([] if checks is None else [checks.drain_events]),
            ],
            facts,
            changing if checks is None else lambda: {**changing(), **checks.facts()},
            guessed,
            failing=self.failing,
            sampled=self._sampled,
            ports=ports,
        )

    def frame(self, seq: int, payload: bytes) -> None:
        """Publish a frame, then store it in the ring."""
        self.publisher.frame(seq, payload)
        if self.ring_writer is not None:
            self.ring_writer.put(seq, payload)

    def inventory(self, inventory: Inventory) -> None:
        """Publish a new inventory, and remember its GPUs."""
        inventory = self._past.joined(inventory)
        self.publisher.inventory(inventory)
        if self._memory is not None:
            self._memory.inventory(inventory, time.time_ns())

    def note(self, kind: str, message: str) -> None:
        """Add an event of the collector itself."""
        self.events.add(DeviceEvent(kind, time.time_ns(), message=message))

    def _execute(self, kind: CommandKind) -> None:
        self.sampler.command(kind)

    def failing(self) -> dict[str, str]:
        """Return the tasks and threads that failed and have not worked for a while since, with the
        reason."""
        found = {state.name: state.reason for state in self.supervisor.unhealthy()}
        if self.kernel is not None and self.kernel.state == "failed":
            found["kernel log"] = self.kernel.message
        return found

    def _sent(self) -> None:
        self.marks.mark("frame sent")
        self.reporting.set()

    def _sampled(self) -> None:
        self.marks.mark("sample")
        if self._awaited:
            self.begun("sample")

    def publisher_blocked(self) -> float | None:
        """Return the seconds for which frames have waited at a connection and none was sent, once they are too
        many. To be called every few seconds. A broker that is away is no fault of ours."""
        publisher = self.publisher
        waits = publisher.connected and publisher.outbox.frames
        sending = publisher.counters.connects if waits else None
        if sending is None:
            self.marks.rest("frame sent")
        elif sending != self._sending:
            self.marks.expect("frame sent")
        self._sending = sending
        return self.marks.blocked().get("frame sent")

    def publisher_ended(self) -> None:
        """Note that the publisher has ended: until it runs again no frame is due."""
        self.marks.rest("frame sent")
        self._sending = None

    def begun(self, part: str) -> None:
        """Note that a part has begun to work; when all have, no error ends the collector any more."""
        self._awaited.discard(part)
        if not self._awaited:
            self.supervisor.started()
            self.started.set()

    def _task_changed(self, state: TaskState) -> None:
        data: dict[str, object] = {"task": state.name, "failures": state.failures}
        if state.failures:
            kind, message = "task_failed", f"{state.name}: {state.reason}; it is started again"
        else:
            kind, message = "task_works", f"{state.name} works again"
        self.events.add(DeviceEvent(kind, time.time_ns(), message=message, data=data))

    def status(self) -> str:
        """Return its state in a line, for the service manager."""
        newest = self.sampler.newest
        gpus = 0 if newest is None else len(newest.inventory.gpus)
        text = f"{gpus} GPUs, frame {self.sampler.seq}"
        if not self.publisher.connected:
            text += ", no connection to the broker"
        failing = self.failing()
        return f"{text}, failing: {', '.join(failing)}" if failing else text

    def _ring_changed(self, works: bool, message: str) -> None:
        self.note("ring_up" if works else "ring_down", message)

    def summary(self) -> CollectorSummary:
        """Return the counts so far."""
        outbox, backfill = self.publisher.outbox, self.publisher.backfill
        counters = self.publisher.counters
        return CollectorSummary(
            node=self.config.node,
            session=self.session,
            frames=self.sampler.seq + 1,
            frames_published=counters.frames_published,
            frames_unsent=outbox.unsent,
            frames_unkept=0 if self.ring_writer is None else self.ring_writer.unkept,
            frames_resent=backfill.frames,
            frames_gone=backfill.gone,
            ticks_skipped=self.sampler.skipped,
            source_errors=self.sampler.errors,
            events=self.events.events,
            events_dropped=self.events.dropped,
            connects=counters.connects,
            commands=counters.commands,
            commands_malformed=counters.commands_malformed,
            commands_refused=self.publisher.commands.refused,
        )
