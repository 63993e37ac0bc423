"""Rules to pages in one process: evaluated, stored, sent, and the same after a restart."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from aggregator.alerting import rule_memory, service
from aggregator.alerting.pipeline import AlertPipeline
from aggregator.alerting.self_alerts import channel_parts, journal_part, monitor_snapshot
from aggregator.alerting.service import FILE
from aggregator.impairments import Impairments, MonitorPart
from alerts.config import HeartbeatConfig
from alerts.delivery.clock import DeliveryClock
from alerts.delivery.heartbeat import Heartbeat
from alerts.engine import rule_evaluator
from alerts.engine.engine import RuleEngine
from alerts.engine.kept_memory import KeptMemory
from alerts.engine.state_machine import AlertStateMachine
from alerts.incidents.state import IncidentChanges
from alerts.journal.journal import Journal
from alerts.rules.rule import load, monitor_rules
from api.alerts import Alert, AlertState, ChannelRow, Subject
from telemetry.errors import StoreError
from telemetry.fleet import Fleet
from tests.aggregator.alerting_scene import Scene
from tests.alerts.alertmanagers import Hook
from tests.alerts.pager import Pager
from tests.kit.waiting import until

HOT = "hot/n1/GPU-n1-0"


@pytest.fixture
def pager() -> Pager:
    """A receiver that takes all; `listening` starts it."""
    return Pager()


def scene(folder: Path, pager: Pager) -> Scene:
    """A stage whose only channel leads to the pager."""
    folder.mkdir(exist_ok=True)
    return Scene(folder, pager.settings(folder))


def firing(stage: Scene) -> list[str]:
    """Keys of what fires."""
    return [one.key for one in stage.alerting.pipeline.alerts() if one.state is AlertState.FIRING]


def fill(path: Path) -> None:
    """Leave no room on the file system."""
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        with contextlib.suppress(OSError):
            while os.write(descriptor, bytes(4096)):
                pass
    finally:
        os.close(descriptor)


async def test_a_bad_reading_is_one_incident_paged_once_and_resolved(tmp_path: Path, pager: Pager) -> None:
    stage = scene(tmp_path, pager)
    async with pager.listening(), stage.running() as alerting:
        stage.set(60.0, 60.0)
        await until(lambda: stage.stats.rules.count > 2)
        assert firing(stage) == []
        stage.set(93.0, 60.0)
        await until(lambda: pager.calls)
        (call,) = pager.calls
        assert call.action == "trigger"
        assert call.body["payload"]["summary"].startswith("[PAGE] n1 GPU 0 is at 93 °C, since ")
        (incident,) = alerting.pipeline.manager.incidents()
        assert [one.key for one in incident.alerts] == [HOT]
        assert await alerting.saved(10)
        stage.set(60.0, 60.0)
        await until(lambda: pager.state.get(call.key) == "resolved")
        assert pager.opened[call.key] == 1
        told = await alerting.deliveries(0, 10)
        while {one.outcome.value for one in told} != {"delivered"}:  # the answer is on its way
            assert {one.outcome.value for one in told} <= {"delivered", "waiting"}
            await asyncio.sleep(0.01)
            told = await alerting.deliveries(0, 10)
        assert (await alerting.history(0, 10))[0].ended is not None


async def test_what_is_for_nobody_is_shown_and_told_to_nobody(tmp_path: Path, pager: Pager) -> None:
    stage = scene(tmp_path, pager)
    async with pager.listening(), stage.running() as alerting:
        stage.set(84.0, 60.0)
        await until(lambda: firing(stage) == ["warm/n1/GPU-n1-0"])
        assert alerting.pipeline.manager.incidents() == []
        assert alerting.pipeline.notified() == []


async def test_a_restart_pages_nobody_again_and_the_end_is_told(tmp_path: Path, pager: Pager) -> None:
    stage = scene(tmp_path, pager)
    async with pager.listening():
        async with stage.running():
            stage.set(93.0, 60.0)
            await until(lambda: pager.calls)
        for _ in range(3):
            async with stage.running() as alerting:
                assert firing(stage) == ["hot/n1/GPU-n1-0", "warm/n1/GPU-n1-0"]  # at once
                await until(lambda: stage.stats.rules.count > 3)
                assert len(alerting.pipeline.manager.incidents()) == 1
        async with stage.running():
            stage.set(60.0, 60.0)
            await until(lambda: "resolved" in pager.state.values())
        assert list(pager.opened.values()) == [1]
        assert [call.action for call in pager.calls] == ["trigger", "resolve"]


async def test_a_channel_that_is_set_up_while_something_pages_is_told_of_it_once(tmp_path: Path, pager: Pager) -> None:
    """As at a first start: it pages on the screen, then somebody configures a phone."""
    stage = Scene(tmp_path)
    phone = Scene(tmp_path, pager.settings(tmp_path)).config
    async with pager.listening():
        async with stage.running() as alerting:
            stage.set(93.0, 60.0)
            await until(alerting.pipeline.manager.incidents)
            assert await alerting.saved(10)
        stage.config = phone
        async with stage.running() as alerting:
            stage.set(93.0, 60.0)
            await until(lambda: pager.calls)
            (call,) = pager.calls
            assert call.action == "trigger"
            details = call.body["payload"]["custom_details"]
            assert "the channel is new, and it began before" in str(details)
            await until(lambda: alerting.channels()[0].delivered == 1)
            (told,) = await alerting.deliveries(0, 10)
            assert told.notice.reason == "new_channel"
            assert alerting.pipeline.quality.totals == {}
        async with stage.running() as alerting:
            stage.set(60.0, 60.0)
            await until(lambda: pager.state[call.key] == "resolved")
        assert pager.opened[call.key] == 1


async def test_the_memory_of_rates_outlives_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored at the end and every few minutes; a disk that is full costs the memory alone."""
    rates = [rule for rule in load() if rule.name in {"pcie_outlier", "nvlink_outlier"}]
    monkeypatch.setattr("tests.aggregator.alerting_scene.rules", lambda _: rates)
    monkeypatch.setattr("aggregator.alerting.rule_memory.PERIOD", 0.05)
    resumed: list[int] = []
    resume = RuleEngine.resume_memory

    def spy(engine: RuleEngine, kept: KeptMemory, now: float, wall_ns: int) -> int:
        resumed.append(resume(engine, kept, now, wall_ns))
        return resumed[-1]

    monkeypatch.setattr(RuleEngine, "resume_memory", spy)
    stage = Scene(tmp_path)
    path = stage.config.data_dir / rule_memory.NAME
    async with stage.running():
        stage.set(60.0, 60.0)
        await until(path.exists)
        path.unlink()
    assert path.exists()
    async with stage.running():
        stage.set(60.0, 60.0)
        await until(lambda: stage.stats.rules.count > 2)
    assert resumed == [2]
    path.unlink()
    path.with_name(f"{path.name}.new").mkdir()  # nothing can be written there now
    async with stage.running() as alerting:
        stage.set(60.0, 60.0)
        part = "task/memory of the rules"
        await until(lambda: any(one.part == part for one in alerting.impairments.current()))
        before = stage.stats.rules.count
        await until(lambda: stage.stats.rules.count > before + 2)
    assert resumed == [2]


async def test_an_event_that_was_stored_but_not_judged_is_judged_at_the_next_start(
    tmp_path: Path, pager: Pager
) -> None:
    """The process died between the two; an evaluated event is not evaluated again."""
    stage = scene(tmp_path, pager)
    async with pager.listening():
        async with stage.running():
            stage.happen(stage.xid(1, gpu=0))
            await until(lambda: pager.calls)
        late = stage.xid(2, gpu=1)
        stage.happen(late)
        stage.events.clear()  # it is in the store alone
        async with stage.running() as alerting:
            await until(lambda: len(pager.opened) == 2)
            assert len(alerting.pipeline.manager.incidents()) == 2
        async with stage.running() as alerting:
            await until(lambda: stage.stats.rules.count > 3)
            assert len(alerting.pipeline.manager.incidents()) == 2
        assert set(pager.opened.values()) == {1}
        assert len(pager.calls) == 2


async def test_a_dead_store_changes_nothing_for_paging(tmp_path: Path, pager: Pager) -> None:
    """Neither at the start nor later; that the store fails is an alert of its own."""
    stage = scene(tmp_path, pager)
    stage.store_error = StoreError("the disk is gone.")
    stage.stats.store_ok = False
    async with pager.listening(), stage.running() as alerting:
        stage.happen(stage.xid(1))
        await until(lambda: pager.calls)
        listed = {one.rule: one.state for one in alerting.pipeline.alerts()}
        assert listed["store_failing"] is AlertState.PENDING


async def test_a_full_disk_changes_nothing_for_paging(tmp_path: Path, tiny: Path, pager: Pager) -> None:
    """Changes are kept in memory, notified, and written when there is room again."""
    stage = scene(tiny / "here", pager)
    filler = tiny / "filler"
    async with pager.listening():
        async with stage.running() as alerting:
            stage.set(60.0, 60.0)
            await until(lambda: stage.stats.rules.count > 1)
            fill(filler)
            stage.set(93.0, 60.0)
            await until(lambda: pager.calls)
            assert not await alerting.saved(1)
            assert not alerting.alert_stats().journal_ok
            assert alerting.alert_stats().commit_errors > 0
            filler.unlink()
            await until(lambda: alerting.alert_stats().journal_ok)
        async with stage.running():
            assert HOT in firing(stage)
            await until(lambda: stage.stats.rules.count > 3)
        assert pager.opened[pager.calls[0].key] == 1


async def test_a_broken_journal_is_set_aside_and_told(tmp_path: Path, pager: Pager) -> None:
    stage = scene(tmp_path, pager)
    async with pager.listening():
        async with stage.running():
            stage.set(60.0, 60.0)
            await until(lambda: stage.stats.rules.count > 1)
        file = stage.config.data_dir / FILE
        file.write_bytes(b"not SQLite at all" * 1000)
        async with stage.running():
            await until(lambda: [key for key in firing(stage) if "journal" in key])
            stage.set(93.0, 60.0)
            await until(lambda: HOT in firing(stage))
            await until(lambda: [c for c in pager.calls if "93" in str(c.body)])
        with sqlite3.connect(file) as found:
            assert found.execute("pragma integrity_check").fetchall() == [("ok",)]


async def test_circuits_that_can_not_be_computed_do_not_end_the_other_rules(tmp_path: Path, pager: Pager) -> None:
    """And they are notified."""
    stage = scene(tmp_path, pager)

    def broken() -> tuple[()]:
        raise ValueError("no such phase")

    stage.snapshots = broken
    async with pager.listening(), stage.running() as alerting:
        stage.set(93.0, 60.0)
        await until(lambda: pager.calls)
        found = {one.rule: one for one in alerting.pipeline.alerts()}
        assert "no such phase" in found["circuits_failing"].summary


async def test_incidents_stand_on_the_bus_until_a_while_after_their_end(tmp_path: Path, pager: Pager) -> None:
    """Only changes are sent; a restart sends them again."""
    stage = scene(tmp_path, pager)
    async with pager.listening():
        async with stage.running():
            stage.set(93.0, 60.0)
            await until(lambda: stage.bus)
            ((topic, payload),) = stage.bus.items()
            assert topic.startswith("kilowatch/1/default/alerts/")
            poster = json.loads(payload)
            assert (poster["state"], poster["severity"], poster["firing"]) == ("firing", "page", 1)
            before, rounds = stage.published, stage.stats.rules.count
            await until(lambda: stage.stats.rules.count > rounds + 3)
            assert stage.published == before
        stage.bus.clear()
        async with stage.running():
            await until(lambda: stage.bus)
            stage.set(60.0, 60.0)
            await until(lambda: json.loads(stage.bus[topic])["state"] == "resolved")


class StandingClock(DeliveryClock):
    """Seconds that a test moves; waits are short, and counted."""

    seconds = 1000.0
    waits = 0

    def monotonic(self) -> float:
        return self.seconds

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        self.waits += 1
        await super().wait(event, 0.05)


async def test_the_dead_mans_switch_hears_of_us_while_rules_and_store_work(
    tmp_path: Path, pager: Pager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rules alone are not enough: what is not stored is not watched as it should be."""
    hook, clock = Hook(), StandingClock()
    monkeypatch.setattr(service, "Heartbeat", functools.partial(Heartbeat, clock=clock))
    beat = HeartbeatConfig(url=hook.url, every=60.0, limit=120.0)
    stage = Scene(tmp_path, pager.settings(tmp_path), heartbeat=beat)
    async with hook.listening(), stage.running() as alerting:
        stage.set(60.0, 60.0)
        await until(lambda: len(hook.headers) > 2)
        clock.seconds += 121.0
        await until(lambda: alerting.heartbeat and alerting.heartbeat.stuck() == "store")
        silent_since, turns = len(hook.headers), clock.waits
        await until(lambda: clock.waits > turns + 5)
        assert len(hook.headers) <= silent_since + 1  # one may have been under way
        alerting.progress("store")
        await until(lambda: len(hook.headers) > silent_since + 1)


def monitor(engine: RuleEngine, wrong: dict[str, str], now: float, wall: int) -> list[Alert]:
    """Evaluate the rules about the monitor itself with the problems of an aggregator."""
    return engine.evaluate(
        Fleet(),
        now,
        wall,
        snapshots=[monitor_snapshot([MonitorPart("aggregator/lab", {"cluster": "lab", "name": "kilowatch"}, wrong)])],
    )


def test_the_monitors_own_alerts_live_as_those_of_rules() -> None:
    """Held, fired once, kept for a while, resolved once; gone on with after a restart."""
    alerts = RuleEngine(monitor_rules())
    wrong = {"bus_lost": ""}
    assert monitor(alerts, wrong, 0.0, 1) == []
    assert [one.state for one in alerts.alerts()] == [AlertState.PENDING]
    assert monitor(alerts, {}, 30.0, 2) == []
    assert alerts.alerts() == []
    monitor(alerts, wrong, 100.0, 3)
    (fired,) = monitor(alerts, wrong, 160.0, 4)
    assert (fired.state, fired.since, fired.changed) == (AlertState.FIRING, 3, 4)
    assert monitor(alerts, wrong, 161.0, 5) == []
    again = RuleEngine(monitor_rules())
    again.restore(alerts.snapshot(5), 500.0, 5)
    assert monitor(again, wrong, 501.0, 6) == []
    assert monitor(again, {}, 510.0, 7) == []
    assert [one.good_since for one in again.snapshot(7)] == [7]
    (over,) = monitor(again, {}, 510.0 + 180.0, 8)
    assert over.state is AlertState.RESOLVED
    assert again.snapshot(8) == []


@pytest.mark.parametrize(
    ("problem", "severity", "summary", "description"),
    [
        ("bus_lost", "page", "kilowatch receives nothing", "No reading arrives"),
        ("rules_failing", "page", "can't evaluate its rules: the reason", "start without the files"),
        ("circuits_failing", "page", "can't compute its circuits: the reason", "No breaker"),
        ("store_failing", "ticket", "kilowatch can't write its store", "Live view"),
        ("influxdb_failing", "ticket", "InfluxDB accepts nothing from kilowatch: the reason", "spool"),
    ],
)
def test_an_alert_about_the_aggregator_is_as_it_always_was(
    problem: str, severity: str, summary: str, description: str
) -> None:
    engine = RuleEngine(monitor_rules())
    monitor(engine, {problem: "the reason"}, 0.0, 1)
    (alert,) = monitor(engine, {problem: "the reason"}, 300.0, 2)
    assert (alert.key, alert.severity.value) == (f"{problem}/aggregator/lab", severity)
    assert (alert.node, alert.name, alert.subject) == ("", "kilowatch", Subject.NODE)
    assert alert.labels == {"cluster": "lab"}
    assert (alert.value, alert.value_text, alert.runbook) == (None, "", "the-monitor-itself")
    assert summary in alert.summary
    assert description in alert.advice
    monitor(engine, {}, 301.0, 3)
    (over,) = monitor(engine, {}, 481.0, 4)
    assert over.summary == alert.summary  # the reason outlives the problem


def test_a_channel_that_fails_and_a_journal_that_is_lost_are_alerts(tmp_path: Path) -> None:
    path = tmp_path / "alerts.sqlite"
    path.write_bytes(b"this is no database" * 1000)
    journal = Journal.open(path, 10**18)
    (dead,) = channel_parts([_failing("dead")])
    engine = RuleEngine(monitor_rules())
    day = 86_400 * 10**9

    def now(wall: int, *parts: MonitorPart) -> dict[str, Alert]:
        snapshot = monitor_snapshot([journal_part(journal, wall), *parts])
        found = engine.evaluate(Fleet(), wall / 1e9, wall, snapshots=[snapshot])
        return {one.rule: one for one in found}

    fired = now(10**18, dead)
    assert fired.keys() == {"journal_lost", "delivery_failing"}
    lost, delivery = fired["journal_lost"], fired["delivery_failing"]
    assert (lost.key, lost.node) == ("journal_lost/aggregator/journal", "aggregator")
    assert "file is not a database" in lost.summary
    assert (delivery.key, delivery.name) == ("delivery_failing/channel/dead", "dead")
    assert delivery.labels == {"channel": "dead"}
    assert delivery.advice == ("Try it with `kilowatch notify test dead`. 5 messages wait: nothing gets through.")
    assert now(10**18 + day - 1, dead) == {}
    over = now(10**18 + day, dead)
    assert over["journal_lost"].state is AlertState.RESOLVED
    journal.close()


def _failing(name: str) -> ChannelRow:
    return ChannelRow(
        name=name,
        kind="webhook",
        delivered=0,
        failed=9,
        refused=0,
        expired=0,
        superseded=0,
        waiting=5,
        oldest_seconds=130.0,
        failing="nothing gets through",
        last_error="",
        last_delivered=None,
    )


def test_an_alert_of_an_older_journal_about_the_monitor_goes_on(tmp_path: Path) -> None:
    """Journals of before have such alerts only in their incidents, not in the engine's records."""
    path = tmp_path / FILE
    wrong = Impairments()
    wrong.report("bus_lost", "aggregator/default", "", whole=True)
    journal = Journal.open(path, 1)
    first = AlertPipeline((), lambda step, _: _commit(journal, step), impairments=wrong, now=0.0, wall=1)
    for second in (0, 60):
        wall = 1 + second * 10**9
        first.evaluate(Fleet(), second, wall, (), listening=True, snapshots=())
    journal.close()

    journal = Journal.open(path, wall)
    assert journal.alert_records == []
    again = AlertPipeline((), lambda *_: None, memory=journal.memory, impairments=wrong, now=60.0, wall=wall)
    journal.close()
    (alert,) = again.alerts()
    assert (alert.key, alert.state) == ("bus_lost/aggregator/default", AlertState.FIRING)
    wall += 10**9
    assert again.evaluate(Fleet(), 61.0, wall, (), listening=True, snapshots=()) == []
    assert [one.since for one in again.alerts()] == [alert.since]


def _commit(journal: Journal, step: IncidentChanges) -> None:
    assert journal.commit(step, lambda *_: {})


def test_one_state_machine_moves_every_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pending, firing and resolved are decided in one place, for readings and for the monitor."""
    moved: list[str] = []

    def still(life: AlertStateMachine, *_: object, **__: object) -> tuple[tuple[int, ...], Any]:
        moved.append("asked")
        return (), life.entries

    monkeypatch.setattr(rule_evaluator, "step", still)
    pipeline = AlertPipeline(load(), lambda *_: None, now=0.0, wall=1)
    for rule in ("bus_lost", "store_failing"):
        pipeline.impairments.report(rule, "aggregator/default", "", whole=True)
    for second in range(200):
        wall = second * 10**9
        assert pipeline.evaluate(Fleet(), float(second), wall, (), listening=True, snapshots=()) == []
    assert pipeline.alerts() == []
    assert moved
