"""Jobs that ended days ago lie in a table of their own, and are found, changed and counted as before."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from msgspec.structs import replace

from aggregator.config import StoreConfig
from aggregator.jobs.stored import JobQuery
from aggregator.store.embedded import EmbeddedStore
from aggregator.store.jobs import MOVED_AFTER_NS, MOVED_AT_ONCE
from telemetry.wire.jobs import JobKey
from tests.aggregator.test_stored_jobs import DAY, SECOND, job, ns

NOW = ns("2026-11-20")
OLD = [job(n, ns("2026-10-05") + n * 60 * SECOND, user=f"u{n % 7}") for n in range(MOVED_AT_ONCE)]
YOUNG = [job(9000, NOW - MOVED_AFTER_NS + DAY), job(9001, None)]
QUERIES = [
    JobQuery(), JobQuery(user="u3"), JobQuery(id="77"), JobQuery(node="n2", limit=10), JobQuery(running=True),
    JobQuery(running=False, since=ns("2026-10-05T02:00:00"), until=ns("2026-10-05T04:00:00")),
]  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """A store with jobs of long ago, one of this week and one that runs."""
    (tmp_path / "data").mkdir()
    opened = EmbeddedStore(StoreConfig(), tmp_path / "data")
    opened.write_jobs([*OLD, *YOUNG])
    yield opened
    opened.close()


def counts(store: EmbeddedStore, tmp_path: Path) -> tuple[int, int, int]:
    """Return the rows of each table, as a kill -9 would leave them now."""
    store.tidy()
    copy = tmp_path / "killed"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(tmp_path / "data", copy)
    with duckdb.connect(str(copy / "hot.duckdb")) as database:
        found = [
            database.execute(f"select count(*) from {name}").fetchall()[0][0]
            for name in ("jobs", "job_summaries", "past_jobs")
        ]
    return found[0], found[1], found[2]


def test_jobs_that_move_are_found_as_before(store: EmbeddedStore, tmp_path: Path) -> None:
    keys = [each.record.job.key for each in (*OLD, *YOUNG)]

    def answers() -> list[object]:
        whole = sorted(store.jobs_of(keys), key=lambda each: int(each.row.id))
        return [*map(store.find_jobs, QUERIES), whole, store.ended_jobs(0, NOW), store.open_jobs(), store.unsent_jobs(0, NOW, 100)]  # fmt: skip

    before = answers()
    assert counts(store, tmp_path) == (502, 502, 0)
    store.maintain(NOW)
    assert counts(store, tmp_path) == (2, 2, 500)
    assert answers() == before
    store.close()
    killed = EmbeddedStore(StoreConfig(), tmp_path / "killed")
    assert [killed.find_jobs(each) for each in QUERIES] == before[: len(QUERIES)]
    killed.close()


def test_few_jobs_wait_for_others(store: EmbeddedStore, tmp_path: Path) -> None:
    """Each move lets the next fold write anew what was added last."""
    store.maintain(OLD[-2].row.end + MOVED_AFTER_NS + SECOND)  # type: ignore[operator]
    assert counts(store, tmp_path) == (502, 502, 0)


def test_a_job_that_changes_after_it_has_moved_is_there_once(store: EmbeddedStore, tmp_path: Path) -> None:
    """Its node was away; then more jobs of its kind move, and it with them."""
    store.maintain(NOW)
    changed = job(77, OLD[77].row.end, user="eve", energy_joules=1.0)
    store.write_jobs([changed])
    assert [row.user for row in store.find_jobs(JobQuery(id="77"))] == ["eve"]
    assert [each.summary.energy_joules for each in store.jobs_of([JobKey("slurm", "lab", "77")])] == [1.0]
    assert len(store.find_jobs(JobQuery(limit=5000))) == 502
    store.write_jobs([job(1000 + n, OLD[0].row.end) for n in range(499)])
    store.maintain(NOW)
    assert counts(store, tmp_path) == (2, 2, 999)
    assert [row.user for row in store.find_jobs(JobQuery(id="77"))] == ["eve"]


def test_a_job_that_gets_its_name_takes_the_place_of_its_alias(store: EmbeddedStore, tmp_path: Path) -> None:
    store.maintain(NOW)
    alias = OLD[3].record.job.key
    named = job(8003, OLD[3].row.end)
    store.write_jobs([replace(named, replaces=[alias])])
    assert counts(store, tmp_path) == (3, 3, 499)
    assert store.find_jobs(JobQuery(id="3")) == []
    assert store.jobs_of([alias]) == []


def test_the_file_of_a_month_is_not_made_again_for_jobs_that_moved(store: EmbeddedStore, tmp_path: Path) -> None:
    """And a later one has those that have."""
    at = OLD[-2].row.end + MOVED_AFTER_NS + SECOND  # type: ignore[operator]
    assert not store.maintain(at), "October lasts"
    early = ns("2026-11-02T00:00:01")
    extra = job(7000, ns("2026-10-31"))
    store.write_jobs([extra])
    assert store.maintain(early)
    store.seal()
    file = tmp_path / "data" / "jobs" / "2026-10.parquet"
    made = file.stat().st_ino
    assert counts(store, tmp_path)[2] == 500
    assert store.maintain(early + 3600 * SECOND)
    store.seal()
    assert file.stat().st_ino == made
    with duckdb.connect() as other:
        assert other.execute(f"select count(*) from read_parquet('{file}')").fetchall() == [(501,)]
