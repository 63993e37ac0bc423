"""A dashboard: variables, panels in their order, links to the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grafana.panels import WIDTH, Panel, PanelRow
from grafana.sources import PROMETHEUS, DataSource, Json

SCHEMA_VERSION = 41
TAG = "kilowatch"


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice above the dashboard, filled by a query of label values."""

    name: str
    label: str
    metric: str
    value_of: str
    """The label whose values are listed."""
    several: bool = True


@dataclass(frozen=True, slots=True)
class Entry:
    """A text field above the dashboard, for a number that no query returns."""

    name: str
    label: str
    value: str

    def json(self) -> Json:
        """Return it as Grafana reads it."""
        chosen = {"text": self.value, "value": self.value}
        return {
            "name": self.name, "label": self.label, "type": "textbox", "query": self.value,
            "current": chosen, "options": [chosen | {"selected": True}], "hide": 0,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard; its file has the name of its `uid`."""

    uid: str
    title: str
    text: str
    variables: Sequence[Variable]
    parts: Sequence[Panel | PanelRow]
    refresh: str = "10s"
    since: str = "now-1h"
    source: DataSource = PROMETHEUS
    entries: Sequence[Entry] = ()

    def json(self) -> Json:
        """Return the dashboard as Grafana reads it."""
        return {
            "uid": self.uid,
            "id": None,
            "title": self.title,
            "description": self.text,
            "tags": [tag_of(self.source)],
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
            "links": [_links(self.source)],
            "templating": {
                "list": [
                    _datasource(self.source),
                    *(_variable(each, self.source) for each in self.variables),
                    *(entry.json() for entry in self.entries),
                ]
            },
            "annotations": {"list": [_builtin(), *annotations(self)]},
            "panels": _placed(self.parts, self.source),
        }


def _placed(parts: Sequence[Panel | PanelRow], source: DataSource) -> list[Json]:
    """Return the panels with their places, filled in rows from left to right."""
    found: list[Json] = []
    x = y = height = 0
    for number, part in enumerate(parts, 1):
        if isinstance(part, PanelRow):
            y, x, height = y + height, 0, 0
            found.append({
                "id": number, "type": "row", "title": part.title, "collapsed": False, "panels": [],
                "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": y},
            })  # fmt: skip
            y += 1
            continue
        if x + part.width > WIDTH:
            y, x, height = y + height, 0, 0
        found.append(part.json(number, x, y, source))
        x, height = x + part.width, max(height, part.height)
    return found


def tag_of(source: DataSource) -> str:
    """Return the tag of the dashboards of one source, for the links between them."""
    return TAG if source is PROMETHEUS else f"{TAG}-{source.kind}"


def _datasource(source: DataSource) -> Json:
    return {
        "name": "datasource", "label": "Data source", "type": "datasource", "query": source.kind,
        "refresh": 1, "regex": "", "hide": 0, "multi": False, "includeAll": False, "options": [],
    }  # fmt: skip


def _variable(variable: Variable, source: DataSource) -> Json:
    return {
        "name": variable.name, "label": variable.label, "type": "query", "datasource": source.json,
        **source.choices(variable.name, variable.metric, variable.value_of),
        "refresh": 2, "sort": 7, "regex": "", "hide": 0, "options": [],
        "multi": variable.several, "includeAll": variable.several,
        **({"allValue": ".*", "current": {"text": "All", "value": "$__all"}} if variable.several else {}),
    }  # fmt: skip


def _links(source: DataSource) -> Json:
    return {
        "title": "kilowatch", "type": "dashboards", "tags": [tag_of(source)], "asDropdown": True, "icon": "external link",
        "includeVars": True, "keepTime": True, "targetBlank": False, "tooltip": "", "url": "",
    }  # fmt: skip


def _builtin() -> Json:
    return {
        "name": "Annotations & Alerts", "type": "dashboard", "builtIn": 1, "enable": True, "hide": True,
        "iconColor": "rgba(0, 211, 255, 1)", "datasource": {"type": "grafana", "uid": "-- Grafana --"},
    }  # fmt: skip


def annotations(dashboard: Dashboard) -> list[Json]:
    """Return the annotations of a dashboard: alerts that page, and XIDs."""
    names = {variable.name for variable in dashboard.variables}
    if dashboard.source is not PROMETHEUS:
        where = "".join(f' AND "{name}" =~ /^${name}$/' for name in ("cluster", "node") if name in names)
        text = f'SELECT "text" FROM "events"."events" WHERE $timeFilter AND "kind" = \'xid\'{where}'  # noqa: S608
        return [{
            "name": "XIDs", "enable": True, "hide": False, "iconColor": "purple",
            "datasource": dashboard.source.json, "query": text, "rawQuery": True, "textEditor": True,
            "fromAnnotations": True, "textColumn": "text", "tagsColumn": "node,gpu,code", "titleColumn": "",
            "timeEndColumn": "",
        }]  # fmt: skip
    chosen = ",".join(f'{name}=~"${name}"' for name in ("cluster", "node", "uuid") if name in names)
    cluster = 'cluster=~"$cluster",' if "cluster" in names else ""
    return [
        {
            "name": "Pages", "enable": True, "hide": False, "iconColor": "red", "datasource": dashboard.source.json,
            "expr": f'sum by (cluster, rule) (kilowatch_alerts{{{cluster}state="firing",severity="page"}}) > 0',
            "step": "30s", "titleFormat": "{{rule}}", "textFormat": "pages of {{cluster}}", "tagKeys": "rule",
        },
        {
            "name": "XIDs", "enable": True, "hide": False, "iconColor": "purple", "datasource": dashboard.source.json,
            "expr": f'kilowatch_event_timestamp_seconds{{{chosen}{"," if chosen else ""}kind="xid"}} * 1000',
            "useValueForTime": True,
            "step": "30s", "titleFormat": "XID {{code}}", "textFormat": "GPU {{gpu}} of {{node}}: {{fault}}",
            "tagKeys": "node,gpu",
        },
    ]  # fmt: skip


CLUSTER = Variable("cluster", "Cluster", "kilowatch_cluster_nodes", "cluster")
NODE = Variable("node", "Node", "kilowatch_node_up", "node")
