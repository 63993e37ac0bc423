"""Words in place of persons: names, a keyed hash, or nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path

from msgspec.structs import replace

from telemetry.files.secrets import read_secret
from telemetry.wire.jobs import JobKey, UserPrivacy

BY_USER = "user"
"""Scheduler in the key of a job that no scheduler knows: its number is the user."""
HIDDEN = "hidden"
"""User in the key of a job of nobody's scheduler where persons are not to be told."""


class PersonWords:
    """Words in place of users and accounts. With the same secret a person has the same hash everywhere."""

    def __init__(self, privacy: UserPrivacy, secret_file: Path | None, where: str) -> None:
        """Raise `ConfigError` for a secret that can't be read. `where`: the setting that names its file."""
        self.privacy = privacy
        self._key = b""
        if privacy is UserPrivacy.HASHED and secret_file is not None:
            self._key = hashlib.blake2b(read_secret(where, secret_file).encode()).digest()

    @property
    def mark(self) -> str:
        """Text that is another with another form of words, or another secret."""
        return f"{self.privacy}:{hashlib.blake2b(b'mark', digest_size=6, key=self._key).hexdigest()}"

    def person(self, name: str) -> str:
        """Return a user or account as it may be told: itself, a hash of 12 digits, or nothing."""
        if self.privacy is UserPrivacy.NAMES or not name:
            return name
        if self.privacy is UserPrivacy.OFF:
            return ""
        return hashlib.blake2b(name.encode(), digest_size=6, key=self._key).hexdigest()

    def key(self, key: JobKey) -> JobKey:
        """Return the key of a job, in which the user of one outside all schedulers stands for its number."""
        if key.scheduler != BY_USER or self.privacy is UserPrivacy.NAMES:
            return key
        return replace(key, id=self.person(key.id) or HIDDEN)


NAMED = PersonWords(UserPrivacy.NAMES, None, "").mark
"""Mark of words that are the names themselves."""
