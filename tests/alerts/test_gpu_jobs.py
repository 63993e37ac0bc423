"""Peers and labels follow the job of each GPU, not that of its node."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from alerts.engine.engine import RuleEngine
from alerts.engine.job_index import JobIndex, JobsByNode
from alerts.engine.row_index import RowIndex
from alerts.engine.rule_tests import example_steps, first_alert, play
from alerts.rules.gpu_jobs import GpuHolding
from alerts.rules.rule import Rule, load
from api.alerts import Alert, AlertState
from telemetry.devices import Gpu
from telemetry.fleet import Fleet, Node
from telemetry.metric import Table
from telemetry.text import duration
from telemetry.wire import border
from telemetry.wire.inventory import Inventory
from telemetry.wire.jobs import Allocation, AllocationKind, GpuProcess, Job, JobKey, JobSourceState, NodeJobs, with_node
from telemetry.wire.schema import GPU_FAST

OUTLIER = next(rule for rule in load() if rule.name == "straggler")
SLOW = next(rule for rule in load() if rule.name == "job_slow_gpu")
BY_ITS_FRAMES = msgspec.structs.replace(
    SLOW,
    when=msgspec.structs.replace(SLOW.when, of=SLOW.when.of[:2]),  # type: ignore[attr-defined]
)
"""The rule without its counter, which `Peers` does not read."""
SLURM = (JobSourceState(name="slurm-cgroup"),)
WALL = 1_790_000_000_000_000_000


def key(name: str, scheduler: str = "slurm") -> JobKey:
    return JobKey(scheduler, "alpha" if scheduler == "slurm" else "", name)


def place(fleet: Fleet, name: str, gpus: int = 8, others: str = "H100") -> Node:
    """Add a node; `others` is the model of its last three."""
    names = ["H100"] * (gpus - 3) + [others] * 3
    models = tuple(Gpu(uuid=f"{name}-{n}", index=n, name=names[n]) for n in range(gpus))
    node = fleet.place(Inventory(node=name, gpus=models))
    fleet.set_intervals(node, 5.0, 5.0)
    return node


def held(node: str, *names: str, **more: object) -> NodeJobs:
    """The list of a node whose GPUs these jobs have, in order; `-` is a free one."""
    keys = [None if name == "-" else key(name) for name in names]
    found = NodeJobs(
        session=1,
        at=WALL,
        jobs=tuple(Job(key=one, user=f"user-{one.id}", account="lab") for one in dict.fromkeys(keys) if one),
        allocations=tuple(
            Allocation(job=one, gpu=f"{node}-{n}", begin=WALL - 10**12) for n, one in enumerate(keys) if one
        ),
        sources=SLURM,
    )
    return msgspec.structs.replace(found, **more)


def index_of(fleet: Fleet, jobs: JobsByNode) -> JobIndex:
    rows, index = RowIndex(), JobIndex()
    index.newest = jobs
    rows.update(fleet)
    index.follow(fleet, rows, set())
    return index


class Peers:
    """Two nodes with an engine; a GPU of the first has a low clock."""

    def __init__(self, rule: Rule = OUTLIER, others: str = "H100") -> None:
        self.fleet = Fleet()
        self.nodes = [place(self.fleet, name, others=others) for name in "ab"]
        self.engine = RuleEngine([rule])
        self.clocks = {name: np.full(8, 1.9e9) for name in "ab"}
        self.watts = {name: np.full(8, 690.0) for name in "ab"}
        self.now = 1000.0

    def run(self, seconds: int, every: int = 20) -> list[Alert]:
        """The alerts that fire in the end. `every`: seconds between two readings, each of which is judged."""
        matrix = self.fleet.matrices[GPU_FAST]
        values = {"gpu_utilization_ratio": np.full(8, 1.0)}
        for _ in range(0, seconds, every):
            self.now += every
            for node in self.nodes:
                name = node.inventory.node
                gauges = np.zeros((8, len(matrix.block.gauges)), np.float32)
                of = {**values, "gpu_sm_clock_hertz": self.clocks[name], "gpu_power_watts": self.watts[name]}
                for metric, column in of.items():
                    gauges[:, matrix.columns[metric]] = column
                counters = np.zeros((8, len(matrix.block.counters)))
                self.fleet.store(GPU_FAST, node.rows[Table.GPU], gauges, counters, self.now)
                node.seen = self.now
            self.engine.evaluate(self.fleet, self.now, WALL + int(self.now * 1e9))
        return [one for one in self.engine.alerts() if one.state is AlertState.FIRING]


def test_a_gpu_is_compared_with_those_of_its_job_on_other_nodes_and_not_with_its_neighbours() -> None:
    peers = Peers()
    peers.engine.jobs.put("a", held("a", *"11222222"))
    peers.engine.jobs.put("b", held("b", *"11333333"))
    peers.clocks["a"][:2] = peers.clocks["b"][1] = 1.5e9  # job 1 is of slow kernels but one
    peers.watts["a"][:2] = peers.watts["b"][1] = 500.0
    assert peers.run(1600) == []  # among its node's GPUs it would be an outlier
    peers.clocks["a"][7], peers.watts["a"][7] = 1.5e9, 500.0
    [alert] = peers.run(1600)
    assert (alert.node, alert.gpu) == ("a", "a-7")
    assert alert.labels.items() >= {"job": "2", "user": "user-2", "account": "lab"}.items()


def test_a_gpu_that_is_read_at_another_moment_of_each_step_is_not_slow() -> None:
    """A job exchanges gradients for two of ten seconds; one GPU is read a second after the others from some time on."""
    peers = Peers(SLOW)
    for name in "ab":
        peers.engine.jobs.put(name, held(name, *"11111111"))
    fired = []
    for second in range(1500):
        late = np.arange(8) == 7
        for name, moment in (("a", second), ("b", second - late * (second > 600))):
            peers.watts[name] = np.where(moment % np.full(8, 10) >= 8, 380.0, 690.0)
        fired += [f"{second}: {one.summary}" for one in peers.run(1, every=1)]
    assert fired == []


@pytest.mark.parametrize("rule", [BY_ITS_FRAMES, OUTLIER], ids=lambda rule: rule.name)
def test_the_numbers_of_a_slow_gpu_stay_between_two_evaluations_and_at_its_end(rule: Rule) -> None:
    """The rules compare every five seconds; the alert is worded when it is shown."""
    peers = Peers(rule)
    for node in "ab":
        peers.engine.jobs.put(node, held(node, *"11111111"))
    peers.run(600)
    peers.clocks["a"][7], peers.watts["a"][7] = 1.2e9, 400.0
    assert peers.run(1600)
    said = {one.summary for _ in range(8) for one in peers.run(1, every=1)}
    peers.clocks["a"][7], peers.watts["a"][7] = 1.9e9, 690.0
    assert peers.run(1600) == []
    said |= {one.summary for one in peers.engine.alerts()}
    assert said
    assert [text for text in said if "1,200 MHz where 1," not in text] == []


@pytest.mark.parametrize("known", [True, False], ids=["one job", "no job known"])
def test_gpus_of_two_makers_are_no_peers_in_one_node_and_one_job(known: bool) -> None:
    """What is slow for an H100 is usual for an MI300X, and each is compared with its own kind."""
    peers = Peers(others="AMD Instinct MI300X")
    if known:
        for node in "ab":
            peers.engine.jobs.put(node, held(node, *"11111111"))
    for node in "ab":
        peers.clocks[node][5:], peers.watts[node][5:] = 1.3e9, 480.0
    assert peers.run(1600) == []
    peers.clocks["a"][2], peers.watts["a"][2] = 1.3e9, 480.0  # as an MI300X; it is an H100
    if known:  # three in a node are too few to compare
        peers.clocks["b"][6], peers.watts["b"][6] = 1.0e9, 350.0
    wanted = {"a-2", "b-6"} if known else {"a-2"}
    assert {one.gpu for one in peers.run(1600)} == wanted

    alike = Peers()  # the same readings of GPUs of one model
    for node in "ab":
        alike.engine.jobs.put(node, held(node, *"11111111"))
        alike.clocks[node][5:], alike.watts[node][5:] = 1.3e9, 480.0
    assert {one.gpu for one in alike.run(1600)} == {f"{node}-{n}" for node in "ab" for n in (5, 6, 7)}


def test_where_no_job_is_known_the_node_is_the_group_and_its_label_still_works() -> None:
    peers = Peers()
    peers.clocks["a"][7], peers.watts["a"][7] = 1.5e9, 500.0
    [alert] = peers.run(1600)
    assert alert.gpu == "a-7"
    assert "user" not in alert.labels

    labelled = Peers()
    labelled.engine.texts.node_labels = {"a": {"job": "x"}, "b": {"job": "x"}}
    labelled.clocks["a"][:], labelled.watts["a"][:] = 1.5e9, 500.0
    labelled.clocks["b"][0], labelled.watts["b"][0] = 1.5e9, 500.0
    assert labelled.run(1600) == []  # nine slow ones of sixteen are the median
    labelled.clocks["a"][:7], labelled.watts["a"][:7] = 1.9e9, 690.0
    assert {one.gpu for one in labelled.run(1600)} == {"a-7", "b-0"}


def test_a_shared_gpu_and_one_in_instances_have_no_peers() -> None:
    peers = Peers()
    shared = held("a", *"11111111")
    two = Allocation(job=key("2"), gpu="a-7", begin=WALL)
    peers.engine.jobs.put("a", msgspec.structs.replace(shared, allocations=(*shared.allocations, two)))
    mig = tuple(
        msgspec.structs.replace(one, instance=3) if one.gpu == "b-7" else one
        for one in held("b", *"11111111").allocations
    )
    peers.engine.jobs.put("b", held("b", *"11111111", allocations=mig))
    for name in "ab":
        peers.clocks[name][7], peers.watts[name][7] = 1.5e9, 500.0
    assert peers.run(1600) == []
    peers.engine.jobs.put("a", held("a", *"11111111"))
    [alert] = peers.run(1600)
    assert alert.gpu == "a-7"


def test_an_alert_keeps_the_job_that_it_hit_when_that_job_has_ended() -> None:
    peers = Peers()
    peers.engine.jobs.put("a", held("a", *"11111111"))
    peers.clocks["a"][7], peers.watts["a"][7] = 1.5e9, 500.0
    [alert] = peers.run(1600)
    assert alert.labels["job"] == "1"
    peers.engine.jobs.put("a", held("a", *"22222222"))
    [alert] = peers.run(40)
    assert alert.labels["job"] == "1"


@pytest.mark.parametrize(
    ("scheduler", "same"), [("slurm", True), ("kubernetes", True), ("user", False), ("systemd", False)]
)
def test_ids_that_mean_something_on_one_node_only_join_no_gpus_of_two(scheduler: str, same: bool) -> None:
    fleet, jobs = Fleet(), JobsByNode()
    for name in "ab":
        place(fleet, name, 1)
        one = key("alice", scheduler)
        newest = held(name, allocations=(Allocation(job=one, gpu=f"{name}-0"),))
        jobs.put(name, with_node(newest, name))
    rows = index_of(fleet, jobs).rows
    assert (rows.job[0] == rows.job[1]) == same


def test_what_a_scheduler_gave_goes_before_what_processes_show() -> None:
    fleet, jobs = Fleet(), JobsByNode()
    place(fleet, "a", 3)
    user = key("bob", "user")
    used = tuple(Allocation(job=user, gpu=gpu, kind=AllocationKind.USED) for gpu in ("a-0", "a-1"))
    jobs.put("a", held("a", "1", "-", "-", allocations=(Allocation(job=key("1"), gpu="a-0"), *used)))
    index = index_of(fleet, jobs)
    assert index.rows.holding.tolist() == [GpuHolding.ONE_JOB, GpuHolding.ONE_JOB, GpuHolding.FREE]
    assert index.rows.allocated.tolist() == [True, False, False]
    assert index.labels("a", "a-0")["job"] == "1"
    assert index.labels("a", "a-1") == {"user": "bob"}
    assert index.labels("a", None) == {"job": "1", "user": "user-1,bob", "account": "lab"}


def test_nothing_is_known_of_a_node_that_says_nothing_or_has_left() -> None:
    fleet, jobs = Fleet(), JobsByNode()
    place(fleet, "a", 1)
    rows, index = RowIndex(), JobIndex()
    index.newest = jobs
    rows.update(fleet)
    index.follow(fleet, rows, set())
    assert index.rows.holding[0] == GpuHolding.UNKNOWN
    jobs.put("a", held("a", "1"))
    index.follow(fleet, rows, set())
    assert index.rows.holding[0] == GpuHolding.ONE_JOB
    jobs.put("a", held("a", "-", sources=(JobSourceState(name="process", state="no permission"),)))
    index.follow(fleet, rows, set())
    assert index.rows.holding[0] == GpuHolding.UNKNOWN
    jobs.put("a", held("a", "-"))
    index.follow(fleet, rows, set())
    assert index.rows.holding[0] == GpuHolding.FREE
    jobs.put("a", held("a", "1"))
    fleet.remove("a")
    rows.update(fleet)
    index.follow(fleet, rows, set())
    assert index.rows.holding[0] == GpuHolding.UNKNOWN
    place(fleet, "a", 1)
    rows.update(fleet)
    index.follow(fleet, rows, set())
    assert index.labels("a", "a-0")["job"] == "1"
    jobs.remove("a")
    index.follow(fleet, rows, set())
    assert index.labels("a", "a-0") == {}


def test_the_numbers_of_ended_jobs_are_used_again() -> None:
    fleet, jobs = Fleet(), JobsByNode()
    place(fleet, "a", 2)
    rows, index = RowIndex(), JobIndex()
    index.newest = jobs
    rows.update(fleet)
    for number in range(5000):
        jobs.put("a", held("a", "keeps", str(number)))
        index.follow(fleet, rows, set())
    assert index.rows.count < 1100
    assert index.rows.job[0] == 1
    assert len(index.rows.jobs) == 2


def process(**fields: object) -> GpuProcess:
    base = GpuProcess(gpu="a-0", pid=77, user="mallory", name="python")
    return msgspec.structs.replace(base, **fields)


ENDED = Allocation(job=key("0"), gpu="a-0", end=WALL - 10**9)


@pytest.mark.parametrize(
    ("changes", "outside"),
    [
        ({"processes": ()}, 0),
        ({"processes": (process(job=key("1")),)}, 0),
        ({"processes": (process(),)}, 1),
        ({"processes": (process(user="user-1"),)}, 0),
        ({"processes": (process(user="user-1", job=key("0")),)}, 1),
        ({"processes": (process(hidden="no permission", user=""),)}, -1),
        ({"processes": (process(hidden="no permission"), process(pid=78))}, 1),
        ({"processes": (process(name="nv-hostengine"),)}, 0),
        ({"processes": (process(type="mps", name="nvidia-cuda-mps-server"),)}, 0),
        ({"processes": (process(type="graphics", name="game"),)}, 0),
        ({"processes": (process(job=key("1")),), "left_out": 3}, -1),
        ({"processes": (process(),), "sources": (JobSourceState(name="process"),)}, -1),
        ({"processes": (process(),), "sources": (JobSourceState(name="slurm-cgroup", state="failing"),)}, -1),
    ],
)
def test_a_process_outside_any_allocation_is_found_where_a_scheduler_can_be_asked(
    changes: dict[str, object], outside: int
) -> None:
    fleet, jobs = Fleet(), JobsByNode()
    place(fleet, "a", 1)
    message = held("a", "1")
    message = msgspec.structs.replace(message, allocations=(*message.allocations, ENDED))
    jobs.put("a", msgspec.structs.replace(message, **changes))
    rows = index_of(fleet, jobs).rows
    assert rows.outside[0] == outside
    assert (0 in rows.outsiders) == (outside == 1)


@pytest.mark.parametrize("name", ['my"app', "my\\app", "my\tapp", "x" * 2000])
def test_a_process_of_its_gpus_job_is_inside_whatever_it_is_called(name: str) -> None:
    """A quotation mark in the name of one made every process of its node one outside of any allocation."""
    fleet, jobs = Fleet(), JobsByNode()
    place(fleet, "a", 8)
    every = tuple(process(gpu=f"a-{n}", pid=n + 1, job=key("1"), name=name if n == 0 else "python") for n in range(8))
    message = held("a", *["1"] * 8, processes=every)
    jobs.put("a", border.decode_jobs(msgspec.json.encode(message)))
    assert index_of(fleet, jobs).rows.outside[:8].tolist() == [0] * 8


START = WALL + 1000 * 10**9
"""The first second of `Peers`, as a wall clock has it."""


@pytest.mark.parametrize(
    ("jobs", "changes", "seconds"),
    [
        ("-", {"user": "root"}, 900),
        ("-", {"name": "nvvs"}, 0),  # whoever can choose a name could choose this one
        ("-", {"user": "root", "job": key("", "systemd")}, 900),
        ("-", {}, 0),
        ("-", {"user": "root", "job": key("0")}, 0),  # left over from a job
        ("-", {"user": "root", "started": 0}, 0),
        ("1", {"user": "root"}, 0),  # beside somebody's job
    ],
)
def test_a_diagnosis_between_two_jobs_has_a_quarter_of_an_hour(
    jobs: str, changes: dict[str, object], seconds: int
) -> None:
    rule = next(rule for rule in load() if rule.name == "process_outside")
    peers = Peers(rule)
    listed = held("a", jobs, *"-------")
    stray = process(**{"started": START, **changes})
    peers.engine.jobs.put(
        "a", msgspec.structs.replace(listed, allocations=(*listed.allocations, ENDED), processes=(stray,))
    )
    fires = next(at for at in range(0, 1200, 20) if peers.run(20))
    assert abs(fires - (seconds + rule.hold)) <= 40


@pytest.mark.parametrize(("rule", "seconds"), [("job_stalled", 600), ("job_deadlocked", 1200)])
def test_a_job_stands_still_since_its_pause_began(rule: str, seconds: int) -> None:
    """The pause is judged when it has outlasted those of the job, which is no begin."""
    found = next(one for one in load() if one.name == rule)
    example = found.example[0]
    fired = play(found, example).index("F")
    alert = first_alert(found, node="a", gpu="a-0", row="", facts={})
    assert alert.since == example_steps(found, example)[fired].wall - seconds * 10**9
    assert alert.value_text == duration(seconds)


def test_one_of_two_processes_outside_is_no_diagnosis() -> None:
    fleet, jobs = Fleet(), JobsByNode()
    place(fleet, "a", 1)
    both = (process(user="root", started=WALL), process(pid=78))
    jobs.put("a", held("a", "-", processes=both))
    rows = index_of(fleet, jobs).rows
    assert rows.outside_from[0] == 0
    assert "pid 78" in rows.outsiders[0].message


def test_what_is_left_over_names_the_job_that_has_ended() -> None:
    fleet, jobs = Fleet(), JobsByNode()
    place(fleet, "a", 1)
    message = held("a", "-", processes=(process(job=key("0")),), allocations=(ENDED,))
    jobs.put("a", message)
    event = index_of(fleet, jobs).rows.outsiders[0]
    assert event.message == "python (pid 77) of mallory, left over from job 0, which has ended"


@pytest.mark.parametrize(
    ("fields", "batch"),
    [
        ({}, True),
        ({"name": "bash"}, False),
        ({"queue": "interactive"}, False),
        ({"name": "jupyterhub"}, False),
        ({"owner": "Deployment/llm"}, False),
        ({"owner": "PyTorchJob/llm"}, True),
        ({"name": "dashed-lines"}, True),
        ({"state": "SUSPENDED"}, False),
        ({"state": "RUNNING"}, True),
    ],
)
def test_services_and_shells_are_told_from_jobs_that_compute(fields: dict[str, str], batch: bool) -> None:
    fleet, jobs = Fleet(), JobsByNode()
    place(fleet, "a", 1)
    message = held("a", "1")
    named = msgspec.structs.replace(message.jobs[0], **fields)
    jobs.put("a", msgspec.structs.replace(message, jobs=(named,)))
    assert index_of(fleet, jobs).rows.batch[0] == batch


@pytest.mark.parametrize(("step", "batch"), [("interactive", False), ("batch", True), ("0", True)])
def test_a_shell_of_salloc_is_no_job_that_computes_whatever_it_is_called(step: str, batch: bool) -> None:
    fleet, jobs = Fleet(), JobsByNode()
    place(fleet, "a", 1)
    message = held("a", "1")
    named = msgspec.structs.replace(message.jobs[0], name="train")
    used = msgspec.structs.replace(message.allocations[0], kind=AllocationKind.USED, step=step)
    jobs.put("a", msgspec.structs.replace(message, jobs=(named,), allocations=(*message.allocations, used)))
    rows = index_of(fleet, jobs).rows
    assert (rows.allocated[0], rows.batch[0]) == (True, batch)
