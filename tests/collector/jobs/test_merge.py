"""What all sources know now becomes jobs with begin and end, over restarts, failures and disagreement."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from collector.jobs.merge import UNSURE_SECONDS, JobMerge, MergedJobs, OpenAllocation
from collector.jobs.source import JobsAnswer, Ownership
from telemetry.wire.jobs import ENDED_SECONDS, Allocation, AllocationKind, Job, JobKey, Precision
from tests.collector.jobs.given import GPU, SLURM, allocated, answer, at, given, process

ADA = Ownership(JobKey("user", "", "ada"))
BY_CGROUP = Ownership(JobKey("slurm", "", "4711"), "0", "slurm-cgroup")
HOOK = Precision.HOOK
State = tuple[tuple[OpenAllocation, ...], tuple[Allocation, ...]]


def only(found: MergedJobs) -> Allocation:
    """Return the one allocation."""
    (allocation,) = found.allocations
    return allocation


def test_a_process_is_a_job_of_its_user_from_its_first_reading_to_its_last() -> None:
    merge = JobMerge()
    one = process(7)
    found = merge.update(given(0, one), {one.id: ADA}, {})
    assert found.jobs == (Job(key=ADA.job, user="ada", begin=at(0)),)
    assert found.processes[0].job == ADA.job
    for second in (5, 10):
        later = process(7, read=second)
        merge.update(given(second, later), {later.id: ADA}, {})
    found = merge.update(given(15), {}, {})
    ended = only(found)
    assert (ended.begin, ended.end, ended.kind) == (at(0), at(10), AllocationKind.USED)
    assert ended.end_from is Precision.PROCESS
    assert found.jobs[0].end == at(10)


def test_a_process_that_is_younger_than_the_reading_before_begins_when_it_started() -> None:
    merge = JobMerge()
    merge.update(given(0, process(1, user="bob")), {}, {})
    young = process(7, started=3.5, read=5)
    assert only(merge.update(given(5, young), {young.id: ADA}, {})).begin == at(3.5)


def test_an_ended_allocation_stays_for_its_time_and_then_leaves() -> None:
    merge = JobMerge()
    one = process(7)
    merge.update(given(0, one), {one.id: ADA}, {})
    assert only(merge.update(given(ENDED_SECONDS - 1), {}, {})).end == at(0)
    assert merge.update(given(ENDED_SECONDS + 1), {}, {}) == MergedJobs((), (), ())


def test_the_begin_is_that_of_the_most_exact_source_and_the_earliest_of_these() -> None:
    merge = JobMerge()
    first = answer(allocated())
    assert only(merge.update(given(10), {}, {"slurm": first})).begin == at(10)
    said = {"slurm": first, "accounts": answer(allocated(begin=4))}
    assert only(merge.update(given(15), {}, said)).begin == at(4)
    exact = {**said, "hook": answer(allocated(begin=6, how=HOOK, source="slurm-hook"))}
    found = only(merge.update(given(20), {}, exact))
    assert (found.begin, found.begin_from, found.source) == (at(6), HOOK, "slurm-hook")
    assert only(merge.update(given(25), {}, said)).begin == at(6), "what is known stays known"


def test_the_end_of_a_hook_wins_over_a_source_that_has_not_noticed_it() -> None:
    merge = JobMerge()
    slow = answer(allocated(begin=0))
    merge.update(given(5), {}, {"slurm": slow})
    hook = answer(allocated(begin=0, end=30, how=HOOK))
    for second in (31, 36, 41):
        found = only(merge.update(given(second), {}, {"hook": hook, "slurm": slow}))
        assert (found.end, found.end_from) == (at(30), HOOK)
    found = only(merge.update(given(46), {}, {"slurm": slow}))
    assert found.end == at(30), "an old answer does not begin it anew"


def test_a_more_exact_end_that_comes_later_replaces_the_last_look() -> None:
    merge = JobMerge()
    merge.update(given(0), {}, {"slurm": answer(allocated(begin=0))})
    merge.update(given(20), {}, {"slurm": answer(allocated(begin=0))})
    assert only(merge.update(given(30), {}, {"slurm": answer()})).end == at(20)
    late = answer(allocated(begin=0, end=27, how=HOOK))
    found = only(merge.update(given(35), {}, {"slurm": answer(), "hook": late}))
    assert (found.end, found.end_from) == (at(27), HOOK)


@pytest.mark.parametrize("state", ["failing", "no permission"])
def test_a_source_that_fails_ends_nothing_until_it_has_failed_too_long(state: str) -> None:
    merge = JobMerge()
    merge.update(given(0), {}, {"slurm": answer(allocated(begin=0))})
    silent = {"slurm": answer(state=state)}
    assert only(merge.update(given(UNSURE_SECONDS - 1), {}, silent)).end == 0
    found = merge.update(given(UNSURE_SECONDS + 1), {}, silent)
    assert only(found).end == at(0)
    assert found.jobs[0].state == "lost"


def test_a_gpu_that_does_not_answer_ends_no_use_of_it() -> None:
    merge = JobMerge()
    one, other = process(7), process(8, gpu="GPU-1")
    merge.update(given(0, one, other), {one.id: ADA, other.id: ADA}, {})
    found = merge.update(given(5, unread=frozenset({GPU})), {}, {})
    assert {each.gpu: each.end for each in found.allocations} == {GPU: 0, "GPU-1": at(0)}


def test_two_sources_that_disagree_are_both_kept() -> None:
    other = JobKey("slurm", "lab", "4712")
    answers = {"hook": answer(allocated(how=HOOK)), "slurm": answer(allocated(other))}
    found = JobMerge().update(given(0), {}, answers)
    assert {each.job for each in found.allocations} == {SLURM, other}
    assert {each.key for each in found.jobs} == {SLURM, other}


def test_a_job_that_a_scheduler_names_later_neither_ends_nor_begins() -> None:
    merge = JobMerge()
    one = process(7)
    merge.update(given(0, one), {one.id: BY_CGROUP}, {})
    owners = {one.id: Ownership(SLURM, "0", "slurm-cgroup")}
    later = process(7, read=5)
    found = only(merge.update(given(5, later), {one.id: BY_CGROUP}, {"slurm": answer(owners=owners)}))
    assert (found.job, found.begin, found.end) == (SLURM, at(0), 0)
    later = process(7, read=10)
    failing = {"slurm": answer(state="failing")}
    found = only(merge.update(given(10, later), {one.id: BY_CGROUP}, failing))
    assert (found.job, found.end) == (SLURM, 0), "a silent scheduler takes no name away"


def test_a_process_of_a_job_that_has_its_gpu_is_named_before_its_source_has_seen_it() -> None:
    one, other = process(7), process(8, gpu="GPU-1")
    known = {"slurm": answer(allocated(how=Precision.HOOK, begin=-5))}
    owners = dict.fromkeys((one.id, other.id), BY_CGROUP)
    found = JobMerge().update(given(0, one, other), owners, known)
    jobs = {(each.gpu, each.kind.value): each.job for each in found.allocations}
    assert jobs == {(GPU, "allocated"): SLURM, (GPU, "used"): SLURM, ("GPU-1", "used"): BY_CGROUP.job}
    assert [each.job for each in found.processes] == [SLURM, BY_CGROUP.job]


def test_the_first_source_names_the_owner_and_each_fills_in_what_the_others_do_not_know() -> None:
    one = process(7, user="uid")
    first = answer(owners={one.id: Ownership(SLURM)}, jobs=(Job(key=SLURM, name="train", submitted=5),))
    second = answer(
        owners={one.id: Ownership(JobKey("ray", "", "01"))}, jobs=(Job(key=SLURM, name="other", user="ada", begin=7),)
    )
    found = JobMerge().update(given(0, one), {one.id: BY_CGROUP}, {"a": first, "b": second})
    assert only(found).job == SLURM
    (job,) = [each for each in found.jobs if each.key == SLURM]
    assert (job.name, job.user, job.submitted, job.begin) == ("train", "ada", 5, 7)


def restarted(merge: JobMerge, seen: float) -> JobMerge:
    """Return the merge of a collector that starts anew with the file of the one before."""
    data = msgspec.json.encode((merge.open, merge.ended))
    opened, ended = msgspec.json.decode(data, type=State)
    return JobMerge(opened, ended, at(seen))


def test_a_restart_neither_ends_nor_begins_what_goes_on() -> None:
    merge = JobMerge()
    one = process(7)
    asked: dict[str, JobsAnswer] = {"slurm": answer(allocated(begin=-50))}
    merge.update(given(0, one), {one.id: ADA}, asked)
    merge = restarted(merge, 60)
    found = merge.update(given(100, unread=frozenset({GPU})), {}, {})
    assert [each.end for each in found.allocations] == [0, 0], "nobody has answered yet"
    later = process(7, read=101)
    found = merge.update(given(101, later), {one.id: ADA}, asked)
    assert sorted(each.begin for each in found.allocations) == [at(-50), at(0)]


def test_what_ended_while_no_collector_ran_ends_when_it_was_last_seen() -> None:
    merge = JobMerge()
    one = process(7)
    merge.update(given(0, one), {one.id: ADA}, {})
    merge = restarted(merge, 60)
    other = process(8, started=150, read=200)
    found = merge.update(given(200, other), {other.id: ADA}, {})
    assert sorted((each.begin, each.end) for each in found.allocations) == [(at(0), at(60)), (at(200), 0)]


def test_a_look_that_finds_the_same_is_not_merged_again_and_what_lasts_was_seen() -> None:
    """The third one in a row has the result of the second; the first that differs is merged."""
    merge = JobMerge()
    one = process(7)
    said = {"slurm": answer(allocated(begin=-9), allocated(begin=-9, end=-5, how=HOOK, gpu="GPU-1"))}
    looks = []
    for second in range(0, 20, 5):
        again = msgspec.structs.replace(one.process, memory_bytes=second)
        looks.append(
            merge.update(given(second, replace(one, process=again, read_at=at(second - 1))), {one.id: ADA}, said)
        )
        assert looks[-1].processes[0].memory_bytes == second
    assert looks[3].jobs is looks[2].jobs is looks[1].jobs
    assert {each.allocation.kind: each.seen for each in merge.open} == {
        AllocationKind.ALLOCATED: at(15),
        AllocationKind.USED: at(14),
    }
    left = int(ENDED_SECONDS) - 5
    counts = [
        len(merge.update(given(second, one), {one.id: ADA}, said).allocations) for second in range(20, left + 20, 5)
    ]
    assert counts == [3] * ((left - 20) // 5 + 1) + [2] * 3, "what ended leaves in time"
    nothing = merge.update(given(left + 20), {}, {"slurm": answer()})
    assert all(each.end for each in nothing.allocations)


def test_an_end_before_the_begin_or_without_one_is_an_allocation_of_no_time() -> None:
    """A clock was set back between prolog and epilog, or a source learned of a job at its end."""
    for begin, wanted in ((8, (8, 8)), (None, (5, 5)), (3, (3, 5))):
        said = {"slurm": answer(allocated(begin=begin, end=5, how=HOOK))}
        found = only(JobMerge().update(given(10), {}, said))
        assert (found.begin, found.end) == (at(wanted[0]), at(wanted[1]))


class CountingMerge(JobMerge):
    """A merge that counts the looks that it merges."""

    merged = 0

    def _merge(self, *args: Any) -> bool:
        self.merged += 1
        return super()._merge(*args)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_not_merged_again_would_have_been_the_same(seed: int) -> None:
    """Looks of which most find what the one before did: beside a merge that forgets what it has found."""
    chance = random.Random(seed)
    quick, whole, second = CountingMerge(), CountingMerge(), 0.0
    jobs = [SLURM, JobKey("slurm", "lab", "12")]
    for _ in range(40):
        pids = [process(pid, gpu=f"GPU-{pid % 2}") for pid in range(4) if chance.random() < 0.5]
        owners = {each.id: chance.choice([ADA, BY_CGROUP]) for each in pids}
        allocations = [
            allocated(
                job,
                begin=chance.choice([None, second - 50, second - 1, second + 1]),
                end=second + chance.choice([-2, 0, 3]) if chance.random() < 0.2 else None,
                how=chance.choice(list(Precision)),
                gpu=f"GPU-{number % 2}",
            )
            for number, job in enumerate(jobs)
            if chance.random() < 0.6
        ]
        state = chance.choice(["reading", "reading", "failing", "absent"])
        named = {each.id: Ownership(SLURM, "", "slurm") for each in pids if chance.random() < 0.3}
        unread = frozenset({"GPU-1"} if chance.random() < 0.2 else ())
        said = {"slurm": answer(*allocations, state=state, owners=named)}
        for _ in range(chance.randrange(1, 8)):
            second += chance.choice([1, 5, 5, 5, 70, 400])
            seen = [replace(each, read_at=at(second - 0.5)) for each in pids]
            whole._look = None  # as if each look were the first of its kind
            results = [merge.update(given(second, *seen, unread=unread), owners, said) for merge in (quick, whole)]
            assert results[0] == results[1]
            assert quick.open == whole.open
            assert quick.ended == whole.ended
    assert whole.merged > quick.merged + 15, "else this compares little"
