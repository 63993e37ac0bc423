"""The property tests with fresh seeds, for as long as one asks.

`make test` runs them derandomised, so that a stranger's clone fails only where the code does. What is
found here is shown with its example and its seed; put the example into the test as an `@example`.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Sequence


def search(seconds: float, tests: Sequence[str]) -> int:
    """Run all property tests again and again, also after one has failed; return the exit status of the first failing
    run."""
    end, found = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        seed = random.SystemRandom().randrange(1 << 32)
        print(f"-- seed {seed}", flush=True)
        command = [
            sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", "hypothesis",
            "--hypothesis-profile=fuzz", f"--hypothesis-seed={seed}", *tests,
        ]  # fmt: skip
        status = subprocess.run(command, check=False).returncode
        if status > 1:  # not of a test: it would be the same again at once
            return status
        found = found or status
    return found
