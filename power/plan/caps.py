"""Caps of single GPUs that hold a circuit below a power, and the throughput that they cost."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from api.power import CapPlan, CapRequest, GpuCap, ModelThroughput, ThroughputPoint
from power.devices.catalogue import floor_command, limit_command
from power.devices.wall_power import SIGMA_RATIO, WallSource
from power.network.curves import EfficiencyCurves
from power.network.graph import build_graph
from power.network.switching import state_after
from power.network.topology import build_topology
from power.plan.throughput import clock_at
from power.site.config import PowerConfig
from power.site.layout import SiteLayout, lay_out
from power.site.machine import Machine
from power.wiring import Floats
from present.circuit.verdict import cap_verdict
from present.units import quoted
from telemetry.errors import ConfigError, did_you_mean

_SIGMA = SIGMA_RATIO[WallSource.COMMITTED]
_RATIOS = 1 << 20
"""Steps of the ratio of the default limits: finer than a watt of any GPU."""


@dataclass(frozen=True, slots=True)
class CappableGpu:
    """A GPU as it is; None is not known."""

    node: str
    index: int
    model: str
    limit_watts: float
    """Limit in force."""
    floor_watts: float | None = None
    """Lowest limit that it accepts."""
    default_watts: float | None = None
    watts: float | None = None
    """Draw now."""
    sm_clock_hertz: float | None = None
    """SM clock now."""
    job: str | None = None
    """Jobs that hold it; empty where nobody does."""


@dataclass(frozen=True, slots=True)
class _Lever:
    """A GPU whose limit the plan may lower."""

    gpu: CappableGpu
    share: float
    """Part of its node's watts that the circuit carries."""
    priority: int

    @property
    def highest(self) -> float:
        """Highest limit that the plan may give it: never above the default."""
        limits = [self.gpu.limit_watts, self.gpu.default_watts or math.inf]
        return float(math.floor(min(limits)))

    @property
    def floor(self) -> float:
        """Lowest limit that the plan may give it; the one in force where no lower one is known to do."""
        floor = self.gpu.floor_watts
        return self.gpu.limit_watts if floor is None else min(float(math.ceil(floor)), self.highest)

    def at(self, ratio: float) -> float:
        """Return the cap at a ratio of the default limit, whole watts."""
        default = self.gpu.default_watts or self.gpu.limit_watts
        return min(self.highest, max(self.floor, float(math.floor(ratio * default))))


def plan_caps(
    where: str,
    site: PowerConfig,
    asked: CapRequest,
    drawn: Mapping[str, float] | None = None,
    gpus: Sequence[CappableGpu] = (),
    measured: Sequence[ModelThroughput] = (),
    sigma_watts: float | None = None,
    lost: Sequence[str] = (),
) -> CapPlan:
    """Return caps with which a circuit's power commitment is below `asked.below_watts`. Nothing is applied.

    `drawn`: watts of nodes now; `gpus`: those of running nodes, else a node has what its configuration
    says. `sigma_watts`: one standard deviation of what the circuit draws now; None where it does not run.
    `lost`: elements that are off now. Raises `ConfigError` for a circuit that does not exist.
    """
    if not (math.isfinite(asked.below_watts) and asked.below_watts > 0):
        raise ConfigError("--below", f"{quoted(asked.below_watts, 'W')} is no power", "Write --below 40kW.")
    if not 0 <= asked.margin_watts < asked.below_watts:
        raise ConfigError(
            "--margin",
            f"{quoted(asked.margin_watts, 'W')} is no margin below {quoted(asked.below_watts, 'W')}",
            "Write --margin 5%.",
        )
    layout = lay_out(where, site)
    if asked.circuit not in layout.circuits:
        cure = did_you_mean(asked.circuit, layout.circuits) or f"Known: {', '.join(list(layout.circuits)[:20])}."
        raise ConfigError("--circuit", f"there is no {asked.circuit!r}", cure)
    if asked.by == "job" and all(gpu.job is None for gpu in gpus):
        raise ConfigError(
            "--by",
            "who holds which GPU is not known",
            "Ask with --http a running cluster whose nodes report their jobs.",
        )
    load = _Load(layout, asked.circuit, drawn or {}, gpus, lost)
    before = load.watts(load.limits)
    most = asked.below_watts - asked.margin_watts
    groups = _groups(load.levers, asked.by)
    limits = _chosen(load, groups, most)
    levers, blind, after = load.levers, load.blind, load.watts(limits)
    chosen = [(levers[number], float(limits[number])) for group in groups for number in group]
    curves = {one.model: one.points for one in measured}
    caps = [_cap(one, cap, curves) for one, cap in chosen if cap < one.gpu.limit_watts]
    on = {one.gpu.model for one in levers}
    stuck = [one.gpu for one in levers if one.gpu.floor_watts is None]
    notices = [f"{name}: its draw is not known and counts as nothing here" for name in blind]
    if asked.by == "job" and any(one.gpu.job is None for one in levers):
        notices.append("who holds some of the GPUs is not known: they come last")
    if stuck:
        nodes = ", ".join(sorted({gpu.node for gpu in stuck})[:8])
        command = floor_command({gpu.model for gpu in stuck})
        notices.append(
            f"the lowest limit of the GPUs of {nodes} is not known: they are left as they are. {command} shows it there; write it as floor_watts"
        )
    if caps and any(cap.throughput_loss is None for cap in caps):
        notices.append("a throughput that is not known: no GPU of the model was busy and held by a limit near the cap")
    losses = [cap.throughput_loss for cap in caps]
    known = [loss for loss in losses if loss is not None]
    sigma = load.sigma(limits, drawn or {}, sigma_watts)
    left = asked.below_watts - after
    answer = CapPlan(
        circuit=asked.circuit,
        below_watts=asked.below_watts,
        by=asked.by,
        from_watts=round(before, 1),
        to_watts=round(after, 1),
        sigma_watts=round(sigma, 1),
        margin_watts=asked.margin_watts,
        met=None,
        with_margin=None if blind and left >= sigma else left >= sigma,
        over_watts=round(max(0.0, after - most), 1),
        caps=caps,
        throughput_loss=round(sum(known) / len(levers), 4) if len(known) == len(losses) and levers else None,
        throughput=[one for one in measured if one.model in on],
        commands=[f"{limit_command([cap.model], cap.to_watts, cap.index)} # {cap.node}" for cap in caps],
        notices=notices,
    )
    met, words = cap_verdict(answer, blind)
    return msgspec.structs.replace(answer, met=met, verdict=words)


class _Load:
    """Watts of a circuit by the limits of the GPUs below it: through the supplies of their nodes
    (`EfficiencyCurves`), and all that loses power on the way, as a plan has it."""

    def __init__(
        self,
        layout: SiteLayout,
        circuit: str,
        drawn: Mapping[str, float],
        gpus: Sequence[CappableGpu],
        lost: Sequence[str],
    ) -> None:
        self._topology = topology = build_topology(layout)
        self._state = state_after(build_graph(layout, topology), lost)
        self._local = topology.network.other_watts
        self._row = topology.network.names.index(circuit)
        part = slice(topology.starts[self._row], topology.starts[self._row + 1])
        below, shares = topology.below[1][part].tolist(), topology.below[2][part].tolist()
        names, machines = list(layout.machines), list(layout.machines.values())
        self.levers: list[_Lever] = []
        self.blind: list[str] = []
        """Nodes below the circuit of unknown draw."""
        listed: dict[str, list[CappableGpu]] = {}
        for gpu in gpus:
            listed.setdefault(gpu.node, []).append(gpu)
        found = [listed.get(machine.id) or _configured(machine) for machine in machines]
        rest = [
            _beside(machine, mine, drawn.get(machine.id)) if mine else math.nan
            for machine, mine in zip(machines, found, strict=True)
        ]
        limits = [sum(gpu.limit_watts for gpu in mine) for mine in found]
        self._machines = EfficiencyCurves(machines)
        # Of a node without GPUs that could be capped: what it says of itself, or draws.
        self._fixed = np.array(
            [
                math.nan if mine else max(machine.fixed_watts, drawn.get(machine.id, 0.0))
                for machine, mine in zip(machines, found, strict=True)
            ]
        )
        self._rest, self._others = np.array(rest), np.array(limits)
        number_of: list[int] = []
        for number, share in zip(below, shares, strict=True):
            machine, name = machines[number], names[number]
            if not found[number] and not machine.planned and name not in drawn:
                self.blind.append(name)
            spec = layout.site.nodes.get(name)
            priority = spec.priority if spec is not None else 0
            if share > 0:
                self.levers += [_Lever(gpu, share, priority) for gpu in found[number]]
                number_of += [number] * len(found[number])
        self._machine = np.array(number_of, dtype=np.int64)
        self.limits: Floats = np.array([one.gpu.limit_watts for one in self.levers])
        """In force, of the levers."""
        self._others = self._others - self._of_machines(self.limits)

    def _of_machines(self, caps: Floats) -> Floats:
        return np.bincount(self._machine, caps, len(self._rest)).astype(np.float64, copy=False)

    def machines(self, caps: Floats) -> Floats:
        """Return the watts at the wall of all nodes when the levers have these limits."""
        inside = self._rest + self._others + self._of_machines(caps)
        return np.where(np.isnan(inside), self._fixed, self._machines.wall(inside))

    def watts(self, caps: Floats) -> float:
        """Return the watts of the circuit when the levers have these limits."""
        wall = self._state.present_watts(self.machines(caps))
        return float(self._state.flow(wall, self._local).watts[self._row])

    def sigma(self, caps: Floats, drawn: Mapping[str, float], now: float | None) -> float:
        """Return one standard deviation of the watts with these limits: `now`, that of what is drawn now, and the
        model's of what each node may draw beside that. They add up, as what a model leaves out is the same
        everywhere."""
        part = slice(self._topology.starts[self._row], self._topology.starts[self._row + 1])
        below, shares = self._topology.below[1][part], self._topology.below[2][part]
        then = self.machines(caps)[below]
        mine, others = float((then * shares).sum()), float(self._topology.other_below[self._row])
        # More where another feed is off, or with losses on the way.
        factor = self.watts(caps) / (mine + others) if mine + others > 0 else 1.0
        if now is None:
            return _SIGMA * factor * mine
        before = np.array([drawn.get(self._topology.network.machines[m], 0.0) for m in below])
        return now + _SIGMA * factor * float((np.abs(then - before) * shares).sum())


def _configured(machine: Machine) -> list[CappableGpu]:
    """Return the GPUs that a node has by its configuration."""
    each = (part for part in machine.parts for _ in range(part.count))
    return [
        CappableGpu(machine.id, index, part.card.name, part.limit_watts, part.floor_watts, part.card.tdp_watts)
        for index, part in enumerate(each)
    ]


def _beside(machine: Machine, gpus: Sequence[CappableGpu], drawn: float | None) -> float:
    """Return what all but the GPUs of a node may draw inside the case; never less than it draws now."""
    limits = sum(gpu.limit_watts for gpu in gpus)
    # Of a node that is described by its watts those are what it draws with the limits in force.
    host = machine.host_watts or max(0.0, machine.dc(machine.fixed_watts) - limits)
    if drawn is None:
        return host
    now = [gpu.watts for gpu in gpus if gpu.watts is not None]
    return max(host, machine.dc(drawn) - (sum(now) if len(now) == len(gpus) else limits))


def _groups(levers: Sequence[_Lever], by: str) -> list[list[int]]:
    """Return the numbers of the GPUs in the order in which they are capped, those that get one ratio together."""
    found: dict[object, list[int]] = {}
    for number, one in enumerate(levers):
        key = {"priority": one.priority, "job": one.gpu.job}.get(by)
        found.setdefault(key, []).append(number)
    if by != "job":
        return [found[key] for key in sorted(found, key=lambda key: (key is not None, key))]

    def order(job: object) -> tuple[int, float, str]:
        drawn = sum(levers[n].share * (levers[n].gpu.watts or 0.0) for n in found[job])
        return (2 if job is None else 1 if job else 0), -drawn, str(job)

    return [found[job] for job in sorted(found, key=order)]


def _chosen(load: _Load, groups: Sequence[list[int]], most: float) -> Floats:
    """Return the cap of each GPU with which the circuit draws at most `most`: those of a group at one ratio of
    their default limits, one group after the other. At their floors where that is not enough."""
    caps = load.limits
    if load.watts(caps) <= most:
        return caps

    def at(group: Sequence[int], ratio: float, before: Floats) -> Floats:
        after = before.copy()
        after[group] = [load.levers[number].at(ratio) for number in group]
        return after

    def at_floors(count: int) -> Floats:
        """Return the caps with the first groups at their floors."""
        return at([number for group in groups[:count] for number in group], 0.0, caps)

    # The first group that need not go down to its floors.
    first = bisect_left(range(len(groups)), True, key=lambda k: load.watts(at_floors(k + 1)) <= most)
    caps = at_floors(first)
    if first == len(groups):
        return caps
    group = groups[first]
    step = bisect_right(range(_RATIOS + 1), False, key=lambda k: load.watts(at(group, k / _RATIOS, caps)) > most)
    return at(group, max(step - 1, 0) / _RATIOS, caps)


def _cap(lever: _Lever, cap: float, curves: Mapping[str, Sequence[ThroughputPoint]]) -> GpuCap:
    gpu = lever.gpu
    return GpuCap(
        node=gpu.node,
        index=gpu.index,
        model=gpu.model,
        from_watts=gpu.limit_watts,
        to_watts=cap,
        floor_watts=gpu.floor_watts,
        default_watts=gpu.default_watts,
        priority=lever.priority,
        job=gpu.job or "",
        watts_now=None if gpu.watts is None else round(gpu.watts, 1),
        throughput_loss=_loss(gpu, cap, curves.get(gpu.model, ())),
    )


def _loss(gpu: CappableGpu, cap: float, points: Sequence[ThroughputPoint]) -> float | None:
    """Return the part of its present throughput that a cap costs a GPU; None where it is not known."""
    if gpu.watts is None:
        return None
    if gpu.watts <= cap:
        return 0.0
    then = clock_at(points, cap)
    if then is None or not gpu.sm_clock_hertz:
        return None
    return round(min(1.0, max(0.0, 1.0 - then / gpu.sm_clock_hertz)), 4)
