"""View 9, the ports of a node and the band of roles: what they say, at narrow and wide terminals."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from api.alerts import Alert, AlertState, Severity, Subject
from api.device import NodePageReply, PortReply
from api.drift import Deviation, DriftReply, NodeGroup
from api.fitness import Fitness, FitnessReason, FitnessReply, FitnessSample, FitnessShare, FleetFitness, NodeFitness
from api.fleet import NodeReply, NodeStatus
from api.ports import PortGroup, PortLine, PortsReply
from telemetry.devices import Port
from tui.kit.theme import Line
from tui.screens.fleet import DRIFT, FITNESS, PORTS, fleet_lines, role_pieces
from tui.screens.node import node_lines, page_of
from tui.state.circuits import Now
from tui.state.dashboard_state import DashboardState

SAMPLES = [FitnessSample(n * 300 * 10**9, 100 - n % 20, 1, 0, 0, 0) for n in range(40)]
SCORE = FitnessReply(
    at=1,
    fleet=FleetFitness(
        score=92, states={"fit": FitnessShare(nodes=14), "out": FitnessShare(nodes=1)}, reasons={"page": 1}
    ),
    nodes=[
        NodeFitness(
            node="n15",
            role="gpu",
            state=Fitness.OUT,
            score=0,
            gpus=8,
            reasons=[FitnessReason(name="page", points=100, text="port_down")],
        ),
        NodeFitness(node="n1", role="gpu", state=Fitness.FIT, score=100, gpus=8),
    ],
    history=SAMPLES,
)
FABRIC = PortsReply(
    at=1,
    ports=96,
    groups=[
        PortGroup(kind="switch", name="leaf-3", nodes=12, ports=12, up=11, down=1, firing=1),
        PortGroup(kind="rail", name="2", nodes=12, ports=12, up=11, down=1, firing=1),
    ],
    lines=[
        PortLine(
            id="a",
            node="n15",
            name="mlx5_2/1",
            role="compute",
            rail=2,
            gpu=2,
            state="down",
            up=False,
            pages=1,
            switch="leaf-3",
            switch_port="1/14",
        ),
        PortLine(id="b", node="n1", name="mlx5_0/1", state="active", up=True),
    ],
)
DEVIATING = DriftReply(
    at=1,
    nodes=15,
    groups=[
        NodeGroup(
            name="DGX H100",
            nodes=15,
            evaluated=True,
            deviations=[Deviation(node="n9", fact="driver", has="570", most_have="580", nodes=14, of=15)],
        )
    ],
)


def text(lines: list[Line]) -> str:
    return "\n".join("".join(words for words, _ in line) for line in lines)


def state_of() -> DashboardState:
    state = DashboardState()
    for path, value in ((FITNESS, SCORE), (PORTS, FABRIC), (DRIFT, DEVIATING)):
        state = state.with_doc(path, value, 1.0)
    return state


@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 50), (300, 100)])
def test_the_fleet_is_told_with_its_score_history_fabric_and_drift(width: int, height: int) -> None:
    lines = fleet_lines(state_of(), width, height, utc=True)
    shown = text(lines)
    for words in (
        "fitness 92 of 100",
        "Fitness  3",
        "n15",
        "port_down",
        "leaf-3",
        "mlx5_2/1",
        "driver: 570, should be 580",
    ):
        assert words in shown
    assert "mlx5_0/1" not in shown  # it is well
    assert "\n2 " not in shown  # switches are known: rails are not needed
    assert max(cell_len(row) for row in shown.split("\n")) <= width


def test_without_an_answer_the_view_says_so_and_invents_nothing() -> None:
    shown = text(fleet_lines(DashboardState(), 100, 40, utc=True))
    assert shown.count("loading …") == 3  # score, fabric, drift
    nothing = DashboardState().with_doc(PORTS, PortsReply(at=1, ports=0), 1.0)
    assert "no node has told of a port" in text(fleet_lines(nothing, 100, 40, utc=True))


def test_a_node_shows_its_ports_with_role_rate_errors_and_far_end() -> None:
    def port(number: int, **readings: float) -> PortReply:
        its = Port(
            id=f"port:n1:{number}/1",
            adapter=f"mlx5_{number}",
            number=1,
            role="compute",
            rail=number,
            switch="leaf-1",
            switch_port="7",
        )
        return PortReply(its, {f"port_{word}": value for word, value in readings.items()})

    fault = Alert(
        key="port_down/n1/port:n1:0/1",
        rule="port_down",
        state=AlertState.FIRING,
        severity=Severity.PAGE,
        node="n1",
        subject=Subject.PORT,
        summary="down",
    )
    page = NodePageReply(
        at=1,
        node=NodeReply("n1", NodeStatus.ONLINE),
        alerts=[fault],
        ports=[port(0, state=1), port(1, state=4, speed_bytes_per_second=50e9, symbol_errors_total=3), port(2)],
    )
    state = DashboardState().with_doc(page_of("n1"), page, 1.0)
    drawn = node_lines(state, "n1", 900, 100, 40, Now(0.0), utc=True)
    shown = text(drawn)
    rows = {line[0][0].strip(): line for line in drawn if line and line[0][0].startswith("mlx5_")}
    assert [rows["mlx5_0/1"][4], rows["mlx5_1/1"][5][0].strip()] == [("down         ", "crit"), "400 Gb/s"]
    assert rows["mlx5_1/1"][6][0].strip() == "3"
    assert rows["mlx5_2/1"][4][1] == "stale"  # not known is not down, and not well
    assert "leaf-1 7" in shown


def test_nodes_without_gpus_have_a_band_by_role() -> None:
    def node(name: str, role: str, gpus: int, status: NodeStatus = NodeStatus.ONLINE) -> NodeReply:
        return NodeReply(name, status, gpus=gpus, role=role)

    nodes = [node("h", "head", 0), node("s1", "storage", 0), node("s2", "storage", 0, NodeStatus.STALE),
             node("g", "gpu", 8)]  # fmt: skip
    state = DashboardState(nodes=tuple(nodes))
    band = "".join(words for part in role_pieces(state, all_roles=False) for words, _ in part)
    assert band == "head 1  storage 2 (1 silent)  "
    every = "".join(words for part in role_pieces(state, all_roles=True) for words, _ in part)
    assert "gpu 1" in every
