"""The order of the GPUs on the map: by rack, circuit, job, or by what they do. Pure."""

from __future__ import annotations

import numpy as np

from tui.board import Board
from tui.gpus import natural
from tui.kit.grid import Grid, Zoom, lay_out
from tui.metrics import METRICS, group_names


def placed(
    board: Board, group: str, metric: str, zoom: Zoom | None, width: int, height: int
) -> Grid:
    """Place the GPUs of a board. `metric`: by which they stand where the group is `value`."""
    order = board.gpus.order
    names = group_names(board, group)
    known = list(dict.fromkeys(names[row] for row in order.tolist()))
    if group not in {"value", "node"}:
        known.sort(key=lambda name: (name.startswith("no "), natural(name)))
    number = {name: n for n, name in enumerate(known)}
    groups = np.array([number[names[row]] for row in order.tolist()], np.intp)
    if group == "value":
        values = METRICS[metric if metric in METRICS else "power"].values(board)[order]
        place = np.argsort(np.where(np.isnan(values), np.inf, -values), kind="stable")
    else:
        place = np.argsort(groups, kind="stable")
    order, groups = order[place], groups[place]
    homes = {node: n for n, node in enumerate(dict.fromkeys(board.gpus.who.node))}
    node = np.array([homes[board.gpus.who.node[row]] for row in order.tolist()], np.intp)
    return lay_out(order, node, groups, known, width, height, zoom)
