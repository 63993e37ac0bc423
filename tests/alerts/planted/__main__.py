"""Replays one seed and prints what came of it: `python -m tests.alerts.planted SEED [--every SECONDS]`."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from kilowatch.text.quality import quality_lines
from tests.alerts.planted.outcome import outcomes
from tests.alerts.planted.run import replayed


def main() -> None:
    """Run the healthy hour of a seed, then the same with its faults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two evaluations")
    given = parser.parse_args()
    for faulty in (False, True):
        began = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            fleet, found = replayed(given.seed, Path(folder), faulty=faulty, every=given.every)
        seconds = time.process_time() - began
        print(
            f"seed {given.seed}, {'with faults' if faulty else 'healthy'}: {found.pages} pages, "
            f"{found.tickets} tickets, {found.messages:,} messages, {seconds:.0f} s of CPU"
        )
        of_faults, left = outcomes(fleet.faults, found)
        for one in of_faults:
            print(
                f"  {'ok ' if not one.problem() else 'NOT'} {one.fault.case.name}: {one.problem() or one.sent[0].title}"
            )
        for notice in left:
            print(f"  of no fault: {notice.severity.value}: {notice.title}")
    print("\n".join(quality_lines(found.quality)))


if __name__ == "__main__":
    main()
