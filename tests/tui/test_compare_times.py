"""Now against then: what time was meant, what differs, and that what was is asked of the store."""

from __future__ import annotations

import pytest

from api.device import GpuPageReply
from api.fleet import NodeReply
from telemetry.devices import Gpu
from tests.tui.cluster import Cluster, until
from tests.tui.test_app import press_until, shown
from tests.tui.test_lines import line_text, state
from tui.screens.compare import _GPU_ROWS
from tui.screens.compare_times import Comparison, comparison_lines, parse_time
from tui.state import readings

NOON = 1_785_585_600 * 10**9
"""2026-08-01 12:00 UTC."""
SECOND = 10**9


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("10m", 600),
        ("-2h", 7200),
        ("1.5 h ago", 5400),
        ("90 s", 90),
        ("11:50", 600),
        ("11:50:30Z", 570),
        ("9:00", 10_800),
        ("12:01", 86_400 - 60),
        ("2026-07-31 12:00", 86_400),
        ("2026-08-01T11:59:00Z", 60),
    ],
)
def test_a_time_is_what_was_meant(text: str, ago: int) -> None:
    assert parse_time(text, NOON, utc=True) == NOON - ago * SECOND


@pytest.mark.parametrize("text", ["", "soon", "25:00", "2026-08-02 12:00", "0m", "99999999999d", "12"])
def test_what_is_no_time_or_not_past_is_refused(text: str) -> None:
    assert parse_time(text, NOON, utc=True) is None


def test_a_subject_is_read_back_whatever_the_name() -> None:
    then = Comparison(NOON, "node", "a node with blanks/and more")
    assert Comparison.read(str(then)) == then
    assert Comparison.read("tray") is None
    assert then.page(then=True) == "api/v1/nodes/a%20node%20with%20blanks%2Fand%20more?at=1785585600"


def page(**read: float) -> GpuPageReply:
    """A page with these readings."""
    return GpuPageReply(at=0, node=NodeReply("n1", "online"), gpu=Gpu(uuid="G", index=0, name="H100"), readings=read)


def test_a_difference_is_shown_in_its_unit_and_as_a_share() -> None:
    then = Comparison(NOON - 600 * SECOND, "gpu", "G")
    now = page(
        gpu_power_watts=650.0,
        gpu_utilization_ratio=0.62,
        gpu_temperature_celsius=60.0,
        gpu_ecc_volatile_corrected_total=3.0,
    )
    was = page(
        gpu_power_watts=500.0,
        gpu_utilization_ratio=0.98,
        gpu_temperature_celsius=60.2,
        gpu_ecc_volatile_corrected_total=0.0,
    )
    shown_ = state().with_doc(then.page(then=False), now, 1.0).with_doc(then.page(then=True), was, 1.0)
    lines = [line_text(line) for line in comparison_lines(shown_, then, _GPU_ROWS, [], 900, 100, 30, utc=True)]
    cells = {line[:15].strip(): line[15:].split("  ") for line in lines}
    measured_watts = {name: [cell.strip() for cell in row if cell.strip()] for name, row in cells.items()}
    assert lines[0].split()[:3] == ["now", "then", "11:50:00Z"]
    assert measured_watts["power"] == ["650 W", "500 W", "+150 W (+30%)"]
    assert measured_watts["utilisation"] == ["62%", "98%", "-36 points"]
    assert measured_watts["temperature"] == ["60 °C", "60 °C", "="]
    assert measured_watts["ECC corrected"] == ["3", "0", "+3"]
    assert measured_watts["SM clock"] == ["—", "—", "—"]


def test_what_is_not_stored_says_why() -> None:
    then = Comparison(NOON, "gpu", "G")
    lines = [line_text(line) for line in comparison_lines(state(), then, _GPU_ROWS, [], 900, 100, 30, utc=True)]
    assert lines[1:3] == ["now: loading …", "then: loading …"]


async def test_a_gpu_is_compared_with_itself_at_a_typed_time() -> None:
    cluster = Cluster(nodes=1, gpus=2)
    uuid = "GPU-dgx-00-0"
    for _ in range(120):
        await cluster.beat()
    cluster.wrong[uuid] = {readings.POWER: 123.0}
    async with shown(cluster, (120, 40)) as (pilot, app):
        await press_until(pilot, "3", holds=lambda text: "1 of 2" in text and "123/700" in text)
        await press_until(pilot, "v", holds=lambda text: "Now against then" in text)
        await press_until(pilot, *["backspace"] * 3, *"soon", "enter", holds=lambda t: "is not a past time" in t)
        await press_until(
            pilot,
            *["backspace"] * 4,
            *"60s",
            "enter",
            holds=lambda t: "difference" in t and "650 W" in t and "123 W" in t,
        )
        text = await until(pilot, lambda text: "-527 W (-81%)" in text)
        assert "dgx-00/gpu0 now and then" in text.splitlines()[0]
        assert "to now" in text
        assert text.count("Power W") == 2
        await press_until(pilot, "escape", holds=lambda text: "1 of 2" in text)
        assert app.view.NAME == "gpus"


async def test_the_time_that_the_bar_shows_is_the_one_it_is_compared_with() -> None:
    cluster = Cluster(nodes=1, gpus=2)
    for _ in range(90):
        await cluster.beat()
    cluster.wrong["GPU-dgx-00-0"] = {readings.POWER: 123.0}
    async with shown(cluster, (120, 40)) as (pilot, app):
        await press_until(pilot, "3", holds=lambda text: "123/700" in text)
        await press_until(pilot, "t", "left_curly_bracket", holds=lambda t: "REPLAY" in t and "650/700" in t)
        await press_until(pilot, "v", holds=lambda text: "-527 W (-81%)" in text)
        then = app.view.then  # type: ignore[attr-defined]
        assert then.at == app.context.shown.at
        assert then.name == "GPU-dgx-00-0"
        await press_until(pilot, "L", holds=lambda text: "● LIVE" in text and "difference" in text)


async def test_two_beside_each_other_stay_two() -> None:
    async with shown(Cluster(nodes=2, gpus=1), (120, 40)) as (pilot, _):
        await press_until(pilot, "2", "c", "down", "c", "C", holds=lambda t: "wall power" in t)
        text = await until(pilot, lambda text: "dgx-00" in text and "dgx-01" in text)
        assert "difference" not in text
