"""The last hour of the cluster in memory: figures, their changes, and gaps that no line crosses."""

from __future__ import annotations

import re

from aggregator.http.summary import Summarizer
from aggregator.web.overview_tiles import overview_tiles
from aggregator.web.recent import SECONDS, ClusterSample, RecentCluster
from present.fleet.headline import Heard
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
    assert recent.spark(lambda one: one.gpu_watts) == "", "one sample is no line"
    recent.samples += [ClusterSample(found.at + 50.0, gpu_watts=1.0)]
    assert recent.spark(lambda one: one.gpu_watts) == "", "nor are fifty seconds"
    recent.samples.pop()
    assert recent.change(lambda one: one.gpu_watts) is None


async def test_a_line_stops_where_nothing_was_read_or_sampled() -> None:
    recent = RecentCluster(await lab(), Summarizer())
    at = [0.0, 10.0, 20.0, 30.0, 600.0, 610.0]
    for moment, watts in zip(at, [100.0, 120.0, None, 140.0, 150.0, 160.0], strict=True):
        recent.samples.append(ClusterSample(moment, wall_watts=watts))
    drawn = recent.spark(lambda one: one.wall_watts)
    (way,) = re.findall(r'd="([^"]+)"', drawn)
    assert [part.count("L") for part in way.split("M")[1:]] == [1, 0, 1]
    assert "the last 10 min" in drawn
    assert recent.change(lambda one: one.wall_watts) == (60.0, 610.0)
    recent.samples.append(ClusterSample(620.0))
    assert recent.change(lambda one: one.wall_watts) is None, "the newest does not know it"
    assert recent.spark(lambda one: one.use) == "", "what was never known is no line"


async def test_an_hour_is_kept() -> None:
    recent = RecentCluster(await lab(), Summarizer())
    for place in range(1000):
        recent.samples.append(ClusterSample(place * SECONDS, wall_watts=1.0))
    assert recent.samples[-1].at - recent.samples[0].at == 3600.0


async def test_tiles_say_how_power_has_changed() -> None:
    view = await lab()
    summarizer = Summarizer()
    recent, summary = RecentCluster(view, summarizer), summarizer.summary(view.fleet, view.now())
    heard = Heard(nodes=2, silent=0, gpus=4, unread=0)
    assert "spark" not in "".join(overview_tiles(view, recent, summary, heard, None))
    recent.samples += [ClusterSample(0.0, 9000.0), ClusterSample(1190.0, 9100.0), ClusterSample(1200.0, 10_200.0)]  # fmt: skip
    shown = "".join(overview_tiles(view, recent, summary, heard, None))
    assert "+1.2 kW in 20 min" in shown
    assert shown.count('class="spark"') == 1, "what was not sampled has no line"
