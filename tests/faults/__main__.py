"""The long form of the fault campaign: more seeds, more kills; rewrites docs/faults.md.

It takes some hours and can be left alone: each result is said on standard error and written to the
page as it comes, so that a run that is cut off leaves what it has found.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
import time
from pathlib import Path

import pytest

from telemetry.text import parse_duration

HEAD = """# The fault campaign

Real processes, a real mosquitto, a proxy that damages connections (`tests/faults/chaos.py`), a disk
with injected errors (`tests/faults/disk.c`), and an oracle that computes every value bit for bit:
after each run every numbered frame is stored once with the right values, or recorded as lost, and
the store has no other frames. CI runs each scenario with one seed; `make faults` is the long form and
writes this page. The numbers are those of the project's list of faults; "own" marks
tests without a seed."""

FOLDER = Path(__file__).parent
LONGEST = "test_soak.py"
"""The file that is begun first: one of several workers has it until the end."""


def seconds(text: str) -> float:
    """Return the seconds of `3600` or `24h`. Raises `argparse.ArgumentTypeError`."""
    if (found := parse_duration(text)) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: write 3600 or 24h")
    return found


OPTIONS = (
    ("seeds", int, 3, "runs of each scenario"),
    ("kills", int, 67, "kills with each seed"),
    ("outage", float, 600.0, "seconds without a broker, with the first seed"),
    ("backlog", int, 600, "frames that each node of a fleet of twice as many has kept, likewise"),
    ("stop", float, 60.0, "seconds for which a part is stopped by a signal"),
    ("rounds", int, 40, "how often the GPUs of each node change seven times while frames are missing"),
    ("sessions", int, 2000, "sessions of a reconnect storm"),
    ("soak", seconds, 3600.0, "seconds of the soak, over all seeds, or 24h"),
    ("fleet", int, 7200, "seconds for which the memory of an aggregator with a fleet is watched"),
    ("fleet-gpus", int, 5000, "GPUs of that fleet"),
    ("slack", float, 2.0, "how many times slower than an idle machine this one may be"),
)
"""Each is `KILOWATCH_FAULT_<NAME>` to `tests.faults.record`."""


def main() -> int:
    """Run, write the page, return the exit code of pytest."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    for name, kind, usual, text in OPTIONS:
        parser.add_argument(f"--{name}", type=kind, default=usual, help=f"{text} [{usual:g}]")
    parser.add_argument("--jobs", type=int, default=1, help="tests at a time [1]")
    parser.add_argument("--only", default="", help="run only these, as -k of pytest; no page")
    parser.add_argument("--again", action="store_true", help="with --only: put their rows into the page that is there")
    options = parser.parse_args()
    given = {name: getattr(options, name.replace("-", "_")) for name, *_ in OPTIONS}
    for name, value in given.items():
        os.environ[f"KILOWATCH_FAULT_{name.upper().replace('-', '_')}"] = str(value)
    from tests.faults.report import ELSEWHERE, Report

    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, "
    shown = ", ".join(f"{name} {value:g}" for name, value in given.items())
    head = (
        f"{HEAD}\n\nLast run: {time.strftime('%Y-%m-%d')}, {machine}Python "
        f"{platform.python_version()}; {shown}; {options.jobs} at a time.\n\n"
        f"Command: `python -m tests.faults {shlex.join(sys.argv[1:])}`"
    )
    command = f"python -m tests.faults {shlex.join(sys.argv[1:])}"
    report = Report(head, page=options.again or not options.only, again=command if options.again else "")
    ours = [path for path in sorted(FOLDER.glob("test_*.py")) if "@fault(" in path.read_text()]
    ours.sort(key=lambda path: path.name != LONGEST)
    others = [test for tests in ELSEWHERE.values() for test in tests]
    chosen = ["-k", options.only] if options.only else []
    spread = ["-n", str(options.jobs), "--dist", "worksteal"] if options.jobs > 1 else ["-n", "0"]
    code = pytest.main(["-q", "--timeout=0", *spread, *chosen, *map(str, ours), *others], [report])
    report.done()
    return int(code)


sys.exit(main())
