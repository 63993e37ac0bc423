"""The long form of the fault campaign: more seeds, more kills; rewrites docs/faults.md."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time

import pytest

HEAD = """# The fault campaign

Real parts, a real mosquitto, a proxy of ours that spoils the wire (`tests/faults/chaos.py`), and an
oracle that knows every value bit for bit: after each run every frame that was ever numbered is
stored once and right, or announced as lost, and nothing else is there. CI runs each scenario with
one seed; `make faults` is the long form and writes this page. The numbers are those of the list of
faults that the project holds itself to; "own" stands for tests with no seed."""


def main() -> int:
    """Run, write the page, return the exit code of pytest."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="runs of each scenario")
    parser.add_argument("--kills", type=int, default=67, help="kills with each seed")
    parser.add_argument("--outage", type=float, default=60.0, help="seconds without a broker")
    parser.add_argument("--jobs", type=int, default=2, help="tests at a time")
    options = parser.parse_args()
    os.environ["KILOWATCH_FAULT_SEEDS"] = str(options.seeds)
    os.environ["KILOWATCH_FAULT_KILLS"] = str(options.kills)
    os.environ["KILOWATCH_FAULT_OUTAGE"] = str(options.outage)
    from tests.faults.report import ELSEWHERE, Report

    shown = " ".join(sys.argv[1:])
    report = Report(f"python -m tests.faults {shown}".strip())
    others = [test for tests in ELSEWHERE.values() for test in tests]
    code = pytest.main(
        ["-q", "-n", str(options.jobs), "--dist", "load", "tests/faults", *others], [report]
    )
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, "
    report.write(
        f"{HEAD}\n\nLast run: {time.strftime('%Y-%m-%d')}, {machine}"
        f"Python {platform.python_version()}; {options.seeds} seeds, {options.kills} kills a seed, "
        f"{options.outage:g} s of outage, {options.jobs} tests at a time."
    )
    return int(code)


sys.exit(main())
