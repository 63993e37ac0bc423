"""Rates among peers over a restart of the aggregator: the growth of before counts on."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from aggregator.alerting import rule_memory
from alerts.engine.engine import RuleEngine
from alerts.engine.kept_memory import KeptMemory
from alerts.rules.rule import Rule, load
from api.alerts import AlertState
from telemetry.fleet import Fleet
from telemetry.metric import Table
from tests.alerts.test_engine import Plant

STEP = 10.0
WINDOW = 1800.0
NAMES = {"pcie_outlier": "gpu_pcie_replays_total", "nvlink_outlier": "link_crc_errors_total"}
RULES = [
    msgspec.structs.replace(rule, hold=0.0, keep=0.0, load=None)
    for rule in load()
    if getattr(rule.when, "window", 0) == WINDOW and rule.when.metric in NAMES.values()  # type: ignore[union-attr]
]
"""Rules that compare rates of half an hour, without their hold times."""
BAD = "GPU-a0"


class Rated(Plant):
    """Two nodes of eight GPUs under load, the counters of one of which a test lets grow."""

    def __init__(self, rules: list[Rule] = RULES) -> None:
        super().__init__()
        self.rules = rules
        self.engine = RuleEngine(rules)
        self.count = 0.0
        for node in "ab":
            self.add(node, [f"GPU-{node}{number}" for number in range(8)])
            for number in range(8):
                uuid = f"GPU-{node}{number}"
                self.wrong[uuid] = {"gpu_utilization_ratio": 0.9, "gpu_pcie_replays_total": 5.0}
                self.wrong[f"{uuid}/0"] = {
                    "link_crc_errors_total": 5.0,
                    "link_replays_total": 5.0,
                    "link_recoveries_successful_total": 0.0,
                }

    def grow(self, seconds: float, each: float) -> None:
        """Let time pass in which the counters of one GPU grow by so much a second."""
        for _ in range(round(seconds / STEP)):
            self.count += each * STEP
            self.wrong[BAD]["gpu_pcie_replays_total"] = 5.0 + self.count
            self.wrong[f"{BAD}/0"]["link_crc_errors_total"] = 5.0 + self.count / 2
            self.tick(seconds=STEP)

    def fires(self) -> set[str]:
        """Return the rules that fire, each for the GPU whose counters grow."""
        firing = [one for one in self.engine.alerts() if one.state is AlertState.FIRING]
        assert {one.gpu for one in firing} <= {BAD}
        return {one.rule for one in firing}

    def restart(self, away: float, *, kept: bool = True, turned: bool = False) -> int:
        """Let another engine go on after some seconds, perhaps with the nodes in other rows."""
        memory = self.engine.keep_memory(self.wall).kept()
        body = msgspec.msgpack.encode(memory)
        self.now += away
        if turned:
            nodes = [node.inventory for node in self.fleet.nodes.values()]
            self.fleet = Fleet()
            for inventory in reversed(nodes):
                self.fleet.place(inventory)
        self.engine = RuleEngine(self.rules)
        wall = self.wall
        self.now += 5e6  # another machine's monotonic clock
        shift = self.now
        self.engine.recall(self.fleet, [], shift, wall)
        if not kept:
            return 0
        decoded = msgspec.msgpack.decode(body, type=KeptMemory)
        return self.engine.resume_memory(decoded, shift, wall)


@pytest.fixture
def names() -> set[str]:
    """Return the rules of this module; both tables are among them."""
    found = {rule.name for rule in RULES}
    assert {rule.table.value for rule in RULES} == {"gpu", "link"}
    return found


@pytest.mark.parametrize("turned", [False, True], ids=["same rows", "other rows"])
def test_growth_of_before_a_restart_counts_on(names: set[str], turned: bool) -> None:
    """Half of it before and half after, neither of which is enough."""
    plant = Rated()
    plant.grow(2 * WINDOW, 0.0)
    plant.grow(800, 0.03)
    assert plant.fires() == set()
    assert plant.restart(60, turned=turned) == len(names)
    assert plant.fires() == set()
    plant.grow(800, 0.03)
    assert plant.fires() == names


def test_without_its_memory_the_growth_begins_anew() -> None:
    """The proof that the test above needs the memory."""
    plant = Rated()
    plant.grow(2 * WINDOW, 0.0)
    plant.grow(800, 0.03)
    plant.restart(60, kept=False)
    plant.grow(800, 0.03)
    assert plant.fires() == set()


def test_growth_while_the_aggregator_was_away_counts_when_it_was_short() -> None:
    """As in any gap: it is known over which time the counter grew, unless that is longer than a window."""
    for away, expected in ((300.0, True), (2 * WINDOW, False)):
        plant = Rated()
        plant.grow(2 * WINDOW, 0.0)
        plant.restart(away)
        plant.count = 200.0
        plant.grow(2 * STEP, 0.0)
        assert bool(plant.fires()) is expected, away


def test_a_changed_condition_or_another_board_has_nothing_of_it() -> None:
    """The memory is of this condition, and of the device on this node."""
    plant = Rated()
    plant.grow(2 * WINDOW, 0.0)
    plant.grow(800, 0.03)
    plant.rules = [
        msgspec.structs.replace(rule, when=msgspec.structs.replace(rule.when, window=1801.0)) for rule in RULES
    ]
    assert plant.restart(60) == 0
    other = Rated()
    other.grow(2 * WINDOW, 0.0)
    other.grow(800, 0.03)
    kept = other.engine.keep_memory(other.wall).kept()
    fresh = Plant()
    fresh.add("c", ["GPU-a0"])
    fresh.engine = RuleEngine(RULES)
    fresh.engine.recall(fresh.fleet, [], fresh.now, fresh.wall)
    fresh.engine.resume_memory(kept, fresh.now, fresh.wall)
    for evaluator in fresh.engine._evaluators:
        memory = evaluator.memory.part(0)
        assert evaluator.subject.table in {Table.GPU, Table.LINK}
        assert not np.isfinite(memory.array("last", np.float64, np.nan)).any()


def test_the_file_is_read_again_and_a_damaged_one_costs_only_the_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plant = Rated()
    plant.grow(WINDOW, 0.01)
    copy = plant.engine.keep_memory(plant.wall)
    kept = copy.kept()
    assert rule_memory.load(tmp_path) is None
    rule_memory.save(tmp_path, copy)
    assert rule_memory.load(tmp_path) == kept
    path = tmp_path / rule_memory.NAME
    whole = path.read_bytes()
    for body in (whole[:-200], b"", b"no archive", whole[:50] + b"\0" * 50):
        path.write_bytes(body)
        assert rule_memory.load(tmp_path) is None
    assert "counted anew" in caplog.text
    short = msgspec.structs.replace(
        kept.rules[0], arrays=[{name: body[:-4] for name, body in one.items()} for one in kept.rules[0].arrays]
    )
    damaged = msgspec.structs.replace(kept, rules=[short, *kept.rules[1:]])
    again = Rated()
    again.engine.recall(again.fleet, [], again.now, again.wall)
    assert again.engine.resume_memory(damaged, again.now, again.wall) == len(kept.rules) - 1
