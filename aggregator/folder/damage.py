"""Files of the data folder that could not be used, until a person has looked.

The names of what was set aside say it (`telemetry.files.state_file`), so that a restart forgets nothing.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path, PurePath

from aggregator.access import tokens
from aggregator.folder.kinds import FOLDERS, cost_of
from telemetry.errors import ConfigError
from telemetry.files.state_file import FileAside, find_aside

RULE = "file_damaged"
"""Rule of `monitor.toml` about what is found."""


def find_damage(data_dir: Path, tokens_file: Path) -> dict[str, str]:
    """Return by part which file could not be used, and what that costs; reads the disk."""
    found = {}
    by_name: defaultdict[PurePath, list[FileAside]] = defaultdict(list)
    folders = [data_dir, *(one for pattern in FOLDERS for one in data_dir.glob(pattern))]
    for one in find_aside(folders):
        by_name[one.path.with_name(one.name).relative_to(data_dir)].append(one)
    for path, files in by_name.items():
        kept = ", ".join(one.path.name for one in files)
        why = "a newer release wrote it" if files[-1].newer else "it was damaged"
        found[f"file/{path}"] = f"{why}, and is kept as {kept}. {cost_of(path)}"
    try:
        tokens.read(tokens_file)
    except ConfigError as error:
        found[f"file/{tokens_file.name}"] = f"{error.problem}. {cost_of(PurePath(tokens.TOKENS))}"
    return found
