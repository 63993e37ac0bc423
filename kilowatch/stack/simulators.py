"""Child processes that simulate many nodes: one process would be the limit of a demo, whatever the machine.

A child gets a `SimulatedPart` as the first line of its standard input, then the words `stop` and `over`, and writes a
`PartReport` a line. It ends with its parent (`kilowatch.stack.parent`), and yields to the aggregator and the
dashboard where processors are scarce.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from collector.config import CollectorConfig
from collector.simulated import Scenario, SimulatedSource
from kilowatch.stack.broker import client_of
from kilowatch.stack.collectors import Collectors, LocalCollectors, Sampled, StackPart
from kilowatch.stack.open_files import allow_open_files, processes_of
from kilowatch.stack.parent import END_SECONDS, ParentPipe, end_child, start_child, write_to_parent
from kilowatch.stack.start import FEW_NODES
from telemetry.errors import KilowattError
from telemetry.runtime.supervision import describe
from telemetry.runtime.tasks import end
from telemetry.text import counted
from telemetry.text.decoders import of_json
from telemetry.text.log_lines import log_many_nodes_as_one, log_to_stderr

log = logging.getLogger(__name__)

NICENESS = 5
REPORT_SECONDS = 0.2
"""Seconds between two reports."""
RING_BYTES = 64 * 1024 * 1024


class SimulatedPart(msgspec.Struct, frozen=True):
    """Some nodes of a scenario, and where they publish."""

    scenario: Scenario
    nodes: tuple[str, ...]
    port: int
    """Of the embedded broker."""
    folder: str
    """Folder of the stack."""
    log_level: int = logging.WARNING

    def parts(self) -> list[StackPart]:
        """Return their collectors."""
        folder = Path(self.folder)
        broker = client_of("127.0.0.1", self.port, folder)

        def part(node: str) -> StackPart:
            config = CollectorConfig(
                node=node,
                source=f"simulated:{self.scenario.name}/{node}",
                state_dir=folder / "nodes" / node,
                broker=broker,
                kernel_log=None,
                ring_bytes=RING_BYTES,
                ring_sync=False,  # a fleet on one disk would wait for it hundreds of times a second
            )
            return StackPart(config, lambda: SimulatedSource(self.scenario, node))

        return [part(node) for node in self.nodes]


class PartReport(msgspec.Struct, frozen=True):
    """State of the collectors of a child process."""

    started: int
    frames: int | None
    ended: Sampled | None = None
    """Counts of the whole run, at its end."""


def simulated_collectors(cluster: Scenario, port: int, folder: Path) -> list[Collectors]:
    """Return the collectors of a scenario: of a small one in this process, else in as many as the machine has
    processors. Raises `ConfigError` for more than this user may have."""
    count = len(cluster.nodes)
    if count <= FEW_NODES:
        return [LocalCollectors(SimulatedPart(cluster, cluster.nodes, port, str(folder)).parts())]
    allow_open_files(count)
    processes = processes_of(count)
    level = logging.getLogger().getEffectiveLevel()
    parts = [cluster.nodes[number::processes] for number in range(processes)]
    return [SimulatorProcess(SimulatedPart(cluster, part, port, str(folder), level)) for part in parts]


class SimulatorProcess:
    """Collectors in a child process."""

    def __init__(self, part: SimulatedPart) -> None:
        self._part = part
        self._report = PartReport(0, None)
        self._words: list[str] = []
        self._child: subprocess.Popen[bytes] | None = None
        self._listens = False
        """Whether it has its part: words come behind it."""

    @property
    def nodes(self) -> int:
        """Number of their nodes."""
        return len(self._part.nodes)

    @property
    def started(self) -> int:
        """Number of collectors that were started and report, or have had the time to."""
        return self._report.started

    @property
    def frames(self) -> int | None:
        """Frames that were sampled; None until none is sampled any more."""
        return self._report.frames

    async def run(self) -> Sampled:
        """Start the process, and wait for its end."""
        if self._words:
            self._report = PartReport(0, 0)
            return Sampled()
        program = [sys.executable, "-m", "kilowatch.stack.simulators"]
        child = self._child = start_child(program, output=subprocess.PIPE, log=None)
        try:
            # In a thread: of many nodes it is more than a pipe holds, and the child loads its modules yet.
            await asyncio.to_thread(self._write, msgspec.json.encode(self._part).decode())
            for word in self._words:
                self._write(word)
            self._listens = True
            await self._follow(child)
        finally:
            self._listens = False
            await asyncio.to_thread(end_child, child, END_SECONDS)
        if self._report.ended is None:
            log.error(
                "the process that simulates %s has ended with code %s: they are offline",
                counted(self.nodes, "node"),
                child.returncode,
            )
        return self._report.ended or Sampled(self._report.frames or 0)

    async def _follow(self, child: subprocess.Popen[bytes]) -> None:
        """Read the reports until the last one, or the end of the process."""
        assert child.stdout is not None  # noqa: S101 - started with a pipe
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), child.stdout
        )
        try:
            while line := await reader.readline():
                self._report = of_json(PartReport).decode(line)
        finally:
            transport.close()
            if self._report.frames is None:  # nothing more comes
                self._report = msgspec.structs.replace(self._report, frames=0)

    def stop(self) -> None:
        """Have them sample no more, and keep their connections."""
        self._say("stop")

    def over(self) -> None:
        """Have them end: their frames have been received."""
        self._say("over")

    def _say(self, word: str) -> None:
        self._words.append(word)
        if self._listens:
            self._write(word)

    def _write(self, line: str) -> None:
        assert self._child is not None  # noqa: S101 - checked by the callers
        assert self._child.stdin is not None  # noqa: S101 - started with a pipe
        with contextlib.suppress(BrokenPipeError):  # it has ended, which its output tells
            self._child.stdin.write(f"{line}\n".encode())
            self._child.stdin.flush()


async def _simulate(part: SimulatedPart, words: asyncio.Queue[bytes]) -> None:
    """Run the collectors of a part, and report."""
    collectors = LocalCollectors(part.parts())

    async def obey() -> None:
        while True:
            (collectors.stop if await words.get() == b"stop" else collectors.over)()

    async def report() -> None:
        while True:
            write_to_parent(PartReport(collectors.started, collectors.frames))
            await asyncio.sleep(REPORT_SECONDS)

    others = [asyncio.create_task(obey(), name="obey"), asyncio.create_task(report(), name="report")]
    sampled = await collectors.run()
    await end(others, REPORT_SECONDS)
    write_to_parent(PartReport(collectors.started, sampled.frames, sampled))


def main() -> None:
    """Simulate the nodes that the parent names."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they end the parent, which ends this
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o077)
    os.nice(NICENESS)

    async def run() -> None:
        loop, lines = asyncio.get_running_loop(), asyncio.Queue[bytes]()

        def received(line: bytes) -> None:
            loop.call_soon_threadsafe(lines.put_nowait, line)

        ParentPipe(received)
        part = of_json(SimulatedPart).decode(await lines.get())
        log_to_stderr(part.log_level)
        log_many_nodes_as_one()
        await _simulate(part, lines)

    try:
        asyncio.run(run())
    except ExceptionGroup as errors:
        if errors.subgroup((KilowattError, OSError)) is None:
            raise
        sys.exit(f"nodes can't be simulated: {describe(errors)}")


if __name__ == "__main__":
    main()
