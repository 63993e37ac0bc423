"""What tests read out of a dashboard: its panels, and its queries with the variables filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from grafana.dashboard import Dashboard
from grafana.influx import DASHBOARDS as INFLUX_DASHBOARDS
from grafana.prometheus import DASHBOARDS

Json = dict[str, Any]
ALL = (*DASHBOARDS, *INFLUX_DASHBOARDS)


def panels(dashboards: Sequence[Dashboard] = ALL) -> Iterator[tuple[str, Json]]:
    """Every panel that draws something, with the title of its dashboard."""
    for dashboard in dashboards:
        for panel in dashboard.json()["panels"]:
            if panel["type"] != "row":
                yield dashboard.title, panel


def queries(rate_interval: str = "15s") -> Iterator[tuple[str, str]]:
    """Every PromQL query of every panel, annotation and variable, with where it stands."""
    for dashboard, panel in panels(DASHBOARDS):
        for target in panel["targets"]:
            yield f"{dashboard}: {panel['title']} {target['refId']}", filled(target["expr"], rate_interval)
    for made in DASHBOARDS:
        board_json = made.json()
        for mark in board_json["annotations"]["list"]:
            if "expr" in mark:
                yield f"{made.title}: marks {mark['name']}", filled(mark["expr"], rate_interval)
        for variable in board_json["templating"]["list"]:
            if variable["type"] == "query":
                asked = re.fullmatch(r"label_values\((.*), \w+\)", variable["definition"])
                assert asked, variable["definition"]
                yield f"{made.title}: choices {variable['name']}", filled(asked[1], rate_interval)


def influx_queries() -> Iterator[tuple[str, str]]:
    """Every InfluxQL query of every panel, annotation and variable, with where it stands."""
    for dashboard, panel in panels(INFLUX_DASHBOARDS):
        for target in panel["targets"]:
            yield f"{dashboard}: {panel['title']} {target['refId']}", influx_filled(target["query"])
    for made in INFLUX_DASHBOARDS:
        board_json = made.json()
        for mark in board_json["annotations"]["list"]:
            if "query" in mark:
                yield f"{made.title}: marks {mark['name']}", influx_filled(mark["query"])
        for variable in board_json["templating"]["list"]:
            if variable["type"] == "query":
                yield f"{made.title}: choices {variable['name']}", influx_filled(variable["query"])


def filled(expr: str, rate_interval: str = "15s") -> str:
    """Put values in the place of Grafana's variables."""
    expr = expr.replace("$price", "0.15").replace("$__rate_interval", rate_interval).replace("$__range", "1h")
    return re.sub(r"\$(?:\{\w+\}|\w+)", ".*", expr)


def influx_filled(query: str) -> str:
    """Put values in the place of Grafana's variables."""
    query = query.replace("$timeFilter", "time > now() - 1h").replace("$__interval", "10s")
    return re.sub(r"/\^\$\w+\$/", "/^.*$/", query)


METRIC = re.compile(r"\bkilowatch_[a-z0-9_]+")
