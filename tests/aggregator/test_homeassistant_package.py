"""Home Assistant's own package shows what is published on a real mosquitto: its core and its integration MQTT in
a process of another virtual environment (`make homeassistant`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiomqtt import Client

from aggregator.homeassistant.publisher import HomeAssistantPublisher
from aggregator.settings.homeassistant import HomeAssistantConfig
from tests.aggregator.node import ScriptedNode, inventory, value
from tests.aggregator.test_forget import end
from tests.aggregator.test_homeassistant import (
    CIRCUIT,
    GPU,
    HOMEASSISTANT,
    home,
    impatient,
    needs_homeassistant,
    settings,
    ticking,
)
from tests.aggregator.test_service import running
from tests.brokers import Mosquitto, free_port
from tests.kit.waiting import until

__all__ = ["impatient"]

pytestmark = [pytest.mark.systems, pytest.mark.nightly, needs_homeassistant]
MACHINE = {"machine": "6f2c"}
Shown = dict[str, dict[str, Any]]


class HomeAssistant:
    """A running Home Assistant: what it shows of each entity, by unique id, at last."""

    def __init__(self) -> None:
        self.shown: Shown = {}

    def state(self, unique_id: str) -> object:
        """The state of an entity; None where there is none."""
        return self.shown.get(unique_id, {}).get("state")

    async def read(self, lines: asyncio.StreamReader) -> None:
        async for line in lines:
            self.shown = json.loads(line)


@contextlib.asynccontextmanager
async def homeassistant(mosquitto: Mosquitto, folder: Path) -> AsyncIterator[HomeAssistant]:
    """Home Assistant on a broker, set up anew; at its end it must have complained of nothing of ours."""
    log, found = folder / "homeassistant.log", HomeAssistant()
    script = Path(__file__).with_name("homeassistant_instance.py")
    ports = (str(mosquitto.port), str(free_port()))
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            str(HOMEASSISTANT),
            str(script),
            str(folder / "homeassistant"),
            *ports,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            limit=1 << 24,
        )
    assert process.stdout is not None
    reading = asyncio.create_task(found.read(process.stdout))
    try:
        yield found
        assert process.returncode is None, log.read_text()
        complaints = [line for line in log.read_text().splitlines() if _is_of_ours(line)]
        assert complaints == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await reading


def _is_of_ours(line: str) -> bool:
    return any(word in line for word in ("kilowatch", "sensor.", "Invalid config", "MQTT"))


def machine(mosquitto: Mosquitto, name: str) -> AbstractAsyncContextManager[ScriptedNode]:
    """The machine under a name, which sends frames."""
    return ticking(mosquitto.config, name, msgspec.structs.replace(inventory("rig", 2), host=MACHINE))


def values(node: ScriptedNode) -> set[str]:
    """Return the texts that may show the power of the node's first GPU."""
    return {f"{value(node.name, 0, 0, seq):.0f}" for seq in range(node.made[node.session])}


async def test_home_assistant_shows_what_appears_updates_is_renamed_and_vanishes(
    mosquitto: Mosquitto, tmp_path: Path, impatient: None
) -> None:
    broker = mosquitto.config
    async with homeassistant(mosquitto, tmp_path) as shows:
        async with running(settings(broker, tmp_path / "data")) as aggregator:
            async with machine(mosquitto, "rig") as node:
                await until(lambda: len(shows.shown) == 7 + 2 * 5)
                await until(lambda: shows.state(GPU) in values(node))
                first = shows.state(GPU)
                await until(lambda: shows.state(GPU) in values(node) - {first})
                power = shows.shown[GPU]
                assert (power["entity"], power["name"]) == ("sensor.rig_gpu_0_power", "rig GPU 0 Power")
                assert power["attributes"]["unit_of_measurement"] == "W"
                assert power["attributes"]["device_class"] == "power"
                problem = shows.shown["kilowatch_default_gpu_GPU-rig-0_problem"]
                assert (problem["state"], problem["attributes"]["alerts"]) == ("off", [])
                energy = shows.shown["kilowatch_default_gpu_GPU-rig-0_energy"]["attributes"]
                assert (energy["state_class"], energy["device_class"]) == ("total_increasing", "energy")
            await end(mosquitto, "rig")
            await until(lambda: shows.state(GPU) == "unavailable")
            async with machine(mosquitto, "study") as node:
                await until(lambda: shows.shown[GPU]["device"] == "study GPU 0")
                await until(lambda: shows.state(GPU) in values(node))
                assert shows.shown[GPU]["entity"] == power["entity"], "its history is by this id"
                assert len(shows.shown) == 7 + 2 * 5
            await end(mosquitto, "study")
            await until(lambda: shows.state(GPU) == "unavailable")
            assert await aggregator.forget("study")
            await until(lambda: all(one.startswith(CIRCUIT) for one in shows.shown))
            assert len(shows.shown) == 7
        await until(lambda: {one["state"] for one in shows.shown.values()} == {"unavailable"})
        off = settings(broker, tmp_path / "data", homeassistant=HomeAssistantConfig())
        async with running(off):
            await until(lambda: not shows.shown)


async def test_a_value_without_news_expires_in_home_assistant(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publisher that hangs over an open connection: nobody says that it is away."""
    update, goes = HomeAssistantPublisher._update, asyncio.Event()
    goes.set()

    async def hangs(self: HomeAssistantPublisher, client: Client, now: float) -> None:
        await goes.wait()
        await update(self, client, now)

    monkeypatch.setattr(HomeAssistantPublisher, "_update", hangs)
    broker = mosquitto.config
    async with (
        homeassistant(mosquitto, tmp_path) as shows,
        machine(mosquitto, "rig") as node,
        home(broker) as seen,
        running(settings(broker, tmp_path / "data")),
    ):
        await until(lambda: shows.state(GPU) in values(node))
        goes.clear()
        await until(lambda: shows.state(GPU) == "unavailable")
        assert set(seen.status.values()) == {"online"}, "it did expire"
        goes.set()
        await until(lambda: shows.state(GPU) in values(node))
