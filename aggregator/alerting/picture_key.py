"""The key that signs links to pictures: a file in the data folder that its owner alone may read."""

from __future__ import annotations

import logging
import os
import secrets
from pathlib import Path

from aggregator.folder import kinds
from alerts.message.picture_link import KEY_BYTES, PictureSigner
from telemetry.files import private_file

log = logging.getLogger(__name__)
FILE = "picture.key"
"""Name in `data_dir`. Who removes it ends all links, at the next start."""


def signer_of(folder: Path) -> PictureSigner | None:
    """Return the signer of a data folder, with a new key where it has none that can be used; None where it can't be
    written, which costs the pictures and nothing else."""
    path = folder / FILE
    if (kept := kinds.read(path, _decoded)) is not None:
        return PictureSigner(kept)
    try:
        key = secrets.token_bytes(KEY_BYTES)
        os.close(private_file.write(path, key.hex() + "\n"))
    except OSError as error:
        log.warning("%s: no links to pictures are made: %s", path, error)
        return None
    return PictureSigner(key)


def _decoded(raw: bytes) -> bytes:
    key = bytes.fromhex(raw.decode("ascii").strip())
    if len(key) != KEY_BYTES:
        raise ValueError(f"it has {len(key)} bytes, not {KEY_BYTES}")
    return key
