"""A running collector, from start to stop.

Many can run in one process (a simulated fleet): each is a handful of tasks and one socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from collector.assembly import CollectorAssembly, CollectorSummary, KernelLines
from collector.config import CollectorConfig
from collector.page.metrics_page import serve
from collector.sampling.sampler import HostRows, PortRows
from collector.source import Paced, Source
from collector.sources import is_elsewhere, make_source
from telemetry.errors import ConfigError
from telemetry.files import private_file
from telemetry.runtime.release import release
from telemetry.runtime.systemd import ServiceManager
from telemetry.runtime.tasks import TaskGroup, end, first_error, unending
from telemetry.text import duration
from telemetry.wire.inventory import LABEL_FACT, NodeRole

# The state folder is locked: one running collector per folder.


@contextlib.contextmanager
def claim(folder: Path) -> Iterator[None]:
    """Hold the folder's lock. Raises `ConfigError` when another collector holds it.

    The kernel releases the lock when the process ends, however it ends. A folder that can't be
    written is not locked: the collector then runs without a ring and logs that.
    """
    path = folder / "collector.lock"
    try:
        private_file.claim_folder(folder)
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        log.warning("%s can't be written: %s", folder, error.strerror)
        yield
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
            raise ConfigError(
                "collector.state_dir",
                f"{folder} is in use by the collector with process id {owner}",
                "Stop that one, or give this one a folder of its own.",
            ) from error
        except OSError as error:  # a file system without locks
            log.warning("%s can't be locked: %s", path, error.strerror)
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


log = logging.getLogger(__name__)

STOPPING = 0.2
"""Seconds that a running tick may take to end."""
SETTLING = 0.3
"""Seconds that the ring may take to write the last frames."""
CLOSING = 1.0
"""Seconds that the source may take to close."""
PARTING = 0.8
"""Seconds that publisher and ring may take to end, while the source closes."""
LOOK_SECONDS = 2.0
"""Pause between two looks whether the publisher sends."""
LEAVING = 0.2
"""Seconds that threads may take to end."""


@dataclass(slots=True)
class Linger:
    """The time between the last frame of a collector and its end."""

    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its frames have been received."""
    frames: int | None = None
    """Number of frames that it sampled; None until it samples no more."""


async def run_collector(
    config: CollectorConfig,
    *,
    stop: asyncio.Event | None = None,
    source: Source | None = None,
    linger: Linger | None = None,
    manager: ServiceManager | None = None,
    reporting: asyncio.Event | None = None,
) -> CollectorSummary:
    """Collect until `stop` is set; then end within two seconds, whatever hangs.

    With `linger`, sampling ends at `stop`, but the connection stays open until its `over` is set, so that
    an aggregator can request the last frames. `manager` is notified of the progress. `reporting` is set when
    the first message was handed to the network.

    Raises `ConfigError` (or `SourceError`) for a fault that an operator must correct before the
    start. A driver, a disk or a broker that is away does not end it: each is a state and an event.
    """
    stop = stop or asyncio.Event()
    config.broker.password()  # both raise ConfigError now rather than at some reconnect
    config.broker.context()
    if source is None:
        source = make_source(config.source, config, time.time_ns() / 1e9)
    if isinstance(source, Paced) and source.interval > config.interval:
        log.info("node=%s a reading every %g s is what the source allows", config.node, source.interval)
        config = msgspec.structs.replace(
            config, interval=source.interval, slow_interval=max(source.interval, config.slow_interval)
        )
    with contextlib.ExitStack() as stack:
        if config.ring_enabled:
            stack.enter_context(claim(config.state_dir))
        host, kernel, ports = host_of(config), kernel_log_of(config), ports_of(config)
        for part in (host, kernel, ports):
            if part is not None:
                stack.callback(part.close)
        parts = CollectorAssembly(
            config, source, kernel, host, facts_of(config), ports, changing_facts_of(config), guessed_role_of(config)
        )
        if reporting is not None:
            parts.reporting = reporting
        work = _run(parts, stop, linger)
        if manager is None:
            return await work
        return await manager.accompany(work, stop, parts.started, parts.marks, parts.status)


async def _run(parts: CollectorAssembly, stop: asyncio.Event, linger: Linger | None) -> CollectorSummary:
    node = parts.config.node
    closing: asyncio.Future[None] | None = None
    loop = asyncio.get_running_loop()
    deadline = 0.0
    try:
        async with TaskGroup() as group:

            def start(name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
                supervised = parts.supervisor.run(name, work, over=lambda: parts.closing)
                return group.create_task(supervised, name=f"{name} {node}")

            sampler = start("sampler", functools.partial(_sample, parts))
            ending = {start("publisher", functools.partial(_publish, parts))}
            if parts.ring_writer is not None:
                ending.add(start("ring", parts.ring_writer.run))
            others = set()
            if parts.kernel is not None:
                others.add(start("kernel log", parts.kernel.run))
            if parts.jobs is not None:
                others.add(start("jobs", parts.jobs.run))
            if parts.config.metrics_listen is not None:
                page = functools.partial(serve, parts.config.metrics_listen, parts)
                others.add(start("page", page))
            try:
                await stop.wait()
                if linger is not None:
                    await end({sampler}, STOPPING)
                    await _publish_last_frame(parts)
                    parts.publisher.announce()
                    linger.frames = parts.summary().frames
                    await linger.over.wait()
            finally:  # also when we are cancelled, or one of the tasks has failed
                parts.closing = True
                await end({sampler, *others}, STOPPING)
                if parts.jobs is not None:
                    parts.jobs.close()
                deadline = loop.time() + CLOSING
                closing = asyncio.ensure_future(parts.source.close())
                await _finish(parts)
                await asyncio.wait(ending, timeout=PARTING)
                while not await end({sampler, *others, *ending}, STOPPING):
                    pass  # the group would wait for it without cancelling it again
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors
    finally:
        if closing is not None:
            await _bounded(closing, deadline - loop.time(), node)
    return parts.summary()


async def _sample(parts: CollectorAssembly) -> None:
    if not parts.opened:
        await parts.source.open()
        parts.opened = True
        parts.note("collector_started", f"kilowatch {release()}, source {parts.config.source}")
    await parts.sampler.run()


class PublisherBlockedError(Exception):
    """A publisher has a connection and frames, and sends none."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"frames wait and none was sent for {duration(seconds)}")


async def _publish(parts: CollectorAssembly) -> None:
    """Run the publisher; raise when it is blocked, whatever keeps it. While it does not end the watchdog is
    not fed."""
    try:
        async with TaskGroup(again_after=STOPPING) as group:
            run = unending(parts.publisher.run(), lambda: parts.closing)
            task = group.create_task(run, name=f"publishing {parts.config.node}")
            while not task.done():
                await asyncio.wait({task}, timeout=LOOK_SECONDS)
                if (seconds := parts.publisher_blocked()) is not None:
                    raise PublisherBlockedError(seconds)
    finally:
        parts.publisher_ended()


async def _publish_last_frame(parts: CollectorAssembly) -> None:
    """Publish the last frame and store it in the ring."""
    if parts.sampler.newest is not None and not parts.ended:
        parts.ended = True
        parts.note("collector_stopped", "stopped on request")
        parts.sampler.flush_events()
    if parts.ring_writer is not None:
        await parts.ring_writer.settled(SETTLING)


async def _finish(parts: CollectorAssembly) -> None:
    """Publish and store the last frame, then close ring and publisher."""
    await _publish_last_frame(parts)
    if parts.ring_writer is not None:
        parts.ring_writer.close()
    parts.publisher.close()


async def _bounded(closing: asyncio.Future[None], seconds: float, node: str) -> None:
    """Wait for the source to close, for a limited time."""
    done, _ = await asyncio.wait({closing}, timeout=max(0.0, seconds))
    if not done:
        closing.cancel()
        log.error("node=%s the source did not close within %.1f s", node, CLOSING)
    elif not closing.cancelled() and (error := closing.exception()) is not None:
        log.error("node=%s the source did not close: %s", node, error)


def main_loop(
    config: CollectorConfig,
    report: Callable[[CollectorSummary], None] | None = None,
    source: Source | None = None,
    manager: ServiceManager | None = None,
    hangup: Callable[[], object] | None = None,
) -> None:
    """Run a collector as a process of its own until SIGTERM or SIGINT, then `report`. `hangup` is called
    at SIGHUP, but at a terminal, where that is its end.

    A thread that hangs (in fsync, in a resolver) can't be ended and must not keep the process
    alive: the process exits without joining it.
    """
    gc.freeze()  # what is loaded now stays: no full collection walks it again
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if hangup is not None and (sys.stdin is None or not sys.stdin.isatty()):
        loop.add_signal_handler(signal.SIGHUP, hangup)
    try:
        summary = loop.run_until_complete(run_collector(config, stop=stop, source=source, manager=manager))
        loop.run_until_complete(_cancel_rest())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    if report is not None:
        report(summary)
    _leave_hung_threads()


async def _cancel_rest() -> None:
    """Cancel the remaining tasks, so that closing the loop logs no warning."""
    await end((task for task in asyncio.all_tasks() if task is not asyncio.current_task()), LEAVING)


def _leave_hung_threads() -> None:
    """Exit the process at once if a thread does not end: the interpreter would wait for it."""
    deadline = time.monotonic() + LEAVING
    for thread in threading.enumerate():
        if thread is threading.main_thread() or thread.daemon:
            continue
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            log.warning("leaving without thread %s, which hangs", thread.name)
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)


def host_of(config: CollectorConfig) -> HostRows | None:
    """Return the reader of this host, or None for a simulation, a recording or `node_readings = false`."""
    if not config.node_readings or is_elsewhere(config.source):
        return None
    from collector.host import Host  # noqa: PLC0415 - a simulation needs none

    disk = config.state_dir
    while not disk.exists() and disk != disk.parent:
        disk = disk.parent
    return Host(
        config.host_root,
        disk,
        None if config.bmc_readings else "",
        services=config.services,
        bmc=config.bmc if config.bmc_readings and config.bmc.url else None,
        state_dir=config.state_dir,
    )


def ports_of(config: CollectorConfig) -> PortRows | None:
    """Return the reader of this host's network ports, or None as for `host_of` and for `ports = false`."""
    if not config.node_readings or not config.ports or is_elsewhere(config.source):
        return None
    from collector.host.fabric import Fabric  # noqa: PLC0415 - as above

    return Fabric(config.node, config.host_root, roles=config.port_roles, topology=config.topology)


def facts_of(config: CollectorConfig) -> dict[str, str]:
    """Return facts about this machine for the inventory, of the settings alone when the source is of another."""
    labels = {f"{LABEL_FACT}{name}": value for name, value in config.labels.items()}
    if is_elsewhere(config.source):
        return labels
    from collector.host import facts  # noqa: PLC0415 - as above

    return {**facts(config.host_root), **labels}


def changing_facts_of(config: CollectorConfig) -> Callable[[], Mapping[str, str]]:
    """Return a reader of the facts of this machine that may change; of nothing for a source of another."""
    if is_elsewhere(config.source):
        return dict
    from collector.host.configuration import configuration  # noqa: PLC0415 - as above

    return functools.partial(configuration, config.host_root, config.services)


def guessed_role_of(config: CollectorConfig) -> NodeRole | None:
    """Return the role of this machine by its hardware; None for a source of another."""
    if is_elsewhere(config.source):
        return None
    from collector.host.role import guessed_role  # noqa: PLC0415 - as above

    return guessed_role(config.host_root)


def kernel_log_of(config: CollectorConfig) -> KernelLines | None:
    """Return a reader of the kernel log, or None where the settings want none."""
    if config.kernel_log is None:
        return None
    if config.kernel_log == "auto" and is_elsewhere(config.source):
        return None
    from collector.host.kernel_log import KernelLog  # noqa: PLC0415 - as above

    path = "/dev/kmsg" if config.kernel_log == "auto" else config.kernel_log
    return KernelLog(path)
