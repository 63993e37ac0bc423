"""The site of a cluster, and what it costs a member to be one of several.

    python -m bench.cluster [--circuits 2000] [--gpus 1000000] [--breaker 125] [--seconds 20]
        [--members 3] [--dead-after 10] [--json]

First the site in a process of its own: what all nodes draw comes as the messages that members send each
second, is decoded, and every circuit is computed from it; what is said is the mean of all seconds but the first
quarter. `--breaker`: amps of each circuit; by default all are far above what trips them, the most that there is
to compute. Then members without nodes on three nats-servers, against one without a cluster: what is more is
coordination. All CPU is that of the process, not time.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from aggregator.site.node_power import COLUMNS, NAMES_EVERY, NODES_PER_MESSAGE, GroupSpan, NodePower, encode, layout_of
from aggregator.site.site_power import SitePower
from bench.circuits import EPOCH, GPUS, CircuitLoad, site_of
from bench.report import show
from power.live import LivePower
from power.site.layout import lay_out
from telemetry.fleet import Fleet
from telemetry.wire.topics import shard_of
from tests.cluster.loop import DEAD_AFTER, SINGLE, Loop

_TICKS = os.sysconf("SC_CLK_TCK")


class SiteLoad:
    """Messages of all members about all nodes, as they are sent."""

    def __init__(self, live: LivePower) -> None:
        self._load = CircuitLoad(live, seed=1)
        groups: dict[str, list[int]] = {}
        for row, name in enumerate(live.machines):
            groups.setdefault(shard_of(name), []).append(row)
        self._parts: list[tuple[list[GroupSpan], list[int], tuple[str, ...]]] = []
        for group, rows in groups.items():
            if not self._parts or len(self._parts[-1][1]) + len(rows) > NODES_PER_MESSAGE:
                self._parts.append(([], [], ()))
            spans, all_rows, names = self._parts[-1]
            mine = tuple(live.machines[row] for row in rows)
            spans.append(GroupSpan(group, 1, layout_of(mine), len(mine)))
            self._parts[-1] = spans, all_rows + rows, names + mine

    def second(self, number: int) -> list[bytes]:
        """Return the messages of a second."""
        inputs = self._load.tick(number)
        columns = {name: np.asarray(getattr(inputs, name), "<f4") for name in COLUMNS}
        found = []
        for turn, (spans, rows, names) in enumerate(self._parts):
            named = number == 0 or (number + turn) % NAMES_EVERY == 0
            values = {name: column[rows].tobytes() for name, column in columns.items()}
            found.append(encode(NodePower(1, number, tuple(spans), values, names if named else None)))
        return found


def of_site(circuits: int, gpus: int, seconds: int, breaker: float) -> dict[str, Any]:
    """Return CPU and memory of the site; each second is one tick."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    live = LivePower(lay_out("bench", site_of(circuits, gpus // GPUS, breaker)))
    site, fleet, load = SitePower(live.machines, 0.0), Fleet(), SiteLoad(live)
    received, ticked, read, sizes = [], [], [], []
    for number in range(seconds):
        payloads, now = load.second(number), float(number)
        sizes.append(sum(map(len, payloads)))
        ran = time.process_time()
        for payload in payloads:
            site.receive(payload, now)
        received.append(time.process_time() - ran)
        ran = time.process_time()
        inputs = site.read(fleet, now)
        read.append(time.process_time() - ran)
        ran = time.process_time()
        live.tick(now, EPOCH + number * 10**9, inputs)
        ticked.append(time.process_time() - ran)
    assert not site.unheard_groups(seconds - 1.0)
    warm = slice(seconds // 4, None)
    cores = [statistics.mean(each[warm]) for each in (received, read, ticked)]
    return {
        "gpus": gpus,
        "nodes": len(live.machines),
        "circuits": circuits,
        "megabytes_a_second": statistics.median(sizes[warm]) / 1e6,
        "receive_core_percent": 100 * cores[0],
        "read_core_percent": 100 * cores[1],
        "circuits_core_percent": 100 * cores[2],
        "core_percent": 100 * sum(cores),
        "load_average": os.getloadavg()[0],
        "memory_megabytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
    }


def cpu_seconds(process: int) -> float:
    """Return the CPU seconds of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def of_coordination(members: int, seconds: int, dead_after: float) -> dict[str, Any]:
    """Return the share of a core that members without nodes take, and one without a cluster."""
    with tempfile.TemporaryDirectory() as folder:
        loop = Loop(Path(folder), nodes=0, names="abcdefgh"[:members])
        set_dead_after(loop, dead_after)
        try:
            loop.nats.start()
            loop.start(*loop.members, SINGLE)
            loop.until("groups", lambda: loop.held_by(*loop.members))
            time.sleep(5)
            processes = {name: one.pid for name, one in loop.processes.items()}
            servers = {one.name: one.process.pid for one in loop.nats.servers if one.process}
            everyone = {**processes, **servers}
            began = {name: cpu_seconds(pid) for name, pid in everyone.items()}
            time.sleep(seconds)
            used = {name: 100 * (cpu_seconds(pid) - began[name]) / seconds for name, pid in everyone.items()}
        finally:
            loop.end_all()
    mean = statistics.mean(used[name] for name in loop.members)
    return {
        "members": members,
        "dead_after_seconds": dead_after,
        "member_core_percent": mean,
        "single_core_percent": used[SINGLE],
        "coordination_core_percent": mean - used[SINGLE],
        "server_core_percent": statistics.mean(used[name] for name in servers),
        "load_average": os.getloadavg()[0],
    }


def set_dead_after(loop: Loop, seconds: float) -> None:
    """Write `dead_after_seconds` into the settings of all members, before they start."""
    for name in loop.members:
        file = loop.folder / f"{name}.toml"
        before = f"dead_after_seconds = {DEAD_AFTER}\n"
        assert before in file.read_text()
        file.write_text(file.read_text().replace(before, f"dead_after_seconds = {seconds}\n"))


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--circuits", type=int, default=2000)
    parser.add_argument("--gpus", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--breaker", type=float, default=125.0)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--dead-after", type=float, default=10.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {}
    if options.gpus:
        found["site"] = of_site(options.circuits, options.gpus, options.seconds, options.breaker)
    if options.members:
        found["coordination"] = of_coordination(options.members, options.seconds, options.dead_after)
    show(found, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
