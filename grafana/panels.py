"""Panels of a Grafana dashboard as plain data. Schema 41 (Grafana 11).

Queries are PromQL over the aggregator's metrics, or InfluxQL over the points that it writes. Nothing is
drawn for times without readings; the description of a panel explains how it deals with gaps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grafana.sources import PROMETHEUS, DataSource, Json, PanelQuery

WIDTH = 24
"""Columns of a dashboard."""

GREEN, YELLOW, ORANGE, RED, GREY = "green", "yellow", "orange", "red", "text"
Step = tuple[float | None, str]
"""First value of a colour, None for the lowest, and the colour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel without its number and place."""

    kind: str
    """Grafana's name of the visualisation."""
    title: str
    text: str
    """Description; Grafana shows it behind the (i)."""
    queries: Sequence[PanelQuery] = ()
    unit: str = "short"
    width: int = 12
    height: int = 8
    steps: Sequence[Step] = ((None, GREEN),)
    low: float | None = None
    high: float | None = None
    decimals: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    custom: Mapping[str, Any] = field(default_factory=dict)
    mappings: Sequence[Json] = ()
    overrides: Sequence[Json] = ()
    links: Sequence[Json] = ()
    transformations: Sequence[Json] = ()

    def json(self, number: int, x: int, y: int, source: DataSource = PROMETHEUS) -> Json:
        """Return the panel as Grafana reads it."""
        defaults: Json = {
            "unit": self.unit,
            "color": {"mode": "thresholds" if len(self.steps) > 1 else "palette-classic"},
            "thresholds": {
                "mode": "absolute",
                "steps": [{"value": value, "color": color} for value, color in self.steps],
            },
            "mappings": list(self.mappings),
            "links": list(self.links),
            "custom": dict(self.custom),
            "noValue": "—",
        }
        for name, value in (("min", self.low), ("max", self.high), ("decimals", self.decimals)):
            if value is not None:
                defaults[name] = value
        return {
            "id": number,
            # The points are means of ten seconds; finer steps would have gaps.
            **({"interval": "10s"} if source is not PROMETHEUS else {}),
            "type": self.kind,
            "title": self.title,
            "description": self.text,
            "datasource": source.json,
            "gridPos": {"h": self.height, "w": self.width, "x": x, "y": y},
            "fieldConfig": {"defaults": defaults, "overrides": list(self.overrides)},
            "options": dict(self.options),
            "targets": [source.target(query, place) for place, query in enumerate(self.queries)],
            "transformations": list(self.transformations),
        }


@dataclass(frozen=True, slots=True)
class PanelRow:
    """A heading of the panels that follow it."""

    title: str


_LEGEND = {"displayMode": "table", "placement": "right", "showLegend": True, "calcs": ["lastNotNull", "max"]}
_LINES = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 8, "showPoints": "never", "spanNulls": False}
"""Options of lines; there is no line across a time without readings."""


def lines(title: str, text: str, *queries: PanelQuery, legend: bool = True, **more: Any) -> Panel:
    """Return lines over time."""
    options = {
        "legend": _LEGEND
        if legend
        else {"showLegend": False, "displayMode": "list", "placement": "bottom", "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    custom = {**_LINES, **more.pop("custom", {})}
    return Panel(kind="timeseries", title=title, text=text, queries=queries, options=options, custom=custom, **more)


def number(title: str, text: str, *queries: PanelQuery, **more: Any) -> Panel:
    """Return one large number, or a few."""
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": more.pop("graph", "area"),
        "textMode": "auto",
        "justifyMode": "auto",
        "orientation": "auto",
    }
    return Panel(
        kind="stat", title=title, text=text, queries=queries, options=options, **{"width": 4, "height": 4, **more}
    )


def bars(title: str, text: str, *queries: PanelQuery, **more: Any) -> Panel:
    """Return horizontal bars, one a series."""
    options = {
        "displayMode": "lcd",
        "orientation": "horizontal",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "showUnfilled": True,
        "valueMode": "color",
    }
    return Panel(kind="bargauge", title=title, text=text, queries=queries, options=options, **more)


def states(title: str, text: str, *queries: PanelQuery, words: Mapping[int, tuple[str, str]], **more: Any) -> Panel:
    """Return a state over time, one band a series; `words`: text and colour by number."""
    options = {
        "showValue": "auto",
        "rowHeight": 0.8,
        "mergeValues": True,
        "alignValue": "left",
        "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return Panel(
        kind="state-timeline",
        title=title,
        text=text,
        queries=queries,
        options=options,
        mappings=[words_of(words)],
        custom={"fillOpacity": 80, "lineWidth": 0},
        **more,
    )


def heat(title: str, text: str, query: PanelQuery, **more: Any) -> Panel:
    """Return how a quantity is spread over the fleet, over time."""
    options = {
        "calculate": True,
        "calculation": {"xBuckets": {"mode": "size"}, "yBuckets": {"mode": "count", "value": "24"}},
        "color": {
            "mode": "scheme",
            "scheme": "Turbo",
            "steps": 64,
            "exponent": 0.5,
            "reverse": False,
            "fill": "dark-orange",
        },
        "cellGap": 1,
        "filterValues": {"le": 1e-9},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"mode": "single", "yHistogram": True, "showColorScale": True},
        "legend": {"show": True},
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "yAxis": {"axisPlacement": "left", "reverse": False},
    }
    return Panel(kind="heatmap", title=title, text=text, queries=[query], options=options, **more)


def table(
    title: str,
    text: str,
    *queries: PanelQuery,
    hide: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
    sort: str = "",
    **more: Any,
) -> Panel:
    """Return the newest values, a row a series; `hide` leaves labels out."""
    organize = {
        "id": "organize",
        "options": {
            "excludeByName": dict.fromkeys(["Time", "__name__", "job", "instance", "cluster", *hide], True),
            "indexByName": {},
            "renameByName": dict(names or {}),
        },
    }
    merge = [{"id": "merge", "options": {}}] if len(queries) > 1 else []
    options: Json = {
        "showHeader": True,
        "cellHeight": "sm",
        "footer": {"show": False, "reducer": ["sum"], "countRows": False, "fields": ""},
    }
    if sort:
        options["sortBy"] = [{"displayName": sort, "desc": True}]
    custom = {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False, "filterable": True}
    return Panel(
        kind="table",
        title=title,
        text=text,
        queries=queries,
        options=options,
        custom=custom,
        transformations=[*merge, organize],
        **more,
    )


def words_of(words: Mapping[int, tuple[str, str]]) -> Json:
    """Return the mapping of numbers to words with colours."""
    return {
        "type": "value",
        "options": {
            str(value): {"text": text, "color": color, "index": place}
            for place, (value, (text, color)) in enumerate(sorted(words.items()))
        },
    }


def cell(
    field: str,
    unit: str,
    steps: Sequence[Step] = (),
    *,
    gauge: bool = False,
    low: float | None = None,
    high: float | None = None,
    link: Json | None = None,
) -> Json:
    """Return how one column of a table is shown."""
    properties: list[Json] = [{"id": "unit", "value": unit}]
    if steps:
        properties.append(
            {
                "id": "thresholds",
                "value": {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in steps]},
            }
        )
        kind: Json = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"} if gauge else {"type": "color-text"}
        properties.append({"id": "custom.cellOptions", "value": kind})
    for name, value in (("min", low), ("max", high)):
        if value is not None:
            properties.append({"id": name, "value": value})
    if link is not None:
        properties.append({"id": "links", "value": [link]})
    return {"matcher": {"id": "byName", "options": field}, "properties": properties}
