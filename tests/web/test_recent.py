"""The last hour of the cluster in memory: figures, their changes, and gaps that no line crosses."""

from __future__ import annotations

import re

from aggregator.http.recent import SECONDS, SPAN, WINDOW, ClusterSample, RecentCluster
from aggregator.http.summary import Summarizer
from aggregator.web.overview_tiles import overview_tiles
from aggregator.web.spark import spark
from api.fleet import Trend, TrendGap
from present.fleet.headline import Heard
from tests.aggregator.http_client import door
from tests.aggregator.test_http_circuits import lab


async def test_a_sample_has_the_figures_of_the_cluster() -> None:
    view = await lab()
    recent = RecentCluster(view, Summarizer())
    recent.sample()
    (found,) = recent.samples
    assert found.wall_watts == view.electrical.energy.ledger.watts
    assert found.gpu_watts is not None
    assert found.gpu_watts > 1000
    snapshots = view.electrical.latest
    assert snapshots is not None
    assert found.nearest == max(snapshots.circuit.column("circuit_sustained_ratio").tolist())
    assert spark(recent.samples, lambda one: one.gpu_watts) == "", "one sample is no line"
    recent.samples += [ClusterSample(found.at + 50.0, gpu_watts=1.0)]
    assert spark(recent.samples, lambda one: one.gpu_watts) == "", "nor are fifty seconds"
    recent.samples.pop()
    assert recent.trends().gpu_power_watts == Trend(gap=TrendGap.SHORT)


async def test_a_line_stops_where_nothing_was_read_or_sampled() -> None:
    recent = RecentCluster(await lab(), Summarizer())
    at = [0.0, 10.0, 20.0, 30.0, 600.0, 610.0]
    for moment, watts in zip(at, [100.0, 120.0, None, 140.0, 150.0, 160.0], strict=True):
        recent.samples.append(ClusterSample(moment, wall_watts=watts))
    drawn = spark(recent.samples, lambda one: one.wall_watts)
    (way,) = re.findall(r'd="([^"]+)"', drawn)
    assert [part.count("L") for part in way.split("M")[1:]] == [1, 0, 1]
    assert "the last 10 min" in drawn
    assert spark(recent.samples, lambda one: one.use) == "", "what was never known is no line"


def sampled(recent: RecentCluster, *rows: tuple[float, float | None, int | None]) -> None:
    """Add samples of the power at the wall: time, watts, and of which nodes."""
    recent.samples += [ClusterSample(at, watts, wall_of=its) for at, watts, its in rows]


async def test_an_hour_is_compared_by_means_at_both_its_ends() -> None:
    """A job moves the power of a second by a third: that is no trend."""
    recent = RecentCluster(await lab(), Summarizer())
    for place in range(1000):
        swing = 3000.0 if place % 2 else -3000.0
        sampled(recent, (place * SECONDS, 9000.0 + place + swing, 1))
    assert recent.samples[-1].at - recent.samples[0].at == SPAN + WINDOW
    found = recent.trends().wall_watts
    assert found.seconds == SPAN
    assert found.now is not None
    assert found.before is not None
    assert abs(found.now - found.before - SPAN / SECONDS) < 200
    (way,) = re.findall(r'd="([^"]+)"', spark(recent.samples, lambda one: one.wall_watts))
    assert way.startswith("M0.0 "), "the line is of an hour"


async def test_only_sums_of_the_same_nodes_are_compared() -> None:
    """Half of the nodes fall silent: the cluster does not draw half as much."""
    recent = RecentCluster(await lab(), Summarizer())
    assert recent.trends().wall_watts == Trend(gap=TrendGap.SHORT)
    sampled(recent, (0.0, 9000.0, 2), (600.0, 9000.0, 2), (610.0, 4500.0, 1))
    assert recent.trends().wall_watts == Trend(gap=TrendGap.OTHERS)
    sampled(recent, (1000.0, 4600.0, 1))
    found = recent.trends().wall_watts
    assert (found.before, found.now) == (4500.0, 4600.0)
    sampled(recent, (1010.0, 9600.0, 2))
    found = recent.trends().wall_watts
    assert (found.before, found.now) == (9000.0, 9600.0)


async def test_what_is_known_in_part_or_not_at_all_has_no_trend() -> None:
    recent = RecentCluster(await lab(), Summarizer())
    sampled(recent, (0.0, 9000.0, 2), (600.0, 9000.0, None))
    assert recent.trends().wall_watts == Trend(gap=TrendGap.PARTIAL)
    sampled(recent, (610.0, None, 2))
    assert recent.trends().wall_watts == Trend(gap=TrendGap.UNKNOWN)
    sampled(recent, (700.0, 9000.0, 2))
    assert recent.trends().wall_watts.gap is None, "what was known in part is left out"


async def test_a_sample_is_of_the_nodes_that_are_heard() -> None:
    view = await lab()
    recent = RecentCluster(view, Summarizer())
    recent.sample()
    recent.sample()
    before, same = recent.samples
    assert before.wall_of is not None
    assert before.wall_of == same.wall_of
    assert before.gpus_of == same.gpus_of
    assert before.circuits_of == same.circuits_of
    view.monotonic += 600.0  # all are silent
    recent.sample()
    assert recent.samples[-1].gpu_watts is None
    assert recent.samples[-1].wall_of != before.wall_of
    assert recent.trends().gpu_power_watts == Trend(gap=TrendGap.UNKNOWN)


async def test_the_trends_are_in_the_status_and_on_the_first_page() -> None:
    async with door(await lab()) as client:
        _, found = await client.json("/api/v1/status")
        assert found["trends"]["wall_watts"]["gap"] == "short"
        status, body, _ = await client.text("/")
        assert status == 200
        assert "No trend yet: it needs two minutes of readings." in body


async def test_tiles_say_how_power_has_changed() -> None:
    view = await lab()
    summarizer = Summarizer()
    recent, summary = RecentCluster(view, summarizer), summarizer.summary(view.fleet, view.now())
    heard = Heard(nodes=2, silent=0, gpus=4, unread=0)
    assert "spark" not in "".join(overview_tiles(view, recent, summary, heard, None))
    sampled(recent, (0.0, 9000.0, 2), (1190.0, 10_200.0, 2), (1200.0, 10_200.0, 2))
    shown = "".join(overview_tiles(view, recent, summary, heard, None))
    assert "+1.2 kW in 15 min" in shown
    assert shown.count('class="spark"') == 1, "what was not sampled has no line"
