"""Changed inputs over a real mosquitto, against a real aggregator, beside an honest fleet.

Two real collectors of a simulated DGX each publish at five frames a second; every value that the store
then has of them is compared bit for bit with what they sampled. Scripted nodes report an XID each, at
even distances, and a real webhook receiver must get its page within 5 s. Meanwhile hostile nodes
publish, and hostile clients call the HTTP API and the stream. What is asserted: no process ends, no
tick of the rules is lost, the honest data is complete and exact, all pages come in time, nothing that we wrote failed, and
of the second half of the run it keeps little memory, without the database's own, beyond what an aggregator keeps that hears the
honest nodes alone.
Latencies are printed, not asserted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import paho.mqtt.client as paho

from telemetry.devices import Event
from telemetry.files import local_token
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import CollectorStatus, NodeState
from telemetry.wire.topics import Topic
from tests.aggregator.node import ScriptedNode
from tests.alerts.alertmanagers import Hook
from tests.brokers import Mosquitto
from tests.endtoend.audit import Audit, audit
from tests.endtoend.cluster import NODES, Cluster
from tests.fuzz.corpus import METERS
from tests.fuzz.inputs import SHARES, make
from tests.fuzz.quiet import TRIMMED, QuietAggregator, add_settings, kept_beyond, own_memory
from tests.kit.waiting import until

PAGE_SECONDS = 5.0
"""Seconds from the XID to its page."""
TICK_SECONDS = 5.0
"""Longest between two evaluations of the rules."""
MOST_KEPT = 32 * 1024 * 1024
"""Bytes that are kept of the second half of a run beyond what the quiet aggregator keeps: of a million inputs 67 bytes
each."""
WINDOW = 400
"""Inputs after which the sender waits until the aggregator has caught up."""
STOLEN = ("mallory-1", "mallory-2")
"""Nodes whose certificates were stolen. On a broker without an access list a hostile client may have any
number of names, and pages of more than 20 of them are one storm: docs/security.md."""
XID_EVERY = 8.0
"""Seconds between two XIDs of honest nodes: 20 pages a minute, of all nodes, are a storm."""
PAGERS, MARKER = tuple(f"pager-{number:04}" for number in range(2000)), "marker-1"
"""Honest nodes with one GPU: those of the XIDs, after the last the first again, and the one of the markers."""
NODES_KEPT = 8
"""Nodes with an XID that are known at once; the oldest is forgotten."""
KINDS = ("frame", "backfill", "status", "inventory", "event", "reply", "command", "state", "meter", "http", "websocket")
"""Kinds that come over the bus or the listener; the others are files (`--here`)."""
ACCEPTED = frozenset({"messages_refused", "strangers_refused", "node_silent", "busy_node_silent", "overloaded"})
"""Impairments that refusing hostile messages is reported as."""
SITE = (
    '[power]\nregion = "US"\n[power.circuits.lab]\nbreaker = 60\nvolts = 208\npoles = 3\n'
    'nodes = ["dgx-01", "mallory-1"]\n[power.circuits.office]\nbreaker = 15\n'
    + METERS.replace("[meters.", "[power.meters.")
)
PATIENCE = 120.0
MESSAGE_BYTES = 4 * 1024 * 1024
"""Limit of the broker that is shipped (deploy/mosquitto)."""
MOST_WARM_SECONDS, WARMED_BY = 300.0, 5000
"""Seconds of honest data alone before the first input, and inputs that are worth one of them: caches of
the database fill, and threads take their first memory, whatever is sent."""
MARKER_SECONDS = 10.0
"""Seconds after which a marker is sent again."""
STALL_SECONDS = 180.0
PRINT_SECONDS = 60.0
HALF_A_REQUEST = 1.0
"""Seconds after which a request without an answer is given up: the server waits for the rest of it."""


@dataclass
class Findings:
    """Result of a campaign."""

    faults: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    """What took longer than it should: on a busy machine that proves nothing."""
    inputs: int = 0
    seconds: float = 0.0
    pages: dict[str, float] = field(default_factory=dict)
    """Seconds from the XID of each node to its page."""
    health: list[float] = field(default_factory=list)
    """Seconds of each answer of /healthz."""
    memory: list[int] = field(default_factory=list)
    """Resident bytes of the aggregator without its database's: at the begin, then once a second."""
    quiet: list[int] = field(default_factory=list)
    """Resident bytes, in the same way and at the same times, of an aggregator that hears the honest nodes alone."""
    database: int = 0
    """Most bytes of the database's memory, which has a limit of its own."""
    longest_tick: float = 0.0
    """Longest time without an evaluation of the rules, as far as one poll a second can tell."""
    refused: dict[str, float] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)
    """Of answers to HTTP requests."""
    values: int = 0
    """Of honest nodes, compared bit for bit."""
    frames: int = 0

    @property
    def kept(self) -> int:
        """Bytes that it kept of the second half, beyond what the quiet one did."""
        return kept_beyond(self.memory, self.quiet)

    def lines(self) -> Iterator[str]:
        """Return the report."""
        pages, health = sorted(self.pages.values()), sorted(self.health)
        yield f"{self.inputs:,} inputs in {self.seconds:.0f} s, {self.inputs / max(self.seconds, 1e-9):,.0f}/s"
        yield f"refused: {', '.join(f'{name} {count:,.0f}' for name, count in sorted(self.refused.items()))}"
        yield f"HTTP: {', '.join(f'{status}: {count}' for status, count in sorted(self.statuses.items()))}"
        yield f"honest nodes: {self.frames:,} frames, {self.values:,} values compared bit for bit"
        if pages:
            yield f"pages: {len(pages)}, median {statistics.median(pages):.2f} s, longest {pages[-1]:.2f} s"
        if health:
            yield f"/healthz: median {1000 * statistics.median(health):.0f} ms, longest {1000 * health[-1]:.0f} ms"
        if self.memory:
            yield (
                f"memory: {self.memory[0] >> 20} MiB at the begin, at most {max(self.memory) >> 20}, "
                f"{self.memory[-1] >> 20} at the end; the database at most {self.database >> 20}"
            )
            yield (
                f"memory of the quiet one: {self.quiet[0] >> 20} MiB at the begin, at most {max(self.quiet) >> 20}, "
                f"{self.quiet[-1] >> 20} at the end"
            )
            yield f"kept of the second half beyond it: {self.kept / 2**20:.1f} MiB"
        yield f"rules: at most {self.longest_tick:.1f} s between two evaluations"
        yield from (*self.faults, *self.late) or ("no fault",)


class HostileSender:
    """A client that publishes changed messages from a thread, as fast as the window allows."""

    def __init__(self, broker: Mosquitto, seed: int, inputs: int) -> None:
        self.seed, self.inputs = seed, inputs
        self.sent = 0
        self.requests: list[tuple[str, bytes]] = []
        """Requests that wait for the loop: kind, and bytes or text of the stream."""
        self.caught_up = threading.Event()
        self.waiting = threading.Event()
        self.done = threading.Event()
        self.failed: BaseException | None = None
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="mallory")
        self._client.max_queued_messages_set(0)
        self._client.connect(broker.host, broker.port)
        self._client.loop_start()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End, whatever is left to send."""
        self.inputs = 0
        self.caught_up.set()
        self.waiting.set()
        self._client.disconnect()
        self._client.loop_stop()

    def _run(self) -> None:
        try:
            self._send_all()
        except BaseException as error:  # noqa: BLE001 - shown by the campaign
            self.failed = error
        self.done.set()

    def _send_all(self) -> None:
        shares = {kind: SHARES[kind] for kind in KINDS}
        whole, made = sum(shares.values()), Counter[str]()
        # The kind that is furthest behind its share comes next.
        while self.sent < self.inputs:
            kind = max(shares, key=lambda each: shares[each] * (self.sent + 1) / whole - made[each])
            given = make(kind, self.seed, made[kind], time.time_ns(), STOLEN)
            made[kind] += 1
            self.sent += 1
            if kind in {"http", "websocket"}:
                self.requests.append((kind, given.body))
            else:
                with contextlib.suppress(ValueError):  # a topic that no client may publish to
                    self._client.publish(given.topic, given.body, 1 if given.retain else 0, given.retain)
            if self.sent % WINDOW == 0:
                self.caught_up.clear()
                self.waiting.set()
                self.caught_up.wait()


class Campaign:
    """A run of a campaign."""

    def __init__(self, folder: Path, seed: int, inputs: int) -> None:
        self.found = Findings()
        self.seed, self.inputs = seed, inputs
        self.hook = Hook()
        self.broker = Mosquitto(folder, f"max_inflight_messages 1000\nmessage_size_limit {MESSAGE_BYTES}")
        self.broker.start()
        self.cluster = Cluster(folder, self.broker)
        self.cluster.program = TRIMMED
        add_settings(folder, self.hook, SITE)
        self.quiet = QuietAggregator(folder / "quiet", self.broker, (*NODES, *PAGERS, MARKER), SITE)
        self.hostile: HostileSender | None = None
        self.caught: set[str] = set()
        """Ids of marker events that have come back."""
        self.xids: dict[str, float] = {}
        """When each scripted node reported its XID."""
        self.paged: set[str] = set()
        self._ended = 0.0
        self._last = -1.0
        self._progress = 0, time.monotonic()
        self._printed = time.monotonic()

    def fault(self, text: str) -> None:
        """Note a fault, each once."""
        if text not in self.found.faults:
            self.found.faults.append(text)

    def late(self, text: str) -> None:
        """Note what took too long, each once."""
        if text not in self.found.late:
            self.found.late.append(text)

    async def run(self) -> Findings:
        """Run it."""
        try:
            for name in ("aggregator", *NODES):
                self.cluster.start(name)
            self.quiet.start()
            async with self.hook.listening(), self.quiet.hook.listening(), aiohttp.ClientSession() as session:
                await self._until("the honest fleet", self._fleet_is_up)
                await self._attack(session)
                await self._finish()
        finally:
            if self.hostile is not None:
                self.hostile.close()
            self.cluster.end_all()
            self.quiet.end()
            self.broker.kill()
        return self.found

    def _fleet_is_up(self) -> bool:
        stored = "kilowatch_aggregator_frames_stored_total"
        return min(each.sample(stored) for each in (self.cluster, self.quiet.cluster)) >= 40

    async def _until(self, what: str, ready: Any, seconds: float = PATIENCE) -> None:
        await until(lambda: asyncio.to_thread(ready), what, seconds, every=0.1)

    async def _attack(self, session: aiohttp.ClientSession) -> None:
        found = self.found
        await asyncio.sleep(min(MOST_WARM_SECONDS, self.inputs / WARMED_BY))
        self._note_memory(await self._page(session))
        sender = self.hostile = HostileSender(self.broker, self.seed, self.inputs)
        began = time.monotonic()
        tasks = [
            asyncio.create_task(work)
            for work in (self._watch(session), self._report_xids(session), self._catch_up(session), self._call(session))
        ]
        self._progress = 0, time.monotonic()
        sender.start()
        try:
            while not sender.done.is_set() or sender.requests:
                await asyncio.sleep(0.05)
                for task in tasks:
                    if task.done():
                        task.result()
                self._check_processes(sender.sent)
                self._check_progress(sender.sent)
            if sender.failed is not None:
                raise sender.failed
            await asyncio.sleep(PAGE_SECONDS + 1)  # the last page is due
        except AssertionError as error:
            self.fault(str(error))
        finally:
            found.inputs, found.seconds = sender.sent, time.monotonic() - began
            sender.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if found.kept > MOST_KEPT:
            self.fault(f"{found.kept >> 20} MiB more were kept of the second half than by the quiet one")
        await self._check_pages()

    def _check_processes(self, sent: int) -> None:
        """Raise `AssertionError` when one of our processes has ended."""
        for name, process in self.cluster.processes.items():
            assert process.poll() is None, f"{name} ended with {process.poll()} after {sent:,} inputs"

    def _check_progress(self, sent: int) -> None:
        """Print how far it is, now and then. Raises `AssertionError` when it stands still."""
        now = time.monotonic()
        before, since = self._progress
        if sent != before:
            self._progress = sent, now
        assert now - since < STALL_SECONDS, f"no input was taken for {STALL_SECONDS} s after {sent:,}"
        if now - self._printed >= PRINT_SECONDS:
            self._printed = now
            found = self.found
            grown = [(each[-1] - each[0]) >> 20 for each in (found.memory, found.quiet)]
            print("{:,} inputs, memory {:+} MiB, of the quiet one {:+}".format(sent, *grown), flush=True)

    # -- Beside the hostile --------------------------------------------------------------------------

    async def _watch(self, session: aiohttp.ClientSession) -> None:
        """Look at health, memory and ticks once a second."""
        last_count, last_change = -1.0, time.monotonic()
        while True:
            began = time.monotonic()
            async with session.get(f"http://{self.cluster.http}/healthz") as answer:
                health = await answer.json()
            self.found.health.append(time.monotonic() - began)
            for each in health.get("impairments", ()):
                if each["rule"] not in ACCEPTED:
                    self.fault(f"impaired: {each['rule']} {each['part']}: {each['reason'][:300]}")
            page = await self._page(session)
            count = page.get("kilowatch_aggregator_rules_seconds_count", 0.0)
            now = time.monotonic()
            self.found.longest_tick = max(self.found.longest_tick, now - last_change)
            if now - last_change > TICK_SECONDS:
                self.late(f"no evaluation of the rules for more than {TICK_SECONDS} s")
            if count != last_count:
                last_count, last_change = count, now
            await asyncio.to_thread(self._note_memory, page)
            for hook in self.hook.bodies[:]:
                self._note_page(hook)
            self.hook.bodies.clear()
            await asyncio.sleep(max(0.0, began + 1 - time.monotonic()))

    async def _page(self, session: aiohttp.ClientSession) -> dict[str, float]:
        async with session.get(f"http://{self.cluster.http}/metrics") as answer:
            text = await answer.text()
        found: dict[str, float] = {}
        for line in text.splitlines():
            if line.startswith("kilowatch_"):
                name, _, value = line.rpartition(" ")
                bare = name.split("{")[0]
                found[bare] = found.get(bare, 0.0) + float(value)
                if bare.endswith("messages_dropped_total"):
                    self.found.refused[name.partition('"')[2].rstrip('"}')] = float(value)
        return found

    def _note_memory(self, page: dict[str, float]) -> None:
        found, name = self.found, "kilowatch_aggregator_store_memory_bytes"
        database = int(page.get(name, 0))
        found.database = max(found.database, database)
        found.memory.append(own_memory(self.cluster, database))
        quiet = self.quiet.cluster
        found.quiet.append(own_memory(quiet, int(quiet.sample(name))))

    async def _report_xids(self, session: aiohttp.ClientSession) -> None:
        """Report XIDs one after another, each of another honest node with one GPU, and forget those nodes
        again: the memory that they take is no leak."""
        number = 0
        while True:
            name = PAGERS[number % len(PAGERS)]
            async with ScriptedNode(self.broker.config, name, gpus=1) as node:
                for _ in range(3):
                    await node.tick()
                event = Event(
                    id="1-1",
                    node=name,
                    at=time.time_ns(),
                    kind="xid",
                    gpu=f"GPU-{name}-0",
                    data={"xid": 79},
                    message="GPU has fallen off the bus",
                )
                self.xids[name] = time.monotonic()
                await node.publish(Topic.EVENT, messages.encode(event))
                end = time.monotonic() + XID_EVERY
                while time.monotonic() < end:
                    await node.tick()
                    await asyncio.sleep(0.2)
                    for body in self.hook.bodies[:]:
                        self._note_page(body)
                status = CollectorStatus(state=NodeState.OFFLINE, session=node.session)
                await node.publish(Topic.STATUS, messages.encode(status), retain=True)
            if number >= NODES_KEPT:
                await self._forget(session, PAGERS[(number - NODES_KEPT) % len(PAGERS)])
            number += 1

    async def _forget(self, session: aiohttp.ClientSession, name: str) -> None:
        request = {"why": "it has paged"}
        for one in (self.quiet.cluster.http, self.cluster.http):
            host, _, port = one.rpartition(":")
            headers = {"Authorization": f"Bearer {local_token.find_at(host, int(port))}"}
            url = f"http://{one}/api/v1/nodes/{name}/forget"
            async with session.post(url, json=request, headers=headers) as answer:
                if answer.status != 200:
                    self.fault(f"{name} is not forgotten: {answer.status} {await answer.text()}")

    def _note_page(self, body: dict[str, Any]) -> None:
        text = json.dumps(body)
        for name, at in self.xids.items():
            if name not in self.paged and name in text:
                self.paged.add(name)
                self.found.pages[name] = time.monotonic() - at

    async def _check_pages(self) -> None:
        end = time.monotonic() + PATIENCE
        while self.xids.keys() - self.paged and time.monotonic() < end:
            for body in self.hook.bodies[:]:
                self._note_page(body)
            await asyncio.sleep(0.1)
        for name in self.xids.keys() - self.paged:
            self.fault(f"the XID of {name} was not paged")
        for name, after in self.found.pages.items():
            if after > PAGE_SECONDS + 1:  # looked at each 0.2 s
                self.late(f"the page of {name} came after {after:.1f} s")
        if not self.xids:
            self.fault("no XID was reported: the run was too short")

    async def _catch_up(self, session: aiohttp.ClientSession) -> None:
        """Wake the sender when an event that was published behind its messages has come back."""
        number = 0
        sender = self.hostile
        assert sender is not None
        async with ScriptedNode(self.broker.config, MARKER, gpus=1) as node:
            await node.tick()
            while True:
                await asyncio.to_thread(sender.waiting.wait)
                sender.waiting.clear()
                number += 1
                event = Event(id=f"9-{number}", node="marker-1", at=time.time_ns(), kind="gpu_answers")
                came = False
                while not came:  # an aggregator that connects anew has missed it
                    await node.publish(Topic.EVENT, messages.encode(event))
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(MARKER_SECONDS):
                            await self._came(session, event.id)
                            came = True
                if number % 5 == 0:
                    await node.tick()
                sender.caught_up.set()

    async def _came(self, session: aiohttp.ClientSession, identity: str) -> None:
        """Wait until the newest event of the marker is this one."""
        url = f"http://{self.cluster.http}/api/v1/events?node=marker-1&limit=1"
        while True:
            async with session.get(url) as answer:
                found = await answer.json()
            if any(each["event"]["id"] == identity for each in found.get("events", ())):
                return
            await asyncio.sleep(0.05)

    async def _call(self, session: aiohttp.ClientSession) -> None:
        """Send the hostile requests and stream messages, one at a time."""
        host, _, port = self.cluster.http.rpartition(":")
        sender = self.hostile
        assert sender is not None
        while True:
            if not sender.requests:
                await asyncio.sleep(0.01)
                continue
            kind, body = sender.requests[0]
            if kind == "http":
                await self._request(host, int(port), body)
            else:
                async with session.ws_connect(f"http://{self.cluster.http}/api/v1/stream") as socket:
                    await socket.send_str(body.decode("utf-8", "replace"))
                    await asyncio.wait_for(socket.receive(), 30)
            sender.requests.pop(0)

    async def _request(self, host: str, port: int, body: bytes) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        with contextlib.suppress(ConnectionError, TimeoutError):
            writer.write(body)
            answer = await asyncio.wait_for(reader.read(4000), HALF_A_REQUEST)
            status = int(answer[9:12]) if answer.startswith(b"HTTP/1.") else 0
            self.found.statuses[status] += 1
            if status == 500:
                self.fault(f"500 for {body[:300]!r}")
        writer.close()

    # -- The audit -----------------------------------------------------------------------------------

    async def _finish(self) -> None:
        """End the honest collectors, let the aggregator fill the last gaps, and audit."""
        if self.cluster.processes["aggregator"].poll() is not None:
            return
        for node in NODES:
            if await asyncio.to_thread(self.cluster.end, node, 60) != 0:
                self.fault(f"the collector of {node} ended badly")
        self._ended = time.monotonic()
        await self._until("the last frames", self._quiet)
        if await asyncio.to_thread(self.cluster.end, "aggregator", 60) != 0:
            self.fault("the aggregator ended badly")
        log = (self.cluster.folder / "processes.log").read_text(errors="replace")
        if "Traceback" in log:
            at = log.index("Traceback")
            self.fault(f"a traceback in the log: {log[max(0, at - 500) : at + 3000]}")
        errors = [line for line in log.splitlines() if " ERROR " in line]
        if self.found.faults and errors:
            self.fault("\n  ".join(("errors in the log:", *errors[:20])))
        found: Audit = await asyncio.to_thread(audit, self.cluster)
        self.found.values, self.found.frames = found.values, len(found.stored)
        if len(found.stored) != len(set(found.stored)):
            self.fault("a frame of an honest node is stored twice")
        if set(found.stored) != found.published:
            missing = sorted(found.published - set(found.stored))[:5]
            self.fault(f"honest frames are missing, or invented: {missing}")
        if found.lost:
            self.fault(f"{found.lost} frames of honest nodes were given up")

    def _quiet(self) -> bool:
        """Whether the honest nodes have no frame left to store."""
        before, self._last = (self._last, self.cluster.sample("kilowatch_aggregator_frames_stored_total"))
        return before == self._last and time.monotonic() - self._ended > 3


@contextlib.asynccontextmanager
async def _folder() -> AsyncIterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kilowatch-fuzz-") as name:
        yield Path(name)


async def run_campaign(folder: Path, seed: int, inputs: int) -> Findings:
    """Run a campaign in a folder."""
    return await Campaign(folder, seed, inputs).run()


def campaign(seed: int, inputs: int) -> int:
    """Run a campaign, print its report, and return 1 when it found a fault."""

    async def main() -> Findings:
        async with _folder() as folder:
            return await run_campaign(folder, seed, inputs)

    found = asyncio.run(main())
    print("\n".join(found.lines()))
    wrong = found.faults or found.late
    if wrong:
        print(f"python -m tests.fuzz --seed {seed} --inputs {inputs}", file=sys.stderr)
    return 1 if wrong else 0
