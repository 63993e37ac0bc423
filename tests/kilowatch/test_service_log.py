"""The log of services: one line at the start, JSON where it is wanted, and what a reload changed."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aggregator.config import AggregatorConfig
from aggregator.settings.members import MembersConfig
from alerts.config import AlertsConfig
from collector.config import CollectorConfig
from kilowatch.stack.start_line import aggregator_facts, collector_facts
from telemetry.runtime.release import release
from telemetry.text.service_log import JsonFormatter, changed_keys, log_reload
from telemetry.wire.mqtt import BrokerConfig
from tests.brokers import Broker

LONGEST = 120.0
"""Seconds that a test waits for a line."""


class Service:
    """A process of kilowatch and the lines of its log."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    def lines(self) -> list[str]:
        """Return the whole lines of now."""
        return self._log.read_text().split("\n")[:-1]

    def line(self, fits: Callable[[str], bool]) -> str:
        """Wait for a line."""
        deadline = time.monotonic() + LONGEST
        while True:
            found = next((each for each in self.lines() if fits(each)), None)
            if found is not None:
                return found
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)

    def reload(self) -> None:
        """Send SIGHUP."""
        self.process.send_signal(signal.SIGHUP)


@contextmanager
def service(folder: Path, *arguments: str) -> Iterator[Service]:
    """Run `kilowatch ARGUMENTS` with a state folder of its own."""
    log = folder / "log"
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "STATE_DIRECTORY": ""}
    environment.pop("JOURNAL_STREAM", None)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "kilowatch", *arguments],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment,
        )  # fmt: skip
    try:
        yield Service(process, log)
    finally:
        process.terminate()
        process.wait(60)


def settings(folder: Path, broker: BrokerConfig, more: str = "", listen: str = "127.0.0.1:0") -> Path:
    """Write a settings file; a second call replaces it."""
    path = folder / "kilowatch.toml"
    path.write_text(
        f'cluster = "hall"\n{more}\n'
        f'[broker]\nhost = "{broker.host}"\nport = {broker.port}\n'
        f'[collector]\nnode = "n1"\nsource = "simulated:desktop-4x5090"\n'
        f'state_dir = "{folder}/ring"\nkernel_log = "{folder}/none"\nnode_readings = false\n'
        f'[aggregator]\nlisten = "{listen}"\ndata_dir = "{folder}/data"\n'
    )
    return path


CHANNEL = '[alerts.channels.phone]\ntype = "webhook"\nurl = "http://127.0.0.1:1/x"'
CIRCUIT = '[power.circuits.office]\nnodes = ["n1"]\nbreaker = 16'


@pytest.mark.systems
def test_an_aggregator_says_what_it_is_and_what_a_reload_did_not_change(mosquitto: Broker, tmp_path: Path) -> None:
    path = settings(tmp_path, mosquitto.config)
    with service(tmp_path, "aggregate", "--config", str(path)) as aggregator:
        line = aggregator.line(lambda each: "aggregator" in each)
        assert f"aggregator {release()}; cluster hall; listens to http://127.0.0.1:" in line
        assert "listens to http://127.0.0.1:0" not in line
        assert f"reads kilowatch/1/hall/# from 127.0.0.1:{mosquitto.config.port}, not encrypted" in line
        assert "notifies nobody: no channel is set" in line
        aggregator.reload()
        aggregator.line(lambda each: "reload: no setting of aggregator has changed" in each)
        settings(tmp_path, mosquitto.config, CHANNEL, listen="127.0.0.1:1")
        aggregator.reload()
        line = aggregator.line(lambda each: "need a restart" in each)
        assert line.endswith("service: aggregator.listen, alerts.channels.phone")
        settings(tmp_path, mosquitto.config, CIRCUIT)
        aggregator.reload()
        aggregator.line(lambda each: "reload: in force now: power.circuits" in each)
        path.write_text("cluster = 7 8")
        aggregator.reload()
        aggregator.line(lambda each: "reload: nothing was changed." in each)
        assert aggregator.process.poll() is None


@pytest.mark.systems
def test_a_collector_survives_a_reload_and_says_what_needs_a_restart(mosquitto: Broker, tmp_path: Path) -> None:
    path = settings(tmp_path, mosquitto.config)
    with service(tmp_path, "collect", "--config", str(path), "--log-format", "json") as collector:
        first = json.loads(collector.line(lambda _: True))
        assert first["message"].startswith(f"collector {release()}; node n1 of the cluster hall; ")
        assert "publishes kilowatch/1/hall/" in first["message"]
        assert (first["level"], first["logger"]) == ("info", "kilowatch.service")
        assert first["time"].endswith("Z")
        deadline = time.monotonic() + LONGEST
        while not (tmp_path / "ring" / "collector.lock").exists():  # SIGHUP has its handler then
            assert time.monotonic() < deadline
            time.sleep(0.05)
        path.write_text(path.read_text().replace("[collector]\n", "[collector]\ninterval = 2.0\n"))
        collector.reload()
        line = json.loads(collector.line(lambda each: "need a restart" in each))
        assert line["message"].endswith("collector.interval")
        assert line["level"] == "warning"
        assert collector.process.poll() is None


@pytest.mark.systems
def test_one_machine_alone_logs_its_two_parts_and_nothing_but_json(tmp_path: Path) -> None:
    path = settings(tmp_path, BrokerConfig())
    with service(
        tmp_path,
        "run",
        "--no-ui",
        "--config",
        str(path),
        "--http",
        "127.0.0.1:0",
        "--data",
        str(tmp_path / "all"),
        "--log-format",
        "json",
    ) as both:
        for role in ("collector", "aggregator"):
            both.line(lambda each, role=role: json.loads(each)["message"].startswith(f"{role} "))  # type: ignore[misc]
        assert all(isinstance(json.loads(each), dict) for each in both.lines())


def test_the_start_names_what_there_is_and_leaves_out_what_there_is_not() -> None:
    broker = BrokerConfig(host="broker.example", port=8883, tls=True)
    collector = CollectorConfig(node="dgx01", cluster="hall", broker=broker, ring_enabled=False)
    facts = collector_facts(collector)
    assert facts["publishes"] == "kilowatch/1/hall/cf/dgx01/+ to broker.example:8883 by TLS"
    assert (facts["listens to"], facts["keeps its frames in"]) == ("", "")
    channels: dict[str, dict[str, Any]] = {"phone": {}, "chat": {}}
    config = AggregatorConfig(
        broker=broker,
        members=MembersConfig(nats=("nats://a:4222",), member="agg-1"),
        alerts=AlertsConfig(channels=channels),
    )
    found = aggregator_facts(config, None)
    assert found["listens to"] == "no HTTP"
    assert found["notifies"] == "chat, phone"
    assert found["cluster"] == "default, member agg-1 by nats://a:4222"


def test_what_changed_is_named_as_it_is_written_and_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    before = AggregatorConfig(power={"circuits": [1], "site": {"zone": "UTC"}})
    channels: dict[str, dict[str, Any]] = {"phone": {"url": "http://secret"}}
    after = AggregatorConfig(
        power={"circuits": [2], "site": {"zone": "UTC"}},
        alerts=AlertsConfig(channels=channels),
        broker=BrokerConfig(port=8883),
    )
    assert list(changed_keys(before, after, "aggregator")) == [
        "aggregator.broker.port",
        "aggregator.alerts.channels.phone",
        "aggregator.power.circuits",
    ]
    with caplog.at_level(logging.INFO, "kilowatch.service"):
        log_reload("aggregator", before, after, applied="power")
    assert [record.getMessage() for record in caplog.records] == [
        "reload: in force now: power.circuits",
        "reload: these changed settings need a restart of the service: broker.port, alerts.channels.phone",
    ]


def test_a_json_line_is_one_line_whatever_is_in_it() -> None:
    try:
        print(1 / 0)
    except ZeroDivisionError:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "two\nlines \x1b[31m %s", ("é",), sys.exc_info())
    text = JsonFormatter().format(record)
    assert "\n" not in text
    assert "\x1b" not in text
    found = json.loads(text)
    assert found["message"] == "two\nlines \x1b[31m é"
    assert "ZeroDivisionError" in found["traceback"]
