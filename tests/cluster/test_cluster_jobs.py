"""Jobs over several members: any of them answers as one aggregator would that had all their nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import msgspec
import pytest

from aggregator.cluster.cluster_jobs import KEPT_SECONDS
from aggregator.cluster.cluster_view import ClusterView
from aggregator.cluster.groups import GROUPS, OLDEST_PROTOCOL, PROTOCOL, GroupEntry, MemberBeat
from aggregator.cluster.holder import GroupHolder
from aggregator.cluster.member import ClusterMember
from aggregator.cluster.memory import MemoryServers
from aggregator.cluster.port import BucketEntry
from aggregator.http.config import HttpConfig
from aggregator.impairments import Impairments
from aggregator.jobs.joined import joined_job
from aggregator.jobs.months import joined_account, month_account
from aggregator.jobs.service import JobService
from aggregator.jobs.stored import JobQuery, WholeJobs
from aggregator.jobs.usage import SUMS, GpuAccount
from aggregator.settings.members import MembersConfig
from api.decoding import decode
from api.device import GpuPageReply
from api.jobs import JobPhase, JobReply, JobsReply
from api.use import UseReply
from power.report.months import month_at
from telemetry.wire.jobs import Job, JobKey, NodeJobs
from telemetry.wire.topics import shard_of
from tests.aggregator.fake_view import FakeView, inventory
from tests.aggregator.http_client import add_token, bearer, door
from tests.aggregator.test_jobs_usage import KEYS, SECOND, Site
from tests.kit.works import running

ACROSS, ALONE, OVER = KEYS[1], KEYS[2], KEYS[3]
"""A job over the nodes of both members, one on those of the first, and one that has ended."""


def site_of(*nodes: str) -> Site:
    """Return nodes with two GPUs each, and the jobs of an aggregator that holds them."""
    site = Site(nodes=0)
    for name in nodes:
        site.fleet.place(inventory(name, gpus=2, links=0))
        node = site.fleet.nodes[name]
        node.online, node.session = True, 7  # that of its lists
    site.__post_init__()
    return site


@dataclass
class Members:
    """Two members that hold a node each, and one aggregator that holds both, with the same jobs."""

    nodes: dict[str, str] = field(default_factory=lambda: {"a": "n0", "b": "n1"})
    sites: dict[str, Site] = field(default_factory=dict)
    own: dict[str, FakeView] = field(default_factory=dict)
    views: dict[str, ClusterView] = field(default_factory=dict)
    members: dict[str, ClusterMember] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.one = site_of(*self.nodes.values())
        servers = MemoryServers(lambda: self.one.now, {})
        for name, node in self.nodes.items():
            site = self.sites[name] = site_of(node)
            view = self.own[name] = FakeView()
            view.fleet, view.jobs = site.fleet, site.jobs
            config = MembersConfig(nats=("nats://x:4222",), member=name, dead_after_seconds=1e9)
            member = self.members[name] = ClusterMember(
                config, servers.connect(name), cast(GroupHolder, None), Impairments(), clock=lambda: self.one.now
            )
            self.views[name] = ClusterView(view, member)
        self.hold({shard_of(node): name for name, node in self.nodes.items()})

    def hold(self, owners: dict[str, str]) -> None:
        """Let groups be at members, all others at the first one."""
        entries = {
            group: BucketEntry(msgspec.json.encode(GroupEntry(owners.get(group, "a"), "p", 1)), 1) for group in GROUPS
        }
        beat = MemberBeat("p", protocol=PROTOCOL, oldest=OLDEST_PROTOCOL)
        beats = {name: BucketEntry(msgspec.json.encode(beat), 1) for name in self.nodes}
        for name, member in self.members.items():
            member.planner.observe(beats, entries, self.one.now)
            member._received = {group for group in GROUPS if owners.get(group, "a") == name}

    @property
    def begin(self) -> int:
        """The present, ns since 1970."""
        return self.one.wall

    def send(self, node: str, *held: tuple[JobKey, int, int, int]) -> None:
        """Send a node's list of jobs, by number of GPU, begin and end, to its member and to the one aggregator."""
        member = next(name for name, its in self.nodes.items() if its == node)
        first = list(self.nodes.values()).index(node) * 2
        for site, at in ((self.one, first), (self.sites[member], 0)):
            site.send(node, *(site.held(key, at + gpu, begin, end) for key, gpu, begin, end in held))

    def run(self, seconds: float) -> None:
        """Let the time go on."""
        for site in (self.one, *self.sites.values()):
            site.run(seconds)
        for view in self.own.values():
            view.monotonic = self.one.now

    @asynccontextmanager
    async def answering(self, *names: str) -> AsyncIterator[None]:
        """Let members answer while the block runs."""
        async with running(*(self.views[name].run() for name in names)):
            for view in self.views.values():
                await view.refresh()
            yield


@pytest.fixture
def busy() -> Members:
    """Members with a job over both of them, one at the first, and one that has ended at the second and runs at the
    first."""
    both = Members()
    begin = both.begin
    for at, site in ((0, both.one), (0, both.sites["a"])):
        site.use[at], site.watts[at] = 0.9, 300.0
    for at, site in ((2, both.one), (0, both.sites["b"])):
        site.use[at], site.watts[at] = 0.3, 200.0
    both.one.price = both.sites["a"].price = both.sites["b"].price = 0.25
    both.send("n0", (ACROSS, 0, begin, 0), (OVER, 1, begin, 0))
    both.send("n1", (ACROSS, 0, begin + 5 * SECOND, 0), (OVER, 1, begin, begin + 60 * SECOND))
    both.run(120)
    return both


def flat(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield each value of a structure with its place."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from flat(each, f"{path}.{key}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from flat(each, f"{path}[{number}]")
    else:
        yield path, value


def same(found: object, wanted: object) -> None:
    """Compare two answers, numbers but for their rounding."""
    left, right = (dict(flat(msgspec.to_builtins(each))) for each in (found, wanted))
    assert left.keys() == right.keys()
    for path, value in right.items():
        near = pytest.approx(value, rel=1e-6, abs=2e-3) if isinstance(value, float) else value
        assert left[path] == near, path


async def test_a_job_over_two_members_is_the_one_that_a_single_aggregator_has(busy: Members) -> None:
    """Its allocations, sums, peaks and quantiles, whichever member is asked."""
    for name in ("a", "b"):
        async with busy.answering("a", "b"):
            for key in (ACROSS, OVER):
                found = await busy.views[name].whole_jobs([key])
                assert found.missing == []
                wanted = busy.one.jobs.stored(key, busy.one.wall)
                mine = found.jobs[key]
                assert sorted(mine.record.allocations, key=lambda row: row.node) == sorted(
                    wanted.record.allocations, key=lambda row: row.node
                )
                same(mine.row, wanted.row)
                same(mine.summary, wanted.summary)


async def test_the_list_of_jobs_is_that_of_a_single_aggregator(busy: Members) -> None:
    """A job that has ended on one member's nodes and runs on the other's is one that runs."""
    async with busy.answering("b"):
        for wanted in (
            JobQuery(),
            JobQuery(running=True),
            JobQuery(running=False),
            JobQuery(node="n1"),
            JobQuery(user="ada"),
            JobQuery(user="bob"),
            JobQuery(id="3"),
            JobQuery(limit=1),
            JobQuery(since=busy.begin + SECOND),
            JobQuery(until=busy.begin - 119 * SECOND),
        ):
            found = await busy.views["a"].find_jobs(wanted)
            rows = busy.one.jobs.matching(wanted, busy.one.wall)
            assert not found.missing
            assert {row.id for row in found.rows} == {row.id for row in rows}, wanted
            same(sorted(found.rows, key=lambda row: row.id), sorted(rows, key=lambda row: row.id))
        assert {row.id for row in (await busy.views["a"].find_jobs(JobQuery(running=True))).rows} == {"1", "3"}


async def test_a_list_that_is_asked_for_again_and_again_costs_no_parts(busy: Members) -> None:
    """Until they are some seconds old."""
    asked: list[int] = []
    own = busy.own["b"]
    whole = own.whole_jobs

    async def counted(keys: Sequence[JobKey]) -> WholeJobs:
        asked.append(len(keys))
        return await whole(keys)

    own.whole_jobs = counted  # type: ignore[method-assign]
    async with busy.answering("b"):
        for number in range(3):
            rows = (await busy.views["a"].find_jobs(JobQuery(since=number))).rows
            assert {row.id: row.nodes for row in rows} == {name: ["n0", "n1"] for name in "13"}
        assert asked == [2]
        busy.run(KEPT_SECONDS)
        before = {row.id: row.summary for row in rows}
        later = (await busy.views["a"].find_jobs(JobQuery())).rows
        assert asked == [2, 2]
        for row in later:
            then = before[row.id]
            assert row.summary is not None
            assert then is not None
            assert row.summary.gpu_hours > then.gpu_hours


async def test_a_part_in_the_store_of_another_member_counts(busy: Members) -> None:
    """It has left that member's memory, since all of it there is over."""
    site, view = busy.sites["b"], busy.own["b"]
    view.memory.write_jobs([site.jobs.stored(OVER, site.wall)])
    wanted = busy.one.jobs.stored(OVER, busy.one.wall)
    site.jobs.ledger.drop(OVER)
    async with busy.answering("b"):
        found = (await busy.views["a"].whole_jobs([OVER])).jobs[OVER]
        same(found.summary, wanted.summary)
        (row,) = (await busy.views["a"].find_jobs(JobQuery(id="3"))).rows
        assert (row.phase, row.nodes) == (JobPhase.RUNNING, ["n0", "n1"])


async def test_a_member_that_does_not_answer_is_named_and_its_part_is_not_made_up(busy: Members) -> None:
    async with busy.answering(), door(busy.views["a"]) as client:
        reply = decode((await client.text("/api/v1/jobs"))[1].encode(), JobsReply)
        assert reply.missing == ["b"]
        assert {row.id: row.nodes for row in reply.jobs} == {"1": ["n0"], "3": ["n0"]}
        one = decode((await client.text("/api/v1/jobs/1"))[1].encode(), JobReply)
        assert (one.missing, one.job.nodes) == (["b"], ["n0"])
        use = decode((await client.text("/api/v1/use"))[1].encode(), UseReply)
        assert use.missing == ["b"]


async def test_pages_and_prometheus_of_any_member_name_the_holders_of_every_gpu(busy: Members) -> None:
    """A member that does not know the node by itself has its list with the copy of the present."""
    async with busy.answering("b"), door(busy.views["a"]) as client:
        page = decode((await client.text("/api/v1/gpus/GPU-n1-0"))[1].encode(), GpuPageReply)
        assert [(each.job, each.user) for each in page.holders or ()] == [("1", "ada")]
        metrics = (await client.text("/metrics/node/n1"))[1]
        (info,) = [line for line in metrics.splitlines() if line.startswith("kilowatch_gpu_job_info{")]
        assert 'job_id="1"' in info
        assert "GPU-n1-0" in info
        one = decode((await client.text("/api/v1/jobs/1"))[1].encode(), JobReply)
        assert one.job.power_watts == pytest.approx(500.0)
        assert one.indices == {"GPU-n0-0": 0, "GPU-n1-0": 0}
        status, text, _ = await client.text("/jobs/1", headers=client.bearer)
        assert status == 200
        assert "GPU-n1-0" in text


async def test_only_a_list_that_is_new_travels_again(busy: Members) -> None:
    view, copy = busy.views["b"], busy.views["a"]._copy
    async with busy.answering("b"):
        assert copy.lists.keys() == {"n0", "n1"}
        asked = copy.question("b")
        assert not view._part(asked).jobs
        busy.sites["b"].now = busy.own["b"].monotonic = busy.one.now = busy.one.now + 2.0
        busy.send("n1", (ALONE, 0, busy.begin, 0))
        assert view._part(asked).jobs.keys() == {"n1"}
        busy.own["a"].monotonic = busy.one.now
        await busy.views["a"].refresh()
        assert [job.key for job in copy.lists["n1"].jobs] == [ALONE]


async def test_the_use_of_a_month_is_the_sum_over_all_members(busy: Members) -> None:
    """Also of GPUs that nobody held."""
    single = FakeView()
    single.fleet, single.jobs, single.monotonic = busy.one.fleet, busy.one.jobs, busy.one.now
    month = month_at(busy.one.wall / 1e9, single.electrical.site.zone).name
    for site in (busy.one, *busy.sites.values()):
        free = site.jobs.meter.unheld
        for key in list(free):
            free[type(key)(month, key.reported)] = free.pop(key)
    asked = await busy.views["a"].find_jobs(JobQuery(sums=True))
    assert asked.missing == ["b"], "nothing was heard of it yet"
    for by in ("user", "job"):
        async with busy.answering("b"), door(busy.views["a"]) as client, door(single) as other:
            path = f"/api/v1/use?by={by}&month={month}"
            found, wanted = [decode((await each.text(path))[1].encode(), UseReply) for each in (client, other)]
        assert wanted.unheld is not None
        assert wanted.unheld.energy_joules
        same(found, wanted)


async def test_sums_of_a_job_need_no_parts_where_its_rows_have_them(busy: Members) -> None:
    """A month has many jobs of thousands of GPUs: only their rows travel."""
    own = busy.own["b"]

    async def refused(keys: Sequence[JobKey]) -> WholeJobs:
        raise AssertionError(f"asked for the whole of {keys}")

    async with busy.answering("b"):
        wanted = {row.id: row for row in (await busy.views["a"].find_jobs(JobQuery())).rows}
        own.whole_jobs = refused  # type: ignore[method-assign]
        busy.views["a"].jobs._kept.clear()
        found = (await busy.views["a"].find_jobs(JobQuery(sums=True))).rows
    assert {row.id for row in found} == wanted.keys() == {"1", "3"}
    for row in found:
        other = wanted[row.id]
        assert (row.begin, row.end, row.nodes, row.gpus) == (other.begin, other.end, other.nodes, other.gpus)
        assert row.summary is not None
        assert other.summary is not None
        for name in (
            "gpu_hours",
            "coverage",
            "utilization_ratio",
            "energy_joules",
            "energy_coverage",
            "wall_joules",
            "wall_coverage",
            "cost",
            "idle_gpu_hours",
            "idle_coverage",
            "idle_cost",
            "gpus_idle",
            "memory_peak_bytes",
        ):
            assert getattr(row.summary, name) == pytest.approx(getattr(other.summary, name)), name
        assert row.summary.utilization_p10_ratio is None


async def test_the_token_of_a_user_sees_no_job_that_is_in_part_another_s(busy: Members, tmp_path: Path) -> None:
    """What a member says of its own part alone does not open the rest."""
    site = busy.sites["b"]
    message = site.jobs.lists["n1"]
    theirs = NodeJobs(
        session=7,
        version=99,
        at=site.wall,
        allocations=message.allocations,
        jobs=(Job(key=ACROSS, user="eve"), Job(key=OVER, user="ada")),
    )
    gpus = {gpu.uuid for gpu in site.fleet.nodes["n1"].inventory.gpus}
    site.jobs.receive("n1", msgspec.json.encode(theirs), gpus, site.wall)
    tokens = tmp_path / "tokens.json"
    ada, eve = (add_token(tokens, name, user=name) for name in ("ada", "eve"))
    config = HttpConfig(listen="127.0.0.1:0", tokens_file=tokens)
    async with busy.answering("b"), door(busy.views["a"], config) as client:
        for secret, ids in ((ada, {"3"}), (eve, set[str]())):
            status, body, _ = await client.text("/api/v1/jobs", headers=bearer(secret))
            assert status == 200
            reply = decode(body.encode(), JobsReply)
            assert {row.id for row in reply.jobs} == ids
            assert (await client.text("/api/v1/jobs/1", headers=bearer(secret)))[0] == 404
        seen = await client.text("/api/v1/jobs/3", headers=bearer(ada))
        assert decode(seen[1].encode(), JobReply).job.nodes == ["n0", "n1"]


async def test_a_job_whose_node_moves_goes_on_with_the_sums_of_both_members() -> None:
    """The member that had the node takes the job for ended unseen: it is one that runs."""
    both = Members()
    begin = both.begin
    both.one.watts[:] = both.sites["b"].watts[:] = 400.0
    both.send("n1", (ALONE, 0, begin, 0))
    both.run(100)
    old = both.sites["b"]
    old.jobs.remove("n1")
    old.fleet.remove("n1")
    new = both.sites["a"] = site_of("n1")
    new.now, new.watts[:], new.joules = old.now, 400.0, old.joules.copy()
    both.own["a"].fleet, both.own["a"].jobs = new.fleet, new.jobs
    both.nodes = {"a": "n1", "b": ""}
    both.hold({})
    new.send("n1", new.held(ALONE, 0, begin))
    for site in (both.one, new):
        site.run(100)
    for view in both.own.values():
        view.monotonic = both.one.now
    async with both.answering("a", "b"):
        for name in ("a", "b"):
            (row,) = (await both.views[name].find_jobs(JobQuery())).rows
            assert (row.phase, row.end, row.begin) == (JobPhase.RUNNING, None, begin)
            found = (await both.views[name].whole_jobs([ALONE])).jobs[ALONE]
            (only,) = found.record.allocations
            assert (only.begin, only.end, only.lost) == (begin, None, False)
            wanted = both.one.jobs.stored(ALONE, both.one.wall).summary
            assert found.summary.gpu_hours == pytest.approx(wanted.gpu_hours, abs=20 / 3600)
            assert found.summary.energy_joules == pytest.approx(wanted.energy_joules, rel=0.15)
            assert (found.summary.energy_joules or 0) <= (wanted.energy_joules or 0)


@pytest.mark.parametrize("restarted", [False, True])
def test_what_another_member_counted_is_not_counted_again_when_the_node_comes_back(restarted: bool) -> None:
    """The counter of the GPU has gone on meanwhile, and would give the energy of the time between."""
    site = site_of("n1")
    site.jobs = JobService(shares=True)
    site.watts[:] = 400.0
    begin = site.wall
    site.send("n1", site.held(ALONE, 0, begin))
    site.run(100)
    site.jobs.remove("n1")
    site.fleet.remove("n1")
    for _ in site.jobs.steps(site.fleet, site.now + 5, site.wall + 5 * SECOND):
        pass
    before = site.jobs.stored(ALONE, site.wall)
    assert (before.summary.energy_joules or 0) > 30_000
    if restarted:
        site.jobs = JobService(shares=True)
        site.jobs.restore([before], {})
    site.now += 1000.0
    site.joules += 400.0 * 1000.0
    site.fleet.place(inventory("n1", gpus=2, links=0))
    site.send("n1", site.held(ALONE, 0, begin))
    site.run(100)
    found = site.jobs.stored(ALONE, site.wall).summary
    assert 60_000 < (found.energy_joules or 0) <= 80_000
    assert found.energy_coverage is not None
    assert found.energy_coverage < 0.2, "most of the time was another one's to count"


def test_a_job_that_only_a_former_holder_still_takes_for_running_ended_unseen() -> None:
    """It was down when the job ended, and the member that has the node now does not list it."""
    both = Members()
    both.send("n1", (ALONE, 0, both.begin, 0))
    both.send("n0", (ACROSS, 0, both.begin, 0))
    both.run(60)
    part = both.sites["b"].jobs.stored(ALONE, both.begin)
    found = joined_job({"b": part}, lambda _: "a", both.begin)
    assert found.row.phase is JobPhase.LOST
    assert found.row.end is not None
    assert part.row.begin < found.row.end < both.begin
    assert joined_job({"b": part}, lambda _: "", both.begin) is part


def test_sums_at_the_edges_of_months_are_added() -> None:
    """One member had the GPU in two months, the next one from the second on."""
    sums = {name: float(number) for number, name in enumerate(SUMS, 1)}
    double = {name: 2 * value for name, value in sums.items()}

    def account(at: int, months: tuple[str, str]) -> GpuAccount:
        facts = {"node": "n", "gpu": "g", "at": at, "first": months[0], "month": months[1]}
        return msgspec.convert({**facts, **double, "edges": {months[1]: sums}}, GpuAccount)

    first, second = account(5, ("2026-10", "2026-11")), account(9, ("2026-11", "2026-12"))
    both = joined_account([first, second])
    assert (both.at, both.first, both.month) == (9, "2026-10", "2026-12")
    for month, after, factor in (("2026-10", "2026-11", 1), ("2026-11", "2026-12", 2), ("2026-12", "2027-01", 1)):
        counted = month_account(both, month, after)
        assert counted.joules == factor * sums["joules"], month
    older = msgspec.structs.replace(second, first="", edges={})
    assert joined_account([first, older]).first == "", "one of them does not know its months"
