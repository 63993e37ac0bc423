"""The index of incidents marks its own changes: an assignment to a record is enough."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from alerts.incidents.index import IncidentIndex
from alerts.incidents.state import IncidentMemory, IncidentRecord, RecordKey, SilenceWindow, StoredRecord, TrackedAlert
from api.alerts import NotificationState, Severity, Silence
from tests.alerts.deliveries import POLICIES, alert

HOT = alert("thermal", gpu="GPU-a")
TRACKED = TrackedAlert(order=1, alert=HOT)
INCIDENT = IncidentRecord(
    key="i",
    base="0/i",
    order=2,
    group={"rule": "thermal"},
    place=("gpu", "GPU-a"),
    severity=Severity.PAGE,
    began=0,
    changed=0,
    opened=0.0,
    joined=0.0,
    wait_until=0.0,
)
WINDOW = SilenceWindow(
    silence=Silence(id="w", matchers=(), who="ada", why="x", starts=0, ends=9), order=3, starts=0.0, ends=9.0
)
KEYS = {
    TrackedAlert: RecordKey("case", HOT.key),
    IncidentRecord: RecordKey("dossier", "i"),
    SilenceWindow: RecordKey("window", "w"),
}
FIELDS = [(type(record), name) for record in (TRACKED, INCIDENT, WINDOW) for name in record.__struct_fields__]


def filled() -> IncidentIndex:
    """Return an index with one record of each kind, and nothing changed."""
    memory = IncidentMemory(
        alerts=[msgspec.structs.replace(TRACKED)],
        incidents=[msgspec.structs.replace(INCIDENT)],
        windows=[msgspec.structs.replace(WINDOW)],
    )
    return IncidentIndex(POLICIES, memory)


def record_of(index: IncidentIndex, kind: type[StoredRecord]) -> Any:
    """Return the one record of a kind."""
    tables: tuple[typing.Mapping[str, StoredRecord], ...] = (index.alerts, index.incidents, index.windows)
    return next(one for table in tables for one in table.values() if isinstance(one, kind))


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=lambda one: getattr(one, "__name__", one))
def test_an_assignment_to_any_field_marks_its_record(kind: type[StoredRecord], name: str) -> None:
    index = filled()
    record = record_of(index, kind)
    assert index.changed_records() == {}
    setattr(record, name, getattr(record, name))
    assert index.changed_records() == {}  # the same value is no change
    setattr(record, name, "another")
    assert index.changed_records() == {KEYS[kind]: msgspec.json.encode(record)}
    index.clear_changes()
    assert index.changed_records() == {}


@pytest.mark.parametrize("kind", KEYS, ids=lambda one: one.__name__)
def test_no_field_can_change_without_an_assignment(kind: type[StoredRecord]) -> None:
    mutable = {list, set, dict}
    for name, hint in typing.get_type_hints(kind).items():
        assert typing.get_origin(hint) not in mutable, name
        assert hint not in mutable, name


def test_records_that_come_and_go_are_changes() -> None:
    index = filled()
    index.remove_alert(HOT.key)
    index.remove_window("w")
    index.remove_incident("i")
    assert index.changed_records() == dict.fromkeys(KEYS.values())
    index.clear_changes()
    index.add_window(msgspec.structs.replace(WINDOW))
    assert list(index.changed_records()) == [KEYS[SilenceWindow]]


def test_an_alert_that_joins_or_leaves_marks_its_incident() -> None:
    index = filled()
    tracked, record = index.alerts[HOT.key], index.incidents["i"]
    index.join(tracked, record)
    assert list(index.changed_incidents()) == ["i"]
    index.clear_changes()
    index.detach(tracked)
    assert list(index.changed_incidents()) == ["i"]
    assert index.changed_alerts() == (HOT.key,)
    assert [one.alert.key for one in index.drain_detached()] == [HOT.key]
    assert list(index.drain_detached()) == []


def test_a_storm_marks_its_incident_and_the_alerts_that_it_suppresses() -> None:
    index = filled()
    storm = msgspec.structs.replace(INCIDENT, key="s", base="0/s", storming=True)
    index.add_incident(storm)
    tracked, record = index.alerts[HOT.key], index.incidents["i"]
    index.join(tracked, record)
    changes: tuple[Callable[[], None], ...] = (
        lambda: index.join_storm(record, storm),
        lambda: index.leave_storm(record),
    )
    for change in changes:
        index.clear_changes()
        change()
        assert set(index.changed_incidents()) == {"i", "s"}
        assert index.changed_alerts() == (HOT.key,)


def test_a_state_of_an_alert_marks_it() -> None:
    index = filled()
    index.set_state(index.alerts[HOT.key], NotificationState.INHIBITED, "cause")
    assert index.changed_alerts() == (HOT.key,)
    assert list(index.effects["cause"]) == [HOT.key]
