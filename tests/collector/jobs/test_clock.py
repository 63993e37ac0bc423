"""A wall clock that is set: jobs begin and end where they did, unless the step lasts."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.jobs.clock import BELIEVED_SECONDS, StepFreeClock, without_step
from collector.jobs.slurm import SlurmConfig, SlurmJobs
from collector.jobs.source import JobsAnswer, JobsInput

SECOND = 10**9
HOUR = 3600 * SECOND
START = 1_780_000_000 * SECOND


class Machine:
    """A machine whose wall clock a test sets."""

    def __init__(self) -> None:
        self.up = 1000 * SECOND
        """Since its start, ns."""
        self.ahead = 0
        self.clock = StepFreeClock(self.wall, lambda: self.up)

    def wall(self) -> int:
        """Return what its clock shows."""
        return START + self.up + self.ahead

    def run(self, seconds: float) -> list[int]:
        """Let the time go on with a look a second, and return by how much each differs from the truth, ns."""
        found = []
        for _ in range(round(seconds)):
            self.up += SECOND
            found.append(self.clock() - START - self.up)
        return found


@pytest.mark.parametrize("step", [HOUR, -HOUR, 90 * SECOND])
def test_a_step_that_is_taken_back_never_was(step: int) -> None:
    machine = Machine()
    machine.ahead = step
    assert set(machine.run(BELIEVED_SECONDS - 1)) == {0}
    assert machine.clock.step == step
    machine.ahead = 0
    assert set(machine.run(5)) == {0}
    assert machine.clock.step == step, "what was written under it may be read now"
    machine.ahead = step
    assert set(machine.run(BELIEVED_SECONDS - 1)) == {0}, "another one begins anew"
    machine.ahead = 0
    machine.run(BELIEVED_SECONDS + 1)
    assert machine.clock.step == 0


def test_a_step_that_lasts_is_believed_and_a_clock_that_is_slewed_followed() -> None:
    machine = Machine()
    machine.ahead = SECOND // 2
    assert machine.run(3) == [SECOND // 2] * 3
    machine.ahead = HOUR
    found = machine.run(BELIEVED_SECONDS + 2)
    assert found[: int(BELIEVED_SECONDS)] == [SECOND // 2] * int(BELIEVED_SECONDS)
    assert found[-1] == HOUR
    assert machine.clock.step == 0
    machine.ahead = 0
    assert machine.run(3) == [HOUR] * 3, "so does the step back"
    assert machine.run(BELIEVED_SECONDS)[-1] == 0


def test_a_time_is_taken_for_what_it_was_when_it_was_written() -> None:
    assert without_step(START + HOUR - SECOND, START, HOUR) == START - SECOND
    assert without_step(START - SECOND, START, HOUR) == START - SECOND
    assert without_step(START - 5 * SECOND, START, 0) == START - 5 * SECOND


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_prolog_and_an_epilog_under_a_step_give_the_times_of_the_clock_that_is_believed(
    tmp_path: Path, step: int
) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir(mode=0o755)
    slurm = SlurmJobs(SlurmConfig(folder=folder, gres_file=tmp_path / "gres.conf"))

    def wrote(job: int, begin: int, end: int = 0) -> None:
        text = f"cluster=lab\njob={job}\nrestart=0\nuser=ada\ngpus=\nbegin={begin}\n"
        (folder / f"slurm-{job}-0").write_text(text + (f"end={end}\nexit=0:0\n" if end else ""))

    def read(seconds: int, now: int = 0) -> JobsAnswer:
        return slurm.read(JobsInput(at=START + seconds * SECOND, node="n1", step=now))

    def times(answer: JobsAnswer) -> dict[str, tuple[int, int]]:
        return {
            job.key.id: ((job.begin - START) // SECOND, job.end and (job.end - START) // SECOND) for job in answer.jobs
        }

    wrote(1, START - HOUR)
    assert times(read(0)) == {"1": (-3600, 0)}, "an hour before the first look is that"
    wrote(1, START - HOUR, START + 9 * SECOND + step)
    wrote(2, START + 9 * SECOND + step)
    assert times(read(10, step)) == {"1": (-3600, 9), "2": (9, 0)}
    wrote(2, START + 9 * SECOND + step, START + 20 * SECOND)
    assert times(read(21, step)) == {"1": (-3600, 9), "2": (9, 20)}, "after it"
    assert times(read(200)) == {"1": (-3600, 9), "2": (9, 20)}
