"""A small real cluster behind chaos: every part reaches the broker through a proxy of its own."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

import duckdb

from collector.ring.ring import Ring
from telemetry.wire.intervals import IntervalSet
from tests.brokers import Broker
from tests.endtoend.audit import audit
from tests.endtoend.cluster import NODES, Cluster
from tests.faults.chaos import CLEAR, Chaos
from tests.kit.waiting import wait_until

PARTS = ("aggregator", *NODES)
MOST_UNSENT = 20
"""Frames: more than two nodes make in the time that they have to send their last."""


@dataclass(frozen=True, slots=True)
class Account:
    """What became of all frames, in exact numbers."""

    sent: int
    stored: int
    lost: int
    """Recorded as holes."""
    values: int
    """Readings compared with the simulation bit for bit."""
    backfilled: dict[str, int]
    """Of the stored, how many came on request, by node."""
    kept: int = 0
    """Newest frames of a node that had no time to send them before it ended: they wait in its ring
    for the next start."""

    def __str__(self) -> str:
        kept = f" + {self.kept} in the rings" if self.kept else ""
        return (
            f"{self.sent} frames sent = {self.stored} stored + {self.lost} announced as lost{kept}; "
            f"{self.values} values right to the bit"
        )


class Plant(Cluster):
    """Two nodes, an aggregator, a broker, and three proxies."""

    def __init__(self, folder: Path, broker: Broker, seed: int, collector: str = "") -> None:
        self.chaos = {part: Chaos(broker.port, seed) for part in PARTS}
        doors = {part: chaos.port for part, chaos in self.chaos.items()}
        super().__init__(folder, broker, seed, doors, collector)

    def __enter__(self) -> Plant:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_all()
        for chaos in self.chaos.values():
            chaos.close()

    def start_all(self) -> None:
        """Start all parts and wait for the first frames."""
        for part in PARTS:
            self.start(part)
        wait_until(lambda: self.stored() >= 10, "the first frames")

    def stored(self) -> float:
        """How many frames the running aggregator has stored."""
        return self.sample("kilowatch_aggregator_frames_stored_total")

    def lost(self) -> float:
        """How many frames it has announced as lost."""
        return self.sample("kilowatch_aggregator_frames_lost_total")

    def backfilled(self) -> float:
        """How many of the frames stored came on request."""
        return self.sample("kilowatch_aggregator_frames_backfilled_total")

    def wait_for_more(self, frames: int, seconds: float = 60.0) -> float:
        """Wait until that many more frames are stored than now; return how long it took."""
        before, began = self.stored(), time.monotonic()
        wait_until(lambda: self.stored() >= before + frames, f"{frames} more frames", seconds=seconds)
        return time.monotonic() - began

    def wait_for_whole(self, seconds: float = 60.0) -> float:
        """Wait until no frame is missing; return how long it took."""
        began = time.monotonic()
        wait_until(
            lambda: self.stored() > 0 and self.sample("kilowatch_aggregator_holes_open") == 0,
            "no holes",
            seconds=seconds,
        )
        return time.monotonic() - began

    def finish(self) -> Account:
        """End all parts in clear weather and account for every frame. Fails if one is missing,
        stands twice, or holds a wrong bit."""
        for chaos in self.chaos.values():
            chaos.weather = CLEAR
        began = time.monotonic()
        for node in NODES:  # each is heard again: what was lost before is asked for, and comes
            wait_until(partial(self._heard_since, node, began), f"{node} heard")
        self.wait_for_more(10)
        self.wait_for_whole()
        for node in NODES:
            assert self.end(node) == 0
        self._wait_for_quiet()
        assert self.end("aggregator") == 0
        return self._account()

    def _heard_since(self, node: str, began: float) -> bool:
        page = self.get(f"/api/v1/nodes/{node}")
        age = page["node"]["age_seconds"] if page is not None else None
        return age is not None and age < time.monotonic() - began - 0.5

    def _wait_for_quiet(self) -> None:
        seen, since = -1.0, time.monotonic()

        def quiet() -> bool:
            nonlocal seen, since
            before, seen = seen, self.stored()
            if before != seen or self.sample("kilowatch_aggregator_holes_open"):
                since = time.monotonic()
            return time.monotonic() - since > 1.0

        wait_until(quiet, "quiet")

    def _account(self) -> Account:
        found = audit(self)
        assert len(found.stored) == len(set(found.stored)), "a frame stands twice"
        stored: dict[tuple[str, int], IntervalSet] = {}
        for node, session, number in sorted(found.stored):
            stored.setdefault((node, session), IntervalSet()).add(number)
        sent = lost = unsent = 0
        gone, rings = self._holes(), self._rings()
        for run in stored.keys() | gone.keys() | rings.keys():
            kept, holes = stored.get(run, IntervalSet()), gone.get(run, IntervalSet())
            told = max(kept.end, holes.end)
            ring = rings.get(run, IntervalSet())
            tail = [(max(first, told + 1), last) for first, last in ring]  # which were never reported
            end = max(told, ring.end)
            all_of_it = IntervalSet([*kept, *holes, *tail])
            missing = all_of_it.missing(0, end)
            assert missing == [], f"{run}: unaccounted for: {missing} of {end}"
            assert len(IntervalSet([*kept, *holes])) == len(kept) + len(holes), f"{run}: stored and called lost"
            sent, lost, unsent = sent + end + 1, lost + len(holes), unsent + end - told
        assert sent == len(found.stored) + lost + unsent
        assert unsent <= MOST_UNSENT, "what a node has when it is asked to end"
        assert found.lost == lost
        assert found.values > 0
        return Account(sent, len(found.stored), lost, found.values, found.backfilled, unsent)

    def _rings(self) -> dict[tuple[str, int], IntervalSet]:
        """The numbers in the rings, by node and session."""
        found: dict[tuple[str, int], IntervalSet] = {}
        for node in NODES:
            ring = Ring(self.state_dir(node) / "ring", 1 << 30)
            ring.open()
            for span in ring.spans():
                found.setdefault((node, span.session), IntervalSet()).add_span(span.first, span.last)
        return found

    def _holes(self) -> dict[tuple[str, int], IntervalSet]:
        holes: dict[tuple[str, int], IntervalSet] = {}
        with duckdb.connect(str(self.data / "hot.duckdb"), read_only=True) as store:
            for node, session, first, last in store.execute(
                "select r.node, r.session, h.first, h.last from holes h join runs r on h.run = r.id"
            ).fetchall():
                holes.setdefault((node, session), IntervalSet()).add_span(first, last)
        return holes
