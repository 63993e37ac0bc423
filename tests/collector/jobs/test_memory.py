"""Jobs in a collector's memory are named in the words for persons that its settings want now."""

from __future__ import annotations

from pathlib import Path

import msgspec

from collector.jobs.memory import JobsMemory
from collector.jobs.merge import OpenAllocation
from telemetry.wire.jobs import Allocation, JobKey, UserPrivacy
from telemetry.wire.persons import HIDDEN, PersonWords
from tests.collector.jobs.given import GPU, at

NAMES = PersonWords(UserPrivacy.NAMES, None, "")
OFF = PersonWords(UserPrivacy.OFF, None, "")


def hashed(folder: Path, secret: str) -> PersonWords:
    """Words that are hashes."""
    path = folder / secret
    path.write_text(f"{secret}-of-more-than-thirty-two-characters\n")
    path.chmod(0o600)
    return PersonWords(UserPrivacy.HASHED, path, "jobs.secret_file")


def remembered(words: PersonWords) -> JobsMemory:
    """A job of a user that lasts and one that ended, and one of Slurm of each."""

    def allocation(key: JobKey, end: int = 0) -> Allocation:
        return Allocation(job=words.key(key), gpu=GPU, begin=at(0), end=end)

    user, slurm = JobKey("user", "", "ada"), JobKey("slurm", "lab", "7")
    return JobsMemory(
        open=tuple(OpenAllocation(allocation=allocation(key)) for key in (user, slurm)),
        ended=tuple(allocation(key, at(5)) for key in (user, slurm)),
        persons=words.mark,
    )


def ids(memory: JobsMemory) -> tuple[list[str], list[str]]:
    """Ids of the jobs that last, and of those that ended."""
    return [each.allocation.job.id for each in memory.open], [each.job.id for each in memory.ended]


def test_the_same_words_tell_the_same(tmp_path: Path) -> None:
    for words in (NAMES, OFF, hashed(tmp_path, "one")):
        memory = remembered(words)
        assert memory.in_words(words) is memory


def test_no_name_is_told_after_users_were_switched_off() -> None:
    told = remembered(NAMES).in_words(OFF)
    assert ids(told) == ([HIDDEN, "7"], ["7"])
    assert b"ada" not in msgspec.json.encode(told)
    assert told.in_words(OFF) is told


def test_a_job_that_lasts_has_its_hash_and_one_that_ended_is_no_new_job(tmp_path: Path) -> None:
    words = hashed(tmp_path, "one")
    assert ids(remembered(NAMES).in_words(words)) == ([words.person("ada"), "7"], ["7"])


def test_a_hash_is_not_hashed_again(tmp_path: Path) -> None:
    one, two = hashed(tmp_path, "one"), hashed(tmp_path, "two")
    assert ids(remembered(one).in_words(two)) == (["7"], ["7"])
    assert ids(remembered(one).in_words(OFF)) == (["7"], ["7"])
    assert ids(remembered(OFF).in_words(NAMES)) == (["7"], ["7"])


def test_the_file_of_an_older_collector_has_names() -> None:
    old = msgspec.json.decode(b'{"boot_id":"5f0c"}', type=JobsMemory)
    assert old.persons == NAMES.mark
