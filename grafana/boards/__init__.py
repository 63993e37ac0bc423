"""The boards, one module each; to add one, write a module with `BOARD` and name it here."""

from __future__ import annotations

from grafana.board import Board
from grafana.boards import alerts, circuits, energy, fleet, gpu, itself, node

BOARDS: tuple[Board, ...] = (
    fleet.BOARD,
    node.BOARD,
    gpu.BOARD,
    circuits.BOARD,
    energy.BOARD,
    alerts.BOARD,
    itself.BOARD,
)
