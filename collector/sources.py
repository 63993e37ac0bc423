"""Registry of sources: makes a `Source` from the setting `collector.source`.

    auto                    NVML if the driver is there, else the nvidia-smi command, else NVML,
                            which reports that the driver is missing and retries
    nvml                    NVML, through nvidia-ml-py, in a child process
    nvidia-smi              the nvidia-smi command, run periodically
    nvidia-smi:FILE         a saved log of it, `-q -x` or `-q`
    simulated:SCENARIO      a simulated node; /NODE chooses which, and
                            ?nodes=2&gpus=4&seed=7&faults=xid79@dgx-01/3+20s changes the cluster
    recording:FILE          a file of `kilowatch record`; #NODE chooses the node

To add a source, write one class that fits `collector.source.Source`, and one function here.
"""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl

from collector.config import CollectorConfig
from collector.source import Source
from telemetry.errors import ConfigError, did_you_mean

WHERE = "collector.source"
OPEN_WAIT = 1.5
"""Seconds that the first frame waits for the driver, so that it is sent within two."""
COMMAND_SHARE = 0.5
"""Share of the interval by which a release may delay the next tick."""
COMMAND_WAIT = 5.0
"""Limit of that in seconds, however long the interval."""
NVML_LIBRARY = "libnvidia-ml.so.1"
_OPTIONS = ("nodes", "gpus", "seed", "faults", "links", "start")


def has_nvml() -> bool:
    """Return whether the driver's library can be loaded. Loading it touches no GPU."""
    try:
        ctypes.CDLL(NVML_LIBRARY)
    except OSError:
        return False
    return True


def _auto(rest: str, config: CollectorConfig, now: float) -> Source:
    if not has_nvml() and shutil.which("nvidia-smi"):
        return _smi(rest, config, now)
    return _nvml(rest, config, now)


def _nvml(rest: str, config: CollectorConfig, now: float) -> Source:
    _no_rest("nvml", rest)
    from collector.nvml import NvmlSource  # noqa: PLC0415
    from collector.sampling.known_devices import recall  # noqa: PLC0415 - only who reads NVML loads these

    known = recall(config.state_dir, int(now * 1e9))
    return NvmlSource(
        interval=config.interval,
        open_wait=OPEN_WAIT,
        command_wait=min(COMMAND_SHARE * config.interval, COMMAND_WAIT),
        expected=known.gpus,
        expected_links=known.links,
    )


def _smi(rest: str, config: CollectorConfig, now: float) -> Source:
    if rest:
        from collector.smi.file_source import SmiFileSource  # noqa: PLC0415

        return SmiFileSource(_file(f"nvidia-smi:{rest}", rest))
    from collector.smi.command_source import SmiCommandSource  # noqa: PLC0415

    return SmiCommandSource()


def _simulated(rest: str, config: CollectorConfig, now: float) -> Source:
    from collector.simulated import SimulatedSource, scenario  # noqa: PLC0415

    path, _, query = rest.partition("?")
    name, _, node = path.partition("/")
    options = _options(query)
    made = scenario(
        name,
        nodes=_number(options, "nodes"),
        gpus=_number(options, "gpus"),
        seed=config.seed if "seed" not in options else _number(options, "seed") or 0,
        start_tick=_number(options, "start") if "start" in options else int(now / config.interval),
        interval=config.interval,
        faults=options.get("faults"),
        links=None if "links" not in options else options["links"] not in {"0", "no", "false"},
        where=WHERE,
    )
    if node and node not in made.nodes:
        hint = did_you_mean(node, made.nodes) or f"The first is {made.nodes[0]}."
        raise ConfigError(WHERE, f"{name} has no node {node!r}", hint)
    if not node:
        node = config.node if config.node in made.nodes else made.nodes[0]
    return SimulatedSource(made, node)


def _recording(rest: str, config: CollectorConfig, now: float) -> Source:
    from collector.recording.replay import RecordingSource  # noqa: PLC0415

    path, _, node = rest.partition("#")
    return RecordingSource(_file(f"recording:{rest}", path), node or None, config.interval)


Maker = Callable[[str, CollectorConfig, float], Source]

SOURCES: dict[str, Maker] = {
    "auto": _auto,
    "nvml": _nvml,
    "nvidia-smi": _smi,
    "simulated": _simulated,
    "recording": _recording,
}
"""Factories by the word before the colon."""


def make_source(spec: str, config: CollectorConfig, now: float) -> Source:
    """Make the source that `spec` describes; `now` (seconds since 1970) is when a simulation
    begins. Raises `ConfigError` when there is no such source."""
    word, colon, rest = spec.partition(":")
    maker = SOURCES.get(word)
    if maker is None:
        hint = did_you_mean(word, SOURCES) or f"Known are {', '.join(SOURCES)}."
        raise ConfigError(WHERE, f"there is no source {word!r}", hint)
    if colon and not rest:
        raise ConfigError(WHERE, f"nothing follows the colon of {spec!r}")
    return maker(rest, config, now)


def is_elsewhere(spec: str) -> bool:
    """Return whether a source reads other GPUs than this machine's."""
    word, _, rest = spec.partition(":")
    return word in {"simulated", "recording"} or bool(rest)


def _no_rest(word: str, rest: str) -> None:
    if rest:
        raise ConfigError(WHERE, f"{word} accepts nothing after a colon", f"Write {word!r} alone.")


def _file(spec: str, text: str) -> Path:
    if not text:
        raise ConfigError(WHERE, f"{spec!r} names no file", f"Write {spec.partition(':')[0]}:FILE.")
    path = Path(text).expanduser()
    if not path.is_file():
        raise ConfigError(WHERE, f"{spec!r}: there is no file {path}")
    return path


def _options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query.replace("+", "%2B"), keep_blank_values=True))
    for name in options:
        if name not in _OPTIONS:
            hint = did_you_mean(name, _OPTIONS) or f"Known are {', '.join(_OPTIONS)}."
            raise ConfigError(WHERE, f"a simulation has no option {name!r}", hint)
    return options


def _number(options: dict[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise ConfigError(WHERE, f"{name}={text!r} is no whole number") from error
