"""Stateless random numbers: every draw is a hash of its purpose, so it can be repeated."""

from __future__ import annotations

import hashlib
from functools import lru_cache

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E37_79B9_7F4A_7C15
NOISE_SIZE = 4096
NOISE_MASK = NOISE_SIZE - 1


def _mix(number: int) -> int:
    """Mix 64 bits (the finaliser of splitmix64)."""
    number = (number ^ (number >> 30)) * 0xBF58_476D_1CE4_E5B9 & _MASK
    number = (number ^ (number >> 27)) * 0x94D0_49BB_1331_11EB & _MASK
    return number ^ (number >> 31)


def _number(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big")


def draw(seed: int, *about: int | str) -> int:
    """Return 64 bits that depend only on the seed and on the words `about` their purpose."""
    number = _mix((seed + _GOLDEN) & _MASK)
    for part in about:
        word = part if isinstance(part, int) else _number(part)
        number = _mix(((number + _GOLDEN) ^ word) & _MASK)
    return number


def unit(seed: int, *about: int | str) -> float:
    """Return a number from 0 (included) to 1 (excluded)."""
    return (draw(seed, *about) >> 11) * 2.0**-53


@lru_cache(maxsize=64)
def noise(seed: int) -> tuple[float, ...]:
    """Return `NOISE_SIZE` numbers from 0 to 1; a GPU reads them from an offset of its own.

    A look-up costs 50 ns where a hash costs 1 us, and a fleet needs ten of them a GPU and tick.
    """
    return tuple(unit(seed, "noise", number) for number in range(NOISE_SIZE))
