"""Tests of rules: play their example timelines with the real engine on a small fleet or snapshot.

For the tests of the shipped rules, and for `kilowatch rules test` of an operator's rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from alerts.engine.engine import STALL, RuleEngine
from alerts.rules.names import home
from alerts.rules.presence import Silent, Skewed
from alerts.rules.rule import Example, Rule, conditions_of, words_of
from alerts.xid.event import event_data
from api.alerts import Alert, AlertState, Incident, Severity, Subject
from api.power import SnapshotKind
from power.snapshot.snapshot import PowerSnapshot
from telemetry.devices import PORT_PREFIX, Event, Gpu, Link, Port
from telemetry.errors import ConfigError
from telemetry.fleet import Fleet, Node, gaps32, gaps64
from telemetry.gap import GAP, Gap
from telemetry.notations.kernel_log import parse_line, parse_node_line
from telemetry.wire.inventory import Inventory
from telemetry.wire.jobs import Allocation, AllocationKind, GpuProcess, Job, JobKey, JobSourceState, NodeJobs

_EPOCH = 1_700_000_000_000_000_000
_BEFORE = 1_000_000.0
"""Monotonic seconds at the first step; any number but 0 would do."""
_LETTERS = {AlertState.PENDING: "P", AlertState.FIRING: "F", AlertState.RESOLVED: "R"}
_LONG_AGO = 7_200_000_000_000
"""ns before the first step at which its jobs began."""
_GAPS = {gap.word: GAP[gap] for gap in Gap} | {"_": GAP[Gap.ERROR]}
_UNSUPPORTED = gaps32((1,), Gap.NOT_SUPPORTED), gaps64((1,), Gap.NOT_SUPPORTED)
_WORD = re.compile(r"([xs])(\d+)(?:@(\w+))?|([a-z_]+)!|\$(\w+)")


def play(rule: Rule, example: Example) -> list[str]:
    """Return the states of the rule on an example, a letter a step as in `Example.then`.

    Raises `ConfigError` for an unknown word.
    """
    return list(_Play(rule, example).steps())


def holds(rule: Rule, example: Example) -> bool:
    """Return whether an example comes out as it says; stops at the first step that does not."""
    then = words_of(example.then)
    played = zip(_Play(rule, example).steps(), then, strict=True)
    return all(found == expected for found, expected in played)


def failures(rule: Rule) -> list[tuple[Example, list[str]]]:
    """Return the examples of a rule that fail, with the states that they have instead."""
    played = [(example, play(rule, example)) for example in rule.example]
    return [(example, found) for example, found in played if found != words_of(example.then)]


def first_alert(rule: Rule, *, node: str, gpu: str, row: str, facts: Mapping[str, str], serial: str = "") -> Alert:
    """Return the alert of a rule when an example of it first fires, on a device of a test's own.

    `row`, `facts`: name and facts of the circuit, budget, UPS or supply, if the rule is about one;
    `serial`: the first digits of the serial numbers of its GPUs.
    Raises `ConfigError` where no example of the rule fires.
    """
    for example in rule.example:
        play = _Play(rule, example, node, gpu, row, facts, serial)
        for _ in play.steps():
            if (alert := play.firing()) is not None:
                return alert
    raise ConfigError(f"rule {rule.name}", "none of its examples fires", "Write one that does.")


def example_steps(rule: Rule, example: Example) -> list[ExampleStep]:
    """Return the readings and events of each step of an example, to evaluate it by other means."""
    return list(_Play(rule, example).read())


class ExampleStep(NamedTuple):
    """Readings and events of one step of an example."""

    now: float
    """Monotonic seconds."""
    wall: int
    """ns since 1970."""
    readings: dict[str, float]
    """Readings of the first device, without the metrics that it does not support."""
    events: list[Event]
    heard: bool
    """Whether a frame came."""
    ahead: float
    """Seconds by which the nodes' clocks are ahead."""


def node_jobs(
    inventory: Inventory, words: Sequence[str], wall: int, began: int, asked: int, purpose: str = ""
) -> NodeJobs | None:
    """Return the list of a node whose GPUs these words of an example give away; None where it says nothing."""
    if all(word.rstrip("!?") == "_" for word in words):
        return None
    allocations: list[Allocation] = []
    processes: list[GpuProcess] = []
    jobs: dict[str, Job] = {}
    for number, (gpu, word) in enumerate(zip(inventory.gpus, words, strict=False)):
        for name in filter(None, word.strip("~!?-_").split(",")):
            job, _, instance = name.partition("/")
            key = JobKey("slurm", "example", job)
            owner = "Deployment/serve" if job == "serve" else ""
            queue = "interactive" if job == "shell" else ""
            jobs[job] = Job(key=key, user=f"user-{job}", owner=owner, queue=queue, gpus=asked, purpose=purpose)
            used = AllocationKind.USED if word.startswith("~") else AllocationKind.ALLOCATED
            part = int(instance) if instance else None
            allocations.append(Allocation(job=key, gpu=gpu.uuid, instance=part, kind=used, begin=began))
        if word.endswith(("!", "?")):
            hidden = "no permission" if word.endswith("?") else ""
            user = "" if hidden else "mallory"
            stray = GpuProcess(gpu=gpu.uuid, pid=100 + number, user=user, name="python", hidden=hidden)
            processes.append(stray)
    return NodeJobs(
        session=1,
        at=wall,
        jobs=tuple(jobs.values()),
        allocations=tuple(allocations),
        processes=tuple(processes),
        sources=(JobSourceState(name="slurm"),),
    )


def _with_begins(jobs: NodeJobs, before: NodeJobs | None) -> NodeJobs:
    """Return a list in which what went on keeps its begin."""
    if before is None:
        return jobs
    begins = {(one.job, one.gpu): one.begin for one in before.allocations}
    allocations = tuple(
        msgspec.structs.replace(one, begin=begins.get((one.job, one.gpu), one.begin)) for one in jobs.allocations
    )
    return msgspec.structs.replace(jobs, allocations=allocations)


class _Play:
    """An example with its fleet and engine."""

    def __init__(
        self,
        rule: Rule,
        example: Example,
        node: str = "node-0",
        gpu: str = "GPU-0",
        row: str = "example",
        facts: Mapping[str, str] | None = None,
        serial: str = "",
    ) -> None:
        """Begin at the first step. `node`, `gpu`, `row`: names of the first device and its row."""
        self._node, self._gpu, self._row, self._serial = node, gpu, row, serial
        self._facts = facts or {}
        self._rule = rule
        self._example = example
        self._engine = RuleEngine([rule])
        self._metric = next(rule.when.metrics(), None)
        self._silent = any(isinstance(part, Silent) for part in conditions_of(rule.when))
        self._skewed = any(isinstance(part, Skewed) for part in conditions_of(rule.when))
        self._number_of_step = 0
        self._ahead = 0
        """ns by which the nodes' clocks are ahead, where the example gives that."""
        self._fleet = Fleet()
        self._peers: dict[str, tuple[float, ...]] = {}
        """Readings of the peers at this step."""
        self._listed: dict[str, tuple[str, ...]] = {}
        """Words for the jobs of each node at the step before."""
        self._nodes = [self._place(number) for number in range(example.nodes)]
        # The disturbance of the start is over long before the first step.
        self._engine.evaluate(self._fleet, _BEFORE - 1e6, _EPOCH - 10**15)

    def _place(self, number: int) -> Node:
        example = self._example
        others = max((len(values) for values in example.peers.values()), default=0)
        others = max(others, len(example.jobs) - 1)
        first = self._gpu if number == 0 else f"{self._gpu}-of-{number}"
        uuids = [first, *(f"{first}-{other}" for other in range(1, others + 1))]
        inventory = Inventory(
            node=self._node if number == 0 else f"{self._node}-{number}",
            driver_state=example.driver,
            gpus=tuple(
                Gpu(
                    uuid=uuid,
                    index=index,
                    name="NVIDIA H100 80GB HBM3",
                    serial=f"{self._serial}{index}" if self._serial else "",
                    pci=f"0000:{index + 24:02x}:00.0",
                )
                for index, uuid in enumerate(uuids)
            ),
            links=tuple(Link(gpu=uuid, number=0) for uuid in self._linked(uuids)),
            ports=(Port(id=f"{PORT_PREFIX}{number}:example/1", adapter="mlx5_0", number=1),),
        )
        node = self._fleet.place(inventory)
        self._fleet.set_intervals(node, example.every, example.every)
        return node

    def firing(self) -> Alert | None:
        """Return the alert of the first device, if it fires."""
        found = (one for one in self._engine.alerts() if self._first(one.node))
        return next((one for one in found if one.state is AlertState.FIRING), None)

    def _linked(self, uuids: Sequence[str]) -> Sequence[str]:
        """Return the GPUs that have a link: the first one alone, unless there are peers of links."""
        of_links = any(home(name) is Subject.LINK for name in self._example.peers)
        return uuids if of_links else uuids[:1]

    def steps(self) -> Iterator[str]:
        """Play all steps."""
        for step in self.read():
            yield self._step(step.now, step.wall, step.readings, step.events, step.heard)

    def read(self) -> Iterator[ExampleStep]:
        """Read all steps."""
        example = self._example
        for number, words in enumerate(words_of(example.given)):
            self._peers = {
                name: tuple(self._at(value, number) for value in values) for name, values in example.peers.items()
            }
            self._number_of_step = number
            now = _BEFORE + number * example.every
            wall = _EPOCH + int(number * example.every * 1e9)
            readings = {name: self._beside(name, number) for name in example.beside}
            events, heard = [], False
            for word in words.split("+"):
                heard = heard or word != "."
                code = _WORD.fullmatch(word)
                if code:
                    events += [self._event(node, number, wall, code) for node in self._nodes]
                elif word not in {".", "-"}:
                    value = self._number(word)
                    if self._metric is not None:
                        readings[self._metric] = value
                    elif self._skewed:
                        self._ahead = int(value * 1e9)
            yield ExampleStep(now, wall, readings, events, heard, self._ahead / 1e9)

    def _step(self, now: float, wall: int, readings: dict[str, float], events: list[Event], heard: bool) -> str:
        snapshots = self._snapshots(readings) if heard else []
        if heard:
            for node in self._nodes:
                node.seen, node.sampled_at = now, wall + self._ahead
                node.ended = False
                self._store(node, readings, now)
        self._list_jobs(wall)
        self._engine.note_incidents(map(_incident, events))
        for event in events:
            if event.kind == "collector_stopped":
                self._fleet.nodes[event.node].ended = True
        engine = self._engine
        changes = engine.evaluate(self._fleet, now, wall, events, snapshots=snapshots)
        changed = {alert.state for alert in changes if self._first(alert.node)}
        listed = {alert.state for alert in engine.alerts() if self._first(alert.node)}
        state = next(iter(changed & {AlertState.RESOLVED} or listed - {AlertState.RESOLVED}), None)
        if self._silent:
            # A real engine ticks between two steps too; without that, the engine would see a stall.
            for tick in np.arange(now, now + self._example.every, STALL)[1:]:
                engine.evaluate(self._fleet, float(tick), wall)
        return "-" if state is None else _LETTERS[state]

    def _list_jobs(self, wall: int) -> None:
        """Let each node say who has its GPUs, where that has changed."""
        step = self._number_of_step
        found = [words_of(words) for words in self._example.jobs]
        now = tuple(words[step if len(words) > 1 else 0] for words in found)
        for node in self._nodes if now else ():
            name = node.inventory.node
            before = self._listed.get(name, ())
            if now == before:
                continue
            self._listed[name] = now
            began = wall if before else wall - _LONG_AGO
            its = self._example
            jobs = node_jobs(node.inventory, now, wall, began, its.asked, its.purpose)
            kept = self._engine.jobs.newest.get(name)
            if jobs is None:
                self._engine.jobs.remove(name)
            else:
                self._engine.jobs.put(name, _with_begins(jobs, kept))

    def _first(self, node: str) -> bool:
        return node in {"", self._node}

    def _beside(self, name: str, step: int) -> float:
        return self._at(self._example.beside[name], step)

    def _at(self, words: float | str, step: int) -> float:
        return self._number(words_of(words)[step]) if isinstance(words, str) else float(words)

    def _number(self, word: str) -> float:
        if word in _GAPS:
            return _GAPS[word]
        try:
            return float(word)
        except ValueError as error:
            raise self._wrong(word) from error

    def _wrong(self, word: str) -> ConfigError:
        return ConfigError(
            f"rule {self._rule.name}, example",
            f"{word!r} means nothing",
            "Write a number, a gap such as `_` or `timed_out`, `.`, `-`, an XID such as `x79`, "
            "`gpu_lost!`, or `$name` of a line in `lines`.",
        )

    def _event(self, node: Node, number: int, at: int, code: re.Match[str]) -> Event:
        name = node.inventory.node
        kind, gpu = code[4], node.inventory.gpus[0].uuid
        data: dict[str, Any] = {}
        named, pci = False, None
        if code[5]:
            line = self._example.lines.get(code[5], "")
            record = parse_line(line)
            stated = record or parse_node_line(line)
            if stated is None:
                raise self._wrong(code[0])
            kind, data = event_data(stated, line)
            pci = None if record is None else record.pci
            named = pci is not None and pci == node.inventory.gpus[0].pci
        elif kind is None:
            kind = "xid" if code[1] == "x" else "sxid"
            data = {kind: int(code[2]), **({"pid": int(code[3])} if code[3] else {})}
        of_node = {"sxid", "driver_log", "node_log", "collector_stopped", "driver_reloaded"}
        of_gpu = kind not in of_node or (kind == "driver_log" and named)
        return Event(
            id=f"1-{number}-{code[0]}",
            node=name,
            at=at,
            kind=kind,
            gpu=gpu if of_gpu else None,
            pci=None if of_gpu else pci,
            data=data,
        )

    def _store(self, node: Node, readings: Mapping[str, float], now: float) -> None:
        """Store the rows of every block; a device does not support the metrics that are not given."""
        given = readings.keys() | self._peers.keys()
        for number, matrix in enumerate(self._fleet.matrices):
            rows = node.rows[matrix.block.table]
            here = given & matrix.columns.keys()
            if not here:
                self._fleet.store(number, rows, *_UNSUPPORTED, now)
                continue
            count = rows.stop - rows.start
            table = np.full((count, len(matrix.columns)), GAP[Gap.NOT_SUPPORTED])
            for name in here:
                table[:, matrix.columns[name]] = [self._value(readings, name, row) for row in range(count)]
            split = len(matrix.block.gauges)
            with np.errstate(invalid="ignore"):
                gauges = table[:, :split].astype(np.float32)
            self._fleet.store(number, rows, gauges, table[:, split:], now)

    def _value(self, readings: Mapping[str, float], name: str, row: int) -> float:
        if row and name in self._peers:
            return self._peers[name][row - 1]
        return readings.get(name, GAP[Gap.NOT_SUPPORTED])

    def _snapshots(self, readings: Mapping[str, float]) -> list[PowerSnapshot]:
        subject: Subject = self._rule.table
        if subject.snapshot_kind is None:
            return self._circuit()
        columns = {name: np.array([value]) for name, value in readings.items() if home(name) is subject}
        facts = dict(self._facts)
        return [PowerSnapshot(SnapshotKind(subject), 1, (self._row,), columns, (facts,))]

    def _circuit(self) -> list[PowerSnapshot]:
        """Return the circuit that all nodes hang on, where the example has one."""
        if self._example.circuit == "":
            return []
        ratio = self._at(self._example.circuit, self._number_of_step)
        columns = {"circuit_continuous_ratio": np.array([ratio])}
        nodes = ", ".join(node.inventory.node for node in self._nodes)
        return [PowerSnapshot(SnapshotKind.CIRCUIT, 1, (self._row,), columns, ({"nodes": nodes},))]


def _incident(event: Event) -> Incident:
    """Return the incident of an `incident!` of the first GPU's board, of a `slot_incident!` of another
    board in its slot, or one without alerts."""
    alerts: tuple[Alert, ...] = ()
    key = f"incident-{event.at}"
    if event.kind in {"incident", "slot_incident"} and event.gpu is not None:
        board = event.gpu if event.kind == "incident" else f"GPU-before-{event.at}"
        alerts = (
            Alert(
                key=f"example/{event.node}/{board}",
                rule="example",
                state=AlertState.RESOLVED,
                severity=Severity.TICKET,
                node=event.node,
                gpu=board,
                since=event.at,
                labels={"pci": "0000:18:00.0"},
            ),
        )
    return Incident(key=key, severity=Severity.TICKET, title=key, began=event.at, alerts=alerts)
