"""One real GPU node: `kilowatch collect` in a process of its own, on the scripted driver.

    async with collecting(broker, folder, fake) as node:    # a reader of the bus listens already
        await node.until("frames", lambda: len(node.live) > 5)
        node.gap(node.live[-1], 3)                           # Gap.TIMED_OUT, or None for a number

The collector and its probe are ended as a service manager ends them, and never killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from telemetry.devices import Event
from telemetry.gap import Gap, reason_of
from telemetry.wire.frame import Frame, unpack
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.brokers import Broker, free_port
from tests.collector.bus import NODE, Reader, reading
from tests.fake_nvml import FakeDriver
from tests.kit.waiting import until

INTERVAL = 0.2
PATIENCE = 60.0
"""Seconds: more than any machine needs; no test waits for it."""
_BLOCK = SCHEMA.blocks[GPU_FAST]
_POWER = _BLOCK.names.index("gpu_power_watts")


class Aggregator:
    """An aggregator that runs."""

    def __init__(self, http: str) -> None:
        self._http = http

    def get(self, path: str) -> Any:
        """Ask it; None while it does not serve."""
        try:
            with urllib.request.urlopen(f"http://{self._http}{path}", timeout=5) as answer:
                return json.loads(answer.read())
        except OSError:
            return None

    def alerts(self, uuid: str) -> list[dict[str, Any]]:
        """Return the alerts about a GPU that are firing."""
        found = self.get(f"/api/v1/alerts?gpu={uuid}&state=firing")
        return [] if found is None else list(found["alerts"])


class Node:
    """A collector that runs, and what it has said since the reader came."""

    def __init__(self, reader: Reader, process: subprocess.Popen[bytes]) -> None:
        self.reader = reader
        self.process = process
        self.probes: set[int] = set()
        """Process ids of all probes seen so far."""

    @property
    def frames(self) -> list[Frame]:
        """All frames, in the order in which they came."""
        return self.reader.frames

    @property
    def live(self) -> list[Frame]:
        """The frames that carry readings: a planned end is a frame without readings."""
        return [frame for frame in self.reader.frames if frame.blocks]

    @property
    def inventory(self) -> Inventory:
        """The newest inventory."""
        return self.reader.inventories[-1]

    def kinds(self) -> list[str]:
        """Kinds of the events about GPUs and driver, in order: not of those about the collector
        itself, which a busy machine may keep from ticking."""
        kinds = [event.kind for event in self.events()]
        return [kind for kind in kinds if not kind.startswith(("collector_", "ticks_"))]

    def events(self, *kinds: str) -> list[Event]:
        """Return the events, of these kinds only if any is named."""
        events = self.reader.events
        return [event for event in events if event.kind in kinds] if kinds else events

    def gap(self, frame: Frame, gpu: int) -> Gap | None:
        """Return why the power of a GPU is absent from a frame, None when it is a number."""
        return reason_of(rows(frame)[gpu][_POWER])

    def alive(self) -> bool:
        """Whether the collector runs."""
        return self.process.poll() is None

    def see_probes(self) -> set[int]:
        """Return the process ids of the probes that run now."""
        parent = self.process.pid
        listing = Path(f"/proc/{parent}/task/{parent}/children").read_text()
        self.probes |= {int(pid) for pid in listing.split()}
        return {pid for pid in self.probes if runs(pid)}

    async def until(self, what: str, so: Callable[[], object], seconds: float = PATIENCE) -> None:
        """Wait for a condition. Raises `AssertionError` that says what did not come."""
        await self.until_heard(what, lambda: not self.alive() or so(), seconds)
        assert self.alive(), f"the collector ended before {what}"

    async def until_heard(self, what: str, so: Callable[[], object], seconds: float = PATIENCE) -> None:
        """As `until`, of a collector that may have ended."""
        await until(so, lambda: f"{what}; events: {self.kinds()}", seconds)

    async def more(self, frames: int) -> list[Frame]:
        """Wait for so many more frames with readings, and return them."""
        before = len(self.live)
        await self.until(f"{frames} frames", lambda: len(self.live) >= before + frames)
        return self.live[before:]

    async def terminate(self) -> int:
        """Send SIGTERM; return the exit code."""
        self.see_probes()
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self.process.wait, PATIENCE)


def rows(frame: Frame, block: int = GPU_FAST) -> list[list[float]]:
    """Return the readings of a block of a frame, one row a GPU by default."""
    return next(unpack(packed) for packed in frame.blocks if packed.block == block)


def runs(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def write_settings(folder: Path, broker: Broker) -> Path:
    """Write the node's settings; its state stays in `folder` from start to start."""
    (folder / "kernel.log").touch()  # the machine's own kernel log is none of the fake's business
    path = folder / "node.toml"
    path.write_text(
        f'[broker]\nhost = "{broker.host}"\nport = {broker.port}\n'
        f'[collector]\nnode = "{NODE}"\nsource = "nvml"\ninterval = {INTERVAL}\n'
        f'slow_interval = 1.0\nstate_dir = "{folder / "state"}"\nnode_readings = false\n'
        f'kernel_log = "{folder / "kernel.log"}"\n'
        'accept_commands = ["resend", "inventory", "release", "resume"]\n'
    )
    return path


@contextlib.asynccontextmanager
async def collecting(broker: Broker, folder: Path, fake: FakeDriver, **environment: str) -> AsyncIterator[Node]:
    """Run a collector meanwhile, and wait at the end until it and its probes have ended."""
    command = [sys.executable, "-m", "kilowatch", "collect", "--config"]
    with (folder / "collector.log").open("ab") as log:
        async with reading(broker.config) as reader:
            process = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
                [*command, str(write_settings(folder, broker))],
                env={**os.environ, **fake.environment, **environment},
                stdout=log,
                stderr=log,
            )
            node = Node(reader, process)
            try:
                await node.until("the first frame", lambda: node.live and reader.inventories)
                yield node
            finally:
                if node.alive():
                    await node.terminate()
                fake.close()  # hangs end here, and with them the probes that were left alone
                await _all_ended(node)


@contextlib.asynccontextmanager
async def aggregating(broker: Broker, folder: Path) -> AsyncIterator[Aggregator]:
    """Run an aggregator meanwhile."""
    http = f"127.0.0.1:{free_port()}"
    path = folder / "aggregator.toml"
    path.write_text(
        f'[broker]\nhost = "{broker.host}"\nport = {broker.port}\n'
        f'[aggregator]\nlisten = "{http}"\ndata_dir = "{folder / "data"}"\n'
    )
    command = [sys.executable, "-m", "kilowatch", "aggregate", "--config", str(path)]
    with (folder / "aggregator.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: ASYNC220 - as below
        try:
            yield Aggregator(http)
        finally:
            process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(process.wait, PATIENCE)


def once(folder: Path, fake: FakeDriver) -> dict[str, Any]:
    """Return what `kilowatch collect --once --json` prints, by the settings in `folder`."""
    command = [sys.executable, "-m", "kilowatch", "collect", "--once", "--json", "--config"]
    done = subprocess.run(
        [*command, str(folder / "node.toml")],
        env={**os.environ, **fake.environment},
        capture_output=True,
        timeout=PATIENCE,
        check=True,
    )
    return dict(json.loads(done.stdout))


async def _all_ended(node: Node) -> None:
    end = time.monotonic() + PATIENCE
    while any(runs(pid) for pid in node.probes):
        assert time.monotonic() < end, f"probes run on: {node.probes}"
        await asyncio.sleep(0.02)
