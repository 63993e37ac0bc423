"""The lines around the tables, in every state."""

from __future__ import annotations

import pytest

from tui.board import Board
from tui.client import Line, LineState
from tui.columns import Piece
from tui.lines import alert_lines, band, footer, header, nothing_yet, tiny
from tui.messages import Alert, Model, NodeLine, Status, Summary

LIVE = Line(LineState.LIVE, 90.0)
SECOND = 10**9


def said(pieces: list[Piece]) -> str:
    """Pieces as text."""
    return "".join(text for text, _ in pieces)


def board(**summary: object) -> Board:
    """A cluster of 1,250 nodes, one of which is stale."""
    numbers: dict[str, object] = {
        "nodes": {"online": 1249, "stale": 1, "offline": 0},
        "models": [Model({"reporting": 9992, "silent": 8, "lost": 0})],
        "gpu_power_watts": 6.93e6,
        "gpu_power_limit_watts": 8.4e6,
        "temperature_max_celsius": 71.0,
        "utilization_mean_ratio": 0.93,
    }
    status = Status(
        "2026.1", "site\x07-a", 100 * SECOND, 1250, 10_000, 0.3,
        Summary(**(numbers | summary)),  # type: ignore[arg-type]
    )  # fmt: skip
    return Board(status=status, status_came=100.0, at=100 * SECOND, ready=True)


def alerts(count: int, severity: str = "page", state: str = "firing") -> tuple[Alert, ...]:
    """Some alerts that began 34 s ago."""
    return tuple(
        Alert(f"r/{n}", "r", state, severity, "a", None, 66 * SECOND, 66 * SECOND, f"what\x1b {n}")
        for n in range(count)
    )


def test_the_header_says_who_how_fresh_and_of_how_many() -> None:
    first, second = (said(pieces) for pieces in header(board(), LIVE, 100.1, None))
    assert first.split("  ")[:4] == [
        "● LIVE site?-a", "data 0.4 s old", "nodes 1,249/1,250", "GPUs 9,992/10,000 reporting",
    ]  # fmt: skip
    assert second.startswith("power 6.93/8.40 MW  wall —  hottest 71 °C  util 93%")


def test_wall_power_says_how_many_nodes_it_is_of() -> None:
    some = header(board(wall_power_watts=5e6, wall_power_known=700), LIVE, 100.0, None)
    every = header(board(wall_power_watts=8e6, wall_power_known=1250), LIVE, 100.0, None)
    assert "wall 5.00 MW (700/1250 nodes)" in said(some[1])
    assert "wall 8.00 MW  " in said(every[1])


@pytest.mark.parametrize(
    ("source", "badge"),
    [("simulated:two-dgx-h100", "SIMULATED"), ("recording:/tmp/a", "RECORDED"), ("nvml", "")],
)
def test_what_is_not_real_says_so(source: str, badge: str) -> None:
    shown = Board(
        status=board().status, status_came=100.0,
        nodes=(NodeLine("a", "online", source="nvml"), NodeLine("b", "online", source=source)),
    )  # fmt: skip
    assert shown.badge == badge
    assert badge in said(header(shown, LIVE, 100.0, None)[0])


def test_a_paused_screen_says_for_how_long() -> None:
    assert said(header(board(), LIVE, 100.0, 59.0)[0]).startswith(" PAUSED 00:41 ")


def test_a_lost_line_says_how_old_the_data_is_and_when_it_tries_again() -> None:
    lost = Line(LineState.LOST, 58.0, "Connection refused", 104.0)
    assert said(band(lost, 100.0, 42.5)) == (
        " DISCONNECTED 00:42, last data 42 s ago; trying again in 4.0 s  Connection refused"
    )
    assert said(header(board(), lost, 100.0, None)[0]).startswith("○ LOST")
    assert band(LIVE, 100.0, 1.0) == []
    assert band(Line(LineState.CONNECTING, 99.0), 100.0, None) == []


def test_before_there_is_data_the_screen_says_what_to_do() -> None:
    lost = Line(LineState.LOST, 97.0, "refused", 104.0)
    refused = Line(LineState.REFUSED, 97.0, "a token is needed")
    url = "http://agg:9400"
    texts = {
        line.state: "\n".join(map(said, nothing_yet(Board(), line, url, 100.0) or []))
        for line in (Line(LineState.CONNECTING, 97.0), lost, refused)
    }
    assert texts[LineState.CONNECTING] == "connecting to http://agg:9400 (3.0 s) …"
    assert "kilowatch aggregate" in texts[LineState.LOST]
    assert "--token-file" in texts[LineState.REFUSED]
    empty = "\n".join(map(said, nothing_yet(Board(ready=True), LIVE, url, 100.0) or []))
    assert "no node yet" in empty
    assert "kilowatch collect" in empty


def test_a_screen_with_data_keeps_it_whatever_happens_to_the_line() -> None:
    shown = Board(ready=True, nodes=(NodeLine("a", "online"),))
    assert nothing_yet(shown, Line(LineState.LOST, 1.0), "http://a", 100.0) is None


def test_the_worst_alerts_are_shown_and_the_others_counted() -> None:
    shown = Board(alerts=alerts(200), at=100 * SECOND)
    lines = [said(pieces) for pieces in alert_lines(shown, 3)]
    assert lines == ["▲ PAGE     34 s  what? 0", "▲ PAGE     34 s  what? 1", "  and 198 more"]
    assert len(alert_lines(Board(alerts=alerts(3)), 3)) == 3


def test_alerts_without_a_page_have_their_own_marks() -> None:
    mixed = alerts(1, "ticket") + alerts(1, "info") + alerts(1, "page", "pending")
    marks = [said(pieces)[:9].rstrip() for pieces in alert_lines(Board(alerts=mixed), 4)]
    assert marks == ["! TICKET", "· INFO", "~ pending"]


def test_when_all_is_well_the_last_one_that_resolved_is_told() -> None:
    shown = Board(alerts=alerts(1, state="resolved"), at=100 * SECOND)
    assert said(alert_lines(shown, 3)[0]) == "no alerts; 34 s ago resolved: what? 0"
    assert said(alert_lines(Board(), 3)[0]) == "no alerts"


def test_a_tiny_terminal_still_tells_the_worst() -> None:
    shown = Board(status=board().status, alerts=alerts(9), at=100 * SECOND)
    rows = [said(pieces) for pieces in tiny(shown, LIVE, 100.0, 8)]
    assert rows[:3] == ["LIVE", "▲9 ", "10,000 GPUs"]
    assert len(rows) <= 8
    assert [said(pieces) for pieces in tiny(shown, LIVE, 100.0, 1)] == ["LIVE ▲9 "]


@pytest.mark.parametrize("width", [20, 60, 80, 160])
def test_the_footer_fits_and_drops_keys_that_do_not(width: int) -> None:
    keys = (("q", "Quit"), ("?", "Help"), ("/", "Filter"))
    text = said(footer(keys, "GPU 1 of 16 ", width))
    assert len(text) == width
    assert text.endswith("GPU 1 of 16 ")
    assert ("Filter" in text) == (width >= 60)
