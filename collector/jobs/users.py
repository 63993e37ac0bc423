"""Names of users by number, and the form in which persons leave the node."""

from __future__ import annotations

from pathlib import Path

import msgspec

from collector.jobs.config import JobsConfig
from collector.jobs.source import JobsAnswer, Ownership
from telemetry.wire.jobs import Job, UserPrivacy
from telemetry.wire.persons import PersonWords

PASSWD = Path("/etc/passwd")
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


class PersonFilter(PersonWords):
    """Filter of what leaves the node in place of users and accounts."""

    def __init__(self, config: JobsConfig) -> None:
        """Raise `ConfigError` for a secret that can't be read."""
        super().__init__(config.users, config.secret_file, "jobs.secret_file")

    def answer(self, answer: JobsAnswer) -> JobsAnswer:
        """Return the answer of a source as it leaves the node."""
        if self.privacy is UserPrivacy.NAMES:
            return answer
        return JobsAnswer(
            state=answer.state,
            jobs=tuple(self._job(job) for job in answer.jobs),
            allocations=tuple(msgspec.structs.replace(each, job=self.key(each.job)) for each in answer.allocations),
            owners={
                process: Ownership(self.key(owner.job), owner.step, owner.source)
                for process, owner in answer.owners.items()
            },
            processes=tuple(
                msgspec.structs.replace(
                    each, user=self.person(each.user), job=None if each.job is None else self.key(each.job)
                )
                for each in answer.processes
            ),
        )

    def _job(self, job: Job) -> Job:
        return msgspec.structs.replace(
            job, key=self.key(job.key), user=self.person(job.user), account=self.person(job.account)
        )
