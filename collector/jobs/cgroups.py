"""From the text of `/proc/PID/cgroup` to the job, container or unit that a process belongs to. Pure.

The text has a line for each hierarchy, any of which may hold the path: Slurm's are missing on those that
the site does not constrain, and on a hybrid host the line of version 2 is empty. The first row of `FORMS`
that is found anywhere wins: schedulers before what they start, containers before the service of their
daemon, units before users.

Whoever owns a folder names those below it. So a job of a scheduler is believed only where its scheduler makes it,
read down from a root: the machine's, or a container's, for slurmd and the kubelet run in containers too. A path does
not tell them from somebody who is root in a container and writes the same names. Both are believed, as far as the
folders are those of the host's root, who let them in: a site that runs Slurm in pods sees its jobs, and a container
that may write them has more power than a name. Below what anybody else owns, below a service and within a job of the
same scheduler a path is only a claim.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

_UID = r"(?:[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})"
_CONTAINER_ID = "[0-9a-f]{64}"
_SLICES = r"(?:/[^/]+\.slice)*"
_ABOVE_PODS = rf"{_SLICES}(?:/kubelet|/(?:kubelet|containerd|crio|k3s|rke2|k0s|snap\.microk8s)[^/]*\.service)?"
"""Folders in which kubelets make pods: that of kind, and the service where they or the runtime keep to their own."""
_NO_UNIT = r"(?:/(?![^/]*\.(?:service|scope)(?:/|$))[^/]+)"
_CONTAINER = re.compile(
    r"(?:/lxc(?:\.payload)?[./][^/]+|/machine\.slice/[^/]+\.(?:scope|service)"
    rf"|{_ABOVE_PODS}{_NO_UNIT}*?/(?:[^/]*[-:])?{_CONTAINER_ID}(?:\.scope)?)(?:/(?:container|payload|ns))?(?=/|$)",
    re.ASCII,
)
"""A container, from a root to the root that it is."""
_UPWARDS = re.compile(r"(?:/\.\.)*")
_OF_USERS = re.compile(r"(/user-\d+\.slice|/user@\d+\.service)/.*", re.ASCII)
_BATCH = frozenset({"slurm", "pbs", "lsf", "htcondor"})
"""Schedulers whose jobs own all that is started in them."""
SHORT_ID = 12
"""Digits of a container's id that its own tools show."""


class CgroupOwner(NamedTuple):
    """Job, container or unit of a process, or its user alone."""

    scheduler: str
    """As in `JobKey`: `slurm`, `pbs`, `lsf`, `htcondor`, `kubernetes`, `container`, `systemd` or `user`."""
    id: str = ""
    """Job number, slot of HTCondor, pod UID, container, unit; empty of a user."""
    step: str = ""
    """Slurm's step, or the container within a pod."""
    uid: int | None = None
    """User, where the path names one."""


class CgroupReading(NamedTuple):
    """Owner of a process by the text of its cgroups, and what that only claims."""

    owner: CgroupOwner | None = None
    """None of a helper of a scheduler, and where it names none (a cgroup namespace of its own, the root): the user is
    all that is known."""
    claim: CgroupOwner | None = None
    """Job of a scheduler that a path names where that scheduler makes none."""


class CgroupForm(NamedTuple):
    """Form of a path."""

    name: str
    scheduler: str
    pattern: re.Pattern[str]
    """With groups `id`, `step` and `uid`. Where a scheduler runs as root it begins at a root, others stand anywhere."""
    claim: re.Pattern[str] | None = None
    """Form anywhere in a path, of a scheduler that runs as root: none of its paths lies below what a user owns."""


NamedByRoot = Callable[[str, str], str]
"""Return how much of a path has names that root gave, of the controllers of a hierarchy (empty of version 2) and a path."""


def _form(name: str, scheduler: str, pattern: str) -> CgroupForm:
    return CgroupForm(name, scheduler, re.compile(pattern, re.ASCII | re.MULTILINE))


def _rooted(name: str, scheduler: str, above: str, pattern: str) -> CgroupForm:
    """Return the form of a scheduler that runs as root, with the folders that it may have above its own."""
    return CgroupForm(name, scheduler, re.compile(above + pattern, re.ASCII), re.compile(pattern, re.ASCII))


_SLURM_STEP = r"(?:/step_(?P<step>[^/]+))?"
_IN_POD = rf"(?P<id>{_UID})(?:\.slice)?(?![^/:])(?:.*?[/:-](?P<step>{_CONTAINER_ID})\b)?"

FORMS: tuple[CgroupForm, ...] = (
    _rooted(
        "Slurm, cgroup version 1", "slurm", "",
        rf"/slurm(?:_[^/]+)?/uid_(?P<uid>\d+)/job_(?P<id>\d+)(?![^/]){_SLURM_STEP}",
    ),
    _rooted(
        "Slurm, cgroup version 2", "slurm", _SLICES,
        rf"/(?:[^/]+_)?slurmstepd\.scope/job_(?P<id>\d+)(?![^/]){_SLURM_STEP}",
    ),
    _rooted(
        "Slurm 26.05 and later, by its own id", "slurm", _SLICES,
        r"/(?:[^/]+_)?slurmstepd\.scope/(?P<id>s[0-9A-Z]{10,20})/step_(?P<step>[^/]+)",
    ),
    _rooted("PBS", "pbs", "", r"/pbs_jobs\.service/jobid/(?P<id>\d+(?:\[\d+\])?)\.[^/]+"),
    _rooted(
        "PBS, cgroup version 2", "pbs", "",
        # A number behind the job's counts the tasks of an array, in a way that is not documented: it stays as it is.
        r"/pbs_jobs\.service/jobs/(?P<id>\d+(?:\[\d+\])?(?:\.\d+(?![^/]))?)(?:\.[^/]+)?(?![^/])",
    ),
    _rooted("LSF", "lsf", "", r"/lsf/[^/]+/job\.(?P<id>\d+(?:\[\d+\])?)\.\d+\.\d+(?![^/])"),
    _rooted(
        # The folder is called like that of the jobs' files and the slot, in which one job runs after the other.
        "slot of HTCondor", "htcondor", _SLICES,
        r"(?:/condor\.service)?(?:/htcondor|(?<=/condor\.service))/condor_[^/]*?_(?P<id>slot\d+(?:_\d+)?(?:@[^/]+)?)(?![^/])",
    ),
    _form("Slurm's own daemons", "", r"slurmstepd\.scope/system|/(?:[^/\n]+_)?slurmd\.service"),
    _form("helpers of containers", "", rf"(?:crio|libpod)-conmon-{_CONTAINER_ID}"),
    _rooted("pod", "kubernetes", _ABOVE_PODS, rf"/kubepods(?:/burstable|/besteffort)?/pod{_IN_POD}"),
    _rooted(
        "pod as a slice of systemd", "kubernetes", _ABOVE_PODS,
        rf"/(?:[^/]*-)?kubepods(?:-burstable|-besteffort)?-pod{_IN_POD}",
    ),
    _rooted("pod beside ours", "kubernetes", "", rf"(?<=/\.\.)(?:/burstable|/besteffort)?/pod{_IN_POD}"),
    _form(
        "container by its id", "container",
        rf"(?:^|[/:-])(?:[^/\n:]*-)?(?P<id>{_CONTAINER_ID})(?=\.scope|[/\n ]|$)",
    ),
    _form("task of Amazon ECS", "container", r"/ecs/(?:[^/\n]+/)?(?P<id>[0-9a-f]{32})-\d+"),
    _form("LXC and Incus", "container", r"/lxc(?:\.payload)?[./](?P<id>[^/\n ]+)"),
    _form("machine of systemd", "container", r"/machine\.slice/(?P<id>[^/\n]+\.(?:scope|service))"),
    _form("login or service of a user", "user", r"/user-(?P<uid>\d+)\.slice"),
    _form("service", "systemd", r"/(?P<id>[^/\n]+\.service)"),
    _form("scope", "systemd", r"/(?!init\.scope)(?P<id>[^/\n]+\.scope)"),
)  # fmt: skip
"""Forms in the order in which they are tried; one without a scheduler belongs to no job."""


class _ReadPath(NamedTuple):
    """Path of a process in a hierarchy."""

    path: str
    named: str
    """The part of it whose names root gave."""
    roots: tuple[int, ...]
    """Where the paths of schedulers may begin in it: one for each root, the outermost first."""


def reading_of(text: str, named_by_root: NamedByRoot = lambda _, path: path) -> CgroupReading:
    """Return the owner that the text of `/proc/PID/cgroup` names, and what it only claims."""
    paths = dict.fromkeys(_paths(text, named_by_root))
    owner = _owner(text, paths)
    believed = {(form.scheduler, _of(form, found).id) for form in FORMS for found in _at_roots(form, paths)}
    for form in FORMS:
        if owner is not None and owner.scheduler in _BATCH - {form.scheduler}:
            continue  # a job may have containers of its own, with a Kubernetes in them
        for its in paths:
            for found in form.claim.finditer(its.path) if form.claim is not None else ():
                claim = _of(form, found)
                if (claim.scheduler, claim.id) not in believed:
                    return CgroupReading(owner, claim)
    return CgroupReading(owner)


def _paths(text: str, named_by_root: NamedByRoot) -> Iterator[_ReadPath]:
    for line in text.split("\n"):
        controllers, _, path = line.partition(":")[2].partition(":")
        path = path.removesuffix(" (deleted)")
        if len(path) < 2:
            continue
        named = named_by_root(controllers, _OF_USERS.sub(r"\1", path))
        # Seen from a cgroup namespace of our own, what lies beside us begins where the paths part.
        upwards = _UPWARDS.match(path)
        roots = [upwards.end() if upwards else 0]
        while (found := _CONTAINER.match(named, roots[-1])) is not None:
            roots.append(found.end())
        yield _ReadPath(path, named, tuple(roots))


def _owner(text: str, paths: Iterable[_ReadPath]) -> CgroupOwner | None:
    for form in FORMS:
        found = form.pattern.search(text) if form.claim is None else next(_at_roots(form, paths), None)
        if found is not None:
            return _of(form, found) if form.scheduler else None
    return None


def _at_roots(form: CgroupForm, paths: Iterable[_ReadPath]) -> Iterator[re.Match[str]]:
    """Yield the jobs of a scheduler that stand where it makes them."""
    if form.claim is not None:
        for its in paths:
            for root in its.roots:
                if (found := form.pattern.match(its.named, root)) is not None:
                    yield found


def _of(form: CgroupForm, found: re.Match[str]) -> CgroupOwner:
    parts = found.groupdict()
    uid = parts.get("uid")
    return CgroupOwner(
        form.scheduler,
        _id(form.scheduler, parts.get("id") or ""),
        (parts.get("step") or "")[: SHORT_ID if form.scheduler == "kubernetes" else None],
        int(uid) if uid is not None and len(uid) <= 10 else None,
    )


def _id(scheduler: str, text: str) -> str:
    """Return an identity as the scheduler's own tools write it."""
    if scheduler == "kubernetes":
        return text.replace("_", "-")
    if scheduler == "container" and re.fullmatch(r"[0-9a-f]{64}", text):
        return text[:SHORT_ID]
    return text
