"""`/design`: each component of the pages in each of its states, drawn by the functions that draw the pages, with made-up
figures. Where anything is simulated alone: a real cluster has no page with figures that are not its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date

from aiohttp import web
from msgspec.structs import replace

from aggregator.http.errors import RequestError
from aggregator.http.parameters import query
from aggregator.http.recent import SECONDS, ClusterSample
from aggregator.http.reply import VIEW
from aggregator.web.bars import LOAD_HEAD, load_bar
from aggregator.web.chain_diagram import chain_diagram
from aggregator.web.circuit_list import ALERT_TONES, STATUS_WORDS
from aggregator.web.content import PageContent
from aggregator.web.day_bars import day_bars
from aggregator.web.days_strip import days_strip
from aggregator.web.fleet_map import NodeCells, fleet_map
from aggregator.web.headline_part import figure_tile, headline_part, tile, tiles
from aggregator.web.held_clocks import held_strip
from aggregator.web.icons import badge
from aggregator.web.load_chart import LoadSeries
from aggregator.web.markup import fact, section, table, text
from aggregator.web.multiples import Beside, beside_chart
from aggregator.web.node_page import gpu_table
from aggregator.web.spark import spark
from aggregator.web.use_strip import use_strip
from api.alerts import Alert, AlertState, Severity
from api.device import GpuReply
from api.power import CircuitState, LoadState, TripSeconds
from power.snapshot.power_chain import branch
from present.circuit.outlook import next_row
from present.circuit.rows import share_row
from present.device.figures import gpu_figures
from present.fleet.bill_headline import DayEnergy
from present.fleet.headline import Heard, Urgency, circuit_headline, headline
from present.fleet.past_days import PastDay
from present.row import Tone
from telemetry.devices import Gpu

_CALM = CircuitState(
    "R12-A",
    watts=6500.0,
    amps={"L1": 31.3},
    rated_amps=50.0,
    effective_amps=50.0,
    continuous_amps=40.0,
    load_ratio=0.626,
    sustained_ratio=0.626,
    load_state=LoadState.MEASURED,
    load_state_seconds=600.0,
    trip_known=True,
    nodes=["dgx-01", "dgx-02"],
)
_OVER = replace(
    _CALM,
    id="R12-B",
    watts=13_000.0,
    amps={"L1": 62.7},
    load_ratio=1.254,
    sustained_ratio=1.254,
    trip_seconds=TripSeconds(238.0, 660.0, None),
    facts={"remedy": "cap each GPU at 400 W (nvidia-smi -pl 400)"},
)
_ASSUMED = replace(_CALM, id="R13-A", assumed_watts=3200.0, load_state=LoadState.ASSUMED)
_UNKNOWN = CircuitState("R14", rated_amps=30.0, continuous_amps=24.0, load_state=LoadState.UNKNOWN, nodes=["dgx-03"])
_OPEN = replace(
    _CALM, id="R15", watts=0.0, load_ratio=0.0, sustained_ratio=0.0, more={"trip_suspected": 1.0}, nodes=["dgx-03"]
)
LOADS = {
    "measured": (_CALM, 0),
    "over its continuous limit": (replace(_CALM, load_ratio=0.86, sustained_ratio=0.86), 1),
    "over its rating": (_OVER, 2),
    "a part assumed": (_ASSUMED, 0),
    "not known": (_UNKNOWN, 0),
    "no current, its breaker taken for open": (_OPEN, 2),
}
"""Circuits by what they show, each with how bad its worst alert is."""
_LINK = re.compile(r' href="(?:circuits|gpus|incidents|jobs|nodes)/[^"]*"')
"""Link to an object that the page has made up: it would lead nowhere."""
_ALL, _PARTLY = Heard(2, 0, 16, 0), Heard(2, 1, 16, 8)


_WARM = {
    "gpu_power_watts": 690.0, "gpu_power_limit_watts": 700.0, "gpu_temperature_celsius": 65.0,
    "gpu_temperature_slowdown_celsius": 87.0, "gpu_utilization_ratio": 0.97, "gpu_memory_used_bytes": 72 * 2.0**30,
    "gpu_memory_total_bytes": 80 * 2.0**30, "gpu_sm_clock_hertz": 1.98e9, "gpu_sm_clock_max_hertz": 1.98e9,
    "gpu_clocks_event_sw_power_cap": 1.0,
}  # fmt: skip
_SLOW = _WARM | {
    "gpu_temperature_celsius": 88.0,
    "gpu_sm_clock_hertz": 1.275e9,
    "gpu_clocks_event_sw_thermal_slowdown": 1.0,
}
_NOT_READ = dict.fromkeys(_WARM, "stale")


def _gpu(index: int, readings: dict[str, float], gaps: dict[str, str] | None = None) -> GpuReply:
    return GpuReply(Gpu(uuid=f"GPU-{index}", index=index, name="NVIDIA H100 80GB HBM3"), readings, gaps or {})


_GPUS = [
    _gpu(0, _WARM), _gpu(1, _SLOW), _gpu(2, {name: value for name, value in _WARM.items() if "limit" not in name}),
    _gpu(3, {}, dict.fromkeys(_WARM, "device_lost")), _gpu(4, {}, _NOT_READ),
    _gpu(5, _WARM),
]  # fmt: skip
"""GPUs that are well, slowed, without known limits, lost, not read, and with an alert."""
_ALERTS = [Alert("a", "remap_pending", AlertState.FIRING, Severity.TICKET, "dgx-01", "GPU-5")]


def _charts() -> str:
    """Return a reading beside the others' with a gap, and one of which nothing more is known."""
    minute = 60 * 10**9
    at = [n * minute for n in range(60) if not 20 < n < 28]
    own = LoadSeries(at, [65.0 + max(0, n // minute - 30) * 0.8 for n in at], [None] * len(at), "°C", minute)
    peers = LoadSeries(at, [64.0 + n // minute % 3 for n in at], [None] * len(at), "°C", minute)
    drawn = (
        beside_chart("gpu_temperature_celsius", Beside(series, others), one, _GPUS[:1], 0, 60 * minute)
        for series, others, one in (
            (own, peers, _GPUS[1]),
            (LoadSeries(at[:15], own.values[:15], own.highs[:15], "°C", minute), None, _GPUS[4]),
        )
    )
    held = LoadSeries(at, [float(n > 30 * minute) for n in at], [None] * len(at), "", minute)
    strip = f"<p>When a reason held its clocks: {held_strip(held, 0, 60 * minute, 'ticket')}</p>"
    use = LoadSeries(at, [100.0 * (n // minute) / 60 for n in at], [None] * len(at), "%", minute)
    run = f"<p>Use over the run of a job: {use_strip(use, [(6 * minute, 54 * minute)], 0, 60 * minute)}</p>"
    return f'<div class="multiples">{"".join(drawn)}</div>{strip}{run}'


async def design(request: web.Request) -> PageContent:
    """Return the page. Raises a 404 where nothing is simulated."""
    query(request)
    nodes = request.app[VIEW].fleet.nodes.values()
    if not any(node.inventory.source.startswith("simulated") for node in nodes):
        raise RequestError(404, "path", "this page is shown where nodes are simulated", "kilowatch demo has it.")
    return PageContent("Components and their states", _LINK.sub("", "".join(_parts())))


def _parts() -> Iterator[str]:
    yield headline_part(headline([], [_CALM], _ALL))
    yield headline_part(headline([], [_CALM], _PARTLY))
    yield headline_part(circuit_headline(LOADS["over its continuous limit"][0], Tone.WARN))
    yield headline_part(circuit_headline(_OVER, Tone.CRIT))
    samples = [
        ClusterSample(at * SECONDS, 20_000.0 + 300 * (at % 7), None if 100 < at < 160 else 9000.0) for at in range(361)
    ]
    yield tiles(
        tile(
            "Known, with its past",
            "21.9 kW",
            sub="reported by 2 of 2 nodes",
            aside="+1.2 kW in 60 min",
            drawn=spark(samples, lambda one: one.wall_watts),
        ),
        tile(
            "With a gap in its past",
            "9.0 kW",
            sub="reported by 16 of 16 GPUs",
            drawn=spark(samples, lambda one: one.gpu_watts),
        ),
        tile(
            "Near its limit",
            "125%",
            sub="continuous limit 40 A, breaker 50 A",
            part=load_bar(_OVER, "page", tall=True),
            tone=Tone.CRIT,
        ),
        tile(
            "A part assumed",
            "~63%",
            sub="continuous limit 40 A, breaker 50 A",
            part=load_bar(_ASSUMED, tall=True),
            tone=Tone.STALE,
        ),
        tile("Not known", "?", sub="no GPU reports its power", tone=Tone.STALE),
    )
    rows = [
        (text(words), text(share_row(circuit).value), load_bar(circuit, STATUS_WORDS[status]), fact(next_row(circuit, ALERT_TONES[status])))
        for words, (circuit, status) in LOADS.items()
    ]  # fmt: skip
    bars = table("always 0 to 130% of the breaker", ("state", "load", LOAD_HEAD, "next"), rows, (1,))
    states = " ".join(badge(each, each) for each in (*Urgency, "simulated", "ack"))
    nan = float("nan")
    gpus = [NodeCells("rack-1", "dgx-01", [41.0, 55.0, 62.0, 71.0, 88.0, nan, 93.0, nan], [f"GPU-{n}" for n in range(8)], "page",
                      {"GPU-4": "ticket", "GPU-6": "page", "GPU-7": "page"})]  # fmt: skip
    found = branch([_OVER, _CALM, _UNKNOWN, _OPEN])
    watts = NodeCells(
        "rack-1", "dgx-01", [689.0, 695.0, 612.0, nan], [f"GPU-{n}" for n in range(4)], "ticket", {"GPU-2": "ticket"}
    )
    chain = chain_diagram(found, {"R12-B": 2}, {"dgx-01": watts}, 875.0)
    yield tiles(
        *map(figure_tile, gpu_figures(_SLOW.get, [])), figure_tile(next(gpu_figures(_gpu(4, {}).readings.get, [])))
    )
    yield section("GPUs of a node", gpu_table(_GPUS, _ALERTS), "gpus")
    yield section("A GPU beside the others", _charts(), "beside")
    days = [None, DayEnergy(310.0, 0.0), DayEnergy(180.0, 120.0), DayEnergy(295.0, 0.0), None, DayEnergy(140.0, 0.0)]
    yield section("Days of a month", day_bars(days, 30), "days")
    past = [
        PastDay(date(2026, 11, 1 + at), pages, tickets, watched)
        for at, (pages, tickets, watched) in enumerate(
            ((0, 0, 0.0), (0, 0, 0.4), (0, 0, 1.0), (0, 2, 1.0), (1, 3, 1.0), (0, 1, 0.5), (1, 0, 0.1))
        )
    ]
    yield section("Past days", days_strip(past), "past")
    yield f'<div class="stack w14">{section("Bars of loads", bars, "bars")}{section("Power chain", chain, "chain")}</div>'
    yield f'<div class="stack w10">{section("States", f"<p>{states}</p>", "states")}{section("GPUs", fleet_map(gpus, "temperature"), "map")}</div>'
