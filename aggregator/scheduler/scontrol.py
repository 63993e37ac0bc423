"""The output of `scontrol show job -d` as jobs, for a Slurm whose squeue prints no JSON. Pure.

A user's own text stands in it (the job's name, its command and folder): a record in which a word of ours stands
twice is not believed.
"""

from __future__ import annotations

import re

from aggregator.scheduler.listed import (
    HOLDING,
    SECOND,
    WAITING,
    JobListing,
    ListedJob,
    TimeLimit,
    asked_of,
    exit_code_of,
    numbers_of,
    owner_text,
    reason_of,
    whole_nodes,
)
from telemetry.notations.purpose import declared
from telemetry.notations.slurm import SCHEDULER, expanded
from telemetry.wire.jobs import UNLIMITED, Job, JobKey

COMMAND = ("scontrol", "show", "job", "-d")
"""With `SLURM_TIME_FORMAT=%s`, so that times are seconds since 1970."""
_HEAD = re.compile(
    r"^JobId=(\d+)(?: ArrayJobId=(\d+) ArrayTaskId=(\d+)(?: ArrayTaskThrottle=\d+)?)?"
    r"(?: HetJobId=(\d+) HetJobOffset=(\d+))? JobName=(.*)$"
)
_ONCE = ("UserId", "Account", "JobState", "Restarts", "ExitCode", "SubmitTime", "EligibleTime", "StartTime",
         "EndTime", "TimeLimit", "Partition", "NodeList", "NumNodes", "OverSubscribe", "Reason")  # fmt: skip
_PAIR = re.compile(r"(?<!\S)([A-Z][A-Za-z]+)=(\S*)")
_GRES = re.compile(r"^ +Nodes=(\S+) CPU_IDs=\S* Mem=\d+ GRES=(\S*)$", re.MULTILINE)
_COMMENT = re.compile(r"^   Comment=(.*)$", re.MULTILINE)
_LIMIT = re.compile(r"^(?:(\d+)-)?(\d+):(\d\d):(\d\d)$")
_USER = re.compile(r"^([^()]*)\(\d+\)$")


def listing_of(output: str, cluster: str, at: int) -> JobListing:
    """Return the jobs that scontrol printed at a time."""
    jobs, problems = [], []
    for block in re.split(r"\n\s*\n(?=JobId=)", output.strip()):
        if not block.startswith("JobId="):
            continue
        try:
            jobs.append(_listed(block, cluster))
        except (ValueError, KeyError) as error:
            problems.append(f"a job of scontrol can't be read: {error}")
    return JobListing(at=at, cluster=cluster, jobs=tuple(jobs), problems=tuple(problems))


def _listed(block: str, cluster: str) -> ListedJob:
    first, _, rest = block.partition("\n")
    head = _HEAD.match(first.rstrip())
    if head is None:
        raise ValueError(f"{first[:80]!r} begins no job")
    # The user's own lines come after these, but for the name.
    ours = rest.partition("\n   Command=")[0]
    its: dict[str, str] = {}
    for name, value in _PAIR.findall(ours):
        if name in its and name in _ONCE:
            raise ValueError(f"job {head[1]} has {name} twice")
        its[name] = value
    state = its["JobState"]
    past = state not in WAITING
    over = past and state not in HOLDING
    user = _USER.match(its["UserId"])
    code, _, signal = its.get("ExitCode", "").partition(":")
    named = dict(_PAIR.findall(rest))
    count = int(its["NumNodes"].partition("-")[0])
    texts = {
        "job": named.get("TresPerJob", ""),
        "node": named.get("TresPerNode", ""),
        "task": named.get("TresPerTask", ""),
        "all": named.get("ReqTRES", ""),
    }
    gpus = {
        node: numbers_of(gres) for names, gres in _GRES.findall(ours) if numbers_of(gres) for node in expanded(names)
    }
    asked = asked_of(texts, count, int(named.get("NumTasks", "0")))
    comment = _COMMENT.search(rest)
    exclusive = its.get("OverSubscribe") in {"NO", "EXCLUSIVE"}
    names = [] if gpus or not exclusive else expanded(_known(its.get("NodeList", "")))
    return ListedJob(
        job=Job(
            key=JobKey(SCHEDULER, cluster, head[1], int(its["Restarts"])),
            name="".join(each for each in head[6] if each.isprintable())[:256],
            user=user[1] if user else "",
            account=_known(its["Account"]),
            queue=its["Partition"],
            owner=owner_text(head[2] or "", head[3] or "", head[4] or "", head[5] or ""),
            submitted=_time(its["SubmitTime"]),
            eligible=_time(its.get("EligibleTime", "")),
            begin=_time(its["StartTime"]) if past else 0,
            end=_time(its["EndTime"]) if over else 0,
            state=state,
            exit_code=exit_code_of(int(code or 0), int(signal or 0)) if over else None,
            nodes=count if past else 0,
            gpus=asked,
            purpose=declared(comment[1] if comment else ""),
            time_limit=_limit(its.get("TimeLimit", "")) if past else None,
            reason="" if past else reason_of(its.get("Reason", "")),
        ),
        holds=state in HOLDING,
        gpus=gpus if state in HOLDING else {},
        exclusive=exclusive,
        whole=whole_nodes(state, asked, names, exclusive=exclusive),
    )


def _known(word: str) -> str:
    return "" if word == "(null)" else word


def _time(word: str) -> int:
    return int(word) * SECOND if word.isdecimal() else 0


def _limit(word: str) -> TimeLimit:
    """Return a time limit of `1-02:30:00`; None for `Partition_Limit`, which is not set yet."""
    if word == "UNLIMITED":
        return UNLIMITED
    match = _LIMIT.match(word)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((24 * days + hours) * 60 + minutes) * 60 + seconds or None


def cluster_of(config: bytes) -> str:
    """Return the name of the cluster in what `scontrol show config` prints; "" where it has none."""
    match = re.search(rb"^ClusterName\s*=\s*(\S+)", config, re.MULTILINE)
    return match[1].decode("ascii", "replace") if match else ""
