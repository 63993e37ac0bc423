"""A board: variables, panels in their order, links to the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grafana.panels import SOURCE, WIDTH, Json, Panel, Row

SCHEMA_VERSION = 41
TAG = "kilowatch"


@dataclass(frozen=True, slots=True)
class Variable:
    """Something to choose from, filled by a query of label values."""

    name: str
    label: str
    metric: str
    value_of: str
    """The label whose values are listed."""
    several: bool = True


@dataclass(frozen=True, slots=True)
class Board:
    """One board; its file carries its `uid`."""

    uid: str
    title: str
    text: str
    variables: Sequence[Variable]
    parts: Sequence[Panel | Row]
    refresh: str = "10s"
    since: str = "now-1h"

    def json(self) -> Json:
        """Return the board as Grafana reads it."""
        return {
            "uid": self.uid,
            "id": None,
            "title": self.title,
            "description": self.text,
            "tags": [TAG],
            "timezone": "browser",
            "schemaVersion": SCHEMA_VERSION,
            "version": 1,
            "editable": True,
            "graphTooltip": 1,
            "refresh": self.refresh,
            "time": {"from": self.since, "to": "now"},
            "timepicker": {},
            "fiscalYearStartMonth": 0,
            "weekStart": "",
            "links": [_links()],
            "templating": {"list": [_datasource(), *(_variable(each) for each in self.variables)]},
            "annotations": {"list": [_builtin(), _alerts()]},
            "panels": _placed(self.parts),
        }


def _placed(parts: Sequence[Panel | Row]) -> list[Json]:
    """Fill the rows of the board from left to right."""
    found: list[Json] = []
    x = y = height = 0
    for number, part in enumerate(parts, 1):
        if isinstance(part, Row):
            y, x, height = y + height, 0, 0
            found.append({
                "id": number, "type": "row", "title": part.title, "collapsed": False, "panels": [],
                "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": y},
            })  # fmt: skip
            y += 1
            continue
        if x + part.width > WIDTH:
            y, x, height = y + height, 0, 0
        found.append(part.json(number, x, y))
        x, height = x + part.width, max(height, part.height)
    return found


def _datasource() -> Json:
    return {
        "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
        "refresh": 1, "regex": "", "hide": 0, "multi": False, "includeAll": False, "options": [],
    }  # fmt: skip


def _variable(variable: Variable) -> Json:
    before = (
        f'{variable.metric}{{cluster=~"$cluster"}}'
        if variable.name != "cluster"
        else variable.metric
    )
    query = f"label_values({before}, {variable.value_of})"
    return {
        "name": variable.name, "label": variable.label, "type": "query", "datasource": SOURCE,
        "query": {"query": query, "refId": variable.name}, "definition": query,
        "refresh": 2, "sort": 7, "regex": "", "hide": 0, "options": [],
        "multi": variable.several, "includeAll": variable.several,
        **({"allValue": ".*", "current": {"text": "All", "value": "$__all"}} if variable.several else {}),
    }  # fmt: skip


def _links() -> Json:
    return {
        "title": "kilowatch", "type": "dashboards", "tags": [TAG], "asDropdown": True, "icon": "external link",
        "includeVars": True, "keepTime": True, "targetBlank": False, "tooltip": "", "url": "",
    }  # fmt: skip


def _builtin() -> Json:
    return {
        "name": "Annotations & Alerts", "type": "dashboard", "builtIn": 1, "enable": True, "hide": True,
        "iconColor": "rgba(0, 211, 255, 1)", "datasource": {"type": "grafana", "uid": "-- Grafana --"},
    }  # fmt: skip


def _alerts() -> Json:
    """A mark where an alert of severity page began to fire."""
    return {
        "name": "Pages", "enable": True, "hide": False, "iconColor": "red", "datasource": SOURCE,
        "expr": 'sum by (cluster) (increase(kilowatch_cluster_alerts{cluster=~"$cluster",state="firing",severity="page"}[1m])) > 0',
        "step": "30s", "titleFormat": "page", "textFormat": "{{cluster}}",
    }  # fmt: skip


CLUSTER = Variable("cluster", "Cluster", "kilowatch_cluster_nodes", "cluster")
NODE = Variable("node", "Node", "kilowatch_node_up", "node")
