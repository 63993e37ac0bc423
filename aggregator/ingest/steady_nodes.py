"""The state of nodes whose frames come as they should, in columns: a frame that follows the one before changes
three numbers there, and no object of its node.

A node is *steady* while its session goes on frame by frame, in the shape of its newest inventory; older frames may be
missing. Whatever else comes from it or happens to it makes it leave first, which brings the columns into its
`NodeTracker` and `SessionAccount`; afterwards it enters again, if all is so still.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from aggregator.ingest.layout import TABLES, NodeLayout, Shape
from aggregator.ingest.sequence import NodeTracker
from aggregator.ingest.template import FrameTemplate

READY, HELD, APART = 0, 1, 2
"""States of a place: a frame may be held, one is held, or the node is not steady."""
Places = npt.NDArray[np.intp]
Templates = dict[int, FrameTemplate | None]
"""Of frames of one shape, by their length; None for a length whose frames are read one by one."""


class SteadyNodes:
    """The nodes that are steady, or have been, each at a place of its own."""

    def __init__(self, room: int = 64) -> None:
        self.places: dict[str, int] = {}
        """By the topic of a node's live frames."""
        self.nodes: list[NodeTracker | None] = []
        """By place."""
        self.templates: list[Templates] = []
        """By the number of a shape."""
        self._shapes: dict[Shape, int] = {}
        self._free: list[int] = []
        self._make(room)

    def _make(self, room: int) -> None:
        self.state = bytearray([APART]) * room
        """By place; see `READY`."""
        self.states = np.frombuffer(self.state, np.uint8)
        """The same."""
        self.next = np.full(room, -1, np.int64)
        """Number of the next frame; -1 where the node is not steady."""
        self.session = np.zeros(room, np.int64)
        self.run = np.zeros(room, np.int32)
        """The number of its session in the store."""
        self.since = np.zeros(room, np.int64)
        """When frames of its newest layout are sampled at the earliest, ns of its clock."""
        self.shape = np.zeros(room, np.intp)
        self.numbers = np.zeros((room, len(TABLES), 2), np.int32)
        """`first_numbers`."""
        self.came = np.zeros(room)
        """When its newest frame came, monotonic seconds."""
        self.came_wall = np.zeros(room, np.int64)
        """The same, ns since 1970."""

    def enter(self, node: NodeTracker) -> None:
        """Make a node steady if it can be."""
        account = None if node.session is None else node.accounts.get(node.session)
        if (
            account is None
            or account.run < 0
            or account.end != node.seq
            or not (node.proven and node.online and node.numbers)
        ):
            return
        place = self.places.get(node.topic, -1)
        if place < 0:
            place = self._take_place(node)
        self.next[place], self.session[place], self.run[place] = node.seq + 1, account.session, account.run
        self.since[place] = node.layouts[0].taken_at if len(node.layouts) > 1 else 0
        self.shape[place] = self._shape_of(node.layouts[0])
        self.numbers[place] = np.frombuffer(node.numbers, np.int32).reshape(-1, 2)
        self.came[place], self.came_wall[place] = node.last_frame, node.last_frame_wall
        node.steady = place
        self.state[place] = READY

    def leave(self, node: NodeTracker) -> None:
        """Make a node other than steady: its objects say all that is known, and may change."""
        place = node.steady
        if place >= 0:
            self.bring_back(node)
            self.state[place], self.next[place], node.steady = APART, -1, -1

    def bring_back(self, node: NodeTracker) -> None:
        """Bring what the columns know of a node into its objects."""
        place = node.steady
        if place < 0:
            return
        last = int(self.next[place]) - 1
        if last == node.seq:
            return
        account = node.accounts[int(self.session[place])]
        account.have.add_span(node.seq + 1, last)
        account.end = last
        node.frames += last - node.seq
        node.seq, node.last_frame, node.last_frame_wall = last, float(self.came[place]), int(self.came_wall[place])

    def remove(self, node: NodeTracker) -> None:
        """Give up the place of a node that has left."""
        place = self.places.pop(node.topic, -1)
        if place >= 0:
            self.nodes[place] = None
            self._free.append(place)

    def of(self, places: Iterable[int]) -> list[NodeTracker]:
        """Return the nodes at some places; none of them is free."""
        return [node for place in places if (node := self.nodes[place]) is not None]

    def _take_place(self, node: NodeTracker) -> int:
        if self._free:
            place = self._free.pop()
            self.nodes[place] = node
        else:
            place = len(self.nodes)
            self.nodes.append(node)
            if place >= len(self.next):
                self._grow()
        self.places[node.topic] = place
        return place

    def _grow(self) -> None:
        names = "states", "next", "session", "run", "since", "shape", "numbers", "came", "came_wall"
        before = {name: getattr(self, name) for name in names}
        rows = len(self.next)
        self._make(2 * rows)
        for name, values in before.items():
            getattr(self, name)[:rows] = values

    def _shape_of(self, layout: NodeLayout) -> int:
        number = self._shapes.setdefault(layout.shape, len(self.templates))
        if number == len(self.templates):
            self.templates.append({})
        return number

    def templates_of(self, layout: NodeLayout) -> Templates:
        """Return the templates of frames that fit a layout."""
        return self.templates[self._shape_of(layout)]
