"""Exceptions of our own: each costs one rule, node, event, batch or text, and is said."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from aggregator.impairments import SHOWN, Impairments, LoopTurns
from aggregator.store.content_faults import MOST_FAULTS
from aggregator.store.executor import StoreExecutor
from aggregator.store.protocol import Batch, ContentError, Frames
from aggregator.store.stored_spans import StoredSpans
from alerts.config import AlertsConfig
from alerts.engine.recent_events import DisturbanceTracker
from alerts.engine.rule_evaluator import RuleEvaluator
from alerts.incidents.manager import IncidentManager
from alerts.rules.events import Happens
from alerts.rules.rule import load
from api.alerts import AlertState
from telemetry.errors import StoreError
from telemetry.fleet import Fleet
from telemetry.metric import Table
from telemetry.runtime.isolation import IDLE_SECONDS, Isolation, PartKind
from tests.aggregator.alerting_stack import Hall, calls
from tests.aggregator.feed import ARRIVAL, Feed
from tests.aggregator.test_service import config, running
from tests.brokers import Mosquitto


class FaultError(Exception):
    """A fault of our own."""


def raising(function: Callable[..., Any], when: Callable[..., bool]) -> Callable[..., Any]:
    """The function, raising where a condition on its arguments holds."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if when(*args, **kwargs):
            raise FaultError("put in by the test")
        return function(*args, **kwargs)

    return wrapped


def impaired(hall: Hall) -> set[tuple[str, str]]:
    """Rule and part of each impairment."""
    return {(one.rule, one.part) for one in hall.pipeline.impairments.current()}


# -- Rules -----------------------------------------------------------------------------------------


def test_a_rule_that_raises_costs_itself_and_misses_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """An XID 79 comes while its rule raises; another rule pages in the same tick, and it pages when it
    works again."""
    hall = Hall(3)
    hall.pass_by(3)
    step = RuleEvaluator.step
    with monkeypatch.context() as patch:
        patch.setattr(RuleEvaluator, "step", raising(step, lambda self, _: self.rule.name == "gpu_lost"))
        assert calls(hall.pass_by(1, hall.xid("n0", 0, 79))) == []
        assert ("rule_set_aside", "rule/gpu_lost") in impaired(hall)
        assert not any(one.whole for one in hall.pipeline.impairments.current())
        said = calls(hall.pass_by(5, hall.xid("n1", 0, 95)))
        assert any("n1" in title for title in said)
        assert any("can't evaluate the rule gpu_lost" in title for title in said)
    said = calls(hall.pass_by(20))
    assert any("n0" in title for title in said), said
    assert not hall.pipeline.engine.rules_aside.reasons()


def test_an_alert_goes_on_while_its_rule_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The alert is listed as it was, and resolves only when its rule sees it well."""
    hall = Hall(2)
    hall.pass_by(3)
    hall.pass_by(5, hall.xid("n0", 0, 79))
    keys = [one.key for one in hall.pipeline.alerts() if one.state is AlertState.FIRING]
    with monkeypatch.context() as patch:
        patch.setattr(
            RuleEvaluator,
            "step",
            raising(
                RuleEvaluator.step, lambda self, _: self.subject is not self.rule.table or self.rule.name == "gpu_lost"
            ),
        )
        hall.pass_by(30)
        still = [one.key for one in hall.pipeline.alerts() if one.state is AlertState.FIRING]
        assert set(keys) <= set(still)


def test_an_event_that_raises_costs_its_node_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules on events raise on one; the event of another node in the same tick pages."""
    hall = Hall(3)
    hall.pass_by(3)
    poison = hall.xid("n0", 0, 79)
    with monkeypatch.context() as patch:
        patch.setattr(Happens, "fits", raising(Happens.fits, lambda _, event: event is poison))
        said = calls(hall.pass_by(5, poison, hall.xid("n1", 1, 79)))
        assert any("n1" in title for title in said)
        assert ("node_set_aside", "node/n0") in impaired(hall)
        assert not any(rule == "rule_set_aside" for rule, _ in impaired(hall))
        assert any("can't evaluate, store or show the node n0" in title for title in said)
    assert any("n0 GPU 0" in title for title in calls(hall.pass_by(70)))


def test_a_tick_that_fails_as_a_whole_consumes_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its events are evaluated at the next; that the rules fail is a page within five seconds though
    they do not run."""
    hall = Hall(2)
    hall.pass_by(3)
    with monkeypatch.context() as patch:
        patch.setattr(hall.pipeline.engine, "_update_rows", raising(lambda _: [], lambda _: True))
        said = calls(hall.pass_by(5, hall.xid("n0", 0, 79)))
        assert any("can't evaluate its rules" in title for title in said)
        assert [one.whole for one in hall.pipeline.impairments.current()] == [True]
    assert any("n0" in title for title in calls(hall.pass_by(5)))


_BRIEF = """
[[rule]]
name = "brief"
when = { type = "event", kinds = ["xid"], xids = [12] }
keep = 1
severity = "page"
remediation = "reset"
summary = "{where}"
description = "Look."
runbook = "brief"
"""


def test_what_ends_and_begins_while_no_alert_can_be_grouped_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An end that was lost would leave the alert firing, and the next page of its GPU would ring nobody."""
    (tmp_path / "brief.toml").write_text(_BRIEF)
    hall = Hall(3, [rule for rule in load([tmp_path / "brief.toml"]) if rule.name == "brief"])
    hall.pass_by(3)
    assert calls(hall.pass_by(1.0, hall.xid("n0", 0, 12)) + hall.pass_by(1)) == ["n0 GPU 0"]
    (ending,) = [one.key for one in hall.pipeline.alerts() if one.state is AlertState.FIRING]
    with monkeypatch.context() as patch:
        patch.setattr(IncidentManager, "receive", raising(IncidentManager.receive, lambda *_: True))
        alone = calls(hall.pass_by(20, hall.xid("n1", 1, 12)))
        assert len([title for title in alone if "n1 GPU 1" in title]) == 1
        assert not [one for one in hall.pipeline.alerts() if one.state is AlertState.FIRING and one.rule == "brief"]
    hall.pass_by(30)
    assert hall.pipeline.manager.status(ending) is None
    assert any("n0 GPU 0" in title for title in calls(hall.pass_by(5, hall.xid("n0", 0, 12))))


def test_rules_that_fail_again_for_the_same_reason_are_paged_again() -> None:
    """Both worked in between."""
    hall = Hall(2)

    def failing() -> int:
        for second in range(5):
            hall.pipeline.page_without_rules("no memory", hall.now + second, hall.wall)
        return len([one for one in calls(hall.notices) if "can't evaluate its rules" in one])

    assert failing() == 1
    hall.pass_by(10)
    assert failing() == 2


def test_the_link_without_a_gpu_of_2026_costs_no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in 2026.1, an energy counter that goes back beside a node of no GPUs raises IndexError: every
    rule is evaluated all the same, at that tick and at all later ones."""
    hall = Hall(2)
    hall.pass_by(3)

    def watch(self: DisturbanceTracker, energy: Any, _: Any, now: float) -> None:
        back = np.zeros(len(energy), np.bool_)
        self._array(Table.LINK)[back[np.array([len(energy)])]] = now

    monkeypatch.setattr(DisturbanceTracker, "watch", watch)
    said = calls(hall.pass_by(5, hall.xid("n0", 0, 79)))
    assert any("n0" in title for title in said)
    assert ("rule_set_aside", "rule/disturbances") in impaired(hall)
    assert any("n1" in title for title in calls(hall.pass_by(5, hall.xid("n1", 0, 79))))


def test_an_alert_whose_text_raises_is_paged_with_a_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    hall = Hall(2)
    hall.pass_by(3)
    with monkeypatch.context() as patch:
        patch.setattr(
            RuleEvaluator, "alert", raising(RuleEvaluator.alert, lambda self, *_: self.rule.name == "gpu_lost")
        )
        said = calls(hall.pass_by(5, hall.xid("n0", 0, 79)))
        assert any("gpu_lost on n0" in title for title in said), said
        assert ("alerting_impaired", "text/gpu_lost") in impaired(hall)


def test_a_node_that_cannot_be_placed_keeps_its_alerts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows raise after an inventory; its alert goes on, and a neighbour's begins."""
    hall = Hall(3)
    hall.pass_by(3)
    hall.pass_by(3, hall.xid("n0", 0, 79))
    from alerts.engine import row_index

    with monkeypatch.context() as patch:
        patch.setattr(row_index, "_owners", raising(row_index._owners, lambda node, _: node.inventory.node == "n0"))
        hall.fleet.place(hall.placed["n0"].inventory)
        hall.pipeline.engine._row_index._placed.pop("n0")
        said = calls(hall.pass_by(5, hall.xid("n1", 0, 79)))
        assert any("n1" in title for title in said)
        assert ("node_set_aside", "node/n0") in impaired(hall)
        firing = [one.key for one in hall.pipeline.alerts() if one.state is AlertState.FIRING]
        assert any("/n0/" in key for key in firing)


# -- Ingest and store ------------------------------------------------------------------------------


def test_a_node_on_whose_frames_a_flush_raises_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its frames are missing, and are requested and stored when it works again."""
    from aggregator.ingest import batcher

    feed = Feed(tmp_path)
    for name in ("a", "b", "c"):
        feed.hello(name)
    assembled = batcher._assembled
    with monkeypatch.context() as patch:
        patch.setattr(
            batcher, "_assembled", raising(assembled, lambda found, _: any(one.node.name == "b" for one in found))
        )
        for name in ("a", "b", "c"):
            feed.send(name, 0)
        feed.commit()
        assert feed.fleet.nodes["a"].seq == feed.fleet.nodes["c"].seq == 0
        assert [one.part for one in feed.ingest.faults()] == ["node/b/ingest"]
        assert [feed.ingest.ledger.find(name, 1).missing for name in "abc"] == [0, 1, 0]  # type: ignore[union-attr]
    feed.now += 5
    feed.send("b", 1)
    feed.commit()
    assert feed.fleet.nodes["b"].seq == 1
    feed.send("b", 0)
    feed.commit()
    assert feed.ingest.ledger.missing == 0
    feed.store.close()


@pytest.mark.parametrize("how", ["removed", "silent"])
def test_a_node_that_is_set_aside_and_gone_is_not_listed_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    from aggregator.ingest import batcher

    feed = Feed(tmp_path)
    feed.hello("a")
    with monkeypatch.context() as patch:
        patch.setattr(batcher, "_assembled", raising(batcher._assembled, lambda *_: True))
        feed.send("a", 0)
        feed.flush()
    assert [one.part for one in feed.ingest.faults()] == ["node/a/ingest"]
    if how == "removed":
        feed.ingest.remove("a")
    else:
        feed.now += IDLE_SECONDS
        feed.ingest.expire(feed.now)
        assert [one.part for one in feed.ingest.faults()] == ["node/a/ingest"]
        feed.now += 2.0  # the pause before
        feed.ingest.expire(feed.now)
    assert list(feed.ingest.faults()) == []
    feed.store.close()


@pytest.mark.parametrize(
    "error", [OverflowError("too large for int32"), ContentError("conversion")], ids=["ours", "engine"]
)
async def test_content_that_cannot_be_written_costs_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """As B1: a number that no column can hold fails the transaction; the others' frames are stored, and
    what is lost of the node is recorded."""
    feed, lost = Feed(tmp_path), []
    executor = StoreExecutor(feed.store, feed.stats)
    executor.content.run_of = feed.ingest._registry.run_of
    executor.content.lost = lambda node, part, why: lost.append((node, len(part.frames), why))
    for name in ("a", "b", "c"):
        feed.hello(name)
        feed.send(name, 0, 1)
    feed.flush()
    write = feed.store.write

    def refuse(batch: Batch) -> int:
        if any(one.node == "b" for one in batch.inventories):
            raise error
        return write(batch)

    monkeypatch.setattr(feed.store, "write", refuse)
    assert await asyncio.wait_for(executor.write(feed.ingest.drain_batch(ARRIVAL), asyncio.Event()), 30)
    accounted = await executor.accounted()
    assert [len(accounted["a", 1]), len(accounted["c", 1])] == [2, 2]
    assert [node for node, *_ in lost] == ["b"]
    assert executor.content.aside.reasons().keys() == {"b"}
    await executor.close()


async def test_a_full_disk_sets_no_node_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store fails for every batch, and is waited for."""
    feed = Feed(tmp_path)
    executor = StoreExecutor(feed.store, feed.stats)
    feed.hello("a")
    feed.send("a", 0)
    feed.flush()
    left, write = [3], feed.store.write

    def full(batch: Batch) -> int:
        left[0] -= 1
        if left[0] >= 0:
            raise StoreError("no space left on device")
        return write(batch)

    monkeypatch.setattr(feed.store, "write", full)
    monkeypatch.setattr("aggregator.store.executor.FIRST_RETRY", 0.01)
    assert await executor.write(feed.ingest.drain_batch(ARRIVAL), asyncio.Event())
    assert not executor.content.aside.reasons()
    await executor.close()


async def test_a_fault_of_our_own_in_all_that_is_written_is_named_until_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No node is its cause, and the disk is none: neither says why nothing is stored."""
    feed = Feed(tmp_path)
    executor = StoreExecutor(feed.store, feed.stats)
    for number in range(2 * MOST_FAULTS):
        feed.hello(f"n{number}")
        feed.send(f"n{number}", 0)
    feed.flush()
    named: list[dict[str, str]] = []
    fresh = StoredSpans.fresh

    def failing(spans: StoredSpans, frames: Frames) -> Any:
        named.append(dict(executor.faults))
        if not executor.faults:
            raise IndexError("put in by the test")
        return fresh(spans, frames)

    monkeypatch.setattr(StoredSpans, "fresh", failing)
    monkeypatch.setattr("aggregator.store.executor.FIRST_RETRY", 0.01)
    assert await executor.write(feed.ingest.drain_batch(ARRIVAL), asyncio.Event())
    assert "IndexError: put in by the test" in named[-1]["commit"]
    assert executor.faults == {}
    assert not executor.content.aside.reasons()
    await executor.close()


# -- What is reported ------------------------------------------------------------------------------


def test_a_part_that_is_set_aside_is_tried_again_with_growing_pauses() -> None:
    aside = Isolation(PartKind.RULE)
    now, tries = 0.0, []
    while now < 300:
        if aside.due("hot", now):
            tries.append(now)
            aside.fail("hot", FaultError("again"), now)
        now += 1
    assert tries[:6] == [0, 1, 3, 7, 15, 31]
    assert tries[-1] - tries[-2] == 60
    assert aside.works("hot")
    assert not aside.reasons()


def test_a_fault_of_an_instant_is_listed_for_seconds() -> None:
    """So that whoever looks sees it, and its alert fires."""
    now = [100.0]
    impairments = Impairments(lambda: now[0], lambda: int(now[0] * 1e9))
    turns = LoopTurns(impairments)
    with turns.turn("flush", whole=True):
        raise FaultError("once")
    with turns.turn("flush", whole=True):
        pass
    (found,) = impairments.current()
    assert (found.rule, found.part, found.whole) == ("loop_failing", "task/flush", True)
    assert "once" in found.reason
    now[0] += SHOWN + 0.1
    assert impairments.current() == []


def test_a_turn_that_fails_with_each_message_asks_all_sources_once() -> None:
    """Ask again for another reason, and when it works again."""
    impairments, asked = Impairments(), list[str]()
    turns = LoopTurns(impairments)
    impairments.watch(lambda: asked.append(str(turns.reasons())) or ())
    for reason, number in (("first", 100), ("second", 100), ("", 2)):
        for _ in range(number):
            with turns.turn("message"):
                if reason:
                    raise FaultError(reason)
    assert ["first" in each for each in asked] == [True, False, False]
    assert ["second" in each for each in asked] == [False, True, False]


async def test_every_isolated_part_of_an_aggregator_is_reported_and_cleared(
    tmp_path: Path, mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every isolation has a source of impairments: without one it would fail in silence."""
    made: list[Isolation] = []
    begin = Isolation.__init__

    def noted(self: Isolation, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        made.append(self)

    monkeypatch.setattr(Isolation, "__init__", noted)
    power = {"region": "US", "circuits": {"office": {"breaker": 20, "nodes": ["rig"]}}}
    channels = {"pager": {"type": "webhook", "url": "http://localhost:9"}}
    wanted = msgspec.structs.replace(
        config(mosquitto.config, tmp_path), power=power, alerts=AlertsConfig(channels=channels)
    )
    async with running(wanted) as aggregator:
        impairments, told = aggregator.impairments, set()
        for isolation in [one for one in made if not isinstance(one, LoopTurns)]:
            kind = isolation._kind
            assert kind is not None
            isolation.fail("victim/x", FaultError("put in by the test"), time.monotonic())
            impairments.refresh()
            (found,) = [one for one in impairments.current() if "put in" in one.reason and not one.until]
            told.add((kind, found.rule))
            assert "victim" in found.part
            isolation.forget("victim/x")
            impairments.refresh()
            assert all(one.until for one in impairments.current() if "put in" in one.reason)
        by_reasons = {PartKind.QUALITY, PartKind.JOURNAL, PartKind.EVIDENCE, PartKind.LOOP}
        assert {kind for kind, _ in told} == set(PartKind) - by_reasons
        assert all(rule == kind.fault("x", "").rule for kind, rule in told)


def test_a_source_that_raises_hides_no_other_and_clears_nothing() -> None:
    impairments, isolations = Impairments(), [Isolation(PartKind.RULE), Isolation(PartKind.STORE)]
    broken: list[str] = []

    def raising_source() -> Any:
        yield from isolations[0].faults()
        if broken:
            raise FaultError("put in by the test")

    impairments.watch(raising_source, isolations[1].faults)
    isolations[0].fail("hot", "why", 0.0)
    impairments.refresh()
    isolations[0].works("hot")
    broken.append("now")
    isolations[0].fail("cold", "why", 0.0)
    isolations[1].fail("a", "why", 0.0)
    impairments.refresh()
    found = {one.part for one in impairments.current() if one.until is None}
    assert found == {"rule/hot", "rule/cold", "node/a/store", "task/report of faults"}
    isolations[0].works("cold")
    broken.clear()
    impairments.refresh()
    assert {one.part for one in impairments.current() if one.until is None} == {"node/a/store"}


def test_what_a_rule_does_not_report_any_more_is_cleared() -> None:
    now = [100.0]
    impairments = Impairments(lambda: now[0], lambda: int(now[0] * 1e9))
    impairments.update("node_set_aside", {"node/a/store": "why", "node/b": "too"})
    assert {one.facts.get("name") for one in impairments.current()} == {"a", "b"}
    now[0] += 10
    impairments.update("node_set_aside", {"node/b": "too"})
    assert [one.part for one in impairments.current()] == ["node/b"]


def test_a_fleet_without_a_node_shares_the_rows_of_the_others() -> None:
    from alerts.engine.isolation import FleetWithout

    hall = Hall(3)
    view = FleetWithout().of(hall.fleet, ["n1"])
    assert isinstance(view, Fleet)
    assert set(view.nodes) == {"n0", "n2"}
    assert view.matrices is hall.fleet.matrices
    assert view.version != hall.fleet.version
    assert {name for _, name in view.rows(Table.GPU)} == {"n0", "n2"}
