"""Where the readings of a frame lie in its bytes: frames of the same shape have them at the same places.

Nearly all frames of a fleet have one of a few shapes. What is found once in a frame that was decoded, a
`FrameTemplate`, reads a thousand others of its length in one pass. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from telemetry.wire.frame import Frame

Bytes = npt.NDArray[np.uint8]
Span = tuple[int, int]
"""First byte, and the one behind the last."""

_INTEGERS = MappingProxyType({0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8})
"""MessagePack: bytes of an unsigned number behind its first byte."""
_ARRAYS = MappingProxyType({0xDC: 2, 0xDD: 4})
_BINARIES = MappingProxyType({0xC4: 1, 0xC5: 2, 0xC6: 4})
_SMALL = 0x7F
"""Highest number that is its own first byte; the bit above is 0."""
_WHOLE = 0xFF
_UNUSUAL = "a frame that is written in an unusual way"


@dataclass(frozen=True, slots=True)
class TemplateBlock:
    """A block of the frames of a template."""

    number: int
    """Its position in the schema."""
    gauges: Span
    counters: Span


@dataclass(frozen=True, slots=True)
class FrameHeads:
    """The heads of frames of one template, an array an attribute; numbers that are too large are negative."""

    right: npt.NDArray[np.bool_]
    """Whether it is a frame of the template at all; the other values are nonsense where it is not."""
    session: npt.NDArray[np.int64]
    seq: npt.NDArray[np.int64]
    sampled_at: npt.NDArray[np.int64]


class FrameTemplate:
    """The places of everything in frames without events that have one length and the same blocks."""

    def __init__(self, payload: bytes, frame: Frame) -> None:
        """`frame`: what `payload` was decoded to. Raises `ValueError` for one that has events, or is written otherwise than
        collectors write: with signed numbers, say."""
        if frame.events:
            raise ValueError("a frame with events has no template")
        walk = _Walk(payload)
        walk.head(_ARRAYS)
        walk.integer()
        self._session, self._seq, self._sampled_at = walk.value(), walk.value(), walk.value()
        walk.head(_ARRAYS)
        blocks = []
        for packed in frame.blocks:
            walk.head(_ARRAYS)
            walk.integer()
            walk.integer()
            blocks.append(TemplateBlock(packed.block, walk.bytes(packed.gauges), walk.bytes(packed.counters)))
        if walk.at < len(payload):
            walk.head(_ARRAYS)  # of no events
        if walk.at != len(payload):
            raise ValueError("a frame with more than this release knows")
        self.size = len(payload)
        self.blocks = tuple(blocks)
        mask = np.array(walk.mask, np.uint8)
        self._fixed = np.flatnonzero(mask)
        self._mask = mask[self._fixed]
        self._want = np.frombuffer(payload, np.uint8)[self._fixed] & self._mask

    def heads(self, rows: Bytes) -> FrameHeads:
        """Read the heads of frames, shape (frames, `size`)."""
        right = ((rows[:, self._fixed] & self._mask) == self._want).all(axis=1)
        session, seq, at = (_numbers(rows, places) for places in (self._session, self._seq, self._sampled_at))
        return FrameHeads(right, session, seq, at)


class _Walk:
    """Goes through the bytes of a frame, and notes which of them all frames of its template have in common. Raises
    `ValueError` where they are right, and not as a collector writes them."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self.at = 0
        self.mask: list[int] = []
        """By byte the bits that are the same in all."""

    def head(self, kinds: Mapping[int, int]) -> None:
        """Pass the head of an array or of bytes; short arrays have one of a single byte."""
        first = self._payload[self.at]
        if kinds is _ARRAYS and 0x90 <= first <= 0x9F:
            return self._pass(1, _WHOLE)
        if first not in kinds:
            raise ValueError(_UNUSUAL)
        return self._pass(1 + kinds[first], _WHOLE)

    def integer(self) -> None:
        """Pass a number that all have in common."""
        self._pass(1 + self._width(), _WHOLE)

    def value(self) -> Span:
        """Pass a number of each frame's own."""
        width, begin = self._width(), self.at
        if not width:
            self._pass(1, _WHOLE & ~_SMALL)
            return begin, begin + 1
        self._pass(1, _WHOLE)
        self._pass(width, 0)
        return begin + 1, self.at

    def bytes(self, content: bytes) -> Span:
        """Pass bytes, which are each frame's own."""
        self.head(_BINARIES)
        begin = self.at
        self._pass(len(content), 0)
        return begin, self.at

    def _width(self) -> int:
        first = self._payload[self.at]
        if first <= _SMALL:
            return 0
        if first not in _INTEGERS:
            raise ValueError(_UNUSUAL)
        return _INTEGERS[first]

    def _pass(self, count: int, mask: int) -> None:
        self.mask += [mask] * count
        self.at += count


def _numbers(rows: Bytes, span: Span) -> npt.NDArray[np.int64]:
    """Return big-endian numbers of one to eight bytes."""
    begin, end = span
    wide = np.zeros((len(rows), 8), np.uint8)
    wide[:, 8 - (end - begin) :] = rows[:, begin:end]
    return wide.view(">i8").astype(np.int64).ravel()
