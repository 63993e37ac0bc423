"""Questions to a scheduler's commands that fail, hang, refuse or print without end: real processes, in place of
Slurm's."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from aggregator.impairments import Impairments
from aggregator.scheduler.command import CommandError, output_of
from aggregator.scheduler.listed import JobListing
from aggregator.scheduler.poll import SlurmPoll
from aggregator.settings.slurm import SlurmAskConfig
from api.jobs import JobAccount
from telemetry.errors import ConfigError
from telemetry.wire.jobs import JobKey
from tests.aggregator.test_scheduler_forms import record
from tests.endtoend.node import runs
from tests.kit.waiting import until

KEY = JobKey("slurm", "lab", "7")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose commands go before all others."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def command(folder: Path, name: str, script: str) -> None:
    """Write a command."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


class Heard:
    """What a poll hands on."""

    def __init__(self, **settings: object) -> None:
        self.listings: list[JobListing] = []
        self.accounts: dict[JobKey, JobAccount] = {}
        self.ended: list[JobKey] = []
        self.impairments = Impairments()
        config = SlurmAskConfig(enabled=True, **settings)  # type: ignore[arg-type]
        self.poll = SlurmPoll(config, self.impairments, self._hear, lambda: self.ended, self._settle)

    async def _hear(self, listing: JobListing) -> Sequence[str]:
        self.listings.append(listing)
        return [f"{len(listing.jobs)} heard"]

    def _settle(self, accounts: Mapping[JobKey, JobAccount]) -> None:
        self.accounts.update(accounts)

    async def ask(self) -> dict[str, tuple[str, str]]:
        """Ask once; return state and message of each source."""
        await self.poll.ask()
        return {each.name: (each.state, each.message) for each in self.poll.states()}

    def faults(self) -> dict[str, str]:
        """Return what is impaired."""
        return {each.part: each.reason for each in self.impairments.current()}


def lists(folder: Path, *records: dict[str, object]) -> None:
    """Write a squeue that prints jobs."""
    (folder / "jobs.json").write_text(json.dumps({"jobs": records, "errors": []}))
    command(folder, "squeue", f'[ "$1" = --json ] && cat {folder}/jobs.json')


async def test_an_answer_is_handed_on_and_a_fault_is_a_state_until_the_next_one(folder: Path) -> None:
    lists(folder, record())
    command(folder, "sacct", "exit 0")
    heard = Heard()
    assert await heard.ask() == {"squeue": ("reading", "1 heard"), "sacct": ("reading", "")}
    assert ([each.key for each in heard.listings[0].jobs], heard.faults()) == ([KEY], {})
    command(
        folder,
        "squeue",
        'echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1',
    )
    state, message = (await heard.ask())["squeue"]
    assert (state, "Unable to contact slurm controller" in message) == ("failing", True)
    assert heard.faults() == {"scheduler/squeue": message}
    assert len(heard.listings) == 1
    lists(folder)
    assert (await heard.ask())["squeue"] == ("reading", "0 heard")


@pytest.mark.parametrize(
    ("script", "state", "words"),
    [
        ("echo 'squeue: error: Munge decode failed: Invalid credential' >&2; exit 1", "no permission", "Munge decode"),
        ("echo 'slurm_load_jobs error: Access/permission denied' >&2; exit 1", "no permission", "permission denied"),
        ("exit 7", "failing", "it ended with 7"),
        ("echo nonsense", "failing", "prints no JSON"),
        ("kill -9 $$", "failing", "it ended with -9"),
    ],
)
async def test_each_fault_has_its_state(folder: Path, script: str, state: str, words: str) -> None:
    command(folder, "squeue", script)
    heard = Heard(accounting=False)
    found = await heard.ask()
    assert list(found) == ["squeue"]
    assert (found["squeue"][0], words in found["squeue"][1]) == (state, True), found
    assert words in heard.faults()["scheduler/squeue"]


async def test_without_slurm_the_source_is_absent_and_impaired(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    heard = Heard()
    found = await heard.ask()
    assert found["squeue"] == ("absent", "squeue is not on the PATH of the aggregator")
    assert list(heard.faults()) == ["scheduler/squeue"], "nobody needs an accounting"


async def test_a_command_that_hangs_is_killed_with_its_children(folder: Path) -> None:
    command(folder, "squeue", f"sleep 600 & echo $! > {folder}/child; wait")
    heard = Heard(deadline=0.5, accounting=False)
    while not (folder / "child").exists() or not (folder / "child").read_text():
        assert (await heard.ask())["squeue"] == ("failing", "squeue has not answered in 0.5 s")
    child = int((folder / "child").read_text())
    await until(lambda: not runs(child))


async def test_what_prints_without_end_is_stopped(folder: Path) -> None:
    command(folder, "squeue", "cat /dev/zero")
    with pytest.raises(CommandError, match="prints more than 1,000,000 bytes"):
        await output_of(("squeue",), {}, 60, most=1_000_000)
    command(folder, "squeue", "cat /dev/zero >&2 & echo done; kill $!; exit 0")
    assert await output_of(("squeue",), {}, 60) == b"done\n"


async def test_a_slurm_without_json_is_asked_by_scontrol(folder: Path) -> None:
    command(folder, "squeue", "echo \"squeue: unrecognized option '--json'\" >&2; exit 1")
    block = (
        "JobId=7 JobName=train\n   UserId=ada(1000) GroupId=ada(1000) MCS_label=N/A\n   Account=a\n"
        "   JobState=RUNNING Reason=None\n   Restarts=0 ExitCode=0:0\n   SubmitTime=1790000000 EligibleTime=1\n"
        "   StartTime=1790000001 EndTime=1790009999\n   Partition=gpu AllocNode:Sid=h:1\n   NodeList=n1\n   NumNodes=1 NumCPUs=1\n"
        "     Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:h100:2(IDX:0-1)\n   OverSubscribe=OK\n   Command=/x\n   TresPerNode=gres:gpu:2\n"
    )
    (folder / "jobs.txt").write_text(block)
    command(
        folder,
        "scontrol",
        f'[ "$2" = config ] && echo "ClusterName = lab" && exit; [ "$SLURM_TIME_FORMAT" = %s ] && cat {folder}/jobs.txt',
    )
    heard = Heard(accounting=False)
    assert (await heard.ask())["squeue"] == ("reading", "1 heard")
    (job,) = heard.listings[0].jobs
    assert (job.key, job.gpus, job.job.begin) == (KEY, {"n1": (0, 1)}, 1790000001 * 10**9)


async def test_the_accounting_is_asked_about_runs_that_have_ended_and_no_others(folder: Path) -> None:
    lists(folder)
    command(
        folder,
        "sacct",
        f'echo "$@" >> {folder}/asked; printf "7\\037lab\\037FAILED\\0371790000000\\0371790000001\\0371790000009\\0373:0\\037a\\037ada\\037x\\0371790000000\\03760\\n"',
    )
    heard = Heard()
    heard.ended = [KEY]
    assert (await heard.ask())["sacct"] == ("reading", "")
    assert heard.accounts[KEY] == JobAccount(
        state="FAILED",
        begin=1790000001 * 10**9,
        end=1790000009 * 10**9,
        exit_code=3,
        submitted=1790000000 * 10**9,
        eligible=1790000000 * 10**9,
        time_limit_seconds=3600,
    )
    assert "--jobs=7" in (folder / "asked").read_text()
    heard.ended = []
    await heard.ask()
    assert len((folder / "asked").read_text().splitlines()) == 1
    command(folder, "sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    heard.ended = [KEY]
    assert (await heard.ask())["sacct"] == ("absent", "sacct: Slurm accounting storage is disabled")
    assert heard.faults() == {}
    command(folder, "sacct", "echo 'sacct: error: slurmdbd: Connection refused' >&2; exit 1")
    assert (await heard.ask())["sacct"][0] == "failing"
    assert list(heard.faults()) == ["scheduler/sacct"]


@pytest.mark.parametrize("settings", [{"interval": 0.5}, {"interval": 601.0}, {"deadline": 0.0}])
def test_settings_that_cannot_work_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"aggregator.slurm.{next(iter(settings))}"):
        SlurmAskConfig(**settings).check("aggregator.slurm")  # type: ignore[arg-type]
