"""Jobs beside the readings: in DuckDB as they are, in Parquet by month, and in a real InfluxDB when they have ended."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest
from msgspec.structs import replace

from aggregator.config import StoreConfig
from aggregator.jobs.ledger import JobRecord
from aggregator.jobs.stored import JobQuery, StoredJob
from aggregator.store.embedded import EmbeddedStore
from api.jobs import AllocationRow, GpuUse, JobPhase, JobRow, JobSummary
from telemetry.errors import StoreError
from telemetry.wire.jobs import Job, JobKey
from tests.aggregator.influx_feed import InfluxFeed, prepared
from tests.faults.damaged_files import SORTS, Damage, DamagedKind, as_a_user
from tests.influxes import Influxd

SECOND, DAY = 10**9, 86_400 * 10**9


def ns(text: str) -> int:
    """Return a time of UTC in ns since 1970."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


def job(number: int, end: int | None, *, user: str = "ada", begin: int | None = None, **figures: Any) -> StoredJob:
    """Return a job of an hour, with what is known of it."""
    begin = begin if begin is not None else (end or ns("2026-11-20")) - 3600 * SECOND
    figures = {"energy_joules": 7.2e6, "utilization_ratio": 0.5} | figures
    summary = JobSummary(gpu_hours=2.0, coverage=1.0, faults={"xid 79": 1}, **figures)
    row = JobRow(
        scheduler="slurm",
        cluster="lab",
        id=str(number),
        user=user,
        account="physics",
        begin=begin,
        end=end,
        phase=JobPhase.RUNNING if end is None else JobPhase.ENDED,
        state="COMPLETED",
        wait_seconds=60.0,
        time_limit_seconds=7200,
        nodes=["n1", "n2"],
        gpus=2,
        job_name='pre "train", a=b',
        exit_code=0,
        summary=replace(summary, gpus=[]),
    )
    rows = [
        AllocationRow(node=node, gpu=f"GPU-{node}", begin=begin, end=end, source="slurm-hook") for node in row.nodes
    ]
    key = JobKey("slurm", "lab", str(number))
    used = GpuUse(node="n1", gpu="GPU-n1", held_seconds=3600.0, known_seconds=3600.0)
    return StoredJob(
        row=row, record=JobRecord(job=Job(key=key, user=user), allocations=rows), summary=replace(summary, gpus=[used])
    )


OCTOBER = [job(n, ns("2026-10-05") + n * DAY) for n in range(1, 21)]
"""Twenty jobs that ended in October, the last on the 25th."""
NOW = ns("2026-11-02T00:00:01")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """A store with the jobs of October, one that ended in November and one that runs."""
    opened = EmbeddedStore(StoreConfig(), tmp_path)
    opened.write_jobs([*OCTOBER, job(98, ns("2026-11-01T00:00:00")), job(99, None)])
    yield opened
    opened.close()


def upkeep(store: EmbeddedStore, now: int) -> bool:
    """Do what the executor does once."""
    more = store.maintain(now)
    if more:
        store.seal()
    return more


def read(path: Path, what: str) -> list[tuple[Any, ...]]:
    """Ask a file, as any engine may."""
    with duckdb.connect() as other:
        return other.execute(f"select {what} from read_parquet('{path}')").fetchall()


def test_a_month_that_is_over_is_a_file_that_any_engine_reads(store: EmbeddedStore, tmp_path: Path) -> None:
    assert not upkeep(store, ns("2026-11-01T23:59:59")), "its last jobs come within a day"
    assert upkeep(store, ns("2026-11-02T00:59:59"))
    folder = tmp_path / "jobs"
    assert sorted(path.name for path in folder.iterdir()) == ["2026-10.parquet", "2026-10.parquet.sha256"]
    file = folder / "2026-10.parquet"
    ((count, joules, hours, first, last),) = read(
        file, 'count(*), sum(energy_joules), sum(gpu_hours), min("end"), max("end")'
    )
    assert (count, joules, hours) == (20, 20 * 7.2e6, 40.0)
    assert (first, last) == (datetime(2026, 10, 6), datetime(2026, 10, 25))  # noqa: DTZ001 - Parquet's are UTC
    ((user, name, nodes, exit_code, phase, faults, held, use),) = read(
        file,
        'any_value("user"), any_value(job_name), any_value(nodes), any_value(exit_code), any_value(phase), '
        "any_value(faults['xid 79']), any_value(allocations[2].gpu), any_value(use_by_gpu[1].held_seconds)",
    )
    assert (user, name, nodes, exit_code, phase) == ("ada", 'pre "train", a=b', ["n1", "n2"], 0, "ended")
    assert (faults, held, use) == (1.0, "GPU-n2", 3600.0)
    assert read(file, "sum(wait_seconds), sum(time_limit_seconds), count(eligible)") == [(1200.0, 144_000, 0)]
    assert read(file, "count(wall_joules)") == [(0,)], "what is not known is absent, and no zero"
    subprocess.run(["sha256sum", "--check", "--quiet", f"{file.name}.sha256"], cwd=folder, check=True)
    assert {row.id for row in store.find_jobs(JobQuery(until=ns("2026-11-01")))} == {str(n) for n in range(1, 21)} | {
        "98"
    } - {"99"}, "and the store answers as before"


def test_a_job_that_changes_after_its_month_makes_the_file_again(store: EmbeddedStore, tmp_path: Path) -> None:
    upkeep(store, NOW)
    file = tmp_path / "jobs" / "2026-10.parquet"
    made = file.stat().st_ino
    assert upkeep(store, NOW + 3600 * SECOND)
    assert file.stat().st_ino == made, "nothing is new"
    store.write_jobs([job(21, ns("2026-10-31T23:59:59")), job(3, OCTOBER[2].row.end, energy_joules=1.0)])
    assert not upkeep(store, NOW + 3601 * SECOND), "it looks once an hour"
    upkeep(store, NOW + 7200 * SECOND)
    assert read(file, "count(*), sum(energy_joules)") == [(21, 20 * 7.2e6 + 1.0)]
    upkeep(store, ns("2026-12-02T01:00:00"))
    assert sorted(path.stem for path in file.parent.glob("*.parquet")) == ["2026-10", "2026-11"]


LOST = Damage("gone", lambda path, _: path.unlink())


@pytest.mark.parametrize("damage", [LOST, *SORTS], ids=lambda one: one.name)
def test_a_file_that_is_lost_is_made_again(store: EmbeddedStore, tmp_path: Path, damage: Damage) -> None:
    """The database has everything."""
    upkeep(store, NOW)
    file = tmp_path / "jobs" / "2026-10.parquet"
    damage.apply(file, DamagedKind("jobs/*"))
    (file.parent / "2026-10.parquet.new").write_bytes(b"a crash")
    with as_a_user():
        upkeep(store, NOW + 3600 * SECOND)
        assert read(file, "count(*)") == [(20,)]
    assert [path.name for path in file.parent.iterdir() if path.suffix == ".new"] == []


def test_a_folder_that_can_not_be_written_is_an_error_of_upkeep(store: EmbeddedStore, tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text("in the way")
    assert store.maintain(NOW)
    with pytest.raises(StoreError, match="can't write jobs to Parquet"):
        store.seal()
    (tmp_path / "jobs").unlink()
    upkeep(store, NOW + 3600 * SECOND)
    assert (tmp_path / "jobs" / "2026-10.parquet").exists()


def test_a_job_of_an_older_release_has_neither_a_wait_nor_a_limit(tmp_path: Path) -> None:
    """Neither is made up, and no limit is not what an unknown one is taken for."""
    opened = EmbeddedStore(StoreConfig(), tmp_path)
    opened.write_jobs([job(1, NOW)])
    later = ("eligible", "wait_seconds", "time_limit_seconds", "unlimited")
    row = {name: its for name, its in msgspec.to_builtins(job(1, NOW).row).items() if name not in later}
    opened.close()
    with duckdb.connect(str(tmp_path / "hot.duckdb")) as database:
        database.execute("update jobs set row = ?", [msgspec.json.encode(row).decode()])
    again = EmbeddedStore(StoreConfig(), tmp_path)
    (found,) = again.find_jobs(JobQuery())
    again.close()
    assert (found.wait_seconds, found.time_limit_seconds, found.unlimited) == (None, None, False)


# ---- InfluxDB ----


@pytest.fixture
def influx(tmp_path: Path, influxd: Influxd) -> Iterator[InfluxFeed]:
    """A store on a real server."""
    feed = InfluxFeed(tmp_path / "data", prepared(influxd.url))
    yield feed
    feed.store.close()


def points(feed: InfluxFeed, server: Influxd, what: str = "*") -> Sequence[dict[str, Any]]:
    """Deliver, and return the jobs that the server has."""
    feed.deliver()
    database = feed.config.store.influxdb.database
    found = server.query(f"select {what} from events.jobs", database)
    return [dict(zip(series["columns"], row, strict=True)) for series in found for row in series["values"]]


def test_a_job_is_a_point_when_nothing_of_it_changes_any_more(influx: InfluxFeed, influxd: Influxd) -> None:
    end = influx.wall
    influx.store.write_jobs([job(1, end, wall_joules=None), job(2, None)])
    influx.later(600, 1)
    assert points(influx, influxd) == []
    influx.later(400, 1)
    (found,) = points(influx, influxd)
    assert {name: found[name] for name in ("time", "cluster", "user", "account", "scheduler")} == {
        "time": end // 10**6, "cluster": "default", "user": "ada", "account": "physics", "scheduler": "slurm",
    }  # fmt: skip
    assert (found["id"], found["name"], found["phase"]) == ("1", 'pre "train", a=b', "ended")
    assert (found["gpu_hours"], found["energy_joules"], found["seconds"]) == (2.0, 7.2e6, 3600.0)
    assert (found["gpus"], found["nodes"], found["exit_code"]) == (2, 2, 0)
    assert (found["wait_seconds"], found["time_limit_seconds"]) == (60.0, 7200.0)
    assert (found["begin_ms"], found["end_ms"]) == (end // 10**6 - 3_600_000, end // 10**6)
    assert "wall_joules" not in found, "what is not known is no field"


def test_jobs_that_end_at_once_are_points_of_their_own_and_never_more(influx: InfluxFeed, influxd: Influxd) -> None:
    """A cancelled array; users apart; and one that comes late, or again, after a restart."""
    end = influx.wall // SECOND * SECOND
    influx.store.write_jobs([job(n, end + n % 3, user="ada" if n % 2 else "bob") for n in range(100)])
    influx.later(1000, 1)
    assert len(points(influx, influxd)) == 100
    influx.store.write_jobs([job(5, end + 2), job(200, end, energy_joules=1.0)])
    influx.reopen()
    influx.later(1000, 2)
    found = points(influx, influxd)
    assert sorted(int(each["id"]) for each in found) == [*range(100), 200]
    assert sum(each["energy_joules"] for each in found) == 100 * 7.2e6 + 1
    database = influx.config.store.influxdb.database
    sums = influxd.query('select sum(energy_joules) from events.jobs group by "user"', database)
    assert {s["tags"]["user"]: s["values"][0][1] for s in sums} == {"ada": 50 * 7.2e6 + 1, "bob": 50 * 7.2e6}


def test_the_series_of_a_server_grow_with_users_and_not_with_jobs(influx: InfluxFeed, influxd: Influxd) -> None:
    """2,000 jobs of ten users, ended before InfluxDB was chosen, and some at a time."""
    first = influx.wall - 90 * DAY
    influx.store.write_jobs([job(n, first + n * 60 * SECOND, user=f"user-{n % 10}") for n in range(2000)])
    influx.later(61, 6)
    assert points(influx, influxd, "count(id)")[0]["count"] == 2000
    database = influx.config.store.influxdb.database
    assert len(influxd.query("select count(id) from events.jobs group by *", database)) == 10
