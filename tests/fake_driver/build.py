"""Compile a stand-in for a driver's library."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
FACTS = [HERE / "facts.c"]


def build(
    library: str,
    sources: Sequence[Path],
    functions: Sequence[str],
    variable: str,
    *,
    stubs: str = "",
    defines: str = "",
    headers: Sequence[Path] = (),
) -> Path:
    """Return the folder with a library, compiled once for each text of its sources.

    `functions` are those that are counted, in the order of the counters; `variable` is the environment variable
    that names the folder of the control file; `stubs` is C text of its own, `defines` C text before all sources.
    """
    sources = [*sources, *FACTS]
    numbers = ", ".join([*(f"F_{name}" for name in functions), "F_COUNT"])
    generated = f'enum {{ {numbers} }};\n#define FAKE_VARIABLE "{variable}"\n{defines}'
    texts = [file.read_bytes() for file in (*sources, HERE / "facts.h", *headers)]
    digest = hashlib.sha256(b"".join(texts) + stubs.encode() + generated.encode())
    folder = Path(tempfile.gettempdir()) / f"kilowatch-fake-{library}-{digest.hexdigest()[:16]}"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # parallel test runs build it once
        if not (folder / library).exists():
            (folder / "functions.h").write_text(generated)
            (folder / "stubs.c").write_text(stubs)
            _compile(folder, library, sources, headers)
    return folder


def _compile(folder: Path, library: str, sources: Sequence[Path], headers: Sequence[Path]) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise FileNotFoundError("no C compiler: apt-get install gcc")
    new = folder / "new.so"
    flags = ["-shared", "-fPIC", "-O2", "-g", "-Wall", "-Wextra", "-Wno-format-truncation"]
    places = dict.fromkeys([folder, HERE, *(file.parent for file in (*headers, *sources))])
    names = [*map(str, sources), str(folder / "stubs.c")]
    done = subprocess.run(
        [compiler, *flags, *(f"-I{place}" for place in places), "-o", str(new), *names, "-lpthread", "-ldl"],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"the fake driver does not compile:\n{done.stderr}")
    new.rename(folder / library)
