"""Energy of jobs by the counters at their edges: of seconds, over a hole that is filled later, and where it can't be."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from aggregator.config import StoreConfig
from aggregator.jobs.edges import (
    AT_ONCE,
    COUNTER,
    MANY,
    MOST_TRIES,
    SETTLED_SECONDS,
    TOGETHER_SECONDS,
    EdgeCounters,
    JobEdge,
    grown,
    interpolated,
)
from aggregator.jobs.joined import joined_job
from aggregator.jobs.months import month_account
from aggregator.jobs.service import JobService
from aggregator.store.embedded import EmbeddedStore
from api.jobs import EnergyFrom, JobSummary
from telemetry.wire.jobs import AllocationKind
from telemetry.wire.schema import GPU_FAST
from tests.aggregator.test_jobs_usage import KEYS, SECOND, Site


@dataclass
class Recorded(Site):
    """A site whose counters are stored each second, but for those that a test takes away."""

    stored: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def run(self, seconds: float, read: float = 1.0) -> None:
        for _ in range(round(seconds / read)):
            super().run(read, read)
            if self.wall % SECOND:
                continue
            for row, joules in enumerate(self.joules):
                self.stored.setdefault(self.uuid(row), []).append((self.wall, float(joules)))

    def record(self, seconds: float) -> None:
        """Let the time go on with nobody who counts: the nodes' readings are stored later."""
        first = self.wall
        for second in range(round(seconds)):
            self.joules += self.watts
            for row, joules in enumerate(self.joules):
                its = self.stored.setdefault(self.uuid(row), [])
                its.append((first + (second + 1) * SECOND, float(joules)))
        self.now += round(seconds)

    def answered(self) -> int:
        """Answer what the service wants to read, as a store does; return how many queries there were."""
        windows = self.jobs.energy.due(self.wall)
        for window in windows:
            readings = {}
            for name in window.nodes:
                for gpu in self.fleet.nodes[name].inventory.gpus:
                    its = [
                        one
                        for one in self.stored[gpu.uuid]
                        if window.first - 30 * SECOND <= one[0] <= window.first + window.count * SECOND
                    ]
                    readings[name, gpu.uuid] = (
                        np.array([at for at, _ in its], np.int64),
                        np.array([joules for _, joules in its]),
                    )
            self.jobs.energy.note(window, readings)
        return len(windows)

    def summary(self, number: int) -> JobSummary:
        return self.jobs.stored(KEYS[number], self.wall).summary

    def unheld(self, name: str = "joules") -> float:
        return sum(getattr(use, name) for use in self.jobs.meter.unheld.values())


def job_of(site: Recorded, number: int, seconds: float, watts: float, row: int = 0) -> float:
    """Let a job hold a GPU for some seconds; return its energy."""
    begin, before = site.wall, site.watts[row]
    site.send("n0", site.held(KEYS[number], row, begin))
    site.watts[row] = watts
    site.run(seconds, 0.1)
    site.watts[row] = before
    site.send("n0", site.held(KEYS[number], row, begin, site.wall))
    return watts * seconds


@pytest.mark.parametrize("seconds", [2.0, 10.0, 21.3])
def test_a_job_of_seconds_has_its_own_energy_and_nobody_the_rest(seconds: float) -> None:
    site = Recorded(beside=200.0, price=0.36)
    site.run(61, 0.1)
    truth = job_of(site, 1, seconds, 700.0)
    site.run(40, 0.1)
    sampled = site.summary(1)
    assert sampled.energy_from is EnergyFrom.PROVISIONAL
    if seconds < 5:  # less than the time between two samples
        assert sampled.energy_joules != pytest.approx(truth, rel=0.2)
    before, wall, cost = site.unheld(), site.unheld("wall"), site.unheld("cost")
    assert site.answered() == 1
    found = site.summary(1)
    assert found.energy_joules == pytest.approx(truth, rel=0.02)
    assert found.wall_joules == pytest.approx(truth + 100.0 * seconds, rel=0.02)
    assert found.cost == pytest.approx((truth + 100.0 * seconds) * 1e-7, rel=0.02)
    given = (sampled.wall_joules or 0.0) - found.wall_joules
    assert site.unheld("wall") == pytest.approx(wall + given, abs=0.01)
    assert site.unheld("cost") == pytest.approx(cost + given * 1e-7, abs=1e-6)
    assert found.energy_coverage == 1.0
    assert found.energy_from is EnergyFrom.COUNTERS
    assert KEYS[1] in site.jobs.ledger.changed, "it is written again"
    moved = (sampled.energy_joules or 0.0) - (found.energy_joules or 0.0)
    assert site.unheld() == pytest.approx(before + moved, abs=0.01)
    site.run(40)
    assert site.answered() == 0


def test_jobs_one_after_the_other_are_read_at_once_and_take_nothing_from_each_other() -> None:
    site = Recorded()
    site.run(61, 0.1)
    truths = [job_of(site, number, 3.0, 200.0 * number) for number in (1, 2, 3)]
    site.run(40, 0.1)
    assert site.answered() == 1
    found = [site.summary(number).energy_joules for number in (1, 2, 3)]
    assert found == pytest.approx(truths, rel=0.02)


def test_readings_that_come_later_count() -> None:
    """The aggregator heard nothing around the job's end; the node's ring fills the hole."""
    site = Recorded()
    site.run(61)
    truth = job_of(site, 1, 60.0, 700.0)
    whole = {gpu: list(its) for gpu, its in site.stored.items()}
    end = site.wall
    for its in site.stored.values():
        its[:] = [one for one in its if abs(one[0] - end) > 20 * SECOND]
    site.run(40)
    site.answered()
    assert site.summary(1).energy_from is EnergyFrom.PROVISIONAL
    for gpu, its in whole.items():
        site.stored[gpu] = sorted({*site.stored[gpu], *its})
    site.run(30)
    assert site.answered() == 1
    found = site.summary(1)
    assert found.energy_from is EnergyFrom.COUNTERS
    assert found.energy_joules == pytest.approx(truth, rel=0.01)


def test_what_the_node_drew_at_the_wall_while_nobody_read_it_follows_its_gpus() -> None:
    """Ten minutes without an aggregator at another power than before; of the meter nothing is stored."""
    site = Recorded(beside=200.0, price=0.36)
    site.run(61)
    begin, site.watts[0] = site.wall, 700.0
    site.send("n0", site.held(KEYS[1], 0, begin))
    site.run(60)
    site.watts[0] = 300.0
    site.record(600)
    site.run(20)
    site.watts[0] = 100.0
    site.send("n0", site.held(KEYS[1], 0, begin, site.wall))
    site.run(40)
    site.answered()
    found = site.summary(1)
    assert found.energy_from is EnergyFrom.COUNTERS
    wall = 60 * 800.0 + 620 * 400.0
    assert found.wall_joules == pytest.approx(wall, rel=0.02)
    assert found.cost == pytest.approx(wall * 1e-7, rel=0.02)
    assert found.wall_coverage == pytest.approx(80 / 680, rel=0.1), "the rest was not read"


def test_what_was_never_stored_stays_a_sum_of_samples_and_is_not_asked_for_for_ever() -> None:
    site = Recorded()
    site.run(61)
    job_of(site, 1, 30.0, 700.0)
    site.run(40)
    site.stored = {gpu: [] for gpu in site.stored}
    asked = 0
    for _ in range(40):
        asked += site.answered()
        site.run(60)
        site.stored = {gpu: [] for gpu in site.stored}
    assert asked == MOST_TRIES
    found = site.summary(1)
    assert found.energy_from is EnergyFrom.SAMPLES
    assert found.energy_joules is not None


@pytest.mark.parametrize("all_lost", [True, False])
def test_the_last_search_comes_before_a_job_is_forgotten_and_is_stored(all_lost: bool) -> None:
    """The search fills a hole of 10 s."""
    site = Recorded()
    site.run(61)
    job_of(site, 1, 30.0, 700.0)
    end, stored = site.wall, EnergyFrom.PROVISIONAL
    while KEYS[1] in site.jobs.ledger.jobs:
        site.run(60)
        for its in site.stored.values():
            its[:] = [one for one in its if not (all_lost or abs(one[0] - end) <= 5 * SECOND)]
        site.answered()
        due = site.jobs.due(site.now, site.wall)
        stored = due[0].summary.energy_from if due else stored
        site.jobs.written(due, site.now, site.wall)
        site.jobs.absorb([], [KEYS[1]])
        site.jobs.forget_ended(site.now, site.wall)
        assert site.wall - end < 3600 * SECOND
    assert stored is (EnergyFrom.SAMPLES if all_lost else EnergyFrom.COUNTERS)


def kept(site: Recorded) -> None:
    """Write the jobs that are due, and forget those that need not stay, as the aggregator does."""
    site.jobs.absorb([], set(site.jobs.ledger.fresh))
    site.jobs.written(site.jobs.due(site.now, site.wall), site.now, site.wall)
    site.jobs.forget_ended(site.now, site.wall)


def test_a_job_whose_end_is_heard_late_is_counted_when_its_readings_come_later_still() -> None:
    """Its node was out of reach for half an hour: first it lists its jobs, a minute later its ring fills the hole."""
    site = Recorded()
    site.run(61)
    begin, site.watts[0] = site.wall, 700.0
    site.record(60)
    end, site.watts[0] = site.wall, 100.0
    site.record(1800)
    late, site.stored = site.stored, {gpu: [] for gpu in site.stored}
    site.send("n0", site.held(KEYS[1], 0, begin, end))
    for _ in range(3):
        site.run(20)
        site.answered()
        kept(site)
    assert site.summary(1).energy_from is EnergyFrom.PROVISIONAL
    for gpu, its in late.items():
        site.stored[gpu][:0] = its
    site.run(90)
    site.answered()
    assert site.summary(1).energy_from is EnergyFrom.COUNTERS
    assert site.summary(1).energy_joules == pytest.approx(60 * 700.0, rel=0.01)
    site.run(40)
    kept(site)
    site.run(40)
    kept(site)
    assert KEYS[1] not in site.jobs.ledger.jobs, "it is stored as it was counted"


def test_a_begin_that_was_given_up_is_looked_for_again_once_its_end_is_known() -> None:
    """The node said that the job began, and was out of reach for two hours from then on."""
    site = Recorded()
    site.run(61)
    begin, before, site.watts[0] = site.wall, float(site.joules[0]), 700.0
    site.send("n0", site.held(KEYS[1], 0, begin))
    site.stored = {gpu: [] for gpu in site.stored}
    for _ in range(30):
        site.record(60)
        site.run(5)
        late, site.stored = site.stored, {gpu: [] for gpu in site.stored}
        site.answered()
        site.stored = late
    assert site.jobs.energy.edges.given_up(site.uuid(0), [begin])
    around = [(begin + at * SECOND, before + 700.0 * at) for at in range(60)]
    site.stored[site.uuid(0)][:0] = around
    site.send("n0", site.held(KEYS[1], 0, begin, site.wall))
    seconds = (site.wall - begin) / SECOND
    site.run(30)
    site.answered()
    assert site.summary(1).energy_from is EnergyFrom.COUNTERS
    assert site.summary(1).energy_joules == pytest.approx(700.0 * seconds, rel=0.01)


def test_one_of_several_members_counts_what_it_has_seen_whole() -> None:
    site = Recorded(jobs=JobService(shares=True))
    site.run(61)
    truth = job_of(site, 1, 30.0, 700.0)
    site.run(60)
    assert site.answered() == 1
    assert site.summary(1).energy_from is EnergyFrom.COUNTERS
    assert site.summary(1).energy_joules == pytest.approx(truth, rel=0.01)


def taken_over(old: Recorded, jobs: JobService, begin: int, away: int, knows: str, edge: int = 0) -> Recorded:
    """Return the member that has a node 100 s after it took it over, with a job that began at another member; for `away`
    seconds before none had it."""
    new = Recorded(jobs=jobs, beside=200.0, price=0.36, edge=edge, now=old.now)
    new.joules = old.joules.copy()
    if knows == "all of it":
        new.stored = {gpu: list(its) for gpu, its in old.stored.items()}
    new.watts[0] = 300.0
    if away:
        new.record(away)
    new.send("n0", new.held(KEYS[1], 0, begin))
    new.run(100)
    return new


@pytest.mark.parametrize("knows", ["its own time", "all of it"])
@pytest.mark.parametrize("away", [0, 600])
def test_a_job_whose_node_moved_has_the_energy_between_its_begin_and_end(away: int, knows: str) -> None:
    """The counter at its begin is known to a member, that at its end to another one, or both to one; for ten minutes none had the node."""
    old = Recorded(jobs=JobService(shares=True), beside=200.0, price=0.36)
    old.run(61)
    begin, old.watts[0] = old.wall, 700.0
    first = float(old.joules[0])
    old.send("n0", old.held(KEYS[1], 0, begin))
    old.run(100)
    moved = old.wall
    new = taken_over(old, JobService(shares=True), begin, away, knows)
    running = joined_job(
        {"a": old.jobs.stored(KEYS[1], moved), "b": new.jobs.stored(KEYS[1], new.wall)}, lambda _: "b", new.wall
    )
    assert running.summary.energy_from is EnergyFrom.PROVISIONAL
    assert (running.summary.energy_joules or 0) <= float(new.joules[0]) - first
    new.send("n0", new.held(KEYS[1], 0, begin, new.wall))
    truth = float(new.joules[0]) - first
    new.run(40)
    old.jobs.remove("n0")
    old.run(40)
    for site in (old, new):
        site.answered()
    parts = {name: site.jobs.stored(KEYS[1], new.wall) for name, site in (("a", old), ("b", new))}
    found = joined_job(parts, lambda _: "b", new.wall).summary
    assert found.energy_from is EnergyFrom.COUNTERS
    assert found.energy_joules == pytest.approx(truth, rel=0.01)
    assert found.wall_joules == pytest.approx(truth + 100.0 * (200 + away), rel=0.02)
    assert found.cost == pytest.approx((truth + 100.0 * (200 + away)) * 1e-7, rel=0.02)
    assert found.energy_coverage == 1.0


def test_a_gpu_that_two_hold_is_split_by_samples() -> None:
    site = Recorded()
    site.run(61)
    begin = site.wall
    site.send("n0", site.held(KEYS[1], 0, begin), site.held(KEYS[2], 0, begin))
    site.run(60)
    ends = [site.held(KEYS[number], 0, begin, site.wall) for number in (1, 2)]
    site.send("n0", *ends)
    site.run(60)
    site.answered()
    assert [site.summary(number).energy_from for number in (1, 2)] == [EnergyFrom.SAMPLES] * 2
    assert site.summary(1).energy_joules == pytest.approx(3000.0, rel=0.02)


def test_what_a_process_uses_of_an_allocated_gpu_is_the_energy_of_that_allocation() -> None:
    site = Recorded()
    site.run(61)
    begin = site.wall
    used = site.held(KEYS[1], 0, begin, kind=AllocationKind.USED)
    site.send("n0", used)
    site.run(30)
    given = site.held(KEYS[2], 0, site.wall)
    site.send("n0", used, given)
    site.run(60)
    site.send("n0", *(msgspec.structs.replace(one, end=site.wall) for one in (used, given)))
    site.run(40)
    site.answered()
    found = [site.summary(number) for number in (1, 2)]
    assert [one.energy_from for one in found] == [EnergyFrom.SAMPLES, EnergyFrom.COUNTERS]
    assert [one.energy_joules for one in found] == pytest.approx([3000.0, 6000.0], rel=0.01)


@pytest.mark.parametrize("kind", [AllocationKind.ALLOCATED, AllocationKind.USED])
def test_what_nobody_counted_is_taken_from_nobody(kind: AllocationKind) -> None:
    """A job that begins and ends while no aggregator runs: the counters have its energy, the use of nobody never had."""
    site = Recorded()
    site.run(61)
    first = site.jobs
    site.jobs = JobService()
    site.jobs.meter.unheld = first.meter.unheld
    site.record(30)
    begin, site.watts[0] = site.wall, 700.0
    site.record(120)
    end, site.watts[0] = site.wall, 100.0
    site.record(30)
    site.send("n0", site.held(KEYS[1], 0, begin, end, kind=kind))
    site.run(40)
    before = site.unheld()
    site.answered()
    assert site.summary(1).energy_joules == pytest.approx(120 * 700.0, rel=0.01)
    assert site.unheld() == before > 0


def test_a_gpu_that_two_held_while_nobody_counted_is_of_neither_alone() -> None:
    site = Recorded()
    site.run(61)
    begin = site.wall
    site.record(60)
    ends = [site.held(KEYS[number], 0, begin, site.wall) for number in (1, 2)]
    site.record(60)
    site.send("n0", *ends)
    site.run(60)
    site.answered()
    found = [site.summary(number) for number in (1, 2)]
    assert [one.energy_from for one in found] == [EnergyFrom.SAMPLES] * 2
    assert [one.energy_joules for one in found] == pytest.approx([3000.0] * 2, rel=0.02)


def test_an_overlap_that_is_learnt_after_a_job_was_counted_gives_back_what_was_moved() -> None:
    site = Recorded()
    site.run(61, 0.1)
    begin = site.wall
    job_of(site, 1, 3.0, 700.0)
    first = site.held(KEYS[1], 0, begin, site.wall)
    site.run(40, 0.1)
    sampled, before = site.summary(1).energy_joules or 0.0, site.unheld()
    site.answered()
    site.jobs.absorb([], KEYS)
    site.jobs.written(site.jobs.due(site.now, site.wall), site.now, site.wall)
    assert site.summary(1).energy_from is EnergyFrom.COUNTERS
    assert site.unheld() != pytest.approx(before, abs=1.0)
    site.send("n0", first, site.held(KEYS[2], 0, begin + SECOND, begin + 2 * SECOND))
    for _ in site.jobs.steps(site.fleet, site.now, site.wall):
        pass
    assert site.summary(1).energy_from is EnergyFrom.SAMPLES
    assert site.summary(1).energy_joules == sampled
    assert site.unheld() + sampled == pytest.approx(site.jobs.meter.joules.sum(), abs=1.0)
    assert KEYS[1] in site.jobs.ledger.changed, "it is written again"


MONTHS = (("2026-01", "2026-02"), ("2026-02", "2026-03"))


def by_months(edge: int, *, shares: bool = False) -> JobService:
    """A service of a site where February begins at a time."""
    return JobService(
        shares=shares,
        months=lambda begin, end: {
            name: at for name, at in (("2026-01", 0), ("2026-02", edge)) if at < end and (at or begin < edge)
        },
    )


def in_months(site: Recorded, number: int) -> list[float]:
    """The energy of a job on a GPU in January and February."""
    (account,) = site.jobs.stored(KEYS[number], site.wall).accounts
    return [month_account(account, *month).joules for month in MONTHS]


def test_a_job_over_the_edge_of_a_month_is_split_by_its_counter_there() -> None:
    """The GPU draws 700 W in the seconds before midnight and 300 W after it, between two samples."""
    site = Recorded()
    site.edge = site.wall + 64 * SECOND
    site.jobs = by_months(site.edge)
    site.run(62, 0.1)
    begin = site.wall
    site.send("n0", site.held(KEYS[1], 0, begin))
    site.watts[0] = 700.0
    site.run(2, 0.1)
    site.watts[0] = 300.0
    site.run(3, 0.1)
    site.send("n0", site.held(KEYS[1], 0, begin, site.wall))
    site.watts[0] = 100.0
    site.run(60, 0.1)
    assert in_months(site, 1) != pytest.approx([1400.0, 900.0], rel=0.1)
    total = site.unheld() + (site.summary(1).energy_joules or 0.0)
    site.answered()
    assert site.summary(1).energy_from is EnergyFrom.COUNTERS
    assert in_months(site, 1) == pytest.approx([1400.0, 900.0], rel=0.02)
    assert site.unheld() + sum(in_months(site, 1)) == pytest.approx(total, abs=0.1)


@pytest.mark.parametrize("stored", [True, False])
def test_a_month_that_began_while_no_aggregator_ran_has_its_part_of_a_job(stored: bool) -> None:
    """Where nothing was stored at midnight the time tells."""
    site = Recorded()
    site.edge = site.wall + 600 * SECOND
    site.run(61)
    site.jobs = by_months(site.edge)
    site.record(339)
    begin, site.watts[0] = site.wall, 700.0
    site.record(200)
    site.watts[0] = 300.0
    site.record(200)
    end = site.wall
    site.record(60)
    if not stored:
        for its in site.stored.values():
            its[:] = [one for one in its if abs(one[0] - site.edge) > 60 * SECOND]
    site.send("n0", site.held(KEYS[1], 0, begin, end))
    site.run(40)
    site.answered()
    assert site.summary(1).energy_from is EnergyFrom.COUNTERS
    found = [140_000.0, 60_000.0] if stored else [100_000.0, 100_000.0]
    assert in_months(site, 1) == pytest.approx(found, rel=0.01)
    again = by_months(site.edge)
    again.restore([site.jobs.stored(KEYS[1], site.wall)], {})
    site.jobs = again
    site.run(40)
    assert in_months(site, 1) == pytest.approx(found, rel=0.01)


@pytest.mark.parametrize("knows", ["its own time", "all of it"])
@pytest.mark.parametrize("away", [0, 600])
@pytest.mark.parametrize("midnight", ["before", "at", "after"])
def test_a_job_whose_node_moved_over_the_end_of_a_month_has_its_part_in_each(
    midnight: str, away: int, knows: str
) -> None:
    """Month's end lies in the time of the member before, when the node moved, or in that of the next one."""
    edge = Recorded().wall + round({"before": 103, "at": 164 + away / 2, "after": 203 + away}[midnight] * SECOND)
    old = Recorded(jobs=by_months(edge, shares=True), beside=200.0, price=0.36, edge=edge)
    old.fleet.nodes["n0"].session = 7
    old.run(61)
    begin, old.watts[0] = old.wall, 700.0
    first = float(old.joules[0])
    old.send("n0", old.held(KEYS[1], 0, begin))
    old.run(100)
    moved = old.wall
    old.answered()
    new = taken_over(old, by_months(edge, shares=True), begin, away, knows, edge=edge)
    new.send("n0", new.held(KEYS[1], 0, begin, new.wall))
    end, truth = new.wall, float(new.joules[0]) - first
    new.run(40)
    old.jobs.remove("n0")
    for site in (old, new):
        site.run(40)
        site.answered()
    parts = {name: site.jobs.stored(KEYS[1], new.wall) for name, site in (("a", old), ("b", new))}
    (account,) = joined_job(parts, lambda _: "b", new.wall, new.jobs.energy.months).accounts
    assert account.energy_from is EnergyFrom.COUNTERS
    months = [month_account(account, *month) for month in MONTHS]
    before = 700.0 * (min(edge, moved) - begin) / SECOND + 300.0 * max(0, edge - moved) / SECOND
    assert [each.joules for each in months] == pytest.approx([before, truth - before], rel=0.01, abs=300)
    seconds = [(edge - begin) / SECOND, (end - edge) / SECOND]
    walls = [its + 100.0 * each for its, each in zip((before, truth - before), seconds, strict=True)]
    assert [each.wall for each in months] == pytest.approx(walls, rel=0.02, abs=400)
    assert [each.cost for each in months] == pytest.approx([each * 1e-7 for each in walls], rel=0.02, abs=4e-5)
    if not away:
        assert [each.held for each in months] == pytest.approx(seconds, abs=25.0)  # the last of each


def test_what_members_sampled_one_after_the_other_is_of_the_month_in_which_it_was() -> None:
    """The next one has the node from the new month on, and nobody has noted what there was at its begin."""
    edge = Recorded().wall + 161 * SECOND
    old, new = (Recorded(jobs=by_months(edge, shares=True), edge=edge) for _ in range(2))
    old.run(61)
    begin, old.watts[0] = old.wall, 700.0
    old.send("n0", old.held(KEYS[1], 0, begin))
    old.run(100)
    new.now, new.joules, new.watts[0] = old.now, old.joules.copy(), 300.0
    new.send("n0", new.held(KEYS[1], 0, begin))
    new.run(100)
    parts = {name: site.jobs.stored(KEYS[1], new.wall) for name, site in (("a", old), ("b", new))}
    (account,) = joined_job(parts, lambda _: "b", new.wall, new.jobs.energy.months).accounts
    months = [month_account(account, *month).joules for month in MONTHS]
    assert months == [parts[name].summary.energy_joules for name in "ab"]
    assert months == pytest.approx([70_000.0, 30_000.0], rel=0.25), "but the last seconds of each"


def test_the_counter_at_the_begin_of_a_month_is_looked_for_while_a_job_runs() -> None:
    """Readings are gone by its end, weeks later: those of each second are not kept any more."""
    site = Recorded()
    site.edge = site.wall + 120 * SECOND
    site.jobs = by_months(site.edge)
    site.run(61)
    begin, site.watts[0] = site.wall, 700.0
    site.send("n0", site.held(KEYS[1], 0, begin))
    site.run(120)
    site.answered()
    assert site.edge in site.jobs.energy.edges.known(site.uuid(0), [site.edge])


def test_what_was_counted_outlives_the_aggregator() -> None:
    site = Recorded()
    site.run(61, 0.1)
    truth = job_of(site, 1, 4.0, 700.0)
    site.run(40, 0.1)
    site.answered()
    stored = site.jobs.stored(KEYS[1], site.wall)
    second = Recorded()
    second.jobs.restore([stored], {})
    again = second.jobs.stored(KEYS[1], site.wall).summary
    assert again.energy_joules == pytest.approx(truth, rel=0.02)
    assert (again.energy_from, again.energy_coverage) == (EnergyFrom.COUNTERS, 1.0)


def test_a_restart_goes_on_with_a_job_that_ended_and_was_not_counted(tmp_path: Path) -> None:
    """Its node does not list it any more."""
    site = Recorded()
    site.run(61, 0.1)
    truth = job_of(site, 1, 4.0, 700.0)
    site.jobs.absorb([], [KEYS[1]])
    store = EmbeddedStore(StoreConfig(), tmp_path)
    store.write_jobs(site.jobs.due(site.now, site.wall))
    site.jobs = JobService()
    site.jobs.restore(store.open_jobs(), {})
    site.run(40, 0.1)
    site.answered()
    store.write_jobs(site.jobs.due(site.now, site.wall))
    (stored,) = store.jobs_of([KEYS[1]])
    assert stored.summary.energy_from is EnergyFrom.COUNTERS
    assert stored.summary.energy_joules == pytest.approx(truth, rel=0.02)
    assert store.open_jobs() == [], "it is counted"


def times(*seconds: float) -> npt.NDArray[np.int64]:
    return np.array([second * SECOND for second in seconds], np.int64)


@pytest.mark.parametrize(
    ("seconds", "joules", "most", "expected"),
    [
        ((10, 11), (100.0, 200.0), 5.0, 150.0),
        ((11, 10), (200.0, 100.0), 5.0, 150.0),
        ((10.5,), (120.0,), 5.0, 120.0),
        ((10, 0, 11), (100.0, 1.0, np.nan), 5.0, None),
        ((1, 11), (100.0, 200.0), 5.0, None),
        ((1, 11), (100.0, 195.0), 30.0, 190.25),
        ((10, 11), (200.0, 100.0), 5.0, None),
        ((10, 11), (100.0, 9e9), 5.0, None),
        ((), (), 5.0, None),
        ((0, 11), (100.0, 200.0), 30.0, None),
    ],
    ids=["between", "in any order", "at a reading", "a gap", "too far", "far, at the last try", "a reset", "a fault", "nothing", "a time that is none"],
)  # fmt: skip
def test_a_counter_between_two_readings(
    seconds: tuple[float, ...], joules: tuple[float, ...], most: float, expected: float | None
) -> None:
    found = interpolated(times(*seconds), np.array(joules), round(10.5 * SECOND), most)
    assert found == (None if expected is None else pytest.approx(expected))


def test_a_counter_that_began_anew_counts_nothing() -> None:
    assert grown([(0, 10 * SECOND)], {0: 500.0, 10 * SECOND: 100.0}) is None
    assert (
        grown([(0, SECOND), (5 * SECOND, 6 * SECOND)], {0: 1.0, SECOND: 3.0, 5 * SECOND: 10.0, 6 * SECOND: 14.0}) == 6.0
    )


def test_edges_that_nobody_wants_are_forgotten() -> None:
    counters, at = EdgeCounters(), 100 * SECOND
    counters.restore("n", "a", {at: 5.0})
    counters.want("n", "a", {at, at + 1})
    assert counters.known("a", [at]) == {at: 5.0}
    (window,) = counters.due(1000 * SECOND)
    assert window.edges == (JobEdge("n", "a", at + 1),)
    assert counters.note(window, {}) == set(), "the store could not be read"
    counters.want("n", "a", {at + 2})
    assert counters.known("a", [at]) == {}
    (window,) = counters.due(1020 * SECOND)
    assert window.edges == (JobEdge("n", "a", at + 2),)
    counters.want("n", "a", set())
    assert counters.due(10_000 * SECOND) == []


def test_the_edges_of_a_job_on_all_gpus_are_counted_some_at_a_time() -> None:
    counters = EdgeCounters()
    for number in range(2 * AT_ONCE + 4):
        counters.want(f"n{number % 7}", f"g{number}", {100 * SECOND})
    (window,) = counters.due(1000 * SECOND)
    parts = [part.edges for part in window.parts()]
    assert [len(part) for part in parts] == [AT_ONCE, AT_ONCE, 4]
    assert sorted(window.edges) == [edge for part in parts for edge in part]
    read = {(edge.node, edge.gpu): (times(99, 101), np.array([1.0, 3.0])) for edge in window.edges}
    found = [counters.note(part, read) for part in window.parts()]
    assert set().union(*found) == set(window.edges)


@pytest.mark.parametrize(("gpus", "queries"), [(MANY, [1, 1, 1, 0]), (MANY + 1, [0, 0, 0, 1])])
def test_edges_of_many_gpus_wait_for_each_other(gpus: int, queries: list[int]) -> None:
    counters, first = EdgeCounters(), 100 * SECOND
    for number in range(gpus):
        counters.want("n0", f"GPU-{number}", {first + number % 3 * 5 * SECOND})
    settled = first + int(SETTLED_SECONDS * SECOND)
    found = [counters.due(settled + second * SECOND) for second in (0, 5, 10, int(TOGETHER_SECONDS))]
    assert [len(windows) for windows in found] == queries
    assert sum(len(window.edges) for windows in found for window in windows) == gpus


def test_a_job_that_rests_and_goes_on_moves_what_it_used_once() -> None:
    site = Recorded()
    site.run(61, 0.1)
    begin = site.wall
    site.send("n0", site.held(KEYS[1], 0, begin))
    site.watts[0] = 700.0
    site.run(7, 0.1)
    first = site.held(KEYS[1], 0, begin, site.wall)
    site.watts[0] = 100.0
    site.send("n0", first)
    site.run(40, 0.1)
    site.answered()
    site.send("n0", first, site.held(KEYS[1], 0, site.wall))
    begin, site.watts[0] = site.wall, 400.0
    site.run(8, 0.1)
    site.watts[0] = 100.0
    site.send("n0", first, site.held(KEYS[1], 0, begin, site.wall))
    site.run(40, 0.1)
    site.answered()
    joules = site.summary(1).energy_joules or 0.0
    assert joules == pytest.approx(7 * 700 + 8 * 400, rel=0.02)
    assert site.unheld() + joules == pytest.approx(site.jobs.meter.joules.sum(), abs=1.0)


def test_the_counter_is_one_of_the_fast_lane() -> None:
    """The service asks for how far back the readings of that lane count."""
    assert COUNTER in Site().fleet.matrices[GPU_FAST].block.names
