"""Counters of GPUs at the begin and the end of what jobs hold of them, from the stored readings.

While a job runs its energy is added up from a sample every five seconds, and what lies between two samples is split by
time: a short job gets a wrong part of it, and so does one that begins or ends while no aggregator runs. Stored readings
lie a second apart, and those that were missed come later; between the two around an edge the counter is interpolated.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from aggregator.jobs.usage import LAG_SECONDS, LONGEST_HOLD, MOST_WATTS

COUNTER = "gpu_energy_joules_total"
SECOND = 10**9
SETTLED_SECONDS = LAG_SECONDS + 5.0
"""Age of an edge at which it is looked for first: its node has said it, and the readings after it are stored."""
_SETTLED = int(SETTLED_SECONDS * SECOND)
AT_ONCE = 500
"""Edges that are counted without a turn for others: 10,000 of one job would take 0.6 s."""
MANY = 1000
"""GPUs with edges above which those that are due wait for each other: most of a search is its query."""
TOGETHER_SECONDS = 15.0
"""Seconds for which the first of them waits then: the six searches for one take up to thirteen minutes in place of eleven."""
WINDOW_SECONDS = 60
"""Most seconds between edges that one query finds."""
CLOSE_SECONDS = 5.0
"""Most seconds between two readings with no hole between them that may be filled later."""
MOST_TRIES = 6
"""Searches for an edge, each after twice the time: the last is eleven minutes after the first. The job stays in memory for
them, however late its end is heard."""


OfGpu = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]
"""Times of readings, ns since 1970, 0 for none, and their counters, J, NaN for none; in any order."""
Readings = Mapping[tuple[str, str], OfGpu]
"""By node and GPU."""
_NO_READINGS: OfGpu = (np.zeros(0, np.int64), np.zeros(0))


class JobEdge(NamedTuple):
    """A begin or an end of an allocation."""

    node: str
    gpu: str
    at: int
    """Time by the node's clock, ns since 1970."""


@dataclass(frozen=True, slots=True)
class EdgeWindow:
    """Edges that one query finds."""

    edges: tuple[JobEdge, ...]

    @property
    def nodes(self) -> list[str]:
        """Names of their nodes."""
        return sorted({edge.node for edge in self.edges})

    @property
    def first(self) -> int:
        """The second of the first edge, ns since 1970."""
        return self.edges[0].at // SECOND * SECOND

    @property
    def count(self) -> int:
        """Seconds from there to the last reading that may follow the last edge."""
        return (self.edges[-1].at - self.first) // SECOND + int(LONGEST_HOLD) + 2

    def unpreceded(self, readings: Readings) -> dict[int, list[str]]:
        """Return nodes by the second, ns since 1970, in which they have an edge, a reading after it and none before. Where
        the store was asked for the last reading of each second, an earlier one may be at the edge: a collector's first."""
        found: dict[int, set[str]] = {}
        for edge in self.edges:
            second = edge.at // SECOND * SECOND
            times, joules = readings.get((edge.node, edge.gpu), _NO_READINGS)
            known = times[np.isfinite(joules) & (times > 0)]
            if known.size and edge.at < known.min() <= second + SECOND:
                found.setdefault(second, set()).add(edge.node)
        return {second: sorted(nodes) for second, nodes in found.items()}

    def parts(self) -> Iterator[EdgeWindow]:
        """Yield its edges as windows of `AT_ONCE`, those of a node together."""
        edges = sorted(self.edges)
        for first in range(0, len(edges), AT_ONCE):
            yield EdgeWindow(tuple(edges[first : first + AT_ONCE]))


@dataclass(slots=True)
class _OfGpu:
    """The edges of one GPU."""

    node: str
    known: dict[int, float] = field(default_factory=dict)
    """The counter by time, J."""
    tries: dict[int, int] = field(default_factory=dict)
    """Searches so far by time, of those that are not known."""


class EdgeCounters:
    """The counters at the edges of allocations in memory. One loop owns it."""

    def __init__(self) -> None:
        self._gpus: dict[str, _OfGpu] = {}
        self._next: list[tuple[int, str, int]] = []
        """Heap of when an edge is looked for, ns since 1970, with its GPU and time; edges that are not wanted any more too."""

    def restore(self, node: str, gpu: str, counters: Mapping[int, float]) -> None:
        """Take what was stored of a GPU."""
        if counters:
            self._gpus.setdefault(gpu, _OfGpu(node)).known.update(counters)

    def want(self, node: str, gpu: str, times: set[int]) -> None:
        """Look for the edges of a GPU, and forget what was known of others. With a new edge the last of those before it
        that were given up is looked for again."""
        if not times:
            self._gpus.pop(gpu, None)
            return
        its = self._gpus.setdefault(gpu, _OfGpu(node))
        its.node = node
        for at in its.known.keys() - times:
            del its.known[at]
        for at in its.tries.keys() - times:
            del its.tries[at]
        new = times - its.known.keys() - its.tries.keys()
        lost = [at for at, tries in its.tries.items() if tries >= MOST_TRIES and at < max(new, default=0)]
        if lost:  # its node was out of reach, and may send its readings after it said what is new
            self._seek(its, gpu, max(lost), max(new))
        for at in new:
            self._seek(its, gpu, at, at)

    def _seek(self, its: _OfGpu, gpu: str, at: int, settled: int) -> None:
        """Begin to look for an edge, as one that was at another time."""
        its.tries[at] = 0
        heapq.heappush(self._next, (settled + _SETTLED, gpu, at))

    def known(self, gpu: str, times: Iterable[int]) -> dict[int, float]:
        """Return the counters of a GPU, J, at those of some times at which they are known."""
        its = self._gpus.get(gpu)
        return {} if its is None else {at: its.known[at] for at in times if at in its.known}

    def given_up(self, gpu: str, times: Iterable[int]) -> bool:
        """Return whether one of some edges of a GPU is not looked for any more."""
        its = self._gpus.get(gpu)
        return its is not None and any(its.tries.get(at, 0) >= MOST_TRIES for at in times)

    def sought(self, gpu: str, times: Iterable[int]) -> bool:
        """Return whether one of some edges of a GPU is still looked for."""
        its = self._gpus.get(gpu)
        return its is not None and any(its.tries.get(at, MOST_TRIES) < MOST_TRIES for at in times)

    def due(self, wall_ns: int) -> list[EdgeWindow]:
        """Return the queries for the edges that are to be looked for now."""
        wanted: set[JobEdge] = set()
        waits = int(TOGETHER_SECONDS * SECOND) if len(self._gpus) > MANY else 0
        if not self._next or self._next[0][0] + waits > wall_ns:
            return []
        while self._next and self._next[0][0] <= wall_ns:
            _, gpu, at = heapq.heappop(self._next)
            its = self._gpus.get(gpu)
            tries = MOST_TRIES if its is None else its.tries.get(at, MOST_TRIES)
            if its is None or tries >= MOST_TRIES:
                continue
            wanted.add(JobEdge(its.node, gpu, at))
            its.tries[at] = tries + 1
            if tries + 1 < MOST_TRIES:
                heapq.heappush(self._next, (wall_ns + _SETTLED * 2**tries, gpu, at))
        found: list[list[JobEdge]] = []
        for edge in sorted(wanted, key=lambda each: each.at):
            if not found or edge.at - found[-1][0].at > WINDOW_SECONDS * SECOND:
                found.append([])
            found[-1].append(edge)
        return [EdgeWindow(tuple(its)) for its in found]

    def note(self, window: EdgeWindow, readings: Readings) -> set[JobEdge]:
        """Take what the store has; return the edges whose counter is known now."""
        found = set()
        for edge in window.edges:
            read, its = readings.get((edge.node, edge.gpu)), self._gpus.get(edge.gpu)
            if read is None or its is None or edge.at not in its.tries:
                continue
            most = LONGEST_HOLD if its.tries[edge.at] >= MOST_TRIES else CLOSE_SECONDS
            joules = interpolated(*read, edge.at, most)
            if joules is not None:
                del its.tries[edge.at]
                its.known[edge.at] = round(joules, 3)
                found.add(edge)
        return found

    def lost(self, window: EdgeWindow) -> set[JobEdge]:
        """Return those of some edges that are not looked for any more."""
        return {edge for edge in window.edges if self.given_up(edge.gpu, [edge.at])}


def interpolated(times: npt.NDArray[np.int64], joules: npt.NDArray[np.float64], at: int, most: float) -> float | None:
    """Return a counter at a time between two readings, at most so many seconds apart; None where there are none, or
    where the counter began anew between them."""
    read = np.isfinite(joules) & (times > 0)
    times, joules = times[read], joules[read]
    before, after = times <= at, times >= at
    if not before.any() or not after.any():
        return None
    first, last = int(times[before].max()), int(times[after].min())
    low, high = float(joules[times == first][0]), float(joules[times == last][0])
    seconds = (last - first) / SECOND
    if seconds > most or not low <= high <= low + MOST_WATTS * max(seconds, 1.0):
        return None
    return low if first == last else low + (high - low) * ((at - first) / (last - first))


def until(spans: Sequence[tuple[int, int]], at: int) -> list[tuple[int, int]]:
    """Return the part of some spans before a time."""
    return [(begin, min(end, at)) for begin, end in spans if begin < at]


def seconds_of(spans: Iterable[tuple[int, int]]) -> float:
    """Return how long some spans without overlap are, in seconds."""
    return sum(end - begin for begin, end in spans) / SECOND


def grown(spans: Sequence[tuple[int, int]], counters: Mapping[int, float]) -> float | None:
    """Return by how much a counter has grown in some spans, J; None where it is not known at an edge of one, or can't
    be by what it did not begin anew in between."""
    total = 0.0
    for begin, end in spans:
        if begin not in counters or end not in counters:
            return None
        joules = counters[end] - counters[begin]
        if not 0 <= joules <= MOST_WATTS * max((end - begin) / SECOND, 1.0):
            return None
        total += joules
    return total
