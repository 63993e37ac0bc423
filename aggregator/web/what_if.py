"""A circuit with every GPU capped: rows from no cap to the lowest, each computed by the plan. Nothing is sent to a GPU."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import numpy as np

from aggregator.electrical.plan import live_plan
from aggregator.view import AggregatorView
from aggregator.web.bars import LOAD_HEAD, load_bar
from aggregator.web.markup import link, path, table, text, toned
from api.power import CircuitPlan, CircuitState
from power.plan.plan import Suppose
from present.circuit.losses import passed_limit, planned_trip
from present.row import Tone
from present.units import amperes, exact_watts
from telemetry.errors import ConfigError
from telemetry.fleet import Fleet
from telemetry.metric import Table

_SHARES = (0.85, 0.7, 0.55, 0.4)
"""Caps that are computed, of the highest power limit."""
_LEAST = 50.0
"""W; no GPU takes a lower limit."""
MOST_WATTS = 100_000
"""The highest cap that may be asked for, W."""
MOST_CIRCUITS = 16
"""Circuits of a site up to which the table is shown without being asked for: each row is a plan,
which a page of a large site can't compute at each look."""


def caps_of(fleet: Fleet, now: float, nodes: Iterable[str]) -> list[float]:
    """Return the caps that are computed for the GPUs of some nodes, W, the highest first; none where no limit is
    read."""
    limits = fleet.column("gpu_power_limit_watts", now)
    rows = [fleet.nodes[name].rows[Table.GPU] for name in nodes if name in fleet.nodes]
    highest = float(np.fmax.reduce([np.fmax.reduce(limits[row], initial=np.nan) for row in rows], initial=np.nan))
    if np.isnan(highest):
        return []
    return [cap for share in _SHARES if (cap := float(round(highest * share, -1))) >= _LEAST]


async def what_if(view: AggregatorView, name: str, nodes: Sequence[str], more: int | None) -> str:
    """Return the table of a circuit. `more`: a cap of the reader's own, W."""
    caps = {*caps_of(view.fleet, view.now(), nodes), *([] if more is None else [float(more)])}
    if not caps:
        return "<p>No power limit of its GPUs is read.</p>"
    try:
        now = await _planned(view, name, None)
        if now is not None and now.cap is not None and now.cap.reachable:
            caps.add(float(now.cap.watts_per_gpu))
        found = [(cap, await _planned(view, name, cap)) for cap in sorted(caps, reverse=True)]
    except ConfigError as error:
        return f"<p>{text(error)}</p>"
    plans = [(cap, plan) for cap, plan in ((None, now), *found) if plan is not None]
    best = next((place for place, (_, plan) in enumerate(plans) if _holds(plan)), -1)
    rows = [_row(cap, plan, chosen=place == best) for place, (cap, plan) in enumerate(plans)]
    heads = ("cap of each GPU", "load", LOAD_HEAD, "then")
    return table("by the plan, if the load is as now; nothing is sent to a GPU", heads, rows, (0, 1))


def cap_form(name: str, asked: int | None) -> str:
    """Return the form for a cap of the reader's own."""
    value = "" if asked is None else f' value="{asked}"'
    return (
        f'<form class="filter" method="get" action="{path("circuits", name)}#what-if"><label>cap '
        f'<input name="cap" type="number" min="1" required{value}> W</label> <button>Compute</button></form>'
    )


def what_if_link(name: str) -> str:
    """Return the link that asks for the table, where it is not shown at once."""
    return f"<p>{link('What would a cap of every GPU do?', 'circuits', name, **{'what-if': '1'})}</p>"


async def _planned(view: AggregatorView, name: str, cap: float | None) -> CircuitPlan | None:
    compute = live_plan(view.electrical, view.fleet, Suppose(cap=cap), view.pipeline.engine.rules)
    plan = await asyncio.to_thread(compute)
    return next((one for one in (*plan.circuits, *plan.panels) if one.id == name), None)


def _holds(plan: CircuitPlan) -> bool:
    """Whether a circuit neither trips nor is above a limit."""
    never = plan.trip_known and plan.trip_seconds.get("earliest") is None
    return never and not passed_limit(plan)


def _row(cap: float | None, plan: CircuitPlan, *, chosen: bool) -> tuple[str, ...]:
    trip, passed = planned_trip(plan), passed_limit(plan)
    words = text(f"{trip.text}, {passed}" if passed else trip.text)
    cells = ("none" if cap is None else exact_watts(cap), amperes(max(plan.amps.values(), default=None)))
    loud = "" if not chosen else Tone.STRONG
    return (
        *(toned(text(cell), Tone(loud)) for cell in cells),
        load_bar(_as_state(plan)),
        toned(words, Tone(loud or (Tone.PLAIN if _holds(plan) else trip.tone))),
    )


def _as_state(plan: CircuitPlan) -> CircuitState:
    """Return what a bar needs of a circuit."""
    return CircuitState(
        plan.id,
        watts=plan.watts,
        amps=dict(plan.amps),
        rated_amps=plan.rated_amps,
        continuous_amps=plan.continuous_amps,
        load_ratio=plan.load_ratio,
        sustained_ratio=plan.load_ratio,
    )
