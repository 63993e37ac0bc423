"""The screens: each is a view in a file of its own (`tui.screens.view`).

To add one: write `tui/screens/NAME.py` with a class of `View`, `ListView` or `PageView`, and name
it here. The first nine are reached by `1` to `9`.
"""

from __future__ import annotations

from tui.screens.alerts import AlertsView
from tui.screens.circuit import CircuitView
from tui.screens.circuits import CircuitsView
from tui.screens.compare import CompareView
from tui.screens.energy import EnergyView
from tui.screens.fleet import FleetView
from tui.screens.gpu import GpuView
from tui.screens.incident import IncidentView
from tui.screens.jobs import JobsView, JobView
from tui.screens.lists import GpusView, NodesView
from tui.screens.node import NodeView
from tui.screens.overview import Overview
from tui.screens.pools import PoolsView
from tui.screens.view import View

VIEWS: dict[str, type[View]] = {
    view.NAME: view
    for view in (
        Overview, NodesView, GpusView, CircuitsView, AlertsView,
        PoolsView, EnergyView, JobsView, FleetView,
        GpuView, NodeView, CircuitView, IncidentView, CompareView, JobView,
    )
}  # fmt: skip
