"""A year of jobs in the store: how much room they take, and how long a month of one user is looked for.

    python -m bench.job_year [--jobs 50000] [--users 40] [--json]

Each job is as the aggregator writes it: at its begin, in between and at its end, with all figures of a summary and an
account for each of its one to eight GPUs; a twentieth runs over the end of a month. Between the writes is the store's upkeep,
as the year goes on. Size is that of the data folder once the files of the months are made and the store is closed, and of
these files. The query is that of `kilowatch jobs --user` and of
the page of jobs for a month, median of nine, in wall time.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from aggregator.config import StoreConfig
from aggregator.jobs.ledger import JobRecord
from aggregator.jobs.stored import JobQuery, StoredJob
from aggregator.jobs.summary import summarize
from aggregator.jobs.usage import BINS, SUMS, GpuAccount
from aggregator.store.embedded import EmbeddedStore
from aggregator.store.job_months import FOLDER
from api.jobs import AllocationRow, EnergyFrom, JobPhase, JobRow
from bench.report import show
from telemetry.wire.jobs import Job, JobKey

SECOND = 10**9
START = 1_735_689_600 * SECOND
"""1 January 2025, UTC."""
YEAR = 365 * 86_400
WRITES = 3
"""How often each job is written: while it runs a job is once a minute, and the rows of its key are replaced."""
TOGETHER = 16
_TIMES = {"known", "held", "its_part", "idle_known"}
LIMITS = ("sw_power_cap", "sw_thermal_slowdown")


def job_of(number: int, jobs: int, users: int, write: int) -> StoredJob:
    """Return a job of the year as it is written for the `write`-th time, from 1 on; the same each time."""
    dice = random.Random(number)
    begin = START + round(number / jobs * YEAR) * SECOND
    whole = round(dice.lognormvariate(8.0, 1.4))
    over = write == WRITES
    seconds = max(1, whole if over else whole * write // WRITES)
    end = begin + seconds * SECOND
    node = f"node-{dice.randrange(500):04}"
    gpus = [f"GPU-{dice.getrandbits(128):032x}" for _ in range(dice.choice((1, 1, 1, 2, 4, 8)))]
    job = Job(
        key=JobKey("slurm", "lab", str(4_000_000 + number)),
        name=f"train-{number % 97}",
        user=f"u{number % users}",
        account=f"a{number % 7}",
        queue="gpu",
        submitted=begin - 600 * SECOND,
        begin=begin,
        end=end if over else 0,
        state="COMPLETED" if over else "RUNNING",
        exit_code=0 if over else None,
        nodes=1,
        gpus=len(gpus),
    )
    rows = [AllocationRow(node=node, gpu=gpu, begin=begin, end=end if over else None, source="slurm") for gpu in gpus]
    joules = [round(dice.uniform(1e6, 1e9), 3) for _ in range(2)]
    months = {"2025-06": _sums(dice, seconds / 2)} if number % 20 == 0 else {}
    accounts = [
        GpuAccount(
            node=node,
            gpu=gpu,
            memory_peak=float(dice.randrange(1 << 30, 80 << 30, 1 << 20)),
            at=end,
            counter=joules[1],
            first="2025-05",
            month="2025-06",
            edges=months,
            counters=dict(zip((begin, end), joules, strict=True)),
            limits={word: round(dice.uniform(0, seconds), 3) for word in LIMITS},
            use={place: round(dice.uniform(0, seconds), 3) for place in dice.sample(range(BINS), 12)},
            energy_from=EnergyFrom.COUNTERS,
            **_sums(dice, float(seconds)),
        )
        for gpu in gpus
    ]
    summary = summarize(accounts, {(node, gpu): float(seconds) for gpu in gpus}, {}, "EUR")
    row = JobRow(
        scheduler="slurm",
        cluster="lab",
        id=job.key.id,
        job_name=job.name,
        user=job.user,
        account=job.account,
        queue=job.queue,
        state=job.state,
        submitted=job.submitted,
        begin=begin,
        end=end if over else None,
        phase=JobPhase.ENDED if over else JobPhase.RUNNING,
        nodes=[node],
        gpus=len(gpus),
        gpus_asked=len(gpus),
        summary=summary,
    )
    return StoredJob(row=row, record=JobRecord(job=job, allocations=rows), summary=summary, accounts=accounts)


def _sums(dice: random.Random, seconds: float) -> dict[str, Any]:
    """Return sums as of a job whose GPU was read all the time: the times are those for which it had it."""
    return {
        name: seconds if name.endswith("_seconds") or name in _TIMES else round(dice.uniform(1, 1e6), 3)
        for name in SUMS
    }


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(jobs: int, users: int) -> dict[str, Any]:
    """Write a year, close the store, and look for months."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = EmbeddedStore(StoreConfig(), folder)
        for first in range(0, jobs, TOGETHER):
            numbers = range(first, min(jobs, first + TOGETHER))
            for write in range(1, WRITES + 1):
                store.write_jobs([job_of(number, jobs, users, write) for number in numbers])
                store.tidy()
            store.maintain(START + round(numbers[-1] / jobs * YEAR) * SECOND)
        if store.maintain(START + (YEAR + 60 * 86_400) * SECOND):
            store.seal()
        store.close()
        size = size_of(folder)
        store = EmbeddedStore(StoreConfig(), folder)
        month = START + 5 * 30 * 86_400 * SECOND
        seconds, found = [], 0
        for number in range(9):
            began = time.perf_counter()
            rows = store.find_jobs(JobQuery(user=f"u{number % users}", since=month, until=month + 30 * 86_400 * SECOND))
            seconds.append(time.perf_counter() - began)
            found = max(found, len(rows))
        store.close()
        parquet = size_of(folder / FOLDER)
    return {
        "jobs": jobs, "writes": WRITES, "megabytes": size / 1e6, "parquet_megabytes": parquet / 1e6,
        "month_of_a_user_seconds": statistics.median(seconds),
        "jobs_of_the_month": found,
    }  # fmt: skip


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.job_year", description=__doc__)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--users", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    show(measure(options.jobs, options.users), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
