"""Who holds GPUs now, by the newest list of each node: the jobs and processes of a GPU, of a node, and of what
a circuit feeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from aggregator.register.node_status import status_of
from aggregator.view import AggregatorView, HoldersView
from aggregator.web.bars import part_bar
from aggregator.web.job_words import UNKNOWN, job_link
from aggregator.web.markup import link, moment, path, section, table, text, unseen
from api.fleet import NodeStatus
from present.device.gpu import gpu_name
from present.device.use import HEADS, UseLine, job_words, lacking_lines, lists_processes, use_lines
from present.units import watts
from telemetry.devices import Gpu
from telemetry.fleet import Fleet
from telemetry.text import counted
from telemetry.wire.jobs import Allocation, AllocationKind, Job, JobKey, NodeJobs, holders_of

WITHHELD = "<p>Jobs and processes are shown to callers with a token.</p>"
"""Text in place of a part that names persons, HTML."""
MOST_JOBS = 200
"""Jobs of a circuit that are listed."""
MOST_USERS, MOST_LOW, LEAST_ROWS = 8, 4, 2
"""Users of the cluster that are listed in a table and in a line; rows below which there is no table."""


def jobs_on(jobs: HoldersView) -> bool:
    """Return whether any node says who holds its GPUs, or one did lately."""
    return any(True for _ in jobs.ids()) or any(map(_speaks, jobs.lists.values()))


def _speaks(message: NodeJobs) -> bool:
    """Return whether a list says anything: that of a node where jobs are off is empty."""
    return bool(message.sources or message.allocations or message.processes)


def power_now(fleet: Fleet, now: float, gpus: Iterable[str]) -> dict[str, float | None]:
    """Return the power of GPUs in W by UUID; None where it is not known."""
    column = fleet.column("gpu_power_watts", now)
    found: dict[str, float | None] = {}
    for uuid in gpus:
        row = fleet.by_uuid.get(uuid)
        value = math.nan if row is None else float(column[row])
        found[uuid] = None if math.isnan(value) else value
    return found


def holders_section(view: AggregatorView, node: str, gpus: Sequence[Gpu], *, private: bool) -> str:
    """Return who uses some GPUs of a node: a line a process, and one for each GPU that is allocated or free
    without one; nothing where nobody has ever said. `private`: whether the caller sees persons."""
    message = view.jobs.lists.get(node)
    if message is None or not gpus:
        return ""
    if not private:
        return section("Who uses it", WITHHELD, "jobs")
    if not _speaks(message):
        return section("Who uses it", "<p>Jobs are switched off on this node.</p>", "jobs")
    known = view.fleet.nodes.get(node)
    remarks = []
    if known is None or status_of(known, view.now()) is not NodeStatus.ONLINE:
        remarks.append(f"The node is silent: this is what it said {moment(message.at, view.wall())}.")
    remarks += map(text, lacking_lines(message))
    rows = [_row(line) for gpu in gpus for line in use_lines(message, gpu, view.wall())]
    shown_remarks = "".join(f"<p class=problems>{remark}</p>" for remark in remarks)
    shown = table(f"Processes on {counted(len(gpus), 'GPU')}", HEADS, rows, (1, 4, 5))
    return section("Who uses it", shown_remarks + shown, "jobs")


def holders_text(message: NodeJobs | None, uuid: str) -> str:
    """Return the jobs that hold a GPU, with their users, for a cell of a table."""
    if message is None or not _speaks(message):
        return UNKNOWN
    jobs = {job.key: job for job in message.jobs}
    found = [
        f"{text(job.user)} {job_link(job.name or key.id, key)}"
        if job.name or key.scheduler != "user"
        else text(job.user)
        for key, job in ((one.job, jobs.get(one.job, Job(key=one.job))) for one in holders_of(message, uuid))
    ]
    without = '<span class="dim">free</span>' if lists_processes(message) else UNKNOWN
    return ", ".join(found) or without


def _live(allocations: Iterable[Allocation]) -> Iterator[Allocation]:
    return (one for one in allocations if not one.end)


def _row(line: UseLine) -> tuple[str, ...]:
    its = link(gpu_name("", line.gpu.index), "gpus", line.gpu.uuid)
    job = text(line.job) if line.key is None else job_link(line.job, line.key)
    return (
        its if line.instance is None else f"{its} instance {line.instance}", line.pid, text(line.user), job,
        line.memory, line.use, line.age, text(line.program),
    )  # fmt: skip


def _user(job: Job | None) -> str:
    if job is None or not job.user:
        return UNKNOWN
    return f'<a href="{path("jobs", user=job.user)}">{text(job.user)}</a>'


def circuit_jobs(view: AggregatorView, nodes: Sequence[str], *, private: bool) -> str:
    """Return the jobs on the nodes that a circuit feeds, with the power of their GPUs there, the most first.
    A GPU that several jobs hold counts for each, and is marked."""
    listed = {name: view.jobs.lists[name] for name in nodes if name in view.jobs.lists}
    if not any(map(_speaks, listed.values())):
        return ""
    if not private:
        return section("Jobs", WITHHELD, "jobs")
    gpus: dict[JobKey, dict[str, str]] = {}
    facts: dict[JobKey, Job] = {}
    holders: dict[str, set[JobKey]] = {}
    for name, message in listed.items():
        facts |= {job.key: job for job in message.jobs}
        for one in _holding(message):
            gpus.setdefault(one.job, {})[one.gpu] = name
            holders.setdefault(one.gpu, set()).add(one.job)
    power = power_now(view.fleet, view.now(), holders)
    totals = {key: sum(power[uuid] or 0.0 for uuid in its) for key, its in gpus.items()}
    shown = [
        (
            job_link(job_words(key, facts.get(key)), key),
            _user(facts.get(key)),
            f"{len(its):,}",
            _power(totals[key], [power[uuid] for uuid in its]),
            ", ".join(link(name, "nodes", name) for name in sorted(set(its.values()))[:8]),
            "shared with others" if any(len(holders[uuid]) > 1 for uuid in its) else "",
        )
        for key, its in sorted(gpus.items(), key=lambda pair: (-totals[pair[0]], pair[0]))[:MOST_JOBS]
    ]
    silent = len(set(nodes) - {name for name, message in listed.items() if _speaks(message)})
    more = (
        f"<p>{counted(silent, 'node')} of it {'does' if silent == 1 else 'do'} not say who uses their GPUs.</p>"
        if silent
        else ""
    )
    heads = ("job", "user", "GPUs", "at the GPUs", "nodes", unseen("shared"))
    caption = f"{counted(len(gpus), 'job')} on the nodes that it feeds, the most power first"
    return section("Jobs", table(caption, heads, shown, (2, 3)) + more, "jobs")


def users_section(view: AggregatorView, *, private: bool, rows: int = MOST_USERS + 1) -> str:
    """Return who holds how many GPUs of the cluster now, and their power, the most first; nothing where no node
    says. A GPU that several users hold counts for each. `rows`: those that a table has room for; below `LEAST_ROWS` it is
    lines of text."""
    listed = {name: message for name, message in view.jobs.lists.items() if _speaks(message)}
    if not listed:
        return ""
    if not private:
        return section("Who uses what", WITHHELD, "users")
    held: dict[str, set[str]] = {}
    for message in listed.values():
        users = {job.key: job.user for job in message.jobs}
        for one in _holding(message):
            held.setdefault(users.get(one.job) or "", set()).add(one.gpu)
    taken = set().union(*held.values())
    power = power_now(view.fleet, view.now(), taken)
    total = sum(len(node.inventory.gpus) for name, node in view.fleet.nodes.items() if name in listed)
    ranked = sorted(held.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    low = rows < LEAST_ROWS
    most = MOST_LOW if low else min(MOST_USERS, rows - (len(ranked) > rows))
    listed_users = [_user_row(name, gpus, power, total) for name, gpus in ranked[:most]]
    rest = [gpus for _, gpus in ranked[most:]]
    if rest:
        listed_users.append(_user_row("", set().union(*rest), power, total, f"{counted(len(rest), 'other')}"))
    more = f"{link('all jobs', 'jobs')}"
    caption = f"{len(taken):,} of {counted(total, 'GPU')} are held"
    if low:
        its = "; ".join(f"{user} {gpus} ({power})" for user, gpus, _, power in listed_users)
        return section("Who uses what", f'<p class="beside">{caption}: {its}.</p>', "users", more=more)
    shown = table(caption, ("user", "GPUs", unseen("share of all GPUs"), "at the GPUs"), listed_users, (1, 3))
    return section("Who uses what", shown, "users", more=more)


def _user_row(
    name: str, gpus: set[str], power: dict[str, float | None], total: int, words: str = ""
) -> tuple[str, ...]:
    known = [power[uuid] for uuid in gpus]
    its = words or (f'<a href="{path("jobs", user=name)}">{text(name)}</a>' if name else UNKNOWN)
    return its, f"{len(gpus):,}", part_bar(len(gpus) / total if total else 0.0), _power(sum(one or 0.0 for one in known), known)  # fmt: skip


def _holding(message: NodeJobs) -> Iterator[Allocation]:
    """Yield the allocations of each GPU: those of a scheduler, else those by processes."""
    live = list(_live(message.allocations))
    given = {one.gpu for one in live if one.kind is AllocationKind.ALLOCATED}
    for one in live:
        if one.kind is AllocationKind.ALLOCATED or one.gpu not in given:
            yield one


def _power(total: float, parts: Sequence[float | None]) -> str:
    """Return the power of some GPUs, and of how many it is not known."""
    missing = sum(part is None for part in parts)
    if missing == len(parts):
        return UNKNOWN
    return watts(total) + (f', <span class="dim">{missing:,} not known</span>' if missing else "")
