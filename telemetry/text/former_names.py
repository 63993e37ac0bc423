"""Names that people write into files and queries, and that were changed.

The rule (docs/upgrading.md): the release that changes a name reads the former one beside it, and warns where that stands in a
file; the next release refuses it. `tests/test_former_names.py` fails when a row outlives its release, and when a row
has no proof that its former name is still read.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class NameKind(StrEnum):
    """Where a name is written."""

    RULE_KEY = "key of a rule"
    FILTER_KEY = "filter key"


class ChangedName(NamedTuple):
    """A name that was changed."""

    kind: NameKind
    former: str
    name: str
    """The name now."""
    release: str
    """The release that changed it, the only one that reads both."""

    @property
    def warning(self) -> str:
        """A sentence for the log, to stand behind the place."""
        return f"`{self.former}` is `{self.name}` now, and the next release will refuse the old name"


FORMER_NAMES = (
    ChangedName(NameKind.RULE_KEY, "owner", "remediation", "2026.11"),
    ChangedName(NameKind.FILTER_KEY, "held", "limited", "2026.11"),
    ChangedName(NameKind.FILTER_KEY, "allday", "continuous", "2026.11"),
)


def former_names(kind: NameKind) -> list[ChangedName]:
    """Return the former names of a kind that this release still reads."""
    return [each for each in FORMER_NAMES if each.kind is kind]
