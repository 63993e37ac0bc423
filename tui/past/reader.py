"""The reader of the past: fetches what the screen waits for, then what comes next in the direction of travel.

One request at a time; when the wants change, the one under way is cancelled. A failed request is retried
after a while, and the time bar shows the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from api.power import CircuitHistoryReply
from tui.feed.requests import ApiRequests, why
from tui.feed.wants import DocumentRequest
from tui.past.fetching import CIRCUIT_DOCUMENTS, SETTLES, Fetching, Job, PastWants
from tui.past.queries import SECOND, seconds, then
from tui.past.state_at import NOT_KEPT, state_then
from tui.state.circuit_columns import page_of
from tui.state.dashboard_state import DashboardState
from tui.state.documents import Doc

AGAIN = 5.0
"""Seconds before a failed request is retried."""
MARKS_EVERY = 20.0
"""Seconds between two requests for the marks of the time bar."""
LOADS_EVERY = 600 * SECOND
"""ns by which the window of a circuit's past moves."""


class Past(Fetching):
    """The past of one aggregator."""

    def __init__(self, api: ApiRequests, changed: Callable[[], None], clock: Callable[[], float]) -> None:
        super().__init__(api, changed, clock)
        self.came = 0
        """Requests that were answered or failed."""
        self._wake = asyncio.Event()
        self._loads: list[str] = []
        """Paths of the histories of circuits that were requested last."""
        self._made: tuple[tuple[object, ...], DashboardState] | None = None

    @property
    def fault(self) -> str:
        """The reason why the time that is shown cannot be loaded; `` while it may."""
        at = self._wants.at
        if at is None:
            return ""
        found = self.known.faults.get(("frames", self._first(self.cache.slot(at))))
        return found[1] if found is not None else ""

    def wants(self, wants: PastWants, newest: DashboardState, step: int) -> None:
        """Set what the screen needs from now on. `step`: ns between two frames."""
        self.cache.set_step(step)
        changed = wants != self._wants
        self._wants, self._newest = wants, newest
        if changed:
            self._wake.set()

    def state(self, at: int, newest: DashboardState) -> DashboardState | None:
        """Return the state of an instant; None while it is not loaded."""
        frame = self.cache.find(at)
        if frame is None:
            return None
        docs = self._docs(at)
        incidents = self.known.incidents if self.known.marks_from <= at else None
        key = (frame.at, id(incidents), *((path, id(doc)) for path, doc in docs.items()))
        if self._made is None or self._made[0] != key:
            self._made = key, state_then(newest, frame, incidents, docs)
        return self._made[1]

    def documents(self, at: int) -> dict[str, Doc]:
        """Return the documents of the open screen at an instant, by the paths of now."""
        return self._docs(at, only=self._wants.documents)

    def _docs(self, at: int, only: tuple[DocumentRequest, ...] | None = None) -> dict[str, Doc]:
        documents = (*self._wants.documents, *CIRCUIT_DOCUMENTS) if only is None else only
        found = {ask.path: Doc(NOT_KEPT, 0.0) for ask in documents if then(ask, at, self._newest.at) is None}
        for request in self._past_requests(documents, at):
            if request.path in self.known.docs:
                found[request.stands_for] = Doc(self.known.docs[request.path], 0.0)
        return found

    def load(self, name: str, at: int, span: int) -> CircuitHistoryReply | None:
        """Return the load of a circuit up to about an instant, if it is loaded; else it is requested."""
        end = (at // LOADS_EVERY + 1) * LOADS_EVERY
        times = f"from={seconds(end - LOADS_EVERY - span * SECOND)}&to={seconds(end)}"
        path = f"{page_of(name)}/history?{times}"
        found = self.known.docs.get(path)
        if found is None and path not in self._loads:
            self._loads = [*self._loads[-3:], path]
            self._wake.set()
        return found if isinstance(found, CircuitHistoryReply) else None

    # -- The worker ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Fetch what the screen needs, until cancelled."""
        job: Job | None = None
        task: asyncio.Task[None] | None = None
        try:
            while True:
                self._wake.clear()
                wanted = self._next_job()
                if task is not None and (task.done() or wanted != job):
                    if not task.done():
                        task.cancel()
                    await asyncio.wait([task])
                    task = None
                    continue  # its answer may have changed what is wanted
                if task is None and wanted is not None:
                    job = wanted
                    task = asyncio.create_task(self._run_job(wanted), name=f"past {wanted[0]}")
                await self._pause(task)
        finally:
            if task is not None:
                task.cancel()
                await asyncio.wait([task])

    async def _pause(self, task: asyncio.Task[None] | None) -> None:
        """Wait for other wants, for the end of the request under way, or for a second."""
        woken = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait(
                {woken} if task is None else {woken, task}, timeout=1.0, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            woken.cancel()

    def _next_job(self) -> Job | None:
        """Return the most urgent request that is not waiting for a retry."""
        jobs = self._wanted_jobs()
        now = self._clock()
        return next((job for job in jobs if self.known.faults.get(job, (now, ""))[0] <= now), None)

    def _wanted_jobs(self) -> list[Job]:
        wants, jobs = self._wants, list[Job]()
        if not self._newest.ready:
            return jobs
        loads: list[Job] = [("load", p) for p in self._loads if p not in self.known.docs]
        if wants.at is None and not wants.open:
            return loads
        if wants.at in wants.frames:
            jobs += self._frames(wants.at)
        known = self.known
        if not known.probed:
            jobs.append(("begin", 0))
        late = self._clock() - known.marks_at > MARKS_EVERY
        begin = wants.begin if wants.at is None else min(wants.begin, wants.at)
        if late or begin < known.marks_from:
            jobs.append(("marks", begin - begin % (60 * SECOND)))
        if wants.at is not None:
            requests = self._past_requests((*CIRCUIT_DOCUMENTS, *wants.documents), wants.at)
            jobs += [("doc", each.path) for each in requests if each.path not in known.docs]
        jobs += loads
        if self.cache.holds(3 * self._frames_per_request):  # else what comes next would go before it is seen
            for at in wants.frames:
                jobs += self._frames(at)
        return jobs

    def _frames(self, at: int | None) -> list[Job]:
        if at is None:
            return []
        slot = self.cache.slot(at)
        newest = self.cache.slot(self._newest.at - SETTLES)
        if slot in self.cache or slot > newest or at < self._wants.begin:
            return []
        return [("frames", self._first(slot))]

    def _first(self, slot: int) -> int:
        return slot - slot % self._frames_per_request

    @property
    def length(self) -> int:
        """ns that one request covers."""
        return self._frames_per_request * self.cache.step

    async def _run_job(self, job: Job) -> None:
        kind, what = job
        do: dict[str, Callable[[], Awaitable[None]]] = {
            "begin": self._fetch_beginning,
            "marks": lambda: self._fetch_marks(int(what)),
            "doc": lambda: self._fetch_document(str(what)),
            "load": lambda: self._fetch_load(str(what)),
            "frames": lambda: self._fetch_frames(int(what)),
        }
        try:
            await do[kind]()
            self.known.faults.pop(job, None)
        except (OSError, msgspec.DecodeError, ValueError, KeyError) as error:
            words = why(error) if isinstance(error, OSError) else f"its answer is not understood: {error}"
            self.known.faults[job] = (self._clock() + AGAIN, words)
        self.came += 1
        self._changed()
