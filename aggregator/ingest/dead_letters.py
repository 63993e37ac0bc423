"""Dead letters: samples of messages that could not be decoded, for inspection.

All such messages are counted; the first few of each reason are stored on disk, within a bound, so that
a flood of them does not fill it.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

log = logging.getLogger(__name__)

SAMPLES = 20
"""Messages stored of each reason."""
LONGEST_SAMPLE = 64 * 1024
"""Bytes stored of one message."""


class RejectedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The description beside the bytes of a rejected message."""

    at: int
    """ns since 1970."""
    topic: str
    reason: str
    detail: str
    length: int
    """Bytes of the whole message; the sample may be cut."""


class DeadLetters:
    """A folder of `<reason>-<number>.bin` with a `.json` beside each."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._left = most_bytes
        self._kept: dict[str, int] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path in folder.iterdir():
                self._left -= path.stat().st_size
                if path.suffix == ".bin":
                    reason = path.stem.rpartition("-")[0]
                    self._kept[reason] = self._kept.get(reason, 0) + 1
        except OSError as error:
            log.warning("quarantine: %s: %s; no samples are kept", folder, error.strerror)
            self._left = 0

    def add(self, reason: str, topic: str, payload: bytes, detail: str, at: int) -> None:
        """Store a message, if there is room for one more of its reason."""
        number = self._kept.get(reason, 0)
        sample = payload[:LONGEST_SAMPLE]
        if number >= SAMPLES or len(sample) > self._left:
            return
        self._kept[reason] = number + 1
        about = msgspec.json.encode(
            RejectedMessage(at=at, topic=topic[:512], reason=reason, detail=detail[:512], length=len(payload))
        )
        self._left -= len(sample) + len(about)
        stem = self._folder / f"{reason}-{number:02d}"
        try:
            stem.with_suffix(".bin").write_bytes(sample)
            stem.with_suffix(".json").write_bytes(about)
        except OSError as error:
            log.warning("quarantine: %s: %s", self._folder, error.strerror)
            return
        if not number:
            log.warning("dropped a message: %s (%s) on %s; a sample is %s.bin", reason, detail, topic, stem)
