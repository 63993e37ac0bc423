"""`python -m tests.gate`: what CI runs, and what anyone can run before a change is offered (`make gate`).

python -m tests.gate                         all checks, and the tests that there is time for
python -m tests.gate --base main             the change is what differs from there [origin/main]
python -m tests.gate -- tests/power          only these tests, and no checks

On a slow machine fewer tests run at the same time, and all have more patience (tests/gate/machine.py). Heavy tests
that are far from the change are left out where all would take too long (tests/gate/in_time.py).
What failed is tried once more, alone, on a calm machine and with three times the patience. Failed twice refuses
the change; passed is told as FLAKY and recorded, and refuses it only where there are too many, or where the
change touches the file of the test. What `tests/quarantine.toml` names does not judge.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from tests.gate import in_time, machine, quarantine, record, unchanged
from tests.gate.judge import Tally, file_of, refusals, tally, too_many
from tests.gate.outcomes import FILE, Outcome, read
from tests.gate.reach import Tree
from tests.gate.same_code import changed_code

FOLDER = Path("build/gate")
"""Marks of trees that have passed, by the hash of the tree, and what the last run left."""
CHECK_LOG = FOLDER / "check.log"
FLAKY = Path("build/flaky.jsonl")
FACTOR = "KILOWATCH_PATIENCE"
"""Environment variable by which tests have more patience; where it is set, the machine is taken to be as slow."""
PATIENCE = 3
"""By which that of a second try is multiplied."""
BESIDE = ("tests/power", "tests/alerts/test_planted.py", "tests/alerts/test_fault_pairs.py")
"""What computes in one process: it runs beside the tier that waits, which one busy processor of two does not hurt.
As much as that tier takes: what is more runs with the shared one, on both processors."""
ALONE = ("-m", "alone and not long")
CLUSTER = "tests/cluster"
"""Where all of these are: to collect the other sixteen thousand takes six seconds, in which nothing else can run."""
SHARED = ("-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder", "-m", "not alone")
TIERS: tuple[dict[str, tuple[str, ...]], ...] = (
    {"shared": (*SHARED, *(f"--ignore={path}" for path in BESIDE))},
    {"alone": (*ALONE, CLUSTER), "beside": ("-m", "not alone", *BESIDE)},
)
"""One after another, those of a row at the same time: names with arguments of pytest."""
TOGETHER: tuple[dict[str, tuple[str, ...]], ...] = ({"shared": SHARED},)
"""The same where nothing needs the machine to itself."""
SLOW_TIERS = (*TOGETHER, {"alone": (*ALONE, CLUSTER)})
"""On a slow machine, which a busy processor of two does hurt."""
CALM_LOAD = 1.5
SERIES = {"tests/cluster/test_rows.py": ALONE}
"""Files whose tests build on each other, with how their tier chooses them: all of a file are tried again."""
NO_TESTS = 5
"""Exit status of pytest where it found no test."""


class Flaky(msgspec.Struct, frozen=True):
    """A line of `build/flaky.jsonl`."""

    test: str
    at: float
    """Unix time, s."""
    load: float
    """Of the machine over the minute before the end of the tier in which it failed."""
    hung: bool
    tree: str
    """Hash of the tree that was judged; empty without git."""


def git(*arguments: str) -> str:
    """Return what git prints; nothing where there is no git, no repository, or no such thing in it."""
    return _printed(*arguments).strip()


def _printed(*arguments: str) -> str:
    command = ["git", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def touched(base: str) -> set[str]:
    """Return the files that differ from where the change began, and those that git does not know yet."""
    begin = git("merge-base", "HEAD", base)
    if not begin:
        print(f"gate: {base} is not known here, so no file counts as touched by the change", flush=True)
    named = git("diff", "--name-only", begin) if begin else ""
    return {*named.splitlines(), *git("ls-files", "--others", "--exclude-standard").splitlines()}


def _changed(base: str) -> set[str]:
    """Return the files that the change touches by more than their layout and their imports."""
    begin = git("merge-base", "HEAD", base)

    def before(name: str) -> str:
        return _printed("show", f"{begin}:{name}")

    return {*changed_code(touched(base), before, unchanged.text_now, imports=False)}


def run_pytest(file: Path, arguments: tuple[str, ...], **environment: str) -> int:
    """Run pytest, which appends outcomes to a file; return its exit status."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.gate.outcomes", *arguments]
    return subprocess.call(command, env={**os.environ, FILE: str(file.resolve()), **environment})


def suited(slow: float, patience: float = 1) -> dict[str, str]:
    """Return the environment of tests on a machine that is so slow."""
    return {FACTOR: f"{patience * slow:g}", "PYTEST_XDIST_AUTO_NUM_WORKERS": str(machine.workers(slow))}


def calm(seconds: float) -> float:
    """Wait for some seconds at most until the machine has little to do; return its load."""
    end = time.monotonic() + seconds
    while os.getloadavg()[0] > CALM_LOAD and time.monotonic() < end:
        time.sleep(1)
    return os.getloadavg()[0]


def too_long(begin: str, slow: float, others: Collection[str]) -> tuple[str, ...]:
    """Return the tests that the time does not suffice for, and write them into a file."""
    known = record.load()
    look = bool(known.heavy and begin)
    far = Tree(Path()).reached(unchanged.changed_since(git, begin)) if look else {}
    found = in_time.left_out(known, far, slow, begin, others, os.cpu_count() or 1)
    in_time.FILE.write_text("".join(f"{test}\n" for test in found), encoding="utf-8")
    return found


def all_tiers(left_out: Collection[str], slow: float, heavy: bool = True) -> tuple[dict[str, tuple[str, ...]], ...]:
    """Return the tiers of all tests but those of some files, and without the heavy ones that take too long."""
    ignored = tuple(f"--ignore={file}" for file in left_out)
    ignored += () if heavy else ("-p", "tests.gate.in_time")
    rows = SLOW_TIERS if slow >= machine.SLOW else TIERS
    if {*unchanged.MEMBERS.files} <= {*left_out}:
        rows = TOGETHER
    return tuple({name: (*chosen, *ignored) for name, chosen in row.items()} for row in rows)


def run_tier(name: str, arguments: tuple[str, ...], slow: float) -> tuple[list[Outcome], float, str]:
    """Run one tier; return what came out, the load at its end, and what broke pytest itself, if anything."""
    file = FOLDER / f"{name}.jsonl"
    file.unlink(missing_ok=True)
    began = time.monotonic()
    code = run_pytest(file, arguments, **suited(slow))
    load, found = os.getloadavg()[0], read(file)
    print(f"gate: {name} tier took {(time.monotonic() - began) / 60:.1f} min", flush=True)
    failed = any(one.outcome == "failed" for one in found)
    if code in {0, 1} and bool(code) == failed:
        return found, load, ""
    why = "no test was found" if code == NO_TESTS else f"pytest ended with {code}"
    return found, load, f"BROKEN {name} tier: {why}"


def run_tiers(tiers: tuple[dict[str, tuple[str, ...]], ...], slow: float) -> tuple[Tally, float, list[str]]:
    """Run all tiers, also after one has failed; return what came out, the load, and what broke pytest itself."""
    done = []
    for row in tiers:
        with ThreadPoolExecutor(len(row)) as pool:
            done += pool.map(run_tier, row.keys(), row.values(), [slow] * len(row))
    outcomes = [one for found, _, _ in done for one in found]
    return tally(outcomes), max(load for _, load, _ in done), [why for _, _, why in done if why]


def passes_alone(test: str, slow: float) -> bool:
    """Run one test by itself, or its series, in the machine's own time, with more patience; return whether it passed:
    one that is skipped now, or not there any more, has not."""
    file = FOLDER / "second.jsonl"
    file.unlink(missing_ok=True)
    series = SERIES.get(file_of(test))
    wanted = (test,) if series is None else (file_of(test), *series)
    alone = ("-p", "no:xdist", "-p", "no:cacheprovider", *wanted)
    code = run_pytest(file, alone, **suited(slow, PATIENCE))
    return code == 0 and tally(read(file)).passed > 0


def second_try(
    failed: dict[str, bool], load: float, calm_seconds: float, slow: float
) -> tuple[dict[str, bool], list[str]]:
    """Run each failed test again; return the flaky ones, whether they hung, and those that failed twice."""
    flaky, twice, tree = {}, [], git("rev-parse", "HEAD^{tree}")
    for test, hung in failed.items():
        now = calm(calm_seconds)
        if not passes_alone(test, slow):
            twice.append(test)
            continue
        flaky[test] = hung
        how = "hung" if hung else "failed"
        print(f"FLAKY {test}: {how} at load {load:.1f}, passed alone at load {now:.1f}, cause unknown", flush=True)
        with FLAKY.open("ab") as file:
            line = Flaky(test, time.time(), load, hung, tree)
            file.write(msgspec.json.encode(line) + b"\n")
    return flaky, twice


def committed() -> str:
    """Return the hash of the tree; empty where something is not committed, and without git."""
    return "" if git("status", "--porcelain") else git("rev-parse", "HEAD^{tree}")


def main(arguments: list[str] | None = None) -> int:
    """Judge the tree; return 0 when it may land."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.gate", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--base", default="origin/main", help="where the change began [origin/main]")
    parser.add_argument("--calm", type=float, default=120, help="most seconds to wait before a second try [120]")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, in place of all checks and tests")
    given = parser.parse_args(arguments)
    began = time.monotonic()
    FOLDER.mkdir(parents=True, exist_ok=True)
    checks, tree = None, committed()
    slow = float(os.environ.get(FACTOR) or machine.slowness())
    if slow > 1:
        print(f"gate: this machine takes {slow:g} times as long as a fast one", flush=True)
    if not given.pytest:  # beside the tests, which wait more than they compute
        with CHECK_LOG.open("wb") as log:
            checks = subprocess.Popen(["nice", "make", "check"], stdout=log, stderr=log)
    told = []
    if given.pytest:
        tiers = ({"given": tuple(given.pytest)},)
    else:
        begin = unchanged.began(git, given.base)
        left_out = unchanged.left_out(git, begin)
        told += [f"LEFT OUT {file}: nothing that it holds has changed" for file in left_out]
        heavy = too_long(begin, slow, {*left_out, *unchanged.MEMBERS.files})
        told += heavy and [f"LEFT OUT {len(heavy)} tests for their time, in {in_time.FILE}: make nightly"]
        tiers = all_tiers(left_out, slow, not heavy)
    found, load, bad = run_tiers(tiers, slow)
    if checks is not None and checks.wait():
        print(CHECK_LOG.read_text(encoding="utf-8", errors="replace"))
        bad.append("CHECKS FAILED: make check, above")
    quarantined = quarantine.load()
    told += quarantine.over(quarantined, datetime.datetime.now(datetime.UTC).date())
    told += [
        f"QUARANTINED {test}: failed, and does not judge: {quarantined[test].cause}"
        for test in found.failed
        if test in quarantined
    ]
    failed = {test: hung for test, hung in found.failed.items() if test not in quarantined}
    flaky: dict[str, bool] = {}
    if why := too_many(failed):
        bad += [f"FAILED {test}" for test in failed] + [why]
    else:
        flaky, twice = second_try(failed, load, given.calm, slow)
        bad += refusals(flaky, twice, _changed(given.base))
    print("\nThe slowest tests, s, and their processor time:")
    print("\n".join(f"{seconds:8.1f} {cpu:8.1f} {test}" for seconds, cpu, test in found.slowest(30)))
    print(f"\nThe files that compute longest, of {sum(found.cpu.values()):.0f} s in all:")
    print("\n".join(f"{cpu:8.1f} {file}" for cpu, file in found.costliest(30)))
    line = f"{found.passed + len(flaky)} passed, {len(failed) - len(flaky)} failed, {len(found.skipped)} skipped"
    minutes = (time.monotonic() - began) / 60
    print("\n".join(["", *told, *bad, f"gate: {line}"]))
    print(f"{'REFUSED' if bad else 'PASSED'} after {minutes:.1f} min, {len(flaky)} flaky")
    if not bad and not given.pytest and tree and tree == committed():
        mark = f"{line}, {len(flaky)} flaky, {minutes:.1f} min\n"
        (FOLDER / tree).write_text(mark, encoding="utf-8")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
