"""Live frames that wait for the next flush undecoded: most are then accounted for and read together.

In a fleet that runs, nearly every frame has the shape of the others and follows the one before it. Such frames cost a
microsecond or two each when they are taken together, and ten times as much one by one. All others are
processed by themselves, here or as they come: what they mean, and whether they are refused, is decided in one place.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from aggregator.ingest.batcher import Batcher
from aggregator.ingest.joined_frames import JoinedFrames
from aggregator.ingest.sequence import NodeTracker
from aggregator.ingest.steady_nodes import HELD, READY, Places, SteadyNodes
from aggregator.ingest.template import FrameTemplate
from aggregator.load.shedding import Shedding
from aggregator.store.protocol import Frames
from api.stats import Stats
from telemetry.wire.border import FRAMES_END, LIVE_WINDOW
from telemetry.wire.frame import Frame
from telemetry.wire.topics import Topic

Flags = npt.NDArray[np.bool_]
log = logging.getLogger(__name__)

FEW_FRAMES = 8
"""Frames of one template that are processed one by one: there are too few for arrays."""
MANY_FRAMES = 256
"""Frames that are worth to be processed before the next flush."""
MOST_TEMPLATES = 64
"""Lengths of frames of one layout that are remembered: by lane, and by how many bytes its numbers take."""
SLOW_LENGTH = 1.25
"""How many times as long as the next one a frame is that has the slow lane: of a node alone 1.3, of one
with GPUs 4."""


class HeldFrames:
    """The frames that are held, one of each node at most."""

    def __init__(
        self,
        batcher: Batcher,
        shedding: Shedding,
        stats: Stats,
        pending_bytes: float,
        single: Callable[[NodeTracker, bytes, float, int], None],
    ) -> None:
        """`pending_bytes`: as in the store's settings. `single`: processes a frame by itself; it does not raise."""
        self.steady = SteadyNodes()
        self._batcher = batcher
        self._shedding = shedding
        self._stats = stats
        self._pending_bytes = pending_bytes
        self._single = single
        self._lengths: set[int] = set()
        """Of frames that may have a template."""
        self._places: list[int] = []
        """Of the nodes whose frames are held, in the order in which they came; the lists below are as long."""
        self._payloads: list[bytes] = []
        self._came: list[float] = []
        """When they came, monotonic seconds."""
        self._came_at: list[int] = []
        """The same, ns since 1970."""
        self._uncounted = 0
        """Frames that the messages do not count yet."""
        self._coalesced: dict[NodeTracker, tuple[bytes, float, int]] = {}
        """The newest frame of each node, and when it came, while not every one is decoded."""

    def __len__(self) -> int:
        return len(self._places) + len(self._coalesced)

    def hold(self, topic: str, payload: bytes, now: float, wall: int) -> bool:
        """Hold a live frame that seems to have a template, of a steady node of which none is held: nearly every message
        is one. Return False for any other, with which nothing is done. Nothing of the fleet changes, so that rules may be
        half evaluated. `now` is monotonic seconds, `wall` ns since 1970.

        It costs nothing of its node's budget: there is one between two flushes.
        """
        if not self._add(topic, payload, now, wall):
            return False
        self._stats.bytes_received += len(payload)
        self._uncounted += 1
        return True

    def hold_second(self, topic: str, payload: bytes, now: float, wall: int) -> bool:
        """Hold a frame of a steady node of which one is held: after a pause many nodes have sent several, and what is held
        is processed first. Return False where it is not so, or not possible. The message is counted already."""
        if len(self._places) < MANY_FRAMES or self._shedding.step:
            return False  # of one node that floods: all would be processed for each of its frames
        self.process()
        return self._add(topic, payload, now, wall)

    def _add(self, topic: str, payload: bytes, now: float, wall: int) -> bool:
        steady = self.steady
        place = steady.places.get(topic)
        if place is None or steady.state[place] or len(payload) not in self._lengths:
            return False
        if self._shedding.step or self._coalesced:  # one of its node may be among them
            return False
        steady.state[place] = HELD
        self._places.append(place)
        self._payloads.append(payload)
        self._came.append(now)
        self._came_at.append(wall)
        return True

    def learn(self, node: NodeTracker, payload: bytes, frame: Frame) -> None:
        """Find the template of a frame that was decoded and fits its node's newest layout, unless one of its length is
        known."""
        templates = self.steady.templates_of(node.layouts[0])
        if len(payload) in templates or frame.events or not node.numbers:
            return
        if len(templates) >= MOST_TEMPLATES:
            templates.clear()
        try:
            templates[len(payload)] = FrameTemplate(payload, frame)
        except ValueError:
            templates[len(payload)] = None
        else:
            self._lengths.add(len(payload))

    def leave(self, node: NodeTracker) -> None:
        """Process the frame that is held of a node, if there is one, and make it other than steady: its objects then say
        all that is known of it."""
        place = node.steady
        if place < 0:
            return
        if self.steady.state[place] != HELD:
            self.steady.leave(node)
            return
        at = self._places.index(place)
        self._places.pop(at)
        payload, now, wall = self._payloads.pop(at), self._came.pop(at), self._came_at.pop(at)
        self._single(node, payload, now, wall)
        self.steady.leave(node)

    def process(self, most: int | None = None) -> None:
        """Process what is held: what came first, and `most` at most."""
        for node in list(itertools.islice(self._coalesced, most)):
            self._single(node, *self._coalesced.pop(node))
        if self._uncounted:
            self._stats.messages[Topic.FRAME] = self._stats.messages.get(Topic.FRAME, 0) + self._uncounted
            self._uncounted = 0
        if not self._places:
            return
        count = len(self._places) if most is None else min(most, len(self._places))
        places, payloads = np.array(self._places[:count], np.intp), self._payloads[:count]
        came, came_at = np.array(self._came[:count]), np.array(self._came_at[:count], np.int64)
        for held in (self._places, self._payloads, self._came, self._came_at):
            del held[:count]
        steady = self.steady
        steady.states[places] = READY
        sizes = np.fromiter(map(len, payloads), np.intp, count)
        shapes = steady.shape[places]
        for shape, size in sorted(set(zip(shapes.tolist(), sizes.tolist(), strict=True))):
            chosen = np.flatnonzero((shapes == shape) & (sizes == size))
            group = payloads if len(chosen) == count else [payloads[at] for at in chosen.tolist()]
            single = np.ones(len(chosen), np.bool_)
            template = steady.templates[shape].get(size)
            if template is not None and len(chosen) >= FEW_FRAMES:
                try:
                    single = self._join(template, group, places[chosen], came[chosen], came_at[chosen])
                except Exception:
                    log.exception("ingest: %d frames are processed one by one", len(chosen))
            for at in np.flatnonzero(single).tolist():
                node = steady.nodes[places[chosen[at]]]
                if node is not None:
                    self._single(node, group[at], float(came[chosen[at]]), int(came_at[chosen[at]]))

    def _join(
        self,
        template: FrameTemplate,
        payloads: list[bytes],
        places: Places,
        came: npt.NDArray[np.float64],
        came_at: npt.NDArray[np.int64],
    ) -> Flags:
        """Account for the frames of a template that follow the one before; return which do not."""
        if self._batcher.full(self._pending_bytes):
            return np.ones(len(places), np.bool_)
        steady = self.steady
        content = np.frombuffer(b"".join(payloads), np.uint8).reshape(len(payloads), template.size)
        heads = template.heads(content)
        ahead = heads.sampled_at - came_at
        follows: Flags = (
            heads.right
            & (heads.seq == steady.next[places])
            & (heads.seq < FRAMES_END)
            & (heads.session == steady.session[places])
            & (heads.sampled_at >= steady.since[places])
            & (ahead >= -LIVE_WINDOW)
            & (ahead <= LIVE_WINDOW)
        )
        seq, session, at = heads.seq, heads.session, heads.sampled_at
        others: Flags = ~follows
        if others.all():
            return others
        if others.any():
            content, places, came, came_at = content[follows], places[follows], came[follows], came_at[follows]
            seq, session, at = seq[follows], session[follows], at[follows]
        frames = Frames(steady.run[places], seq, at, came_at, np.zeros(len(places), np.bool_))
        self._batcher.add(JoinedFrames(template, content, steady, places, steady.numbers[places], frames, session))
        steady.next[places] += 1
        steady.came[places], steady.came_wall[places] = came, came_at
        self._stats.frames_received += len(places)
        return others

    def coalesce(self, node: NodeTracker, payload: bytes, now: float, wall: int) -> None:
        """Hold a live frame until the next flush; only the newest of each node is decoded there, and
        its number shows which others are missing. A frame with the slow lane is never skipped: the
        next such one comes in 15 s, and rules on these readings would be blind until then."""
        held = self._coalesced.get(node)
        if held is not None and len(held[0]) > SLOW_LENGTH * len(payload):
            self._single(node, *self._coalesced.pop(node))
        elif held is not None:
            self._stats.frames_received += 1
            self._shedding.frames_skipped += 1
        self._coalesced[node] = payload, now, wall

    def forget(self, node: NodeTracker) -> None:
        """Drop the frame of a node that was not decoded."""
        self._coalesced.pop(node, None)
