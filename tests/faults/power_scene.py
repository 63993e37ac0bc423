"""Circuits under virtual time: the real aggregator, meters and nodes that a test moves, and the truth.

A fault is injected into what is said about a circuit, never into what it carries: `draws` is the truth, and a
second circuit with the same draw and without the fault is what heat is compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aggregator.config import StoreConfig
from alerts.rules.rule import FOLDER, Rule, read
from api.alerts import AlertState
from power.live import PowerSnapshots
from power.live.load_state import STATES
from power.meters.sample import MeterSample
from tests.faults.injection_scene import Scene


@dataclass
class PowerScene(Scene):
    """An aggregator with circuits, in seconds of virtual time."""

    names: list[str] = field(default_factory=list)
    """Nodes that report."""
    store: StoreConfig = field(default_factory=lambda: StoreConfig(write_seconds=60.0))
    """Settings of a store that is written seldom: the live state tells all that is asked here."""
    often: tuple[str, ...] = ()
    draws: dict[str, float] = field(default_factory=dict)
    """What each metered thing carries, watts, by its meter."""
    says: dict[str, float] = field(default_factory=dict)
    """What a meter says instead."""
    silent: set[str] = field(default_factory=set)
    """Meters that say nothing."""
    counters: set[str] = field(default_factory=set)
    """Meters with a counter of energy of their own."""
    joules: dict[str, float] = field(default_factory=dict)
    """Energy that has truly been drawn, by meter."""
    seen: dict[str, list[float]] = field(default_factory=dict)
    """Every energy that was exported, by circuit."""
    resolved: list[tuple[str, str]] = field(default_factory=list)
    """Rule and name of whatever ended."""
    _fired: set[tuple[str, str]] = field(default_factory=set)

    @staticmethod
    def load_rules(_: Sequence[Path]) -> tuple[Rule, ...]:
        """Return the electrical rules as they are shipped."""
        return tuple(read(FOLDER / "circuit_rules.toml"))

    async def second(self, parts: int = 1, seconds: float = 1.0) -> None:
        """Let the meters and nodes speak, and pass a second, or some."""
        self.seq += 1
        for name in self.names:
            self._frame(name)
        for name, watts in self.draws.items():
            self.joules[name] = self.joules.get(name, 0.0) + watts * seconds
            if name not in self.silent:
                told = self.says.get(name, watts)
                energy = self.joules[name] if name in self.counters else None
                record = self.aggregator.electrical.meters._hub._records[name]
                record.add([MeterSample(watts=told, energy_joules=energy)], self.clock.seconds)
        for _ in range(parts):
            self.clock.seconds += seconds / parts
            await self._quiet()
        self._watch()

    async def pass_seconds(self, seconds: float, every: float = 1.0) -> None:
        """Pass so many seconds; everything speaks `every` so often."""
        for _ in range(round(seconds / every)):
            await self.second(seconds=every)

    async def until(self, ready: Callable[[], bool], most: int = 600) -> None:
        """Pass seconds until a condition holds."""
        for _ in range(most // 2):
            if ready():
                return
            await self.second(seconds=2.0)
        raise AssertionError(f"not within {most} s; {sorted(self.firing())}")

    def _watch(self) -> None:
        now = self.firing()
        self.resolved += sorted(self._fired - now)
        self._fired = now
        for name in self.snapshots().circuit.names:
            self.seen.setdefault(name, []).append(self.value("energy_joules", name))

    def snapshots(self) -> PowerSnapshots:
        """Return the newest power snapshots."""
        found = self.aggregator.electrical.latest
        assert found is not None
        return found

    def value(self, quantity: str, name: str) -> float:
        """Return a quantity of a circuit."""
        circuit = self.snapshots().circuit
        return float(circuit.columns[f"circuit_{quantity}"][circuit.names.index(name)])

    def counted(self, name: str) -> float:
        """Return a circuit's energy with what is not exported yet, joules."""
        live = self.aggregator.electrical._live
        assert live is not None
        return live.counted_joules()[name]

    def state(self, name: str) -> str:
        """Return the state of a circuit's load."""
        return STATES[int(self.value("load_state", name))].value

    def facts(self, name: str) -> Mapping[str, str]:
        """Return the facts of a circuit."""
        circuit = self.snapshots().circuit
        return circuit.facts[circuit.names.index(name)]

    def firing(self) -> set[tuple[str, str]]:
        """Return rule and name of whatever fires."""
        parts = self.aggregator.alerting._parts
        assert parts is not None
        alerts = parts.pipeline.engine.alerts()
        return {(one.rule, one.name) for one in alerts if one.state is AlertState.FIRING}
