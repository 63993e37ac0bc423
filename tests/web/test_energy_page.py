"""The page of energy and cost: the month's sentence, its days, and who used it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aggregator.http.config import HttpConfig
from aggregator.web.day_bars import day_bars
from present.fleet.bill_headline import DayEnergy
from tests.aggregator.http_client import door
from tests.web.busy_lab import busy_lab
from tests.web.test_pages import read


def test_a_day_of_which_nothing_is_known_is_hatched_and_never_a_bar_of_nothing() -> None:
    body = day_bars([None, DayEnergy(100.0, 0.0), DayEnergy(50.0, 25.0)], 30)
    shapes = re.findall(r'<rect class="(\w+)"[^>]*height="([\d.]+)%"', body)
    heights = [(kind, round(float(height))) for kind, height in shapes]
    assert heights == [("qx", 80), ("fill", 80), ("fill", 40), ("assumed", 20)]
    assert "up to 100 kWh, 1 day not known" in body
    places = [
        (float(x), float(width)) for x, width in re.findall(r'<rect class="\w+" x="([\d.]+)%" width="([\d.]+)%"', body)
    ]
    middles = [x + width / 2 for x, width in places]
    assert middles == pytest.approx([100 * day / 30 for day in (0.5, 1.5, 2.5, 2.5)], abs=0.02)
    named = {int(day): float(x) for x, day in re.findall(r'<text x="([\d.]+)%"[^>]*>(\d+)<', body)}
    assert named == pytest.approx({day: 100 * (day - 0.5) / 30 for day in (1, 5, 10, 15, 20, 25, 30)}, abs=0.02)
    lowest = re.findall(r'class="fill"[^>]*y="([\d.]+)%" height="([\d.]+)%"', body)
    first, second = (float(y) + float(height) for y, height in lowest)
    assert first == pytest.approx(second, abs=0.1), "both stand on one line"
    assert day_bars([None, None], 30) == ""


async def test_the_page_says_what_the_month_costs_and_who_used_it(tmp_path: Path) -> None:
    async with door(await busy_lab()) as client:
        page = await read(client, "/energy")
        assert re.search(r"2026-09: [\d.]+ kWh measured No price is set", page.text)
        assert re.search(r"Today [\d.]+ kWh no price is set", page.text)
        assert "20 days not known" in page.text
        assert re.search(r"ada [\d.]+ kWh [\d.]+ 67% [\d.]+ EUR", page.text)
        assert "; ~ is known in part" in page.text
        assert "jobs?user=ada&from=-30d" in page.links
    config = HttpConfig(listen="0.0.0.0:0", tokens_file=tmp_path / "t", anonymous_read=True)
    async with door(await busy_lab(), config) as client:
        hidden = await read(client, "/energy")
        assert "shown to callers with a token" in hidden.text
        assert not re.search(r"\b(ada|ann|grace)\b", hidden.text)
        assert re.search(r"\bada\b", (await read(client, "/energy", client.bearer)).text)
