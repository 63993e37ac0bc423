"""Circuits and budgets: the load of each breaker, and the time until it trips."""

from __future__ import annotations

from grafana.dashboard import CLUSTER, Dashboard, Variable
from grafana.panels import GREEN, ORANGE, RED, YELLOW, PanelRow, bars, cell, lines, number, states, table
from grafana.sources import PanelQuery

K = 'cluster=~"$cluster",circuit=~"$circuit"'
C = 'cluster=~"$cluster"'
_TO_NODE = {
    "title": "Node ${__data.fields.node}",
    "url": "/d/kilowatch-node?var-node=${__data.fields.node}&${__url_time_range}&var-datasource=${datasource}",
}
_LOAD = ((None, GREEN), (0.72, YELLOW), (0.8, ORANGE), (1.0, RED))

DASHBOARD = Dashboard(
    uid="kilowatch-circuits",
    title="kilowatch / Circuits and budgets",
    text="Load of every breaker against both of its limits. Times to trip are estimates: a breaker may trip earlier or later.",
    variables=(CLUSTER, Variable("circuit", "Circuit", "kilowatch_circuit_watts", "circuit")),
    parts=(
        number("Earliest trip", "The least time until any breaker may trip at its present load, an estimate. Empty when none would.",
               PanelQuery(f"min(kilowatch_circuit_trip_earliest_seconds{{{K}}} < +Inf)"), unit="s", steps=((None, RED), (300, ORANGE), (3600, YELLOW)), width=6),
        number("Highest load", "Current over the breaker's rating, the highest of all circuits.", PanelQuery(f"max(kilowatch_circuit_load_ratio{{{K}}})"), unit="percentunit", steps=_LOAD, width=6),
        number("Above the continuous limit", "Circuits above what they may carry for three hours or more.", PanelQuery(f"count(kilowatch_circuit_continuous_ratio{{{K}}} > 1) or vector(0)"), steps=((None, GREEN), (1, ORANGE)), decimals=0, width=6),
        number("Power at the wall", "Sum over the nodes on circuits, from the best source of each.", PanelQuery(f"sum(kilowatch_supply_wall_watts{{{C}}})"), unit="watt", width=6),
        PanelRow("Circuits"),
        bars("Load", "Current of the highest pole over the rating. The continuous limit is at 80 %.", PanelQuery(f"kilowatch_circuit_load_ratio{{{K}}}", "{{circuit}}"), unit="percentunit", low=0, high=1.2, steps=_LOAD),
        table("Circuits", "Amps, both limits, headroom and the band of the time to trip.",
              PanelQuery(f"kilowatch_circuit_amps{{{K}}}", table=True), PanelQuery(f"kilowatch_circuit_continuous_amps{{{K}}}", table=True), PanelQuery(f"kilowatch_circuit_rated_amps{{{K}}}", table=True),
              PanelQuery(f"kilowatch_circuit_headroom_amps{{{K}}}", table=True), PanelQuery(f"kilowatch_circuit_trip_earliest_seconds{{{K}}}", table=True), PanelQuery(f"kilowatch_circuit_trip_latest_seconds{{{K}}}", table=True), PanelQuery(f"kilowatch_circuit_heat_ratio{{{K}}}", table=True),
              names={"Value #A": "amps", "Value #B": "continuous limit", "Value #C": "rating", "Value #D": "headroom", "Value #E": "trip earliest", "Value #F": "trip latest", "Value #G": "heat"}, sort="heat",
              overrides=(cell("amps", "amp"), cell("continuous limit", "amp"), cell("rating", "amp"), cell("headroom", "amp", ((None, RED), (0, YELLOW), (2, GREEN))), cell("trip earliest", "s"), cell("trip latest", "s"), cell("heat", "percentunit", ((None, GREEN), (0.7, ORANGE), (0.9, RED)), gauge=True, low=0, high=1))),
        lines("Current", "Amps of the highest pole.", PanelQuery(f"kilowatch_circuit_amps{{{K}}}", "{{circuit}}"), PanelQuery(f"kilowatch_circuit_continuous_amps{{{K}}}", "{{circuit}} continuous limit"), unit="amp", low=0),
        lines("Heat of the breakers", "Heat over the heat at which they trip at the earliest; an estimate.", PanelQuery(f"kilowatch_circuit_heat_ratio{{{K}}}", "{{circuit}}"), unit="percentunit", low=0, high=1),
        lines("Power commitment", "Current if every GPU drew its limit, over the continuous limit.", PanelQuery(f"kilowatch_circuit_committed_continuous_ratio{{{K}}}", "{{circuit}}"), unit="percentunit", low=0),
        lines("After the loss of a feed", "Current of the surviving feed over its continuous limit.", PanelQuery(f"kilowatch_circuit_survivor_continuous_ratio{{{K}}}", "{{circuit}}"), unit="percentunit", low=0),
        states("Feeds", "Whether a feed is lost: it carries nothing and its partner does.", PanelQuery(f"kilowatch_circuit_feed_lost{{{K}}}", "{{circuit}}"), words={0: ("there", GREEN), 1: ("lost", RED)}),
        lines("Poles", "Current of each pole.", PanelQuery(f"kilowatch_circuit_pole_amps{{{K}}}", "{{circuit}} {{pole}}"), unit="amp", low=0),
        PanelRow("Supplies"),
        table("Supplies of the nodes", "Load if the spare ones fail, and power at the wall; a click leads to the node.",
              PanelQuery(f"kilowatch_supply_load_ratio{{{C}}}", table=True), PanelQuery(f"kilowatch_supply_wall_watts{{{C}}}", table=True),
              names={"Value #A": "load", "Value #B": "at the wall"}, sort="load",
              overrides=(cell("load", "percentunit", ((None, GREEN), (0.85, ORANGE), (1.0, RED)), gauge=True, low=0, high=1.2), cell("at the wall", "watt"), cell("node", "none", link=_TO_NODE))),
        lines("Load of the supplies", "Of those that must carry it alone when the spare ones fail.", PanelQuery(f"kilowatch_supply_load_ratio{{{C}}}", "{{node}}"), unit="percentunit", low=0),
        PanelRow("Budgets"),
        bars("Budgets", "Power over the budget.", PanelQuery(f"kilowatch_budget_power_ratio{{{C}}}", "{{budget}}"), unit="percentunit", low=0, high=1.1, steps=((None, GREEN), (0.9, YELLOW), (0.97, RED))),
        lines("Budgets over time", "Power over the budget.", PanelQuery(f"kilowatch_budget_power_ratio{{{C}}}", "{{budget}}"), unit="percentunit", low=0),
    ),
)  # fmt: skip
