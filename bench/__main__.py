"""Run every measurement in its short form."""

from __future__ import annotations

import sys

from bench import frames

if __name__ == "__main__":
    sys.exit(frames.main(sys.argv[1:]))
