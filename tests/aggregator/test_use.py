"""Use of the GPUs in a month: sums, the edges of a month, and what is not known."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from aggregator.jobs import unheld
from aggregator.jobs.usage import UnheldKey, UnheldUse
from aggregator.jobs.use import JobPart, crosses, share_of_time, use_rows, with_co2
from api.decoding import decode
from api.jobs import AllocationRow, JobRow, JobSummary
from api.use import UseReply
from kilowatch.text.use import use_lines
from power.report.months import month_at
from power.site.config import SiteConfig
from tests.aggregator.http_client import door
from tests.aggregator.test_http_jobs import filled
from tests.aggregator.test_service import config, running
from tests.brokers import Mosquitto
from tests.kit.waiting import until

HOUR = 3600 * 10**9


def part(name: str, user: str, summary: JobSummary | None, share: float | None = 1.0) -> JobPart:
    row = JobRow(scheduler="slurm", cluster="", id=name, user=user, begin=0, end=1, summary=summary)
    return JobPart(row, share, split=share != 1.0)


def used(hours: float, joules: float | None, ratio: float | None = 0.5) -> JobSummary:
    known = None if joules is None else 1.0
    return JobSummary(gpu_hours=hours, coverage=1.0, utilization_ratio=ratio, energy_joules=joules, energy_coverage=known)  # fmt: skip


def test_jobs_of_a_user_are_added_and_weighted_by_their_hours() -> None:
    rows = use_rows([part("1", "ada", used(1, 10, 0.2)), part("2", "ada", used(3, 30, 1.0)), part("3", "bob", used(2, 5))], "user")  # fmt: skip
    assert [(row.user, row.jobs, row.gpu_hours, row.energy_joules) for row in rows] == [("ada", 2, 4, 40), ("bob", 1, 2, 5)]  # fmt: skip
    assert rows[0].utilization_ratio == pytest.approx(0.8)


def test_idle_hours_and_their_cost_are_of_whoever_held_the_gpus() -> None:
    """Of a job that an older release counted they are not known, which is not none."""
    idle = msgspec.structs.replace(
        used(4, 40), idle_gpu_hours=3.0, idle_coverage=1.0, idle_cost=0.6
    )
    older = used(4, 40)
    rows = use_rows([part("1", "ada", idle, 0.5), part("2", "bob", older), part("3", "eve", idle), part("4", "eve", older)], "user")  # fmt: skip
    found = {row.user: (row.idle_gpu_hours, row.idle_coverage, row.idle_cost) for row in rows}
    assert found == {"ada": (1.5, 1.0, 0.3), "bob": (None, 0.0, None), "eve": (3.0, 0.5, 0.6)}
    reply = UseReply(at=0, by="user", month="2026-10", timezone="UTC", rows=rows)
    lines = {line.split()[0]: line for line in use_lines(reply)}
    assert "~3.00" in lines["eve"]
    assert "~0.60" in lines["eve"]
    assert "not known" in lines["bob"]


def test_what_is_not_known_is_null_and_lowers_the_coverage() -> None:
    (mixed,) = use_rows([part("1", "ada", used(1, 10)), part("2", "ada", used(3, None))], "user")
    assert (mixed.energy_joules, mixed.energy_coverage, mixed.cost) == (10, 0.25, None)
    (nothing,) = use_rows([part("1", "ada", None)], "user")
    assert (nothing.jobs, nothing.gpu_hours, nothing.energy_joules) == (1, None, None)
    reply = UseReply(at=0, by="user", month="2026-10", timezone="UTC", rows=[mixed, nothing])
    text = "\n".join(use_lines(reply))
    assert "not known" in text
    assert "~ partial" in text


def test_a_job_over_the_edge_is_split_by_the_time_that_it_held_gpus() -> None:
    held = [
        AllocationRow(node="n0", gpu="a", begin=0, end=4 * HOUR),
        AllocationRow(node="n0", gpu="b", begin=2 * HOUR, end=None),
    ]
    first = share_of_time(held, 0, 3 * HOUR, 6 * HOUR)
    second = share_of_time(held, 3 * HOUR, 100 * HOUR, 6 * HOUR)
    assert first == pytest.approx(4 / 8)
    assert second == pytest.approx(4 / 8)
    assert share_of_time(held, 50 * HOUR, 60 * HOUR, 6 * HOUR) == 0
    assert share_of_time([], 0, HOUR, HOUR) is None
    row = part("1", "ada", used(8, 80)).row
    assert crosses(row, 1, HOUR, HOUR)
    assert not crosses(row, 0, HOUR, HOUR)
    rows = [use_rows([part("1", "ada", used(8, 80), share)], "job")[0] for share in (first, second)]
    assert sum(row.energy_joules or 0 for row in rows) == pytest.approx(80)
    assert [row.split_by_time for row in rows] == [1, 1]


async def test_the_month_of_memory_and_store_is_one_answer() -> None:
    view, site = filled()
    month = month_at(site.wall / 1e9, view.electrical.site.zone).name
    async with door(view) as client:
        by_job = decode(
            (await client.text(f"/api/v1/use?by=job&month={month}"))[1].encode(), UseReply
        )
        assert {row.job for row in by_job.rows} == {"1", "2", "3"}
        by_user = decode((await client.text(f"/api/v1/use?month={month}"))[1].encode(), UseReply)
        assert sum(row.jobs for row in by_user.rows) == 3
        assert sum(row.gpu_hours or 0 for row in by_user.rows) == pytest.approx(sum(row.gpu_hours or 0 for row in by_job.rows))  # fmt: skip
        earlier = decode((await client.text("/api/v1/use?month=2020-01"))[1].encode(), UseReply)
        assert earlier.rows == []
        assert (await client.text("/api/v1/use?month=2026-13"))[0] == 400
        assert (await client.text("/api/v1/use?by=node"))[0] == 400


async def test_gpus_that_no_job_held_have_a_row_of_their_own() -> None:
    view, site = filled()
    month = month_at(site.wall / 1e9, view.electrical.site.zone).name
    view.jobs.meter.unheld = {
        UnheldKey(month, reported=True): UnheldUse(
            seconds=7200,
            known=3600,
            busy=360,
            joules=720_000,
            joule_seconds=7200,
            idle_known=3600,
            idle_seconds=1800,
        ),
        UnheldKey("2020-01", reported=True): UnheldUse(seconds=1),
    }
    async with door(view) as client:
        reply = decode((await client.text(f"/api/v1/use?month={month}"))[1].encode(), UseReply)
        assert reply.unheld is not None
        assert reply.unreported is None
        assert (reply.unheld.gpu_hours, reply.unheld.energy_joules) == (2.0, 720_000)
        assert (reply.unheld.utilization_ratio, reply.unheld.utilization_coverage) == (0.1, 0.5)
        assert (reply.unheld.wall_joules, reply.unheld.cost, reply.unheld.co2_kg) == (None,) * 3, "not read is not 0"  # fmt: skip
        lines = use_lines(reply)
        (nobody,) = [line for line in lines if line.startswith("nobody")]
        assert nobody.split()[1:] == ["0", "2.00", "~0.50", "~10%", "0.200", *["not", "known"] * 4]
        before = decode((await client.text("/api/v1/use?month=2019-01"))[1].encode(), UseReply)
        assert before.unheld is None
    other = UseReply(at=0, by="user", month="2019-01", timezone="UTC", rows=reply.rows, unreported=reply.unheld)  # fmt: skip
    text = "\n".join(use_lines(other))
    assert "(not reported)" in text
    assert "were not counted in that month" in text


def test_co2_is_of_the_energy_at_the_wall_that_is_known() -> None:
    place = SiteConfig(g_per_kwh=400, pue=1.5)
    rows = use_rows([part("1", "ada", msgspec.structs.replace(used(1, 3.6e6), wall_joules=7.2e6)), part("2", "bob", used(1, 3.6e6))], "user")  # fmt: skip
    found = {row.user: with_co2(row, place).co2_kg for row in rows}
    assert found == {"ada": pytest.approx(2 * 1.5 * 0.4), "bob": None}
    clean = with_co2(rows[0], SiteConfig(g_per_kwh=0))
    assert clean.co2_kg == 0, "a site without CO2 has said so"


def test_what_no_job_held_is_kept_over_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = {
        UnheldKey(f"20{10 + number // 12}-{number % 12 + 1:02}", said): UnheldUse(
            seconds=number + 1.5
        )
        for number in range(unheld.KEPT_MONTHS + 5)
        for said in (True, False)
    }
    assert unheld.load(tmp_path) == {}
    unheld.save(tmp_path, unheld.encode(found))
    kept = unheld.load(tmp_path)
    assert len(kept) == 2 * unheld.KEPT_MONTHS
    assert kept.items() <= found.items()
    assert UnheldKey("2013-05", reported=False) in kept
    (tmp_path / unheld.NAME).write_bytes(b"[{")
    assert unheld.load(tmp_path) == {}
    assert "is damaged" in caplog.text
    assert len(list(tmp_path.iterdir())) == 1, "it is set aside, and not deleted"


async def test_the_use_of_free_gpus_goes_on_after_a_restart(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aggregator.service.STEP_SECONDS", 0.2)
    before = {UnheldKey("2020-01", reported=True): UnheldUse(seconds=7.5)}
    async with running(config(mosquitto.config, tmp_path)) as aggregator:
        aggregator.jobs.meter.unheld |= before
        await until(lambda: unheld.load(tmp_path) == before)
    async with running(config(mosquitto.config, tmp_path)) as aggregator:
        assert aggregator.jobs.meter.unheld == before
