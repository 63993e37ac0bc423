"""Evaluation of all shipped rules over a whole fleet in one tick, against one plain comparison a rule.

python -m bench.rules [--gpus 100000] [--links 0] [--ticks 40] [--circuits 2000] [--kinds K,...] [--jobs whole|split] [--json]

The fleet does what simulated training nodes do; one GPU in a thousand is too hot, one in ten
thousand is lost. `floor` is what NumPy needs to compare the first metric of every rule with a
number: no engine can be faster. With `--kinds` only the rules that have a condition of one of these kinds
are evaluated, and counters of errors grow, a hundred times as fast on the GPUs that are too hot. With `--jobs`
each node has a job of its own; with `split` half of it is at another aggregator, which is asked every ten seconds: `exchange` is what
question, answer and hearing cost, `answer_bytes` what is sent.
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import numpy as np

from aggregator.cluster.cluster_peers import ASK_SECONDS, PeersPart, answer_to, question_to, stated_values
from alerts.engine.engine import RuleEngine
from alerts.rules.condition import ConditionKind
from alerts.rules.names import home
from alerts.rules.peers_elsewhere import PeersElsewhere
from alerts.rules.rule import Rule, conditions_of, load
from api.alerts import Subject
from api.power import SnapshotKind
from bench.report import show
from collector.simulated import scenario
from collector.simulated.cluster import SimulatedNode, cluster
from power.snapshot.quantities import QUANTITIES
from power.snapshot.snapshot import PowerSnapshot, Quantity
from telemetry.devices import Gpu, Link
from telemetry.fleet import Fleet
from telemetry.gap import GAP, Gap
from telemetry.metric import Lane, Table, Unit
from telemetry.wire.inventory import Inventory
from telemetry.wire.jobs import Allocation, Job, JobKey, JobSourceState, NodeJobs
from telemetry.wire.schema import SCHEMA

GPUS = 8
BASES = 4
"""Simulated nodes; the fleet repeats them."""
_EPOCH = 1_790_000_000_000_000_000


class MovingFleet:
    """A fleet whose readings change each second."""

    def __init__(self, gpus: int, links: int, *, errors: bool = False) -> None:
        """`errors`: whether counters of errors grow."""
        simulated = scenario("fleet", nodes=BASES, faults="")
        self._bases = [cluster(simulated).node(name) for name in simulated.nodes]
        self._links = links
        self._errors = errors
        self.fleet = Fleet()
        self.nodes = [self.fleet.place(_inventory(number, links)) for number in range(max(1, gpus // GPUS))]
        self._sick = np.arange(7, len(self.nodes) * GPUS, 1000)
        self._lost = np.arange(3, len(self.nodes) * GPUS, 10_000)

    def move(self, second: int) -> float:
        """Store what every node reads at a second; return the monotonic time of it."""
        now = 1000.0 + second
        for number, block in enumerate(SCHEMA.blocks):
            count = self.fleet.size(block.table)
            if not count or (block.lane is Lane.SLOW and second % 15):
                continue
            rows = np.concatenate([self._rows(base, number, second) for base in self._bases])
            matrix = self.fleet.matrices[number]
            tiled = np.resize(rows, (count, rows.shape[1]))
            split = len(block.gauges)
            matrix.gauges[:count], matrix.counters[:count] = tiled[:, :split], tiled[:, split:]
            matrix.seen[:count] = now
            self._spoil(number, matrix.columns, matrix.gauges)
            if self._errors and block.table is Table.GPU:
                self._err(second, matrix.columns, matrix.counters, len(block.gauges))
        for node in self.nodes:
            node.seen, node.sampled_at = now, _EPOCH + second * 10**9
        return now

    def _rows(self, base: SimulatedNode, block: int, second: int) -> np.ndarray:
        if SCHEMA.blocks[block].table is Table.LINK:
            names = SCHEMA.blocks[block].names
            row = [1.0 if name == "link_state" else 0.0 for name in names]
            return np.array([row] * max(1, self._links))
        lane = SCHEMA.blocks[block].lane
        return np.array((base.fast(second) if lane is Lane.FAST else base.slow(second))[block])

    def _spoil(self, block: int, columns: dict[str, int], gauges: np.ndarray) -> None:
        if "gpu_thermal_margin_celsius" in columns:
            gauges[self._sick, columns["gpu_thermal_margin_celsius"]] = -5.0
            gauges[self._lost] = GAP[Gap.DEVICE_LOST]

    def _err(self, second: int, columns: dict[str, int], counters: np.ndarray, gauges: int) -> None:
        """Let the counters of errors grow: once in two minutes, on sick GPUs about once a second."""
        for name in ("gpu_ecc_volatile_corrected_total", "gpu_pcie_replays_total"):
            if name in columns:
                column = counters[: self.fleet.size(Table.GPU), columns[name] - gauges]
                column[:] = second // 120
                column[self._sick] = second


def _inventory(number: int, links: int) -> Inventory:
    gpus = tuple(
        Gpu(uuid=f"GPU-{number:06d}-{index}", index=index, name="NVIDIA H100 80GB HBM3") for index in range(GPUS)
    )
    return Inventory(
        node=f"node-{number:06d}",
        gpus=gpus,
        links=tuple(Link(gpu=gpu.uuid, number=n) for gpu in gpus for n in range(links)),
        driver_state="up",
    )


def snapshots(circuits: int) -> list[PowerSnapshot]:
    """Return healthy power snapshots: of circuits, and of their budgets."""
    found = []
    for kind in SnapshotKind:
        size = circuits if kind is SnapshotKind.CIRCUIT else max(1, circuits // 10)
        columns = {
            quantity.name: np.full(size, _healthy(quantity))
            for quantity in QUANTITIES
            if quantity.snapshot_kind is kind
        }
        found.append(PowerSnapshot(kind, 1, tuple(f"{kind}-{n}" for n in range(size)), columns))
    return found


def _healthy(quantity: Quantity) -> float:
    if quantity.unit is Unit.SECONDS:
        return 0.0 if "above" in quantity.name else np.inf
    if quantity.name == "circuit_voltage_ratio":
        return 1.0
    return {Unit.RATIO: 0.05, Unit.AMPERES: 10.0, Unit.WATTS: 1000.0}.get(quantity.unit, 0.0)


def floor(moving: MovingFleet, rules: Sequence[Rule], now: float) -> float:
    """Return the seconds of one comparison a rule over its first metric."""
    began = time.perf_counter()
    for rule in rules:
        name = next(rule.when.metrics(), None)
        if name is not None and home(name).table is not None:
            _ = moving.fleet.column(name, now) >= 1.0
    return time.perf_counter() - began


def measure(
    gpus: int, links: int, ticks: int, circuits: int, kinds: Collection[str] = (), jobs: str = ""
) -> dict[str, Any]:
    """Return ms a tick, bytes a GPU, and the ratio to the floor; `kinds` and `jobs`: as `--kinds` and `--jobs`."""
    rules = [rule for rule in load() if not kinds or any(_kind(part) in kinds for part in conditions_of(rule.when))]
    moving, engine = MovingFleet(gpus, links, errors=bool(kinds)), RuleEngine(rules)
    alike = snapshots(circuits)
    other = OtherHalves(moving, engine, split=jobs == "split") if jobs else None
    times, floors, changes = [], [], 0
    for second in range(ticks + 5):
        now = moving.move(second)
        began = time.process_time()
        changes += len(engine.evaluate(moving.fleet, now, _EPOCH + second * 10**9, snapshots=alike))
        if second >= 5:  # the first build memory and place all devices
            times.append(time.process_time() - began)
            floors.append(floor(moving, rules, now))
        if other is not None and second % ASK_SECONDS == 0:
            other.exchange(now)
    of_gpus = sum(1 for rule in rules if rule.table is Subject.GPU)
    median = float(np.median(times))
    return {
        "gpus": len(moving.nodes) * GPUS,
        "links": moving.fleet.size(Table.LINK),
        "circuits": circuits,
        "rules": len(rules),
        "of_gpus": of_gpus,
        "alerts_firing": len(engine.alerts()),
        "milliseconds": {
            "median": median * 1e3,
            "p99": float(np.percentile(times, 99)) * 1e3,
            "worst": max(times) * 1e3,
        },
        "floor_milliseconds": float(np.median(floors)) * 1e3,
        "times_the_floor": median / float(np.median(floors)),
        "bytes_per_gpu": engine.bytes / (len(moving.nodes) * GPUS),
        "mean_milliseconds": float(np.mean(times)) * 1e3,
        **({} if other is None else other.figures()),
    }


class OtherHalves:
    """A job on each node, and a member that has as many GPUs of each as this one: it states what this one states."""

    def __init__(self, moving: MovingFleet, engine: RuleEngine, *, split: bool) -> None:
        for number, node in enumerate(moving.nodes):
            key, gpus = JobKey("slurm", "bench", str(number)), node.inventory.gpus
            job = Job(key=key, user="ada", gpus=len(gpus) * (2 if split else 1))
            held = tuple(Allocation(job=key, gpu=gpu.uuid, begin=_EPOCH) for gpu in gpus)
            sources = (JobSourceState(name="slurm"),)
            engine.jobs.put(node.inventory.node, NodeJobs(session=1, jobs=(job,), allocations=held, sources=sources))
        self._elsewhere = PeersElsewhere()
        self._times: list[float] = []
        self._bytes: list[int] = []
        if split:
            engine.join(self._elsewhere)

    def exchange(self, now: float) -> None:
        """Ask once, answer the same question, and hear the answer."""
        its = self._elsewhere
        if not len(its.wanted):
            return
        began = time.process_time()
        body = zlib.compress(answer_to(question_to("other", its), its), 1)
        part = msgspec.msgpack.decode(zlib.decompress(body), type=PeersPart)
        its.hear(its.wanted, {"other": stated_values(part, its.wanted)}, {"other": "p"}, now)
        self._times.append(time.process_time() - began)
        self._bytes.append(len(body))

    def figures(self) -> dict[str, Any]:
        """Return what a question costs."""
        if not self._times:
            return {}
        return {"exchange_milliseconds": float(np.mean(self._times)) * 1e3, "answer_bytes": float(np.mean(self._bytes))}


def _kind(condition: ConditionKind) -> str:
    """Return the word of a condition's type in the rules: `outlier`."""
    return str(condition.__struct_config__.tag)


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.rules", description=__doc__)
    parser.add_argument("--gpus", type=int, default=100_000)
    parser.add_argument("--links", type=int, default=0, help="NVLinks of each GPU")
    parser.add_argument("--ticks", type=int, default=40)
    parser.add_argument("--circuits", type=int, default=2000)
    parser.add_argument("--kinds", default="", help="kinds of conditions, with commas between them")
    parser.add_argument("--jobs", choices=("", "whole", "split"), default="", help="where jobs are")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    kinds = {word for word in options.kinds.split(",") if word}
    found = measure(options.gpus, options.links, options.ticks, options.circuits, kinds, options.jobs)
    show(found, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
