"""`python -m tests.fuzz`: the property tests with fresh seeds, for as long as one asks.

`make test` runs them derandomised, so that a stranger's clone fails only where the code does. What is
found here is shown with its example and its seed; put the example into the test as an `@example`.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time


def main() -> int:
    """Run all property tests again and again; return the exit status of the first failing run."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long to search [600]")
    parser.add_argument("tests", nargs="*", default=["tests"], help="files or folders [tests]")
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    while time.monotonic() < end:
        seed = random.SystemRandom().randrange(1 << 32)
        print(f"-- seed {seed}", flush=True)
        command = [
            sys.executable, "-m", "pytest", "-q", "-x", "-n", "2", "-m", "hypothesis",
            "--hypothesis-profile=fuzz", f"--hypothesis-seed={seed}", *given.tests,
        ]  # fmt: skip
        status = subprocess.run(command, check=False).returncode
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
