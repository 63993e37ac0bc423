"""From the text of `/proc/PID/cgroup` to the job, container or unit that a process belongs to. Pure.

The text has a line for each hierarchy, any of which may hold the path: Slurm's are missing on those that
the site does not constrain, and on a hybrid host the line of version 2 is empty. The first row of `FORMS`
that is found anywhere wins: schedulers before what they start, containers before the service of their
daemon, units before users.

Whoever owns a folder names those below it: what systemd delegates to a user (`user-1000.slice`) names no job of a
scheduler, and a job of Slurm none within its own.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_UID = r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32}"
SHORT_ID = 12
"""Digits of a container's id that its own tools show."""


class CgroupOwner(NamedTuple):
    """Job, container or unit of a process, or its user alone."""

    scheduler: str
    """As in `JobKey`: `slurm`, `kubernetes`, `container`, `systemd` or `user`."""
    id: str = ""
    """Job number, pod UID, container, unit; empty of a user."""
    step: str = ""
    """Slurm's step, or the container within a pod."""
    uid: int | None = None
    """User, where the path names one."""


class CgroupForm(NamedTuple):
    """Form of a path."""

    name: str
    scheduler: str
    pattern: re.Pattern[str]
    """With groups `id`, `step` and `uid`."""


def _form(name: str, scheduler: str, pattern: str) -> CgroupForm:
    return CgroupForm(name, scheduler, re.compile(pattern, re.ASCII | re.MULTILINE))


FORMS: tuple[CgroupForm, ...] = (
    _form(
        "Slurm, cgroup version 1", "slurm",
        r"^(?:(?!slurmstepd\.scope/job_)[^\n])*?/slurm(?:_[^/\n]+)?/uid_(?P<uid>\d+)/job_(?P<id>\d+)(?:/step_(?P<step>[^/\n ]+))?",
    ),
    _form(
        "Slurm, cgroup version 2", "slurm",
        r"slurmstepd\.scope/job_(?P<id>\d+)(?:/step_(?P<step>[^/\n ]+))?",
    ),
    _form("Slurm's own daemons", "", r"slurmstepd\.scope/system|/(?:[^/\n]+_)?slurmd\.service"),
    _form("helpers of containers", "", r"(?:crio|libpod)-conmon-[0-9a-f]{64}"),
    _form(
        "pod", "kubernetes",
        rf"kubepods[^\n]*?pod(?P<id>{_UID})(?:[^\n]*?[/:-](?P<step>[0-9a-f]{{64}})\b)?",
    ),
    _form(
        "container by its id", "container",
        r"(?:^|[/:-])(?:[^/\n:]*-)?(?P<id>[0-9a-f]{64})(?=\.scope|[/\n ]|$)",
    ),
    _form("task of Amazon ECS", "container", r"/ecs/(?:[^/\n]+/)?(?P<id>[0-9a-f]{32})-\d+"),
    _form("LXC and Incus", "container", r"/lxc(?:\.payload)?[./](?P<id>[^/\n ]+)"),
    _form("machine of systemd", "container", r"/machine\.slice/(?P<id>[^/\n]+\.(?:scope|service))"),
    _form("login or service of a user", "user", r"/user-(?P<uid>\d+)\.slice"),
    _form("service", "systemd", r"/(?P<id>[^/\n]+\.service)"),
    _form("scope", "systemd", r"/(?!init\.scope)(?P<id>[^/\n]+\.scope)"),
)  # fmt: skip
"""Forms in the order in which they are tried; one without a scheduler belongs to no job."""


_OF_USERS = re.compile(r"(/user-\d+\.slice|/user@\d+\.service)/[^\n]*", re.ASCII)
_MANAGED = frozenset({"slurm", "kubernetes"})
"""Schedulers that run as root: none of their paths lies below what a user owns."""


def owner_of(text: str) -> CgroupOwner | None:
    """Return the owner that the text of `/proc/PID/cgroup` names; None for a helper of a scheduler and where
    it names none (a cgroup namespace of its own, the root): the user is all that is known."""
    believed = _OF_USERS.sub(r"\1", text)
    for form in FORMS:
        found = form.pattern.search(believed if form.scheduler in _MANAGED else text)
        if found is not None:
            return _owner(form, found) if form.scheduler else None
    return None


def claim_of(text: str) -> CgroupOwner | None:
    """Return the job of a scheduler that a path names below what a user owns, where anybody can write any name."""
    if _OF_USERS.search(text) is None:
        return None
    believed = _OF_USERS.sub(r"\1", text)
    for form in FORMS:
        if form.scheduler in _MANAGED and not form.pattern.search(believed):
            found = form.pattern.search(text)
            if found is not None:
                return _owner(form, found)
    return None


def _owner(form: CgroupForm, found: re.Match[str]) -> CgroupOwner:
    parts = found.groupdict()
    uid = parts.get("uid")
    return CgroupOwner(
        form.scheduler,
        _id(form.scheduler, parts.get("id") or ""),
        (parts.get("step") or "")[:SHORT_ID if form.scheduler == "kubernetes" else None],
        int(uid) if uid is not None and len(uid) <= 10 else None,
    )  # fmt: skip


def _id(scheduler: str, text: str) -> str:
    """Return an identity as the scheduler's own tools write it."""
    if scheduler == "kubernetes":
        return text.replace("_", "-")
    if scheduler == "container" and re.fullmatch(r"[0-9a-f]{64}", text):
        return text[:SHORT_ID]
    return text
