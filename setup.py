"""Stamps the commit into what is built (`telemetry/runtime/release.py`); all else is in pyproject.toml."""

from __future__ import annotations

import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
PLACE = Path("telemetry/runtime")


class Stamped(build_py):
    """Copies the packages, and writes beside them which commit they are of."""

    def run(self) -> None:
        """Copy, and write."""
        super().run()
        known = runpy.run_path(str(HERE / PLACE / "release.py"))
        commit = known["commit_of"](HERE / PLACE, HERE)
        if commit and not self.editable_mode:
            (Path(self.build_lib) / PLACE / known["STAMP"]).write_text(f"{commit}\n")


setup(cmdclass={"build_py": Stamped})
