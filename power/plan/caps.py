"""Caps of single GPUs that hold a circuit below a power, and the throughput that they cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from api.power import CapPlan, CapRequest, GpuCap, ModelThroughput, ThroughputPoint
from power.devices.catalogue import limit_command
from power.network.contingency import Contingencies
from power.network.topology import build_topology
from power.plan.throughput import clock_at
from power.site.config import PowerConfig
from power.site.layout import SiteLayout, lay_out
from power.site.machine import Machine
from present.units import quoted
from telemetry.errors import ConfigError, did_you_mean

_HALVINGS = 60


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
    """A GPU with the watts on the circuit that a watt of it causes."""

    gpu: CappableGpu
    weight: float
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
    where: str, site: PowerConfig, asked: CapRequest, drawn: Mapping[str, float] | None = None,
    gpus: Sequence[CappableGpu] = (), measured: Sequence[ModelThroughput] = (),
) -> CapPlan:  # fmt: skip
    """Return caps with which a circuit's power commitment is below `asked.below_watts`. Nothing is applied.

    `drawn`: watts of nodes now; `gpus`: those of running nodes, else a node has what its configuration
    says. Raises `ConfigError` for a circuit that does not exist.
    """
    if not (math.isfinite(asked.below_watts) and asked.below_watts > 0):
        raise ConfigError(
            "--below", f"{quoted(asked.below_watts, 'W')} is no power", "Write --below 40kW."
        )
    layout = lay_out(where, site)
    if asked.circuit not in layout.circuits:
        cure = did_you_mean(asked.circuit, layout.circuits) or f"Known: {', '.join(list(layout.circuits)[:20])}."  # fmt: skip
        raise ConfigError("--circuit", f"there is no {asked.circuit!r}", cure)
    if asked.by == "job" and all(gpu.job is None for gpu in gpus):
        raise ConfigError("--by", "who holds which GPU is not known", "Ask with --http a running cluster whose nodes report their jobs.")  # fmt: skip
    levers, blind, before = _levers(layout, asked.circuit, drawn or {}, gpus)
    chosen = _chosen(_groups(levers, asked.by), before - asked.below_watts)
    after = float(before - sum(one.weight * (one.gpu.limit_watts - cap) for one, cap in chosen))
    curves = {one.model: one.points for one in measured}
    caps = [_cap(one, cap, curves) for one, cap in chosen if cap < one.gpu.limit_watts]
    on = {one.gpu.model for one in levers}
    stuck = sorted({one.gpu.node for one in levers if one.gpu.floor_watts is None})
    notices = [f"{name}: its draw is not known and counts as nothing here" for name in blind]
    if asked.by == "job" and any(one.gpu.job is None for one in levers):
        notices.append("who holds some of the GPUs is not known: they come last")
    if stuck:
        notices.append(f"the lowest limit of the GPUs of {', '.join(stuck[:8])} is not known: they are left as they are")  # fmt: skip
    if caps and any(cap.throughput_loss is None for cap in caps):
        notices.append(
            "a throughput that is not known: no GPU of the model was busy and held by a limit near the cap"
        )
    losses = [cap.throughput_loss for cap in caps]
    known = [loss for loss in losses if loss is not None]
    return CapPlan(
        circuit=asked.circuit, below_watts=asked.below_watts, by=asked.by,
        from_watts=round(before, 1), to_watts=round(after, 1),
        met=None if blind else after <= asked.below_watts + 1e-6,
        over_watts=round(max(0.0, after - asked.below_watts), 1),
        caps=caps,
        throughput_loss=round(sum(known) / len(levers), 4) if len(known) == len(losses) and levers else None,
        throughput=[one for one in measured if one.model in on],
        commands=[f"{limit_command([cap.model], cap.to_watts, cap.index)} # {cap.node}" for cap in caps],
        notices=notices,
    )  # fmt: skip


def _levers(
    layout: SiteLayout, circuit: str, drawn: Mapping[str, float], gpus: Sequence[CappableGpu]
) -> tuple[list[_Lever], list[str], float]:
    """Return the GPUs below a circuit, nodes of unknown draw, and the circuit's watts at the limits in force."""
    topology = build_topology(layout)
    row = topology.network.names.index(circuit)
    part = slice(topology.starts[row], topology.starts[row + 1])
    below, shares = topology.below[1][part].tolist(), topology.below[2][part].tolist()
    listed: dict[str, list[CappableGpu]] = {}
    for gpu in gpus:
        listed.setdefault(gpu.node, []).append(gpu)
    names = list(layout.machines)
    watts, blind = np.zeros(len(names)), []
    mine: dict[int, list[CappableGpu]] = {}
    for number, (name, machine) in enumerate(layout.machines.items()):
        found = listed.get(name)
        if found is None:
            found = [
                CappableGpu(name, index, part.card.name, part.limit_watts, part.floor_watts, part.card.tdp_watts)
                for index, part in enumerate(part for part in machine.parts for _ in range(part.count))
            ]  # fmt: skip
        mine[number] = found
        watts[number] = _at_limits(machine, found, drawn.get(name))
        if not machine.known and name not in drawn and number in below:
            blind.append(name)
    contingencies = Contingencies(layout, topology)
    total = float(contingencies.flow(watts, topology.network.other_watts).watts[row])
    plain = sum(watts[m] * share for m, share in zip(below, shares, strict=True)) + float(topology.other_below[row])  # fmt: skip
    factor = total / plain if plain > 0 else 1.0
    levers = []
    for number, share in zip(below, shares, strict=True):
        machine = layout.machines[names[number]]
        spec = layout.site.nodes.get(names[number])
        priority = spec.priority if spec is not None else 0
        levers += [
            _Lever(gpu, factor * share * machine.watts_per_gpu_watt, priority)
            for gpu in mine[number] if share > 0 and machine.known
        ]  # fmt: skip
    return levers, blind, total


def _at_limits(machine: Machine, gpus: Sequence[CappableGpu], drawn: float | None) -> float:
    """Return what a node may draw at the wall with the limits in force; never less than it draws now with
    its GPUs below them."""
    if not machine.known:
        return drawn or 0.0
    per_watt = machine.watts_per_gpu_watt
    limits = per_watt * sum(gpu.limit_watts for gpu in gpus)
    if drawn is None:
        return machine.fixed_watts + limits
    now = [gpu.watts for gpu in gpus if gpu.watts is not None]
    if len(now) < len(gpus):
        return max(machine.fixed_watts + limits, drawn)
    return max(machine.fixed_watts, drawn - per_watt * sum(now)) + limits


def _groups(levers: Sequence[_Lever], by: str) -> list[list[_Lever]]:
    """Return the GPUs in the order in which they are capped, those that get one ratio together."""
    found: dict[object, list[_Lever]] = {}
    for one in levers:
        key = {"priority": one.priority, "job": one.gpu.job}.get(by)
        found.setdefault(key, []).append(one)
    if by != "job":
        return [found[key] for key in sorted(found, key=lambda key: (key is not None, key))]

    def order(job: object) -> tuple[int, float, str]:
        drawn = sum(one.weight * (one.gpu.watts or 0.0) for one in found[job])
        return (2 if job is None else 1 if job else 0), -drawn, str(job)

    return [found[job] for job in sorted(found, key=order)]


def _chosen(groups: Sequence[list[_Lever]], over: float) -> list[tuple[_Lever, float]]:
    """Return the cap of each GPU: those of a group at one ratio of their default limits, one group after the other."""
    found: list[tuple[_Lever, float]] = []
    for group in groups:
        ratio = _ratio(group, over) if over > 0 else math.inf
        caps = [(one, one.at(ratio) if over > 0 else one.gpu.limit_watts) for one in group]
        over -= sum(one.weight * (one.gpu.limit_watts - cap) for one, cap in caps)
        found += caps
    return found


def _ratio(group: Sequence[_Lever], over: float) -> float:
    """Return the highest ratio of the default limits that saves `over` watts; 0 where none does."""

    def saved(ratio: float) -> float:
        return sum(one.weight * (one.gpu.limit_watts - one.at(ratio)) for one in group)

    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if saved(middle) >= over:
            low = middle
        else:
            high = middle
    return low


def _cap(lever: _Lever, cap: float, curves: Mapping[str, Sequence[ThroughputPoint]]) -> GpuCap:
    gpu = lever.gpu
    return GpuCap(
        node=gpu.node, index=gpu.index, model=gpu.model, from_watts=gpu.limit_watts, to_watts=cap,
        floor_watts=gpu.floor_watts, default_watts=gpu.default_watts, priority=lever.priority,
        job=gpu.job or "",
        watts_now=None if gpu.watts is None else round(gpu.watts, 1),
        throughput_loss=_loss(gpu, cap, curves.get(gpu.model, ())),
    )  # fmt: skip


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
