"""Requests for the past, and what is done with their answers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from api.alerts import Incident, IncidentsReply
from api.columns import PackedFramesReply
from api.decoding import decode
from api.errors import ErrorDetail
from api.power import CircuitHistoryReply
from tui.feed.requests import ApiRequests, refusal
from tui.feed.wants import ALWAYS, DocumentRequest
from tui.past.frame_cache import HEARD, CachedFrame, FrameCache, frames_of
from tui.past.queries import SECOND, PastRequest, seconds, then
from tui.state.dashboard_state import DashboardState
from tui.state.documents import BUDGETS, CIRCUITS
from tui.state.readings import COLUMNS, WALL

TIMEOUT = 30.0
"""Seconds within which the store answers: a fleet's hour on disk is read whole."""
CELLS = 900_000
"""Readings of one request: a second of work here, and some MB."""
MOST_FRAMES, FEWEST_FRAMES = 60, 2
MOST_INCIDENTS = 1000
KEPT_DOCS = 64
SETTLES = 3 * SECOND
"""ns within which frames may not be stored yet."""
CIRCUIT_DOCUMENTS = tuple(ask for ask in ALWAYS if ask.path in {CIRCUITS, BUDGETS})
"""Documents of the header and the circuits."""


@dataclass
class PastWants:
    """The parts of the past that the screen needs."""

    at: int | None = None
    """The instant that is shown; None is now."""
    frames: tuple[int, ...] = ()
    """Instants whose frames are missing: the one that is waited for, then the next ones."""
    begin: int = 0
    """Left end of the time bar, ns."""
    documents: tuple[DocumentRequest, ...] = ()
    open: bool = False
    """Whether the time bar is open, which needs marks and the beginning of the store."""


Job = tuple[str, str | int]
"""Kind and subject of a request."""


@dataclass
class KnownPast:
    """Answers of the store."""

    begins: int | None = None
    """Beginning of the store, ns; None while it is not known."""
    probed: bool = False
    incomplete: set[tuple[int, int]] = field(default_factory=set)
    """Windows of frames that were loaded whose stored files were removed or damaged, ns."""
    incidents: tuple[Incident, ...] = ()
    marks_from: float = float("inf")
    """Time since which incidents are known, ns."""
    marks_at: float = float("-inf")
    docs: OrderedDict[str, object] = field(default_factory=OrderedDict)
    """Documents by path, the newest at the end."""
    faults: dict[Job, tuple[float, str]] = field(default_factory=dict)
    """Failed requests: when to retry, and the reason."""


class Fetching:
    """Single requests, whose answers go to `cache` or `known`."""

    def __init__(self, api: ApiRequests, changed: Callable[[], None], clock: Callable[[], float]) -> None:
        self._api, self._changed, self._clock = api, changed, clock
        self.cache = FrameCache()
        self.known = KnownPast()
        self._wants = PastWants()
        self._newest = DashboardState()

    def _past_requests(self, documents: tuple[DocumentRequest, ...], at: int) -> list[PastRequest]:
        found = (then(ask, at, self._newest.at) for ask in documents)
        return [request for request in found if request is not None]

    @property
    def _frames_per_request(self) -> int:
        """Frames of one request."""
        cells = max(1, len(self._newest.gpus) * len(COLUMNS))
        return max(FEWEST_FRAMES, min(MOST_FRAMES, CELLS // cells))

    async def _get(self, path: str) -> bytes:
        """Return the body of an answer. Raises `OSError`, with the reason if the answer has one."""
        answer = await self._api.raw(path, TIMEOUT)
        if answer.status != 200:
            raise ConnectionError(refusal(answer.body) or f"it answers {answer.status}")
        return answer.body

    async def _fetch_frames(self, first: int) -> None:
        step, newest = self.cache.step, self._newest
        last = min(first + self._frames_per_request, self.cache.slot(newest.at - SETTLES) + 1)
        times = f"from={seconds(first * step)}&to={seconds(last * step)}&step={step / SECOND:g}s"
        path = f"api/v1/fleet/frames?{times}&packed=true"
        gpus, nodes = await asyncio.gather(
            self._get(f"{path}&columns={','.join(COLUMNS)}"), self._get(f"{path}&table=node&columns={WALL},{HEARD}")
        )

        def made() -> tuple[list[CachedFrame], int | None, set[tuple[int, int]]]:
            found = decode(gpus, PackedFramesReply, packed=True)
            others = decode(nodes, PackedFramesReply, packed=True)
            lost = {*found.incomplete, *others.incomplete}
            return frames_of(found, others, newest.gpus), found.begins, lost

        frames, begins, lost = await asyncio.to_thread(made)
        self.known.incomplete |= lost
        if step == self.cache.step:
            self.cache.add(frames, self._wants.at or newest.at)
            if any(self.cache.slot(frame.at) not in self.cache for frame in frames):
                raise ConnectionError("there is no room to keep it")  # and a retry would not help
        self._begun(begins)

    async def _fetch_beginning(self) -> None:
        path = f"api/v1/fleet/frames?table=node&columns={WALL},{HEARD}&from=-1s&step=1s&packed=true"
        found = decode(await self._get(path), PackedFramesReply, packed=True)
        self._begun(found.begins)

    def _begun(self, begins: int | None) -> None:
        self.known.begins, self.known.probed = begins, True

    async def _fetch_marks(self, begin: int) -> None:
        path = f"api/v1/incidents?from={seconds(max(0, begin))}&limit={MOST_INCIDENTS}"
        found = decode(await self._get(path), IncidentsReply)
        self.known.incidents = tuple(found.incidents)
        self.known.marks_from, self.known.marks_at = begin, self._clock()

    async def _fetch_load(self, path: str) -> None:
        self._store(path, decode(await self._get(path), CircuitHistoryReply))

    async def _fetch_document(self, path: str) -> None:
        at = self._wants.at
        if at is None:
            return
        documents = (*CIRCUIT_DOCUMENTS, *self._wants.documents)
        request = next((q for q in self._past_requests(documents, at) if q.path == path), None)
        if request is None:
            return
        value: object
        answer = await self._api.raw(path, TIMEOUT)
        if answer.status == 200:
            value = decode(answer.body, request.kind)
            value = value if request.whole is None else request.whole(value)
        elif answer.status < 500:
            value = ErrorDetail(what=refusal(answer.body) or f"it answers {answer.status}")
        else:
            raise ConnectionError(refusal(answer.body) or f"it answers {answer.status}")
        self._store(path, value)

    def _store(self, path: str, value: object) -> None:
        docs = self.known.docs
        docs[path] = value
        while len(docs) > KEPT_DOCS:
            docs.popitem(last=False)
