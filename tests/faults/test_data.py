"""Faults of what is said: wrong clocks, rubbish, counters that begin anew, news of yesterday."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from pathlib import Path

from telemetry.wire.topics import Topic
from tests.aggregator.test_service import running
from tests.brokers import Mosquitto
from tests.faults.record import Observe, fault
from tests.faults.scripted import TICK, Actor, Script, check_stored, fired, suspected, with_rules
from tests.kit.waiting import until

DAY = 86_400 * 10**9
HOUR = 3600 * 10**9


@fault("19", "counted by reason, sampled, no stall; the frames themselves are all stored")
async def test_malformed_flood(mosquitto: Mosquitto, tmp_path: Path, seed: int, observe: Observe) -> None:
    """Among the frames of a node one in a hundred is cut, rubbish, huge, or of no known schema."""
    dice = random.Random(seed)
    settings = with_rules(mosquitto.config, tmp_path)
    spoiled = 0
    async with (
        running(settings) as aggregator,
        Actor(mosquitto.config, "a") as node,
        Actor(mosquitto.config, "b") as bystander,
    ):
        for number in range(1000):
            if number % 100 == 50:
                _, whole = node.sample()  # it comes spoiled only, and is missed
                await node.publish(Topic.FRAME, _spoil(whole, dice))
                spoiled += 1
            await node.tick()
            if number % 10 == 0:
                await bystander.tick()
                await asyncio.sleep(0.005)
        sent = node.made[1] + bystander.made[1]
        await until(lambda: aggregator.stats.frames_stored == sent)
        stats = aggregator.stats
        await node.hello()  # a frame of an unknown schema waits for an inventory
        await until(lambda: sum(stats.dropped.values()) == spoiled)
        dropped = dict(stats.dropped)
        assert stats.frames_lost == 0
        assert fired(aggregator) == {"messages_refused"}
    compared = check_stored(tmp_path, node) + check_stored(tmp_path, bystander)
    observe(f"{sent} frames with {spoiled} spoiled: dropped {dropped}; all {sent} stored, {compared} values right")


def _spoil(whole: bytes, dice: random.Random) -> bytes:
    """Return a message that can't be read as a frame."""
    match dice.randrange(4):
        case 0:
            return whole[: dice.randrange(len(whole) // 2)]
        case 1:
            at = dice.randrange(4)  # where the envelope says its kind and its schema
            return whole[:at] + bytes([0xC1]) + whole[at + 1 :]
        case 2:
            return dice.randbytes(200)
        case _:
            return whole + bytes(2 * 1024 * 1024)


CLOCKS = {
    "day-ahead": Script(clock=lambda _: DAY),
    "day-behind": Script(clock=lambda _: -DAY),
    "stepped": Script(clock=lambda seq: 0 if seq < 10 else HOUR if seq < 20 else -2 * HOUR),
    "frozen": Script(clock=lambda seq: -seq * TICK),
}


@fault("20", "kept in the order of their numbers, shown as current; skew is told, nothing else")
async def test_node_clocks(mosquitto: Mosquitto, tmp_path: Path, observe: Observe, seed: int) -> None:
    """Clocks of nodes a day ahead, a day behind, stepped by hours, set by up to twelve hours both ways, and frozen."""
    settings = with_rules(mosquitto.config, tmp_path)
    dice = random.Random(seed)
    hours = [way * dice.randint(HOUR, 12 * HOUR) for way in (1, -1, 1, -1, 1, -1)]
    clocks = CLOCKS | {"set": Script(clock=lambda seq: hours[min(seq // 8, 5)])}
    actors = [Actor(mosquitto.config, name, script) for name, script in clocks.items()]
    async with running(settings) as aggregator, contextlib.AsyncExitStack() as stack:
        for actor in actors:
            await stack.enter_async_context(actor)
        await asyncio.gather(*(actor.play(40) for actor in actors))
        sent = 40 * len(actors)
        await until(lambda: aggregator.stats.frames_stored == sent)
        await until(lambda: all(aggregator.fleet.nodes[name].seq == 39 for name in clocks))
        for actor in actors:
            await actor.tick()
        sent += len(actors)
        await until(lambda: aggregator.stats.frames_stored == sent)
        now = aggregator.now()
        ages = [now - aggregator.fleet.nodes[name].seen for name in clocks]
        assert max(ages) < 3
        judged = aggregator.stats.rules.count
        await until(lambda: aggregator.stats.rules.count > judged + 2)
        assert fired(aggregator) == set()
        skewed = {"day-ahead", "day-behind", "stepped", "set"}
        await until(lambda: suspected(aggregator, "clock_skew") >= skewed)
        assert aggregator.stats.frames_lost == 0
    compared = sum(check_stored(tmp_path, actor, moved=True) for actor in actors)
    observe(
        f"{sent} frames of {len(actors)} nodes stored in order, none stale, skew of {len(skewed)} told, nothing "
        f"else; {compared} values right"
    )


@fault("24", "the counter is stored as it was; no rate is negative or huge")
async def test_counter_reset(mosquitto: Mosquitto, tmp_path: Path, observe: Observe) -> None:
    """Counters fall from a billion to nothing, as when the driver is loaded anew."""
    quiet = Script(energy=lambda seq: 1e9 + seq if seq < 60 else float(seq - 60))
    busy = Script(energy=lambda seq: 1e9 + 1000.0 * seq)
    actors = [Actor(mosquitto.config, "quiet", quiet), Actor(mosquitto.config, "busy", busy)]
    async with running(with_rules(mosquitto.config, tmp_path)) as aggregator, actors[0], actors[1]:
        await asyncio.gather(*(actor.play(150, pause=0.03) for actor in actors))
        await until(lambda: "test_rate" in fired(aggregator))
        await until(lambda: aggregator.stats.frames_stored == 300)
        assert fired(aggregator) == {"test_rate"}
        rates = [alert for alert in aggregator.alerts() if alert.rule == "test_rate"]
        assert {alert.node for alert in rates} == {"busy"}
        value = max(alert.value or 0.0 for alert in rates)
        assert 1000 <= value < 1e6
    compared = sum(check_stored(tmp_path, actor) for actor in actors)
    observe(f"no alert of the reset, one of a true rise ({value:.0f}/s); {compared} values right")


@fault("25", "told although frames go on coming; neither a busy nor an idle GPU is accused")
async def test_frozen_readings(mosquitto: Mosquitto, tmp_path: Path, observe: Observe) -> None:
    """A collector that lives and repeats its last readings for ever."""
    stuck = Script(power=lambda seq: 300.0 + min(seq, 40), energy=lambda seq: 9.0 * min(seq, 40))
    idle = Script(power=lambda _: 60.0, energy=lambda seq: 6.0 * seq)
    actors = [
        Actor(mosquitto.config, "stuck", stuck),
        Actor(mosquitto.config, "idle", idle),
        Actor(mosquitto.config, "busy"),
    ]
    async with running(with_rules(mosquitto.config, tmp_path)) as aggregator, actors[0], actors[1], actors[2]:
        await asyncio.gather(*(actor.play(40) for actor in actors))
        began = time.monotonic()
        playing = [asyncio.create_task(actor.play(200)) for actor in actors]
        await until(lambda: "test_frozen" in fired(aggregator))
        told = time.monotonic() - began
        await asyncio.gather(*playing)
        await until(lambda: aggregator.stats.frames_stored == 720)
        assert suspected(aggregator, "test_frozen") == {"stuck"}
        assert fired(aggregator) == {"test_frozen"}
    compared = sum(check_stored(tmp_path, actor) for actor in actors)
    observe(f"told after {told:.1f} s of a limit of 1 s; {compared} values right")


@fault("31", "stored as history; shown and judged is the present alone")
async def test_news_of_yesterday(mosquitto: Mosquitto, tmp_path: Path, observe: Observe) -> None:
    """Frames in which a GPU was too hot come as backfill, when it is long cool again."""
    script = Script(temperature=lambda seq: 95.0 if 10 <= seq < 30 else 40.0)
    live = Script(temperature=lambda seq: 95.0 if seq >= 10 else 40.0)
    async with (
        running(with_rules(mosquitto.config, tmp_path)) as aggregator,
        Actor(mosquitto.config, "late", script) as late,
        Actor(mosquitto.config, "live", live) as hot,
    ):
        await late.play(10)
        await late.play(20, lost=True)
        await late.play(10)
        await until(lambda: aggregator.stats.frames_stored == 40)
        assert aggregator.stats.frames_backfilled >= 20
        await hot.play(12)  # the same heat, seen as it happens, does page
        await until(lambda: "test_hot" in fired(aggregator))
        assert suspected(aggregator, "test_hot") == {"live"}
        assert fired(aggregator) == {"test_hot"}
    compared = check_stored(tmp_path, late)
    observe(f"20 hot frames backfilled, no alert; the same heat live fired; {compared} values right")
