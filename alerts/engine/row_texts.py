"""The facts of a row of the fleet or of a power snapshot that alerts name: its place, its readings and its owner."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from alerts.engine.peer_groups import PeerGroups
from alerts.engine.row_index import RowIndex, SnapshotRowIndex, device_subject, snapshot_subject
from alerts.engine.rule_evaluator import UNKNOWN_TEXT, Reading, RuleEvaluator
from alerts.engine.shown_alerts import PlaceFacts
from alerts.engine.subjects import DeviceSubject, RowSubject, SnapshotSubject, SubjectInfo, gpu_and_place
from alerts.rules.names import format_value, home
from api.alerts import Subject
from api.power import SnapshotKind
from present.device.gpu import gpu_name
from present.units import kilowatt_hours
from telemetry.fleet import Fleet
from telemetry.metric import Table
from telemetry.wire.inventory import Inventory
from telemetry.wire.tables import KINDS

OwnerOf = Callable[[str, Inventory | None, Mapping[str, str], str], str]
"""Function that returns the owner of an alert by its rule, the inventory and labels of its node, and the name of its circuit,
budget, UPS or supply; "" where nobody is named."""


class RowTexts:
    """The facts of rows, as the rule engine sees them at a tick."""

    owner_of: OwnerOf | None = None
    """Lookup of the person or team that an alert belongs to; None where nobody is named. Assigned from outside."""

    def __init__(self, rows: RowIndex, snapshot_rows: SnapshotRowIndex, peers: PeerGroups) -> None:
        self.node_labels: Mapping[str, Mapping[str, str]] = {}
        """Labels of each node from elsewhere: `circuits`, `rack`, `job`. Assign another mapping when
        they change."""
        self.tariff: tuple[float, str] | None = None
        """Price of a kWh and its currency, where it is configured."""
        self.fleet = Fleet()
        """The fleet as the rules see it, at `now`; its owner assigns both at each tick."""
        self._row_index, self._snapshot_rows, self._peer_groups = rows, snapshot_rows, peers
        self.now = -np.inf

    def source(self, evaluator: RuleEvaluator, row: int) -> PlaceFacts | None:
        """Return what the alert of a row says about its place."""
        try:
            found = self.subject(evaluator.subject, row)
            return None if found is None else self.source_of(found)
        except Exception:  # noqa: BLE001 - it is reported where the alert is made
            return None

    def source_of(self, found: RowSubject) -> PlaceFacts:
        """Return what an alert of a subject says about its place."""
        if isinstance(found, DeviceSubject):
            node = found.inventory.node
            labels = self.labels_of_job(found)
            return PlaceFacts(found.inventory, self.node_labels.get(node), labels)
        return PlaceFacts(found.facts, None)

    def owner(self, evaluator: RuleEvaluator, found: RowSubject) -> str:
        """Return the person or team that an alert of a subject belongs to."""
        if self.owner_of is None:
            return ""
        if isinstance(found, DeviceSubject):
            node, name = self.fleet.nodes.get(found.inventory.node), ""
        else:
            node, name = self.fleet.nodes.get(found.facts.get("node", "")), found.name
        inventory = None if node is None else node.inventory
        labels = {} if inventory is None else self.node_labels.get(inventory.node, {})
        return self.owner_of(evaluator.rule.name, inventory, labels, name)

    def labels_of_job(self, found: RowSubject) -> Mapping[str, str]:
        """Return `job`, `user` and `account` of a subject."""
        if isinstance(found, SnapshotSubject):
            return {}
        gpu, _ = gpu_and_place(found)
        uuid = None if gpu is None else gpu.uuid
        if found.table is Table.PORT:  # the job of the GPU beside it
            uuid = found.inventory.ports[found.position].gpu
        return self._peer_groups.jobs.labels(found.inventory.node, uuid)

    def subject(self, subject: Subject, row: int) -> RowSubject | None:
        """Return what a row is a row of; None where it is free."""
        if subject.table is not None:
            return device_subject(self.fleet, subject.table, row)
        snapshot = self._snapshot_rows.known.get(SnapshotKind(subject))
        if snapshot is None or row >= len(snapshot.names):
            return None
        return snapshot_subject(snapshot, row)

    def reading(self, evaluator: RuleEvaluator, row: int) -> Reading:
        """Return a function that returns the present value of a metric of a row as text."""

        def reading(metric: str) -> str:
            if metric == "cost":
                return self._cost(evaluator.subject, row)
            subject, at = evaluator.subject, row
            if subject.snapshot_kind is not None:
                snapshot = self._snapshot_rows.known.get(subject.snapshot_kind)
                return format_value(metric, float("nan" if snapshot is None else snapshot.column(metric)[at]))
            while subject is not home(metric) and subject is not Subject.NODE:
                at = int(self._row_index.owner[Table(subject)][at])
                if at < 0:
                    return UNKNOWN_TEXT
                subject = Subject.GPU if subject is Subject.LINK else Subject.NODE
            return format_value(metric, self.fleet.reading(metric, at, self.now))

        return reading

    def _cost(self, subject: Subject, row: int) -> str:
        """Return a GPU's energy a day at its present draw, with its cost where a tariff is known."""
        if subject is not Subject.GPU:
            return UNKNOWN_TEXT
        kwh = self.fleet.reading("gpu_power_watts", row, self.now) * 24 / 1000
        if np.isnan(kwh):
            return UNKNOWN_TEXT
        if self.tariff is None:
            return f"{kilowatt_hours(kwh, exact=True)} a day"
        price, currency = self.tariff
        return f"{kilowatt_hours(kwh, exact=True)} or {kwh * price:.2f} {currency} a day"

    def bare_info(self, subject: Subject, row: int) -> SubjectInfo:
        """Return the names of a row's subject, without the functions that have just failed: an alert
        keeps its key with and without its texts."""
        if subject.table is None:
            name = self._snapshot_rows.known[SnapshotKind(subject)].names[row]
            monitor = subject is Subject.MONITOR
            holder, device = name.split("/", 1) if monitor else (str(subject), name)
            shown = Subject.NODE if monitor else subject
            return SubjectInfo(shown, holder, device, "", name, f"{subject} {name}", None, {}, {})
        fleet = self.fleet
        if subject is Subject.NODE:
            node = (fleet.devices[Table.NODE][row] or ("",))[0]
            return SubjectInfo(subject, node, "node", node, "", node, None, {}, {})
        if subject is Subject.GPU and (gpu := fleet.gpus[row]) is not None:
            node, where = gpu[0], gpu_name(gpu[0], gpu[1].index)
            return SubjectInfo(subject, node, gpu[1].uuid, node, "", where, gpu[1], {}, {})
        if subject is Subject.LINK and (link := fleet.devices[Table.LINK][row]) is not None:
            node, device = link[0], f"{link[1].gpu}/{link[1].number}"
            return SubjectInfo(subject, node, device, node, "", f"{node} {device}", None, {}, {})
        if subject is Subject.INSTANCE and (part := fleet.devices[Table.INSTANCE][row]) is not None:
            node, where = part[0], f"{part[0]} MIG {part[1].name}"
            return SubjectInfo(subject, node, part[1].uuid, node, "", where, None, {}, {})
        if (other := fleet.devices[subject.table][row]) is not None:
            node, kind = other[0], KINDS[subject.table]
            where = f"{node} {kind.noun} {other[1].name}"
            return SubjectInfo(subject, node, kind.key(other[1]), node, "", where, None, {}, {})
        raise KeyError(row)
