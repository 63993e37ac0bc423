"""Data sources: the form of their queries, and of the queries that fill variables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """A query of a panel, in the language of its dashboard's source."""

    expr: str
    legend: str = ""
    """With `{{label}}` for the labels of a series."""
    table: bool = False
    """The newest value of each series as a row, instead of lines over time."""


@dataclass(frozen=True, slots=True)
class DataSource:
    """A kind of data source."""

    kind: str
    """Grafana's name of it."""

    @property
    def json(self) -> Json:
        """The one that is chosen above the dashboard."""
        return {"type": self.kind, "uid": "${datasource}"}

    def target(self, query: PanelQuery, place: int) -> Json:
        """Return a query as Grafana reads it."""
        name = {"refId": chr(ord("A") + place), "datasource": self.json}
        if self.kind == "prometheus":
            return name | {
                "editorMode": "code",
                "expr": query.expr,
                "legendFormat": query.legend or "__auto",
                "instant": query.table,
                "range": not query.table,
                "format": "table" if query.table else "time_series",
            }
        return name | {
            "rawQuery": True,
            "query": query.expr,
            "alias": re.sub(r"\{\{(\w+)\}\}", r"$tag_\1", query.legend),
            "resultFormat": "table" if query.table else "time_series",
        }

    def choices(self, name: str, metric: str, label: str) -> Json:
        """Return the query that lists the values of a label (a tag) for a variable."""
        if self.kind == "prometheus":
            before = metric if name == "cluster" else f'{metric}{{cluster=~"$cluster"}}'
            text = f"label_values({before}, {label})"
            return {"query": {"query": text, "refId": name}, "definition": text}
        where = "" if name == "cluster" else ' WHERE "cluster" =~ /^$cluster$/'
        text = f'SHOW TAG VALUES FROM "{metric}" WITH KEY = "{label}"{where}'
        return {"query": text, "definition": text}


PROMETHEUS = DataSource("prometheus")
INFLUXDB = DataSource("influxdb")
