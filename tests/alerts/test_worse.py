"""A fault that gets worse rings again, whoever has acknowledged the milder one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from alerts.incidents.policy import RulePolicy, RuleScope
from alerts.notice import Notice
from alerts.rules.rule import read
from api.alerts import Action, Alert, Remediation, Severity
from collector.simulated import Scenario, SimulatedSource, scenario
from collector.source import Rows
from telemetry.errors import ConfigError
from telemetry.metric import Lane
from telemetry.wire.schema import SCHEMA
from tests.alerts.deliveries import ManagerHarness, alert, described
from tests.alerts.scenes import RULES, Scene
from tests.alerts.test_scenes import CALM, roomy


class Wishing(SimulatedSource):
    """A healthy node whose first GPU asks for what a test says."""

    def __init__(self, scenario: Scenario, node: str) -> None:
        super().__init__(scenario, node)
        self.wish: dict[str, float] = {}

    async def read(self, lanes: frozenset[Lane], tick: int, now_ns: int, deadline: float) -> Rows:
        """Read the simulated values, and put the wishes in their place."""
        rows = await super().read(lanes, tick, now_ns, deadline)
        for number, table in rows.items():
            for column, name in enumerate(SCHEMA.blocks[number].names):
                if name in self.wish:
                    table[0][column] = self.wish[name]
        return rows


class Watched(Scene):
    """A node that is wished for, and what its people were told."""

    def __init__(self, folder: Path) -> None:
        simulated = scenario("two-dgx-h100", faults="", links=False)
        self.sources = {name: Wishing(simulated, name) for name in simulated.nodes}
        super().__init__(self.sources, roomy(simulated), folder)

    async def wish(self, action: int, seconds: int = 150, **beside: float) -> list[Notice]:
        """Let the first GPU ask for an action for some time; return what people are told meanwhile."""
        before = len(self.notices)
        self.sources["dgx-01"].wish = {"gpu_recovery_action": action, **beside}
        await self.play(seconds, every=5)
        return self.notices[before:]

    def acknowledge(self, notice: Notice) -> None:
        """Have a person acknowledge an incident."""
        self.pipeline.manager.acknowledge(
            notice.incident.key, who="ann", why="", until=None, now=self.now, wall_ns=self.wall
        )


@pytest.fixture
async def scene(tmp_path: Path) -> Watched:
    found = Watched(tmp_path)
    await found.play(CALM, every=15)
    assert found.notices == []
    return found


def triggers(notices: list[Notice]) -> list[tuple[Severity, str]]:
    """Severity and title of each incident that calls somebody, once."""
    return [(one.incident.severity, one.incident.title) for one in notices if one.action is Action.TRIGGER]


async def test_a_worse_remedy_pages_beside_the_acknowledged_one(scene: Watched) -> None:
    [(severity, title)] = triggers(reset := await scene.wish(1))
    assert severity is Severity.PAGE
    assert "gpu reset" in title
    scene.acknowledge(reset[0])
    worse = await scene.wish(2)
    [(severity, title)] = triggers(worse)
    assert severity is Severity.PAGE
    assert "node reboot" in title
    assert not [one for one in worse if one.action is Action.RESOLVE], "the first is not over"
    assert triggers(await scene.wish(6) + await scene.wish(1) + await scene.wish(2)) == []
    over = await scene.wish(0, 600)
    assert [one.action for one in over if one.action is Action.RESOLVE] == [Action.RESOLVE] * 2


async def test_an_alert_of_before_a_change_of_the_order_still_gets_worse(scene: Watched) -> None:
    """Its record has a word that the rule's file no longer has."""
    await scene.wish(1)
    [own] = [one for one in scene.pipeline.engine._evaluators if one.part == "recovery_action"]
    own._causes = {row: cause._replace(faults=("gone",)) for row, cause in own._causes.items()}
    [(_, title)] = triggers(await scene.wish(2))
    assert "node reboot" in title
    assert not scene.pipeline.engine.rules_aside.reasons()


async def test_two_wishes_before_the_first_page_are_one_page(scene: Watched) -> None:
    assert triggers(await scene.wish(1, 30)) == []
    [(_, title)] = triggers(await scene.wish(2))
    assert "node reboot" in title


IDLE = {"gpu_processes": 0.0, "gpu_utilization_ratio": 0.0}


async def test_a_worse_remedy_of_an_idle_gpu_is_a_further_ticket(scene: Watched) -> None:
    [(severity, title)] = triggers(await scene.wish(1, **IDLE))
    assert (severity, "gpu reset" in title) == (Severity.TICKET, True)
    [(severity, title)] = triggers(await scene.wish(7, **IDLE))
    assert (severity, "system reboot" in title) == (Severity.TICKET, True)


def ticket(rule: str, gpu: str, remediation: Remediation) -> Alert:
    """Return a ticket of a rule of which nothing but its remedy is known."""
    one = alert(rule, gpu=gpu, severity=Severity.TICKET)
    return msgspec.structs.replace(one, remediation=remediation)


@pytest.mark.parametrize(
    ("gpu", "remediation", "called"),
    [
        ("GPU-a", Remediation.RESET, 1),
        ("GPU-a", Remediation.APPLICATION, 1),
        ("GPU-a", Remediation.REPLACE, 2),
        ("GPU-b", Remediation.RESET, 2),
    ],
)
def test_a_ticket_within_the_minute_is_heard_where_it_is_news(gpu: str, remediation: Remediation, called: int) -> None:
    """Another rule on the same GPU with the same remedy is named in an update: it is the same cause."""
    harness = ManagerHarness({name: RulePolicy(group=RuleScope.NODE) for name in ("first", "second")})
    harness.tick(ticket("first", "GPU-a", Remediation.RESET))
    harness.wait(20)
    assert described(harness.sent) == ["trigger new"]
    harness.tick(ticket("second", gpu, remediation))
    harness.wait(400)
    assert described(harness.sent).count("trigger new") == called
    assert (described(harness.sent)[-1] == "update more") == (called == 1)


def test_tickets_of_a_quarter_of_a_minute_are_one() -> None:
    harness = ManagerHarness({name: RulePolicy(group=RuleScope.NODE) for name in ("first", "second")})
    harness.tick(ticket("first", "GPU-a", Remediation.RESET))
    harness.wait(5)
    harness.tick(ticket("second", "GPU-b", Remediation.REPLACE))
    harness.wait(60)
    assert described(harness.sent) == ["trigger new"]


def test_an_order_names_each_value_of_the_rule_once(tmp_path: Path) -> None:
    [rule] = [one for one in RULES if one.name == "recovery_action"]
    assert rule.worse == (1, 6, 2, 7)
    text = """
[[rule]]
name = "mine"
when = { type = "in", metric = "gpu_recovery_action", values = [1, 2] }
worse = [1, 3]
severity = "page"
remediation = "reset"
summary = "s"
description = "d"
runbook = "r"
"""
    file = tmp_path / "rules.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="puts in order the values"):
        read(file)
    file.write_text(text.replace("[1, 3]", "[2, 1]"))
    assert read(file)[0].worse == (2, 1)
