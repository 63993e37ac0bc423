"""Faults between the incident manager and the pager: a pager that fails, kills between send and journal,
a clock that steps, a journal that can't be written. Real processes and a scripted driver throughout.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path

from tests.alerts.pager import ACCEPTS, DROPS, FAILS, HANGS, Behaviour, Call, Pager
from tests.brokers import Mosquitto
from tests.endtoend.clock import SteppedClock
from tests.endtoend.node import collecting
from tests.endtoend.test_paging import _ended, _known, cool, fake, heat
from tests.endtoend.watch import Watch, toml, until, watching
from tests.fake_nvml import FakeDriver
from tests.faults.disk import FailingDisk
from tests.faults.record import Told

__all__ = ["fake"]
BUSY = Behaviour(status=429, after="1")


async def test_an_ill_pager_and_kills_between_send_and_journal_lose_nothing_and_call_nobody_twice(
    mosquitto: Mosquitto, tmp_path: Path, fake: FakeDriver, record_property: Told
) -> None:
    """It answers 500 and 429, hangs, drops the connection; and kilowatch dies while the pager has an
    event, before its answer and after it, and the journal does not know."""
    pager = Pager()
    settings = toml({"oncall": pager.settings(tmp_path, timeout_seconds=0.5)})
    async with pager.listening():
        program = "tests.endtoend.hurried"  # the sixth page of a node in a minute is a storm
        with watching(tmp_path / "watch", mosquitto, settings, program) as watch:
            async with collecting(mosquitto, tmp_path, fake):
                await until("the node", lambda: _known(watch))
                pager.script.extend([FAILS, BUSY, HANGS, DROPS, ACCEPTS])
                heat(fake, 0)
                heat(fake, 1)
                await until("two pages", lambda: len(pager.opened) == 2)
                await _dies(watch, pager, fake, 2, answered=False)
                await until("four pages", lambda: len(pager.opened) == 4)
                await until("quiet", lambda: _waits_for_nothing(watch))
                pager.script.extend([FAILS, DROPS])
                await _dies(watch, pager, fake, 4, answered=True)
                await until("all six", lambda: len(pager.opened) == 6)
                await until("quiet", lambda: _waits_for_nothing(watch))
                assert len(watch.incidents()) == 6
    assert set(pager.opened.values()) == {1}  # one call of a person each, under one key each
    taken = Counter(call.key for call in pager.calls if call.status in {0, 202})
    dropped = Counter(call.key for call in pager.calls if call.status == 0)
    assert sum(dropped.values()) == 2  # the pager took them, and kilowatch could not know
    assert max((taken - dropped).values()) <= 2, taken  # at most one duplicate of each
    record_property("expected", "every incident is paged under one key; at most one duplicate each")
    record_property(
        "observed", f"{len(pager.opened)} incidents opened once each, {sum(dropped.values())} answers lost, 2 kills"
    )


async def _dies(watch: Watch, pager: Pager, fake: FakeDriver, first: int, *, answered: bool) -> None:
    """Two more GPUs grow hot; kilowatch dies over the first of their pages, and is started again."""
    before = len(pager.opened)

    def die() -> None:
        if len(pager.opened) > before and watch.process is not None:
            watch.kill()

    async def received(_: Call) -> None:
        die()

    pager.received, pager.answered = (None, die) if answered else (received, None)
    heat(fake, first)
    heat(fake, first + 1)
    await until("its death", lambda: watch.process is None)
    pager.received = pager.answered = None
    watch.start()


def _called(pager: Pager, times: int) -> bool:
    return len(pager.opened) == times


def _waits_for_nothing(watch: Watch) -> bool:
    found = watch.get("/api/v1/channels")
    return found is not None and [one["waiting"] for one in found["channels"]] == [0]


async def test_a_clock_that_steps_and_a_restart_behind_it_miss_nothing_and_call_nobody_twice(
    mosquitto: Mosquitto, tmp_path: Path, fake: FakeDriver
) -> None:
    """A day ahead nothing is repeated or given up; two days behind nothing waits."""
    pager, clock = Pager(), SteppedClock(tmp_path)
    watch = Watch(tmp_path / "watch", mosquitto, toml({"oncall": pager.settings(tmp_path)}))
    watch.environment = clock.environment
    watch.start()
    try:
        async with pager.listening(), collecting(mosquitto, tmp_path, fake):
            await until("the node", lambda: _known(watch))
            for gpu, step in enumerate((0.0, 86_400.0, -2 * 86_400.0)):
                clock.step(step)
                heat(fake, gpu)
                await until(f"page {gpu}", partial(_called, pager, gpu + 1))
            await until("quiet", lambda: _waits_for_nothing(watch))
            watch.kill()
            watch.start()
            await until("it again", lambda: len(watch.incidents()) == 3)
            heat(fake, 3)
            await until("page 3", lambda: len(pager.opened) == 4)
            clock.step(0.0)
            for gpu in range(4):
                cool(fake, gpu)
            await until("all ends", lambda: _ended(pager) == 4)
    except BaseException:
        print((tmp_path / "watch" / "aggregator.log").read_text()[-6000:])
        raise
    finally:
        watch.close()
    assert set(pager.opened.values()) == {1}
    # A pager that answered too late is told again, under the same key.
    told = {(call.action, call.key) for call in pager.calls}
    assert Counter(action for action, _ in told) == {"trigger": 4, "resolve": 4}
    days = {call.body["payload"]["timestamp"][:10] for call in pager.calls if "payload" in call.body}
    assert len(days) >= 3  # the clock was really stepped


async def test_a_journal_that_can_not_be_written_holds_no_page_up_and_is_caught_up_with(
    mosquitto: Mosquitto, tmp_path: Path, fake: FakeDriver
) -> None:
    """The disk answers EIO; then it recovers, kilowatch is killed, and there is no second page."""
    pager, disk = Pager(), FailingDisk(tmp_path, "alerts.sqlite")
    watch = Watch(tmp_path / "watch", mosquitto, toml({"oncall": pager.settings(tmp_path)}))
    watch.environment = disk.environment
    watch.start()
    try:
        async with pager.listening(), collecting(mosquitto, tmp_path, fake):
            await until("the node", lambda: _known(watch))
            disk.be("eio")
            heat(fake, 0)
            await until("the page", lambda: len(pager.opened) == 1)
            await until("trouble", lambda: "\nkilowatch_aggregator_journal_ok 0\n" in watch.page())
            asked = {"matchers": ["gpu=5"], "who": "ann", "why": "fans", "for": "1h"}
            made = await asyncio.to_thread(watch.ask, "POST", "/api/v1/silences", asked)
            assert made["saved"] is False  # it holds, and says that a crash would forget it
            disk.be("ok")
            await until("all on disk", lambda: "\nkilowatch_aggregator_journal_ok 1\n" in watch.page())
            watch.kill()
            watch.start()
            await until("it again", lambda: len(watch.incidents()) == 1)
            silences = (await asyncio.to_thread(watch.get, "/api/v1/silences"))["silences"]
            assert [one["id"] for one in silences] == [made["silence"]["id"]]
            heat(fake, 1)
            await until("another page", lambda: len(pager.opened) == 2)
    except BaseException:
        print((tmp_path / "watch" / "aggregator.log").read_text()[-6000:])
        raise
    finally:
        watch.close()
    assert set(pager.opened.values()) == {1}
    # The collector that ends here may resolve what it measured.
    assert [call.action for call in pager.calls if call.action != "resolve"] == ["trigger"] * 2
