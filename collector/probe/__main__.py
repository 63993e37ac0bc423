"""`python -m collector.probe nvml`: the probe process, started by the collector only."""

from __future__ import annotations

import sys

from collector.probe.child import run
from collector.probe.driver import load

if __name__ == "__main__":
    run(load(sys.argv[1]))
