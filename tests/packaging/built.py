"""The wheel, built as a release builds it: from the files that git knows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
"""Without the checkout in front of what is installed."""


def wheel(folder: Path) -> Path:
    """Build the wheel of the checkout's files, without what it needs; return its path."""
    source = folder / "source"
    source.mkdir()
    subprocess.run(
        ["sh", "-c", 'git ls-files -z | xargs -0 tar -cf - --dereference | tar -xf - -C "$0"', str(source)],
        cwd=ROOT, check=True,
    )  # fmt: skip
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(source)],
        check=True, capture_output=True,
    )  # fmt: skip
    (found,) = folder.glob("kilowatch-*.whl")
    return found
