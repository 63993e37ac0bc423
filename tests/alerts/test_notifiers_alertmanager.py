"""Alerts on their way to a real Alertmanager, which is away at the wrong times."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from alerts.config import AlertsConfig
from alerts.delivery.alertmanager_state import AlertmanagerState
from alerts.delivery.clock import DeliveryClock
from alerts.delivery.outbox import Outbox, deliver_test
from alerts.journal.journal import Journal
from alerts.message.page import Links
from alerts.notifiers.result import Delivered
from api.alerts import Alert, AlertState, Severity, Subject
from tests.alerts.alertmanagers import Hook, RealAlertmanager
from tests.alerts.notices import MINUTE, NOON, alert
from tests.kit.waiting import until


class Told:
    """Give the outbox the alerts that are notified, as after each evaluation of the rules."""

    def __init__(self, journal: Journal, *urls: str, **more: Any) -> None:
        self.journal = journal
        self.alerts: dict[str, Alert] = {}
        self.config = AlertsConfig(
            channels={"am": {"type": "alertmanager", "urls": list(urls), "resend_seconds": 2, **more}},
            runbook_url="https://docs.example/runbook",
        )
        self.config.check()
        self.outbox = Outbox(self.config, journal, cluster="hall-1")

    def fires(self, node: str, **more: Any) -> None:
        """An alert begins."""
        made = alert(node=node, since=time.time_ns(), **more)
        self.alerts[made.key] = made

    def ends(self, node: str) -> None:
        """It resolves; it is shown for a turn, and gone."""
        for key, one in list(self.alerts.items()):
            if one.node == node:
                done = msgspec.structs.replace(one, state=AlertState.RESOLVED, changed=time.time_ns())
                self.outbox.feed([*self.alerts.values(), done])
                del self.alerts[key]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Outbox]:
        """Send and feed."""

        async def rules() -> None:
            while True:
                self.outbox.feed(list(self.alerts.values()))
                await asyncio.sleep(0.05)

        tasks = [asyncio.create_task(self.outbox.run()), asyncio.create_task(rules())]
        try:
            yield self.outbox
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def managers(folder: Path, number: int = 1) -> AsyncIterator[tuple[Hook, list[RealAlertmanager]]]:
    """Alertmanagers that notify one webhook."""
    hook = Hook()
    found = [RealAlertmanager(folder, hook.url) for _ in range(number)]
    async with hook.listening():
        try:
            for one in found:
                await asyncio.to_thread(one.start)
            yield hook, found
        finally:
            for one in found:
                await asyncio.to_thread(one.end, signal.SIGKILL)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A real one."""
    return Journal.open(tmp_path / "journal.sqlite", time.time_ns())


async def test_it_receives_groups_and_resolves_what_we_tell_and_amtool_shows_it(
    tmp_path: Path, journal: Journal
) -> None:
    async with managers(tmp_path) as (hook, (real,)):
        told = Told(journal, real.url)
        told.fires("dgx-01")
        told.fires("dgx-02")
        told.fires("dgx-02", rule="thermal_hw", severity=Severity.TICKET)
        async with told.running() as outbox:
            await until(lambda: hook.told("firing") == {"dgx-01", "dgx-02"})
            await until(lambda: {"gpu_lost", "thermal_hw"} <= _groups(hook))
            lost = next(body for body in hook.bodies if body["groupLabels"]["alertname"] == "gpu_lost")
            assert {one["labels"]["node"] for one in lost["alerts"]} == {"dgx-01", "dgx-02"}
            assert lost["commonAnnotations"]["runbook_url"] == "https://docs.example/runbook#gpu-lost"
            shown = await asyncio.to_thread(real.amtool, "alertname=gpu_lost", "node=dgx-01")
            assert [one["labels"]["serial"] for one in shown] == ["1652622032001"]
            assert shown[0]["labels"]["severity"] == "critical"
            assert "job" not in shown[0]["labels"]
            told.ends("dgx-01")
            await until(lambda: hook.told("resolved") == {"dgx-01"})
            shown = await asyncio.to_thread(real.amtool, "alertname=gpu_lost")
            assert [one["labels"]["node"] for one in shown] == ["dgx-02"]
            assert outbox.channels()[0].failing == ""
    journal.close()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_its_restart_loses_nothing(tmp_path: Path, journal: Journal, how: signal.Signals) -> None:
    async with managers(tmp_path) as (hook, (real,)):
        told = Told(journal, real.url)
        told.fires("dgx-01")
        told.fires("dgx-02")
        async with told.running():
            await until(lambda: hook.told("firing") == {"dgx-01", "dgx-02"})
            await asyncio.to_thread(real.end, how)
            told.ends("dgx-01")
            told.fires("dgx-03")
            await until(lambda: told.outbox.channels()[0].failed)
            await asyncio.to_thread(real.start)
            await until(lambda: "dgx-03" in hook.told("firing"))
            await until(lambda: _nodes(real) == {"dgx-02", "dgx-03"})
            if how is signal.SIGTERM:  # killed, it has lost the record of the first notification
                await until(lambda: hook.told("resolved") == {"dgx-01"})
    journal.close()


async def test_our_restart_ends_what_was_being_ended_and_goes_on(tmp_path: Path, journal: Journal) -> None:
    async with managers(tmp_path) as (hook, (real,)):
        told = Told(journal, real.url)
        told.fires("dgx-01")
        told.fires("dgx-02")
        async with told.running():
            await until(lambda: hook.told("firing") == {"dgx-01", "dgx-02"})
            await asyncio.to_thread(real.end)
            told.ends("dgx-01")
            await until(lambda: b"dgx-01" in (journal.channel_state("am") or b""))
        again = Told(journal, real.url)
        again.alerts = told.alerts
        await asyncio.to_thread(real.start)
        async with again.running():
            await until(lambda: hook.told("resolved") == {"dgx-01"})
            shown = await asyncio.to_thread(real.amtool)
            assert [one["labels"]["node"] for one in shown] == ["dgx-02"]
    journal.close()


async def test_all_of_them_are_told_and_one_that_is_away_delays_none(tmp_path: Path, journal: Journal) -> None:
    async with managers(tmp_path, 2) as (_, (first, second)):
        await asyncio.to_thread(second.end)
        told = Told(journal, first.url, second.url)
        told.fires("dgx-01")
        async with told.running():
            await until(lambda: len(first.amtool()) == 1)
            await asyncio.to_thread(second.start)
            await until(lambda: len(second.amtool()) == 1)
    journal.close()


async def test_a_channel_whose_update_raises_is_tried_again_after_a_pause_and_misses_no_alert(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(journal, "http://localhost:9")
    now, tries = [100.0], []
    monkeypatch.setattr(told.outbox._clock, "monotonic", lambda: now[0])
    feed = told.outbox._feeds["am"]
    with monkeypatch.context() as patch:

        def broken(*_: object) -> None:
            tries.append(now[0])
            raise IndexError("put in by the test")

        patch.setattr(feed, "update", broken)
        told.fires("dgx-01")
        for now[0] in (100.0, 100.5, 101.0):
            told.outbox.feed(list(told.alerts.values()))
        assert tries == [100.0, 101.0]
        (fault,) = told.outbox.faults()
        assert fault.part == "delivery/am"
        assert "IndexError: put in by the test" in fault.reason
        told.outbox.wake()
    now[0] = 103.0
    told.outbox.feed(list(told.alerts.values()))
    assert (len(feed.state.entries), list(told.outbox.faults())) == (1, [])
    journal.close()


async def test_what_one_alert_is_refused_for_costs_no_other(tmp_path: Path, journal: Journal) -> None:
    async with managers(tmp_path) as (_, (real,)):
        told = Told(journal, real.url)
        for number in range(9):
            told.fires(f"dgx-{number:02d}")
        told.outbox.feed(list(told.alerts.values()))
        roll = told.outbox._feeds["am"].state
        bad = next(iter(roll.entries.values()))
        bad.labels["bad label"] = "0.25 takes no blank in a name"
        async with told.running() as outbox:
            await until(lambda: outbox.channels()[0].refused == 1)
            await until(lambda: len(real.amtool()) == 8)
            before = outbox.channels()[0].delivered
            await until(lambda: outbox.channels()[0].delivered >= before + 16)
            assert outbox.channels()[0].refused == 1
            assert "bad label" in outbox.channels()[0].last_error
    journal.close()


async def test_two_thousand_alerts_are_told_in_batches(tmp_path: Path, journal: Journal) -> None:
    async with managers(tmp_path) as (_, (real,)):
        told = Told(journal, real.url, per_minute=60_000, burst=1000, resend_seconds=60)
        for number in range(2000):
            told.fires(f"dgx-{number:04d}")
        async with told.running() as outbox:
            await until(lambda: outbox.channels()[0].delivered == 2000)
            async with aiohttp.ClientSession() as http, http.get(f"{real.url}/api/v2/alerts") as all_:
                assert len(await all_.json()) == 2000
    journal.close()


async def test_a_test_reaches_it(tmp_path: Path, journal: Journal) -> None:
    async with managers(tmp_path) as (_, (real,)):
        answer = await deliver_test(Told(journal, real.url).config, "am", cluster="hall-1")
        assert isinstance(answer, Delivered)
        (shown,) = await asyncio.to_thread(real.amtool)
        assert shown["labels"]["alertname"] == "kilowatch_test"
    journal.close()


def _nodes(real: RealAlertmanager) -> set[str]:
    return {one["labels"]["node"] for one in real.amtool()}


def _groups(hook: Hook) -> set[str]:
    return {body["groupLabels"]["alertname"] for body in hook.bodies}


# -- The roll, without a network -----------------------------------------------------------------


def roll() -> AlertmanagerState:
    """An empty one that keeps ends for 15 minutes."""
    return AlertmanagerState(Links(cluster="hall-1"), 900, None)


def states(found: AlertmanagerState) -> list[tuple[str, bool]]:
    """Severity of each entry, and whether it has ended."""
    return [(one.labels["severity"], one.ends is not None) for one in found.entries.values()]


def test_an_alert_whose_labels_change_ends_and_begins() -> None:
    found, ticket, page = roll(), alert(severity=Severity.TICKET), alert()
    assert found.update({ticket.key: ticket}, NOON)
    assert found.update({page.key: page}, NOON)
    assert states(found) == [("warning", True), ("critical", False)]


def test_a_value_or_a_job_that_changes_is_no_news() -> None:
    found, first = roll(), alert()
    second = alert(labels={"job": "4712"})
    second = msgspec.structs.replace(second, value=80.0, value_text="XID 80")
    assert found.update({first.key: first}, NOON)
    assert not found.update({second.key: second}, NOON)
    (body,) = found.bodies(found.entries, NOON, 4 * MINUTE)
    assert body["annotations"]["value"] == "XID 80"
    assert body["annotations"]["job"] == "4712"
    assert body["endsAt"] == "2026-08-01T12:04:00.000Z"


def test_a_circuit_whose_amps_change_every_second_stays_one_alert() -> None:
    """The facts of a board are for people; its identity is the circuit."""
    found = roll()
    for second in range(5):
        one = msgspec.structs.replace(
            alert(rule="circuit_load", node="", gpu=None),
            subject=Subject.CIRCUIT,
            name="A-12",
            labels={"circuit": "A-12", "amps": f"{20 + second} A", "above": f"{second} s"},
        )
        assert found.update({one.key: one}, NOON + second) is (second == 0)
    (body,) = found.bodies(found.entries, NOON, 4 * MINUTE)
    assert body["labels"]["circuit"] == "A-12"
    assert "amps" not in body["labels"]
    assert body["annotations"]["amps"] == "24 A"


def test_an_end_is_kept_for_its_time_over_a_restart_and_never_lies_before_the_beginning() -> None:
    found, one = roll(), alert(since=NOON)
    found.update({one.key: one}, NOON)
    found.update({}, NOON - MINUTE)
    (entry,) = found.entries.values()
    assert entry.ends == NOON
    again = AlertmanagerState(Links(), 900, found.encode())
    assert again.entries == found.entries
    again.forget(NOON + 13 * MINUTE)
    assert again.entries
    again.forget(NOON + 15 * MINUTE)
    assert not again.entries


def test_what_resolved_before_this_process_saw_it_fire_is_told_if_it_is_recent() -> None:
    done = msgspec.structs.replace(alert(), state=AlertState.RESOLVED, changed=NOON)
    late, early = roll(), roll()
    assert not late.update({done.key: done}, NOON + 16 * MINUTE) or not late.entries
    early.update({done.key: done}, NOON + MINUTE)
    assert states(early) == [("critical", True)]


def test_what_begins_again_while_its_end_is_still_told_fires() -> None:
    found, one = roll(), alert()
    again = alert(since=NOON + MINUTE)
    found.update({one.key: one}, NOON)
    found.update({}, NOON + 1)
    found.update({again.key: again}, NOON + MINUTE)
    assert states(found) == [("critical", False)]


def test_a_state_that_cannot_be_read_is_an_empty_one() -> None:
    assert not AlertmanagerState(Links(), 900, b"\xff nonsense").entries


def test_the_clock_of_the_outbox_is_the_worlds() -> None:
    assert abs(DeliveryClock().now() - time.time_ns()) < 10**9
