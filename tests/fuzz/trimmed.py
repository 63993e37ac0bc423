"""`kilowatch` as it is, but what it has freed is given back to the system each few seconds: what then stays resident is
what it keeps, and not what a moment took."""

from __future__ import annotations

import runpy
import threading
import time

from aggregator.load.meter import release_memory

EVERY = 5.0
"""Seconds between two times."""


def _trim() -> None:
    while True:
        time.sleep(EVERY)
        release_memory()


if __name__ == "__main__":
    threading.Thread(target=_trim, daemon=True).start()
    runpy.run_module("kilowatch", run_name="__main__", alter_sys=True)
