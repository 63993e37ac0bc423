"""Targets of the inputs in this process: the code that a running service has behind its sockets.

A target raises for a fault. What our own code catches wide and logs as an error is a fault too
(`Errors`): a border that is complete never needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import msgspec
import numpy as np

from aggregator.electrical.site_loader import load_site
from aggregator.http.config import HttpConfig
from aggregator.meters.mqtt import MeterBus
from aggregator.mqtt.power_topics import PowerTopics
from alerts.diagnosis.diagnosis import Diagnosis
from alerts.engine.rule_tests import failures
from alerts.rules.rule import load
from collector.recording.file import read
from collector.recording.replay import RecordingSource
from collector.smi.document import Document
from collector.smi.failure import Failure
from collector.smi.file import documents_of
from collector.smi.file_source import SmiFileSource
from collector.smi.inventory import inventory_of
from collector.smi.readings import rows_of
from kilowatch import settings as all_settings
from kilowatch.clients.tap import TapReader
from kilowatch.saved_logs.reader import SavedLogReader
from power.meters.meter_record import MeterRecord
from power.site.attach import attach
from telemetry.errors import KilowattError, WireError
from telemetry.metric import Lane, Table
from telemetry.notations.kernel_log import Assembler
from telemetry.wire.border import decode_jobs
from telemetry.wire.mqtt import BrokerConfig
from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.aggregator.fake_view import FakeView
from tests.aggregator.feed import ARRIVAL
from tests.aggregator.http_client import door, small_cluster
from tests.aggregator.meter_hub import site_of
from tests.aggregator.node import expected
from tests.fuzz.corpus import METERS
from tests.fuzz.inputs import BUS, FuzzInput
from tests.fuzz.twin import HONEST, HONEST_GPUS, Side, differences, told_alone
from tests.telemetry.typed import typed

TICK = 128
"""Inputs between two ticks of the rules."""
PAGES_EVERY = 16
"""Ticks between two looks at the web pages: they take ten times as long as all else that is compared."""


class FuzzError(AssertionError):
    """An input did what none may."""


class Errors(logging.Handler):
    """Errors that our own code caught and logged since the last look."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record)[-2000:])

    def check(self) -> None:
        """Raise `FuzzError` for what was logged."""
        texts, self.texts = self.texts, []
        if texts:
            raise FuzzError("logged as an error: " + "\n".join(texts[:3]))

    @contextlib.contextmanager
    def listening(self) -> Iterator[Errors]:
        """Listen to all loggers meanwhile, and not to what tasks of tests before left behind: asyncio reports
        a lost exception when the task is collected."""
        gc.collect()
        root = logging.getLogger()
        root.addHandler(self)
        try:
            yield self
        finally:
            root.removeHandler(self)


class Target(Protocol):
    """Target of the inputs of some kinds."""

    async def feed(self, given: FuzzInput) -> None:
        """Give it one input. Raises for a fault."""

    async def settle(self) -> None:
        """Do what happens between inputs: ticks, commits. Raises for a fault."""


class BusTarget:
    """Ingest, fleet, store, circuits, rules and incidents, with an honest node among the hostile; and a twin that hears
    that node alone."""

    def __init__(self, folder: Path) -> None:
        self.attacked, self.alone = Side(folder / "attacked"), Side(folder / "alone")
        self.core = self.attacked.core
        self.seq = self.ticks = self.compared = 0
        self.tap = [TapReader(as_json=False), TapReader(as_json=True)]
        self.states = PowerTopics("default", "all")
        for side in (self.attacked, self.alone):
            side.begin()
        self._sample()

    def _sample(self) -> None:
        for side in (self.attacked, self.alone):
            side.core.now, side.core.wall = self.core.now, self.core.wall
            side.hear(self.seq)
        self.seq += 1

    async def feed(self, given: FuzzInput) -> None:
        core = self.core
        before = core.stats.dropped.get("error", 0)
        if given.number % 8 < 2:
            self.tap[given.number % 2].lines(given.topic, given.body)
        try:  # as the service does
            ours = self.states.receive(given.topic, given.body)
        except WireError as error:
            ours = True
            core.ingest.refuse(error, given.topic, given.body, core.now, core.wall)
        if given.kind == "jobs":
            use_jobs(given.body)
        if not ours:
            core.ingest.receive(given.topic, given.body, core.now, core.wall)
        if core.stats.dropped.get("error", 0) > before:
            raise FuzzError("a message was refused because we failed on it ourselves")
        core.now += 0.002
        core.wall += 2_000_000

    async def settle(self) -> None:
        core, pipeline = self.core, self.attacked.pipeline
        core.now, core.wall = core.now + 1, core.wall + 10**9
        self._sample()
        for side in (self.attacked, self.alone):
            side.evaluate()
        if pipeline.failed:
            raise FuzzError(f"a tick was not evaluated: {pipeline.failed}")
        broken = [one for one in pipeline.impairments.current() if one.rule in _OURS]
        if broken:
            raise FuzzError(f"set aside: {broken[:3]}")
        self.ticks += 1
        if self.ticks % 4 == 0:
            for side in (self.attacked, self.alone):
                side.core.commit()
        self._audit_newest()
        self._compare(await self.attacked.shown(), await self.alone.shown())
        if missed := told_alone(self.attacked, self.alone):
            raise FuzzError(f"told by one webhook alone: {missed[:3]}")
        if self.ticks % PAGES_EVERY == 1:
            self._compare(await self.attacked.pages_served(), await self.alone.pages_served())
        if self.attacked.view.pages_aside.failures:
            raise FuzzError(f"not shown: {self.attacked.view.pages_aside.reasons()}")

    def _compare(self, attacked: dict[str, Any], alone: dict[str, Any]) -> None:
        found = differences(attacked, alone)
        if found:
            raise FuzzError("other than alone: " + "; ".join(found[:3]))
        self.compared += len(attacked)

    def _audit_newest(self) -> None:
        """Compare the honest node's rows of the fleet, bit for bit."""
        rows = self.core.fleet.nodes[HONEST].rows[Table.GPU]
        matrix = self.core.fleet.matrices[GPU_FAST]
        got = np.hstack([matrix.gauges[rows].astype(np.float64), matrix.counters[rows]])
        wanted = [expected(HONEST, row, [self.seq - 1])[0] for row in range(HONEST_GPUS)]
        np.testing.assert_array_equal(got, np.array(wanted))

    def audit(self) -> int:
        """Compare every stored value of the honest node with what it sent, and all of it with the twin's; return how
        many values there are."""
        for side in (self.attacked, self.alone):
            side.core.commit()
        self._compare(self.attacked.stored(), self.alone.stored())
        compared = 0
        for row in range(HONEST_GPUS):
            wanted = expected(HONEST, row, range(self.seq))
            for column, name in enumerate(SCHEMA.blocks[GPU_FAST].names[:6]):
                found = self.core.store.history(f"GPU-{HONEST}-{row}", name, ARRIVAL - 10**9, self.core.wall + 1, 0.0)
                got = [np.nan if value is None else value for value in found.mean]
                np.testing.assert_array_equal(np.array(got, np.float32), wanted[:, column].astype(np.float32))
                compared += len(got)
        return compared

    async def close(self) -> None:
        """Close both sides."""
        for side in (self.attacked, self.alone):
            await side.close()


_OURS = {"rule_set_aside", "node_set_aside", "circuit_set_aside", "alerting_impaired", "rules_failing"}
"""Impairments that are faults of ours."""


class MeterTarget:
    """Meters of four kinds on one broker."""

    def __init__(self) -> None:
        self.now = 0.0
        records = [MeterRecord(meter, "broker", asked=False) for meter in attach("power", site_of(METERS))]
        self.bus = MeterBus(BrokerConfig(), records, lambda: self.now)
        self.records = records

    async def feed(self, given: FuzzInput) -> None:
        self.now += 0.5
        self.bus.dispatch(given.topic, given.body, retained=given.number % 9 == 0)

    async def settle(self) -> None:
        for record in self.records:
            for reading in record.readings():
                for value in (reading.watts, reading.volts, reading.amps):
                    if value is not None and not abs(value) < 1e9:
                        raise FuzzError(f"{record.meter.name}: {reading}")


class HttpTarget:
    """A real listener on loopback: raw requests, and the same server answers a good one."""

    def __init__(self, view: FakeView, port: int, session: aiohttp.ClientSession, token: str) -> None:
        self.view, self.port, self.session, self.token = view, port, session, token
        self.statuses: dict[int, int] = {}

    async def feed(self, given: FuzzInput) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            body = given.body
            if given.number % 3 and b"Authorization" not in body:
                head, _, rest = body.partition(b"\r\n")
                body = head + b"\r\nAuthorization: Bearer " + self.token.encode() + b"\r\n" + rest
            writer.write(body)
            if given.number % 10 == 0 and writer.can_write_eof():
                writer.write_eof()  # a caller who does not wait for the answer
            answer = b""
            with contextlib.suppress(ConnectionError, TimeoutError):  # half a request gets none
                answer = await asyncio.wait_for(reader.read(2000), 0.3)
        finally:
            writer.close()
        status = int(answer[9:12]) if answer.startswith(b"HTTP/1.") else 0
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if status >= 500 and status not in {501, 503, 505}:
            raise FuzzError(f"answered {answer[:600]!r}")

    async def settle(self) -> None:
        url = f"http://127.0.0.1:{self.port}/healthz"
        async with self.session.get(url) as answer:
            if answer.status != 200:
                raise FuzzError(f"/healthz is {answer.status} after them")


class StreamTarget:
    """Viewers of the stream that send nonsense; each on a connection of its own."""

    def __init__(self, http: HttpTarget) -> None:
        self.http = http
        self.tick = 0

    async def feed(self, given: FuzzInput) -> None:
        url = f"http://127.0.0.1:{self.http.port}/api/v1/stream"
        async with self.http.session.ws_connect(url, max_msg_size=0) as socket:
            match given.topic:
                case "text":
                    await socket.send_str(given.body.decode("utf-8", "replace"))
                case "binary":
                    await socket.send_bytes(given.body)
                case _:
                    await socket.ping(given.body[:100])
            if given.topic != "ping":
                await asyncio.wait_for(socket.receive(), 20)

    async def settle(self) -> None:
        self.tick += 1
        await self.http.view.tick(self.tick)
        await self.http.settle()


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[HttpTarget]:
    """Serve a small cluster."""
    view = await small_cluster()
    async with door(view, HttpConfig(listen="127.0.0.1:0")) as client:
        yield HttpTarget(view, client.port, client.session, client.secret)


class PureTarget:
    """A function that is given the bytes of a file or of a line."""

    def __init__(self, use: Callable[[bytes], object]) -> None:
        self._use = use

    async def feed(self, given: FuzzInput) -> None:
        found = self._use(given.body)
        if asyncio.iscoroutine(found):
            await found

    async def settle(self) -> None:
        """Nothing happens between two files."""


ALL_LANES = frozenset(Lane)


def use_jobs(body: bytes) -> None:
    """Decode the jobs of a node, and what the border makes of them once more: it must not change."""
    with contextlib.suppress(WireError):
        found = decode_jobs(body)
        if typed(decode_jobs(msgspec.json.encode(found))) != typed(found):
            raise FuzzError("the border refuses or changes what it passed")


def use_smi(body: bytes) -> None:
    """Read a saved log of nvidia-smi as the source does."""
    with contextlib.suppress(KilowattError):
        found = documents_of(body.decode("utf-8", "replace"), "fuzz")
        if not isinstance(found, Failure):
            for document in found[:2]:
                _use_document(document)


def _use_document(document: Document) -> None:
    inventory_of(document)
    rows_of(document, ALL_LANES)
    document.shortfall()


def use_kernel(body: bytes) -> None:
    """Parse lines as the reader of /dev/kmsg and `diagnose` do."""
    text = body.decode("utf-8", "replace")
    assembler = Assembler()
    for line in text.split("\n"):
        assembler.feed(line)
    diagnosis = Diagnosis()
    diagnosis.feed(text)
    diagnosis.incidents()


def use_saved_log(body: bytes) -> None:
    """Read a file as `diagnose` does."""
    reader = SavedLogReader()
    reader.read_stream(io.BytesIO(body), "fuzz")
    reader.incidents()


class FileTarget:
    """Files of one name in a folder of their own."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / name

    async def settle(self) -> None:
        """Nothing happens between two files."""


class RecordingTarget(FileTarget):
    """Recordings, read and played as a source."""

    async def feed(self, given: FuzzInput) -> None:
        self.path.write_bytes(given.body)
        with contextlib.suppress(KilowattError):
            for entry in read(self.path):
                if not entry.node:
                    raise FuzzError("a message without a node")
        for loop in (True, False):
            source = RecordingSource(self.path, None, loop=loop)
            with contextlib.suppress(KilowattError):
                await source.open()
                for tick in range(4):
                    await source.read(ALL_LANES, tick, tick * 10**9, 1.0)
                    source.drain_events()
            await source.close()


class SmiFileTarget(FileTarget):
    """Saved logs of nvidia-smi, as the source `nvidia-smi:FILE`."""

    async def feed(self, given: FuzzInput) -> None:
        use_smi(given.body)
        if given.number % 8 == 0:
            self.path.write_bytes(given.body)
            source = SmiFileSource(self.path)
            with contextlib.suppress(KilowattError):
                await source.open()
                await source.read(ALL_LANES, 0, 0, 1.0)


class SettingsTarget(FileTarget):
    """Settings: an error that names the place, or settings that can be used."""

    async def feed(self, given: FuzzInput) -> None:
        self.path.write_bytes(given.body)
        with contextlib.suppress(KilowattError):
            found = all_settings.load(self.path, {})
            all_settings.shown(found)
            load_site(str(self.path), found.aggregator.power)


class RulesTarget(FileTarget):
    """Rule files: an error, or rules whose examples can be played."""

    async def feed(self, given: FuzzInput) -> None:
        self.path.write_bytes(given.body)
        with contextlib.suppress(KilowattError):
            for rule in load([self.path], shipped=False):
                failures(rule)


def pure_targets(folder: Path) -> dict[str, Target]:
    """Return the targets of files and lines, by kind."""
    return {
        "smi_text": SmiFileTarget(folder, "smi.txt"),
        "smi_xml": SmiFileTarget(folder, "smi.xml"),
        "kernel": PureTarget(use_kernel),
        "saved_log": PureTarget(use_saved_log),
        "recording": RecordingTarget(folder, "fuzz.kwrec"),
        "settings": SettingsTarget(folder, "kilowatch.toml"),
        "rules": RulesTarget(folder, "rules.toml"),
    }


@contextlib.asynccontextmanager
async def targets(folder: Path, kinds: set[str]) -> AsyncIterator[dict[str, Target]]:
    """Open the targets of some kinds."""
    found: dict[str, Target] = {kind: target for kind, target in pure_targets(folder).items() if kind in kinds}
    async with contextlib.AsyncExitStack() as stack:
        if kinds & set(BUS):
            bus = BusTarget(folder / "bus")
            stack.push_async_callback(bus.close)
            found.update(dict.fromkeys(BUS, bus))
        if "meter" in kinds:
            found["meter"] = MeterTarget()
        if kinds & {"http", "websocket"}:
            http = await stack.enter_async_context(served())
            found["http"] = http
            found["websocket"] = StreamTarget(http)
        yield found
