"""A node, and how the fleet is, are worded once: golden texts, and the faces that lay them out."""

from __future__ import annotations

import html
import re

import pytest
from msgspec.structs import replace

from aggregator.web.fleet_pages import drift_body, fitness_body
from aggregator.web.node_list import NodeLine, nodes_body
from api.device import NodePageReply
from api.drift import Deviation, DriftReply, MixedFact, NodeGroup
from api.fitness import FitnessReply, FitnessShare, FleetFitness
from api.fleet import NodeReply, NodeStatus
from api.node_register import RegisterReply, RegisterRow, RegisterState, ReleaseDrift
from kilowatch.text.drift import drift_lines
from kilowatch.text.nodes import node_lines as register_lines
from present.device.node import driver_row, firing, frame_row, gpus_row, now_rows, release_row, role_row, state_row
from present.fleet.drift import deviation_cells, group_row, mixed_values, unknown_row
from present.fleet.fitness import fitness_row, reasons
from tests.present import golden
from tests.tui.test_lines import line_text
from tui.screens.fleet import fleet_lines
from tui.screens.node import node_lines
from tui.state.circuits import Now
from tui.state.dashboard_state import DashboardState
from tui.state.fitness import fitness_line

WELL = NodeReply(
    node="dgx-01",
    state=NodeStatus.ONLINE,
    age_seconds=0.4,
    gpus=8,
    gpus_present=8,
    role="gpu",
    driver_state="up",
    driver_version="580.65",
    release="2026.2",
)
NODES = {
    "well": WELL,
    "its frames do not arrive": replace(WELL, state=NodeStatus.STALE, age_seconds=34.0),
    "gone for an hour": replace(WELL, state=NodeStatus.OFFLINE, age_seconds=3600.0),
    "unheard, and never seen": replace(WELL, state=NodeStatus.UNHEARD, age_seconds=None, release=""),
    "without a driver, two GPUs gone": replace(
        WELL, driver_state="missing", driver_version=None, driver_message="load the module nvidia", gpus_present=6
    ),
    "a driver that hangs": replace(WELL, driver_state="hung", driver_message="reboot it"),
    "a storage node": replace(WELL, role="storage", gpus=0, gpus_present=0, driver_version=None, driver_state="none"),
    "of an unknown role": replace(WELL, role="", gpus=0, gpus_present=0, driver_version=None, driver_state=""),
}
NOW = {
    "node_memory_total_bytes": 512 * 2.0**30, "node_memory_available_bytes": 472 * 2.0**30, "node_uptime_seconds": 3e5,
    "node_wall_power_watts": 5124.0, "node_cpu_utilization_ratio": 0.124, "node_load_1m": 3.21,
}  # fmt: skip
GROUPS = {
    "two of ten": NodeGroup(
        name="DGXH100, NVIDIA H100", nodes=10, evaluated=True, declared=2, mixed=[MixedFact(fact="bios", values={"1.2": 5, "1.3": 5})],
        deviations=[Deviation(node="n7", fact="driver", has="570", most_have="580", nodes=9, of=10),
                    Deviation(node="n8", fact="gpus", has="7", most_have="8", nodes=0, of=0, declared=True)],
        unknown={"memory": 2},
    ),
    "alike": NodeGroup(name="A", nodes=6, evaluated=True),
    "too few": NodeGroup(name="", nodes=1, evaluated=False),
    "too few, and as declared": NodeGroup(name="B", nodes=2, evaluated=False, declared=2),
}  # fmt: skip
FLEET = FleetFitness(
    score=63, currency="EUR", reasons={"ticket": 1, "silent": 1},
    states={"fit": FitnessShare(nodes=1200, cost_per_hour=2.104), "degraded": FitnessShare(nodes=1, cost_per_hour=1234.5), "out": FitnessShare(), "not known": FitnessShare(nodes=1)},
)  # fmt: skip


def words_of(body: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


def test_every_fact_of_a_node_reads_as_kept() -> None:
    """Of its page and of lists, and what it does now."""
    blocks = {
        name: golden.told([
            state_row(one), frame_row(one.age_seconds), role_row(one.role), gpus_row(one.gpus, one.gpus_present, one.role),
            driver_row(one.driver_version, one.driver_state, one.driver_message, one.role), release_row(one.release),
        ])
        for name, one in NODES.items()
    }  # fmt: skip
    drifts = [release_row("2026.1", each) for each in ReleaseDrift]
    golden.check("node", {**blocks, "now": golden.told(now_rows(NOW.get)), "nothing read": golden.told(now_rows(lambda _: None)),
                          "releases": golden.told(drifts), "alerts": [words for _, words in firing(1, 1200)]})  # fmt: skip


def test_the_fleet_reads_as_kept() -> None:
    """Its score with its states, and who differs."""
    drift = {name: [*golden.told([group_row(one)]), *(" | ".join(deviation_cells(each)) for each in one.deviations),
                    *map(mixed_values, one.mixed), *golden.told([unknown_row(one)])] for name, one in GROUPS.items()}  # fmt: skip
    score = [*golden.told([fitness_row(FLEET), fitness_row(None)]), reasons(FLEET)]
    golden.check("fleet", {"fitness": score, **drift})


@pytest.mark.parametrize("name", NODES)
def test_the_faces_say_the_same_of_a_node(name: str) -> None:
    """The web's list, the command's register and the terminal's page; each has its rows, and its own form."""
    one = NODES[name]
    page = NodePageReply(at=1, node=one, readings=NOW)
    state = DashboardState().with_doc("api/v1/nodes/dgx-01", page, 0.0)
    terminal = words_of("\n".join(map(line_text, node_lines(state, "dgx-01", 900, 4000, 9, Now(0.0), utc=True))))
    web = words_of(nodes_body([NodeLine(one, None, None, 0, 0, ReleaseDrift.OLDER)], {}, 1))
    row = RegisterRow(
        node="dgx-01",
        state=RegisterState(one.state),
        role=one.role,
        release=one.release,
        age_seconds=one.age_seconds,
        drift=ReleaseDrift.OLDER,
    )
    command = " ".join(register_lines(RegisterReply(1, "2026.3", [row]))[1].split())
    assert state_row(one).value in terminal
    assert driver_row(one.driver_version, one.driver_state, one.driver_message).whole in terminal
    assert frame_row(one.age_seconds).short in terminal
    for each in (state_row(one), frame_row(one.age_seconds), role_row(one.role), release_row(one.release)):
        assert each.value in web
        assert each.value in command or each.value == "—"
    assert gpus_row(one.gpus, one.gpus_present, one.role).value in web


@pytest.mark.parametrize("name", GROUPS)
def test_the_three_faces_say_the_same_of_who_differs(name: str) -> None:
    group = GROUPS[name]
    reply = DriftReply(at=1, nodes=9, groups=[group])
    state = DashboardState().with_doc("api/v1/drift", reply, 0.0)
    faces = (
        words_of(drift_body(reply)),
        " ".join(" ".join(drift_lines(reply)).split()),
        " ".join(" ".join(line_text(line) for line in fleet_lines(state, 159, 60, utc=True)).split()),
    )
    for face in faces:
        assert f"{group_row(group).note}, {group_row(group).value}" in face
        for node, fact, has, wanted, _ in map(deviation_cells, group.deviations):
            assert all(word in face for word in (node, fact, has, wanted))
        for mixed in group.mixed:
            assert mixed_values(mixed) in face


def test_the_faces_say_the_same_of_the_score() -> None:
    row = fitness_row(FLEET)
    assert fitness_line(FLEET) == f"fitness {row.value}: {row.note}; {reasons(FLEET)}"
    assert row.value in words_of(fitness_body(FitnessReply(at=1, fleet=FLEET)))
