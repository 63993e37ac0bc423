"""Pictures with a palette show what the whole ones do."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from docs.palette import MOST, _chunks, read, small

SIZE = (37, 61)


def _png(pixels: np.ndarray[tuple[int, int, int], np.dtype[np.uint8]], filters: list[int]) -> bytes:
    """A PNG whose lines use filters in turn, written by the rules of the format, pixel by pixel."""
    height, width, channels = pixels.shape
    wide = pixels.reshape(height, width * channels).astype(int)
    lines = []
    for y in range(height):
        kind = filters[y % len(filters)]
        line = bytearray([kind])
        for x in range(width * channels):
            left = wide[y, x - channels] if x >= channels else 0
            up = wide[y - 1, x] if y else 0
            corner = wide[y - 1, x - channels] if y and x >= channels else 0
            guess = left + up - corner
            nearest = min((left, up, corner), key=lambda each: abs(guess - each))
            line.append((wide[y, x] - [0, left, up, (left + up) // 2, nearest][kind]) % 256)
        lines.append(bytes(line))
    head = struct.pack("!IIBBBBB", width, height, 8, {3: 2, 4: 6}[channels], 0, 0, 0)

    def chunk(name: bytes, body: bytes) -> bytes:
        check = zlib.crc32(name + body)
        return struct.pack("!I", len(body)) + name + body + struct.pack("!I", check)

    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(name, body) for name, body in ((b"IHDR", head), (b"IDAT", zlib.compress(b"".join(lines))), (b"IEND", b""))
    )


def _shown(picture: bytes) -> np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]:
    """What a picture with a palette shows."""
    parts = dict(_chunks(picture))
    width, height, depth, kind = struct.unpack("!IIBB", parts[b"IHDR"][:10])
    assert (depth, kind) == (8, 3)
    colours = np.frombuffer(parts[b"PLTE"], np.uint8).reshape(-1, 3)
    palette = np.column_stack([colours, np.frombuffer(parts[b"tRNS"], np.uint8)])
    raw = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not raw[:, 0].any()
    return palette[raw[:, 1:]]


def _noise(colours: int, channels: int) -> np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]:
    chance = np.random.default_rng(7)
    known = chance.integers(0, 256, (colours, 3), np.uint8)
    pixels = known[chance.integers(0, colours, SIZE)]
    return pixels if channels == 3 else np.dstack([pixels, np.full(SIZE, 255, np.uint8)])


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize("filters", [[0], [1], [2], [3], [4], [4, 0, 3, 1, 2]])
def test_every_filter_is_undone(filters: list[int], channels: int) -> None:
    pixels = _noise(40, channels)
    assert (read(_png(pixels, filters)) == pixels).all()


def test_few_colours_stay_exactly_what_they_are() -> None:
    pixels = _noise(MOST - 1, 4)
    pixels[:3, :3] = 0  # a corner that is not there
    assert (_shown(small(_png(pixels, [0]))) == pixels).all()


def test_many_colours_become_near_ones_and_surfaces_stay() -> None:
    """A surface of one colour, with every shade of two others beside it, as soft edges are."""
    pixels = np.zeros((64, 96, 3), np.uint8)
    pixels[:, :32] = (18, 18, 18)
    pixels[:, 32:, 0] = np.arange(64)[:, None] * 4
    pixels[:, 32:, 1] = np.arange(64)[None] * 4
    shown = _shown(small(_png(pixels, [4])))
    assert (shown[:, :32] == (18, 18, 18, 255)).all()
    assert len(np.unique(shown.reshape(-1, 4), axis=0)) <= MOST
    assert np.abs(shown[..., :3].astype(int) - pixels).max() < 24


def test_it_is_smaller_and_refuses_what_it_does_not_know() -> None:
    picture = _png(_noise(40, 4), [0])
    assert len(small(picture)) < 0.7 * len(picture)
    with pytest.raises(ValueError, match="no PNG"):
        small(b"GIF89a")
    with pytest.raises(ValueError, match="kind 3"):
        small(small(picture))
