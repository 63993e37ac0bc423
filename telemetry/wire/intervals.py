"""Sets of whole numbers as spans: the frames of a session that are accounted for.

Live frames arrive in order, so the set is nearly always one span and `add` nearly always extends
its end; holes and backfill make it a few more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator


class IntervalSet:
    """A set of non-negative whole numbers, stored as sorted, disjoint, non-touching spans."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in spans:
            self.add_span(first, last)

    def add(self, number: int) -> bool:
        """Add one number; return False when it was there already."""
        lasts = self._lasts
        if lasts and number == lasts[-1] + 1:
            lasts[-1] = number
            return True
        if number in self:
            return False
        self.add_span(number, number)
        return True

    def add_span(self, first: int, last: int) -> None:
        """Add `first` to `last`, both included; an empty span (last < first) adds nothing."""
        if last < first:
            return
        low = bisect_left(self._lasts, first - 1)
        high = low
        while high < len(self._firsts) and self._firsts[high] <= last + 1:
            first = min(first, self._firsts[high])
            last = max(last, self._lasts[high])
            high += 1
        self._firsts[low:high] = [first]
        self._lasts[low:high] = [last]

    def remove(self, number: int) -> bool:
        """Remove a number; return False when it was not there."""
        at = bisect_left(self._lasts, number)
        if at == len(self._firsts) or self._firsts[at] > number:
            return False
        first, last = self._firsts[at], self._lasts[at]
        rest = [span for span in ((first, number - 1), (number + 1, last)) if span[0] <= span[1]]
        self._firsts[at : at + 1] = [span[0] for span in rest]
        self._lasts[at : at + 1] = [span[1] for span in rest]
        return True

    def remove_span(self, first: int, last: int) -> int:
        """Remove `first` to `last`, both included; return how many of them were there."""
        kept = [
            part
            for begin, end in self
            for part in ((begin, min(end, first - 1)), (max(begin, last + 1), end))
            if part[0] <= part[1]
        ]
        before = len(self)
        self._firsts[:] = [part[0] for part in kept]
        self._lasts[:] = [part[1] for part in kept]
        return before - len(self)

    def __contains__(self, number: int) -> bool:
        at = bisect_left(self._lasts, number)
        return at < len(self._firsts) and self._firsts[at] <= number

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Iterate over the spans, in order."""
        return iter(list(zip(self._firsts, self._lasts, strict=True)))

    def __len__(self) -> int:
        """Return the number of elements."""
        return sum(self._lasts) - sum(self._firsts) + len(self._firsts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IntervalSet):
            return NotImplemented
        return self._firsts == other._firsts and self._lasts == other._lasts

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"IntervalSet({list(self)})"

    @property
    def spans(self) -> int:
        """Number of spans."""
        return len(self._firsts)

    @property
    def end(self) -> int:
        """The highest number, or -1 when empty."""
        return self._lasts[-1] if self._lasts else -1

    def missing(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the spans of `first` to `last` that are not in the set."""
        holes: list[tuple[int, int]] = []
        for begin, end in self:
            if end < first:
                continue
            if begin > last:
                break
            if begin > first:
                holes.append((first, begin - 1))
            first = end + 1
        if first <= last:
            holes.append((first, last))
        return holes
