"""Decode the sub-codes of NVLink errors of Blackwell GPUs: XIDs 144 to 150.

The line ends with hexadecimal words: the first (intrInfo) names unit and reason, the second is the
error status. Drivers from R575 on have another layout of intrInfo (V2). The two layouts never match
the same word for the same XID, except for XID 150, where both mean the same: so the version of the
driver is not needed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

XIDS = range(144, 151)


@dataclass(frozen=True, slots=True)
class SubCode:
    """Meaning of a sub-code."""

    unit: str
    action: str
    """`IGNORE`, `RESET_GPU`, or `XID_154_EVAL`: as the recovery action of XID 154."""
    severity: str
    """NVIDIA's word: `fatal`, `link fatal`, `non-fatal`."""
    investigate: str
    """Place of the cause: `INVESTIGATE_PEER_DEVICE` and the like."""
    layout: str
    """`V1` (drivers before R575) or `V2`."""


@dataclass(frozen=True, slots=True)
class _Rule:
    mask: int
    value: int
    status: int | None
    code: SubCode


def _bits(pattern: str) -> tuple[int, int]:
    """Return mask and value of a pattern of 0, 1 and -, bit 31 first."""
    mask = int(pattern.replace("0", "1").replace("-", "0"), 2)
    return mask, int(pattern.replace("-", "0"), 2)


@cache
def _rules(xid: int) -> tuple[_Rule, ...]:
    text = files("alerts.xid").joinpath("nvlink5.toml").read_text(encoding="utf-8")
    rules = []
    for unit, old, new, status, action, severity, investigate in tomllib.loads(text)[f"xid_{xid}"]:
        for layout, pattern in (("V2", new), ("V1", old)):
            mask, value = _bits(pattern)
            code = SubCode(unit, action, severity, investigate, layout)
            rules.append(_Rule(mask, value, int(status, 16) if status else None, code))
    return tuple(rules)


def decode(xid: int, words: Sequence[int]) -> SubCode | None:
    """Return the sub-code of the words of a line; None when they are cut off or in no table."""
    if xid not in XIDS or not words:
        return None
    for rule in _rules(xid):
        if words[0] & rule.mask == rule.value and (rule.status is None or (len(words) > 1 and words[1] == rule.status)):
            return rule.code
    return None
