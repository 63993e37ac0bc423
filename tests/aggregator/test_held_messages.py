"""While the rules are evaluated, in slices, messages wait: the fleet that they see does not change."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aggregator.alerting.pipeline import AlertPipeline
from aggregator.ingest.held_messages import AT_ONCE, HeldMessages
from alerts.engine.engine import outcome
from alerts.rules.rule import load
from tests.aggregator.feed import Feed
from tests.kit.waiting import until


class Scene:
    """Messages and what was processed of them, by their times."""

    def __init__(self) -> None:
        self.idle = asyncio.Event()
        self.idle.set()
        self.processed: list[tuple[str, float]] = []
        self.held = HeldMessages(self.process, self.idle)

    def process(self, topic: str, _payload: bytes, now: float, _wall: int) -> None:
        """Note a message."""
        self.processed.append((topic, now))


async def test_messages_pass_at_once_while_the_fleet_may_change() -> None:
    scene = Scene()
    scene.held.add("a", b"", 1.0, 1)
    assert scene.processed == [("a", 1.0)]


async def test_messages_wait_and_pass_in_order_with_the_time_of_their_arrival() -> None:
    scene = Scene()
    running = asyncio.create_task(scene.held.run())
    scene.idle.clear()
    for number in range(2 * AT_ONCE + 1):
        scene.held.add(f"{number}", b"", float(number), number)
    await asyncio.sleep(0)
    assert scene.processed == []
    scene.idle.set()
    seen = []
    for _ in range(4):
        await asyncio.sleep(0)
        seen.append(len(scene.processed))
        if len(seen) == 1:
            scene.held.add("last", b"", -1.0, 0)
    await until(lambda: scene.processed[-1][0] == "last")
    assert [time for _, time in scene.processed[:-1]] == [float(n) for n in range(2 * AT_ONCE + 1)]
    assert max(b - a for a, b in zip([0, *seen], seen, strict=False)) <= AT_ONCE, "in turns"
    running.cancel()


async def test_a_second_evaluation_stops_the_release() -> None:
    scene = Scene()
    running = asyncio.create_task(scene.held.run())
    scene.idle.clear()
    scene.held.add("a", b"", 1.0, 1)
    scene.idle.set()
    scene.idle.clear()
    await asyncio.sleep(0)
    scene.held.add("b", b"", 2.0, 2)
    scene.held.release()
    assert [topic for topic, _ in scene.processed] == ["a", "b"], "at the end, all of them"
    running.cancel()


async def test_a_message_never_passes_in_an_evaluation_that_begins_at_once() -> None:
    """The waiter is woken by the end of one evaluation, and runs in the next."""
    scene = Scene()
    running = asyncio.create_task(scene.held.run())
    scene.idle.clear()
    scene.held.add("a", b"", 1.0, 1)
    for _ in range(3):
        await asyncio.sleep(0)
    scene.idle.set()
    scene.idle.clear()
    for _ in range(5):
        await asyncio.sleep(0)
    assert scene.processed == []
    scene.idle.set()
    await until(lambda: scene.processed == [("a", 1.0)])
    running.cancel()


async def test_the_rules_are_evaluated_in_as_many_steps_as_there_are_rules(tmp_path: Path) -> None:
    """Step by step they find what they find at once."""
    found = []
    for stepwise in (False, True):
        feed = Feed(tmp_path / str(stepwise))
        for name in ("a", "b"):
            feed.hello(name)
            feed.send(name, 0)
        feed.flush()
        pipeline = AlertPipeline(load(), lambda *_: None, now=feed.now, wall=feed.wall)
        steps = 0
        changes = []
        for second in range(0, 600, 30):
            arguments = (feed.fleet, feed.now + second, feed.wall + second * 10**9, ())
            if stepwise:
                running = pipeline.steps(*arguments, listening=True, snapshots=())
                next(running)
                steps += 1
                changes += outcome(running)
            else:
                changes += pipeline.evaluate(*arguments, listening=True, snapshots=())
        found.append([(alert.key, alert.state, alert.summary) for alert in changes])
        assert steps == (20 if stepwise else 0)
    assert found[0] == found[1]
    assert found[0], "two nodes that fell silent"
