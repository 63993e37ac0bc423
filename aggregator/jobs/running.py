"""Use of the jobs that run, in a file that is replaced once a minute: a kill -9 costs a minute of use at most, and the
store, which writes a job whole, is spared a job of which nothing else changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from aggregator.folder import kinds
from aggregator.jobs.ledger import JobLedger, TrackedJob, part_of
from aggregator.jobs.usage import GpuAccount, UsageMeter
from telemetry.files.state_file import json_of, replace_file
from telemetry.runtime.isolation import Isolation
from telemetry.wire.jobs import JobKey

NAME = "running.json"


class RunningUse(msgspec.Struct, kw_only=True):
    """A job in the file."""

    job: JobKey
    accounts: list[GpuAccount]


def of_jobs(ledger: JobLedger, meter: UsageMeter, aside: Isolation, now: float) -> Iterator[RunningUse]:
    """Yield the use so far of each job that runs, but for those set aside; others may have a turn meanwhile."""

    def use(key: JobKey, tracked: TrackedJob) -> RunningUse:
        accounts = [meter.account(key, node, gpu) for node, gpu in tracked.gpus]
        return RunningUse(job=key, accounts=accounts)

    for key in list(ledger.jobs):
        tracked = ledger.jobs.get(key)
        if tracked is not None and tracked.open:
            found = aside.run(part_of(key, tracked), now, partial(use, key, tracked), None)
            if found is not None:
                yield found


def load(folder: Path) -> dict[JobKey, list[GpuAccount]]:
    """Return what was saved; nothing where there is no file that can be used."""
    found = kinds.read(folder / NAME, json_of(list[RunningUse])) or []
    return {one.job: one.accounts for one in found}


def save(folder: Path, found: Iterable[RunningUse]) -> None:
    """Replace the file, whole or not at all. Raises `OSError`."""
    # One by one: other threads wait while the encoder is at work, a second for 50,000 jobs.
    content = b",".join([msgspec.json.encode(one) for one in found])
    replace_file(folder / NAME, b"[%b]" % content)


def newest(stored: Iterable[GpuAccount], saved: Iterable[GpuAccount]) -> list[GpuAccount]:
    """Return what was counted last of each GPU, with the counters at its edges as the store has them."""
    found = {(each.node, each.gpu): each for each in stored}
    for each in saved:
        place = each.node, each.gpu
        other = found.get(place)
        if other is None:
            found[place] = each
        elif other.held < each.held:
            found[place] = msgspec.structs.replace(each, counters=other.counters)
    return list(found.values())
