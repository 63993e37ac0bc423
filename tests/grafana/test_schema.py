"""The dashboards, read by Grafana's own types of release 11.6: what they do not know would be lost there.

Grafana publishes them as a package for those who write dashboards in Python; nothing else here uses it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard as GrafanaDashboard

from grafana.dashboard import Dashboard
from tests.grafana.dashboards import ALL

OF_THE_SOURCE = ".annotations.list[]"
"""What a mark asks is the data source's own business; the types leave it open."""
DEFINITION = ".templating.list[].definition"
"""What Grafana itself writes beside a variable's query; the types have forgotten it."""


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """What of ours is not in theirs, or otherwise; what is empty may be left out."""
    if isinstance(ours, dict):
        for name, value in ours.items():
            if name in theirs:
                yield from differences(value, theirs[name], f"{path}.{name}")
            elif value not in (None, [], {}, "", False):
                yield f"{path}.{name} is lost"
    elif isinstance(ours, list):
        if len(ours) != len(theirs):
            yield f"{path} has {len(theirs)} of {len(ours)}"
        for one, other in zip(ours, theirs, strict=False):
            yield from differences(one, other, f"{path}[]")
    elif ours != theirs:
        yield f"{path} is {theirs!r}, and was {ours!r}"


def lost(dashboard: dict[str, Any]) -> list[str]:
    """What Grafana's types make otherwise of a dashboard."""
    register_default_plugins()
    read = json.loads(JSONEncoder().encode(GrafanaDashboard.from_json(dashboard)))
    return [each for each in differences(dashboard, read) if not each.startswith((OF_THE_SOURCE, DEFINITION))]


@pytest.mark.parametrize("dashboard", ALL, ids=lambda dashboard: dashboard.uid)
def test_nothing_of_a_board_is_unknown_to_grafana(dashboard: Dashboard) -> None:
    made = json.loads(json.dumps(dashboard.json()))
    assert lost(made) == []
    made["panels"][0]["fieldConfig"]["defaults"]["colour"] = "red"
    assert lost(made) == [".panels[].fieldConfig.defaults.colour is lost"]
