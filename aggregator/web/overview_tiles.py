"""The tiles of the overview: power, the nearest breaker, GPUs, what an hour costs, and how each has changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from aggregator.electrical.service import ElectricalService
from aggregator.http.recent import RecentCluster
from aggregator.register.node_register import drift
from aggregator.view import AggregatorView
from aggregator.web.bars import load_bar
from aggregator.web.circuit_list import ALERT_TONES, STATUS_WORDS
from aggregator.web.headline_part import tile
from aggregator.web.markup import fact, link, path, text
from aggregator.web.spark import spark
from api.fleet import FleetSummary, Trend
from api.power import CircuitState
from present.circuit.outlook import next_row
from present.circuit.rows import limits_row, load_row, share_row
from present.device.node import DRIFTS
from present.fleet.fitness import fitness_row
from present.fleet.headline import Heard
from present.fleet.trend import power_trend
from present.fleet.wall import WallSum, wall_row
from present.row import Tone
from present.units import at_least, money, percent, price, watts
from telemetry.fleet import Fleet
from telemetry.runtime.release import release
from telemetry.text import ABSENT, counted

_BESIDE = 12
"""Letters of what happens next that have room beside a label: with a second line the page below would move."""


def overview_tiles(
    view: AggregatorView,
    recent: RecentCluster,
    summary: FleetSummary,
    heard: Heard,
    nearest: tuple[CircuitState, int] | None,
) -> Iterator[str]:
    """Yield the tiles; what is not known yet has its place too, so that none moves when it is. `nearest`: the most
    urgent circuit, and how bad its worst alert is."""
    trends = recent.trends()
    wall = view.electrical.wall_sum(view.fleet, view.now())
    if wall.watts is None:
        yield tile("At the wall", "?", sub="known of no node", tone=Tone.STALE)
    else:
        its = wall_row(wall, heard.nodes, summary.gpu_power_watts)
        by = f"reported by {wall.nodes:,} of {counted(heard.nodes, 'node')}"
        aside = _change(trends.wall_watts)
        yield tile(
            "At the wall",
            its.value,
            sub=", ".join(filter(None, (by, its.note))),
            aside=aside,
            drawn=spark(recent.samples, lambda one: one.wall_watts),
        )
    if nearest is not None:
        yield _nearest(*nearest, computed=view.electrical.latest is not None)
    if summary.gpu_power_watts is None:
        yield tile("GPU power", "?", sub="no GPU reports its power", tone=Tone.STALE)
    else:
        limits = percent(_part(summary.limited_power_watts, summary.limited_power_limit_watts))
        by = f"reported by {heard.gpus - heard.unread:,} of {counted(heard.gpus, 'GPU')}; {limits} of the limits"
        aside = _change(trends.gpu_power_watts)
        yield tile(
            "GPU power",
            at_least(watts(summary.gpu_power_watts), partial=heard.unread > 0),
            sub=by,
            aside=aside,
            drawn=spark(recent.samples, lambda one: one.gpu_watts),
        )
    away = f"; {heard.silent:,} silent" if heard.silent else ""
    on = f"on {counted(heard.nodes, 'node')}{away}{_releases(view.fleet)}"
    yield tile(
        "Use of the GPUs",
        percent(summary.utilization_mean_ratio),
        sub=on,
        aside=counted(heard.gpus, "GPU"),
        drawn=spark(recent.samples, lambda one: one.use),
    )
    yield _cost(view.electrical, heard, wall, view.wall())
    good = fitness_row(None if view.fitness.newest is None else view.fitness.newest.fleet)
    if good.value:
        yield tile("Fitness", good.value, sub=f"{text(good.note)} {link('why', 'fitness')}")
    else:
        yield tile("Fitness", "?", sub=f"not known yet {link('why', 'fitness')}", tone=Tone.STALE)


def _change(trend: Trend) -> str:
    """Return by how much a power has changed within the last hour; "" where that is not known."""
    return text(power_trend("", trend).short)


def _part(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _nearest(circuit: CircuitState, status: int, *, computed: bool) -> str:
    its, coming = share_row(circuit), next_row(circuit, ALERT_TONES[status])
    if len(coming.value) > _BESIDE:
        coming = replace(coming, value=coming.short, since=None)
    return tile(
        "Nearest breaker",
        "?" if its.short == ABSENT else its.short,
        sub=f"{link(circuit.id, 'circuits', circuit.id)}, {load_row(circuit).label}: {text(limits_row(circuit).value)}",
        aside="not computed yet" if not computed else "" if coming.value == ABSENT else fact(coming),
        part=load_bar(circuit, STATUS_WORDS[status], tall=True),
        tone=ALERT_TONES[status],
    )


def _cost(electrical: ElectricalService, heard: Heard, wall: WallSum, at: int) -> str:
    """Return what the power of now costs in an hour; nothing where no price is set."""
    place = electrical.site.config.site
    each, drawn = electrical.energy.price(at), wall.watts
    if each is None:
        return ""
    if drawn is None:
        return tile("Cost now", "?", sub="the power at the wall is not known", tone=Tone.STALE)
    unread = heard.nodes - (wall.nodes or 0)
    an_hour = money(drawn / 1000 * place.pue * each, place.currency)
    without = f", without {counted(unread, 'node')} whose power is not known" if unread > 0 else ""
    building = "" if place.pue == 1.0 else f" and PUE {place.pue:g}"
    sub = f"an hour at {text(price(each, place.currency))}{building}{without}; {link('this month', 'energy')}"
    return tile("Cost now", at_least(an_hour, partial=unread > 0 or wall.partial > 0), sub=sub)


def _releases(fleet: Fleet) -> str:
    """Return how many nodes run another release than the aggregator's, with a link to them."""
    found = Counter(drift(node.inventory.kilowatch, release()) for node in fleet.nodes.values())
    other = [each for each in DRIFTS if found[each]]
    words = [f'<a href="{path("nodes", q=each)}">{found[each]:,} {text(each)}</a>' for each in other]
    return f"; {' and '.join(words)} than this aggregator's {text(release())}" if other else ""
