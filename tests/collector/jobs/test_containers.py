"""A rootless container of Podman: its process belongs to it, as its real cgroup says."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.jobs.config import JobsConfig
from collector.jobs.merge import JobMerge
from collector.jobs.processes import ProcReader
from collector.jobs.source import JobsInput
from collector.jobs.users import PersonFilter, UserNames
from collector.source import ListedProcess, ListedProcesses
from telemetry.wire.jobs import JobKey
from tests.collector.jobs.given import GPU, at
from tests.podman import needs_podman, running
from tests.second_user import NOBODY


@needs_podman
@pytest.mark.systems
def test_a_process_in_a_rootless_container_is_the_containers_until_it_ends() -> None:
    reader = ProcReader(UserNames(), PersonFilter(JobsConfig()), same_pids=True)
    merge = JobMerge()
    with running() as container:
        cgroup = Path(f"/proc/{container.pid}/cgroup").read_text()
        assert f"0::/{container.parent}/libpod-{container.id}" in cgroup, "it is a real one"
        listed = ListedProcess(container.pid, "compute", 1 << 30, None, None)
        found = reader.find({GPU: ListedProcesses(at(0), (listed,))})
        (process,) = found.processes
        assert (process.process.name, process.uid, process.process.hidden) == ("sleep", NOBODY, "")
        given = JobsInput(at=at(0), node="n1", processes=found.processes)
        held = merge.update(given, found.owners, {})
        key = JobKey("container", "", container.id[:12])
        assert [(each.job, each.gpu, each.end) for each in held.allocations] == [(key, GPU, 0)]
        assert [(job.key, job.user) for job in held.jobs] == [(key, process.process.user)]
        container.kill()
        gone = reader.find({GPU: ListedProcesses(at(5), (listed,))})
        assert (gone.processes[0].process.hidden, gone.owners) == ("gone", {})
        ended = merge.update(JobsInput(at=at(5), node="n1"), {}, {})
        assert [bool(each.end) for each in ended.allocations] == [True]
