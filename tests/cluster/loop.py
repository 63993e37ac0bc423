"""Three NATS servers, members as real `kilowatch aggregate`, real collectors, and who owns what."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from aggregator.cluster.groups import GroupEntry, MemberBeat
from aggregator.cluster.nats import NatsCoordination
from aggregator.cluster.port import Bucket, CoordinationError
from aggregator.settings.members import MembersConfig
from collector.ring.ring import Ring
from telemetry.wire.frame import decode
from telemetry.wire.schema import GPU_FAST
from telemetry.wire.topics import shard_of
from tests.brokers import free_port
from tests.faults.cut_wire import CutWire
from tests.faults.disk import FailingDisk
from tests.faults.wrong_clock import WrongClock
from tests.kit.waiting import FACTOR, end_of_patience
from tests.nats_servers import NatsCluster

DEAD_AFTER = 6.0 * FACTOR
"""On a slow machine an election, and the way back to another server, take as much longer."""
INTERVAL = 0.5
PATIENCE = 240.0
SINGLE = "single"
"""Name of an aggregator without others, which hears the same nodes."""
FrameId = tuple[str, int, int]
"""Node, session, number."""


class Loop:
    """A whole cluster on loopback; the test kills it part by part."""

    def __init__(
        self,
        folder: Path,
        nodes: int = 3,
        names: str = "abc",
        more: str = "",
        *,
        shared: bool = False,
        fragile: bool = False,
        spill_seconds: float = 4.0,
    ) -> None:
        """`more`: further settings of each member, as whole tables; `shared`: whether members share a
        storage, a folder; `fragile`: whether members have disks, clocks and wires that fail on purpose."""
        self.folder, self.more, self._spill_seconds = folder, more, spill_seconds
        self.storage = folder / "storage" if shared else None
        if self.storage is not None:
            self.storage.mkdir()
        self.nats = NatsCluster(folder)
        self.members = [f"agg-{name}" for name in names]
        self.nodes = [f"node-{number:02d}" for number in range(nodes)]
        self.http = {name: free_port() for name in [*self.members, SINGLE]}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._gpus: dict[str, str] = {}
        self.programs: dict[str, str] = {}
        """Python text by name, for what does not run as it is installed."""
        self.disks: dict[str, FailingDisk] = {}
        self.clocks: dict[str, WrongClock] = {}
        self.wires: dict[str, CutWire] = {}
        if fragile:
            self._make_fragile()
        self.log = (folder / "processes.log").open("ab")
        for name in [*self.http, *self.nodes]:
            self._settings(name)

    def _make_fragile(self) -> None:
        ports = [port for each in self.nats.servers for port in (each.port, each.mqtt)]
        for name in self.members:
            folder = self.folder / f"{name}-shims"
            folder.mkdir()
            self.disks[name] = FailingDisk(folder, f"/{name}/")
            self.clocks[name] = WrongClock(folder)
            self.wires[name] = CutWire(folder, ports)

    def _settings(self, name: str) -> None:
        urls, hosts = self.nats.urls, self.nats.mqtt_hosts
        text = '[cluster]\nname = "loop"\n'
        if name != SINGLE:
            text += f'nats = {json.dumps(urls)}\nmember = "{name}"\ndead_after_seconds = {DEAD_AFTER}\n'
        if self.storage is not None and name != SINGLE:
            text += (
                f'[cluster.storage]\nurl = "{self.storage}"\nspill_seconds = {self._spill_seconds}\n'
                "refresh_seconds = 2.0\n"
            )
        text += f"[broker]\nhosts = {json.dumps(hosts)}\n"
        if name in self.http:
            text += (
                f'[aggregator]\nlisten = "127.0.0.1:{self.http[name]}"\n'
                f'data_dir = "{self.folder / name}"\n'
                f"{self.more if name != SINGLE else ''}"
            )
        else:
            source = f"simulated:two-dgx-h100/dgx-01?seed={self.nodes.index(name) + 7}"
            text += (
                f'[collector]\nnode = "{name}"\nsource = "{source}"\ninterval = {INTERVAL}\n'
                f'slow_interval = 2.0\nstate_dir = "{self.folder / name}"\n'
            )
        (self.folder / f"{name}.toml").write_text(text)

    def start(self, *names: str) -> None:
        """Start members and nodes."""
        for name in names:
            command = "aggregate" if name in self.http else "collect"
            more: dict[str, str] = {}
            if name in self.disks:
                shims = [its[name].environment for its in (self.disks, self.clocks, self.wires)]
                for each in shims:
                    more |= each
                more["LD_PRELOAD"] = " ".join(each["LD_PRELOAD"] for each in shims)
            program = ["-c", self.programs[name]] if name in self.programs else ["-m", "kilowatch"]
            self.processes[name] = subprocess.Popen(
                [sys.executable, *program, command, "--config", str(self.folder / f"{name}.toml")],
                stdout=self.log,
                stderr=self.log,
                env=os.environ | more,
            )

    def signal(self, name: str, number: int) -> None:
        """Send a signal."""
        self.processes[name].send_signal(number)

    def kill(self, name: str) -> None:
        """SIGKILL."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def end(self, name: str, seconds: float = PATIENCE) -> int:
        """SIGTERM; return the exit code."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        return process.wait(seconds)

    def end_all(self) -> None:
        """Leave nothing behind."""
        for name in list(self.processes):
            self.kill(name)
        self.nats.kill()
        self.log.close()

    @contextmanager
    def cut(self, name: str) -> Iterator[None]:
        """Have a member's packets vanish, and new connections refused, while the block runs."""
        self.wires[name].be(cut=True)
        try:
            yield
        finally:
            self.wires[name].be(cut=False)

    # -- What is seen ----------------------------------------------------------------------------

    def owners(self, but: int | None = None) -> dict[str, GroupEntry]:
        """Return the owner of each group, from the servers; none while these don't answer for long. `but`: the
        number of a server that is not asked."""
        deadline = end_of_patience(10)
        while not (found := self._entries(Bucket.OWNERS, GroupEntry, but)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found

    def beats(self) -> dict[str, MemberBeat]:
        """Return the heartbeats of the members that live."""
        return self._entries(Bucket.MEMBERS, MemberBeat)

    def _entries(self, bucket: Bucket, kind: type[Any], but: int | None = None) -> dict[str, Any]:
        async def read() -> dict[str, Any]:
            urls = tuple(
                f"nats://127.0.0.1:{each.port}"
                for number, each in enumerate(self.nats.servers)
                if each.process and number != but
            )
            config = MembersConfig(nats=urls, member="test", dead_after_seconds=DEAD_AFTER)
            coordination = NatsCoordination(config, "loop")
            try:
                found = await coordination.entries(bucket)
            finally:
                await coordination.close()
            return {key: msgspec.json.decode(each.value, type=kind) for key, each in found.items()}

        try:
            return asyncio.run(read())
        except CoordinationError:
            return {}

    def shares(self) -> dict[str, int]:
        """Return how many groups each member's heartbeat says that it holds."""
        return {name: beat.groups for name, beat in self.beats().items()}

    def holder(self, node: str) -> str:
        """Return the member that holds a node."""
        found = self.owners().get(shard_of(node))
        return "" if found is None else found.owner

    def held_by(self, *names: str) -> bool:
        """Return whether these members hold all groups between them, and each some."""
        owners = Counter(each.owner for each in self.owners().values())
        shares = self.shares()
        return (
            set(owners) == set(names)
            and sum(owners.values()) == 256
            and all(shares.get(name) == owners[name] for name in names)
        )

    def body(self, member: str, path: str) -> bytes:
        """Return the very bytes of a member's answer."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http[member]}{path}", timeout=15) as answer:
            body: bytes = answer.read()
        return body

    def page(self, member: str, path: str) -> Any:
        """Ask a member; None while it does not serve."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http[member]}{path}", timeout=5) as answer:
                body = answer.read().decode()
        except urllib.error.HTTPError as error:
            body = error.read().decode()
        except OSError:
            return None
        return body if path.startswith("/metrics") else json.loads(body)

    def sample(self, member: str, name: str) -> float:
        """Return a metric of a member, summed over its labels; -1 while it does not serve."""
        body = self.page(member, "/metrics")
        if body is None:
            return -1.0
        lines = [line for line in body.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.split()[-1]) for line in lines)

    def complete(self) -> bool:
        """Return whether no member knows of a missing frame."""
        return all(
            self.sample(name, "kilowatch_aggregator_holes_open") == 0 for name in self.members if name in self.processes
        )

    def until(self, what: str, ready: Callable[[], object], seconds: float = PATIENCE) -> float:
        """Wait for a condition; return the seconds that it took."""
        began = time.monotonic()
        while time.monotonic() < began + seconds * FACTOR:
            if ready():
                took = time.monotonic() - began
                print(f"{took:5.1f} s: {what}", file=sys.stderr)
                return took
            time.sleep(0.2)
        tail = (self.folder / "processes.log").read_text()[-6000:]
        raise AssertionError(f"{what} did not come within {seconds} s; {self.shares()}\n{tail}")

    # -- The oracle; all processes have ended ----------------------------------------------------

    def published(self) -> set[FrameId]:
        """Return every frame that a collector numbered: its ring has all."""
        found: set[FrameId] = set()
        for node in self.nodes:
            ring = Ring(self.folder / node / "ring", 1 << 30)
            ring.open()
            for span in ring.spans():
                found.update((node, span.session, seq) for seq in range(span.first, span.last + 1))
        return found

    def sampled(self, node: str) -> dict[int, FrameId]:
        """Return when each frame of a node's ring was sampled that has readings of GPUs: the last of a
        collector that ends has none."""
        ring = Ring(self.folder / node / "ring", 1 << 30)
        ring.open()
        return {
            frame.sampled_at: (node, span.session, seq)
            for span in ring.spans()
            for seq, payload in ring.read(span.session, span.first, span.last)
            for frame in [decode(payload)]
            if any(part.block == GPU_FAST for part in frame.blocks)
        }

    def answered(self, member: str, node: str) -> list[int]:
        """Return the times of all readings of a node's first GPU that a member answers with."""
        page = self.page(member, f"/api/v1/history?gpu={self.gpu(node)}&metric=gpu_power_watts&step=0&from=-2h")
        return list(page["at"]) if page and "at" in page else []

    def gpu(self, node: str) -> str:
        """Return the UUID of a node's first GPU."""
        if node not in self._gpus:
            for name in self.members:
                page = self.page(name, f"/api/v1/fleet?node={node}&columns=gpu_power_watts")
                if page and page.get("rows", {}).get("uuid"):
                    self._gpus[node] = page["rows"]["uuid"][0]
        return self._gpus.get(node, "")

    def stored(self, member: str) -> list[FrameId]:
        """Return the frames that a member has stored, in any order."""
        found: list[FrameId] = []
        with duckdb.connect(str(self.folder / member / "hot.duckdb"), read_only=True) as store:
            tables = store.execute("select table_name from duckdb_tables()").fetchall()
            for (table,) in tables:
                if table.startswith("frames_"):
                    found += store.execute(
                        f"select r.node, r.session, f.seq from {table} f join runs r on f.run = r.id"
                    ).fetchall()
            holes = store.execute("select count(*) from holes").fetchall()[0][0]
            assert holes == 0, f"{member} gave frames up"
        return found
