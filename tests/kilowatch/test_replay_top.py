"""`kilowatch replay FILE` and `kilowatch top --replay FILE`: a recording, played offline."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from aggregator.config import AggregatorConfig
from alerts.rules.rule import load as load_rules
from collector.recording.file import RecordingHeader, RecordingWriter, read
from kilowatch.__main__ import main
from kilowatch.replay.cluster import RecordedCluster
from kilowatch.replay.outcome import replay
from kilowatch.stack.ports import free_port
from telemetry.devices import Event
from telemetry.errors import SourceError
from telemetry.text import time_of_day
from telemetry.wire import inventory as messages
from telemetry.wire.topics import Topic
from tests.aggregator.node import inventory, sampled_at
from tests.brokers import wait_for_port
from tests.tui.cluster import until
from tests.tui.past_store import payload, watts
from tui.app import Top

SECONDS = 120
SITE = {
    "region": "US",
    "circuits": {"wall": {"breaker": 20, "nodes": ["rig"]}},
    "nodes": {"rig": {"gpus": "2x RTX 5090"}},
}


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Two minutes of a node of two GPUs, with an XID in the second minute."""
    path = tmp_path / "rig.kwrec"
    writer = RecordingWriter(path, RecordingHeader(made_at=sampled_at(0), source="mqtt://elsewhere"))
    described = messages.encode(inventory("rig", 2))
    writer.write(sampled_at(0), Topic.INVENTORY, "rig", described)
    for second in range(SECONDS):
        writer.write(sampled_at(second), Topic.FRAME, "rig", payload(2, second, second))
        if second == 70:
            event = Event(
                id="1-1",
                node="rig",
                at=sampled_at(70),
                kind="xid",
                gpu="GPU-rig-0",
                message="XID 79: GPU has fallen off the bus",
                data={"xid": 79},
            )
            writer.write(sampled_at(70), Topic.EVENT, "rig", messages.encode(event))
    writer.close()
    return path


def read_in(path: Path, folder: Path) -> RecordedCluster:
    """A recording that was read."""
    config = AggregatorConfig(cluster="recording", data_dir=folder, power=SITE)
    view = RecordedCluster(path, read(path), config)
    assert view.messages == SECONDS + 2
    return view


async def test_a_recording_is_played_from_its_beginning(recording: Path, tmp_path: Path) -> None:
    """The header has the recorded time, every screen shows it, and the bar has its incidents."""
    view = read_in(recording, tmp_path / "data")
    port, stop = free_port(), asyncio.Event()
    serving = asyncio.create_task(view.serve("127.0.0.1", port, stop))
    now = [1000.0]  # the player moves by this alone
    app = Top(f"http://127.0.0.1:{port}", clock=lambda: now[0], every=0.2, recorded=True)
    try:
        async with app.run_test(size=(120, 40)) as pilot:
            text = await until(pilot, lambda text: f"REPLAY 11-21 {time_of_day(sampled_at(0))}" in text)
            assert f"{watts(0):.0f}/700" in text
            assert "LIVE" not in text
            assert "▲" in text.splitlines()[3]
            await pilot.press("space")
            now[0] += 1.0
            await until(pilot, lambda text: f"REPLAY 11-21 {time_of_day(sampled_at(4))}" in text)
            await pilot.press("plus", "plus")
            await until(pilot, lambda text: " 60x " in text)
            now[0] += 0.5
            await until(pilot, lambda text: f"REPLAY 11-21 {time_of_day(sampled_at(34))}" in text)
            await pilot.press("space")
            await until(pilot, lambda text: "60x" not in text and "LOADING" not in text)
            await pilot.press("T", *time_of_day(sampled_at(60))[:8], "enter")
            await until(pilot, lambda text: f"REPLAY 11-21 {time_of_day(sampled_at(60))}" in text)
            await until(pilot, lambda text: f"{watts(60):.0f}/700" in text and "wall 4" in text)
            # It drew 1000 W and a watt for each second; circuits are kept every ten.
            await until(
                pilot, lambda _: [1050 <= (one.watts or 0) <= 1060 for one in app.context.shown.circuits] == [True]
            )
            await pilot.press("greater_than_sign")
            await until(pilot, lambda text: "XID 79" in text or "fallen off" in text)
            assert app.context.time.at is not None
            assert 70 <= (app.context.time.at - sampled_at(0)) / 1e9 <= 75
            await pilot.press("L")
            await until(pilot, lambda text: "(end)" in text and "REPLAY" in text)
            await pilot.press("escape", "escape")
            assert app.is_running
    finally:
        stop.set()
        await serving


def test_a_recording_keeps_what_its_circuits_carried(recording: Path, tmp_path: Path) -> None:
    view = read_in(recording, tmp_path / "data")
    taped = view.electrical.snapshot_log.find(sampled_at(60), 10 * 10**9)
    assert taped is not None
    assert view.wall() == sampled_at(SECONDS)
    assert [incident.key for incident in asyncio.run(view.delivery.history(0, 10))]
    assert view.stats.frames_stored == SECONDS


def test_replay_and_top_play_a_recording_alike(recording: Path, tmp_path: Path) -> None:
    """The same player: circuits and GPUs are evaluated, and come to the same incidents."""
    small = {**SITE, "circuits": {"wall": {"breaker": 8, "nodes": ["rig"]}}}  # it carries 960 W
    config = AggregatorConfig(data_dir=tmp_path / "data", power=small)
    outcome = replay(recording, read(recording), load_rules([]), config)
    view = RecordedCluster(recording, read(recording), config)
    shown = asyncio.run(view.delivery.history(0, 100))
    assert {one.key for one in shown} == {one.key for one in outcome.incidents}
    rules = {alert.rule for one in shown for alert in one.alerts}
    assert {"circuit_thermal_hot", "gpu_lost"} <= rules
    assert rules == {alert.rule for one in outcome.incidents for alert in one.alerts}
    asyncio.run(view.store.close())


def test_replay_fires_alerts_of_circuits_where_the_settings_have_some(recording: Path, tmp_path: Path) -> None:
    """The breaker is about to trip in the recording: what else its load exceeds is shown below that."""
    config = tmp_path / "kilowatch.toml"
    config.write_text('[power]\nregion = "US"\n[power.circuits.wall]\nbreaker = 8\nnodes = ["rig"]\n')
    for arguments, expected in (([], False), (["--config", str(config)], True)):
        found = CliRunner().invoke(main, ["replay", str(recording), "--json", *arguments])
        assert found.exit_code == 2, found.output
        incidents = json.loads(found.stdout)["incidents"]
        rules = {alert["rule"] for one in incidents for alert in one["alerts"]}
        assert ("circuit_thermal_hot" in rules) is expected


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "can't be read: No such file"),
        (lambda path: path.write_text("hello"), "is no recording. Make one under"),
        (lambda path: RecordingWriter(path, RecordingHeader()).close(), "holds no message. Record with"),
        (lambda path: path.mkdir(), "directory"),
    ],
    ids=["missing", "foreign", "empty", "folder"],
)
def test_a_file_that_is_no_recording_is_an_error_of_one_line(tmp_path: Path, make: object, said: str) -> None:
    """Before any screen is opened."""
    path = tmp_path / "a file"
    make(path)  # type: ignore[operator]
    outcome = CliRunner().invoke(main, ["top", "--replay", str(path)])
    assert outcome.exit_code in {3, 64}
    assert said in outcome.output
    assert len(outcome.output.strip().splitlines()) <= 4
    assert "Traceback" not in outcome.output


def test_settings_without_a_recording_are_refused(tmp_path: Path) -> None:
    (tmp_path / "kilowatch.toml").write_text("")
    outcome = CliRunner().invoke(main, ["top", "--config", str(tmp_path / "kilowatch.toml")])
    assert outcome.exit_code == 64
    assert "belongs to --replay" in outcome.output


def test_nothing_to_read_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="holds no message"):
        RecordedCluster(tmp_path / "x", [], AggregatorConfig(data_dir=tmp_path))


def fetch(port: int, path: str) -> Any:
    """An answer of the API."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=30) as answer:
        return json.loads(answer.read())


def test_the_process_behind_serves_it_and_ends_with_its_input(recording: Path, tmp_path: Path) -> None:
    """With the circuits of a settings file, and nothing left in the temporary folder."""
    config = tmp_path / "kilowatch.toml"
    config.write_text(
        'cluster = "home"\n[power]\nregion = "US"\n'
        '[power.circuits.wall]\nbreaker = 20\nnodes = ["rig"]\n'
        '[power.nodes.rig]\ngpus = "2x RTX 5090"\n'
    )
    port = free_port()
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    behind = subprocess.Popen(
        [sys.executable, "-m", "kilowatch", "top", "--replay", str(recording), "--config",
         str(config), "--serve", f"127.0.0.1:{port}", "--until-eof"],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": str(scratch)},
    )  # fmt: skip
    assert behind.stdin is not None
    assert behind.stderr is not None
    assert b"read 122 messages" in behind.stderr.readline()
    wait_for_port(port)
    at = sampled_at(60) // 10**9
    body = fetch(port, f"fleet?at={at}&columns=gpu_power_watts")
    assert body["cluster"] == "home"
    assert body["columns"]["gpu_power_watts"] == [watts(60, 0), watts(60, 1)]
    assert [row["id"] for row in fetch(port, f"circuits?at={at}")["circuits"]] == ["wall"]
    behind.stdin.close()
    assert behind.wait(30) == 0
    behind.stderr.close()
    assert list(scratch.iterdir()) == []
