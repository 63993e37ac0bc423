"""A task of a collector that fails is started again and sends frames, whatever it waits for at that moment.

`KILOWATCH_ROUNDS=120` takes so many rounds instead of the few that a test has time for.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from collector.assembly import CollectorAssembly
from telemetry.wire.mqtt import MqttClient
from tests.brokers import Mosquitto, free_port
from tests.collector.bus import collecting, config_of, reading
from tests.collector.test_supervision import TASKS, assemblies  # noqa: F401 - a fixture
from tests.fakes import FakeSource
from tests.killing import fail_all
from tests.kit.waiting import until

ROUNDS = int(os.environ.get("KILOWATCH_ROUNDS", "5"))


@pytest.mark.parametrize("answer", range(1, ROUNDS + 1))
async def test_a_publisher_that_fails_together_with_an_answer_of_the_broker_is_started_again(
    mosquitto: Mosquitto,
    tmp_path: Path,
    assemblies: list[CollectorAssembly],  # noqa: F811 - the fixture
    monkeypatch: pytest.MonkeyPatch,
    answer: int,
) -> None:
    """The cancellation of the other tasks comes together with what one of them waits for, and it comes once."""
    answers, failed = 0, False
    receive = MqttClient._on_publish

    def fail_at_once(self: MqttClient, *arguments: Any, **named: Any) -> None:
        nonlocal answers, failed
        receive(self, *arguments, **named)
        answers += 1
        if answers >= answer and not failed:
            failed = fail_all("publishing n1")

    monkeypatch.setattr(MqttClient, "_on_publish", fail_at_once)
    config = config_of(mosquitto.config, tmp_path / "n1")
    async with reading(mosquitto.config) as reader, collecting(config, FakeSource()):
        await until(lambda: failed)
        [parts] = assemblies
        state = parts.supervisor.states["publisher"]
        await until(lambda: state.restarts == 1 and parts.publisher.connected)
        frames = len(reader.frames)
        await until(lambda: len(reader.frames) > frames + 2)


@pytest.mark.parametrize("_number", range(ROUNDS))
async def test_each_task_that_fails_once_is_started_again_and_frames_are_sent(
    mosquitto: Mosquitto,
    tmp_path: Path,
    assemblies: list[CollectorAssembly],  # noqa: F811 - the fixture
    _number: int,
) -> None:
    """The publisher fails while the events about the tasks before it are sent."""
    kernel = tmp_path / "kern.log"
    kernel.write_text("")
    config = config_of(
        mosquitto.config, tmp_path / "n1", kernel_log=str(kernel), metrics_listen=f"127.0.0.1:{free_port()}"
    )
    async with reading(mosquitto.config) as reader, collecting(config, FakeSource()):
        await until(lambda: len(reader.frames) >= 3)
        [parts] = assemblies
        await until(parts.started.is_set)
        for name in sorted(TASKS):
            state = parts.supervisor.states[name]
            await until(lambda state=state, name=name: state.running and fail_all(f"{name} n1"))  # type: ignore[misc]
            await until(lambda state=state: state.restarts == 1 and state.running)  # type: ignore[misc]
        frames = len(reader.frames)
        await until(lambda: len(reader.frames) > frames + 2)
