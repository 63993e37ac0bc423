"""The journal's format on disk: one that an earlier version wrote is read, and written alike.

`journal_of_2026.json` has the rows that the version before the renaming of its classes wrote: a GPU
that was lost, with a link that it inhibits and an acknowledgement; a ticket that has resolved; a
silence; and a storm of three pages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from alerts.incidents.manager import IncidentManager
from alerts.incidents.policy import NotificationTimings
from alerts.journal.journal import Journal
from alerts.journal.schema import prepare
from tests.alerts.deliveries import NOON, POLICIES, SECOND

OLD: dict[str, Any] = json.loads((Path(__file__).parent / "journal_of_2026.json").read_text(encoding="utf-8"))
EXPECTED = OLD["expected"]
LATER = NOON + 85 * SECOND
BLOBS = {"record": 2, "life": 1, "channel": 1, "incident": 3, "notice": 2}
"""By table, the column of the encoded body."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file with the rows of the earlier version."""
    path = tmp_path / "alerts.sqlite"
    connection, _ = prepare(path)
    for table, rows in OLD["tables"].items():
        for row in rows:
            values = [one.encode() if number == BLOBS.get(table) else one for number, one in enumerate(row)]
            connection.execute(f"insert into {table} values ({','.join('?' * len(row))})", values)
    connection.close()
    return path


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    opened = Journal.open(path, LATER)
    yield opened
    opened.close()


@pytest.fixture
def manager(journal: Journal) -> IncidentManager:
    timings = NotificationTimings(storm_size=2)
    return IncidentManager(POLICIES, journal.memory, timings=timings, now=0.0, wall_ns=LATER)


def test_an_earlier_journal_is_read_without_loss(journal: Journal, manager: IncidentManager) -> None:
    assert journal.lost == ""
    assert [record.alert.rule for record in journal.alert_records] == ["gpu_lost"]
    assert journal.channel_state("am") == b"{}"
    waiting = [[one.id, one.channel, one.notice.id] for one in journal.waiting()]
    assert waiting == EXPECTED["waiting"]
    assert {one.key for one in journal.incidents()} == {
        *(key for key, *_ in EXPECTED["incidents"]),
        *EXPECTED["recent"],
    }
    found = [[one.key, one.firing, one.acknowledged and one.acknowledged.who] for one in manager.incidents()]
    assert found == [[key, firing, who] for key, _, firing, who in EXPECTED["incidents"]]
    assert [one.key for one in manager.recent()] == EXPECTED["recent"]
    assert [one.id for one in manager.silences()] == EXPECTED["silences"]


def test_alerts_of_an_earlier_journal_keep_their_state(manager: IncidentManager) -> None:
    states = set()
    for key, (state, by, incident) in EXPECTED["held"].items():
        status = manager.status(key)
        assert status is not None
        assert (status.state.value, status.by, status.incident) == (state, by, incident)
        states.add(state)
    assert states == {"told", "inhibited", "silenced", "storm"}


def test_records_are_stored_under_the_names_of_the_earlier_format(journal: Journal, manager: IncidentManager) -> None:
    """So that an earlier version can read them too."""
    memory, index = journal.memory, manager.index
    now = {
        **{("case", key): one for key, one in index.alerts.items()},
        **{("dossier", key): one for key, one in index.incidents.items()},
        **{("window", key): one for key, one in index.windows.items()},
        ("pulse", ""): memory.clock,
    }
    old = {(kind, key): json.loads(body) for kind, key, body in OLD["tables"]["record"]}
    for body in old.values():
        body.pop("members", None)  # was always empty on disk
        assert body.pop("cause_untold", False) is False  # of what was inhibited after its notice
    new = {key: _without_added(json.loads(msgspec.json.encode(one))) for key, one in now.items()}
    assert new == old


_ADDED = (
    ("ended", ""),
    ("act", ""),
    ("remediation", None),
    ("owner", ""),
    ("false", None),
    ("waits_again", False),
    ("counted_at", None),
    ("escalates_from", None),
    ("escalated", 0),
    ("faults", []),
    ("units", {}),
    ("shared", []),
)


def _without_added(body: Any) -> Any:
    """Return a record without the fields that came later, which an earlier version ignores: why an
    alert ended, what to do, its remediation and owner, its faults and their units, what a storm shares, and when an incident waited, counted and escalated."""
    match body:
        case dict():
            return {name: _without_added(one) for name, one in body.items() if (name, one) not in _ADDED}
        case list():
            return [_without_added(one) for one in body]
    return body
