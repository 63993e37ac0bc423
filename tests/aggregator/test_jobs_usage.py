"""Use and energy of jobs: what holders are given adds up, and what is not known is no number."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import pytest

from aggregator.config import StoreConfig
from aggregator.jobs import running
from aggregator.jobs.edges import MOST_TRIES
from aggregator.jobs.service import LOOK_SECONDS, JobService
from aggregator.jobs.stored import JobQuery
from aggregator.jobs.summary import quantile
from aggregator.jobs.unheld import row_of
from aggregator.jobs.usage import NO_MONTH, CountedMonth, GpuAccount, wall_parts
from aggregator.jobs.write_times import MANY, WriteTimes
from aggregator.store.embedded import EmbeddedStore
from api.jobs import JobPhase
from telemetry.devices import Event
from telemetry.fleet import Fleet
from telemetry.gap import NOT_SUPPORTED
from telemetry.metric import Table
from telemetry.wire.jobs import Allocation, AllocationKind, GpuProcess, Job, JobKey, NodeJobs, Precision
from telemetry.wire.schema import GPU_FAST, GPU_SLOW
from tests.aggregator.fake_view import START, inventory

SECOND = 10**9
KEYS = [JobKey("slurm", "lab", str(number)) for number in range(201)]


@dataclass
class Site:
    """Nodes with GPUs whose power and use a test sets, and a job service that reads them."""

    nodes: int = 1
    gpus: int = 2
    jobs: JobService = field(default_factory=lambda: JobService(lambda: "EUR"))
    fleet: Fleet = field(default_factory=Fleet)
    now: float = 1000.0
    version: int = 0
    price: float | None = None
    beside: float | None = None
    """Power of a node beside its GPUs, W; None where it draws 1,000 W whatever they do."""
    counters: bool = True
    traffic: dict[str, float] = field(default_factory=dict)
    """Bytes that each GPU moves in a second, by the counter that a slow reading of every 15 s has."""
    edge: int = 0
    """Begin of February, ns since 1970; 0 where months are no matter."""

    def __post_init__(self) -> None:
        for number in range(self.nodes):
            self.fleet.place(inventory(f"n{number}", gpus=self.gpus, links=0))
        count = self.fleet.size(Table.GPU)
        self.watts, self.use = np.full(count, 100.0), np.zeros(count)
        self.joules = np.full(count, 1e6)
        self.moved: dict[str, float] = {}

    @property
    def wall(self) -> int:
        """ns since 1970."""
        return START + round((self.now - 1000.0) * SECOND)

    @property
    def month(self) -> CountedMonth:
        """The present month, where a test has one begin."""
        if not self.edge:
            return NO_MONTH
        return (
            CountedMonth("2026-02", self.edge, "2026-01")
            if self.wall >= self.edge
            else CountedMonth("2026-01", 0, "2025-12")
        )

    def uuid(self, row: int) -> str:
        """UUID of a row."""
        entry = self.fleet.gpus[row]
        assert entry is not None
        return entry[1].uuid

    def run(self, seconds: float, read: float = 1.0) -> None:
        """Let the time go on, with a reading a second and a step of the service every five."""
        for _ in range(round(seconds / read)):
            self.now += read
            self.joules += self.watts * read
            matrix = self.fleet.matrices[GPU_FAST]
            rows = np.arange(self.fleet.size(Table.GPU))
            matrix.seen[rows] = self.now
            for name, values in {
                "gpu_power_watts": self.watts,
                "gpu_utilization_ratio": self.use,
                "gpu_memory_used_bytes": self.use * 80e9,
                "gpu_clocks_event_sw_power_cap": self.use > 0.9,
                "gpu_sm_active_ratio": self.use * 0.8,
                "gpu_tensor_active_ratio": self.use * 0.5,
                "gpu_dram_active_ratio": np.where(self.watts > 200, self.use * 0.4, NOT_SUPPORTED),
            }.items():
                matrix.gauges[rows, matrix.columns[name]] = values
            at = matrix.columns["gpu_energy_joules_total"] - len(matrix.block.gauges)
            matrix.counters[rows, at] = self.joules if self.counters else NOT_SUPPORTED
            for name, rate in self.traffic.items():
                self.moved[name] = self.moved.get(name, 5e12) + rate * read
            if round(self.now * 10) % 150 == 0 and self.traffic:
                slow = self.fleet.matrices[GPU_SLOW]
                slow.seen[rows] = self.now
                for name, moved in self.moved.items():
                    slow.counters[rows, slow.columns[name] - len(slow.block.gauges)] = moved
            for node in self.fleet.nodes.values():
                node.seen, node.sampled_at = self.now, self.wall
            if round(self.now * 10) % 50 == 0:
                watts = {
                    name: 1000.0
                    if self.beside is None
                    else self.beside + float(self.watts[number * self.gpus :][: self.gpus].sum())
                    for number, name in enumerate(self.fleet.nodes)
                }
                for _ in self.jobs.steps(self.fleet, self.now, self.wall, watts, self.price, self.month):
                    pass

    def send(self, node: str, *allocations: Allocation, processes: tuple[GpuProcess, ...] = ()) -> None:
        """Send a node's list."""
        self.version += 1
        facts = {each.job: Job(key=each.job, user="ada") for each in allocations}
        message = NodeJobs(
            session=7,
            version=self.version,
            at=self.wall,
            jobs=tuple(facts.values()),
            allocations=allocations,
            processes=processes,
        )
        gpus = {gpu.uuid for gpu in self.fleet.nodes[node].inventory.gpus}
        self.jobs.receive(node, msgspec.json.encode(message), gpus, self.wall)

    def held(self, job: JobKey, row: int, begin: int, end: int = 0, **more: object) -> Allocation:
        """An allocation."""
        facts = {"begin_from": Precision.HOOK, "end_from": Precision.HOOK, **more}
        return Allocation(job=job, gpu=self.uuid(row), begin=begin, end=end, **facts)  # type: ignore[arg-type]


def test_a_job_has_the_energy_between_its_begin_and_end() -> None:
    site = Site(price=0.36)
    site.watts[:] = 300.0
    site.use[0] = 0.95
    site.run(60)
    begin = site.wall - round(2.5 * SECOND)
    site.send("n0", site.held(KEYS[1], 0, begin))
    site.run(117.3)
    end = site.wall
    site.run(3)
    site.send("n0", site.held(KEYS[1], 0, begin, end))
    site.run(60)
    summary = site.jobs.stored(KEYS[1], site.wall).summary
    seconds = (end - begin) / 1e9
    assert summary.gpu_hours == pytest.approx(seconds / 3600)
    assert summary.energy_joules == pytest.approx(300 * seconds, rel=0.005)
    assert summary.wall_joules == pytest.approx(500 * seconds, rel=0.005)
    assert summary.cost == pytest.approx(500 * seconds / 3.6e6 * 0.36, rel=0.005)
    assert summary.coverage == pytest.approx(1.0, abs=0.01)
    assert not summary.partial
    assert summary.utilization_ratio == pytest.approx(0.95)
    assert summary.utilization_p10_ratio == pytest.approx(0.95, abs=0.03)
    assert summary.memory_peak_bytes == pytest.approx(0.95 * 80e9, rel=1e-3)
    assert summary.clock_limit_seconds["sw_power_cap"] == pytest.approx(seconds, rel=0.01)
    assert summary.gpus_idle == 0
    assert summary.sm_active_ratio == pytest.approx(0.95 * 0.8, rel=1e-3)
    assert summary.tensor_active_ratio == pytest.approx(0.95 * 0.5, rel=1e-3)
    assert summary.dram_active_ratio == pytest.approx(0.95 * 0.4, rel=1e-3)
    assert summary.activity_coverage == pytest.approx(1.0, abs=0.01)
    assert summary.sm_occupancy_ratio is None  # nothing read it


def test_a_job_whose_sums_fail_leaves_the_use_of_others_to_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing job is reported as a part of its node, and saved again once it works."""
    site = Site()
    site.send("n0", site.held(KEYS[1], 0, site.wall), site.held(KEYS[2], 1, site.wall))
    site.run(30)
    jobs, count = site.jobs, site.jobs.meter.account

    def failing(job: JobKey, node: str, gpu: str) -> GpuAccount:
        if job == KEYS[1]:
            raise ZeroDivisionError
        return count(job, node, gpu)

    def saved(now: float) -> list[JobKey]:
        return [one.job for one in running.of_jobs(jobs.ledger, jobs.meter, jobs.aside, now)]

    with monkeypatch.context() as patch:
        patch.setattr(jobs.meter, "account", failing)
        assert saved(site.now) == [KEYS[2]]
        assert [fault.part for fault in jobs.aside.faults()] == ["node/n0/slurm 1/jobs"]
    assert saved(site.now + 60) == KEYS[1:3]
    assert not [*jobs.aside.faults()]


def test_a_gpu_below_five_percent_is_idle_time_of_whoever_holds_it() -> None:
    """With its part of the cost; without a reading there is no such time."""
    site = Site(price=0.36)
    site.use[:] = 0.049
    site.run(60)
    site.send("n0", site.held(KEYS[1], 0, site.wall))
    site.run(120)
    site.use[:] = 0.05
    site.run(240)
    summary = site.jobs.stored(KEYS[1], site.wall).summary
    assert summary.idle_gpu_hours == pytest.approx(120 / 3600, rel=0.05)
    assert summary.idle_coverage == pytest.approx(1.0, abs=0.02)
    assert summary.idle_cost == pytest.approx(500 * 120 / 3.6e6 * 0.36, rel=0.05)
    (free,) = [row_of(use) for key, use in site.jobs.meter.unheld.items() if key.reported]
    assert free.idle_gpu_hours == pytest.approx(120 / 3600, rel=0.1)
    assert free.idle_cost == pytest.approx(500 * 120 / 3.6e6 * 0.36, rel=0.1)
    site.use[:] = np.nan
    site.send("n0", site.held(KEYS[2], 1, site.wall))
    site.run(60)
    unread = site.jobs.stored(KEYS[2], site.wall).summary
    assert (unread.idle_gpu_hours, unread.idle_cost) == (None, None)


def test_what_a_job_moved_over_its_links_is_the_growth_of_the_counters_while_it_ran() -> None:
    """A GPU without NVLink has no number; neither have readings before the second one, or over a reset."""
    site = Site()
    site.traffic = {"gpu_pcie_transmit_bytes_total": 1e9, "gpu_pcie_receive_bytes_total": 3e9}
    site.run(60)
    site.send("n0", site.held(KEYS[1], 0, site.wall))
    site.run(300)
    site.send("n0", site.held(KEYS[2], 1, site.wall), site.held(KEYS[1], 0, site.wall - 300 * SECOND, site.wall))
    site.traffic["gpu_pcie_receive_bytes_total"] = 11e9
    site.run(300)
    first, second = (site.jobs.stored(KEYS[number], site.wall).summary for number in (1, 2))
    assert first.pcie_bytes_per_second == pytest.approx(4e9, rel=0.01)
    assert second.pcie_bytes_per_second == pytest.approx(12e9, rel=0.05)
    assert first.pcie_coverage == second.pcie_coverage == pytest.approx(1.0, abs=0.02)
    for summary in (first, second):
        assert (summary.nvlink_bytes_per_second, summary.nvlink_coverage) == (None, 0.0)
    site.moved.clear()  # the driver was loaded anew
    site.run(30)
    site.traffic.clear()  # and is silent then
    site.run(400)
    reset = site.jobs.stored(KEYS[2], site.wall).summary
    assert reset.pcie_bytes_per_second == pytest.approx(12e9, rel=0.05)
    assert reset.pcie_coverage is not None
    assert reset.pcie_coverage < 0.65


def test_what_was_not_read_is_no_number_and_makes_a_summary_partial() -> None:
    site = Site()
    site.run(30)
    site.send("n0", site.held(KEYS[1], 0, site.wall - 3600 * SECOND))
    summary = site.jobs.stored(KEYS[1], site.wall).summary
    assert summary.energy_joules is None
    assert summary.utilization_ratio is None
    assert summary.cost is None
    assert summary.gpus_idle is None
    site.run(120)
    summary = site.jobs.stored(KEYS[1], site.wall).summary
    assert summary.coverage is not None
    assert 0 < summary.coverage < 0.1
    assert summary.activity_coverage == 0.0
    assert summary.sm_active_ratio is None
    assert summary.partial


def test_energy_goes_on_over_a_pause_of_the_aggregator_by_the_counter() -> None:
    site = Site()
    begin = site.wall
    site.send("n0", site.held(KEYS[1], 0, begin))
    site.run(120)
    stored = site.jobs.stored(KEYS[1], site.wall)
    site.jobs = JobService()
    site.jobs.restore([stored], {})
    site.now += 600
    site.joules += 600 * site.watts
    site.run(120)
    summary = site.jobs.stored(KEYS[1], site.wall).summary
    seconds = (site.wall - begin) / 1e9
    assert summary.energy_joules == pytest.approx(100 * (seconds - 15), rel=0.02)
    assert summary.energy_coverage == pytest.approx(1.0, abs=0.03)
    assert summary.coverage == pytest.approx(0.27, abs=0.05)
    assert summary.partial


def test_without_a_counter_the_power_counts() -> None:
    site = Site(counters=False)
    begin = site.wall + 10 * SECOND
    site.send("n0", site.held(KEYS[1], 0, begin))
    site.run(300)
    summary = site.jobs.stored(KEYS[1], site.wall).summary
    assert summary.energy_joules == pytest.approx(100 * 275, rel=0.02)


def test_a_shared_gpu_is_split_by_what_its_processes_use_else_equally() -> None:
    site = Site()
    site.run(20)
    both = [site.held(key, 0, site.wall, kind=AllocationKind.USED) for key in KEYS[:2]]
    alone = [site.held(key, 1, site.wall, kind=AllocationKind.USED) for key in KEYS[:2]]
    use = (
        GpuProcess(gpu=site.uuid(0), pid=1, job=KEYS[0], sm_ratio=0.6),
        GpuProcess(gpu=site.uuid(0), pid=2, job=KEYS[1], sm_ratio=0.2),
    )
    site.send("n0", *both, *alone, processes=use)
    site.run(120)
    energies = {
        (key.id, each.gpu): each.energy_joules
        for key in KEYS[:2]
        for each in site.jobs.stored(key, site.wall).summary.gpus
    }
    first, second = (energies[key.id, site.uuid(0)] for key in KEYS[:2])
    assert first is not None
    assert second is not None
    assert first / second == pytest.approx(3.0)
    assert energies["0", site.uuid(1)] == pytest.approx(energies["1", site.uuid(1)])
    assert all(each.shared for each in site.jobs.stored(KEYS[0], site.wall).summary.gpus)
    summaries = [site.jobs.stored(key, site.wall).summary for key in KEYS[:2]]
    seconds = summaries[0].gpus[0].held_seconds
    hours = [each.gpu_hours for each in summaries]
    assert hours == pytest.approx([1.25 * seconds / 3600, 0.75 * seconds / 3600])
    assert sum(hours) == pytest.approx(2 * seconds / 3600), "of two GPUs"
    assert [each.idle_gpu_hours for each in summaries] == pytest.approx(hours, rel=0.02)
    assert summaries[0].coverage == pytest.approx(1.0, abs=0.05)


def test_what_a_sharer_s_processes_used_last_holds_for_the_seconds_before_its_end() -> None:
    """Processes are gone when the end of their job is told, and the samples of its last quarter of a minute are not counted yet."""
    site = Site()
    site.run(20)
    begin = site.wall
    given = [site.held(key, 0, begin) for key in KEYS[:2]]
    used = [
        site.held(key, 0, begin, kind=AllocationKind.USED, begin_from=Precision.PROCESS, end_from=Precision.PROCESS)
        for key in KEYS[:2]
    ]
    use = [GpuProcess(gpu=site.uuid(0), pid=pid, job=KEYS[pid], sm_ratio=ratio) for pid, ratio in enumerate((0.6, 0.2))]
    site.send("n0", *given, *used, processes=tuple(use))
    site.run(12)
    gone = msgspec.structs.replace(used[0], end=site.wall)
    site.send("n0", *given, gone, used[1], processes=(use[1],))
    site.run(1)
    over = msgspec.structs.replace(given[0], end=site.wall)
    site.send("n0", over, given[1], gone, used[1], processes=(use[1],))
    site.run(60)
    hours = [site.jobs.stored(key, site.wall).summary.gpu_hours for key in KEYS[:2]]
    assert hours[0] == pytest.approx(0.75 * 12 / 3600, rel=0.01), "not of the second without a process"
    energy = [site.jobs.stored(key, site.wall).summary.energy_joules or 0.0 for key in KEYS[:2]]
    assert energy[0] == pytest.approx(0.75 * 12 * 100, rel=0.01)
    assert sum(energy) == pytest.approx(sum(hours) * 3600 * 100, rel=0.01)


def test_the_scheduler_s_holder_pays_for_a_gpu_that_another_uses() -> None:
    site = Site()
    site.run(20)
    site.send("n0", site.held(KEYS[0], 0, site.wall), site.held(KEYS[1], 0, site.wall, kind=AllocationKind.USED))
    site.run(120)
    assert site.jobs.stored(KEYS[1], site.wall).summary.energy_joules is None
    assert site.jobs.stored(KEYS[0], site.wall).summary.energy_joules is not None


def test_faults_of_its_gpus_are_counted_while_it_ran_and_a_minute_after() -> None:
    site = Site()
    site.send("n0", site.held(KEYS[1], 0, site.wall, site.wall + 100 * SECOND))

    def event(after: int, row: int) -> Event:
        return Event(
            node="n0",
            id=f"{after}-{row}",
            kind="xid",
            gpu=site.uuid(row),
            at=site.wall + after * SECOND,
            data={"xid": 79},
        )

    for after, row in ((-1, 0), (50, 0), (150, 0), (170, 0), (50, 1)):
        site.jobs.faults.note(event(after, row))
    assert site.jobs.stored(KEYS[1], site.wall).summary.faults == {"xid 79": 2}


@pytest.mark.parametrize("counters", [True, False])
def test_jobs_and_what_nobody_held_add_up_to_the_energy_of_the_gpus(counters: bool) -> None:
    """200 jobs in half an hour on 16 GPUs, some shared, begins and ends at any moment and reported late."""
    chance = random.Random(7)
    site = Site(nodes=4, gpus=4, counters=counters)
    site.run(20)
    first, began = site.joules.copy(), site.wall
    spans: dict[int, list[tuple[JobKey, int, int]]] = {row: [] for row in range(16)}
    waiting, drawn = iter(KEYS), []
    for _ in range(360):
        site.run(5)
        drawn.append(site.watts.copy())
        for row in chance.sample(range(16), 4):
            open_ones = [number for number, span in enumerate(spans[row]) if not span[2]]
            if open_ones and chance.random() < 0.5:
                job, begin, _ = spans[row][open_ones[0]]
                end = max(begin, site.wall - chance.randrange(3 * SECOND))
                spans[row][open_ones[0]] = job, begin, end
            elif len(open_ones) < 2 and (job := next(waiting, KEYS[0])) is not KEYS[0]:
                spans[row].append((job, site.wall - chance.randrange(2 * SECOND), 0))
            site.watts[row] = chance.uniform(80, 700)
            start = row // 4 * 4
            rows = range(start, start + 4)
            site.send(
                f"n{row // 4}", *(site.held(job, each, begin, end) for each in rows for job, begin, end in spans[each])
            )
    until, total = site.wall, site.joules - first
    site.watts[:] = 0.0
    site.run(30)
    true, idle = integrate(spans, np.array(drawn), began, until)
    used = {key: site.jobs.stored(key, site.wall).summary.energy_joules or 0.0 for key in site.jobs.ledger.jobs}
    assert len(used) == 200
    assert sum(used.values()) + idle == pytest.approx(total.sum(), rel=0.005)
    nobody = sum(one.joules for one in site.jobs.meter.unheld.values())
    assert sum(used.values()) + nobody == pytest.approx(site.jobs.meter.joules.sum(), rel=0.001)
    before = 16 * 100 * 20  # before the first list
    assert 0.98 * idle <= nobody <= 1.02 * idle + before
    for key, energy in used.items():
        assert energy == pytest.approx(true[key], rel=0.02, abs=1200)  # a second or two at the edges


def integrate(
    spans: dict[int, list[tuple[JobKey, int, int]]], watts: np.ndarray, began: int, until: int
) -> tuple[dict[JobKey, float], float]:
    """Return the joules of each job and of nobody, in steps of a twentieth of a second."""
    at = np.arange(began, until, SECOND // 20)
    true, idle = dict.fromkeys(KEYS, 0.0), 0.0
    for row, found in spans.items():
        power = watts[(at - began) // (5 * SECOND), row] / 20
        there = [(job, (begin <= at) & ((at < end) | (end == 0))) for job, begin, end in found]
        count = sum((held for _, held in there), np.zeros(len(at)))
        for job, held in there:
            true[job] += float((power * held / np.maximum(count, 1)).sum())
        idle += float(power[count == 0].sum())
    return true, idle


def test_a_gpu_draws_its_own_power_at_the_wall_and_an_equal_part_of_what_else_its_node_does() -> None:
    """Of nodes of two GPUs: a whole one, one of whose GPUs is not read, one whose meter reads too little or nothing."""
    watts = np.array([100.0, 500.0, 100.0, np.nan, 100.0, 500.0, 100.0, 500.0])
    drawn, owner = np.array([800.0, 800.0, 300.0, np.nan]), np.repeat(np.arange(4), 2)
    found = wall_parts(drawn, watts, np.full(4, 2.0), owner)
    assert found[:6].tolist() == [200.0, 600.0, 400.0, 400.0, 50.0, 250.0]
    assert np.isnan(found[6:]).all()


def test_quantiles_are_interpolated_within_a_bin() -> None:
    assert quantile({}, 0.5) is None
    assert quantile({0: 10.0}, 0.5) == pytest.approx(0.0125)
    assert quantile({0: 50.0, 39: 50.0}, 0.9) == pytest.approx((39 + 0.8) / 40)


def test_the_store_returns_what_was_written_and_finds_jobs(tmp_path: Path) -> None:
    site = Site()
    site.send("n0", site.held(KEYS[1], 0, site.wall), site.held(KEYS[2], 1, site.wall, site.wall + SECOND))
    site.run(60)
    store = EmbeddedStore(StoreConfig(), tmp_path)
    site.jobs.absorb([], KEYS)
    due = site.jobs.due(site.now, site.wall)
    store.write_jobs(due)
    store.write_jobs(due)
    assert {each.record.job.key for each in store.open_jobs()} == {KEYS[1], KEYS[2]}, (
        "the second is still to be counted"
    )
    assert store.jobs_of([KEYS[1]]) == [site.jobs.stored(KEYS[1], site.wall)]
    for query, wanted in {
        JobQuery(): {"1", "2"},
        JobQuery(id="2"): {"2"},
        JobQuery(user="ada", node="n0"): {"1", "2"},
        JobQuery(user="bob"): set(),
        JobQuery(node="n9"): set(),
        JobQuery(since=site.wall): {"1"},
        JobQuery(running=True, limit=1): {"1"},  # before the limit: one of the two is the newer
        JobQuery(running=False, limit=1): {"2"},
    }.items():
        assert {row.id for row in store.find_jobs(query)} == wanted, query
    store.close()


def test_a_job_that_left_memory_and_comes_again_is_the_same_row() -> None:
    site = Site()
    begin = site.wall
    site.send("n0", site.held(KEYS[1], 0, begin, begin + 100 * SECOND))
    site.run(200)
    stored = site.jobs.stored(KEYS[1], site.wall)
    later = JobService()
    site.jobs = later
    site.run(5)
    again = site.wall
    site.send("n0", site.held(KEYS[1], 0, again))
    assert later.due(site.now, site.wall) == []  # not before what is stored of it is known
    later.absorb([stored], [KEYS[1]])
    found = later.stored(KEYS[1], site.wall)
    assert found.row.phase is JobPhase.RUNNING
    assert found.row.begin == begin
    assert [row.begin for row in found.record.allocations] == [again, begin]
    assert found.summary.energy_joules == stored.summary.energy_joules
    assert later.due(site.now, site.wall) != []


def test_a_task_of_an_array_and_a_part_of_a_heterogeneous_job_are_found_as_users_know_them(tmp_path: Path) -> None:
    site = Site()
    site.send("n0", site.held(KEYS[5], 0, site.wall), site.held(KEYS[13], 1, site.wall))
    site.jobs.ledger.report(Job(key=KEYS[5], owner="Array/4_0"))
    site.jobs.ledger.report(Job(key=KEYS[13], owner="Component/12+1"))
    store = EmbeddedStore(StoreConfig(), tmp_path)
    store.write_jobs([site.jobs.stored(key, site.wall) for key in (KEYS[5], KEYS[13])])
    for name, wanted in {
        "4_0": ["5"],
        "12+1": ["13"],
        "5": ["5"],
        "4_1": [],
        "4_": [],
        "4": [],
        "+1": [],
        "4[]": ["5"],
        "12[]": [],
        "[]": [],
    }.items():
        query = JobQuery(id=name)
        assert [row.id for row in store.find_jobs(query)] == wanted, name
        live = site.jobs.matching(query, site.wall)
        assert [row.id for row in live] == wanted, name
        assert all(query.matches(row) for row in live)
    store.close()


def test_jobs_that_ended_leave_memory_once_they_are_stored() -> None:
    site = Site()
    site.send("n0", site.held(KEYS[1], 0, site.wall, site.wall + SECOND))
    site.run(1000)
    site.jobs.forget_ended(site.now, site.wall)
    assert KEYS[1] in site.jobs.ledger.jobs  # it is not stored
    site.jobs.absorb([], [KEYS[1]])
    site.jobs.written(site.jobs.due(site.now, site.wall), site.now, site.wall)
    site.jobs.forget_ended(site.now + LOOK_SECONDS, site.wall)
    assert KEYS[1] in site.jobs.ledger.jobs, "its energy is not counted"
    for search in range(MOST_TRIES):
        for window in site.jobs.energy.due(site.wall + search * 3600 * SECOND):
            site.jobs.energy.note(window, {})
    site.jobs.written(site.jobs.due(site.now, site.wall), site.now, site.wall)
    site.jobs.forget_ended(site.now + 2 * LOOK_SECONDS, site.wall)
    assert not site.jobs.ledger.jobs
    assert site.jobs.meter.holders(site.uuid(0)) == ()


def test_changes_of_many_jobs_are_written_together() -> None:
    few, many = WriteTimes(), WriteTimes()
    assert [few.begin(MANY, now) for now in (100, 105, 110)] == [True] * 3
    found = [many.begin(MANY + 1, now) for now in (100, 105, 155, 160, 165)]
    assert found == [True, False, False, True, False]


def test_a_fault_of_a_job_ends_with_the_job() -> None:
    """A part that nothing tries any more would be named for ten minutes; a node's is tried again."""
    site = Site()
    for part in ("n9/slurm 7", "n0"):
        site.jobs.aside.fail(part, RuntimeError("mistaken"), site.now)
    site.run(5)
    assert "n9/slurm 7" not in site.jobs.aside
    assert "n0" in site.jobs.aside
