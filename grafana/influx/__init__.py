"""The boards over InfluxDB: what is stored there, in InfluxQL, which 1.x, 2.x and 3.x understand.

Circuits, alerts and kilowatch itself are no readings and are not written there: their boards ask
Prometheus.
"""

from __future__ import annotations

from grafana.board import Board
from grafana.influx import energy, events, fleet, gpu, node

BOARDS: tuple[Board, ...] = (fleet.BOARD, node.BOARD, gpu.BOARD, energy.BOARD, events.BOARD)
