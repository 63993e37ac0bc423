"""What tests read out of a board: its panels, and its queries with the variables filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from grafana.boards import BOARDS

Json = dict[str, Any]


def panels() -> Iterator[tuple[str, Json]]:
    """Every panel that draws something, with the title of its board."""
    for board in BOARDS:
        for panel in board.json()["panels"]:
            if panel["type"] != "row":
                yield board.title, panel


def queries() -> Iterator[tuple[str, str]]:
    """Every query of every panel, with where it stands."""
    for board, panel in panels():
        for target in panel["targets"]:
            yield f"{board}: {panel['title']} {target['refId']}", filled(target["expr"])


def filled(expr: str) -> str:
    """Put values in the place of Grafana's variables."""
    expr = expr.replace("$__rate_interval", "15s").replace("$__range", "1h")
    return re.sub(r"\$(?:\{\w+\}|\w+)", ".*", expr)


METRIC = re.compile(r"\bkilowatch_[a-z0-9_]+")
