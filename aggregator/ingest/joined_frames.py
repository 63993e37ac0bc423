"""Frames of many nodes in one array, which are accounted for and read together rather than one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from aggregator.ingest.layout import BlockLayout
from aggregator.ingest.sequence import ArrivedFrame, NodeTracker
from aggregator.ingest.steady_nodes import Places, SteadyNodes
from aggregator.ingest.template import Bytes, FrameTemplate
from aggregator.store.protocol import Frames
from telemetry.wire.border import decode_frame


@dataclass(frozen=True, slots=True)
class JoinedFrames:
    """Live frames of one template, at most one of each node, each the newest of its node and to be stored. Before the
    devices of a node change, or it is removed, they are taken apart."""

    template: FrameTemplate
    content: Bytes
    """Their bytes, shape (frames, `template.size`)."""
    steady: SteadyNodes
    places: Places
    """Of their nodes."""
    numbers: npt.NDArray[np.int32]
    """Their nodes' `first_numbers`, shape (frames, tables, 2)."""
    frames: Frames
    session: npt.NDArray[np.int64]
    stored: ClassVar[bool] = True

    @property
    def blocks(self) -> tuple[BlockLayout, ...]:
        """The blocks of the layout of any of them: they differ in their devices alone."""
        return self.steady.of(self.places[:1].tolist())[0].layouts[0].blocks

    @property
    def count(self) -> int:
        """Number of frames."""
        return len(self.content)

    @property
    def size(self) -> int:
        """Bytes of their messages."""
        return self.content.size

    @property
    def nodes(self) -> list[NodeTracker]:
        """Their nodes."""
        return self.steady.of(self.places.tolist())

    def apart(self) -> list[ArrivedFrame]:
        """Return them one by one."""
        return [
            ArrivedFrame(
                node,
                decode_frame(content.tobytes()),
                node.layouts[0],
                run,
                received_at,
                len(content),
                False,
                node.rows,
                True,
            )
            for node, content, run, received_at in zip(
                self.nodes, self.content, self.frames.run.tolist(), self.frames.received_at.tolist(), strict=True
            )
        ]
