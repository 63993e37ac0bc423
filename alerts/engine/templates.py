"""Texts of an alert: a rule's templates, filled in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from alerts.engine.subjects import SubjectInfo
from alerts.rules.names import WORDS

UNKNOWN = "unknown"


def fill(
    template: str, info: SubjectInfo, values: Mapping[str, str], reading: Callable[[str], str]
) -> str:
    """Fill in a rule's template.

    `values`: value, limit, line and process. `reading` returns the present value of a metric as text.
    """
    return template.format_map(_Facts(info, values, reading))


class _Facts(dict[str, Any]):
    """Fields by name; one that is not known is `unknown`."""

    def __init__(
        self, info: SubjectInfo, values: Mapping[str, str], reading: Callable[[str], str]
    ) -> None:
        super().__init__()
        self._info = info
        self._values = values
        self._reading = reading

    def __missing__(self, name: str) -> str:
        info = self._info
        if name in self._values:
            return self._values[name] or UNKNOWN
        match name:
            case "where":
                return info.where
            case "node":
                return info.node or UNKNOWN
            case "gpu" if info.gpu is not None:
                return f"GPU {info.gpu.index}"
            case "index":
                return info.labels.get("gpu", UNKNOWN)
            case "name" if info.gpu is not None:
                return info.gpu.name
        if name in WORDS or name == "cost":
            return self._reading(name)
        return info.facts.get(name) or info.labels.get(name) or UNKNOWN
