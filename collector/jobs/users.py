"""Names of users by number, and the form in which persons leave the node."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from collector.jobs.config import JobsConfig
from collector.jobs.source import JobsAnswer, Ownership
from telemetry.files.secrets import read_secret
from telemetry.wire.jobs import Job, JobKey, UserPrivacy

PASSWD = Path("/etc/passwd")
HIDDEN = "hidden"
"""User in the key of a job of nobody's scheduler where persons are not to leave the node."""
MOST_BYTES = 16 * 1024 * 1024


class UserNames:
    """Names of `/etc/passwd`. A directory service is not asked: its answer may take seconds, or not come."""

    def __init__(self, path: Path = PASSWD) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._names: dict[int, str] = {}

    def name(self, uid: int) -> str:
        """Return the name of a user; the number as text where the file has none."""
        return self._names.get(uid) or str(uid)

    def refresh(self) -> None:
        """Read the file again if it has changed. One that can't be read has no names."""
        try:
            its = self._path.stat()
            stamp = its.st_mtime_ns, its.st_size
            if stamp == self._stamp:
                return
            text = self._path.read_bytes()[:MOST_BYTES].decode(errors="replace")
        except OSError:
            self._stamp, self._names = None, {}
            return
        names: dict[int, str] = {}
        for line in text.splitlines():
            parts = line.split(":")
            if len(parts) > 2 and parts[0] and parts[2].isascii() and parts[2].isdigit():
                names.setdefault(int(parts[2]), parts[0])
        self._stamp, self._names = stamp, names


class PersonFilter:
    """Filter of what leaves the node in place of users and accounts."""

    def __init__(self, config: JobsConfig) -> None:
        """Raise `ConfigError` for a secret that can't be read."""
        self.privacy = config.users
        self._key = b""
        if self.privacy is UserPrivacy.HASHED and config.secret_file is not None:
            secret = read_secret("jobs.secret_file", config.secret_file)
            self._key = hashlib.blake2b(secret.encode()).digest()

    def person(self, name: str) -> str:
        """Return a user or account as it leaves the node: itself, a hash of 12 digits, or nothing."""
        if self.privacy is UserPrivacy.NAMES or not name:
            return name
        if self.privacy is UserPrivacy.OFF:
            return ""
        return hashlib.blake2b(name.encode(), digest_size=6, key=self._key).hexdigest()

    def key(self, key: JobKey) -> JobKey:
        """Return the key of a job, in which the user of one outside all schedulers stands for its number."""
        if key.scheduler != "user" or self.privacy is UserPrivacy.NAMES:
            return key
        return msgspec.structs.replace(key, id=self.person(key.id) or HIDDEN)

    def answer(self, answer: JobsAnswer) -> JobsAnswer:
        """Return the answer of a source as it leaves the node."""
        if self.privacy is UserPrivacy.NAMES:
            return answer
        return JobsAnswer(
            state=answer.state,
            jobs=tuple(self._job(job) for job in answer.jobs),
            allocations=tuple(
                msgspec.structs.replace(each, job=self.key(each.job)) for each in answer.allocations
            ),
            owners={
                process: Ownership(self.key(owner.job), owner.step, owner.source)
                for process, owner in answer.owners.items()
            },
            processes=tuple(
                msgspec.structs.replace(
                    each,
                    user=self.person(each.user),
                    job=None if each.job is None else self.key(each.job),
                )
                for each in answer.processes
            ),
        )

    def _job(self, job: Job) -> Job:
        return msgspec.structs.replace(
            job, key=self.key(job.key), user=self.person(job.user), account=self.person(job.account)
        )
