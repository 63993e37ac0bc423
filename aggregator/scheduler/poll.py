"""Asks a scheduler again and again: once for the cluster, never twice at once.

Of Slurm, `squeue` is asked at each interval, whatever runs; `sacct` only about jobs of ours that have ended. Of HTCondor
it is `condor_status`, and once a minute `condor_q` and `condor_history` of the schedds whose jobs are ours; of LSF `bjobs`, of PBS
`qstat`, and `qstat -x` about those that have ended. A source that fails, refuses or is slow is a state, and the others go on.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from aggregator.impairments import Impairments
from aggregator.scheduler import condor, condor_jobs, lsf, pbs, sacct, scontrol, squeue
from aggregator.scheduler.command import CommandError, output_of
from aggregator.scheduler.listed import JobListing, ListedJob
from aggregator.scheduler.names import CONDOR as CONDOR_NAMES
from aggregator.scheduler.names import LSF, PBS, SchedulerNames
from aggregator.scheduler.tables import JobForm, TableReader, accounts_of
from aggregator.settings.batch import LsfAskConfig, PbsAskConfig
from aggregator.settings.condor import CondorAskConfig
from aggregator.settings.slurm import LONGEST, SlurmAskConfig
from api.jobs import JobAccount
from telemetry.wire.jobs import JobKey, JobSourceState

RULE = "scheduler_failing"
SQUEUE, SACCT, CONDOR = "squeue", "sacct", CONDOR_NAMES.source
_NO_JSON = "unrecognized option"
_NO_ACCOUNTING = {SACCT: re.compile("accounting storage is disabled"), PBS.accounting: pbs.NO_HISTORY}
"""Words of a source that the site does not have: it is absent."""
PATIENT, DOUBLINGS = 3, 2
"""Questions in a row without an answer after which the next ones come later, each in twice the time of the one before, and how
often that is doubled."""
_TIMES = {"SLURM_TIME_FORMAT": "%s"}


class SchedulerPoll:
    """The questions to the scheduler of one aggregator."""

    def __init__(
        self,
        questions: Mapping[str, Callable[[], Awaitable[str | None]]],
        interval: float,
        impairments: Impairments,
        wall_ns: Callable[[], int],
    ) -> None:
        """`questions`: each source, the first of which has to be there; it returns what is wrong with an answer, None where
        it did not ask this time, and raises `CommandError` or `ValueError` where there is no answer."""
        self._questions = questions
        self._interval = interval
        self._impairments = impairments
        self._wall_ns = wall_ns
        self._failed = 0
        """Questions in a row to the first source without an answer."""
        self._states = {name: JobSourceState(name=name, state="absent", message="not asked yet") for name in questions}

    def states(self) -> list[JobSourceState]:
        """Return the state of each source."""
        return list(self._states.values())

    async def run(self) -> None:
        """Ask until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await self.ask()
            await asyncio.sleep(max(0.0, began + self.pause - loop.time()))

    @property
    def pause(self) -> float:
        """Seconds between the last question and the next one."""
        longer = self._interval * (1 << min(max(0, self._failed - PATIENT), DOUBLINGS))
        return max(self._interval, min(longer, LONGEST))

    async def ask(self) -> None:
        """Ask each source once."""
        for name, question in self._questions.items():
            await self._note(name, question)
        first = next(iter(self._questions))
        self._failed = 0 if self._states[first].state == "reading" else self._failed + 1
        self._impairments.update(
            RULE,
            {
                f"scheduler/{each.name}": each.message
                for each in self._states.values()
                if each.state in {"failing", "no permission"} or (each.state == "absent" and each.name == first)
            },
        )

    async def _note(self, name: str, ask: Callable[[], Awaitable[str | None]]) -> None:
        state, message = "reading", ""
        try:
            answer = await ask()
            if answer is None:
                return
            message = answer
        except CommandError as error:
            state, message = error.state, str(error)
        except ValueError as error:
            state, message = "failing", str(error)
        if name in _NO_ACCOUNTING and _NO_ACCOUNTING[name].search(message):
            state = "absent"
        before = self._states[name]
        same = (before.state, before.message) == (state, message)
        since = before.since if same and before.since else self._wall_ns()
        self._states[name] = replace(before, state=state, message=message, since=since)


FAILED_SECONDS = 300
"""Least time between two questions to a schedd that did not answer the first one."""
MOST_SCHEDDS, MOST_PAST = 8, 200
"""Schedds of one question, which take turns, and jobs of one question to a history."""


class CondorPoll(SchedulerPoll):
    """The questions to the pool of HTCondor and to its schedds."""

    def __init__(
        self,
        config: CondorAskConfig,
        impairments: Impairments,
        hear: Callable[[JobListing], Awaitable[Sequence[str]]],
        ended: Callable[[], Collection[JobKey]] = tuple,
        settle: Callable[[Mapping[JobKey, JobAccount]], None] = lambda _: None,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`hear`, `ended`, `settle`: as of `SlurmPoll`."""
        questions: dict[str, Callable[[], Awaitable[str | None]]] = {CONDOR: self._ask_pool}
        if config.queue:
            questions[condor_jobs.QUEUE] = self._ask_queues
        if config.accounting:
            questions[CONDOR_NAMES.accounting] = self._ask_histories
        super().__init__(questions, config.interval, impairments, wall_ns)
        self._config = config
        self._hear, self._ended, self._settle = hear, ended, settle
        file = config.conf_file
        self._environment = {} if file is None else {"CONDOR_CONFIG": str(file)}
        self._schedds: list[str] = []
        """Names of the schedds whose jobs the pool had last."""
        self._queues: dict[str, tuple[TableReader, Sequence[ListedJob]]] = {}
        """Newest answer of each schedd."""
        self._next = dict.fromkeys(questions, 0)
        """When a source is to be asked again at the earliest, ns since 1970."""
        self._turn = dict.fromkeys(questions, 0)
        self._failing: dict[str, dict[str, _Failed]] = {name: {} for name in questions}
        """Schedds that gave no answer, by source."""

    async def _ask_pool(self) -> str:
        at = self._wall_ns()
        output = await self._output(condor.command_of(self._config.pool))
        listing = await asyncio.to_thread(condor.listing_of, output, at)
        self._schedds = sorted({each.key.cluster for each in listing.jobs})
        return "; ".join([*listing.problems[:3], *await self._hear(listing)])

    async def _ask_queues(self) -> str | None:
        at = self._wall_ns()
        known = {*self._schedds, *(key.cluster for key in self._ended())}
        commands = {name: condor_jobs.queue_command(name, self._config.pool) for name in known}
        answers = await self._each(condor_jobs.QUEUE, commands)
        if answers is None:
            return None
        problems = answers.problems
        for name, output in answers.outputs.items():
            reader, _ = self._queues.get(name, (TableReader(condor_jobs.TABLE), ()))
            try:
                listing = await asyncio.to_thread(reader.listing_of, output, at)
            except ValueError as error:
                problems.append(f"{name}: {error}")
                continue
            problems += listing.problems
            self._queues[name] = reader, listing.jobs
        left = {name: its for name, its in self._queues.items() if name in known}
        if answers.outputs or len(left) < len(self._queues):
            self._queues = left
            jobs = [each for _, its in left.values() for each in its]
            await self._hear(JobListing(at=at, cluster="", jobs=jobs, queue=True))
        return "; ".join(problems[:3])

    async def _ask_histories(self) -> str | None:
        queued = {each.key for _, jobs in self._queues.values() for each in jobs}
        ended: dict[str, list[str]] = {}
        for key in sorted(self._ended()):
            if key.cluster and key not in queued:
                ended.setdefault(key.cluster, []).append(key.id)
        pool = self._config.pool
        commands = {name: condor_jobs.history_command(name, pool, ids[-MOST_PAST:]) for name, ids in ended.items()}
        answers = await self._each(CONDOR_NAMES.accounting, commands)
        if answers is None:
            return None
        problems = answers.problems
        for name, output in answers.outputs.items():
            try:
                found = await asyncio.to_thread(accounts_of, condor_jobs.TABLE, output, self._wall_ns(), dated=False)
            except ValueError as error:
                problems.append(f"{name}: {error}")
                continue
            self._settle({key: its for key, its in found.items() if key.cluster == name and key.id in ended[name]})
        return "; ".join(problems[:3])

    async def _each(self, source: str, commands: Mapping[str, Sequence[str]]) -> _Answers | None:
        """Return what schedds print, several at once; None where it is too early to ask, or nothing to ask for. Raises
        `CommandError` where none of them gives an answer."""
        now = self._wall_ns()
        names = [name for name in sorted(commands) if condor_jobs.is_schedd(name)]
        failed = {name: its for name, its in self._failing[source].items() if name in names}
        self._failing[source] = failed
        if not names and self._states[source].state != "absent":  # what was wrong, or listed, is so no more
            return _Answers({}, [])
        if not names or now < self._next[source]:
            return None
        self._next[source] = now + int(self._config.schedd_interval * 1e9)
        due = [name for name in names if name not in failed or failed[name].again <= now]
        turn = self._turn[source] = (self._turn[source] + MOST_SCHEDDS) % max(len(due), 1)
        due = [*due[turn:], *due[:turn]][:MOST_SCHEDDS]
        found = await asyncio.gather(*(self._output(commands[name]) for name in due), return_exceptions=True)
        outputs = dict[str, bytes]()
        for name, each in zip(due, found, strict=True):
            if isinstance(each, CommandError):
                again = now + int(max(FAILED_SECONDS, self._config.schedd_interval) * 1e9)
                failed[name] = _Failed(again, each.state, f"{name}: {each}")
            elif isinstance(each, BaseException):
                raise each
            else:
                outputs[name] = each
                failed.pop(name, None)
        if len(failed) == len(names):
            first = failed[names[0]]
            raise CommandError(first.state, first.message)
        return _Answers(outputs, [its.message for _, its in sorted(failed.items())])

    async def _output(self, command: Sequence[str]) -> bytes:
        return await output_of(command, self._environment, self._config.deadline)


class _Answers(NamedTuple):
    """Answers of some schedds."""

    outputs: dict[str, bytes]
    """By the name of the schedd."""
    problems: list[str]
    """Of those without one, in a line each."""


class _Failed(NamedTuple):
    """A schedd that gave no answer."""

    again: int
    """When it is to be asked again, ns since 1970."""
    state: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuestions:
    """How a scheduler is asked whose jobs are read by a table."""

    names: SchedulerNames
    table: JobForm
    commands: Sequence[Sequence[str]]
    """The question about all jobs, and others for releases that don't know it."""
    unknown: re.Pattern[str] | None = None
    """Words of a release that does not know the first one."""
    no_jobs: re.Pattern[str] | None = None
    """Words for that there is no job, with which the command fails."""
    environment: Mapping[str, str] = field(default_factory=dict)
    ended: Callable[[Iterable[str]], Sequence[str]] | None = None
    """Returns the question about jobs that have ended by their ids; None where the first answer has them."""


PBS_QUESTIONS = TableQuestions(
    names=PBS,
    table=pbs.TABLE,
    commands=(pbs.COMMAND,),
    no_jobs=pbs.UNKNOWN,
    environment=pbs.ENVIRONMENT,
    ended=pbs.ended_command,
)
LSF_QUESTIONS = TableQuestions(
    names=LSF,
    table=lsf.TABLE,
    commands=(lsf.COMMAND, lsf.OLD_COMMAND),
    unknown=lsf.NO_FIELD,
    no_jobs=lsf.NO_JOBS,
    environment=lsf.ENVIRONMENT,
)
MOST_ENDED = 200
"""Jobs of one question about those that have ended."""


class TablePoll(SchedulerPoll):
    """The questions to a scheduler whose jobs are read by a table."""

    def __init__(
        self,
        questions: TableQuestions,
        config: PbsAskConfig | LsfAskConfig,
        impairments: Impairments,
        hear: Callable[[JobListing], Awaitable[Sequence[str]]],
        ended: Callable[[], Collection[JobKey]],
        settle: Callable[[Mapping[JobKey, JobAccount]], None],
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`hear`, `ended`, `settle`: as of `SlurmPoll`."""
        asked: dict[str, Callable[[], Awaitable[str | None]]] = {questions.names.source: self._ask_all}
        if questions.ended is not None and config.accounting:
            asked[questions.names.accounting] = self._ask_ended
        super().__init__(asked, config.interval, impairments, wall_ns)
        self._asked, self._config = questions, config
        self._hear, self._ended, self._settle = hear, ended, settle
        self._environment = {**questions.environment, **config.environment}
        self._commands = list(questions.commands)
        self._reader = TableReader(questions.table)

    async def _ask_all(self) -> str:
        at = self._wall_ns()
        try:
            output = await self._output(self._commands[0])
        except CommandError as error:
            unknown = self._asked.unknown
            if unknown is None or len(self._commands) == 1 or not unknown.search(str(error)):
                raise
            del self._commands[0]
            output = await self._output(self._commands[0])
        listing = await asyncio.to_thread(self._reader.listing_of, output, at)
        return "; ".join([*listing.problems[:3], *await self._hear(listing)])

    async def _ask_ended(self) -> str:
        keys = sorted(self._ended())[-MOST_ENDED:]
        ids = dict.fromkeys(f"{key.id}.{key.cluster}" if key.cluster else key.id for key in keys)
        reading = self._states[self._asked.names.accounting].state == "reading"
        if self._asked.ended is not None and (ids or not reading):
            output = await self._output(self._asked.ended(ids or ["1"]))  # whether it answers
            self._settle(accounts_of(self._asked.table, output, self._wall_ns()))
        return ""

    async def _output(self, command: Sequence[str]) -> bytes:
        config = self._config
        return await output_of(command, self._environment, config.deadline, despite=self._asked.no_jobs)


class SlurmPoll(SchedulerPoll):
    """The questions to Slurm."""

    def __init__(
        self,
        config: SlurmAskConfig,
        impairments: Impairments,
        hear: Callable[[JobListing], Awaitable[Sequence[str]]],
        ended: Callable[[], Collection[JobKey]],
        settle: Callable[[Mapping[JobKey, JobAccount]], None],
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`hear` gets each listing and returns what does not fit in it; `ended` returns runs that have ended and
        have no account yet; `settle` gets accounts."""
        questions: dict[str, Callable[[], Awaitable[str | None]]] = {SQUEUE: self._ask_controller}
        if config.accounting:
            questions[SACCT] = self._ask_accounting
        super().__init__(questions, config.interval, impairments, wall_ns)
        self._config = config
        self._hear, self._ended, self._settle = hear, ended, settle
        self._environment = dict(_TIMES)
        if config.conf_file is not None:
            self._environment["SLURM_CONF"] = str(config.conf_file)
        self._has_json = True
        self._reader = squeue.SqueueReader()

    async def _ask_controller(self) -> str:
        listing = await self._listing()
        unfit = await self._hear(listing)
        return "; ".join([*listing.problems[:3], *unfit])

    async def _listing(self) -> JobListing:
        at = self._wall_ns()
        if self._has_json:
            try:
                output = await self._output(squeue.COMMAND)
            except CommandError as error:
                if _NO_JSON not in str(error):
                    raise
                self._has_json = False
            else:
                return await asyncio.to_thread(self._reader.listing_of, output, at)
        output = await self._output(scontrol.COMMAND)
        config = await self._output(("scontrol", "show", "config"))
        return await asyncio.to_thread(
            scontrol.listing_of, output.decode("utf-8", "replace"), scontrol.cluster_of(config), at
        )

    async def _ask_accounting(self) -> str:
        jobs = sorted({key.id for key in self._ended()}, key=int)[-sacct.MOST_JOBS :]
        if jobs:
            output = await self._output(sacct.command_of(jobs))
            self._settle(sacct.accounts_of(output.decode("utf-8", "replace"), self._wall_ns()))
        elif self._states[SACCT].state != "reading":
            await self._output(sacct.command_of(["1"]))  # whether it answers
        return ""

    async def _output(self, command: Sequence[str]) -> bytes:
        return await output_of(command, self._environment, self._config.deadline)
