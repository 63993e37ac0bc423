"""PCI addresses in one form, whether from the driver, the kernel log or a person."""

from __future__ import annotations

import re
from functools import lru_cache

_ADDRESS = re.compile(r"(?:PCI:)?(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-9a-f]))?", re.IGNORECASE)


@lru_cache(maxsize=4096)  # a log of a million lines names a few addresses
def normal_pci(text: str) -> str | None:
    """Return the normal form `0000:18:00.0` (lower case, domain of four digits or more).

    Accepts `00000000:18:00.0`, `PCI:0000:18:00`, `18:00.0`; an absent domain or function is 0.
    Returns None for anything else.
    """
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        return None
    domain, bus, device, function = (int(part or "0", 16) for part in match.groups())
    if device > 0x1F or function > 7:
        return None
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"
