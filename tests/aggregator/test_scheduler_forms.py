"""What squeue, scontrol and sacct print, as jobs: recorded outputs, and the forms of other releases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aggregator.scheduler import sacct, scontrol, squeue
from aggregator.scheduler.listed import JobListing, asked_of, numbers_of
from api.jobs import JobAccount
from telemetry.wire.jobs import JobKey

RECORDED = Path(__file__).parents[2] / "../shared/data/slurm/recorded"
needs_recorded = pytest.mark.skipif(not RECORDED.is_dir(), reason="no ../shared/data/slurm")
SECOND = 10**9
AT = 1_795_336_600 * SECOND


def record(**more: Any) -> dict[str, Any]:
    """Return a job as Slurm 22.05 lists it."""
    return {
        "job_id": 7, "cluster": "lab", "restart_cnt": 0, "name": "train", "user_name": "ada", "account": "physics",
        "partition": "gpu", "job_state": "RUNNING", "submit_time": 1_795_336_000, "start_time": 1_795_336_010,
        "end_time": 1_795_339_610, "nodes": "n1", "node_count": 1, "tasks": 1, "gres_detail": ["gpu:h100:1(IDX:2)"],
        "tres_per_node": "gres:gpu:1", "array_job_id": 0, "array_task_id": None, "het_job_id": 0,
        "het_job_offset": 0, "exit_code": 0, "shared": None, **more,
    }  # fmt: skip


def listed(*records: dict[str, Any]) -> JobListing:
    """Read jobs as squeue prints them."""
    return squeue.listing_of(json.dumps({"errors": [], "jobs": records}).encode(), AT)


@needs_recorded
def test_jobs_over_two_nodes_have_the_gpus_of_each_node() -> None:
    listing = squeue.listing_of((RECORDED / "squeue-two-nodes-het.json").read_bytes(), AT)
    assert (listing.cluster, listing.problems) == ("loop", ())
    two, one, first, second = listing.jobs
    assert two.gpus == {"n1": (0, 1), "n2": (0, 1)}
    assert (two.job.name, two.job.user, two.job.queue, two.job.state) == ("two", "root", "gpu", "RUNNING")
    assert (two.job.nodes, two.job.gpus) == (2, 4), "two on each of two nodes"
    assert (two.job.time_limit, two.job.eligible) == (3600, two.job.submitted)
    assert (two.job.submitted, two.job.begin, two.job.end) == (1795336512 * SECOND, 1795336513 * SECOND, 0)
    assert (one.gpus, one.job.gpus) == ({"n2": (2,)}, 1)
    assert [each.job.owner for each in (first, second)] == ["Component/3+0", "Component/3+1"]
    assert [each.key for each in (first, second)] == [JobKey("slurm", "loop", "3"), JobKey("slurm", "loop", "4")]


@needs_recorded
@pytest.mark.parametrize("name", ["squeue-with-dbd.json", "squeue-no-dbd.json"])
def test_recorded_listings_of_one_node_are_read(name: str) -> None:
    listing = squeue.listing_of((RECORDED / name).read_bytes(), AT)
    assert listing.problems == ()
    assert {each.job.account for each in listing.jobs} == ({"physics"} if name == "squeue-with-dbd.json" else {""})
    assert listing.jobs[0].gpus == {"vm": (0, 1)}
    assert {each.job.time_limit for each in listing.jobs} == {3600}


@needs_recorded
def test_scontrol_says_of_the_same_cluster_what_squeue_would() -> None:
    """Times are local there, where no SLURM_TIME_FORMAT asks for seconds: then they are not known."""
    text = (RECORDED / "scontrol-show-job-d.txt").read_text()
    listing = scontrol.listing_of(text, "loop", AT)
    assert listing.problems == ()
    first = listing.jobs[0]
    assert (first.job.name, first.job.user, first.job.account, first.gpus) == ("train", "root", "", {"vm": (0, 1)})
    assert (first.job.gpus, first.job.begin, first.job.time_limit) == (2, 0, 3600)
    assert listing.jobs[1].job.owner == "Array/2_0"


def test_the_form_of_later_releases_is_read_too() -> None:
    """Numbers that may be unset or infinite, states as lists with flags, exit codes as objects."""

    def number(value: int, **more: bool) -> dict[str, Any]:
        return {"set": True, "infinite": False, "number": value, **more}

    (later,) = listed(
        record(
            job_state=["RUNNING", "COMPLETING"],
            start_time=number(1_795_336_010),
            submit_time=number(1_795_336_000),
            array_job_id=number(6),
            array_task_id=number(0),
            het_job_id=number(0),
            node_count=number(1),
            restart_cnt=2,
            tasks=number(1),
            shared=["none"],
            exit_code={"return_code": number(3), "signal": {"id": number(0)}},
        )
    ).jobs
    assert (later.key.restart, later.job.state, later.holds, later.exclusive) == (2, "COMPLETING", True, True)
    assert (later.job.owner, later.job.begin, later.job.exit_code) == ("Array/6_0", 1_795_336_010 * SECOND, None)
    (over,) = listed(
        record(
            job_state=["FAILED"],
            gres_detail=[],
            end_time=number(1_795_336_020),
            exit_code={"return_code": number(3), "signal": {"id": number(0, set=False)}},
        )
    ).jobs
    assert (over.holds, over.job.end, over.job.exit_code) == (False, 1_795_336_020 * SECOND, 3)


@pytest.mark.parametrize(
    ("its", "limit"),
    [
        ({"time_limit": 90}, 5400),
        ({"time_limit": {"set": True, "infinite": False, "number": 90}}, 5400),
        ({"time_limit": None}, "unlimited"),
        ({"time_limit": {"set": False, "infinite": True, "number": 0}}, "unlimited"),
        ({"time_limit": 0xFFFF_FFFF}, "unlimited"),
        ({"time_limit": 0xFFFF_FFFE}, None),
        ({"time_limit": {"set": False, "infinite": False, "number": 0}}, None),
        ({}, None),
        ({"time_limit": None, "job_state": "PENDING", "nodes": "", "gres_detail": []}, None),
    ],
)
def test_a_limit_that_is_not_known_is_not_no_limit(its: dict[str, Any], limit: int | str | None) -> None:
    """Slurm 22.05 writes null for both; a job that has begun has the limit of its partition where it asked for none."""
    (job,) = listed(record(**its)).jobs
    assert job.job.time_limit == limit


@pytest.mark.parametrize(
    ("word", "limit"),
    [("01:30:00", 5400), ("7-00:00:30", 604_830), ("UNLIMITED", "unlimited"), ("Partition_Limit", None)],
)
def test_scontrol_writes_a_limit_as_days_and_time(word: str, limit: int | str | None) -> None:
    block = (
        "JobId=7 JobName=x\n   UserId=eve(1001) GroupId=eve(1001) MCS_label=N/A\n   Account=a Restarts=0 ExitCode=0:0\n"
        f"   JobState=RUNNING Reason=None\n   RunTime=00:00:07 TimeLimit={word} TimeMin=N/A\n   SubmitTime=1 EligibleTime=2 "
        "StartTime=3 EndTime=Unknown\n   Partition=gpu NodeList=n1\n   NumNodes=1 OverSubscribe=OK\n   Command=/x\n"
    )
    (job,) = scontrol.listing_of(block, "lab", AT).jobs
    assert (job.job.time_limit, job.job.submitted, job.job.eligible) == (limit, SECOND, 2 * SECOND)


@pytest.mark.parametrize(
    ("its", "holds", "code", "begun"),
    [
        ({"job_state": "PENDING", "nodes": "", "gres_detail": []}, False, None, False),
        ({"job_state": "SUSPENDED"}, True, None, True),
        ({"job_state": "COMPLETING"}, True, None, True),
        ({"job_state": "FAILED", "exit_code": 768, "gres_detail": []}, False, 3, True),
        ({"job_state": "CANCELLED", "exit_code": 15, "gres_detail": []}, False, -15, True),
        ({"job_state": "COMPLETED", "gres_detail": []}, False, None, True),
    ],
)
def test_a_state_tells_whether_a_job_has_its_gpus(
    its: dict[str, Any], holds: bool, code: int | None, begun: bool
) -> None:
    (job,) = listed(record(**its)).jobs
    assert (job.holds, bool(job.gpus), job.job.exit_code, bool(job.job.begin)) == (holds, holds, code, begun)
    assert bool(job.job.end) is (begun and not holds)


def test_a_job_that_cannot_be_read_costs_no_other() -> None:
    listing = listed(
        record(),
        record(job_id="x"),
        record(nodes="n[1-3]"),
        {"job_id": 9},
        record(job_id=8, nodes="n[1", job_state="RUNNING"),
    )
    assert [each.key.id for each in listing.jobs if each.gpus == {"n1": (2,)}] == ["7"]
    assert len(listing.problems) >= 3
    assert "job 7 has GPUs on 1 of 3 nodes" in " ".join(listing.problems)


@pytest.mark.parametrize(
    "output", [b"", b"slurm_load_jobs error", b"[]", b'{"jobs": 4}', b'{"jobs": [], "errors": [{"error": "no"}]}']
)
def test_what_is_no_answer_is_refused(output: bytes) -> None:
    with pytest.raises(ValueError, match="squeue"):
        squeue.listing_of(output, AT)


@pytest.mark.parametrize(
    ("gres", "numbers"),
    [
        ("gpu:h100:2(IDX:0-1)", (0, 1)),
        ("gpu:3(IDX:0,2-3)", (0, 2, 3)),
        ("gpu:a:1(IDX:1),gpu:b:1(IDX:4)", (1, 4)),
        ("shard:h100:8(IDX:0-7)", ()),
        ("gpu:h100:0(IDX:N/A)", ()),
        ("gpu:h100:2", ()),
        ("gpu:1(IDX:0-99999999)", tuple(range(1024))),
        ("", ()),
    ],
)
def test_numbers_of_gpus(gres: str, numbers: tuple[int, ...]) -> None:
    assert numbers_of(gres) == numbers


@pytest.mark.parametrize(
    ("texts", "asked"),
    [
        ({"node": "gres:gpu:2"}, 4),
        ({"node": "gres/gpu:h100:2"}, 4),
        ({"node": "gres:gpu"}, 2),
        ({"job": "gres/gpu:h100=3", "node": ""}, 3),
        ({"task": "gres:gpu:1"}, 8),
        ({"node": "gres:shard:4", "all": "cpu=1,gres/gpu=5,gres/gpu:h100=5"}, 5),
        ({"node": "gres:gpu:a:1,gres:gpu:b:2"}, 6),
        ({"all": "cpu=1,node=1"}, 0),
    ],
)
def test_gpus_that_were_asked_for(texts: dict[str, str], asked: int) -> None:
    assert asked_of(texts, nodes=2, tasks=8) == asked


def test_a_name_of_a_job_writes_no_record_of_another() -> None:
    """Where a user's text makes a word of ours stand twice, the record is not believed."""
    block = (
        "JobId=7 JobName=x\n   JobState=RUNNING UserId=root(0)\n   UserId=eve(1001) GroupId=eve(1001) MCS_label=N/A\n"
        "   Account=a Restarts=0 ExitCode=0:0\n   JobState=RUNNING Reason=None\n   SubmitTime=1 StartTime=2 EndTime=3\n"
        "   Partition=gpu NodeList=n1\n   NumNodes=1 OverSubscribe=OK\n   Command=/x\n"
    )
    listing = scontrol.listing_of(block, "lab", AT)
    assert (listing.jobs, len(listing.problems)) == ((), 1)
    honest = block.replace("x\n   JobState=RUNNING UserId=root(0)\n", "x\n", 1)
    (job,) = scontrol.listing_of(honest, "lab", AT).jobs
    assert (job.job.user, job.job.begin) == ("eve", 2 * SECOND)


def test_what_a_comment_declares_is_read_and_nothing_else_of_it() -> None:
    text = "for Ann; kilowatch: gpus=6  checkpoint=15m; till Friday"
    (job,) = listed(record(comment=text)).jobs
    assert job.job.purpose == "gpus=6 checkpoint=15m"
    assert [each.job.purpose for each in listed(record(comment="for Ann"), record(comment=None), record()).jobs] == [
        ""
    ] * 3
    block = (
        "JobId=7 JobName=x\n   UserId=eve(1001) GroupId=eve(1001) MCS_label=N/A\n   Account=a Restarts=0 ExitCode=0:0\n"
        "   JobState=RUNNING Reason=None\n   SubmitTime=1 StartTime=2 EndTime=3\n   Partition=gpu NodeList=n1\n"
        f"   NumNodes=1 OverSubscribe=OK\n   Comment={text}\n   Command=/x\n"
    )
    (job,) = scontrol.listing_of(block, "lab", AT).jobs
    assert job.job.purpose == "gpus=6 checkpoint=15m"


def line(*values: str) -> str:
    return "\x1f".join(values) + "\n"


def test_the_accounts_of_a_requeued_job_are_those_of_its_runs() -> None:
    output = (
        line("3", "loop", "REQUEUED", "100", "None", "102", "0:0", "physics", "root", "we|ird", "100", "5")
        + line("3", "loop", "FAILED", "102", "230", "250", "3:0", "physics", "root", "we|ird", "223", "5")
        + line("4", "loop", "CANCELLED by 0", "100", "101", "120", "0:15", "", "root", "b", "100", "UNLIMITED")
        + line("5", "loop", "RUNNING", "100", "101", "Unknown", "0:0", "", "root", "c", "100", "60")
        + line("6", "loop", "REQUEUED", "100", "101", "103", "0:0", "", "root", "d", "100", "60")
        + line("6", "loop", "PENDING", "103", "Unknown", "Unknown", "0:0", "", "root", "d", "Unknown", "60")
        + line(
            "7", "loop", "CANCELLED by 0", "100", "None", "120", "0:0", "", "root", "e", "Unknown", "Partition_Limit"
        )
    )

    def account(state: str, submitted: int, eligible: int | None, **more: Any) -> JobAccount:
        times = {name: more.pop(name) * SECOND for name in ("begin", "end") if name in more}
        since = None if eligible is None else eligible * SECOND
        return JobAccount(state=state, submitted=submitted * SECOND, eligible=since, **times, **more)

    assert sacct.accounts_of(output, 251 * SECOND) == {
        JobKey("slurm", "loop", "3", 0): account("REQUEUED", 100, 100, end=102, time_limit_seconds=300),
        JobKey("slurm", "loop", "3", 1): account("FAILED", 102, 223, begin=230, end=250, exit_code=3, time_limit_seconds=300),
        JobKey("slurm", "loop", "4", 0): account("CANCELLED", 100, 100, begin=101, end=120, exit_code=-15, unlimited=True),
        JobKey("slurm", "loop", "6", 0): account("REQUEUED", 100, 100, begin=101, end=103, time_limit_seconds=3600),
        JobKey("slurm", "loop", "7", 0): account("CANCELLED", 100, None, end=120),
    }  # fmt: skip
    with pytest.raises(ValueError, match="2 fields in place of 12"):
        sacct.accounts_of(line("3", "loop"), AT)


def test_a_run_whose_end_was_noted_before_its_begin_is_waited_for() -> None:
    """Slurm 22.05 had the limit 0.4 to 3.5 s later."""
    output = line("8", "loop", "FAILED", "100", "101", "102", "3:0", "", "root", "f", "100", "")
    end = 102 * SECOND
    assert sacct.accounts_of(output, end + 60 * SECOND) == {}
    (late,) = sacct.accounts_of(output, end + 61 * SECOND).values()
    assert (late.end, late.exit_code, late.time_limit_seconds, late.unlimited) == (end, 3, None, False)
    (whole,) = sacct.accounts_of(output.replace("100\x1f\n", "100\x1f60\n"), end).values()
    assert whole.time_limit_seconds == 3600


def test_the_name_of_the_cluster_is_that_of_the_controllers_settings() -> None:
    assert scontrol.cluster_of(b"Configuration data\nClusterName             = loop\n") == "loop"
    assert scontrol.cluster_of(b"") == ""


def test_what_is_no_job_in_a_listing_costs_no_job() -> None:
    listing = squeue.listing_of(json.dumps({"jobs": [record(), 7, record(job_id=8)]}).encode(), AT)
    assert [each.key.id for each in listing.jobs] == ["7", "8"]
    assert len(listing.problems) == 1
