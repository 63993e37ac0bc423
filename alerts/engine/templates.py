"""What an alert says to a person: a rule's sentences, filled in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from string import Formatter
from typing import Any

from alerts.engine.subjects import SubjectInfo
from alerts.rules.names import WORDS
from telemetry.errors import did_you_mean

FIELDS = (
    "where", "node", "gpu", "uuid", "index", "name", "pci", "serial", "slot", "link", "value",
    "limit", "cost", "line", "process", "rack", "job", "circuits",
)  # fmt: skip
"""What may stand in braces in a rule's `summary` and `description`, beside names of metrics."""
UNKNOWN = "unknown"


def field_problems(template: str, *, facts: bool) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a sentence, with the cure. `facts`: whether a power snapshot's own words may
    stand in it, which nobody knows beforehand."""
    try:
        names = list(_fields_of(template))
    except ValueError as error:
        yield f"{template!r}: {error}", f"Use {{name}} with one of: {', '.join(FIELDS)}."
        return
    for name in names:
        if name not in FIELDS and name not in WORDS and not (facts and name.isidentifier()):
            hint = did_you_mean(name, [*FIELDS, *WORDS])
            yield (
                f"{{{name}}} stands for nothing",
                hint or f"Use the name of a metric, or one of: {', '.join(FIELDS)}.",
            )


def _fields_of(template: str) -> Iterator[str]:
    """Names in braces. Raises `ValueError` when the braces don't match."""
    for _, name, spec, conversion in Formatter().parse(template):
        if name is not None:
            if spec or conversion:
                raise ValueError(f"{{{name}}} may have no format of its own")
            yield name


def fill(
    template: str, place: SubjectInfo, said: Mapping[str, str], reading: Callable[[str], str]
) -> str:
    """Put facts into a rule's sentence.

    `said`: value, limit and what the event told. `reading` gives a metric's value now, in words.
    """
    return template.format_map(_Facts(place, said, reading))


class _Facts(dict[str, Any]):
    """Looks a field up where it is known; what nobody knows is said to be unknown."""

    def __init__(
        self, place: SubjectInfo, said: Mapping[str, str], reading: Callable[[str], str]
    ) -> None:
        super().__init__()
        self._place = place
        self._said = said
        self._reading = reading

    def __missing__(self, name: str) -> str:
        place = self._place
        if name in self._said:
            return self._said[name] or UNKNOWN
        match name:
            case "where":
                return place.where
            case "node":
                return place.node or UNKNOWN
            case "gpu" if place.gpu is not None:
                return f"GPU {place.gpu.index}"
            case "index":
                return place.labels.get("gpu", UNKNOWN)
            case "name" if place.gpu is not None:
                return place.gpu.name
        if name in WORDS or name == "cost":
            return self._reading(name)
        return place.facts.get(name) or place.labels.get(name) or UNKNOWN
