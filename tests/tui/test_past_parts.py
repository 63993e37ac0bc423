"""The parts of the past: what stood then, and what is asked for. Pure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from api.alerts import Alert, Incident, IncidentNote
from api.columns import ColumnRows, HistoryReply, PackedFrame, PackedFramesReply
from api.device import GpuPageReply
from api.fleet import ClusterTrends
from api.power import CircuitHistoryReply, CircuitsReply
from telemetry.metric import Table
from tests.tui.test_recent_frames import frame
from tui.feed.wants import ALWAYS, DocumentRequest
from tui.past.frame_cache import HEARD, MOST_BYTES, CachedFrame, FrameCache, frames_of
from tui.past.queries import SECOND, then, window
from tui.past.state_at import incident_then, state_then
from tui.state.circuit_loads import joined
from tui.state.dashboard_state import DashboardState
from tui.state.documents import CIRCUITS, Doc
from tui.state.gpus import Gpus
from tui.state.readings import POWER, WALL

NOW = 1_795_284_130 * SECOND  # 2026-11-21T18:02:10Z


def alert(key: str, since: int, changed: int, state: str) -> Alert:
    """An alert of some seconds."""
    return Alert(key, "hot", state, "page", "n1", since=since * SECOND, changed=changed * SECOND)


INCIDENT = Incident(
    key="hot",
    severity="page",
    title="it is hot",
    began=100 * SECOND,
    ended=300 * SECOND,
    alerts=[alert("a", 90, 250, "resolved"), alert("b", 150, 300, "resolved")],
    firing=0,
    total=2,
    acknowledged=IncidentNote(who="ann", at=200 * SECOND),
)


@pytest.mark.parametrize(
    ("second", "states", "firing", "taken"),
    [
        (99, None, 0, False),
        (100, ["firing"], 1, False),
        (199, ["firing", "firing"], 2, False),
        (220, ["firing", "firing"], 2, True),
        (260, ["resolved", "firing"], 1, True),
        (300, None, 0, False),
    ],
)
def test_an_incident_stands_as_it_stood(second: int, states: list[str] | None, firing: int, taken: bool) -> None:
    found = incident_then(INCIDENT, second * SECOND)
    if states is None:
        assert found is None
        return
    assert found is not None
    assert [one.state for one in found.alerts] == states
    assert (found.firing, found.ended, found.acknowledged is not None) == (firing, None, taken)


def test_an_alert_that_fires_today_was_pending_before() -> None:
    today = Incident(
        key="x",
        severity="page",
        title="x",
        began=100 * SECOND,
        alerts=[alert("a", 50, 100, "firing"), alert("b", 110, 140, "firing")],
        firing=30,
        total=30,
    )
    found = incident_then(today, 120 * SECOND)
    assert found is not None
    assert [one.state for one in found.alerts] == ["firing", "pending"]
    assert found.firing == 29  # of the many that are not listed nothing else is known


ROWS = ColumnRows(["n1", "n1", "n2"], [0, 1, 0], ["A", "B", "C"], ["H100\x1b[31m"] * 3, [True] * 3)


def packed(at: int, watts: list[float], gaps: dict[str, dict[str, str]]) -> PackedFrame:
    """A frame of three GPUs."""
    return PackedFrame(at * SECOND, 0, {POWER: np.array(watts, "<f4").tobytes()}, gaps)


def frames(*found: PackedFrame) -> list[CachedFrame]:
    """Made of answers, with node n1 heard of and n2 silent."""
    nodes = PackedFramesReply(
        "c",
        Table.NODE,
        1.0,
        2,
        ColumnRows(["n1", "n2"]),
        [
            PackedFrame(
                each.at,
                1,
                {WALL: np.array([1234.5, np.nan], "<f4").tobytes(), HEARD: np.array([2, np.nan], "<f4").tobytes()},
                {WALL: {"*": "stale"}, HEARD: {"*": "stale"}},
            )
            for each in found
        ],
    )
    return frames_of(PackedFramesReply("c", Table.GPU, 1.0, 3, ROWS, list(found)), nodes, Gpus())


def test_how_it_changes_now_is_not_said_of_the_past() -> None:
    newest, (one,) = frame(1000), frames(packed(50, [100.5, 1.0, 2.0], {}))
    assert newest.status is not None
    told = replace(newest, status=structs.replace(newest.status, trends=ClusterTrends()))
    then_ = state_then(told, one, [INCIDENT], {})
    assert then_.status is not None
    assert then_.status.trends is None


def test_a_state_is_made_of_a_frame() -> None:
    """What came later is no row; what is silent is a gap; names can do no harm."""
    nan = float("nan")
    (one,) = frames(packed(50, [100.5, nan, nan], {POWER: {"*": "not_read", "1": "unknown"}}))
    state = state_then(frame(1000), one, [INCIDENT], {})
    assert state.gpus.who.uuid == ["A", "B"]
    assert state.gpus.value(POWER, 0) == 100.5
    assert state.gpus.gap(POWER, 1) == "unknown"
    assert "\x1b" not in state.gpus.who.name[0]
    assert [(line.node, line.state) for line in state.nodes] == [("n1", "online")]
    assert dict(state.wall) == {"n1": 1234.5}
    assert state.status is not None
    assert (state.status.gpus, state.status.summary.gpu_power_watts) == (2, 100.5)
    assert state.incidents == ()
    (two,) = frames(packed(150, [1.0, 2.0, nan], {POWER: {"*": "stale"}}))
    state = state_then(frame(1000), two, [INCIDENT], {})
    assert state.gpus.who.uuid == ["A", "B", "C"]
    assert [(line.node, line.state) for line in state.nodes] == [("n1", "online"), ("n2", "stale")]
    assert [one.title for one in state.incidents] == ["it is hot"]
    assert {one.key for one in state.alerts} == {"a", "b"}


def test_the_cache_holds_frames_by_slot_and_drops_the_farthest(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = FrameCache()
    cache.set_step(5 * SECOND)
    found = frames(*(packed(at, [1.0, 2.0, 3.0], {}) for at in range(0, 50, 5)))
    size = len(found[0].columns)
    monkeypatch.setattr("tui.past.frame_cache.MOST_BYTES", 4 * size)
    cache.add(found, shown=45 * SECOND)
    assert [slot in cache for slot in range(10)] == [False] * 6 + [True] * 4
    assert cache.find(47 * SECOND) is found[9]
    assert cache.find(12 * SECOND) is None
    cache.set_step(SECOND)
    assert cache.find(45 * SECOND) is None
    assert size < MOST_BYTES


def test_questions_about_the_past_name_the_instant() -> None:
    """A page and a chart of then stand for those of now; what has no past is not asked for."""
    at = NOW - 600 * SECOND + 250_000_000
    page = then(DocumentRequest("api/v1/gpus/GPU-1", GpuPageReply, 1.0), at, NOW)
    assert page is not None
    assert page.path == "api/v1/gpus/GPU-1?at=1795283530.25"
    assert page.stands_for == "api/v1/gpus/GPU-1"
    path = "api/v1/history?gpu=GPU-1&metric=gpu_power_watts&from=-900s"
    chart = then(DocumentRequest(path, HistoryReply, 2.0), at, NOW)
    assert chart is not None
    start, end = window(900, at, NOW)
    assert chart.path.endswith(f"&from={start // SECOND}&to={end // SECOND}")
    assert chart.stands_for == path
    assert start < at < end <= NOW
    circuits = then(next(ask for ask in ALWAYS if ask.kind is CircuitsReply), at, NOW)
    assert circuits is not None
    assert circuits.whole is not None
    assert circuits.path.startswith("api/v1/circuits?columns=")
    assert circuits.path.endswith("&at=1795283530")
    assert then(DocumentRequest("api/v1/report?days=30", CircuitsReply, 1.0), at, NOW) is None
    events = then(DocumentRequest("api/v1/events?from=-24h&limit=60", GpuPageReply, 5.0), at, NOW)
    assert events is not None
    assert events.path == "api/v1/events?from=1795197180&to=1795283580&limit=60"
    assert at < 1795283580 * SECOND < at + 60 * SECOND
    for fixed in (
        "api/v1/silences",
        "api/v1/incidents/x/timeline",
        "api/v1/gpus/GPU-1?at=17",
        "api/v1/history?gpu=GPU-1&from=17&to=18",
    ):
        asked = then(DocumentRequest(fixed, GpuPageReply, 1.0), at, NOW)
        assert asked is not None
        assert asked.path == asked.stands_for == fixed


def test_the_window_of_a_chart_moves_by_quarters() -> None:
    windows = {window(900, NOW - seconds * SECOND, NOW) for seconds in range(2000, 3000)}
    assert len(windows) <= 6
    assert window(900, NOW, NOW)[1] == NOW


def test_a_circuits_history_joins_stored_and_seen_loads() -> None:
    """At one distance, so that nothing looks like a gap; alone where it fills the picture."""
    own = (np.arange(1000, 1060) * SECOND, np.full(60, 7.0))
    stored = CircuitHistoryReply(at=[second * SECOND for second in range(0, 2000, 10)], values=[1.0] * 200)
    at, watts = joined(own, stored, 1059 * SECOND, 900)
    assert (np.diff(at) == 10 * SECOND).all()
    assert watts.tolist() == [1.0] * 100 + [7.0] * 6
    assert joined(own, stored, 1059 * SECOND, 30) is own
    assert joined(own, None, 1059 * SECOND, 900) is own
    empty = (np.empty(0), np.empty(0))
    at, _ = joined(empty, stored, 505 * SECOND, 900)
    assert (at[0], at[-1]) == (0, 500 * SECOND)


def test_a_past_state_without_a_status_has_none() -> None:
    (one,) = frames(packed(50, [1.0, 2.0, 3.0], {}))
    assert state_then(DashboardState(), one, [], {}).status is None
    assert state_then(DashboardState(), one, [], {}).incidents_unknown == ""
    assert state_then(DashboardState(), one, None, {}).incidents_unknown == "loading …"


def test_circuits_of_which_nothing_is_stored_are_not_called_unconfigured() -> None:
    (one,) = frames(packed(50, [100.5, 1.0, 2.0], {}))
    listed = {CIRCUITS: Doc(CircuitsReply(at=0, circuits=[]), 0.0)}
    newest = frame(1000)
    assert newest.circuits
    assert "nothing of them is stored" in state_then(newest, one, [], listed).circuits_unknown
    assert state_then(DashboardState(), one, [], listed).circuits_unknown == "", "there are none to this day"
