"""The lines around the views, in every state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len

from api.alerts import Alert, Incident, IncidentNote, IncidentsReply
from api.errors import ErrorDetail
from api.fleet import AggregatorRow, FleetSummary, ModelSummary, NodeReply, StatusReply
from api.power import CircuitsReply, CircuitState, RowsReply, RowState, TripSeconds
from api.report import Report, Upkeep
from present.circuit.figures import tree
from tui.feed.connection import Connection, ConnectionState
from tui.frame.header import header
from tui.frame.lines import band, nothing_yet, tiny
from tui.keys import KEYS, READ_ONLY, footer, help_lines
from tui.kit.theme import Line as Drawn
from tui.state.circuits import Now, countdown, members, worst_line
from tui.state.dashboard_state import DashboardState
from tui.state.documents import BUDGETS, CIRCUITS, INCIDENTS, TODAY
from tui.state.incidents import alert_lines
from tui.state.row_status import RowStatus
from tui.tables.gpu_table import gpu_listing
from tui.time.screen_time import ScreenTime, countdown_now

LIVE = Connection(ConnectionState.LIVE, 90.0)
LOST = Connection(ConnectionState.LOST, 97.0, "refused", 104.0)
NOW = ScreenTime(100.0)
SECOND = 10**9


def line_text(pieces: Drawn) -> str:
    """Pieces as text."""
    return "".join(text for text, _ in pieces)


def incidents(count: int, severity: str = "page", **more: Any) -> list[Incident]:
    """Some that began 34 s ago."""
    return [
        Incident(key=f"r/{n}", severity=severity, title=f"what\x1b {n}", began=66 * SECOND, firing=1, **more)
        for n in range(count)
    ]


def state(
    found: list[Incident] | None = None,
    circuits: list[CircuitState] | None = None,
    alerts: tuple[Alert, ...] = (),
    **summary: Any,
) -> DashboardState:
    """A cluster of 1,250 nodes, one of which is stale."""
    numbers: dict[str, Any] = {
        "nodes": {"online": 1249, "stale": 1, "offline": 0},
        "models": [ModelSummary(gpus={"reporting": 9968, "silent": 8, "lost": 24})],
        "gpu_power_watts": 6.93e6,
        "gpu_power_limit_watts": 8.4e6,
        "limited_power_watts": 6.93e6,
        "limited_power_limit_watts": 8.4e6,
        "temperature_max_celsius": 71.0,
        "utilization_mean_ratio": 0.93,
    }
    status = StatusReply(
        version="2026.1",
        cluster="site\x07-a",
        at=100 * SECOND,
        nodes=1250,
        gpus=10_000,
        newest_frame_age_seconds=0.3,
        summary=FleetSummary(**(numbers | summary)),
    )
    shown = DashboardState(status=status, status_came=100.0, at=100 * SECOND, ready=True, alerts=alerts)
    shown = shown.with_doc(INCIDENTS, IncidentsReply(0, found or []), 100.0)
    return shown.with_doc(CIRCUITS, CircuitsReply(at=100 * SECOND, circuits=circuits or []), 98.0)


HOT = CircuitState(
    "PDU-17B",
    watts=19_400.0,
    amps={"L1": 90.0, "L2": 88.0},
    rated_amps=80.0,
    continuous_amps=64.0,
    headroom_amps=-26.0,
    load_ratio=1.12,
    continuous_ratio=1.4,
    trip_known=True,
    trip_seconds=TripSeconds(earliest=251.0, nominal=400.0),
    nodes=["n1", "n2"],
    facts={"remedy": "cap each GPU at 540 W (nvidia-smi -pl 540)"},
)
NEAR = CircuitState("PDU-16A", load_ratio=0.96, forecast_rated_seconds=1260.0, nodes=["n3"])
CALM = CircuitState("PDU-1", load_ratio=0.5, nodes=["n4"])
FIRING = Alert("k", "r", "firing", "page", "", subject="circuit", name="PDU-17B")


def test_80_columns_say_the_essentials_in_two_lines() -> None:
    shown = state(incidents(2) + incidents(20, "ticket"), [CALM, NEAR, HOT], (FIRING,))
    first, second = (line_text(line) for line in header(shown, LIVE, NOW, 80))
    assert first == "● LIVE site?-a 0.3 s GPU 9,968/10,000 \u00d724 ▒8 6.93/8.40 MW 82% ▲2 !20 "
    assert second.startswith("PDU-17B 112% MAY TRIP IN 04:09  PDU-16A 96% trend: rating in 21 m")
    assert cell_len(second) <= 80


def test_a_cluster_that_lacks_a_member_is_not_live_and_says_who() -> None:
    shown = state()
    assert shown.status is not None
    lacking = replace(shown, status=msgspec.structs.replace(shown.status, missing=["agg-2: 25 groups"]))
    for width in (80, 160):
        first = line_text(header(lacking, LIVE, NOW, width)[0])
        assert first.startswith("▒ PARTIAL "), first
    assert "no answer: agg-2: 25 groups" in first


def test_the_aggregators_of_a_cluster_are_counted_and_the_one_that_leads_is_named() -> None:
    shown = state()
    answered = shown.status
    assert answered is not None
    rows = [AggregatorRow(name="agg-a", leads=True), AggregatorRow(name="agg-b")]

    def first(members: list[AggregatorRow]) -> str:
        status = msgspec.structs.replace(answered, members=members)
        return line_text(header(replace(shown, status=status), LIVE, NOW, 160)[0])

    assert "2/2 aggregators, agg-a leads" in first(rows)
    gone = msgspec.structs.replace(rows[0], silent_seconds=12.0, leads=False)
    assert "1/2 aggregators, none leads, silent: agg-a" in first([gone, rows[1]])
    assert "aggregators" not in first([])


def test_160_columns_say_more_and_what_of_how_many() -> None:
    lines = [line_text(line) for line in header(state(), LIVE, NOW, 160)]
    assert len(lines) == 3
    assert "1,249/1,250 nodes reporting" in lines[0]
    assert "GPUs 9,968/10,000 reporting  \u00d724 lost  ▒8 no data" in lines[1]
    assert "energy —" in lines[2]
    assert lines[2].endswith("no alerts")


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_no_line_of_the_header_is_too_wide(width: int) -> None:
    shown = state(incidents(1300), [replace_name(HOT, "x" * 300), NEAR])
    shown = replace(shown, nodes=(NodeReply("a", "online", source="simulated:x"),))
    for line in header(shown, LIVE, NOW, width)[: 1 if width >= 120 else 2]:
        assert cell_len(line_text(line)) <= max(width, 120)


def replace_name(circuit: CircuitState, name: str) -> CircuitState:
    """The same under another name."""
    return CircuitState(name, load_ratio=circuit.load_ratio, trip_seconds=circuit.trip_seconds)


def test_power_is_of_the_budget_where_there_is_one() -> None:
    row = RowState("site", {"watts": 6.0e6, "power_ratio": 0.75})
    shown = state().with_doc(BUDGETS, RowsReply(rows=[row]), 100.0)
    assert "Power 6.00/8.00 MW" in line_text(header(shown, LIVE, NOW, 160)[1])
    assert "GPU power 6.93/8.40 MW" in line_text(header(state(), LIVE, NOW, 160)[1])


def test_energy_and_cost_of_today_are_a_dash_until_they_are_known() -> None:
    shown = state().with_doc(TODAY, Report(currency="USD", measured=Upkeep(kwh=84_200.0, cost=7578.0)), 100.0)
    assert "84.2 MWh $7,578 today" in line_text(header(shown, LIVE, NOW, 80)[1])
    assert "energy —" in line_text(header(state(), LIVE, NOW, 80)[1])


@pytest.mark.parametrize(
    ("source", "badge"), [("simulated:two-dgx-h100", "SIMULATED"), ("recording:/tmp/a", "RECORDED"), ("nvml", "")]
)
def test_what_is_not_real_says_so(source: str, badge: str) -> None:
    shown = replace(state(), nodes=(NodeReply("a", "online", source="nvml"), NodeReply("b", "online", source=source)))
    assert shown.badge == badge
    assert badge in line_text(header(shown, LIVE, NOW, 160)[0])
    assert badge[:3] in line_text(header(shown, LIVE, NOW, 80)[0])


def test_a_paused_or_past_screen_is_labelled() -> None:
    assert line_text(header(state(), LIVE, ScreenTime(141.0, paused=100.0), 80)[0]).startswith(" PAUSED 00:41 ")
    assert line_text(header(state(), LIVE, ScreenTime(100.0, replay="11:58:40Z (-5m)"), 80)[0]).startswith(
        " REPLAY 11:58:40Z (-5m)"
    )


def test_live_means_fresh() -> None:
    """Not where nothing new has come of any node, nor where the aggregator has not been heard."""
    status = state().status
    assert status is not None
    slow = msgspec.structs.replace(status, newest_frame_age_seconds=12.0)
    gone = msgspec.structs.replace(slow, summary=FleetSummary(nodes={"online": 0, "stale": 1250}))
    assert line_text(header(state(), LIVE, ScreenTime(104.0), 80)[0]).startswith("● LIVE site?-a 4.3 s")
    assert line_text(header(state(), LIVE, ScreenTime(112.0), 80)[0]).startswith("▒ STALE site?-a 12 s")
    assert line_text(header(replace(state(), status=gone), LIVE, NOW, 80)[0]).startswith("▒ STALE")
    assert line_text(header(replace(state(), status=slow), LIVE, NOW, 80)[0]).startswith("● LIVE")
    assert line_text(header(state(), LIVE, ScreenTime(112.0, every=5.0), 80)[0]).startswith("● LIVE")
    assert line_text(tiny(state(), LIVE, ScreenTime(112.0), 40, 2)[0]) == "▒ STALE no alerts"


def test_the_connection_has_the_same_word_everywhere() -> None:
    for width in (80, 160):
        assert "○ DISCONNECTED site" in line_text(header(state(), LOST, NOW, width)[0])
    assert line_text(tiny(state(), LOST, NOW, 40, 2)[0]).startswith("○ DISCONNECTED ")
    assert line_text(header(DashboardState(), LOST, NOW, 80)[0]) == "○ DISCONNECTED"
    assert line_text(band(LOST, 100.0, state(), utc=True)).startswith(" DISCONNECTED 00:03")


def test_what_has_not_been_read_yet_is_loading_and_not_nothing() -> None:
    bare = replace(state(), docs={})
    for width in (80, 160):
        text = "\n".join(map(line_text, header(bare, LIVE, NOW, width)))
        assert "no alerts" not in text
        assert "…" in text
    assert line_text(alert_lines(bare, 80, 3)[0]) == "loading …"
    refused = bare.with_doc(INCIDENTS, ErrorDetail("incidents", "the journal is closed"), 100.0)
    assert "journal is closed" in line_text(alert_lines(refused, 80, 3)[0])
    assert line_text(header(refused, LIVE, NOW, 80)[0]).endswith("alerts —")
    for listing in (gpu_listing(bare, ""), gpu_listing(replace(bare, status=None), "")):
        words = line_text(listing.empty())
        assert words == ("loading …" if listing.source.state.status else "no GPU yet")


def test_without_a_status_the_header_says_what_the_line_does() -> None:
    assert (
        line_text(header(DashboardState(), Connection(ConnectionState.CONNECTING, 0.0), NOW, 80)[0]) == "○ CONNECTING"
    )


def test_countdowns_run_and_stop_with_the_data() -> None:
    shown = state(circuits=[HOT])
    assert countdown_now(shown, LIVE, NOW) == Now(2.0)
    for line, moment in ((LOST, NOW), (LIVE, ScreenTime(100.0, paused=99.0)), (LIVE, ScreenTime(125.0))):
        assert countdown_now(shown, line, moment) == Now(0.0, "00:01:40Z")
    assert countdown(HOT, RowStatus.CRIT, Now(51.0))[0] == "MAY TRIP IN 03:20"
    assert countdown(HOT, RowStatus.CRIT, Now(0.0, "00:01:40Z"))[0] == "MAY TRIP IN 04:11 as of 00:01:40Z"
    assert countdown(HOT, RowStatus.CRIT, Now(9999.0))[0] == "MAY TRIP NOW"
    assert countdown(NEAR, RowStatus.OK, Now(60.0))[0] == "trend: rating in 20 m"
    assert countdown(CALM, RowStatus.OK, Now(0.0))[0] == "—"


def test_what_needs_somebody_first_comes_first() -> None:
    shown = state(circuits=[CALM, NEAR, HOT])
    assert [circuit.id for circuit in shown.urgent] == ["PDU-17B", "PDU-16A", "PDU-1"]
    assert line_text(worst_line(state(circuits=[CALM]), Now(0.0), 2)).strip() == "most loaded circuit PDU-1 50%"
    assert line_text(worst_line(state(), Now(0.0), 2)).strip() == "no circuits configured"


def test_the_tree_folds_and_knows_who_hangs_where() -> None:
    panel = CircuitState("RPP", kind="panel")
    leaf = CircuitState("A", parent="RPP", nodes=["n1", "n2"])
    other = CircuitState("B", parent="gone", nodes=["n3"])
    rows = [(depth, circuit.id) for depth, circuit in tree([panel, leaf, other], frozenset())]
    assert rows == [(0, "RPP"), (1, "A"), (0, "B")]
    assert [c.id for _, c in tree([panel, leaf, other], frozenset({"RPP"}))] == ["RPP", "B"]
    assert members(state(circuits=[panel, leaf, other]), "RPP") == ["n1", "n2"]


def test_a_lost_connection_is_shown_in_a_band() -> None:
    text = line_text(band(LOST, 100.0, state(), utc=True))
    assert text == " DISCONNECTED 00:03, last data 00:01:40Z, trying again in 4.0 s, R now  refused"
    refused = Connection(ConnectionState.REFUSED, 97.0, "a token\x1b is needed")
    assert line_text(band(refused, 100.0, state(), utc=True)).startswith(" REFUSED 00:03")
    assert "\x1b" not in line_text(band(refused, 100.0, state(), utc=True))
    assert band(LIVE, 100.0, state(), utc=True) == []
    assert band(Connection(ConnectionState.CONNECTING, 99.0), 100.0, DashboardState(), utc=True) == []


def test_a_recording_that_is_being_read_is_not_disconnected() -> None:
    slow = Connection(ConnectionState.LOST, 88.0, "no answer within 10 s", 104.0, slow=True)
    assert line_text(band(slow, 100.0, state(), utc=True, recorded=True)) == " READING 00:12  the recording"
    assert line_text(band(slow, 100.0, state(), utc=True)).startswith(" DISCONNECTED 00:12")
    gone = band(LOST, 100.0, state(), utc=True, recorded=True)
    assert line_text(gone).startswith(" DISCONNECTED 00:03")
    for line in (slow, Connection(ConnectionState.CONNECTING, 88.0)):
        first = nothing_yet(DashboardState(), line, "http://127.0.0.1:9", 100.0, recorded=True)
        assert line_text((first or [[]])[0]) == "reading the recording (12 s) …"


def test_before_there_is_data_the_screen_says_what_to_do() -> None:
    refused = Connection(ConnectionState.REFUSED, 97.0, "a token is needed")
    url = "http://agg:9400"
    texts = {
        line.state: "\n".join(map(line_text, nothing_yet(DashboardState(), line, url, 100.0) or []))
        for line in (Connection(ConnectionState.CONNECTING, 97.0), LOST, refused)
    }
    assert texts[ConnectionState.CONNECTING] == "connecting to http://agg:9400 (3.0 s) …"
    assert "kilowatch aggregate" in texts[ConnectionState.LOST]
    assert "--token-file" in texts[ConnectionState.REFUSED]
    empty = "\n".join(map(line_text, nothing_yet(DashboardState(ready=True), LIVE, url, 100.0) or []))
    assert "no node yet" in empty
    assert "kilowatch collect" in empty
    then = "\n".join(map(line_text, nothing_yet(DashboardState(ready=True), LIVE, url, 100.0, past=True) or []))
    assert "no node was known at that time" in then
    assert "kilowatch collect" not in then
    shown = DashboardState(ready=True, nodes=(NodeReply("a", "online"),))
    assert nothing_yet(shown, LOST, url, 100.0) is None


def test_a_storm_is_the_worst_alerts_and_a_number() -> None:
    shown = state(incidents(200))
    lines = [line_text(line) for line in alert_lines(shown, 60, 8)]
    assert lines[0] == "▲ CRIT  34s what? 0"
    assert lines[-1] == "  and 193 more"
    assert len(lines) == 8
    short = [line_text(line) for line in alert_lines(shown, 60, 3)]
    assert short[-1] == "▲ CRIT  34s what? 2  and 197 more"


def test_an_acknowledged_incident_is_dimmed_and_shows_who() -> None:
    taken = incidents(1, acknowledged=IncidentNote(who="ops\x1b", at=90 * SECOND))
    line = alert_lines(state(taken), 60, 4)[0]
    assert line_text(line) == "▲ CRIT  34s what? 0 ✓ ops?"
    assert "crit" not in {tone for _, tone in line}


def test_without_alerts_the_last_resolved_one_is_shown() -> None:
    over = Alert("k", "r", "resolved", "page", "a", changed=66 * SECOND, summary="what?")
    assert line_text(alert_lines(state(alerts=(over,)), 80, 3)[0]) == "no alerts; 34 s ago resolved: what?"
    soon = Alert("k", "r", "pending", "page", "a")
    assert line_text(alert_lines(state(alerts=(soon,)), 80, 3)[0]) == "no alerts; 1 pending"
    assert line_text(alert_lines(state(), 80, 3)[0]) == "no alerts"


def test_a_tiny_terminal_shows_the_worst() -> None:
    shown = state(incidents(9), [HOT])
    rows = [line_text(line) for line in tiny(shown, LIVE, NOW, 40, 10)]
    assert rows[:3] == ["● LIVE site?-a", "▲9 ", "10,000 GPUs"]
    assert any("PDU-17B" in row for row in rows)
    assert len(rows) <= 10
    assert [line_text(line) for line in tiny(shown, LIVE, NOW, 40, 1)] == ["● LIVE ▲9 "]


@pytest.mark.parametrize("width", [20, 60, 80, 160])
def test_the_footer_fits_and_drops_keys_that_do_not(width: int) -> None:
    text = line_text(footer(KEYS, "GPU 1 of 16 ", width, write=False))
    assert cell_len(text) == width
    assert text.endswith("GPU 1 of 16 ")


def test_the_help_says_why_a_key_does_nothing() -> None:
    text = "\n".join(line_text(line) for line in help_lines(KEYS, 50, write=False))
    assert "Ack (read-only)" in text
    assert text.splitlines()[-1] == READ_ONLY
    assert READ_ONLY not in "\n".join(line_text(line) for line in help_lines(KEYS, 50, write=True))
    assert all(key.shown in text for key in KEYS)


def test_gpu_power_is_compared_with_limits_only_where_both_are_known() -> None:
    shown = state()
    status = shown.status
    assert status is not None
    few = msgspec.structs.replace(
        status.summary, gpu_power_limit_watts=50_400.0, limited_power_watts=40_320.0, limited_power_limit_watts=50_400.0
    )
    first = replace(shown, status=msgspec.structs.replace(status, summary=few))
    line = line_text(header(first, LIVE, NOW, 160)[1])
    assert "6.93 MW" in line
    assert "80%" in line
    assert "50.4" not in line
