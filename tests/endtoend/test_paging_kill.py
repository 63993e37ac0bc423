"""kill -9 of a whole aggregator at random points of alerts' lives: none is missed, none paged twice.

`KILOWATCH_KILLS=100` kills so many times instead of the few that a test has time for;
`KILOWATCH_SEED` draws other moments.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.alerts.pager import Call, Pager
from tests.brokers import Mosquitto
from tests.collector.bus import NODE
from tests.endtoend.node import collecting
from tests.endtoend.watch import Watch, toml, until, watching
from tests.fake_nvml import FakeDriver

KILLS = int(os.environ.get("KILOWATCH_KILLS", "3"))
SEED = int(os.environ.get("KILOWATCH_SEED", "7"))
GPUS = 4
RULES = """
[[rule]]
name = "toasty"
when = { type = "above", metric = "gpu_temperature_celsius", level = 80, clear = 75 }
hold = 1
keep = 1
severity = "page"
remediation = "reset"
summary = "{where} is at {value}"
description = "Let {node} cool down."
runbook = "toasty"
"""
TEMPERATURE = "nvmlDeviceGetTemperature/0"


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeDriver]:
    """A few H100."""
    with FakeDriver(tmp_path, gpus=GPUS, links=2) as driver:
        yield driver


class Ward:
    """GPUs that grow hot and cool down, people who look after them, and whoever kills the monitor."""

    def __init__(self, watch: Watch, pager: Pager, fake: FakeDriver) -> None:
        self.watch, self.pager, self.fake = watch, pager, fake
        self.dice = random.Random(SEED)
        self.kills = 0
        self.phases: Counter[str] = Counter()
        """How many alerts were in each phase of their life when it was killed."""
        self.now = dict.fromkeys(range(GPUS), "good")
        self.episodes: Counter[int] = Counter()
        self.lives: list[list[Call]] = []

    async def kill(self) -> None:
        """Kill it again and again, at its start and while it works."""
        while self.kills < KILLS:
            if self.dice.random() < 0.8:
                await until("it serves", lambda: self.watch.get("/api/v1/channels"))
            await asyncio.sleep(self.dice.uniform(0, 2.0))  # the moment is what is drawn
            self.watch.kill()
            self.kills += 1
            self.phases.update(self.now.values())
            self.lives.append(self.pager.take_calls())
            self.watch.start()

    async def nurse(self, gpu: int) -> None:
        """Make one GPU fail repeatedly, with or without repairs."""
        kinds = ("plain", "acked", "silenced")
        while self.kills < KILLS or not self.episodes[gpu]:
            await self.episode(gpu, kinds[(gpu + self.episodes[gpu]) % len(kinds)])
            self.episodes[gpu] += 1

    async def episode(self, gpu: int, kind: str) -> None:
        """From good to bad and back."""
        uuid = self.fake.uuid(gpu)
        if kind == "silenced":
            asked = {"matchers": [f"uuid={uuid}"], "who": "ann", "why": "fans", "for": "1h"}
            await self.ask("POST", "/api/v1/silences", asked)
        self.now[gpu] = "pending"
        self.fake.call(TEMPERATURE, 82, gpu=gpu)
        if kind == "silenced":
            await self.until(f"{uuid} silenced", lambda: self.standing(uuid) == "silenced")
            self.now[gpu] = "silenced"
            await self.another_kill()
            await self.until("it again", lambda: self.standing(uuid) == "silenced")
            assert len(self.keys(gpu)) == self.episodes[gpu], "a silenced alert was told"
            for number in await asyncio.to_thread(self.silences, uuid):
                await self.ask("DELETE", f"/api/v1/silences/{number}", {"who": "ann"})
        await self.until(f"the page of {uuid}", lambda: len(self.keys(gpu)) > self.episodes[gpu])
        self.now[gpu] = "firing"
        key = self.keys(gpu)[-1]
        if kind == "plain":
            await self.another_kill()
        if kind == "acked":
            await self.ask("POST", f"/api/v1/incidents/{key}/ack", {"who": "bob", "why": "mine"})
            self.now[gpu] = "acked"
            await self.another_kill()
            await self.until("who took it", lambda: self.taken_by(key).endswith("(bob)"))
        self.now[gpu] = "resolving"
        self.fake.call(TEMPERATURE, 61, gpu=gpu)
        await self.until(f"the end of {key}", lambda: self.pager.state[key] == "resolved")
        self.now[gpu] = "good"

    async def until(self, what: str, so: Callable[[], object]) -> None:
        """Wait, for longer than a few kills take."""
        await until(what, so, 120)

    async def another_kill(self) -> None:
        """Wait until it was killed once more, if it is at all."""
        before = self.kills
        await self.until("another kill", lambda: self.kills > before or self.kills >= KILLS)

    async def ask(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask until it has answered that it is done, and on disk."""
        answers: list[dict[str, Any]] = []

        def asked() -> bool:
            found = self.watch.ask(method, path, body)
            if found is not None and ("over" in str(found) or found.get("saved")):
                answers.append(found)  # "over": it was done, and died before it answered
            return bool(answers)

        await self.until(f"{method} {path}", asked)
        return answers[0]

    def silences(self, uuid: str) -> list[str]:
        """Return the silences of a GPU: two, where one was made and its answer lost."""
        found = None
        while found is None:
            found = self.watch.get("/api/v1/silences")
        return [
            one["id"] for one in found["silences"] if one["matchers"][0]["value"] == uuid and one["ends"] > found["at"]
        ]

    def standing(self, uuid: str) -> str:
        """Who hears of the alert of a GPU; "" where none fires."""
        found = self.watch.get(f"/api/v1/alerts?gpu={uuid}&state=firing&rule=toasty")
        return str(found["alerts"][0]["standing"]) if found and found["alerts"] else ""

    def taken_by(self, key: str) -> str:
        """Who takes care of an incident."""
        found = self.watch.get(f"/api/v1/incidents/{key}")
        note = found["incident"]["acknowledged"] if found and "incident" in found else None
        return str(note["who"]) if note else ""

    def calls(self) -> list[Call]:
        """Return all that the pager has taken."""
        every = [*(call for life in self.lives for call in life), *self.pager.calls]
        return [call for call in every if call.status == 202]

    def keys(self, gpu: int) -> list[str]:
        """Return the keys under which a GPU was notified, in order."""
        told = [call for call in self.calls() if call.action == "trigger"]
        name = f"GPU {gpu}"  # not its UUID: the evidence of another page may name that
        return list(dict.fromkeys(c.key for c in told if c.body["payload"]["component"] == name))


@pytest.mark.timeout(300 + 30 * KILLS)
async def test_killed_at_any_point_of_their_lives_alerts_are_paged_once_each(
    mosquitto: Mosquitto, tmp_path: Path, fake: FakeDriver
) -> None:
    pager = Pager()
    settings = toml({"oncall": pager.settings(tmp_path)})
    program = "tests.endtoend.hurried"
    async with pager.listening():
        with watching(tmp_path / "watch", mosquitto, settings, program) as watch:
            (watch.folder / "mine.toml").write_text(RULES)
            async with collecting(mosquitto, tmp_path, fake):
                await until("the node", lambda: "gpus" in (watch.get(f"/api/v1/nodes/{NODE}") or {}))
                ward = Ward(watch, pager, fake)
                async with asyncio.TaskGroup() as group:
                    group.create_task(ward.kill())
                    for gpu in range(GPUS):
                        group.create_task(ward.nurse(gpu))
    ward.lives.append(pager.take_calls())
    print(f"{ward.kills} kills, {sum(ward.episodes.values())} lives, met {dict(ward.phases)}")
    told = Counter(call.key for call in ward.calls() if call.action == "trigger")
    for gpu in range(GPUS):
        assert len(ward.keys(gpu)) == ward.episodes[gpu]  # none missed, none notified as another
    assert len(told) == sum(ward.episodes.values())
    assert set(pager.opened.values()) == {1}  # no page was sent twice
    assert set(pager.state.values()) == {"resolved"}
    twice = sum(told.values()) - len(told)
    print(f"{twice} triggers arrived twice, under one key")
    assert twice <= ward.kills  # only what was between send and journal:
    for life in ward.lives:
        once = Counter((call.key, call.action) for call in life if call.status == 202)
        assert all(count == 1 for count in once.values()), once
    if KILLS >= 50:
        assert {"pending", "firing", "acked", "silenced", "resolving"} <= ward.phases.keys()
