"""Queries in InfluxQL. Fields are the catalogue's names; tags are cluster, node, gpu..."""

from __future__ import annotations

from collections.abc import Sequence

from grafana.dashboard import Variable
from grafana.sources import PanelQuery

CLUSTER = Variable("cluster", "Cluster", "node", "cluster")
NODE = Variable("node", "Node", "node", "node")
GPU = Variable("uuid", "GPU", "gpu", "uuid")
WHO = "{{node}} GPU {{gpu}}"
_EACH = {"gpu": ("node", "gpu"), "link": ("node", "gpu", "link"), "node": ("node",), "port": ("node", "port")}
_ONE = {"gpu": "uuid", "link": "uuid", "node": "node", "port": "id"}


def chosen(*tags: str) -> str:
    """Return a clause that limits a query to the values chosen above the dashboard."""
    return "".join(f' AND "{tag}" =~ /^${tag}$/' for tag in tags)


def _by(tags: Sequence[str]) -> str:
    return "".join(f', "{tag}"' for tag in tags)


def each(field: str, where: str, legend: str = "", *, function: str = "mean", table: str = "") -> PanelQuery:
    """Return a line for each device."""
    table = table or field.split("_", maxsplit=1)[0]
    text = (
        f'SELECT {function}("{field}") FROM "{table}" WHERE $timeFilter{where} '  # noqa: S608
        f"GROUP BY time($__interval){_by(_EACH[table])} fill(none)"
    )
    return PanelQuery(text, legend or (WHO if table == "gpu" else "{{node}}"))


def rate(field: str, where: str, legend: str = "") -> PanelQuery:
    """Return the growth of a counter a second, a line for each device."""
    table = field.split("_", maxsplit=1)[0]
    text = (
        f'SELECT non_negative_derivative(last("{field}"), 1s) FROM "{table}" WHERE $timeFilter{where} '  # noqa: S608
        f"GROUP BY time($__interval){_by(_EACH[table])} fill(none)"
    )
    return PanelQuery(text, legend or (WHO if table == "gpu" else "{{node}}"))


def over(
    outer: str, field: str, where: str, legend: str = "", *, by: Sequence[str] = (), inner: str = "mean"
) -> PanelQuery:
    """Return one figure over all devices at each time, or over those of each value of a tag."""
    table = field.split("_", maxsplit=1)[0]
    device = tuple(dict.fromkeys([_ONE[table], *by]))
    text = (
        f'SELECT {outer}("each") FROM (SELECT {inner}("{field}") AS "each" FROM "{table}" '  # noqa: S608
        f"WHERE $timeFilter{where} GROUP BY time($__interval){_by(device)} fill(none)) "
        f"GROUP BY time($__interval){_by(by)} fill(none)"
    )
    return PanelQuery(text, legend)


def newest(fields: dict[str, str], where: str, by: Sequence[str]) -> PanelQuery:
    """Return a row for each device with its newest values; `fields`: heading by field."""
    table = next(iter(fields)).split("_", maxsplit=1)[0]
    asked = ", ".join(f'last("{field}") AS "{heading}"' for field, heading in fields.items())
    tags = ", ".join(f'"{tag}"' for tag in by)
    return PanelQuery(
        f'SELECT {asked} FROM "{table}" WHERE $timeFilter{where} GROUP BY {tags}',  # noqa: S608
        table=True,
    )


def changes(field: str, where: str, legend: str = WHO) -> PanelQuery:
    """Return a state at each moment at which it changed."""
    table = field.split("_", maxsplit=1)[0]
    tags = ", ".join(f'"{tag}"' for tag in _EACH[table])
    return PanelQuery(
        f'SELECT "{field}" FROM "{table}_changes" WHERE $timeFilter{where} GROUP BY {tags}',  # noqa: S608
        legend,
    )
