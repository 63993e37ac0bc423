"""The snapshot log of circuits: stored instants are returned, across restarts and damage."""

from __future__ import annotations

import asyncio
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aggregator.electrical import snapshot_log as tapes
from aggregator.electrical.service import ElectricalService
from aggregator.electrical.snapshot_log import SnapshotLog
from api.power import SnapshotKind
from power.snapshot.snapshot import PowerSnapshot
from tests.aggregator.http_client import door
from tests.aggregator.test_electrical import SITE, Room
from tests.aggregator.test_http_circuits import lab

SECOND = 10**9
AT = 1_790_000_000 * SECOND
HALF_A_MINUTE = 30 * SECOND


def snapshot(kind: SnapshotKind, *watts: float, names: tuple[str, ...] = ("b", "a")) -> PowerSnapshot:
    """Rows with a load and a time that is never, or not known."""
    values = np.array(watts)
    times = np.where(values > 1, np.inf, np.nan)
    return PowerSnapshot(kind, 1, names, {f"{kind}_watts": values, f"{kind}_trip_earliest_seconds": times})


def test_the_newest_instant_before_is_found_and_none_that_is_too_old(tmp_path: Path) -> None:
    tape = SnapshotLog(tmp_path)
    assert tape.find(AT, HALF_A_MINUTE) is None
    for number in range(10):
        snapshots = [snapshot(kind, 2.0 + number, 0.5) for kind in SnapshotKind]
        tape.add(AT + 10 * number * SECOND, 1, snapshots)
    for again in (tape, SnapshotLog(tmp_path)):  # and after a restart
        assert again.find(AT - 1, HALF_A_MINUTE) is None
        for seconds, number in ((0, 0), (9, 0), (10, 1), (55, 5), (119, 9)):
            found = again.find(AT + seconds * SECOND, HALF_A_MINUTE)
            assert found is not None
            assert found.at == AT + 10 * number * SECOND
            kept = found.snapshots[SnapshotKind.CIRCUIT]
            assert kept.names == ("b", "a")
            assert kept.columns["circuit_watts"].tolist() == [2.0 + number, 0.5]
            never, unknown = kept.columns["circuit_trip_earliest_seconds"].tolist()
            assert never == math.inf
            assert math.isnan(unknown)
            assert set(found.snapshots) == set(tapes.KEPT)
        assert again.find(AT + 120 * SECOND, HALF_A_MINUTE) is None


def test_other_names_and_restarts_begin_another_file(tmp_path: Path) -> None:
    tape = SnapshotLog(tmp_path)
    tape.add(AT, 1, [snapshot(SnapshotKind.CIRCUIT, 1.0, 2.0)])
    tape.add(AT + 10 * SECOND, 2, [snapshot(SnapshotKind.CIRCUIT, 3.0, names=("c",))])
    SnapshotLog(tmp_path).add(AT + 20 * SECOND, 1, [snapshot(SnapshotKind.CIRCUIT, 4.0, names=("c",))])
    assert len(list((tmp_path / "circuits").iterdir())) == 3
    got = [tape.find(AT + 10 * number * SECOND, SECOND) for number in range(3)]
    assert [one and one.snapshots[SnapshotKind.CIRCUIT].names for one in got] == [("b", "a"), ("c",), ("c",)]
    assert [one and one.snapshots[SnapshotKind.CIRCUIT].version for one in got] == [1, 2, 1]


def test_what_a_crash_left_half_written_ends_a_file_and_nothing_else(tmp_path: Path) -> None:
    tape = SnapshotLog(tmp_path)
    for number in range(5):
        tape.add(AT + 10 * number * SECOND, 1, [snapshot(SnapshotKind.CIRCUIT, float(number), 0.0)])
    (path,) = (tmp_path / "circuits").iterdir()
    path.write_bytes(path.read_bytes()[:-7])
    again = SnapshotLog(tmp_path)
    again.add(AT + 50 * SECOND, 1, [snapshot(SnapshotKind.CIRCUIT, 5.0, 0.0)])
    for number, wanted in ((3, 3.0), (4, 3.0), (5, 5.0)):
        found = again.find(AT + 10 * number * SECOND, HALF_A_MINUTE)
        assert found is not None
        assert found.snapshots[SnapshotKind.CIRCUIT].columns["circuit_watts"][0] == wanted
    path.write_bytes(b"\x00" * 100)
    assert again.find(AT + 30 * SECOND, HALF_A_MINUTE) is None


def test_the_oldest_go_when_there_is_no_more_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tapes, "FILE_BYTES", 2000)
    tape = SnapshotLog(tmp_path, 10_000)
    noise = np.random.default_rng(1)
    for number in range(400):
        loads = noise.random(2).tolist()
        tape.add(AT + 10 * number * SECOND, 1, [snapshot(SnapshotKind.CIRCUIT, *loads)])
    used = sum(path.stat().st_size for path in (tmp_path / "circuits").iterdir())
    assert 6_000 < used < 12_000
    assert tape.find(AT, SECOND) is None
    assert tape.find(AT + 3990 * SECOND, SECOND) is not None


def test_a_disk_that_will_not_is_said_once_and_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "circuits").write_text("a file in the way")
    tape = SnapshotLog(tmp_path)
    for number in range(3):
        tape.add(AT + number, 1, [snapshot(SnapshotKind.CIRCUIT, 1.0, 2.0)])
    assert len([one for one in caplog.records if "a hole now" in one.message]) == 1
    (tmp_path / "circuits").unlink()
    tape.add(AT + 3, 1, [snapshot(SnapshotKind.CIRCUIT, 1.0, 2.0)])
    assert tape.find(AT + 3, SECOND) is not None


async def test_the_running_aggregator_writes_its_tape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each tick that it saves, and none of it twice."""
    monkeypatch.setattr("aggregator.electrical.service.SAVE_SECONDS", 0.02)
    room = Room("rig")
    room.say("rig", gpu_power_watts=500.0)
    electrical = ElectricalService(SITE, tmp_path)
    running = asyncio.create_task(electrical.run())
    snapshots = electrical.snapshots(room.fleet, room.now, room.wall)
    assert snapshots is not None
    for _ in range(1000):
        found = await asyncio.to_thread(electrical.snapshot_log.find, room.wall, SECOND)
        if found is not None:
            break
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert found is not None
    assert found.at == room.wall
    kept = found.snapshots[SnapshotKind.CIRCUIT]
    for name, values in snapshots.circuit.columns.items():
        np.testing.assert_allclose(kept.columns[name], values, rtol=1e-6)


async def test_circuits_at_a_past_time_are_those_that_were_computed_then(tmp_path: Path) -> None:
    """Rows in the form of now, of the time that they are of; what is unknown today is left out."""
    view = await lab()
    view.electrical.snapshot_log = tape = SnapshotLog(tmp_path)
    snapshots = view.electrical.latest
    assert snapshots is not None
    then = view.wall() - 600 * SECOND
    tape.add(then, 1, snapshots.all())
    for seq in range(6, 9):
        await view.tick(seq)
        view.electrical.snapshots(view.fleet, view.now(), view.wall())
    async with door(view) as client:
        _, now = await client.json("/api/v1/circuits")
        _, was = await client.json(f"/api/v1/circuits?at={(then + 5 * SECOND) / SECOND}")
        assert was["at"] == then
        assert [row["id"] for row in was["circuits"]] == [row["id"] for row in now["circuits"]]
        wanted = snapshots.circuit.columns["circuit_watts"].tolist()
        assert [row["watts"] for row in was["circuits"]] == pytest.approx(wanted)
        _, one = await client.json(f"/api/v1/circuits/lab%2F2?at={(then + SECOND) / SECOND}")
        assert (one["at"], one["circuit"]["id"], one["supplies"]) == (then, "lab/2", [])
        assert one["circuit"]["watts"] in [row["watts"] for row in was["circuits"]]
        status, none = await client.json("/api/v1/circuits/lab%2F2?at=-2h")
        assert (status, none["error"]["where"]) == (404, "at")
        for path in ("budgets", "ups"):
            _, rows = await client.json(f"/api/v1/{path}?at={(then + SECOND) / SECOND}")
            assert rows["at"] == then
            assert len(rows["rows"]) == 1
        _, none = await client.json("/api/v1/circuits?at=-2h")
        assert (none["at"], none["circuits"]) == (0, [])
        status, body = await client.json("/api/v1/circuits?at=2050-01-01T00:00:00Z")
        assert (status, body["error"]["where"]) == (400, "at")


def test_one_quantity_over_time_comes_from_all_files(tmp_path: Path) -> None:
    tape = SnapshotLog(tmp_path)
    for number in range(12):
        names = ("b", "a") if number < 4 else ("a", "b", "c")
        snapshots = [
            snapshot(SnapshotKind.CIRCUIT, *(100.0 * n + number for n in range(len(names))), names=names),
            snapshot(SnapshotKind.UPS, 7.0, names=("u",)),
        ]
        tape.add(AT + 10 * number * SECOND, 1, snapshots)

    def ask(name: str, first: int, end: int) -> list[tuple[int, float]]:
        found = tape.series(
            SnapshotKind.CIRCUIT, name, "circuit_watts", AT + 10 * first * SECOND, AT + 10 * end * SECOND
        )
        both = zip(*(each.tolist() for each in found), strict=True)
        return [((at - AT) // (10 * SECOND), value) for at, value in both]

    assert ask("a", 2, 7) == [(2, 102.0), (3, 103.0), (4, 4.0), (5, 5.0), (6, 6.0)]
    assert ask("c", 0, 6) == [(4, 204.0), (5, 205.0)]
    assert ask("a", 20, 30) == []
    assert ask("nobody", 0, 12) == []


async def test_a_circuits_past_is_served(tmp_path: Path) -> None:
    """In the quantity that is asked for; a wrong one is named."""
    view = await lab()
    view.electrical.snapshot_log = tape = SnapshotLog(tmp_path)
    snapshots = view.electrical.latest
    assert snapshots is not None
    for number in range(5):
        tape.add(view.wall() - (50 - 10 * number) * SECOND, 1, snapshots.all())
    row = snapshots.circuit.names.index("lab/2")
    async with door(view) as client:
        path = "/api/v1/circuits/lab%2F2/history"
        _, body = await client.json(f"{path}?from=-45s&to=now")
        watts = float(snapshots.circuit.columns["circuit_watts"][row])
        assert body["values"] == [pytest.approx(watts)] * 4
        assert (body["unit"], body["circuit"]) == ("watts", "lab/2")
        _, body = await client.json(f"{path}?quantity=load_ratio")
        assert (
            body["values"] == [pytest.approx(float(snapshots.circuit.columns["circuit_load_ratio"][row]), rel=1e-4)] * 5
        )
        status, body = await client.json(f"{path}?quantity=wats")
        assert (status, body["error"]["where"]) == (400, "quantity")
        assert (await client.json("/api/v1/circuits/nobody/history"))[0] == 404


async def test_a_circuits_chart_has_the_means_of_its_headline(tmp_path: Path) -> None:
    """One instant in ten seconds shows a load that comes and goes in ten seconds always or never."""
    view = await lab()
    view.electrical.snapshot_log = tape = SnapshotLog(tmp_path)
    assert view.electrical.latest is not None
    circuits = view.electrical.latest.circuit
    row, columns = circuits.names.index("lab/2"), dict(circuits.columns)
    for name, ratio in (("load", 0.25), ("sustained", 0.75)):
        columns[f"circuit_{name}_ratio"] = np.full(len(circuits.names), ratio)
    for number in range(5):
        at = view.wall() - (50 - 10 * number) * SECOND
        tape.add(at, 1, [replace(circuits, columns=columns)])
    async with door(view) as client:
        _, page, _ = await client.text("/circuits/lab%2F2")
    (points,) = re.findall(r'data-unit="A" data-points="([^"]+)"', page)
    amps = 0.75 * circuits.columns["circuit_rated_amps"][row]
    assert [each.split(":")[1] for each in points.split()] == [f"{amps:.1f}"] * 5


async def test_a_month_of_a_circuit_is_bounded_and_keeps_its_peaks(tmp_path: Path) -> None:
    """Buckets: mean of what is known, lowest and highest; of times to trip the last, and the nearest."""
    view = await lab()
    view.electrical.snapshot_log = tape = SnapshotLog(tmp_path)
    begin = view.wall() - view.wall() % (3600 * SECOND) - 3 * 3600 * SECOND
    trips = [math.inf, 40.0, math.inf, math.nan]
    for number in range(720):  # two hours, of which 100 s in the middle are missing
        if 360 <= number < 370:
            continue
        columns = {
            "circuit_watts": np.array([math.nan if number == 5 else 1000.0 + number]),
            "circuit_trip_earliest_seconds": np.array([trips[number % 4]]),
        }
        snapshot = PowerSnapshot(SnapshotKind.CIRCUIT, 1, ("lab/2",), columns)
        tape.add(begin + 10 * number * SECOND, 1, [snapshot])
    path = "/api/v1/circuits/lab%2F2/history"
    span = f"from={begin // SECOND}&to={begin // SECOND + 7200}"
    async with door(view) as client:
        _, body = await client.json(f"{path}?{span}")
        assert body["step"] == 24  # by itself about 300 points
        assert body["start"] == begin
        assert 290 <= len(body["at"]) <= 301
        assert body["at"][1] - body["at"][0] == 24 * SECOND
        _, body = await client.json(f"{path}?{span}&step=40s")
        assert body["at"] == [begin + 40 * n * SECOND for n in range(180)]
        assert body["values"][:2] == [1001.5, pytest.approx((1004 + 1006 + 1007) / 3, abs=1e-3)]
        assert (body["low"][1], body["high"][1]) == (1004, 1007)
        assert body["values"][90:93] == [None, None, 1370.5]
        assert body["low"][90] is None
        _, body = await client.json(f"{path}?{span}&step=20&quantity=trip_earliest_seconds")
        assert body["values"][:2] == [40.0, None]
        assert (body["low"][:2], body["high"][:2]) == ([40.0, None], [40.0, None])
        for step in ("0", "5s"):
            _, body = await client.json(f"{path}?{span}&step={step}")
            assert (body["step"], len(body["at"])) == (0, 710)
            assert body["values"][4:7] == body["low"][4:7] == [1004, None, 1006]
        status, body = await client.json(f"{path}?from=-365d&step=10s")
        assert (status, body["error"]["where"]) == (400, "step")
        assert "step=1577s" in body["error"]["cure"]
        for step in ("soon", "9" * 41):
            assert (await client.json(f"{path}?step={step}"))[0] == 400
        _, body = await client.json(f"{path}?from=-365d&to=-364d")
        assert body["at"] == body["values"] == body["high"] == []


async def test_a_clock_that_was_set_back_brings_no_point_into_a_wrong_bucket(tmp_path: Path) -> None:
    """Instants are returned in the order of their times."""
    view = await lab()
    view.electrical.snapshot_log = tape = SnapshotLog(tmp_path)
    begin = view.wall() - view.wall() % (60 * SECOND) - 600 * SECOND
    for second, watts in ((120, 2.0), (130, 3.0), (0, 1.0), (60, 7.0)):
        columns = {"circuit_watts": np.array([watts])}
        snapshot = PowerSnapshot(SnapshotKind.CIRCUIT, 1, ("lab/2",), columns)
        tape.add(begin + second * SECOND, 1, [snapshot])
    async with door(view) as client:
        times = f"from={begin // SECOND}&step=60"
        _, body = await client.json(f"/api/v1/circuits/lab%2F2/history?{times}")
    assert body["at"] == [begin + 60 * n * SECOND for n in range(3)]
    assert body["values"] == [1.0, 7.0, 2.5]
