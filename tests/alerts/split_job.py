"""Nodes and their jobs at one rule engine, and the same nodes divided among several members, in a time that tests set."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from alerts.engine.engine import RuleEngine
from alerts.rules.peers_elsewhere import PeersElsewhere
from alerts.rules.row_memory import Floats
from alerts.rules.rule import Rule, load
from api.alerts import AlertState
from telemetry.devices import Gpu
from telemetry.fleet import Fleet
from telemetry.metric import Table
from telemetry.wire.inventory import Inventory
from telemetry.wire.jobs import Allocation, Job, JobKey, JobSourceState, NodeJobs

GPUS = 8
STEP, ROUND = 10, 10
"""Seconds between two readings, and between two questions."""
WALL = 1_790_000_040_000_000_000
"""Begin of a moment and of a window."""
SOON = {rule.name: msgspec.structs.replace(rule, hold=min(rule.hold, 60.0), keep=60.0, settle=0.0) for rule in load()}
"""The shipped rules in less time: what ends within a minute shows soon."""
RULES = [SOON["straggler"], SOON["job_slow_gpu"]]
CLOCK, WATTS = 1.9e9, 690.0


@dataclass
class Part:
    """Some nodes at a rule engine."""

    engine: RuleEngine
    elsewhere: PeersElsewhere | None = None
    fleet: Fleet = field(default_factory=Fleet)
    ahead: int = 0
    """Seconds by which its wall clock is."""
    fired: dict[str, float] = field(default_factory=dict)
    """When each alert began to fire first."""

    def place(self, node: str, jobs: NodeJobs) -> None:
        """Add a node."""
        gpus = tuple(Gpu(uuid=f"{node}-{n}", index=n, name="H100") for n in range(GPUS))
        placed = self.fleet.place(Inventory(node=node, gpus=gpus))
        self.fleet.set_intervals(placed, STEP, STEP)
        self.engine.jobs.put(node, jobs)

    def remove(self, node: str) -> None:
        """Remove a node that another member has now."""
        self.fleet.remove(node)
        self.engine.forget(node, "moved")
        self.engine.jobs.remove(node)

    def tick(self, readings: Mapping[str, Mapping[str, Floats]], now: float) -> None:
        """Store the readings of a second and evaluate the rules."""
        of_gpus = [each for each in self.fleet.matrices if each.block.table is Table.GPU]
        for name, node in self.fleet.nodes.items():
            node.seen = now
            rows = node.rows[Table.GPU]
            for matrix in of_gpus:
                matrix.gauges[rows], matrix.counters[rows] = 0.0, 0.0
                matrix.seen[rows] = now
                for metric, values in readings[name].items():
                    column, split = matrix.columns.get(metric), len(matrix.block.gauges)
                    if column is not None and column < split:
                        matrix.gauges[rows, column] = values
                    elif column is not None:
                        matrix.counters[rows, column - split] = values
        for alert in self.engine.evaluate(self.fleet, now, WALL + int((now + self.ahead) * 1e9)):
            if alert.state is AlertState.FIRING:
                self.fired.setdefault(alert.key, now)
        assert not self.engine.rules_aside.reasons()

    @property
    def firing(self) -> set[str]:
        """Keys of the alerts that fire."""
        return {one.key for one in self.engine.alerts() if one.state is AlertState.FIRING}


class SplitJobs:
    """Nodes at members, and all of them at one aggregator."""

    def __init__(
        self,
        jobs: Mapping[str, Sequence[str]],
        members: Mapping[str, str],
        *,
        asked: bool = True,
        apart: Collection[str] = (),
        rules: Sequence[Rule] = tuple(RULES),
        seed: int = 0,
    ) -> None:
        """`jobs`: the nodes of each; `members`: the member of each node; `asked`: whether the scheduler says how many
        GPUs a job has. `apart`: members of a release that knows nothing of others."""
        self.draw = np.random.default_rng(seed)
        self.now = 0.0
        self.slow: dict[str, float] = {}
        """Share by which nodes are slow; `NODE/N`: one GPU."""
        self.replays: dict[str, float] = {}
        """Packets that the GPUs of a node send again in a second."""
        self.counted = dict.fromkeys(members, 0.0)
        self.silent: set[str] = set()
        """Members that answer nothing and are asked in vain."""
        self.members = dict(members)
        self.lists = (
            {node: jobs_of(node, name, len(nodes) * GPUS * asked) for name, nodes in jobs.items() for node in nodes}
            if jobs
            else {node: NodeJobs(session=1) for node in members}
        )
        self.silicon = {node: self.draw.normal(1.0, 0.004, GPUS) for node in self.lists}
        self.rules = rules
        self.one = Part(RuleEngine(rules))
        self.parts: dict[str, Part] = {}
        self.processes: dict[str, str] = {}
        """Process of each member that holds something."""
        for name in sorted(set(members.values())):
            self.begin(name, joins=name not in apart)
        for node, its in self.lists.items():
            self.one.place(node, its)

    def begin(self, name: str, *, joins: bool = True) -> None:
        """Start a member, with its nodes; `joins`: whether its release compares with others."""
        part = self.parts[name] = Part(RuleEngine(self.rules))
        self.processes[name] = f"{name} since {self.now}"
        if joins:
            part.elsewhere = PeersElsewhere()
            part.engine.join(part.elsewhere)
        for node, member in self.members.items():
            if member == name:
                part.place(node, self.lists[node])

    def end(self, name: str, to: str) -> None:
        """End a member for good, and have another one take its nodes."""
        del self.parts[name], self.processes[name]
        for node in [node for node, member in self.members.items() if member == name]:
            self.members[node] = to
            self.parts[to].place(node, self.lists[node])
        self.exchange(moved=True)

    def readings(self) -> dict[str, dict[str, Floats]]:
        """Return the readings of all nodes now."""
        found = {}
        for node, silicon in self.silicon.items():
            slow = np.array([self.slow.get(f"{node}/{n}", self.slow.get(node, 0.0)) for n in range(GPUS)])
            self.counted[node] += self.replays.get(node, 0.0) * STEP
            noise = self.draw.normal(1.0, 0.002, GPUS)
            found[node] = {
                "gpu_sm_clock_hertz": CLOCK * silicon * noise * (1 - slow),
                "gpu_power_watts": WATTS * noise * (1 - slow),
                "gpu_utilization_ratio": np.full(GPUS, 0.97),
                "gpu_pcie_replays_total": np.full(GPUS, self.counted[node]),
            }
        return found

    def exchange(self, *, moved: bool = False) -> None:
        """Have members ask each other once, without a network. `moved`: whether nodes have changed hands."""
        there = {name: part for name, part in self.parts.items() if name not in self.silent}
        for name, part in there.items():
            its = part.elsewhere
            if its is None:
                continue
            answers = {
                other: theirs.elsewhere.answer(its.wanted, its.moments(other))
                for other, theirs in there.items()
                if other != name and theirs.elsewhere is not None
            }
            others = {other: its for other, its in self.processes.items() if other != name}
            its.hear(its.wanted, answers, others, self.now, moved=moved)

    def tick(self) -> None:
        """Store one reading."""
        self.now += STEP
        readings = self.readings()
        for part in (self.one, *self.parts.values()):
            part.tick(readings, self.now)

    def run(self, seconds: float) -> None:
        """Pass time."""
        end = self.now + seconds
        while self.now < end:
            self.tick()
            if self.now % ROUND < STEP:
                self.exchange()

    def move(self, node: str, to: str) -> None:
        """Give a node to another member."""
        self.parts[self.members[node]].remove(node)
        self.members[node] = to
        self.parts[to].place(node, self.lists[node])
        self.exchange(moved=True)

    @property
    def firing(self) -> set[str]:
        """Keys of the alerts that fire at the members that answer."""
        return set().union(*(part.firing for name, part in self.parts.items() if name not in self.silent))

    @property
    def fired(self) -> dict[str, float]:
        """When each alert began to fire at a member."""
        return {key: at for part in self.parts.values() for key, at in part.fired.items()}


def jobs_of(node: str, job: str, asked: int) -> NodeJobs:
    """Return the list of a node whose GPUs a job has, which asked for so many."""
    key = JobKey("slurm", "alpha", job)
    return NodeJobs(
        session=1,
        at=WALL,
        jobs=(Job(key=key, user="ada", gpus=asked),),
        allocations=tuple(Allocation(job=key, gpu=f"{node}-{n}", begin=WALL - 10**12) for n in range(GPUS)),
        sources=(JobSourceState(name="slurm-cgroup"),),
    )
