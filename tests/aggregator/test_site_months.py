"""The months of a site without its meters and circuits: when they are written, and what is remembered of those that ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator.electrical.month_files import FOLDER
from aggregator.electrical.site_loader import load_site
from aggregator.electrical.site_months import SiteMonths
from power.report.months import STEP, month_named
from tests.aggregator.test_electrical import BILLED

CONTRACT: dict[str, Any] = {**BILLED, "bill": {"demand_charge": 10.0, "ratchet": 0.8, "ratchet_months": 3}}


def months_of(folder: Path, tree: dict[str, Any] = CONTRACT) -> SiteMonths:
    return SiteMonths(folder, load_site("power", tree))


def draw(months: SiteMonths, name: str, watts: float) -> float:
    """Have the office draw that for the first two hours of a month; return when these are over."""
    zone = months.ledger.zone
    start = month_named(name, zone).start
    for number in range(8):
        end = start + STEP * (number + 1)
        profile = months.ledger.at(end - 1)
        rows = profile.rows(["office"], end - STEP)
        profile.add(rows, end, STEP, np.array([watts * STEP]), np.array([True]), np.array([np.nan]))
    return end


def test_a_month_is_written_once_in_an_interval_and_at_the_end(tmp_path: Path) -> None:
    months = months_of(tmp_path)
    wall = draw(months, "2026-08", 5000.0)
    due = months.due(wall)
    assert [each.profile.month.name for each in due] == ["2026-08"]
    assert months.write(due)
    months.written(wall, due)
    assert months.due(wall + 1) == []
    assert len(months.due(wall + 1, always=True)) == 1
    assert len(months.due(wall + STEP)) == 1


def test_of_a_month_that_ended_its_demand_is_left_once_it_is_on_disk(tmp_path: Path) -> None:
    """While the disk refuses it, it stays and is due."""
    months = months_of(tmp_path)
    draw(months, "2026-08", 5000.0)
    wall = draw(months, "2026-09", 1000.0)
    (tmp_path / FOLDER).write_text("no folder")
    due = months.due(wall)
    assert not months.write(due)
    assert [each.profile.month.name for each in months.due(wall)] == ["2026-08", "2026-09"]
    assert months.ledger.past_peaks == {}
    (tmp_path / FOLDER).unlink()
    due = months.due(wall)
    assert months.write(due)
    months.written(wall, due)
    assert months.ledger.past_peaks == {"2026-08": pytest.approx(5000)}
    assert months.ledger.finished == []


def test_another_process_goes_on_with_the_month_and_knows_the_demands_before(tmp_path: Path) -> None:
    months = months_of(tmp_path)
    draw(months, "2026-08", 5000.0)
    wall = draw(months, "2026-09", 1000.0)
    due = months.due(wall)
    assert months.write(due)
    again = months_of(tmp_path)
    again.load(wall, {})
    assert again.ledger.past_peaks == {"2026-08": pytest.approx(5000)}
    assert again.ledger.profile is not None
    assert again.ledger.profile.series("joules").sum() == pytest.approx(8 * STEP * 1000)


async def test_other_terms_read_the_demands_again(tmp_path: Path) -> None:
    months = months_of(tmp_path, {**CONTRACT, "bill": {"demand_charge": 10.0}})
    draw(months, "2026-08", 5000.0)
    wall = draw(months, "2026-09", 1000.0)
    assert months.write(months.due(wall))
    again = months_of(tmp_path, {key: CONTRACT[key] for key in CONTRACT.keys() - {"bill"}})
    again.load(wall, {})
    assert again.ledger.past_peaks == {}
    await again.renew_peaks(wall)
    assert again.ledger.past_peaks == {}, "the terms are those of before"
    again.follow(load_site("power", CONTRACT))
    await again.renew_peaks(wall)
    assert again.ledger.past_peaks == {"2026-08": pytest.approx(5000)}
