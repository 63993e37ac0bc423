"""Cost of asking a scheduler: an aggregator of which all GPUs are held, and whose scheduler answers for each of the jobs.

    python -m bench.asker [--scheduler slurm] [--jobs 5000] [--jobs-a-minute 500] [--questions 8] [--json]

What asks, the word of the scheduler and the jobs of the nodes as the aggregator has them. Its commands print files:
`squeue --json` with all fields of Slurm 22.05 (2.8 kB a job), `sacct` about the jobs that ended since the last question; of PBS
`qstat` with an environment of forty variables a job and other resources used each time, and `qstat -x`; of LSF `bjobs`; of HTCondor `condor_status` and, at each question and not once a
minute, `condor_q` and `condor_history`. The figure is the CPU time of the aggregator for a question to both, all threads, median; in percent of a core at the
usual interval. What the scheduler and its commands take is not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from aggregator.assembly.scheduler_choice import poll_of, word_of
from aggregator.config import AggregatorConfig
from aggregator.impairments import Impairments
from aggregator.jobs.service import JobService
from aggregator.scheduler.listed import JobListing
from aggregator.scheduler.sacct import FIELDS
from aggregator.settings.batch import LsfAskConfig, PbsAskConfig
from aggregator.settings.condor import CondorAskConfig
from aggregator.settings.slurm import SlurmAskConfig
from bench.report import show
from telemetry.wire.jobs import Allocation, AllocationKind, Job, JobKey, NodeJobs
from tests.aggregator.fake_view import inventory

SECOND = 10**9
START = 1_795_336_000
GPUS_A_NODE, GPUS_A_JOB = 8, 2
JOBS_A_NODE = GPUS_A_NODE // GPUS_A_JOB
STRIDE = 1009
"""Places from one job that ends to the next, so that each is on another node."""
_TEXTS = (
    "admin_comment", "array_task_string", "batch_features", "burst_buffer", "burst_buffer_state", "cluster_features", "comment",
    "container", "cpus_per_tres", "dependency", "excluded_nodes", "features", "federation_origin", "het_job_id_set",
    "federation_siblings_active", "federation_siblings_viable", "licenses", "mcs_label", "memory_per_tres", "prefer",
    "required_nodes", "resv_name", "state_description", "standard_error", "standard_output", "system_comment", "tres_bind",
    "tres_freq", "tres_per_job", "tres_per_socket", "tres_per_task", "wckey",
)  # fmt: skip
_NUMBERS = (
    "accrue_time", "array_max_tasks", "deadline", "delay_boot", "derived_exit_code", "exit_code", "group_id", "last_sched_evaluation",
    "max_cpus", "max_nodes", "tasks_per_node", "tasks_per_board", "minimum_cpus_per_node", "minimum_tmp_disk_per_node",
    "preempt_time", "pre_sus_time", "priority", "resize_time", "restart_cnt", "sockets_per_board", "suspend_time", "time_minimum",
    "het_job_id", "het_job_offset", "array_job_id", "association_id", "user_id",
)  # fmt: skip
_NONE = (
    "array_task_id", "core_spec", "thread_spec", "cores_per_socket", "cpus_per_task", "cpu_frequency_minimum", "nice", "shared",
    "cpu_frequency_maximum", "cpu_frequency_governor", "tasks_per_core", "tasks_per_socket", "memory_per_node", "memory_per_cpu",
    "profile", "sockets_per_node", "threads_per_core",
)  # fmt: skip
_SAME = {
    **dict.fromkeys(_TEXTS, ""), **dict.fromkeys(_NUMBERS, 0), **dict.fromkeys(_NONE), "batch_flag": True, "contiguous": False,
    "flags": ["JOB_CPUS_SET", "JOB_WAS_RUNNING"], "show_flags": ["SHOW_ALL", "SHOW_DETAIL", "SHOW_LOCAL"], "reboot": False,
    "requeue": True, "billable_tres": 1.0, "group_name": "users", "qos": "normal", "state_reason": "None", "cluster": "lab",
    "command": "/home/u/work/train.sh --config large", "current_working_directory": "/home/u/work",
    "standard_input": "/dev/null", "partition": "gpu", "account": "physics", "job_state": "RUNNING", "time_limit": 1440,
    "node_count": 1, "tasks": 1, "cpus": 16, "tres_per_node": "gres:gpu:2", "tres_req_str": "cpu=16,mem=64G,node=1,billing=16,gres/gpu=2",
    "tres_alloc_str": "cpu=16,mem=64G,node=1,billing=16,gres/gpu=2",
}  # fmt: skip


_COMMANDS = {"slurm": ("squeue", "sacct"), "pbs": ("qstat",), "lsf": ("bjobs",), "htcondor": ("condor_status", "condor_q", "condor_history")}  # fmt: skip
_SETTINGS = {
    "slurm": AggregatorConfig(slurm=SlurmAskConfig(enabled=True, deadline=120.0)),
    "pbs": AggregatorConfig(pbs=PbsAskConfig(enabled=True, deadline=120.0)),
    "lsf": AggregatorConfig(lsf=LsfAskConfig(enabled=True, deadline=120.0)),
    "htcondor": AggregatorConfig(htcondor=CondorAskConfig(enabled=True, deadline=120.0, schedd_interval=15.0)),
}
_VARIABLES = {f"PBS_V{number}": "x" * 50 for number in range(40)}
"""Environment of a job of PBS: most of what qstat prints."""


class Asked:
    """Nodes whose jobs a scheduler knows, and the commands that it is asked by."""

    def __init__(self, folder: Path, jobs: int, scheduler: str) -> None:
        self.folder, self.scheduler = folder, scheduler
        self.at = START
        self.names = [f"n{number:05}" for number in range(jobs // JOBS_A_NODE)]
        self.gpus = {name: inventory(name, gpus=GPUS_A_NODE, links=0).gpus for name in self.names}
        self.held = [(number, START) for number in range(1, len(self.names) * JOBS_A_NODE + 1)]
        self.newest, self.turn, self.version = len(self.held), 0, 0
        settings = _SETTINGS[scheduler]
        self.jobs = JobService(word=word_of(settings, self.gpus.__getitem__, self.wall))
        poll = poll_of(settings, Impairments(), self.jobs, self._hear, lambda: self.wall)
        assert poll is not None
        self.poll = poll
        for name in _COMMANDS[scheduler]:
            path = folder / name
            path.write_text(
                f'#!/bin/sh\n[ "$1" = -x ] && exec cat {folder}/{name}-x.out\nexec cat {folder}/{name}.out\n'
            )
            path.chmod(0o755)
        self.answer([])

    @property
    def wall(self) -> int:
        """ns since 1970."""
        return self.at * SECOND

    def turn_over(self, count: int) -> None:
        """End some jobs and begin others in their places; the nodes and Slurm know of both."""
        ended, changed = [], set()
        for _ in range(count):
            place = self.turn * STRIDE % len(self.held)
            self.turn += 1
            ended.append((place, *self.held[place]))
            self.newest += 1
            self.held[place] = self.newest, self.at
            changed.add(place // JOBS_A_NODE)
        self.tell(changed, ended)
        self.answer(ended)

    def tell(self, nodes: set[int], ended: Sequence[tuple[int, int, int]]) -> None:
        """Send the lists of some nodes."""
        over: dict[int, list[Allocation]] = {}
        for place, number, begin in ended:
            over.setdefault(place // JOBS_A_NODE, []).extend(self._rows(place, number, begin, self.wall))
        self.version += 1
        for node in nodes:
            name = self.names[node]
            rows = over.get(node, [])
            for place in range(node * JOBS_A_NODE, (node + 1) * JOBS_A_NODE):
                rows = [*rows, *self._rows(place, *self.held[place], 0)]
            jobs = {row.job: Job(key=row.job) for row in rows}
            message = NodeJobs(
                session=7, version=self.version, at=self.wall, jobs=tuple(jobs.values()), allocations=tuple(rows)
            )
            known = {gpu.uuid for gpu in self.gpus[name]}
            self.jobs.receive(name, msgspec.json.encode(message), known, self.wall)

    def answer(self, ended: Sequence[tuple[int, int, int]]) -> None:
        """Write what the commands print."""
        if self.scheduler == "pbs":
            self._write("qstat", [self._qstat(place, *its) for place, its in enumerate(self.held)])
            self._write("qstat-x", [self._qstat(*its, over=True) for its in ended])
            return
        if self.scheduler == "htcondor":
            for name, ads in (
                ("condor_status", [self._slot(place, *its) for place, its in enumerate(self.held)]),
                ("condor_q", [self._queued(*its) for its in self.held]),
                ("condor_history", [self._queued(*its, over=True) for _, *its in ended]),
            ):
                text = "\n,\n".join(json.dumps(each, indent=2) for each in ads)
                (self.folder / f"{name}.out").write_text(f"[\n{text}\n]\n")
            return
        if self.scheduler == "lsf":
            found = [self._bjobs(place, *its) for place, its in enumerate(self.held)]
            found += [self._bjobs(*its, over=True) for its in ended]
            (self.folder / "bjobs.out").write_text(
                json.dumps({"COMMAND": "bjobs", "JOBS": len(found), "RECORDS": found}, indent=2)
            )
            return
        records = [self._record(place, *its) for place, its in enumerate(self.held)]
        (self.folder / "squeue.out").write_text(json.dumps({"errors": [], "jobs": records}))
        lines = []
        for _, number, begin in ended:
            its = {
                "JobIDRaw": str(number), "Cluster": "lab", "State": "COMPLETED", "Submit": str(begin - 60), "Start": str(begin),
                "End": str(self.at), "ExitCode": "0:0", "Account": "physics", "User": f"u{number % 40}", "JobName": f"train-{number}",
                "Eligible": str(begin - 60), "TimelimitRaw": "1440",
            }  # fmt: skip
            lines.append("\x1f".join(its[name] for name in FIELDS))
        (self.folder / "sacct.out").write_text("".join(f"{line}\n" for line in lines))

    def _write(self, name: str, jobs: Sequence[tuple[str, dict[str, Any]]]) -> None:
        answer = {"timestamp": self.at, "pbs_version": "23.06.06", "pbs_server": "lab", "Jobs": dict(jobs)}
        (self.folder / f"{name}.out").write_text(json.dumps(answer, indent=4))

    def _qstat(self, place: int, number: int, begin: int, *, over: bool = False) -> tuple[str, dict[str, Any]]:
        node = self.names[place // JOBS_A_NODE]
        end = {"Exit_status": 0, "obittime": time.asctime(time.gmtime(self.at))} if over else {}
        return f"{number}.lab", {
            "Job_Name": f"train-{number}", "Job_Owner": f"u{number % 40}@login", "job_state": "F" if over else "R", "queue": "gpu",
            "resources_used": {"cpupercent": self.at % 100, "walltime": str(self.at - begin)}, "server": "lab", "run_count": 1,
            "ctime": time.asctime(time.gmtime(begin - 60)), "stime": time.asctime(time.gmtime(begin)), "project": "physics",
            "exec_host": f"{node}/0*16", "exec_vnode": f"({node}:ncpus=16:ngpus={GPUS_A_JOB})", "Variable_List": _VARIABLES,
            "Resource_List": {"ncpus": 16, "ngpus": GPUS_A_JOB, "nodect": 1, "walltime": "24:00:00"}, **end,
        }  # fmt: skip

    def _bjobs(self, place: int, number: int, begin: int, *, over: bool = False) -> dict[str, str]:
        node, first = self.names[place // JOBS_A_NODE], place % JOBS_A_NODE * GPUS_A_JOB
        submitted, started, finished = (
            time.strftime("%b %e %H:%M:%S %Y", time.gmtime(each)) for each in (begin - 60, begin, self.at)
        )
        return {
            "JOBID": str(number), "JOBINDEX": "0", "STAT": "DONE" if over else "RUN", "USER": f"u{number % 40}", "QUEUE": "gpu",
            "PROJ_NAME": "physics", "JOB_NAME": f"train-{number}", "EXEC_HOST": f"16*{node}", "SUBMIT_TIME": submitted,
            "START_TIME": started, "FINISH_TIME": f"{finished} L", "RUNTIMELIMIT": "1440.0", "EXIT_CODE": "", "EXIT_REASON": "",
            "GPU_NUM": str(GPUS_A_JOB), "GPU_ALLOC": f"{node}:{first},{first + 1}",
        }  # fmt: skip

    def _slot(self, place: int, number: int, begin: int) -> dict[str, Any]:
        node, first = self.names[place // JOBS_A_NODE], place % JOBS_A_NODE * GPUS_A_JOB
        gpus = self.gpus[node][first : first + GPUS_A_JOB]
        return {
            "Name": f"slot1_{place % JOBS_A_NODE}@{node}", "Machine": node, "SlotType": "Dynamic", "Activity": "Busy",
            "JobId": f"{number}.0", "GlobalJobId": f"lab#{number}.0#{begin - 60}", "JobStart": begin, "RemoteUser": f"u{number % 40}@lab",
            "AssignedGPUs": ",".join(gpu.uuid for gpu in gpus),
        }  # fmt: skip

    def _queued(self, number: int, begin: int, *, over: bool = False) -> dict[str, Any]:
        end = {"CompletionDate": self.at, "ExitBySignal": False, "ExitCode": 0} if over else {}
        return {
            "GlobalJobId": f"lab#{number}.0#{begin - 60}", "Owner": f"u{number % 40}", "AcctGroup": "physics",
            "JobBatchName": f"train-{number}", "Cmd": "/home/u/work/train.sh", "QDate": begin - 60, "JobStatus": 4 if over else 2,
            "JobCurrentStartDate": begin, "EnteredCurrentStatus": begin, "RequestGPUs": GPUS_A_JOB, "AllowedJobDuration": 86_400, **end,
        }  # fmt: skip

    def _rows(self, place: int, number: int, begin: int, end: int) -> list[Allocation]:
        node, first = self.names[place // JOBS_A_NODE], place % JOBS_A_NODE * GPUS_A_JOB
        if self.scheduler == "htcondor":
            slot = JobKey("htcondor", "", f"slot1_{place % JOBS_A_NODE}@{node}")
            return [
                Allocation(
                    job=slot, gpu=gpu.uuid, kind=AllocationKind.USED, begin=begin * SECOND, end=end, source="process"
                )
                for gpu in self.gpus[node][first : first + GPUS_A_JOB]
            ]
        key = JobKey(self.scheduler, "lab" if self.scheduler != "lsf" else "", str(number))
        return [
            Allocation(job=key, gpu=gpu.uuid, begin=begin * SECOND, end=end, source="slurm")
            for gpu in self.gpus[node][first : first + GPUS_A_JOB]
        ]

    def _record(self, place: int, number: int, begin: int) -> dict[str, Any]:
        node, first = self.names[place // JOBS_A_NODE], place % JOBS_A_NODE * GPUS_A_JOB
        return _SAME | {
            "job_id": number, "name": f"train-{number}", "user_name": f"u{number % 40}", "nodes": node, "batch_host": node,
            "submit_time": begin - 60, "eligible_time": begin - 60, "start_time": begin, "end_time": begin + 86_400,
            "gres_detail": [f"gpu:h100:2(IDX:{first}-{first + 1})"],
            "job_resources": {
                "nodes": node, "allocated_cores": 16, "allocated_hosts": 1, "allocated_nodes": [
                    {"sockets": {"0": {"cores": dict.fromkeys(map(str, range(16)), "allocated")}}, "nodename": node}
                ]
            },
        }  # fmt: skip

    async def _hear(self, listing: JobListing) -> Sequence[str]:
        for _ in self.jobs.hear(listing, float(self.at - START), self.wall):
            await asyncio.sleep(0)
        return self.jobs.unlisted.problems()

    @property
    def accounts(self) -> int:
        """Jobs in memory of which the accounting has told."""
        return sum(each.account is not None for each in self.jobs.ledger.jobs.values())


async def _ask(asked: Asked, changed: int, questions: int, interval: float) -> dict[str, Any]:
    """Ask, while jobs come and go."""
    asked.tell(set(range(len(asked.names))), [])
    await asked.poll.ask()
    spent, seconds = [], []
    for _ in range(questions):
        asked.at += round(interval)
        asked.turn_over(changed)
        cpu, wall = time.process_time(), time.perf_counter()
        await asked.poll.ask()
        spent.append(time.process_time() - cpu)
        seconds.append(time.perf_counter() - wall)
    middle = statistics.median(spent)
    return {
        "states": {each.name: f"{each.state} {each.message}".strip() for each in asked.poll.states()},
        "answer_megabytes": (asked.folder / f"{_COMMANDS[asked.scheduler][0]}.out").stat().st_size / 1e6,
        "accounts_a_question": asked.accounts / questions,
        "cpu_seconds_a_question": middle,
        "wall_seconds_a_question": statistics.median(seconds),
        "cpu_percent": 100 * middle / interval,
    }


def measure(jobs: int, jobs_a_minute: float, questions: int, scheduler: str = "slurm") -> dict[str, Any]:
    """Ask so often about so many jobs that run, some of which end between two questions."""
    interval = getattr(_SETTINGS[scheduler], scheduler).interval
    changed = round(jobs_a_minute * interval / 60)
    before = os.environ["PATH"]
    with tempfile.TemporaryDirectory() as name:
        os.environ["PATH"] = f"{name}:{before}"
        try:
            asked = Asked(Path(name), jobs, scheduler)
            found = asyncio.run(_ask(asked, changed, questions, interval))
        finally:
            os.environ["PATH"] = before
    return {"jobs": len(asked.held), "gpus": len(asked.names) * GPUS_A_NODE, "changed": changed, "questions": questions, **found}  # fmt: skip


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.asker", description=__doc__)
    parser.add_argument("--scheduler", choices=_SETTINGS, default="slurm")
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--jobs-a-minute", type=float, default=500)
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    show(measure(options.jobs, options.jobs_a_minute, options.questions, options.scheduler), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
