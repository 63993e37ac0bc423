"""Faults that last for hours, which the test gives in place of waiting: a broker that is away, and clocks that are set."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import msgspec
import pytest

from aggregator.service import Aggregator
from api.alerts import AlertState
from tests.aggregator.test_service import running
from tests.brokers import Mosquitto
from tests.faults.given_time import GivenTime, give_clocks
from tests.faults.record import Observe, fault
from tests.faults.scripted import TICK, Actor, Script, check_stored, fired, with_rules
from tests.kit.waiting import until

STEP = 20
"""Seconds that pass at once, and between two evaluations of the rules."""
AWAY = 3600
KEPT = 300
"""Seconds after the return, beyond which the alert is over."""
MOST_HOURS = 12
STEPS = 6
"""Number of times that the clock is set."""


def firing(aggregator: Aggregator) -> set[str]:
    """Return the names of the rules that fire now."""
    return {alert.rule for alert in aggregator.alerts() if alert.state is AlertState.FIRING}


def _by(clock: GivenTime) -> Script:
    """Return a script whose node has a right clock."""
    began, stamps = clock.time_ns(), dict[int, int]()
    return Script(lambda seq: stamps.setdefault(seq, clock.time_ns()) - began - seq * TICK, began=began)


async def _forever(*_: object) -> None:
    await asyncio.Event().wait()


@fault("4c", "paged as a lost broker alone; then live frames first, and all of the hour, nothing lost")
async def test_broker_away_an_hour(
    mosquitto: Mosquitto, tmp_path: Path, observe: Observe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is away for an hour, of which the nodes keep every second; the time is given."""
    monkeypatch.setattr(Aggregator, "_shed", _forever)  # minutes that pass at once look like a load
    settings = msgspec.structs.replace(with_rules(mosquitto.config, tmp_path), rule_seconds=STEP)
    clock = GivenTime()
    with clock.in_force():
        async with (
            running(settings) as aggregator,
            Actor(mosquitto.config, "a", _by(clock)) as one,
            Actor(mosquitto.config, "b", _by(clock)) as other,
        ):
            give_clocks(aggregator)
            actors = (one, other)

            async def second() -> None:
                clock.passed += 1.0
                await asyncio.gather(*(actor.tick() for actor in actors))

            async def step() -> None:
                """Pass some seconds, with an evaluation of the rules and a commit among or after them."""
                evaluated, committed = aggregator.stats.rules.count, aggregator._commit_done
                for _ in range(STEP):
                    await second()
                await until(lambda: aggregator.stats.rules.count > evaluated)
                await until(committed.is_set)

            async def whole() -> None:
                await until(lambda: aggregator.stats.bus_connected)
                await second()
                sent = sum(actor.made[1] for actor in actors)
                await until(
                    lambda: aggregator.stats.frames_stored == sent,
                    lambda: f"{aggregator.stats.frames_stored} of {sent} frames",
                )

            for _ in range(20):
                await second()
            await until(lambda: aggregator.stats.frames_stored == 40)
            mosquitto.kill()
            await until(lambda: not any(actor.connected.is_set() for actor in actors))
            for _ in range(AWAY // STEP):
                await step()
            assert fired(aggregator) == {"bus_lost"}, "what is lost is the broker, not the nodes"
            mosquitto.start()
            await until(lambda: all(actor.connected.is_set() for actor in actors))
            await whole()
            for _ in range(KEPT // STEP + 1):
                await step()
            await until(lambda: "bus_lost" not in firing(aggregator))
            await whole()
            again = aggregator.stats.frames_backfilled
            assert aggregator.stats.frames_lost == 0
            assert again >= 2 * AWAY - 2
            assert fired(aggregator) == {"bus_lost"}
    compared = sum(check_stored(tmp_path, actor) for actor in actors)
    observe(
        f"{sum(actor.made[1] for actor in actors)} frames of 2 nodes, {again} of them from the rings, none lost; alerts: bus_lost; "
        f"{compared} values right"
    )


@fault("21", "ages stay right, nobody is called silent, no alert is lost")
async def test_aggregator_clock(mosquitto: Mosquitto, tmp_path: Path, observe: Observe, seed: int) -> None:
    """The aggregator's wall clock is set by up to twelve hours, both ways, again and again."""
    dice, clock = random.Random(seed), GivenTime()
    script = Script(temperature=lambda seq: 95.0 if seq >= 20 * (STEPS + 1) else 40.0)
    with clock.in_force():
        async with (
            running(with_rules(mosquitto.config, tmp_path)) as aggregator,
            Actor(mosquitto.config, "a", script) as node,
        ):
            give_clocks(aggregator)
            hours = [0.0]
            ages = []
            for number in range(1, STEPS + 2):
                await node.play(20)
                await until(lambda: aggregator.stats.frames_stored == node.made[1])
                assert fired(aggregator) == set()
                ages.append(aggregator.now() - aggregator.fleet.nodes["a"].seen)
                if number <= STEPS:
                    way = 1 if number % 2 else -1
                    hours.append(way * dice.uniform(1, MOST_HOURS))
                    clock.step = hours[-1] * 3600
            await node.tick()  # too hot: the alert comes whatever the clock has done
            await until(lambda: "test_hot" in fired(aggregator))
            await until(lambda: aggregator.stats.frames_stored == node.made[1])
            assert fired(aggregator) == {"test_hot"}
            assert max(ages) < 3
    compared = check_stored(tmp_path, node, moved=True, within=MOST_HOURS + 0.1)
    observe(
        f"set by {', '.join(f'{each:+.1f}' for each in hours[1:])} h: {node.made[1]} frames stored, newest "
        f"{max(ages):.1f} s old, alert fired; {compared} values right"
    )
