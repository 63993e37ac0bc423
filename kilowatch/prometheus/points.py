"""Points of the series of a unit test, and their notation in promtool."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Points:
    """Values of some series at each step; None where there is none."""

    steps: int
    values: dict[str, list[float | None]] = field(default_factory=dict)

    def put(self, name: str, labels: dict[str, str], step: int, value: float | None) -> None:
        """Set the value of a series at a step."""
        inner = ",".join(f'{label}="{word}"' for label, word in labels.items() if word)
        its = self.values.setdefault(f"{name}{{{inner}}}", [None] * self.steps)
        its[step] = value


def dense(
    name: str, values: Sequence[float | None], repeat: int, grows: Collection[str]
) -> list[float | None]:
    """Return a value for each point: that of the last step, or for a counter whose growth is measured,
    one on the way to the next."""
    found: list[float | None] = []
    for here, there in zip(values, [*values[1:], None], strict=True):
        if (
            name.split("{", maxsplit=1)[0] in grows
            and here is not None
            and there is not None
            and there > here
        ):
            found += [here + (there - here) * part / repeat for part in range(repeat)]
        else:
            found += [here] * repeat
    return found


def notation(values: Sequence[float | None]) -> str:
    """Return values in promtool's notation: `5x3` is 5 four times; a gap ends the series."""
    words: list[str] = []
    before: float | None = None
    runs: list[tuple[float | None, int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1] = value, runs[-1][1] + 1
        else:
            runs.append((value, 1))
    for value, length in runs:
        if value is None:
            words.append("stale" if before is not None else "_")
            if length > 1:
                words.append(f"_x{length - 1}")
        elif value == math.inf:
            words.append(" ".join(["Inf"] * length))  # promtool can't repeat it
        else:
            words.append(_number(value) if length == 1 else f"{_number(value)}x{length - 1}")
        before = value
    return " ".join(words)


def _number(value: float) -> str:
    return f"{value:.12g}"
