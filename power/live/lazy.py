"""Facts of a board's rows, put into words only when somebody reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import overload


class Facts(Sequence[Mapping[str, str]]):
    """Looks like a tuple of mappings; 2,000 circuits cost nothing until one of them is asked."""

    def __init__(self, size: int, say: Callable[[int], Mapping[str, str]]) -> None:
        self._size, self._say = size, say

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Mapping[str, str]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Mapping[str, str]]: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, str] | Sequence[Mapping[str, str]]:
        if isinstance(index, slice):
            return [self._say(row) for row in range(*index.indices(self._size))]
        row = index + self._size if index < 0 else index
        if not 0 <= row < self._size:
            raise IndexError(index)
        return self._say(row)

    def __iter__(self) -> Iterator[Mapping[str, str]]:
        return (self._say(row) for row in range(self._size))
