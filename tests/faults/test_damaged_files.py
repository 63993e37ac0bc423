"""Whatever the disk says the pager starts: each file kind of the data folder damaged in each way.

`KILOWATCH_DAMAGES=all` and `make nightly` try every damage of every kind; else three of each are tried.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import Counter
from pathlib import Path, PurePath

import pytest

from aggregator.config import StoreConfig, StoreKind
from aggregator.folder.kinds import KINDS as FILE_KINDS
from aggregator.folder.kinds import kind_of
from aggregator.settings.influx import InfluxConfig
from api.alerts import AlertState
from tests.alerts.pager import Pager
from tests.brokers import Mosquitto, free_port
from tests.endtoend.node import collecting
from tests.endtoend.watch import toml, until, watching
from tests.fake_nvml import FakeDriver
from tests.faults.damaged_files import (
    DAMAGES,
    DAY,
    EVERY,
    KINDS,
    Damage,
    DamagedKind,
    as_a_user,
    cases,
    damaged,
    is_said,
    left_by,
    make,
    spoil,
)
from tests.faults.injected_runs import quiet
from tests.faults.injection_scene import HONEST, Scene
from tests.faults.record import Told
from tests.test_security_page import ROOT, names_in

SECONDS = 10
"""Virtual seconds after the start in which a page is sent."""
NODE = f"{HONEST}-3"
PAGE = f"honest page of {NODE} GPU 0"
CASES = cases(EVERY)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What aggregators have left that ended or were killed."""
    folder = tmp_path_factory.mktemp("made")
    with quiet():
        asyncio.run(make(folder / "embedded"))
        asyncio.run(make(folder / "influx", influx=True))
    return folder


def again(folder: Path, kind: DamagedKind) -> Scene:
    """Return the next aggregator over a folder, a while later."""
    scene = Scene(folder)
    scene.seq = 1000
    scene.clock.seconds += 1000.0
    if kind.influx:
        influx = InfluxConfig(url=f"http://127.0.0.1:{free_port()}")
        scene.store = StoreConfig(kind=StoreKind.INFLUXDB, write_seconds=1.0, influxdb=influx)
    else:
        scene.clock.ahead = 40 * DAY
    return scene


def test_every_file_of_the_data_folder_has_a_kind_and_is_damaged(made: Path) -> None:
    """One that a later release begins to write is found here: what does its loss cost, and is it survived?"""
    for data in made.rglob("data"):
        for path in (one.relative_to(data) for one in data.rglob("*") if one.is_file()):
            assert kind_of(path), f"{path} has no row in aggregator/folder/kinds.py"
    for kind in KINDS:
        assert list((left_by(made, kind) / "data").glob(kind.file)), kind.file
        assert kind_of(PurePath(kind.file)), kind.file


ELSEWHERE = {
    "jobs/*": "tests/aggregator/test_stored_jobs.py::test_a_file_that_is_lost_is_made_again",
    "outgoing/*": "tests/aggregator/test_shared_store.py::test_a_waiting_segment_that_is_damaged_stops_no_start_and_no_other_segment",
    "spill/*": "",
    "sealing/*": "",
}
"""Kinds of files that are in no folder here, with the test that damages them; none where they are never read."""


def test_every_kind_of_file_is_damaged() -> None:
    here = {kind_of(PurePath(kind.file)) for kind in KINDS}
    assert {kind.pattern for kind in FILE_KINDS if kind not in here} == ELSEWHERE.keys()
    for file, _, name in (test.partition("::") for test in ELSEWHERE.values() if test):
        assert name in names_in(ROOT / file), name


def test_three_damages_of_each_file_are_tried_and_by_night_all() -> None:
    few, all_of_them = (Counter(kind.file for kind, _ in cases(every)) for every in (False, True))
    assert few == Counter({file: 3 * count for file, count in Counter(kind.file for kind in KINDS).items()})
    assert min(all_of_them.values()) >= len(DAMAGES) - 1, "not every file has a version"
    assert sum(all_of_them.values()) == sum(one.fits(kind) for kind in KINDS for one in DAMAGES)


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "damage"), CASES, ids=[f"{kind.file} {damage.name}" for kind, damage in CASES])
async def test_it_starts_pages_and_says_so(
    made: Path, tmp_path: Path, kind: DamagedKind, damage: Damage, record_property: Told
) -> None:
    """The rules run and a page is sent within ten seconds; the file is kept by name, and an alert names it."""
    record_property(
        "scenario",
        "Each file of the data folder, the energy of circuits and months and the use of jobs among them, damaged.",
    )
    record_property("expected", "rules run and a page is sent within 10 s of the start; an alert names the file")
    path = damaged(made, tmp_path, kind, damage)
    part = f"file/{path.relative_to(tmp_path / 'data')}"
    scene = again(tmp_path, kind)
    with quiet(), as_a_user():
        async with scene.running():
            scene.xid(NODE, 0)
            for _ in range(SECONDS):
                await scene.second()
                if scene.paged(PAGE):
                    break
            assert scene.paged(PAGE)
            for _ in range(4):
                await scene.second()
            said = {one.part for one in scene.aggregator.impairments.current() if one.rule == kind.said}
            firing = {one.rule for one in scene.aggregator.alerts() if one.state is AlertState.FIRING}
            frames = scene.aggregator.stats.frames_stored
            broken = [
                one
                for one in scene.aggregator.impairments.current()
                if one.rule not in {kind.said, "node_missing", "influxdb_failing"}
            ]
    kept = list(path.parent.glob(f"{path.name}.*-1"))
    if is_said(kind, damage) or [one for one in kept if not one.name.endswith(".torn-1")]:
        assert kind.said in firing
        assert kind.said == "files_lost" or part in said, said
        assert kind.stays or kept
    assert frames > 0, "it stores what comes"
    assert not broken, broken
    record_property("observed", f"{kind.file} {damage.name}: paged")


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(len(DAMAGES)) if EVERY else (10, 22))
async def test_a_process_starts_over_a_folder_in_which_every_file_is_damaged(
    made: Path, tmp_path: Path, mosquitto: Mosquitto, first: int
) -> None:
    """`kilowatch aggregate` pages a GPU that is hot, and /healthz names what it could not use."""
    data = tmp_path / "watch" / "data"
    shutil.copytree(made / "embedded" / "ended" / "data", data)
    expected = set()
    for number, kind in enumerate(one for one in KINDS if not (one.influx or one.killed)):
        fitting = [one for one in (*DAMAGES[first:], *DAMAGES) if one.fits(kind)]
        damage = fitting[number % len(DAMAGES)]
        path = spoil(data, kind, damage)
        readable = damage.name == "unreadable" and os.geteuid() == 0  # root reads it all the same
        if is_said(kind, damage) and kind.said == "file_damaged" and not readable:
            expected.add(f"file/{path.relative_to(data)}")
    pager = Pager()
    with FakeDriver(tmp_path, gpus=1) as fake:
        fake.call("nvmlDeviceGetTemperature/0", 82, gpu=0)
        async with pager.listening(), collecting(mosquitto, tmp_path, fake):
            with watching(tmp_path / "watch", mosquitto, toml({"oncall": pager.settings(tmp_path)})) as watch:
                await until("the page", lambda: any("82 °C" in str(call.body) for call in pager.calls))

                def named() -> set[str]:
                    health = watch.get("/healthz") or {"impairments": []}
                    return {one["part"] for one in health["impairments"] if one["rule"] == "file_damaged"}

                await until(f"the names of {expected}", lambda: expected <= named())
                await until("the alert", lambda: any(key.startswith("file_damaged/") for key in watch.firing()))
                assert watch.end() == 0
