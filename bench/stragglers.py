"""Slow GPUs, stalled jobs and idle allocations among 100 jobs on 64 nodes, found by the shipped rules, and
false alarms in a simulated day.

python -m bench.stragglers [--hours 24] [--seed 0] [--members 1] [--apart] [--json]

The engine and the rules about jobs are the real ones; the readings are drawn, every five seconds. Jobs of 1 to 32
GPUs begin and end all day, each in a phase of its own: training in step, pipelines whose stages draw different
power by design, services, array tasks. They save checkpoints for seconds or minutes, evaluate on a few
ranks, lose readings and whole nodes for a minute. Boards differ by their silicon and where they sit. Planted are 20
slow nodes, 8 to 40 % slow, in jobs of 16 GPUs and more, by heat on three GPUs, a link that repeats, or a GPU that
does less at the same clock; four jobs that stand still for ten minutes; and three allocations that do nothing.
A slow node is found when an alert names a GPU of it while it is slow; an alert of anything else is false.
With `--members` each of several aggregators has some of the nodes, drawn once, and asks the others every ten seconds for GPUs
of its jobs; with `--apart` it does not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from aggregator.cluster.cluster_peers import ASK_SECONDS
from alerts.engine.engine import RuleEngine
from alerts.rules.peers_elsewhere import PeersElsewhere
from alerts.rules.rule import FOLDER, read
from api.alerts import Alert, AlertState
from bench.report import show
from telemetry.devices import Gpu
from telemetry.fleet import Fleet
from telemetry.wire.inventory import Inventory
from telemetry.wire.jobs import Allocation, Job, JobKey, JobSourceState, NodeJobs

NODES, GPUS = 64, 8
SIZES = (32,) * 6 + (16,) * 10 + (4,) * 12 + (2,) * 12 + (1,) * 60
"""GPUs of each of the 100 jobs that run at a time."""
SLOW, STALLS, IDLE = 20, 4, 3
TICK = 5
LIMIT, AT_REST = 700.0, 75.0
"""Watts."""
CLOCK = 1.755e9
_SPIN = 0.3
"""Share of the power above rest that a kernel draws that waits for others."""
_WALL = 1_790_000_000_000_000_000
Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Run:
    """A job from its begin to its end."""

    slot: int
    gpus: npt.NDArray[np.intp]
    begin: int
    end: int
    """Seconds."""
    kind: str
    number: int
    phase: int
    level: float
    """Share of the power limit while it works."""
    stages: Floats
    """Share of that by GPU."""
    save_every: int
    save: int
    """Seconds."""


@dataclass(slots=True)
class Planted:
    """A fault of a run, and when it was found."""

    kind: str
    run: Run
    gpus: npt.NDArray[np.intp]
    begin: int
    end: int
    slow: float = 0.0
    """Share by which it is slower."""
    found: int | None = None
    """Second at which an alert named it."""


@dataclass(slots=True)
class Cluster:
    """Readings of all GPUs at any second, with the jobs and faults of a day."""

    seed: int
    seconds: int
    draw: np.random.Generator = field(init=False)
    runs: list[Run] = field(init=False)
    planted: list[Planted] = field(init=False)
    silicon: Floats = field(init=False)
    appetite: Floats = field(init=False)
    replays: Floats = field(init=False)
    traffic: Floats = field(init=False)

    def __post_init__(self) -> None:
        """Draw the day."""
        count = NODES * GPUS
        self.draw = np.random.default_rng(self.seed)
        seat = np.where(np.arange(count) % GPUS >= GPUS // 2, 0.975, 1.0)  # behind the others
        self.silicon = seat * self.draw.normal(1.0, 0.008, count)
        self.appetite = self.draw.normal(1.0, 0.012, count)
        self.replays, self.traffic = np.zeros(count), np.zeros(count)
        self.runs = list(self._runs())
        self.planted = list(self._faults())

    def _runs(self) -> Iterator[Run]:
        first, number, draw = 0, 0, self.draw
        for slot, size in enumerate(SIZES):
            gpus = np.arange(first, first + size)
            first += size
            at = -int(draw.integers(0, 4 * 3600))
            while at < self.seconds:
                long = int(draw.integers(1800, 8 * 3600))
                kind = self._kind(size)
                stages = np.ones(size)
                if kind == "pipeline":
                    stages = np.repeat(draw.uniform(0.78, 1.0, 4), size // 4)
                yield Run(
                    slot, gpus, at, at + long, kind, number, int(draw.integers(0, 3600)),
                    float(draw.uniform(0.7, 0.98)), stages, int(draw.integers(300, 1800)),
                    int(draw.choice([8, 20, 40, 180], p=[0.5, 0.3, 0.15, 0.05])),
                )  # fmt: skip
                number += 1
                at += long + int(draw.integers(20, 900))

    def _kind(self, size: int) -> str:
        share = self.draw.random()
        if size >= 16:
            return "training" if share < 0.65 else "pipeline" if share < 0.9 else "serve"
        return "training" if share < 0.5 else "serve" if share < 0.7 else "task"

    def _faults(self) -> Iterator[Planted]:
        """Yield the planted faults, of which no two are in one run."""
        order = self.draw.permutation(len(self.runs))
        free = [self.runs[n] for n in order if self.runs[n].end - self.runs[n].begin > 7200]
        free = [run for run in free if run.begin > 0 and run.end < self.seconds]
        large = [run for run in free if len(run.gpus) >= 16 and run.kind in {"training", "pipeline"}]
        for number, share in enumerate(np.linspace(0.08, 0.40, SLOW)[: len(large)]):
            run = large[number]
            kind = ("heat", "link", "gpu")[number % 3]
            node = int(self.draw.choice(np.unique(run.gpus // GPUS)))
            hit = node * GPUS + self.draw.permutation(GPUS)[: 3 if kind == "heat" else 1]
            begin = run.begin + 1800 + int(self.draw.integers(0, 1800))
            yield Planted(kind, run, hit, begin, begin + 1200, float(share))
        rest = [run for run in free if not any(run is one for one in large[:SLOW])]
        several = [run for run in rest if len(run.gpus) >= 2 and run.kind == "training"]
        for run in several[:STALLS]:
            yield Planted("stall", run, run.gpus, run.begin + 2400, run.begin + 3300)
        single = [run for run in rest if len(run.gpus) == 1 and run.kind == "task"]
        for run in single[:IDLE]:
            yield Planted("idle", run, run.gpus, run.begin, run.end)

    def readings(self, second: int, now: list[Run]) -> dict[str, Floats]:
        """Return the readings of all GPUs while these runs last."""
        count = NODES * GPUS
        use, power = np.zeros(count), np.full(count, AT_REST)
        clock, running = np.full(count, 345e6), np.zeros(count)
        rate = np.zeros(count)
        for run in now:
            gpus, at = run.gpus, second + run.phase
            if run.kind == "serve":
                level = 0.2 + 0.6 * self.draw.random(len(gpus))
                use[gpus] = np.minimum(1.0, level * 1.2)
            else:
                saving = at % run.save_every < run.save
                level = run.level * run.stages * (0.35 if saving else 1.0)
                level = level * (0.55 if at % 12 == 0 else 1.0)  # the exchange at the end of a step
                use[gpus] = 0.97
                if saving and run.save <= 40:
                    use[gpus] = 0.6
                if at % 3600 < 120 and len(gpus) >= 8:  # a rank evaluates, and the others train on
                    level[0] *= 0.7
            power[gpus] = AT_REST + (LIMIT - AT_REST) * level
            clock[gpus], running[gpus], rate[gpus] = CLOCK, 1.0, 5e9
        clock *= self.silicon
        for one in self.planted:
            if one.begin <= second < one.end:
                self._hit(one, second, use, power, clock, running, rate)
        power = AT_REST + (power - AT_REST) * self.appetite
        power *= self.draw.normal(1.0, 0.02, count)
        clock = np.round(clock * self.draw.normal(1.0, 0.006, count) / 15e6) * 15e6
        self.traffic += rate * TICK
        found = {
            "gpu_utilization_ratio": use, "gpu_power_watts": np.minimum(power, LIMIT * 1.02),
            "gpu_sm_clock_hertz": clock, "gpu_processes": running,
            "gpu_memory_used_bytes": 0.6e9 + running * 60e9, "gpu_power_limit_watts": np.full(count, LIMIT),
            "gpu_pcie_replays_total": self.replays, "gpu_nvlink_transmit_bytes_total": self.traffic,
        }  # fmt: skip
        unread = self.draw.random(count) < 0.003
        silent = (np.arange(count) // GPUS * 131 + second // 60 * 7919) % 2003 == 0
        return {name: np.where(unread | silent, np.nan, each) for name, each in found.items()}

    def _hit(
        self, one: Planted, second: int, use: Floats, power: Floats, clock: Floats, running: Floats, rate: Floats
    ) -> None:
        """Change the readings by a fault: in a synchronous job the others wait for the slow one."""
        gpus, hit = one.run.gpus, one.gpus
        match one.kind:
            case "idle":
                use[hit] = running[hit] = rate[hit] = 0.0
                power[hit], clock[hit] = AT_REST, 345e6
            case "stall":
                use[gpus], rate[gpus] = 1.0, 0.0
                power[gpus] = AT_REST + 0.18 * (LIMIT - AT_REST)
            case _:
                slow = one.slow * min(1.0, (second - one.begin) / 60)
                worked = power[gpus] - AT_REST
                power[gpus] = AT_REST + worked * (1 - slow + slow * _SPIN)
                rate[gpus] *= 1 - slow
                if one.kind == "link":
                    self.replays[hit] += self.draw.poisson(TICK * (0.3 + 5 * slow), len(hit))
                else:
                    own = power[hit] - AT_REST
                    power[hit] = AT_REST + own * (1 - slow) / (1 - slow + slow * _SPIN)
                if one.kind == "heat":
                    clock[hit] *= 1 - slow


def lists(runs: list[Run]) -> dict[int, NodeJobs]:
    """Return the list of jobs of every node while these runs last."""
    jobs: dict[int, dict[JobKey, Job]] = {node: {} for node in range(NODES)}
    held: dict[int, list[Allocation]] = {node: [] for node in range(NODES)}
    for run in runs:
        key = JobKey("slurm", "bench", str(run.number))
        owner = "Deployment/serve" if run.kind == "serve" else ""
        job = Job(key=key, user=f"user-{run.number % 40}", owner=owner, gpus=len(run.gpus))
        for gpu in run.gpus.tolist():
            node = gpu // GPUS
            jobs[node][key] = job
            begin = _WALL + run.begin * 10**9
            held[node].append(Allocation(job=key, gpu=_uuid(gpu), begin=begin))
    return {
        node: NodeJobs(
            session=1,
            jobs=tuple(jobs[node].values()),
            allocations=tuple(held[node]),
            sources=(JobSourceState(name="slurm"),),
        )
        for node in range(NODES)
    }


def _uuid(gpu: int) -> str:
    return f"GPU-{gpu:04d}"


def measure(
    hours: float, seed: int, span: tuple[int, int] | None = None, members: int = 1, *, apart: bool = False
) -> dict[str, Any]:
    """Return how many planted faults were found and how soon, and the false alarms, of a simulated time; `span`: the
    seconds of it that are played, all if it is not given."""
    seconds = int(hours * 3600)
    cluster = Cluster(seed, seconds)
    places = np.random.default_rng(seed).integers(0, members, NODES)
    parts = [MemberNodes(np.flatnonzero(places == number)) for number in range(members)]
    if members > 1 and not apart:
        for part in parts:
            part.engine.join(part.elsewhere)
    running: list[Run] = []
    false: Counter[str] = Counter()
    spent, ticks = 0.0, 0
    for second in range(*(span or (0, seconds)), TICK):
        now = [run for run in cluster.runs if run.begin <= second < run.end]
        if now != running:
            running = now
            for part in parts:
                part.list_jobs(lists(now))
        readings = cluster.readings(second, now)
        began = time.process_time()
        for part in parts:
            for alert in part.tick(readings, second):
                if alert.state is AlertState.FIRING and not _finds(alert, cluster, second):
                    false[alert.rule] += 1
        spent, ticks = spent + time.process_time() - began, ticks + 1
        if second % ASK_SECONDS == 0:
            _exchange(parts, float(second))
    found = _figures(cluster, false, hours)
    return found | {"members": members, "milliseconds_a_tick": spent / max(1, ticks) * 1e3}


class MemberNodes:
    """Nodes of one aggregator."""

    def __init__(self, nodes: npt.NDArray[np.intp]) -> None:
        self.nodes = nodes
        self.gpus = (nodes[:, None] * GPUS + np.arange(GPUS)).ravel()
        self.fleet = Fleet()
        for node in nodes.tolist():
            gpus = tuple(Gpu(uuid=_uuid(node * GPUS + n), index=n, name="NVIDIA H100 80GB HBM3") for n in range(GPUS))
            placed = self.fleet.place(Inventory(node=f"node-{node:02d}", gpus=gpus, driver_state="up"))
            self.fleet.set_intervals(placed, TICK, TICK)
        self.engine = RuleEngine(read(FOLDER / "job_rules.toml"))
        self.elsewhere = PeersElsewhere()
        self._known: dict[int, NodeJobs] = {}

    def list_jobs(self, jobs: dict[int, NodeJobs]) -> None:
        """Hand over the lists of nodes that have changed."""
        for node in self.nodes.tolist():
            if self._known.get(node) != jobs[node]:
                self._known[node] = jobs[node]
                self.engine.jobs.put(f"node-{node:02d}", jobs[node])

    def tick(self, readings: dict[str, Floats], second: int) -> list[Alert]:
        """Return the alerts that begin or end with the readings of a second."""
        its = {name: values[self.gpus] for name, values in readings.items()}
        _store(self.fleet, its, 1000.0 + second)
        return self.engine.evaluate(self.fleet, 1000.0 + second, _WALL + second * 10**9)


def _exchange(parts: list[MemberNodes], now: float) -> None:
    """Have each ask the others once."""
    for number, part in enumerate(parts):
        its = part.elsewhere
        answers = {
            str(other): theirs.elsewhere.answer(its.wanted, its.moments(str(other)))
            for other, theirs in enumerate(parts)
            if other != number
        }
        its.hear(its.wanted, answers, dict.fromkeys(answers, ""), now)


def _store(fleet: Fleet, readings: dict[str, Floats], at: float) -> None:
    """Store the readings of all GPUs; a GPU of another number of metrics does not support the rest."""
    for matrix in fleet.matrices:
        count = fleet.size(matrix.block.table)
        if not count:
            continue
        split = len(matrix.block.gauges)
        for name in readings.keys() & matrix.columns.keys():
            column = matrix.columns[name]
            if column < split:
                matrix.gauges[:count, column] = readings[name]
            else:
                matrix.counters[:count, column - split] = readings[name]
        matrix.seen[:count] = at
    for node in fleet.nodes.values():
        node.seen = at


def _finds(alert: Alert, cluster: Cluster, second: int) -> bool:
    """Return whether an alert names something planted, and note when."""
    gpu = int((alert.gpu or "GPU-0000")[4:])
    wanted = {"job_slow_gpu": {"heat", "link", "gpu"}, "job_stalled": {"stall"}, "job_idle": {"idle"}}
    for one in cluster.planted:
        if one.kind not in wanted.get(alert.rule, set()) or not one.begin <= second <= one.end + 300:
            continue
        place = one.gpus // GPUS if alert.rule == "job_slow_gpu" else one.run.gpus // GPUS
        if gpu // GPUS in place:
            one.found = second if one.found is None else one.found
            return True
    return False


def _figures(cluster: Cluster, false: Counter[str], hours: float) -> dict[str, Any]:
    slow = [one for one in cluster.planted if one.slow]
    took = sorted(one.found - one.begin for one in slow if one.found is not None)
    within = sum(seconds <= 300 for seconds in took)
    missed = [f"{one.kind} {one.slow:.0%}" for one in slow if one.found is None or one.found - one.begin > 300]
    found: dict[str, Any] = {
        "nodes": NODES,
        "jobs_at_a_time": len(SIZES),
        "runs": len(cluster.runs),
        "hours": hours,
        "slow_nodes": {
            "planted": len(slow),
            "found_within_five_minutes": within,
            "missed": ", ".join(missed) or "none",
            "seconds_median": took[len(took) // 2] if took else None,
            "seconds_worst": took[-1] if took else None,
        },
    }
    for kind in ("stall", "idle"):
        planted = [one for one in cluster.planted if one.kind == kind]
        found[kind] = {"planted": len(planted), "found": sum(one.found is not None for one in planted)}
    found["false_alarms"] = {"all": sum(false.values()), **dict(sorted(false.items()))}
    return found


def main(arguments: list[str]) -> int:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.stragglers", description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--members", type=int, default=1, help="aggregators that have the nodes")
    parser.add_argument("--apart", action="store_true", help="they don't ask each other")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = measure(options.hours, options.seed, members=options.members, apart=options.apart)
    show(found, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
