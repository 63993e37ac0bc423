"""Conversion of PNG pictures to a palette of at most 256 colours.

A terminal has a few dozen colours; the others are antialiased edges of letters, where the nearest of
256 colours is indistinguishable. Only the one kind of PNG that is drawn here is read and written.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

MOST = 256
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
Bytes = npt.NDArray[np.uint8]


def small(picture: bytes) -> bytes:
    """Return the same picture with a palette. Raises `ValueError` for what is no PNG of 8 bits in
    three or four channels, line by line."""
    pixels = read(picture)
    if pixels.shape[2] == 3:
        pixels = np.dstack([pixels, np.full(pixels.shape[:2], 255, np.uint8)])
    packed = np.ascontiguousarray(pixels).view(np.uint32)[..., 0]
    colours, place, counts = np.unique(packed, return_inverse=True, return_counts=True)
    known = colours[:, None].view(np.uint8).astype(np.int64)
    palette, nearest = _palette(known, counts)
    return write(palette.astype(np.uint8), nearest[place].reshape(packed.shape).astype(np.uint8))


def _palette(
    known: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.intp]]:
    """Choose colours, and map each known one to one of them. The most common ones
    stay exact, so that large surfaces do not change."""
    if len(known) <= MOST:
        return known, np.arange(len(known))
    exact = np.argsort(-counts)[: MOST // 2]
    rest = np.setdiff1d(np.arange(len(known)), exact)
    boxes = [rest]
    while len(boxes) < MOST - len(exact):
        widest = max(range(len(boxes)), key=lambda n: _weight(known[boxes[n]], counts[boxes[n]]))
        if len(boxes[widest]) < 2:
            break
        boxes[widest : widest + 1] = _halves(boxes[widest], known, counts)
    means = [np.average(known[box], axis=0, weights=counts[box]).round() for box in boxes]
    palette = np.concatenate([known[exact], np.array(means, np.int64)])
    far = ((known[:, None, :] - palette[None]) ** 2).sum(2)
    return palette, far.argmin(1)


def _weight(colours: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> float:
    """Return the priority of splitting a box of colours, by its width and its number of pixels."""
    return float(np.ptp(colours, axis=0).max() * np.sqrt(counts.sum()))


def _halves(
    box: npt.NDArray[np.intp], known: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
) -> list[npt.NDArray[np.intp]]:
    """Cut a box across its widest channel, where half of what is seen lies on each side."""
    channel = int(np.ptp(known[box], axis=0).argmax())
    ordered = box[np.argsort(known[box, channel], kind="stable")]
    seen = np.cumsum(counts[ordered])
    cut = int(np.clip(np.searchsorted(seen, seen[-1] / 2) + 1, 1, len(ordered) - 1))
    return [ordered[:cut], ordered[cut:]]


def read(picture: bytes) -> Bytes:
    """Return lines, columns and channels."""
    if not picture.startswith(_SIGNATURE):
        raise ValueError("it is no PNG")
    parts = list(_chunks(picture))
    width, height, depth, kind, *_, interlaced = struct.unpack("!IIBBBBB", parts[0][1])
    channels = {2: 3, 6: 4}.get(kind)
    if depth != 8 or channels is None or interlaced:
        raise ValueError(f"a PNG of {depth} bits and kind {kind} is not drawn here")
    raw = zlib.decompress(b"".join(body for name, body in parts if name == b"IDAT"))
    lines = np.frombuffer(raw, np.uint8).reshape(height, 1 + width * channels)
    return _unfiltered(lines[:, 0], lines[:, 1:].reshape(height, width, channels))


def _chunks(picture: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_SIGNATURE)
    while at < len(picture):
        (size,) = struct.unpack_from("!I", picture, at)
        yield picture[at + 4 : at + 8], picture[at + 8 : at + 8 + size]
        at += size + 12


def _unfiltered(kinds: Bytes, lines: Bytes) -> Bytes:
    """Undo the filters. Each pixel needs those to the left, above, and above to the left: all pixels
    of a diagonal are worked out at once."""
    height, width, channels = lines.shape
    done = np.zeros((height + 1, width + 1, channels), np.int16)
    for diagonal in range(height + width - 1):
        y = np.arange(max(0, diagonal - width + 1), min(height, diagonal + 1))
        x = diagonal - y
        left, up, corner = done[y + 1, x], done[y, x + 1], done[y, x]
        guess = left + up - corner
        far = [abs(guess - each) for each in (left, up, corner)]
        paeth = np.where((far[0] <= far[1]) & (far[0] <= far[2]), left, np.where(far[1] <= far[2], up, corner))
        added = np.choose(kinds[y][:, None], [0, left, up, (left + up) >> 1, paeth])
        done[y + 1, x + 1] = (lines[y, x] + added) & 255
    return done[1:, 1:].astype(np.uint8)


def write(palette: Bytes, pixels: Bytes) -> bytes:
    """Return a PNG: a palette (red, green, blue, how opaque), and the number of a colour for each
    pixel."""
    height, width = pixels.shape
    raw = np.concatenate([np.zeros((height, 1), np.uint8), pixels], 1).tobytes()
    return _SIGNATURE + b"".join(
        _chunk(name, body)
        for name, body in (
            (b"IHDR", struct.pack("!IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            (b"PLTE", palette[:, :3].tobytes()),
            (b"tRNS", palette[:, 3].tobytes()),
            (b"IDAT", zlib.compress(raw, 9)),
            (b"IEND", b""),
        )
    )


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack("!I", len(body)) + name + body + struct.pack("!I", zlib.crc32(name + body))
