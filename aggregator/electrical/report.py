"""The report of a running cluster, from the fleet and the ledger."""

from __future__ import annotations

import math

import msgspec

from aggregator.electrical.service import ElectricalService
from api.report import Report
from power.live import PowerSnapshots
from power.report.cluster_parts import running_part
from power.report.energy_ledger import total
from power.report.measured import idle, measured, utilisation
from power.report.report import ReportPart, describe
from telemetry.fleet import Fleet
from telemetry.runtime.isolation import Parts


def running_report(electrical: ElectricalService, fleet: Fleet, days: int, parts: Parts) -> Report:
    """Return the report of the present nodes; energy and use are of the last `days` days.

    Sustained draw is the mean of that time, peak the highest second of it.
    """
    site = electrical.site.config
    place = site.site
    ledger = electrical.energy.ledger
    day = total(ledger.days[date] for date in sorted(ledger.days)[-days:])
    nodes = list(fleet.nodes.items())

    def part(place: int) -> ReportPart:
        name, node = nodes[place]
        return running_part(node.inventory, site.nodes.get(name))

    mean = day.joules / day.seconds if day.seconds else ledger.watts
    report = describe(
        parts.each("node", fleet.nodes, part),
        place,
        source="running",
        sustained=mean,
        peak=day.peak_watts or ledger.watts,
        committed=_committed(electrical.latest, electrical),
    )
    return msgspec.structs.replace(
        report, measured=measured(day, place), utilisation=utilisation(day), idle=idle(day, report, place)
    )


def _committed(snapshots: PowerSnapshots | None, electrical: ElectricalService) -> float | None:
    """Return the power commitment at the wall; None when some node is on no circuit."""
    layout = electrical.site.layout
    if snapshots is None or layout is None or electrical.unmapped.names:
        return None
    roots = [row for row, name in enumerate(snapshots.circuit.names) if layout.circuits[name].parent is None]
    watts = float(snapshots.circuit.column("circuit_committed_watts")[roots].sum())
    return watts if math.isfinite(watts) else None
