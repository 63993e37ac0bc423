"""`python -m tests.gate.nightly`: what searches for faults, and takes hours (`make nightly`).

python -m tests.gate.nightly                       all parts
python -m tests.gate.nightly order --seed 7        one of them, or several; the same again
python -m tests.gate.nightly early --in tests/tui  one of them, in some files or folders

Parts:
  speed   the ratchet: what this tree costs beside a stored commit (`python -m bench.short`)
  search  tests that search, in their long form (mark `nightly`)
  early   all files with waits, which wake in the turn in which their condition comes true
  late    the same files, whose waits wake later
  order   all files in another order, and the tests within each
  alone   what needs the machine to itself: the gate leaves it out where nothing that it holds has changed
  repeat  test files that changed within a day of the newest commit, twenty times, each time in another order

A test in quarantine fails once its last day has passed. What failed is not tried again: each of these finds what
the gate meets once in a hundred runs.
"""

from __future__ import annotations

import argparse
import datetime
import random
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tests.gate import quarantine, shuffle, wakes
from tests.gate.__main__ import ALONE, CLUSTER, FOLDER, NO_TESTS, git, run_pytest
from tests.gate.judge import Tally, tally
from tests.gate.outcomes import read
from tests.gate.reach import Tree
from tests.kit.night import NIGHT

FAST, BOTH = ("-m", "not systems"), ("-m", "not alone")
"""The fast tier, and both tiers but for what needs the machine to itself."""
REPEATS = 20
EVERY = 5
"""Of so many repeats one has the files of the slow tier too: each takes minutes."""
DAY = 86400
"""Seconds of history whose test files are repeated."""
PARTS = ("speed", "search", "early", "late", "order", "alone", "repeat")


@dataclass(frozen=True, slots=True)
class Run:
    """A run of pytest."""

    name: str
    arguments: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


def within(files: Iterable[str], chosen: Collection[str]) -> list[str]:
    """Return the files that are in one of some folders, or are one of some files; all where none is named."""
    return [
        file for file in sorted(files) if not chosen or any(PurePosixPath(file).is_relative_to(one) for one in chosen)
    ]


def with_waits(tree: Tree) -> list[str]:
    """Return the test files that wait, or whose helpers do."""
    modules = [
        file for file, module in tree.modules.items() if file.startswith("tests/") and wakes.waits(tree.texts[module])
    ]
    return list(tree.reached(modules))


def changed_lately() -> list[str]:
    """Return the test files that commits of the last day of history changed, and that are still there."""
    newest = git("log", "-1", "--format=%ct")
    named = git("log", f"--since={int(newest) - DAY}", "--format=", "--name-only") if newest else ""
    return [file for file in set(named.split()) if Path(file).match("test_*.py") and Path(file).exists()]


def runs(part: str, chosen: Collection[str], seed: int, repeats: int) -> Iterator[Run]:
    """Yield the runs of a part, in some files and folders alone where they are named."""
    shuffled = ("-p", "tests.gate.shuffle")
    match part:
        case "search":
            yield Run(f"search, seed {seed}", ("-m", "nightly", *chosen), {NIGHT: str(seed)})
        case "early" | "late":
            if files := within(with_waits(Tree(Path())), chosen):
                arguments = ("-p", "tests.gate.wakes", *BOTH, *files)
                yield Run(part, arguments, {wakes.WAKES: part})
        case "order":
            yield Run(f"order, seed {seed}", (*shuffled, *BOTH, *chosen), {shuffle.SEED: str(seed)})
        case "alone":
            yield Run("alone", ("-n", "0", *ALONE, *(chosen or (CLUSTER,))))
        case _:
            files = within(changed_lately(), chosen)
            for number in range(repeats if files else 0):
                tier = FAST if number % EVERY else BOTH
                name = f"repeat {number + 1}, seed {seed + number}"
                yield Run(name, (*shuffled, *tier, *files), {shuffle.SEED: str(seed + number)})


def perform(run: Run, workers: int) -> tuple[Tally, list[str]]:
    """Do a run; return what came out, and what is wrong, in lines."""
    file = FOLDER / "nightly.jsonl"
    file.unlink(missing_ok=True)
    code = run_pytest(file, ("-n", str(workers), "--dist", "loadfile", *run.arguments), **run.environment)
    found, excused = tally(read(file)), quarantine.load()
    wrong = [
        f"{'HUNG' if hung else 'FAILED'} {run.name}: {test}"
        for test, hung in found.failed.items()
        if test not in excused
    ]
    if code not in {0, 1, NO_TESTS} or (code == 1 and not found.failed):
        wrong.append(f"BROKEN {run.name}: pytest ended with {code}")
    return found, wrong


def measure_speed() -> list[str]:
    """Compare what this tree costs with a stored commit; return what is wrong, in lines."""
    code = subprocess.run([sys.executable, "-m", "bench.short"], check=False).returncode
    return [f"FAILED speed: python -m bench.short ended with {code}"] if code else []


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for; return 0 when nothing was found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.gate.nightly", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="part", help="[all]")
    parser.add_argument("--in", nargs="+", default=[], dest="chosen", metavar="FILE")
    parser.add_argument("--seed", type=int, help="of searches and orders [a fresh one]")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    given = parser.parse_args(arguments)
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"no part is called {', '.join(unknown)}: {', '.join(PARTS)}")
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    FOLDER.mkdir(parents=True, exist_ok=True)
    lines, bad = [], quarantine.over(quarantine.load(), datetime.datetime.now(datetime.UTC).date())
    for part in given.parts or PARTS:
        if part == "speed":
            wrong = measure_speed()
            lines.append(f"speed: {'worse' if wrong else 'no worse'} than the stored commit")
            bad += wrong
            continue
        for run in runs(part, given.chosen, seed, given.repeats):
            print(f"nightly: {run.name}", flush=True)
            began = time.monotonic()
            found, wrong = perform(run, given.workers)
            minutes = (time.monotonic() - began) / 60
            lines.append(f"{run.name:24} {found.passed:6} passed, {len(found.failed):3} failed, {minutes:6.1f} min")
            bad += wrong
    print("\n".join(["", *lines, *bad, f"nightly: {'FAILED' if bad else 'passed'}, seed {seed}"]))
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
