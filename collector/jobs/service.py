"""The part of a collector that knows who uses its GPUs: asks all sources of jobs, merges, and publishes.

Everything that may block runs in threads, one question to each source at a time. A source that hangs is a
state, and the others go on.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from collector.jobs.clock import StepFreeClock, without_step
from collector.jobs.config import JobsConfig
from collector.jobs.memory import JobsFile, JobsMemory, boot_id
from collector.jobs.merge import PROCESSES, JobMerge, OpenAllocation
from collector.jobs.message import JobsMessage
from collector.jobs.processes import CGROUPS, NO_PERMISSION, OTHER_NAMESPACE, FoundProcesses, ProcReader
from collector.jobs.source import JobsAnswer, JobsInput, JobSource, KnowsJobs
from collector.jobs.sources import job_sources
from collector.jobs.users import PersonFilter, UserNames
from collector.source import ListsProcesses, Source
from telemetry.runtime.worker_threads import WorkerThreads
from telemetry.wire import inventory as messages
from telemetry.wire.jobs import JobSourceState, NodeJobs

log = logging.getLogger(__name__)

LOOP_SECONDS = 1.0
"""Seconds between two looks while something is awaited; also the shortest time between two messages."""
LISTED_SECONDS = 0.25
"""Seconds after the time of a tick in which the driver has listed the processes, as a rule."""
FIND_SECONDS = 0.2
"""Seconds for which a look waits for the owners of processes; those that come later are for the next."""
FIRST_SECONDS = 2.0
"""Seconds for which a new process waits for the sources: its cgroup alone does not name the run of its job."""
ABSENT_SECONDS = 15.0
"""Seconds at least between two questions to a scheduler that is not there; a new process asks it at once."""
HUNG_SECONDS = 15.0
"""Seconds without an answer after which a source counts as failing."""
STALE_LOOKS = 3.0
"""Looks at its processes that a GPU may miss before they count as unknown."""
SAVE_SECONDS = 5.0
"""Seconds between two notes on disk that somebody looked."""
_SECOND = 1_000_000_000
FOREIGN = (
    "kilowatch runs in a PID namespace of its own, where the driver's PIDs mean other processes: run the "
    "collector on the host, or with hostPID: true."
)
HIDEPID = (
    "/proc hides the processes of other users (hidepid): give the collector the group of its gid=, "
    "SupplementaryGroups= in the unit."
)
REFUSED = "The driver does not list the processes of a GPU to this user: with MIG only root may see them."


class _Question:
    """A source that is asked again and again, in a thread."""

    def __init__(self, source: JobSource) -> None:
        self.source = source
        self.answer: JobsAnswer | None = None
        self.state = JobSourceState(name=source.name, state="absent", message="not asked yet")
        self.task: asyncio.Task[JobsAnswer] | None = None
        self.began = self.due = 0.0
        self.asked = -math.inf
        """When the question of the newest answer was asked, monotonic seconds."""

    def has_come(self, now: float) -> bool:
        """Return whether there is an answer to take in, a question to ask or a hang to notice."""
        if self.task is None:
            return now >= self.due
        return self.task.done() or now - self.began > HUNG_SECONDS

    def note(self, state: JobSourceState, now: int) -> None:
        """Note the state of the source, with the time since which it has been so."""
        same = (state.state, state.message) == (self.state.state, self.state.message)
        since = state.since or (self.state.since if same else 0) or now
        self.state = msgspec.structs.replace(state, name=self.source.name, since=since)


class JobsService:
    """Jobs of a node."""

    def __init__(
        self,
        config: JobsConfig,
        node: str,
        session: int,
        source: Source,
        publish: Callable[[bytes], None],
        *,
        state_dir: Path | None = None,
        sources: Sequence[JobSource] | None = None,
        host_root: Path = Path("/"),
        clock: StepFreeClock | None = None,
    ) -> None:
        """`publish` is called with each message; `state_dir`: None keeps nothing over a restart; `sources`:
        of jobs, in place of those that the settings want; `host_root`: above the host's own /sys; `clock`: in place of
        the machine's. Raises `ConfigError`."""
        self._config = config
        self._node = node
        self._source = source
        self._publish = publish
        self._clock = clock or StepFreeClock()
        self._cgroups = host_root / CGROUPS
        persons = PersonFilter(config)
        self._persons = persons
        if sources is None:
            sources = [source.job_source] if isinstance(source, KnowsJobs) else job_sources(config)
        self._questions = [_Question(each) for each in sources]
        self._file = None if state_dir is None else JobsFile(state_dir)
        self._message = JobsMessage(session, config.users)
        self._threads = WorkerThreads(len(self._questions) + 2, "jobs")
        self._boot_id = boot_id()
        self._simulated = isinstance(source, KnowsJobs)
        self._lister = source if isinstance(source, ListsProcesses) else None
        self._reader: ProcReader | None = None
        self._merge = JobMerge()
        self._finding: asyncio.Task[FoundProcesses] | None = None
        self._saving: asyncio.Task[None] | None = None
        self._saved_at = self._merged_at = -math.inf
        self._unsaved = False
        """Whether something has changed while the disk was busy."""
        self._new_at: float | None = None
        """When a new process was found last, monotonic seconds; the first look is such a time, too."""
        self._held = False
        """Whether what has come waits for the answer of a source."""
        self._found = FoundProcesses((), {}, 0)
        self._read_at: dict[str, int] = {}
        """When the processes of each GPU were read that we know the owners of."""
        self._finding_at: dict[str, int] = {}
        self._state = JobSourceState(name=PROCESSES)
        if self._lister is not None:
            self._lister.list_processes(config.interval)

    @property
    def newest(self) -> NodeJobs:
        """The newest message."""
        return self._message.newest

    async def run(self) -> None:
        """Look until cancelled: when processes are listed, a source is due or something is awaited."""
        if self._reader is None:
            await self._restore()
        while True:
            self._threads.check()
            self._find(self._clock())
            if self._finding is not None:  # most often a millisecond: not a second later
                await asyncio.wait({self._finding}, timeout=FIND_SECONDS)
            self.look()
            asked = {each.task for each in self._questions if each.task is not None}
            if self._held and asked:
                await asyncio.wait(asked, timeout=FIND_SECONDS)
                self.look()
            await asyncio.sleep(self._pause())

    def _pause(self) -> float:
        """Return the seconds until the next look: each costs a node as much as all that it then does."""
        waits = self._held or self._unsaved or self._finding is not None
        if waits or any(each.task is not None for each in self._questions):
            return LOOP_SECONDS
        now, interval = asyncio.get_running_loop().time(), self._config.interval
        pauses = [interval, *(each.due - now for each in self._questions)]
        if self._lister is not None:
            newest = max(self._finding_at.values(), default=0)
            pauses.append((newest - self._clock()) / _SECOND + interval + LISTED_SECONDS)
        return max(LOOP_SECONDS, min(pauses))

    async def once(self, seconds: float) -> NodeJobs:
        """Look until each source has answered, for so many seconds at most, and return what is known."""
        if self._reader is None:
            await self._restore()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            self.look()
            answered = all(each.answer is not None for each in self._questions)
            if (answered and self._finding is None and not self._held) or loop.time() >= deadline:
                return self.newest
            await asyncio.sleep(0.02)

    async def _restore(self) -> None:
        """Go on with the allocations of the collector before this one."""
        memory, seen = JobsMemory(), 0
        if self._file is not None:
            memory, seen = await self._threads.run(self._file.load)
            memory = memory.in_words(self._persons)
        same = bool(self._boot_id) and memory.boot_id == self._boot_id
        self._reader = ProcReader(
            UserNames(),
            self._persons,
            cgroups=self._cgroups,
            same_pids=self._config.same_pids,
            boot=memory.boot if same else 0,
            wall_ns=self._clock,
        )
        opened = memory.open if same else tuple(_without_processes(each) for each in memory.open)
        self._merge = JobMerge(opened, memory.ended, seen)

    def look(self) -> None:
        """Ask whoever is due, take in the answers that have come, and publish what is new. Never waits."""
        now, wall = asyncio.get_running_loop().time(), self._clock()
        before = self._found
        new = self._find(wall)
        if self._new_at is None or _adds(before, self._found):
            self._new_at = now
            for question in self._questions:
                question.due = min(question.due, now)
        merging = new or self._held or now - self._merged_at >= self._config.interval
        if self._unsaved:
            self._save(now, wall)
        if not merging and not any(each.has_come(now) for each in self._questions):
            return
        gpus, instances = self._source.inventory.gpus, self._source.inventory.instances
        read = {gpu for gpu, at in self._read_at.items() if self._recent(at, wall)}
        given = JobsInput(
            at=wall,
            node=self._node,
            gpus=gpus,
            instances=instances,
            processes=tuple(each for each in self._found.processes if each.process.gpu in read),
            unread=frozenset(gpu.uuid for gpu in gpus if gpu.uuid not in read),
            step=self._clock.step,
        )
        for question in self._questions:
            new = self._ask(question, given, now) or new
        self._held = (new or merging) and self._waits(now)
        if self._held or not (new or merging):
            return
        self._merged_at = now
        answers = {
            each.source.name: _with_state(each.answer, each.state)
            for each in self._questions
            if each.answer is not None
        }
        merged = self._merge.update(given, self._found.owners, answers)
        states = [each.state for each in self._questions]
        if not self._simulated:
            states.insert(0, self._own_state(given, wall))
        payload = self._message.encoded(merged, states, wall)
        if payload is not None:
            self._publish(payload)
        if payload is not None or now - self._saved_at >= SAVE_SECONDS:
            self._save(now, wall)

    def _waits(self, now: float) -> bool:
        """Return whether a source may still say in time whose the newest process is."""
        since = self._new_at or now
        late = any(each.asked < since for each in self._questions)
        return late and now - since < FIRST_SECONDS

    def close(self) -> None:
        """Close all sources. The file was written at the last change: no disk is waited for here."""
        self._threads.close(cancel=True)
        if self._reader is not None:
            self._reader.close()
        for question in self._questions:
            question.source.close()

    # ---- processes ----

    def _recent(self, at: int, wall: int) -> bool:
        """Return whether the processes of a GPU that were read at a time are those of now."""
        return wall - at <= STALE_LOOKS * self._config.interval * _SECOND

    def _find(self, wall: int) -> bool:
        """Have the owners of processes looked up when a GPU's list is new; return whether such a look has
        ended."""
        new = self._finding is not None and self._finding.done()
        if self._finding is not None and new:
            task, self._finding = self._finding, None
            self._found = task.result()  # what it raises is a bug: the supervisor starts us again
            self._read_at = self._finding_at
        if self._lister is None or self._reader is None or self._finding is not None:
            return new
        step = self._clock.step
        listed = {
            gpu: each._replace(read_at=without_step(each.read_at, wall, step))
            for gpu, each in self._lister.listed_processes().items()
            if not each.problem
        }
        listed = {gpu: each for gpu, each in listed.items() if self._recent(each.read_at, wall)}
        stamps = {gpu: each.read_at for gpu, each in listed.items()}
        if stamps != self._finding_at:
            self._finding_at = stamps
            self._finding = asyncio.create_task(self._threads.run(self._reader.find, listed))
        return new

    def _own_state(self, given: JobsInput, wall: int) -> JobSourceState:
        """Return whether the processes of the GPUs can be read, and their owners."""
        state = self._process_state(given)
        before = self._state
        same = (state.state, state.message) == (before.state, before.message)
        since = before.since if same and before.since else wall
        self._state = msgspec.structs.replace(state, since=since)
        return self._state

    def _process_state(self, given: JobsInput) -> JobSourceState:
        if self._lister is None:
            text = f"The source {self._source.inventory.source} lists no processes: use nvml or amd."
            return JobSourceState(name=PROCESSES, state="absent", message=text)
        hidden = {each.process.hidden for each in given.processes}
        if OTHER_NAMESPACE in hidden:
            return JobSourceState(name=PROCESSES, state="no permission", message=FOREIGN)
        if self._found.refused and NO_PERMISSION in hidden:
            return JobSourceState(name=PROCESSES, state="no permission", message=HIDEPID)
        problems = {
            each.problem
            for gpu, each in self._lister.listed_processes().items()
            if gpu in given.unread and each.problem
        }
        if "no permission" in problems:
            return JobSourceState(name=PROCESSES, state="no permission", message=REFUSED)
        if problems:
            text = f"The driver does not list the processes of a GPU: {min(problems)}."
            return JobSourceState(name=PROCESSES, state="failing", message=text)
        return JobSourceState(name=PROCESSES, message=self._found.claim)

    # ---- other sources ----

    def _ask(self, question: _Question, given: JobsInput, now: float) -> bool:
        """Take in the answer of a source that has come, and ask it again when it is due. Return whether there
        is news of it."""
        task, name, before = question.task, question.source.name, question.answer
        if task is not None and task.done():
            question.task = None
            question.asked = question.began
            error = task.exception()
            if error is None:
                question.answer = self._persons.answer(task.result())
                question.note(question.answer.state, given.at)
            else:
                log.error("jobs: the source %s raised", name, exc_info=error)
                self._failing(question, f"{type(error).__name__}: {error}", given.at)
        elif task is not None and now - question.began > HUNG_SECONDS:
            text = f"It has not answered for more than {HUNG_SECONDS:.0f} s."
            self._failing(question, text, given.at)
        if question.task is None and now >= question.due:
            absent = question.answer is not None and question.state.state == "absent"
            pause = max(question.source.interval, ABSENT_SECONDS if absent else 0.0)
            question.began, question.due = now, now + pause
            question.task = asyncio.create_task(self._threads.run(question.source.read, given))
        return question.answer != before

    @staticmethod
    def _failing(question: _Question, message: str, wall: int) -> None:
        state = JobSourceState(name=question.source.name, state="failing", message=message)
        question.note(state, wall)
        question.answer = JobsAnswer(state=question.state)

    # ---- the file ----

    def _memory(self) -> JobsMemory:
        boot = 0 if self._reader is None else self._reader.boot
        opened = tuple(msgspec.structs.replace(each, seen=0) for each in self._merge.open)
        return JobsMemory(
            boot_id=self._boot_id, boot=boot, open=opened, ended=self._merge.ended, persons=self._persons.mark
        )

    def _save(self, now: float, wall: int) -> None:
        """Have the file written; where the disk has not finished the last time, at a later look."""
        self._unsaved = self._saving is not None and not self._saving.done()
        if self._file is None or self._unsaved:
            return
        self._saved_at = now
        memory = self._memory()
        self._saving = asyncio.create_task(self._threads.run(self._file.save, memory, wall))


def jobs_switched_off(session: int, now: int) -> bytes:
    """Return the message of a node whose settings want no jobs: it replaces the one that is retained."""
    text = "Switched off: [jobs] enabled = false."
    state = JobSourceState(name=PROCESSES, state="absent", message=text, since=now)
    return messages.encode(NodeJobs(session=session, at=now, sources=(state,)))


def _with_state(answer: JobsAnswer, state: JobSourceState) -> JobsAnswer:
    return replace(answer, state=state)


def _adds(before: FoundProcesses, found: FoundProcesses) -> bool:
    """Return whether there is a process that was not there before."""
    if before is found:
        return False
    return not {each.id for each in found.processes} <= {each.id for each in before.processes}


def _without_processes(record: OpenAllocation) -> OpenAllocation:
    """Return an allocation of before the machine's last start: its processes are gone."""
    return msgspec.structs.replace(record, processes=())
