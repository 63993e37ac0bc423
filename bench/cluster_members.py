"""Values that members of a cluster store for their CPU, the time of a take-over and of a page, and the memory of
connections to NATS.

    python -m bench.cluster_members storing --members 3 [--nodes 150] [--seconds 30] [--quota 0.25]
    python -m bench.cluster_members takeover [--dead-after 3] [--kills 8] [--seconds 80]
    python -m bench.cluster_members pages [--times 8] [--gpus 2000]
    python -m bench.cluster_members connections [--count 2000]

`storing`: real members, each held to a part of a core by a control group (`cpu.cfs_quota_us`; none with `--quota 0`,
or where this user may not make one: the answer says so), the rules on, `--nodes` nodes of 8 GPUs a member at one frame a
second. What is stored is counted in the stores after the end, CPU from the first frame until some seconds after the
last; brokers and generator apart. `takeover`: three members without an aggregator behind them, of which one after the other ends without a
word; from its end until others have each of its groups, and all. `pages`: three members, breakers over all of them that
begin to carry 129 %; from the first frame that says so until a webhook has the page, with all parts alive, and with a
part killed at that moment: the judge of the site, another member, the nats-server that leads the log, another. `connections`: collectors' sessions at one server.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from aggregator.cluster.groups import GROUPS
from aggregator.cluster.holder import Marks
from aggregator.cluster.member import ClusterMember
from aggregator.cluster.nats import NatsCoordination
from aggregator.impairments import Impairments
from aggregator.ingest.newcomers import PLACED_SHARE
from aggregator.settings.members import MembersConfig
from bench import wire
from bench.cluster import cpu_seconds
from bench.report import show
from bench.testbed import INVENTORY_BYTES
from telemetry.wire.topics import Topic, topic
from tests.cluster import faults
from tests.cluster.hall import Hall, hall_in
from tests.cluster.loop import Loop
from tests.nats_servers import NatsCluster

GPUS = 8
SESSIONS_AT_ONCE = 32
SETTLE_SECONDS = 10.0
"""Seconds after the last frame in which the last ones are stored."""
PERIOD = 100_000
"""Microseconds."""
GENERATOR = (
    "import sys; from bench import load; load.CLUSTER = 'loop'; "
    "from bench import generator; sys.exit(generator.main(sys.argv[1:]))"
)


@contextlib.contextmanager
def held_to(processes: Mapping[str, int], quota: float) -> Iterator[bool]:
    """Hold each process to a part of a core; yield whether that was possible."""
    folders = []
    try:
        for name, process in processes.items() if quota else ():
            folder = Path("/sys/fs/cgroup/cpu") / f"kilowatch-{os.getpid()}-{name}"
            folder.mkdir()
            folders.append(folder)
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD))
            (folder / "cpu.cfs_quota_us").write_text(str(round(quota * PERIOD)))
            (folder / "cgroup.procs").write_text(str(process))
        held = bool(folders)
    except OSError:
        held = False
    try:
        yield held
    finally:
        for folder in folders:
            with contextlib.suppress(OSError):
                folder.rmdir()


def of_storing(members: int, nodes: int, seconds: int, quota: float) -> dict[str, Any]:
    """Return the values that members store for a second of their CPU."""
    with tempfile.TemporaryDirectory() as folder:
        known = nodes * members * INVENTORY_BYTES * PLACED_SHARE
        budgets = f"budgets.newcomer_bytes = {known}\n"  # all nodes come before their first frame
        loop = Loop(Path(folder), nodes=0, names="abcdefgh"[:members], more=budgets)
        generator = None
        try:
            loop.nats.start()
            loop.start(*loop.members)
            loop.until("groups", lambda: loop.held_by(*loop.members))
            generator = subprocess.Popen(
                [sys.executable, "-c", GENERATOR, "--port", str(loop.nats.servers[0].mqtt),
                 "--nodes", str(nodes * members), "--gpus", str(GPUS), "--seconds", str(seconds)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            found = _store(loop, generator, nodes * members, seconds, quota)
        finally:
            if generator is not None:
                generator.kill()
                generator.wait()
            loop.end_all()
    return {"members": members, "gpus": GPUS * nodes * members, **found}


def _store(loop: Loop, generator: subprocess.Popen[str], nodes: int, seconds: int, quota: float) -> dict[str, Any]:
    assert generator.stdin is not None
    assert generator.stdout is not None
    _ = generator.stdout.readline()
    loop.until("nodes", lambda: sum(beat.nodes for beat in loop.beats().values()) >= nodes)
    pids = {name: process.pid for name, process in loop.processes.items()}
    servers = [each.process.pid for each in loop.nats.servers if each.process]
    with held_to(pids, quota) as held:
        began = {name: cpu_seconds(pid) for name, pid in pids.items()}
        brokers = sum(map(cpu_seconds, servers))
        generator.stdin.write("go\n")
        generator.stdin.flush()
        _ = generator.stdout.readline()  # done
        time.sleep(SETTLE_SECONDS)
        used = {name: cpu_seconds(pid) - began[name] for name, pid in pids.items()}
        brokers = sum(map(cpu_seconds, servers)) - brokers
        load = os.getloadavg()[0]
        for name in loop.members:
            loop.signal(name, signal.SIGTERM)  # nobody is left to hand over to
        for name in loop.members:
            loop.end(name)
    generator.stdin.write("end\n")
    generator.stdin.flush()
    sent = json.loads(generator.stdout.readline())
    stored = [frame for name in loop.members for frame in loop.stored(name)]
    values = len(set(stored)) * GPUS * sent["metrics"]
    return {
        "quota_of_a_core": quota if held else "none",
        "frames_sent": sent["sent"],
        "frames_stored": len(set(stored)),
        "frames_stored_twice": len(stored) - len(set(stored)),
        "frames_sent_again": sent["resent"],
        "member_cpu_seconds": sum(used.values()) / len(used),
        "values_a_cpu_second": values / sum(used.values()),
        "brokers_cpu_seconds": brokers,
        "load_average": load,
    }


class NoHolder:
    """A holder without an aggregator: groups begin and end at once."""

    nodes, shares, highest_epoch = 0, False, 0

    def hold(self, epochs: Mapping[str, int]) -> None:
        """Do nothing."""

    async def acquire(self, marks: Mapping[str, Marks]) -> bool:
        """Begin at once."""
        return True

    async def confirm(self, marks: Mapping[str, Marks]) -> None:
        """Request nothing."""

    async def unsubscribe(self, groups: list[str]) -> dict[str, Marks]:
        """End at once."""
        return {group: {} for group in groups}

    async def drop(self, groups: list[str]) -> None:
        """Do nothing."""

    async def marks(self, groups: list[str]) -> dict[str, Marks]:
        """Return that nothing is stored."""
        return {group: {} for group in groups}


async def of_takeover(dead_after: float, kills: int, seconds: float, folder: Path) -> dict[str, Any]:
    """Return the seconds from the end of a member until others have its groups; no member is ended after
    so many seconds."""
    last = time.monotonic() + seconds
    servers = NatsCluster(folder)
    servers.start()
    running: dict[str, tuple[ClusterMember, NatsCoordination, asyncio.Task[None]]] = {}

    async def start(name: str) -> None:
        config = MembersConfig(nats=tuple(servers.urls), member=name, dead_after_seconds=dead_after)
        coordination = NatsCoordination(config, "bench")
        member = ClusterMember(config, coordination, NoHolder(), Impairments())  # type: ignore[arg-type]
        running[name] = member, coordination, asyncio.create_task(member.run(), name=name)

    async def settled() -> None:
        while not (  # noqa: ASYNC110 - the members' own states
            sum(len(each[0].planner.held) for each in running.values()) == len(GROUPS)
            and all(each[0].planner.held for each in running.values())
        ):
            await asyncio.sleep(0.02)

    try:
        for name in "abc":
            await start(name)
        times: list[float] = []
        by_group: list[float] = []
        for number in range(kills):
            async with asyncio.timeout(120):
                await settled()
            await asyncio.sleep(dead_after)
            if times and time.monotonic() > last:
                break
            name = "abc"[number % 3]
            member, coordination, task = running.pop(name)
            waiting = set(member.planner.held)
            began = time.monotonic()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            async with asyncio.timeout(120):
                while waiting:
                    await asyncio.sleep(0.02)
                    taken = waiting & {group for each in running.values() for group in each[0].planner.held}
                    waiting -= taken
                    by_group += [time.monotonic() - began] * len(taken)
            times.append(time.monotonic() - began)
            await coordination.close()
            await start(name)
    finally:
        for _, coordination, task in running.values():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await coordination.close()
        servers.kill()
    return {
        "dead_after_seconds": dead_after, "kills": len(times), "groups": len(by_group),
        "group_p50_seconds": statistics.median(by_group),
        "group_p99_seconds": statistics.quantiles(by_group, n=100)[98],
        "all_groups_p50_seconds": statistics.median(times), "all_groups_longest_seconds": max(times),
        "load_average": os.getloadavg()[0],
    }  # fmt: skip


def _killed(hall: Hall, part: str) -> AbstractContextManager[None]:
    judge, servers = hall.sure_leader(), hall.loop.nats
    leading = servers.servers.index(servers.stream_leader("kw-loop-log"))
    if part == "judge":
        return faults.killed(hall, judge)
    if part == "member":
        return faults.killed(hall, next(name for name in hall.loop.members if name != judge))
    return faults.servers_killed(hall, leading if part == "log_leader" else (leading + 1) % 3)


def of_pages(times: int, gpus: int, folder: Path) -> dict[str, Any]:
    """Return the seconds until a page, by what was killed as the overload began."""
    found: dict[str, Any] = {}
    parts = ("nothing", "judge", "member", "log_leader", "server")
    with hall_in(folder, feeds=times * len(parts), gpus=gpus) as hall:
        for part in parts:
            seconds = []
            for _ in range(times):
                feed = hall.overload()
                with contextlib.nullcontext() if part == "nothing" else _killed(hall, part):
                    seconds.append(hall.paged(feed))
                hall.cool(feed)
                hall.whole()
                assert hall.check_pages(feed) in (1, 2)
            found[f"{part}_killed"] = {"p50_seconds": statistics.median(seconds), "longest_seconds": max(seconds)}
        gpus = sum(hall.rack.gpus.values()) + GPUS * len(hall.loop.nodes)
    return {"gpus": gpus, "pages_each": times, **found, "load_average": os.getloadavg()[0]}


def of_connections(count: int, folder: Path) -> dict[str, Any]:
    """Return the memory of one of three servers with that many collectors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))
    servers = NatsCluster(folder)
    servers.start()
    connections: list[socket.socket] = []
    try:
        server = servers.servers[0]
        before = server.ask("varz")["mem"]
        began = time.monotonic()
        with ThreadPoolExecutor(SESSIONS_AT_ONCE) as threads:
            connections += threads.map(lambda number: _session(server.mqtt, number), range(count))
        seconds = time.monotonic() - began
        while server.ask("varz")["subscriptions"] < count:
            time.sleep(0.2)
        after = [each.ask("varz")["mem"] for each in servers.servers]
    finally:
        for connection in connections:
            connection.close()
        servers.kill()
    return {
        "connections": count, "connect_seconds": seconds, "megabytes_before": before / 1e6,
        "megabytes": after[0] / 1e6, "kilobytes_a_connection": (after[0] - before) / count / 1e3,
        "megabytes_of_the_others": max(after[1:]) / 1e6, "load_average": os.getloadavg()[0],
    }  # fmt: skip


def _session(port: int, number: int) -> socket.socket:
    """Open a collector's session; patiently, for the servers refuse some before they have a leader."""
    for _ in range(240):
        try:
            connection = wire.connect("127.0.0.1", port, f"bench-{number}")
        except OSError:
            time.sleep(0.25)
        else:
            connection.sendall(wire.subscribe(topic("bench", f"node-{number}", Topic.COMMAND)))
            return connection
    raise ConnectionRefusedError(f"port {port} refuses session {number}")


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster_members", description=__doc__)
    parser.add_argument("what", choices=("storing", "takeover", "pages", "connections"))
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=150)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--quota", type=float, default=0.25)
    parser.add_argument("--dead-after", type=float, default=3.0)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--times", type=int, default=8)
    parser.add_argument("--gpus", type=int, default=2000)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        if options.what == "storing":
            found = of_storing(options.members, options.nodes, options.seconds, options.quota)
        elif options.what == "takeover":
            found = asyncio.run(of_takeover(options.dead_after, options.kills, options.seconds, Path(folder)))
        elif options.what == "pages":
            found = of_pages(options.times, options.gpus, Path(folder))
        else:
            found = of_connections(options.count, Path(folder))
    show({options.what: found}, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
