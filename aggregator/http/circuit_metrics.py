"""Circuits, budgets, UPS and supplies for Prometheus: every quantity of every power snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from aggregator.electrical.service import ElectricalService
from api.power import SnapshotKind
from power.live import PowerSnapshots
from power.site.layout import SiteLayout
from power.snapshot.quantities import QUANTITIES
from power.snapshot.snapshot import PowerSnapshot, Quantity
from power.wiring import POLES
from telemetry.metric import Kind
from telemetry.runtime.isolation import Parts
from telemetry.wire.exposition import COUNTER, GAUGE, PREFIX, Family, Sample, labels

LABEL_OF = {
    SnapshotKind.CIRCUIT: "circuit",
    SnapshotKind.BUDGET: "budget",
    SnapshotKind.UPS: "ups",
    SnapshotKind.SUPPLY: "node",
}
_POLE = {f"circuit_{pole.lower()}_amps": pole for pole in POLES}
"""Quantities that are one metric with a label `pole`."""
POLE_AMPS = "circuit_pole_amps"


@lru_cache(maxsize=16)
def fragments(cluster: str, label: str, names: tuple[str, ...], pole: str | None) -> list[str]:
    """Return the labels of each row, made once as long as the names stay."""
    return [labels({"cluster": cluster, label: name, "pole": pole}) for name in names]


def snapshot_families(snapshots: PowerSnapshots, cluster: str) -> list[Family]:
    """Return a family for each quantity; what is not known is left out, and never is +Inf."""
    by_kind = {snapshot.kind: snapshot for snapshot in snapshots.all()}
    families = []
    poles: list[Sample] = []
    for quantity in QUANTITIES:
        snapshot = by_kind[quantity.snapshot_kind]
        pole = _POLE.get(quantity.name)
        samples = _samples(snapshot, quantity.name, cluster, pole)
        if pole is not None:
            poles += samples
        else:
            families.append(_family(quantity, samples))
    families.append(Family(PREFIX + POLE_AMPS, "Current of one pole.", GAUGE, poles))
    return families


def _samples(snapshot: PowerSnapshot, name: str, cluster: str, pole: str | None) -> list[Sample]:
    values = snapshot.columns.get(name)
    if values is None:
        return []
    its = fragments(cluster, LABEL_OF[snapshot.kind], snapshot.names, pole)
    return list(zip(its, values.tolist(), strict=True))


def _family(quantity: Quantity, samples: Sequence[Sample]) -> Family:
    counter = quantity.kind is Kind.COUNTER
    text = quantity.help
    if quantity.states:
        text += f" ({', '.join(f'{number} {word}' for number, word in quantity.states)})"
    return Family(name_of(quantity), text, COUNTER if counter else GAUGE, samples)


def name_of(quantity: Quantity) -> str:
    """Return a quantity's name on the page."""
    return f"{PREFIX}{quantity.name}{'_total' if quantity.kind is Kind.COUNTER else ''}"


def facts_family(layout: SiteLayout, cluster: str, parts: Parts) -> Family:
    """Return the facts about each circuit: constant 1 with the facts as labels."""
    listed = list(layout.circuits.values())

    def facts(place: int) -> Sample:
        circuit = listed[place]
        return labels(
            {
                "cluster": cluster,
                "circuit": circuit.id,
                "kind": "panel" if circuit.is_panel else "circuit",
                "parent": circuit.parent,
                "wiring": circuit.wiring.value,
                "poles": "-".join(POLES[pole] for pole in circuit.poles),
                "curve": circuit.curve.value if circuit.curve is not None else None,
                "group": circuit.group,
                "source": circuit.source,
            }
        ), 1.0

    return Family(
        f"{PREFIX}circuit_info", "Facts about a circuit.", GAUGE, parts.each("circuit", layout.circuits, facts)
    )


def power_families(electrical: ElectricalService, cluster: str, now: float) -> list[Family]:
    """Return the metrics of the electrical side itself: configuration, cost, meters."""
    its = labels({"cluster": cluster})
    configuration, layout = electrical.configuration, electrical.site.layout
    problems = electrical.meter_problems(now)
    meters = [(labels({"cluster": cluster, "meter": m.name, "type": m.type}), m) for m in electrical.meters.states()]

    def one(name: str, text: str, value: float | None) -> Family:
        samples = [] if value is None else [(its, float(value))]
        return Family(f"{PREFIX}power_{name}", text, GAUGE, samples)

    def each(name: str, text: str, kind: str, samples: list[Sample]) -> Family:
        return Family(f"{PREFIX}power_meter_{name}", text, kind, samples)

    return [
        one("configuration_ok", "0 while a newer configuration is refused and the one before stays in force.",
            float(configuration.error is None)),
        one("configuration_version", "Counts up with every configuration that was accepted.",
            configuration.version),
        one("configuration_timestamp_seconds", "When the configuration in force was loaded.",
            configuration.loaded_at / 1e9),
        one("notices", "What is allowed in the configuration and probably wrong (E24).",
            0 if layout is None else len(layout.notices)),
        one("tick_seconds", "Duration of the last computation of all power snapshots.", electrical.seconds),
        one("nodes_unmapped", "Nodes that hang on no circuit of the configuration.",
            len(electrical.unmapped.names)),
        one("wall_watts", "Wall power of the nodes that report it, each by its best source.",
            electrical.energy.ledger.watts),
        one("wall_nodes", "Nodes that report their wall power.", electrical.energy.reporting_nodes),
        each("ok", "1 while a meter reports and is understood.", GAUGE,
             [(label, float(not problems.get(m.name))) for label, m in meters]),
        each("age_seconds", "Time since a meter's last reading.", GAUGE,
             [(label, now - m.last_seen) for label, m in meters if m.last_seen is not None]),
        each("readings_total", "Readings of a meter.", COUNTER,
             [(label, float(m.readings)) for label, m in meters]),
        each("malformed_total", "Messages and answers of a meter that could not be decoded.", COUNTER,
             [(label, float(m.malformed)) for label, m in meters]),
        each("errors_total", "Questions that a meter did not answer.", COUNTER,
             [(label, float(m.errors)) for label, m in meters]),
    ]  # fmt: skip


def circuit_families(electrical: ElectricalService, cluster: str, now: float, parts: Parts) -> list[Family]:
    """Return all families; without circuits only those of the electrical side itself."""
    families = power_families(electrical, cluster, now)
    layout, snapshots = electrical.site.layout, electrical.latest
    if layout is not None:
        families.append(facts_family(layout, cluster, parts))
    if snapshots is not None:
        families += snapshot_families(snapshots, cluster)
    return families
