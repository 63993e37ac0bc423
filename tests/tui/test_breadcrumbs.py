"""What does not fit gives way in order, and what is cut says so."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from api.alerts import Alert, Incident
from api.columns import HistoryReply
from api.report import Report, Upkeep
from telemetry.metric import Kind, Unit
from tests.tui.cluster import until
from tests.tui.test_app import staged
from tests.tui.test_lines import LIVE, NOW, SECOND, incidents, line_text, state
from tui.frame.header import header
from tui.frame.navigation import joined
from tui.kit.chart import Mark
from tui.kit.theme import MONO, Tones
from tui.screens.circuits import COLUMNS as CIRCUITS
from tui.screens.energy import energy_lines
from tui.screens.history import Plot, history_lines, rounded, scale_percent, scale_watts
from tui.screens.incident import incident_lines
from tui.screens.pools import COLUMNS as POOLS
from tui.state.documents import TODAY
from tui.state.gpus import GpuRows, Gpus, gpu_name
from tui.state.incidents import counts
from tui.tables.columns import share

PATH = ["Overview", "node-0003", "a-node-with-a-long-name \u203a gpu0"]


@pytest.mark.parametrize("width", range(60, 120))
def test_a_path_gives_way_and_the_counts_of_alerts_stay(width: int) -> None:
    shown = state(incidents(7) + incidents(13, "ticket"))
    [first, _] = header(shown, LIVE, NOW, width)
    for chips in ([], [(" /power>300 ", "chip")]):
        line = line_text(joined(first, len(counts(shown)), chips, PATH, width))
        assert "▲7 !13 " in line
        assert "● LIVE " in line
        assert "name \u203a gpu0" in line
        assert cell_len(line) == width


@pytest.mark.parametrize("width", [60, 80])
def test_counts_of_alerts_stay_where_the_header_alone_is_too_long(width: int) -> None:
    found = incidents(1234) + incidents(5678, "ticket")
    assert line_text(header(state(found), LIVE, NOW, width)[0]).endswith("▲1,234 !5,678 ")


def test_a_path_has_as_many_parts_as_there_is_room_for() -> None:
    first = [("● LIVE ", "good"), ("▲1", "crit")]
    path = ["Nodes", "node-1", "gpu0"]
    assert line_text(joined(first, 1, [], path, 40)).endswith("▲1" + " " * 9 + " Nodes \u203a node-1 \u203a gpu0")
    assert line_text(joined(first, 1, [], path, 26)).endswith("▲1    node-1 \u203a gpu0")
    assert line_text(joined(first, 1, [], path, 15)) == "● LIVE ▲1  gpu0"
    assert line_text(joined(first, 1, [], [], 12)) == "● LIVE ▲1   "


def test_a_gpu_is_called_by_its_node_while_its_page_is_not_here() -> None:
    gpus = Gpus(who=GpuRows(["rig"], [3], ["GPU-1f"], ["RTX"], [True]))
    assert gpu_name("GPU-1f", Gpus(), gpus) == "rig \u203a gpu3"
    assert gpu_name("GPU-1f", Gpus()) == "GPU"


def test_a_line_that_is_cut_ends_in_an_ellipsis() -> None:
    tones = Tones(MONO)
    assert tones.strip([("power ", "dim"), ("training", "")], 12).text == "power train…"
    assert tones.strip([("power ", "dim"), ("training", "")], 14).text == "power training"
    assert tones.strip([("power", "dim"), ("    ", "")], 7).text == "power  ", "blanks are no loss"
    assert tones.strip([("power", "dim")], 0).text == ""


def test_what_a_day_took_goes_on_in_the_next_line() -> None:
    energy = Upkeep(
        kwh=84_200.0, cost=7578.0, co2_kg=31_990.0, gpu_kwh=70_000.0, hours=24.0, unknown_hours=2.0, estimated_ratio=0.2
    )
    shown = state().with_doc(TODAY, Report(currency="USD", measured=energy), 100.0)
    lines = [line_text(line) for line in energy_lines(shown, 80, 30)]
    assert all(cell_len(line) <= 80 for line in lines)
    assert "over 24 h" in "\n".join(lines)
    assert "2 h not known  20% estimated" in "\n".join(lines)


def test_what_an_alert_says_is_broken_between_words_and_not_cut() -> None:
    words = "PDU-002A of node-0003 is at 121% of its breaker and is about to trip within minutes"
    alerts = [Alert(f"{n}", "r", "firing", "page", "node-0003", summary=words, since=SECOND) for n in range(9)]
    shown = state([Incident(key="k", severity="page", title="what", began=SECOND, firing=9, total=9, alerts=alerts)])
    lines = [line_text(line) for line in incident_lines(shown, "k", 60, 14, utc=True)]
    assert words in " ".join(" ".join(lines).split())
    assert all(cell_len(line) <= 60 for line in lines)
    assert len(lines) <= 14
    measured_watts = sum("PDU-002A" in line for line in lines)
    assert 1 <= measured_watts < 9
    assert lines[-1] == f"  and {9 - measured_watts} more"


def test_columns_of_the_tables_fit_80_cells() -> None:
    for columns in (CIRCUITS, POOLS):
        shares = share(columns, 80)
        assert sum(width for _, width in shares) + len(shares) - 1 == 80
        for column, width in shares:
            assert len(column.title) <= width
    titles = [column.title for column in CIRCUITS]
    assert titles.index("headroom") == titles.index("continuous") + 1
    assert "breaker" in titles


async def test_160_columns_say_what_is_wrong_in_full() -> None:
    async with staged((160, 50)) as (pilot, _app, _):
        await pilot.press("5")
        words = "the breaker of circuit PDU-002A is about to trip"
        text = await until(pilot, lambda text: words in text and "1 consequence inhibited" in text)
        rows = [line for line in text.splitlines() if "CRIT" in line[:12] and words in line[:72]]
        assert rows


async def test_circuits_open_on_the_most_urgent() -> None:
    async with staged((80, 24)) as (pilot, app, _):
        await pilot.press("4")
        await until(pilot, lambda text: "what next" in text and " of " in text)
        state_ = app.context.shown
        worst = max(state_.circuit_status.values())
        chosen = app.view.chosen()
        assert chosen is not None
        assert state_.circuit_status[chosen[1]] == worst
        await pilot.press("home", "1", "4")
        await pilot.pause()
        assert app.view.chosen() != chosen, "only the first time"


@pytest.mark.parametrize(
    ("value", "end"),
    [(770.0, 800.0), (6613.0, 8000.0), (311.0, 400.0), (1546.0, 1600.0), (1.03, 1.2), (100.0, 100.0), (500.0, 500.0), (0.3, 0.3), (98.0, 100.0)],
)  # fmt: skip
def test_a_scale_ends_at_a_round_value(value: float, end: float) -> None:
    assert rounded(value) == pytest.approx(end)


def test_percent_goes_beyond_100_only_where_values_do() -> None:
    def top(high: float, plot: Plot) -> str:
        found = HistoryReply(
            "d",
            "m",
            Unit.RATIO,
            Kind.GAUGE,
            1.0,
            0,
            4 * SECOND,
            [0, SECOND, 2 * SECOND],
            mean=[0.5, high, 0.5],
            low=[],
            high=[],
        )
        return line_text(history_lines(found, "", plot, "1 m", 60, 7, utc=True)[1]).split("┤")[0].strip()

    busy = Plot("Utilisation", "u", (0.0, 1.0), scale_percent, "")
    power = Plot("Power", "p", (0.0, 770.0), scale_watts, "", [Mark(700.0, "limit 700", "dim")])
    assert top(1.0, busy) == "100%"
    assert top(1.1, busy) == "120%"
    assert top(650.0, power) == "800"


def test_a_chart_says_which_windows_are_lost_and_which_are_means() -> None:
    """Readings that were shed under load are means until the nodes have sent them again."""
    minute = 60 * SECOND
    found = HistoryReply(
        "d",
        "m",
        Unit.RATIO,
        Kind.GAUGE,
        1.0,
        0,
        20 * minute,
        [0, SECOND],
        mean=[0.5, 0.5],
        low=[],
        high=[],
        incomplete=[(minute, 2 * minute)],
        provisional=[(2 * minute, 3 * minute), (5 * minute, 9 * minute)],
    )
    plot = Plot("Utilisation", "u", (0.0, 1.0), scale_percent, "")
    title = line_text(history_lines(found, "", plot, "20 min", 120, 7, utc=True)[0])
    assert "00:01-00:02 lost" in title
    assert "2 spans between 00:02 and 00:09 means of 10 s" in title
