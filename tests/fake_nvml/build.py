"""Compile the fake libnvidia-ml.so.1 against the header in the wheel `nvidia-nvml-dev`."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

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
    texts = [file.read_bytes() for file in (*SOURCES, HERE / "control.h", header())]
    digest = hashlib.sha256(b"".join(texts) + _stubs(names).encode())
    folder = Path(tempfile.gettempdir()) / f"kilowatch-fake-nvml-{digest.hexdigest()[:16]}"
    folder.mkdir(exist_ok=True)
    library = folder / "libnvidia-ml.so.1"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # parallel test runs build it once
        if not library.exists():
            _compile(folder, library, names)
    return folder


def _stubs(names: list[str]) -> str:
    """What is not scripted exists all the same, and answers NVML_ERROR_NOT_SUPPORTED."""
    text = "".join(source.read_text() for source in SOURCES)
    missing = set(names) - set(DEFINED.findall(text)) - set(FROM_MACRO.findall(text))
    return "".join(f"int {name}(void) {{ return 3; }}\n" for name in sorted(missing))


def _compile(folder: Path, library: Path, names: list[str]) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise FileNotFoundError("no C compiler: apt-get install gcc")
    numbers = ", ".join([*(f"F_{name}" for name in names), "F_COUNT"])
    (folder / "functions.h").write_text(f"enum {{ {numbers} }};\n")
    (folder / "stubs.c").write_text(_stubs(names))
    new = folder / "new.so"
    flags = ["-shared", "-fPIC", "-O2", "-g", "-Wall", "-Wextra", "-Wno-format-truncation"]
    places = [f"-I{place}" for place in (header().parent, folder, HERE)]
    sources = [*map(str, SOURCES), str(folder / "stubs.c")]
    done = subprocess.run(
        [compiler, *flags, *places, "-o", str(new), *sources, "-lpthread"],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"the fake driver does not compile:\n{done.stderr}")
    new.rename(library)
