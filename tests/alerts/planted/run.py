"""A seed as a recording on disk, and `kilowatch replay` of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from click.testing import CliRunner

from collector.recording.file import RecordingHeader, RecordingWriter
from kilowatch.__main__ import main
from kilowatch.replay.outcome import ReplayOutcome
from telemetry.text import counted
from tests.alerts.planted.fleet import PlantedFleet, circuits


def replayed(seed: int, folder: Path, *, faulty: bool, every: float) -> tuple[PlantedFleet, ReplayOutcome]:
    """Return the fleet of a seed, and what the command makes of its hour. `every`: seconds between two
    evaluations of the rules."""
    fleet = PlantedFleet(seed, faulty=faulty)
    file, settings = folder / "hour.kwrec", folder / "kilowatch.toml"
    writer = RecordingWriter(file, RecordingHeader(source=counted(fleet.count, "planted node")))
    for message in fleet.messages():
        writer.write(message.at, message.kind, message.node, message.payload)
    writer.close()
    assert writer.left_out == 0
    tree = {"aggregator": {"rule_seconds": every}, "power": circuits()}
    settings.write_text("\n".join(['cluster = "planted"', *_toml(tree)]))
    done = CliRunner().invoke(main, ["replay", str(file), "--config", str(settings), "--json", "--max-size", "4G"])
    assert done.exit_code in {0, 1, 2}, done.output
    return fleet, msgspec.json.decode(done.stdout, type=ReplayOutcome)


def _toml(tree: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the lines of tables of numbers, texts and lists of texts."""
    if path:
        yield f"[{path}]"
    for name, value in tree.items():
        if not isinstance(value, Mapping):
            yield f"{name} = {json.dumps(value)}"
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _toml(value, f"{path}.{name}" if path else name)
