"""Use of the GPUs in a month: sums, the edges of a month, and what is not known."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aggregator.electrical.service import ElectricalService
from aggregator.jobs import unheld
from aggregator.jobs.ledger import JobRecord
from aggregator.jobs.stored import StoredJob
from aggregator.jobs.usage import SUMS, GpuAccount, UnheldKey, UnheldUse
from aggregator.jobs.use import JobPart, crosses, share_of_time, use_rows, with_co2
from api.decoding import decode
from api.jobs import AllocationRow, JobPhase, JobRow, JobSummary
from api.use import UseReply
from kilowatch.text.use import use_lines
from power.report.months import month_at
from power.site.config import SiteConfig
from telemetry.wire.jobs import Job, JobKey
from tests.aggregator.fake_view import FakeView
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
    return JobSummary(
        gpu_hours=hours, coverage=1.0, utilization_ratio=ratio, energy_joules=joules, energy_coverage=known
    )


def test_jobs_of_a_user_are_added_and_weighted_by_their_hours() -> None:
    rows = use_rows(
        [part("1", "ada", used(1, 10, 0.2)), part("2", "ada", used(3, 30, 1.0)), part("3", "bob", used(2, 5))], "user"
    )
    assert [(row.user, row.jobs, row.gpu_hours, row.energy_joules) for row in rows] == [("ada", 2, 4, 40), ("bob", 1, 2, 5)]  # fmt: skip
    assert rows[0].utilization_ratio == pytest.approx(0.8)


def test_idle_hours_and_their_cost_are_of_whoever_held_the_gpus() -> None:
    """Of a job that an older release counted they are not known, which is not none."""
    idle = msgspec.structs.replace(used(4, 40), idle_gpu_hours=3.0, idle_coverage=1.0, idle_cost=0.6)
    older = used(4, 40)
    rows = use_rows(
        [part("1", "ada", idle, 0.5), part("2", "bob", older), part("3", "eve", idle), part("4", "eve", older)], "user"
    )
    found = {row.user: (row.idle_gpu_hours, row.idle_coverage, row.idle_cost) for row in rows}
    assert found == {"ada": (1.5, 1.0, 0.3), "bob": (None, 0.0, None), "eve": (3.0, 0.5, 0.6)}
    reply = UseReply(at=0, by="user", month="2026-10", timezone="UTC", rows=rows)
    lines = {line.split()[0]: line for line in use_lines(reply) if line}
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


def asked(name: str, limit: int | None, hours: float, *, gpus: int = 4, share: float = 1.0, **more: Any) -> JobPart:
    """Return a job of some hours on GPUs, of which `share` lies in the month."""
    summary = msgspec.structs.replace(used(gpus * hours * share, 1), gpus_idle=1, memory_peak_bytes=60e9)
    row = JobRow(
        scheduler="slurm",
        cluster="",
        id=name,
        user="ada",
        begin=0,
        end=int(hours * HOUR),
        gpus=gpus,
        phase=JobPhase.ENDED,
        state="COMPLETED",
        time_limit_seconds=limit,
        summary=summary,
        nodes=["n1"],
    )
    return JobPart(msgspec.structs.replace(row, **more), 1.0, split=False, time_share=share)


DAY = 86_400


def test_time_that_was_asked_for_is_gpus_times_limit() -> None:
    """4 GPUs for 24 h, used for 6; 2 GPUs for 2 h, used for 1.5."""
    (row,) = use_rows([asked("1", DAY, 6), asked("2", 7200, 1.5, gpus=2)], "user", {"n1": 80 * 10**9})
    assert (row.asked_gpu_hours, row.asked_used_ratio, row.asked_coverage) == (100.0, 0.27, 1.0)
    assert (row.gpus_held, row.gpus_idle, row.gpus_coverage) == (6, 2, 1.0)
    assert (row.memory_peak_ratio, row.memory_coverage) == (0.75, 1.0)


def test_a_job_over_the_edge_asked_for_its_part_of_the_time_in_each_month() -> None:
    """4 GPUs for 24 h, used for 6, of which 1.5 before midnight."""
    parts = {share: use_rows([asked("1", DAY, 6, share=share)], "job")[0] for share in (0.25, 0.75)}
    assert {share: row.asked_gpu_hours for share, row in parts.items()} == {0.25: 24.0, 0.75: 72.0}
    assert {row.asked_used_ratio for row in parts.values()} == {0.25}
    assert [row.gpu_hours for row in parts.values()] == [6, 18]


@pytest.mark.parametrize(
    "its",
    [
        {"limit": None, "unlimited": True},
        {"limit": None},
        {"limit": DAY, "end": None, "phase": JobPhase.RUNNING},
        {"limit": DAY, "phase": JobPhase.LOST},
        {"limit": DAY, "state": "REQUEUED"},
        {"limit": DAY, "state": "NODE_FAIL"},
    ],
    ids=["unlimited", "not known", "it runs", "nobody saw its end", "requeued", "its node failed"],
)
def test_a_job_that_does_not_tell_how_long_it_needed_lowers_the_coverage(its: dict[str, Any]) -> None:
    """4 GPUs for 6 h beside 4 for 2 h of which it is known."""
    odd = asked("1", **{"hours": 6, **its})
    (row,) = use_rows([odd, asked("2", 14_400, 2)], "user")
    assert (row.asked_gpu_hours, row.asked_used_ratio, row.asked_coverage) == (16.0, 0.5, 0.25)
    (alone,) = use_rows([odd], "user")
    assert (alone.asked_gpu_hours, alone.asked_used_ratio, alone.asked_coverage) == (None, None, 0.0)


def test_memory_is_compared_where_all_gpus_of_a_job_have_the_same() -> None:
    sizes = {"n1": 80 * 10**9, "n2": 141 * 10**9}
    for nodes, ratio in ((["n1"], 0.75), (["n1", "n2"], None), (["gone"], None), ([], None)):
        (row,) = use_rows([asked("1", DAY, 6, nodes=nodes)], "user", sizes)
        assert (row.memory_peak_ratio, row.memory_coverage) == (ratio, 1.0 if ratio else 0.0)


async def test_the_month_of_memory_and_store_is_one_answer() -> None:
    view, site = filled()
    month = month_at(site.wall / 1e9, view.electrical.site.zone).name
    async with door(view) as client:
        by_job = decode((await client.text(f"/api/v1/use?by=job&month={month}"))[1].encode(), UseReply)
        assert {row.job for row in by_job.rows} == {"1", "2", "3"}
        by_user = decode((await client.text(f"/api/v1/use?month={month}"))[1].encode(), UseReply)
        assert sum(row.jobs for row in by_user.rows) == 3
        assert sum(row.gpu_hours or 0 for row in by_user.rows) == pytest.approx(
            sum(row.gpu_hours or 0 for row in by_job.rows)
        )
        earlier = decode((await client.text("/api/v1/use?month=2020-01"))[1].encode(), UseReply)
        assert earlier.rows == []
        assert (await client.text("/api/v1/use?month=2026-13"))[0] == 400
        assert (await client.text("/api/v1/use?by=node"))[0] == 400


async def test_the_memory_of_gpus_is_that_of_the_inventory() -> None:
    view, site = filled()
    view.fleet = site.fleet
    node = view.fleet.nodes["n0"]
    assert node.inventory is not None
    gpus = tuple(msgspec.structs.replace(gpu, memory_bytes=80 * 10**9) for gpu in node.inventory.gpus)
    node.inventory = msgspec.structs.replace(node.inventory, gpus=gpus)
    begin = int(datetime(2026, 8, 10, tzinfo=UTC).timestamp()) * 10**9
    one = asked("9", DAY, 6, begin=begin, end=begin + 6 * HOUR, nodes=["n0"]).row
    assert one.summary is not None
    record = JobRecord(job=Job(key=JobKey("slurm", "", "9")), allocations=[])
    view.memory.write_jobs([StoredJob(row=one, record=record, summary=one.summary)])
    async with door(view) as client:
        reply = decode((await client.text("/api/v1/use?by=job&month=2026-08"))[1].encode(), UseReply)
    assert [row.memory_peak_ratio for row in reply.rows] == [0.75]


async def test_a_stored_job_over_the_edge_is_asked_for_in_both_months(tmp_path: Path) -> None:
    """4 GPUs for at most 24 h, from 22:30 to 04:30: 6 of 24 GPU hours are before midnight."""
    edge = int(datetime(2026, 9, 1, tzinfo=UTC).timestamp()) * 10**9
    begin, end = edge - 3 * HOUR // 2, edge + 9 * HOUR // 2
    held = [AllocationRow(node="n1", gpu=f"g{n}", begin=begin, end=end) for n in range(4)]
    one = asked("1", DAY, 6, begin=begin, end=end).row
    assert one.summary is not None
    accounts = [
        GpuAccount(node="n1", gpu=f"g{n}", known=21_600, busy=busy, held=21_600, its_part=21_600, first="2026-08", month="2026-09",
                   memory_peak=6e10, edges={"2026-09": dict.fromkeys(SUMS, 0.0) | {"known": 5400, "held": 5400, "its_part": 5400}})
        for n, busy in enumerate((0.0, 9000.0, 9000.0, 9000.0))
    ]  # fmt: skip
    record = JobRecord(job=Job(key=JobKey("slurm", "", "1")), allocations=held)
    view = FakeView()
    view.electrical = ElectricalService({"site": {"timezone": "UTC"}}, tmp_path)
    view.memory.write_jobs([StoredJob(row=one, record=record, summary=one.summary, accounts=accounts)])
    async with door(view) as client:
        replies = [
            decode((await client.text(f"/api/v1/use?month=2026-{month}"))[1].encode(), UseReply)
            for month in ("08", "09")
        ]
    august, september = (reply.rows[0] for reply in replies)
    assert (august.gpu_hours, august.asked_gpu_hours, august.asked_used_ratio) == (6, 24, 0.25)
    assert (september.gpu_hours, september.asked_gpu_hours, september.asked_used_ratio) == (18, 72, 0.25)
    assert (august.gpus_idle, september.gpus_idle) == (4, 1), "none worked before midnight"
    assert august.memory_peak_ratio is None, "in which month its peak was is not known"


async def test_gpus_that_no_job_held_have_a_row_of_their_own() -> None:
    view, site = filled()
    month = month_at(site.wall / 1e9, view.electrical.site.zone).name
    view.jobs.meter.unheld = {
        UnheldKey(month, reported=True): UnheldUse(
            seconds=7200, known=3600, busy=360, joules=720_000, joule_seconds=7200, idle_known=3600, idle_seconds=1800
        ),
        UnheldKey("2020-01", reported=True): UnheldUse(seconds=1),
    }
    async with door(view) as client:
        reply = decode((await client.text(f"/api/v1/use?month={month}"))[1].encode(), UseReply)
        assert reply.unheld is not None
        assert reply.unreported is None
        assert (reply.unheld.gpu_hours, reply.unheld.energy_joules) == (2.0, 720_000)
        assert (reply.unheld.utilization_ratio, reply.unheld.utilization_coverage) == (0.1, 0.5)
        assert (reply.unheld.wall_joules, reply.unheld.cost, reply.unheld.co2_kg) == (None,) * 3, "not read is not 0"
        lines = use_lines(reply)
        nobody, idle = [line.split()[1:] for line in lines if line.startswith("nobody")]
        assert nobody == ["0", "2.00", "~10%", "0.200", *["not", "known"] * 3]
        assert idle == [*["not", "known"] * 2, "~0.50", *["not", "known"] * 4]
        before = decode((await client.text("/api/v1/use?month=2019-01"))[1].encode(), UseReply)
        assert before.unheld is None
    other = UseReply(at=0, by="user", month="2019-01", timezone="UTC", rows=reply.rows, unreported=reply.unheld)
    text = "\n".join(use_lines(other))
    assert "(not reported)" in text
    assert "were not counted in that month" in text


def test_co2_is_of_the_energy_at_the_wall_that_is_known() -> None:
    place = SiteConfig(g_per_kwh=400, pue=1.5)
    rows = use_rows(
        [
            part("1", "ada", msgspec.structs.replace(used(1, 3.6e6), wall_joules=7.2e6)),
            part("2", "bob", used(1, 3.6e6)),
        ],
        "user",
    )
    found = {row.user: with_co2(row, place).co2_kg for row in rows}
    assert found == {"ada": pytest.approx(2 * 1.5 * 0.4), "bob": None}
    clean = with_co2(rows[0], SiteConfig(g_per_kwh=0))
    assert clean.co2_kg == 0, "a site without CO2 has said so"


def test_what_no_job_held_is_kept_over_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = {
        UnheldKey(f"20{10 + number // 12}-{number % 12 + 1:02}", said): UnheldUse(seconds=number + 1.5)
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
    assert "can't be used" in caplog.text
    assert len(list(tmp_path.iterdir())) == 1, "it is set aside, and not deleted"


async def test_the_use_of_free_gpus_goes_on_after_a_restart(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aggregator.assembly.jobs_loop.STEP_SECONDS", 0.2)
    before = {UnheldKey("2020-01", reported=True): UnheldUse(seconds=7.5)}
    async with running(config(mosquitto.config, tmp_path)) as aggregator:
        aggregator.jobs.meter.unheld |= before
        await until(lambda: unheld.load(tmp_path) == before)
    async with running(config(mosquitto.config, tmp_path)) as aggregator:
        assert aggregator.jobs.meter.unheld == before
