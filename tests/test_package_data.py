"""Files that are no modules reach an installed package only where `pyproject.toml` names their kind."""

from __future__ import annotations

import fnmatch
import tomllib
from pathlib import Path

from tests.kit.packages import PACKAGES

ROOT = Path(__file__).parents[1]


def test_every_file_beside_the_modules_is_in_the_wheel() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    kinds = [*settings["tool"]["setuptools"]["package-data"]["*"], "*.py"]
    links = ROOT / "kilowatch/init/files"  # MANIFEST.in names that folder as a whole
    found = [
        path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and links not in path.parents
    ]
    assert any(path.suffix == ".css" for path in found)
    lacking = [
        str(path.relative_to(ROOT)) for path in found if not any(fnmatch.fnmatch(path.name, kind) for kind in kinds)
    ]
    assert lacking == []
