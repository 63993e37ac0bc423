"""`kilowatch run` on a machine without a driver: what is made up must not reach people."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kilowatch.settings import load
from kilowatch.stack import run as machine
from tests.brokers import free_port

CHANNEL = """
[alerts.channels.oncall]
type = "webhook"
url = "http://127.0.0.1:1/hook"
[[alerts.routes]]
channels = ["oncall"]
"""


@pytest.mark.parametrize(("driver", "channels"), [(False, []), (True, ["oncall"])])
async def test_simulated_readings_are_not_notified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: bool, channels: list[str]
) -> None:
    settings = tmp_path / "k.toml"
    settings.write_text(CHANNEL)
    found: list[Any] = []
    announced: list[str] = []

    async def run_stack(parts: object, aggregator: Any, *_: object, **__: object) -> None:
        found.append(aggregator)

    monkeypatch.setattr(machine, "has_driver", lambda: driver)
    monkeypatch.setattr(machine, "run_stack", run_stack)
    await machine.run_machine(
        load(settings, {"HOME": str(tmp_path)}, {}),
        http=("127.0.0.1", free_port()),
        broker_port=free_port(),
        data=tmp_path / "data",
        seconds=0.0,
        stop=asyncio.Event(),
        announce=announced.append,
    )
    assert list(found[0].alerts.channels) == channels
    assert any("not notified" in line for line in announced) is not driver
