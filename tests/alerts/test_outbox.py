"""The outbox against a pager that is ill, with the real journal between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from alerts.config import AlertsConfig
from alerts.delivery.clock import DeliveryClock
from alerts.delivery.outbox import Outbox
from alerts.delivery.routing import Router
from api.alerts import Action, DeliveryOutcome, Severity
from tests.alerts.fast_clock import FastClock
from tests.alerts.notices import NOON, NoticeWriter, incident
from tests.alerts.pager import ACCEPTS, DROPS, FAILS, HANGS, Behaviour, Call, Pager
from tests.faults.record import Told
from tests.kit.waiting import until

TRIGGER, UPDATE = Action.TRIGGER, Action.UPDATE
ACK, RESOLVE = Action.ACKNOWLEDGE, Action.RESOLVE


class Site:
    """Pagers, a writer of notices, and the outbox between them."""

    def __init__(self, folder: Path, clock: DeliveryClock, pagers: dict[str, Pager], **more: Any) -> None:
        self.config = AlertsConfig(channels={name: pager.settings(folder, **more) for name, pager in pagers.items()})
        self.config.check()
        self.clock = clock
        self.writer = NoticeWriter(folder / "journal.sqlite", clock, Router(self.config).route)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Outbox]:
        """Send, until the end of the block."""
        outbox = Outbox(self.config, self.writer.journal, cluster="hall-1", clock=self.clock)
        task = asyncio.create_task(outbox.run())
        try:
            yield outbox
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    def outcomes(self, key: str) -> list[DeliveryOutcome]:
        """What became of an incident's deliveries, in their order."""
        found = [one for one in self.writer.journal.history() if one.notice.incident.key == key]
        return [one.outcome for one in reversed(found)]


@asynccontextmanager
async def site(
    folder: Path, *names: str, clock: DeliveryClock | None = None, **more: Any
) -> AsyncIterator[tuple[Site, Pager, Outbox]]:
    """One outbox with a pager for each name; the first is given back."""
    pagers = {name: Pager() for name in names or ("oncall",)}
    made = Site(folder, clock or FastClock(), pagers, **more)
    first = next(iter(pagers.values()))
    async with first.listening(), made.running() as outbox:
        yield made, first, outbox
    made.writer.journal.close()


async def test_an_incident_is_triggered_acknowledged_and_resolved_under_one_key(tmp_path: Path) -> None:
    async with site(tmp_path) as (here, pager, outbox):
        for action in (TRIGGER, ACK, RESOLVE):
            here.writer.write(action)
            outbox.wake()
            await until(lambda action=action: action.value in pager.accepted("i-1"))  # type: ignore[misc]
        assert pager.accepted("i-1") == ["trigger", "acknowledge", "resolve"]
        assert pager.state == {"i-1": "resolved"}
        assert pager.opened["i-1"] == 1
        await until(lambda: here.outcomes("i-1") == [DeliveryOutcome.DELIVERED] * 3)


@pytest.mark.parametrize(
    ("ill", "opened"),
    [
        pytest.param(FAILS, 1, id="500"),
        pytest.param(Behaviour(status=429, after="1"), 1, id="429"),
        pytest.param(HANGS, 1, id="hangs"),
        pytest.param(DROPS, 1, id="drops the connection after it took the event"),
        pytest.param(Behaviour(seconds=0.5), 1, id="answers after we gave up"),
    ],
)
async def test_what_an_ill_pager_did_not_answer_is_sent_again_under_the_same_key(
    tmp_path: Path, ill: Behaviour, opened: int
) -> None:
    async with site(tmp_path, clock=FastClock(20), timeout_seconds=0.2) as (here, pager, outbox):
        pager.script.extend([ill, ACCEPTS])
        here.writer.write()
        outbox.wake()
        await until(lambda: here.outcomes("i-1") == [DeliveryOutcome.DELIVERED])
        assert len(here.writer.journal.waiting()) == 0
        assert pager.opened["i-1"] == opened
        assert 1 <= pager.accepted("i-1").count("trigger") <= 2
        assert here.writer.journal.history()[0].tries == 2


async def test_a_refused_message_is_given_up_said_and_what_follows_is_sent(tmp_path: Path) -> None:
    async with site(tmp_path) as (here, pager, outbox):
        pager.script.append(Behaviour(status=400))
        here.writer.write(key="bad")
        here.writer.write(key="good")
        outbox.wake()
        await until(lambda: here.outcomes("good") == [DeliveryOutcome.DELIVERED])
        await until(lambda: here.outcomes("bad") == [DeliveryOutcome.REFUSED])
        assert [call.key for call in pager.calls].count("bad") == 1
        assert outbox.channels()[0].refused == 1


async def test_a_pager_that_asks_for_time_gets_it_and_so_do_all_its_messages(tmp_path: Path) -> None:
    clock = FastClock(10)
    async with site(tmp_path, clock=clock, at_once=1) as (here, pager, outbox):
        pager.script.append(Behaviour(status=429, after="7"))
        here.writer.write_all([(TRIGGER, f"i-{number}") for number in range(3)])
        outbox.wake()
        await until(lambda: len(pager.opened) == 3)
        assert (pager.calls[1].at - pager.calls[0].at) * clock.speed >= 7


async def test_a_dead_channel_delays_no_other_and_says_that_it_fails(tmp_path: Path) -> None:
    clock = FastClock(600)
    async with site(tmp_path, "alive", "dead", clock=clock) as (here, pager, outbox):
        for number in range(5):
            here.writer.write(key=f"i-{number}")
        outbox.wake()
        await until(lambda: len(pager.opened) == 5)
        await until(lambda: outbox.channels()[0].waiting == 0)  # it has heard of the last one too
        await until(lambda: outbox.channels()[1].failing)
        alive, dead = outbox.channels()
        assert (alive.failing, alive.delivered, alive.waiting) == ("", 5, 0)
        assert dead.failing.startswith("nothing gets through")
        assert dead.waiting == 5
        assert dead.oldest_seconds is not None
        assert dead.oldest_seconds >= 120


async def test_one_at_a_time_finds_out_whether_a_dead_pager_is_back(tmp_path: Path) -> None:
    clock = FastClock(300)
    async with site(tmp_path, clock=clock, at_once=8) as (here, pager, outbox):
        pager.behave = lambda: FAILS
        here.writer.write_all([(TRIGGER, f"i-{number}") for number in range(200)])
        outbox.wake()
        await until(lambda: len(pager.calls) >= 20)
        pager.most_at_once = 0
        count, began = len(pager.calls), clock.monotonic()
        await until(lambda: clock.monotonic() - began > 300)
        assert pager.most_at_once <= 1
        # Pauses reach 30 s, half of it on average; 200 messages by themselves would try thousands.
        assert len(pager.calls) - count < 120


async def test_what_was_not_sent_and_is_over_is_never_sent(tmp_path: Path) -> None:
    async with site(tmp_path, at_once=1) as (here, pager, outbox):
        pager.script.append(Behaviour(seconds=0.3))
        here.writer.write(key="first")
        outbox.wake()
        await until(lambda: len(pager.calls) == 1)
        here.writer.write_all([(TRIGGER, "short"), (RESOLVE, "short"), (TRIGGER, "long")])
        outbox.wake()
        await until(lambda: here.outcomes("long") == [DeliveryOutcome.DELIVERED])
        await until(lambda: here.outcomes("short") == [DeliveryOutcome.SUPERSEDED] * 2)
        assert pager.accepted("short") == []


async def test_a_page_goes_before_tickets_that_wait(tmp_path: Path) -> None:
    clock = FastClock()
    async with site(tmp_path, at_once=1, per_minute=60_000, burst=1) as (here, pager, outbox):
        here.writer.route = lambda notice, at, told: {"oncall": clock.wall()}
        written = asyncio.Event()
        pager.received = lambda _: written.wait()
        here.writer.write(key="t-0", severity=Severity.TICKET)
        outbox.wake()
        await until(lambda: len(pager.calls) == 1)
        for number in range(1, 6):
            here.writer.write(key=f"t-{number}", severity=Severity.TICKET)
        here.writer.write(key="page")
        outbox.wake()
        written.set()
        await until(lambda: len(pager.opened) == 7)
        assert [call.key for call in pager.calls][:2] == ["t-0", "page"]


async def test_a_page_is_given_up_after_its_hours_and_its_repetition_goes_on(tmp_path: Path) -> None:
    clock = FastClock(40_000)
    async with site(tmp_path, clock=clock) as (here, pager, outbox):
        pager.behave = lambda: FAILS
        began = clock.monotonic()
        here.writer.write()
        outbox.wake()
        await until(lambda: here.outcomes("i-1") == [DeliveryOutcome.EXPIRED])
        assert clock.monotonic() - began >= 6 * 3600
        assert outbox.channels()[0].failing
        here.writer.write(reason="repeat")
        pager.behave = None
        outbox.wake()
        await until(lambda: pager.opened["i-1"] == 1)
        await until(lambda: not outbox.channels()[0].failing)


async def test_a_ticket_that_was_held_over_the_weekend_is_not_old_when_its_first_try_fails(tmp_path: Path) -> None:
    friday = NOON + 6 * 86_400 * 10**9 + 7 * 3600 * 10**9
    clock = FastClock(200_000, begins=friday)
    async with site(tmp_path, clock=clock) as (here, pager, outbox):
        pager.script.extend([FAILS, FAILS])
        here.writer.write(severity=Severity.TICKET)
        outbox.wake()
        await until(lambda: pager.opened["i-1"] == 1)
        assert clock.wall() - friday >= 61 * 3600 * 10**9
        assert len(pager.calls) == 3
        assert outbox.channels()[0].expired == 0


@pytest.mark.parametrize("hours", [1, -1, 24 * 365])
async def test_a_step_of_the_wall_clock_holds_no_page_up_and_gives_none_up(tmp_path: Path, hours: int) -> None:
    clock = FastClock(10)
    async with site(tmp_path, clock=clock) as (here, pager, outbox):
        pager.behave = lambda: FAILS
        here.writer.write(key="before")
        outbox.wake()
        await until(lambda: len(pager.calls) >= 1)
        clock.step = hours * 3_600_000_000_000
        pager.behave = None
        here.writer.write(key="after")
        outbox.wake()
        await until(lambda: len(pager.opened) == 2)
        assert outbox.channels()[0].expired == 0


async def test_the_end_waits_for_what_is_under_way_and_keeps_the_rest(tmp_path: Path) -> None:
    pager = Pager()
    here = Site(tmp_path, FastClock(), {"oncall": pager}, at_once=1)
    ends = asyncio.Event()

    async def answer_after_the_end(_: Call) -> None:
        await ends.wait()
        for _turn in range(100):  # of the loop: ten are enough to cancel the worker
            await asyncio.sleep(0)

    pager.received = answer_after_the_end
    async with pager.listening():
        async with here.running() as outbox:
            here.writer.write_all([(TRIGGER, "under way"), (TRIGGER, "waits")])
            outbox.wake()
            await until(lambda: len(pager.calls) == 1)
            ends.set()
        assert here.outcomes("under way") == [DeliveryOutcome.DELIVERED]
        assert here.outcomes("waits") == [DeliveryOutcome.WAITING]
        async with here.running():
            await until(lambda: here.outcomes("waits") == [DeliveryOutcome.DELIVERED])
        assert pager.opened == {"under way": 1, "waits": 1}
    here.writer.journal.close()


async def test_twenty_minutes_of_500_then_slow_then_429_give_one_page_for_each_open_incident(
    tmp_path: Path, record_property: Told
) -> None:
    clock = FastClock(300)
    async with site(tmp_path, clock=clock) as (here, pager, outbox):
        began = clock.monotonic()
        limits = iter([Behaviour(status=429, after="20")] * 5)

        def ill() -> Behaviour:
            minutes = (clock.monotonic() - began) / 60
            if minutes < 20:
                return FAILS
            return Behaviour(seconds=0.05) if minutes < 22 else next(limits, ACCEPTS)

        pager.behave = ill
        keys = [f"i-{number}" for number in range(40)]
        for minute, batch in enumerate([keys[:20], keys[20:30], keys[30:]]):
            here.writer.write_all([(TRIGGER, key) for key in batch])
            outbox.wake()
            await until(lambda minute=minute: clock.monotonic() - began > 300 * (minute + 1))  # type: ignore[misc]
        here.writer.write_all([(ACK, key) for key in keys[:5]])
        here.writer.write_all([(TRIGGER, key) for key in keys[:10]], reason="repeat")
        here.writer.write_all([(RESOLVE, key) for key in keys[30:]])
        outbox.wake()
        assert not pager.opened
        await until(lambda: not here.writer.journal.waiting())
        assert pager.opened == dict.fromkeys(keys[:30], 1)
        for key in keys[:30]:
            expected = ["trigger", "acknowledge"] if key in keys[:5] else ["trigger"]
            assert pager.accepted(key) == expected
        for key in keys[30:]:
            assert pager.accepted(key) in ([], ["resolve"])
        record_property("expected", "one page for each incident that is still open; none twice")
        record_property(
            "observed",
            f"40 incidents, 10 resolved meanwhile: {len(pager.opened)} pages, {max(pager.opened.values())} each",
        )


async def test_the_page_that_is_sent_late_says_how_things_stand_now(tmp_path: Path) -> None:
    async with site(tmp_path, clock=FastClock(50)) as (here, pager, outbox):
        pager.behave = lambda: FAILS
        here.writer.write()
        outbox.wake()
        await until(lambda: len(pager.calls) >= 2)
        grown = msgspec.structs.replace(incident("i-1"), title="72 nodes are silent", firing=72)
        here.writer.write(reason="worse", about=grown)
        pager.behave = None
        outbox.wake()
        await until(lambda: pager.opened["i-1"] == 1)
        await until(lambda: not here.writer.journal.waiting())
        (sent,) = [call for call in pager.calls if call.status == 202]
        assert sent.body["payload"]["summary"] == "[PAGE] 72 nodes are silent, since 2026-08-01 12:00 UTC"
