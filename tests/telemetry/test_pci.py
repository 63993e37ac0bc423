"""One form for all spellings of a PCI address."""

from __future__ import annotations

import pytest

from telemetry.notations.pci import normal_pci


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00000000:18:00.0", "0000:18:00.0"),
        ("0000:3F:00.0", "0000:3f:00.0"),
        ("00000008:01:00.0", "0008:01:00.0"),
        ("PCI:000d:00:00", "000d:00:00.0"),
        ("18:00.1", "0000:18:00.1"),
        ("00012345:01:1E.0", "12345:01:1e.0"),
        ("0000:18:3f.0", None),
        ("GPU is lost", None),
        ("", None),
    ],
)
def test_addresses(text: str, expected: str | None) -> None:
    """Lower case, four digits of domain or more; what is no address is None."""
    assert normal_pci(text) == expected
