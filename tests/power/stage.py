"""A site under simulated time: ticks of the live state, evaluated by the shipped electrical rules."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from alerts.engine.engine import RuleEngine
from alerts.engine.instant import hides
from alerts.rules.rule import FOLDER, Rule, read
from api.alerts import Alert, AlertState
from power.devices.wall_power import WallSource
from power.live import LivePower, PowerInputs, PowerSnapshots
from power.meters.reading import MeterReading
from power.site.decode import decode
from power.site.layout import lay_out
from telemetry.fleet import Fleet

RULES = read(FOLDER / "circuit_rules.toml")
LONG_STEP = 5.0
"""Seconds: an hour in steps of one takes half a minute of CPU."""
EPOCH = 1_750_000_000_000_000_000


def live_of(text: str) -> LivePower:
    """Return the live state of a site that is written as TOML."""
    return LivePower(lay_out("site.toml", decode("site.toml", tomllib.loads(text))), version=1)


class Stage:
    """One site; `play` lets time pass."""

    def __init__(
        self, text: str, *, limits: Mapping[str, float] | None = None, gpus: int = 8, rules: Sequence[Rule] = RULES
    ) -> None:
        """`limits`: sum of the enforced limits of each node's GPUs."""
        self.live = live_of(text)
        self.engine = RuleEngine(rules)
        self.now = 1000.0
        self.gpus = gpus
        self.limits = dict(limits or {})
        self.silent: dict[str, float] = {}
        """When each silent node was last heard."""
        self.snapshots: PowerSnapshots | None = None
        self.told: list[Alert] = []
        """All that began to fire or resolved."""
        self._fleet = Fleet()

    def wall(self) -> int:
        """Return the wall clock, ns."""
        return EPOCH + int(self.now * 1e9)

    def play(
        self,
        seconds: float,
        *,
        gpu: Mapping[str, float] | None = None,
        wall: Mapping[str, float] | None = None,
        meters: Iterable[MeterReading] = (),
        every: float | None = None,
        **known: object,
    ) -> PowerSnapshots:
        """Tick for `seconds`: nodes draw `gpu` watts in their GPUs, or `wall` by their own meter.

        `meters` speak at every tick: `every` second, or `LONG_STEP` where a minute or more passes. `known`: other
        fields of the tick.
        """
        if every is None:
            every = LONG_STEP if seconds >= 60 and seconds % LONG_STEP == 0 else 1.0
        machines = self.live.machines
        fixed = list(meters)
        for _ in range(round(seconds / every)):
            self.now += every
            tick = replace(
                PowerInputs.unknown(len(machines)),
                gpu_watts=_array(machines, gpu or {}),
                wall_watts=_array(machines, wall or {}),
                wall_age=np.array([0.0 if m in (wall or {}) else np.inf for m in machines]),
                gpu_limit_watts=_array(machines, self.limits),
                gpus=np.array([float(self.gpus) if m in self.limits else np.nan for m in machines]),
                silent_seconds=np.array([self.now - self.silent[m] if m in self.silent else 0.5 for m in machines]),
                readings=[_at(reading, self.now) for reading in fixed],
                **known,  # type: ignore[arg-type]  # a test's own fields
            )
            self.snapshots = self.live.tick(self.now, self.wall(), tick)
            self.told += self.engine.evaluate(self._fleet, self.now, self.wall(), snapshots=self.snapshots.all())
        assert self.snapshots is not None
        return self.snapshots

    def hush(self, *nodes: str) -> None:
        """Let nodes fall silent now."""
        for node in nodes:
            self.silent[node] = self.now

    def firing(self) -> set[tuple[str, str]]:
        """Return (rule, name) of all that fires."""
        return {(a.rule, a.name) for a in self.engine.alerts() if a.state is AlertState.FIRING}

    def ids(self, name: str) -> list[str]:
        """Return the ids of the rules that fire on one circuit, each once: without those that another one hides."""
        names = {a.rule for a in self.engine.alerts() if a.state is AlertState.FIRING and a.name == name}
        fire = [rule for rule in RULES if rule.name in names]
        return sorted({rule.id for rule in fire if not any(hides(cause, rule) for cause in fire)})

    def value(self, quantity: str, name: str) -> float:
        """Return one quantity of one row now."""
        assert self.snapshots is not None
        for snapshot in self.snapshots.all():
            if quantity in snapshot.columns and name in snapshot.names:
                return float(snapshot.columns[quantity][snapshot.names.index(name)])
        raise AssertionError(f"{quantity} of {name} is on no board")

    def facts(self, name: str) -> Mapping[str, str]:
        """Return the facts of one circuit now."""
        assert self.snapshots is not None
        return self.snapshots.circuit.facts[self.snapshots.circuit.names.index(name)]


def meter(circuit: str, **told: object) -> MeterReading:
    """Return a reading of a circuit's meter; `at` counts from when it speaks."""
    known: dict[str, object] = {
        "meter": f"m-{circuit}", "kind": "circuit", "target": circuit,
        "source": WallSource.CIRCUIT_METER, "at": 0.0, "period": 5.0,
    }  # fmt: skip
    return MeterReading(**known | told)  # type: ignore[arg-type]  # a test's own fields


def _at(reading: MeterReading, now: float) -> MeterReading:
    fields = {name: getattr(reading, name) for name in reading.__struct_fields__}
    return MeterReading(**fields | {"at": now + reading.at})


def _array(names: tuple[str, ...], values: Mapping[str, float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([values.get(name, np.nan) for name in names])
