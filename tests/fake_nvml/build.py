"""Compile the fake libnvidia-ml.so.1 against the header in the wheel `nvidia-nvml-dev`."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

from tests.fake_driver.build import build as build_library

HERE = Path(__file__).resolve().parent
SOURCES = [HERE / name for name in ("control.c", "device.c", "system.c")]
NAMES = re.compile(r"DECLDIR\s+\*?\s*(nvml\w+)\s*\(")
DEFINED = re.compile(r"^(?:const char \*|nvmlReturn_t )(nvml\w+)\(", re.MULTILINE)
FROM_MACRO = re.compile(r"^(?:ONE|ONE_OF|TWO|TEXT)\((nvml\w+)", re.MULTILINE)


def header() -> Path:
    """Where nvml.h is installed. Raises `FileNotFoundError` when the wheel is missing."""
    for file in importlib.metadata.files("nvidia-nvml-dev") or ():
        if file.name == "nvml.h":
            return Path(str(file.locate()))
    raise FileNotFoundError("nvml.h: pip install nvidia-nvml-dev")


def functions() -> list[str]:
    """Every function that the header declares, in order: the numbers of the call counters."""
    return sorted(set(NAMES.findall(header().read_text())))


def build() -> Path:
    """Return the folder with libnvidia-ml.so.1, compiled once for each text of the sources."""
    names = functions()
    return build_library(
        "libnvidia-ml.so.1",
        SOURCES,
        names,
        "KILOWATCH_FAKE_NVML",
        stubs=_stubs(names),
        headers=[header(), HERE / "control.h"],
    )


def _stubs(names: list[str]) -> str:
    """What is not scripted exists all the same, and answers NVML_ERROR_NOT_SUPPORTED."""
    text = "".join(source.read_text() for source in SOURCES)
    missing = set(names) - set(DEFINED.findall(text)) - set(FROM_MACRO.findall(text))
    return "".join(f"int {name}(void) {{ return 3; }}\n" for name in sorted(missing))
