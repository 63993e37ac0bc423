"""The output of `condor_status -json` as the jobs in the slots of a pool. Pure.

A slot's ad has the job that runs in it: its id as `condor_q` shows it, who owns it, since when it runs, and the GPUs that were
assigned (`AssignedGPUs`). That of a partitionable slot names those of all of its dynamic slots, and has no job.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from aggregator.scheduler.listed import SECOND, ClaimedSlot, JobListing, ListedJob
from telemetry.notations.htcondor import SCHEDULER
from telemetry.wire.jobs import Job, JobKey

FIELDS = (
    "Name", "Machine", "SlotType", "Activity", "JobId", "GlobalJobId", "JobStart", "RemoteOwner", "RemoteUser", "RemoteGroup",
    "RemoteScheddName", "AssignedGPUs",
)  # fmt: skip
_ID = re.compile(r"\d{1,10}\.\d{1,10}", re.ASCII)
_GLOBAL = re.compile(r"([^#]+)#(\d{1,10}\.\d{1,10})#(\d{1,10})", re.ASCII)
_SEPARATOR = re.compile(r"[\s,]+")
_MOST_TEXT = 256
_LAST = 4_102_444_800
"""2100, seconds since 1970."""
_NO_GROUP = "<none>"


def command_of(pool: str) -> tuple[str, ...]:
    """Return the question about all slots of machines with a GPU; `pool`: host of its central manager, empty for the one
    of HTCondor's own settings."""
    where = ("-pool", pool) if pool else ()
    return ("condor_status", *where, "-json", "-constraint", "TotalGPUs > 0", "-attributes", ",".join(FIELDS))


def listing_of(output: bytes, at: int) -> JobListing:
    """Return what condor_status printed at a time. Raises `ValueError` for what is no such answer."""
    try:
        ads = msgspec.json.decode(output) if output.strip() else []  # of no ad it prints nothing
    except msgspec.DecodeError as error:
        raise ValueError(f"condor_status prints no JSON: {error}") from None
    if not isinstance(ads, list):
        raise ValueError("condor_status prints no list of ads")  # noqa: TRY004 - an answer, no argument
    jobs: dict[JobKey, Job] = {}
    slots: dict[JobKey, list[ClaimedSlot]] = {}
    nodes, problems = set[str](), []
    for ad in ads:
        try:
            nodes.add(_needed(ad, "Machine"))
            if ad.get("JobId") is None or ad.get("SlotType") == "Partitionable":
                continue
            job, slot = _job(ad), _slot(ad)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            problems.append(f"a slot of condor_status can't be read: {type(error).__name__} {error}")
        else:
            jobs.setdefault(job.key, job)
            slots.setdefault(job.key, []).append(slot)
    return JobListing(
        at=at,
        cluster="",
        problems=tuple(problems),
        nodes=frozenset(nodes),
        jobs=tuple(ListedJob(job=job, holds=True, slots=tuple(slots[key])) for key, job in jobs.items()),
    )


def _job(ad: Mapping[str, Any]) -> Job:
    its_id = _needed(ad, "JobId")
    if not _ID.fullmatch(its_id):
        raise ValueError("JobId is no cluster and process")
    known = _GLOBAL.fullmatch(_text(ad, "GlobalJobId"))
    known = known if known is not None and known[2] == its_id else None
    schedd = _text(ad, "RemoteScheddName") or ("" if known is None else known[1])
    group = _text(ad, "RemoteGroup")
    user = _text(ad, "RemoteUser") or _text(ad, "RemoteOwner")
    return Job(
        key=JobKey(SCHEDULER, schedd, its_id),
        # `physics.ada@site` where an accounting group has the job.
        user=user.partition("@")[0].removeprefix(f"{group}."),
        account="" if group == _NO_GROUP else group,
        submitted=0 if known is None else _time(int(known[3])),
        begin=_time(ad["JobStart"]),
        # What has a slot runs; how it ended the pool does not say, so that no word outlives its end.
        state="SUSPENDED" if _text(ad, "Activity") == "Suspended" else "",
    )


def _slot(ad: Mapping[str, Any]) -> ClaimedSlot:
    names = _SEPARATOR.split(_text(ad, "AssignedGPUs", most=1 << 14))
    return ClaimedSlot(
        node=_needed(ad, "Machine"),
        name=_needed(ad, "Name"),
        begin=_time(ad["JobStart"]),
        gpus=tuple(dict.fromkeys(filter(None, names))),
    )


def _needed(ad: Mapping[str, Any], name: str) -> str:
    if not (value := _text(ad, name)):
        raise ValueError(f"{name} is missing")
    return value


def _time(value: object) -> int:
    if not isinstance(value, int) or not 0 < value < _LAST:
        raise ValueError("a time is none")
    return value * SECOND


def _text(ad: Mapping[str, Any], name: str, most: int = _MOST_TEXT) -> str:
    value = ad.get(name)
    return "".join(filter(str.isprintable, value[:most])) if isinstance(value, str) else ""
