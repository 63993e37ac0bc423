"""The strip of a job's GPU: what it did while the job held it, and hatched where that is not known."""

from __future__ import annotations

import re
from collections.abc import Sequence

from aggregator.web.load_chart import LoadSeries
from aggregator.web.use_strip import CELLS, use_strip

END = CELLS * 10


def cells(body: str) -> dict[str, int]:
    """Cells of a strip by colour; of `qx` percent of the width."""
    found = {
        word: sum(int(many) for many in re.findall(r"h(\d+)v", way))
        for word, way in re.findall(r'<path class="(q\d)" d="([^"]+)"', body)
    }
    hatched = re.findall(r'class="qx" x="[\d.]+%" width="([\d.]+)%"', body)
    return found | ({"qx": round(sum(map(float, hatched)))} if hatched else {})


def series(at: list[int], values: Sequence[float | None], step: int = 10) -> LoadSeries:
    """Readings in percent."""
    return LoadSeries(at, values, [None] * len(at), "%", step)


def test_dark_is_busy_and_neighbours_are_one_shape() -> None:
    at = list(range(0, END, 10))
    body = use_strip(series(at, [5.0] * 48 + [100.0] * 48), [(0, END)], 0, END)
    assert cells(body) == {"q0": 48, "q4": 48}
    assert re.findall(r'class="(q\d)" d="M(\d+) ', body) == [("q0", "0"), ("q4", "48")]
    assert body.count("<path") == 2
    assert body.count("M") == 2


def test_a_gap_is_hatched_and_a_time_of_another_job_is_empty() -> None:
    at = list(range(0, END // 2, 10))
    body = use_strip(series(at, [50.0] * 24 + [None] * 24), [(0, END // 4 * 3)], 0, END)
    assert cells(body) == {"q2": 24, "qx": 50}
    assert 'class="qx" x="25.00%"' in body


def test_a_bucket_that_is_longer_than_a_cell_fills_all_of_its_cells() -> None:
    body = use_strip(series([0, END // 2], [99.0, 99.0], END // 2), [(0, END)], 0, END)
    assert cells(body) == {"q4": CELLS}
