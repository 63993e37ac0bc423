"""Slurm's own notations: lists of hosts, and the numbers that it gives GPUs. Pure but for gres.conf and slurm.conf.

Slurm counts GPUs in the order of `File=` in gres.conf, which is neither NVML's nor always that of `/dev/nvidiaN`
or `/dev/dri/renderDN`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from telemetry.devices import Gpu

SCHEDULER = "slurm"
"""Name of Slurm in the key of a job."""
MOST_NAMES = 65_536
"""Names of one list at most, Slurm's own limit of nodes."""
_DEVICE = re.compile(r"/(?:nvidia|dri/renderD)(\d+)$")
RENDER = 128
"""Least number of a render node, by which AMD's GPUs are known: `/dev/dri/renderD128`."""
_COMMENT, _CONTINUED = re.compile(r"#.*"), re.compile(r"\\[ \t]*\n")
_SHARES = re.compile(r"\bname[ \t]*=[ \t]*(?:shard|mps)\b", re.IGNORECASE)
_SHARE_TYPES = re.compile(r"\bgrestypes[ \t]*=.*\b(?:shard|mps)\b", re.IGNORECASE)
_INCLUDE = re.compile(r"^[ \t]*include\b", re.IGNORECASE | re.MULTILINE)
_RANGE = re.compile(r"\[([0-9,-]+)\]")


def gres_order(file: Path, node: str, gpus: Sequence[Gpu]) -> tuple[list[int], str]:
    """Return the minor number of each of Slurm's GPUs of a node, and why that is assumed; "" where gres.conf
    says it."""
    usual = usual_order(gpus)
    try:
        text = file.read_text(errors="replace")
    except OSError as error:
        return usual, f"{file}: {error.strerror}"
    try:
        found = _minors(text, node)
    except ValueError as error:
        return usual, f"{file}: {error}"
    return (found, "") if found else (usual, f"{file} names no File= of this node")


def usual_order(gpus: Sequence[Gpu]) -> list[int]:
    """Return the minor numbers of the GPUs of a node in their own order, without a hole."""
    minors = [gpu.minor for gpu in gpus if gpu.minor is not None]
    render = [minor for minor in minors if minor >= RENDER]
    nvidia = [minor for minor in minors if minor < RENDER]
    return [*range(max(nvidia, default=-1) + 1), *range(RENDER, max(render, default=RENDER - 1) + 1)]


def shares_gpus(gres_file: Path) -> bool | None:
    """Return whether Slurm may give a GPU to several jobs at a time: parts of it, of which the prolog is told as of the
    whole. By gres.conf and the slurm.conf beside it. None where that is not known: gres.conf needs no word of shards, so a
    slurm.conf that is missing or includes other files may give them all the same."""
    gres, slurm = _lines(gres_file), _lines(gres_file.with_name("slurm.conf"))
    if _SHARES.search(gres or "") or _SHARE_TYPES.search(slurm or ""):
        return True
    return None if slurm is None or _INCLUDE.search(slurm) else False


def _lines(file: Path) -> str | None:
    """Return a configuration as Slurm takes it, without comments and with continued lines joined; None where it can't be
    read."""
    try:
        return _CONTINUED.sub("", _COMMENT.sub("", file.read_text(errors="replace")))
    except OSError:
        return None


def _minors(text: str, node: str) -> list[int]:
    """Return the minor numbers of the devices of a node in the order of gres.conf. Raises `ValueError`."""
    found: list[int] = []
    for line in text.splitlines():
        words = [word.partition("=") for word in line.partition("#")[0].split()]
        keys = {key.lower(): value for key, _, value in words}
        if keys.get("name", "").lower() != "gpu" or "file" not in keys:
            continue
        names = keys.get("nodename")
        if names is not None and not _names(names, node):
            continue
        for path in expanded(keys["file"]):
            match = _DEVICE.search(path)
            if match is None:
                raise ValueError(f"{path} is no /dev/nvidiaN or /dev/dri/renderDN")
            found.append(int(match[1]))
    return found


def expanded(text: str) -> list[str]:
    """Return the names of a list of Slurm: `n[1-3,7]` are four, with leading zeros kept, and `r[1-2]n[1-2]` are
    four. Raises `ValueError` for a range that is none, and for more than `MOST_NAMES` names."""
    found = []
    for part in re.split(r",(?![^\[]*\])", text):
        match = _RANGE.search(part)
        if match is None:
            found.append(part)
            continue
        tails = expanded(part[match.end() :])
        for span in match[1].split(","):
            first, _, last = span.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            if len(found) + len(numbers[: MOST_NAMES + 1]) * len(tails) > MOST_NAMES:
                raise ValueError(f"more than {MOST_NAMES} names")
            found += [f"{part[: match.start()]}{str(n).zfill(len(first))}{tail}" for n in numbers for tail in tails]
    return found


def _names(names: str, node: str) -> bool:
    short = node.partition(".")[0]
    return not {node, short}.isdisjoint(expanded(names))
