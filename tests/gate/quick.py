"""`python -m tests.gate.quick`: the tests nearest to a change, in under two minutes on two cores (`make quick`).

python -m tests.gate.quick                    what differs from where the change began [origin/main]
python -m tests.gate.quick --base HEAD~3      what differs from there
python -m tests.gate.quick --replay 20        choose and time the tests of each of the last 20 commits
python -m tests.gate.quick --record FILE...   rewrite tests/gate/seconds.toml by what the gate left in build/gate,
                                              with --slow 2 where it said that the machine takes twice as long

Test files are taken by the number of imports between them and the change, three at most, the quick ones of the same
number first, until the seconds are spent that tests/gate/seconds.toml says they take. Files that changed
themselves are taken whatever they take. Left out are the slow tier and single tests of more than a few seconds;
what was left out is told. `make test` leaves out the slow tier alone, `make nightly` nothing.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.gate import quarantine
from tests.gate.__main__ import NO_TESTS, git, touched
from tests.gate.judge import file_of
from tests.gate.outcomes import read
from tests.gate.reach import Tree
from tests.gate.record import HEAVY, Record, load, write

FAR = 3
"""Most imports between a test file and the change: behind that come the command and whole services, which reach
nearly everything. Of 217 test files that 300 commits changed together with the product 200 were as near."""
BUDGET = 120.0
"""Seconds of tests that are chosen, as recorded with three at a time: the third of it on the clock."""
LONGEST = 30.0
"""Seconds of a file, all of which one worker runs, from which it is left out unless it changed itself."""
WORTH_WORKERS = 8.0
"""Seconds of tests from which it is worth to start three workers."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which test files a change has run, and which not."""

    taken: dict[str, int]
    """Number of imports between a file and the change."""
    slow: list[str]
    """Files of the slow tier that changed themselves."""
    left: dict[str, int]
    """Files that are too far away, or that the seconds did not suffice for, by that number."""
    seconds: float
    """Seconds of the files that were taken, by the record."""


def choose(reached: dict[str, int], record: Record, slow: set[str], budget: float) -> Choice:
    """Choose by distance, then by seconds, until the seconds are spent; what changed itself in any case."""
    taken, left, spent = {}, {}, 0.0
    for file in sorted(reached, key=lambda one: (reached[one], record.seconds(one), one)):
        seconds, far = record.seconds(file), reached[file]
        if file in slow:
            continue
        if far > FAR or (far and (spent + seconds > budget or seconds > LONGEST)):
            left[file] = far
            continue
        taken[file] = far
        spent += seconds
    changed_slow = sorted(file for file, far in reached.items() if file in slow and not far)
    return Choice(taken, changed_slow, left, spent)


def of_slow_tier(files: Iterable[str]) -> set[str]:
    """Return the files of which all tests are of the slow tier: by their folder, or by a mark of the module."""
    from tests.conftest import SYSTEMS  # pytest rewrites it, where a test imports this module

    return {
        file for file in files if file.split("/")[1] in SYSTEMS or "systems" in _marks(Path(file).read_text("utf-8"))
    }


def _marks(source: str) -> str:
    """Return the source of a module's `pytestmark`."""
    for node in ast.parse(source).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value):
                return ast.unparse(value)
    return ""


def choice_of(files: Iterable[str], tree: Tree, record: Record) -> Choice:
    """Choose for changed files."""
    reached = tree.reached(files)
    return choose(reached, record, of_slow_tier(reached), BUDGET)


def run(choice: Choice, record: Record) -> int:
    """Run what was chosen; return the exit status of pytest, 0 where there is nothing to run."""
    if not choice.taken:
        return 0
    out = {*record.heavy, *quarantine.load()}
    out = {test for test in out if file_of(test) in choice.taken}
    workers = "3" if choice.seconds >= WORTH_WORKERS else "0"
    command = [sys.executable, "-m", "pytest", "-q", "-n", workers, "--dist", "loadfile", "-m", "not systems"]
    command += [word for test in sorted(out) for word in ("--deselect", test)]
    code = subprocess.call([*command, *choice.taken])
    return 0 if code == NO_TESTS else code


def lint(files: Iterable[str]) -> int:
    """Check format and lint of the changed files; return whether something is wrong."""
    python = [file for file in files if file.endswith(".py") and Path(file).exists()]
    if not python:
        return 0
    ruff = [sys.executable, "-m", "ruff"]
    wrong = [subprocess.call([*ruff, *how, "-q", *python]) for how in (["format", "--check"], ["check"])]
    return int(any(wrong))


def told(choice: Choice, record: Record) -> list[str]:
    """Return what is left out, in lines."""
    lines = []
    heavy = [test for test in record.heavy if file_of(test) in choice.taken]
    if heavy:
        lines.append(f"quick: left out {len(heavy)} tests of more than {HEAVY:g} s in these files")
        lines += [f"  {test}" for test in heavy if choice.taken[file_of(test)] == 0]
    if choice.left:
        seconds = sum(map(record.seconds, choice.left))
        near, far = min(choice.left.values()), max(choice.left.values())
        lines.append(
            f"quick: left out {len(choice.left)} files, {near} to {far} imports away, {seconds:.0f} s: make test"
        )
    lines += [f"quick: left out {file}, which changed: make test-systems" for file in choice.slow]
    return lines


def replay(count: int, tree: Tree, record: Record) -> int:
    """Time the choices of the last commits on this checkout; return whether one of their tests failed."""
    rows, failed = [], 0
    for line in git("log", "--no-merges", f"-{count}", "--format=%h %s").splitlines():
        commit, _, subject = line.partition(" ")
        files = git("diff", "--name-only", f"{commit}~1", commit).splitlines()
        began = time.monotonic()
        choice = choice_of(files, tree, record)
        wrong = run(choice, record)
        failed |= bool(wrong)
        seconds = time.monotonic() - began
        rows.append(
            f"{commit} {len(files):7} {len(choice.taken):6} {len(choice.left):9} {seconds:8.0f} "
            f"{'failed' if wrong else '':6} {subject}"
        )
    print("\ncommit  changed chosen left out  seconds        subject")
    print("\n".join(rows), flush=True)
    return failed


def main(arguments: list[str] | None = None) -> int:
    """Run the tests near a change; return 0 when they passed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.gate.quick", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--base", default="origin/main", help="where the change began [origin/main]")
    parser.add_argument("--replay", type=int, metavar="COMMITS")
    parser.add_argument("--record", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--slow", type=float, default=1.0)
    given = parser.parse_args(arguments)
    if given.record:
        write((one for file in given.record for one in read(file)), slow=given.slow)
        return 0
    began, record, tree = time.monotonic(), load(), Tree(Path())
    if given.replay:
        return replay(given.replay, tree, record)
    base = given.base if git("rev-parse", "--verify", "--quiet", given.base) else "HEAD~1"
    files = sorted(touched(base))
    choice = choice_of(files, tree, record)
    print(
        f"quick: {len(files)} files differ from {base}: {len(choice.taken)} files of tests, "
        f"{choice.seconds:.0f} s by the record",
        flush=True,
    )
    wrong = lint(files) | run(choice, record)
    how = "FAILED" if wrong else "passed"
    print("\n".join([*told(choice, record), f"quick: {how} after {time.monotonic() - began:.0f} s"]))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
