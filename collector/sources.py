"""Registry of sources: makes a `Source` from the setting `collector.source`.

    auto                    none if the PCI bus has no GPU, else NVML if its driver is there, amdgpu if it
                            drives a GPU or did so of late, both where both are; else the nvidia-smi command,
                            else the driver of the GPUs on the PCI bus, which is reported as missing, and retried
    none                    a node without GPUs: the host alone
    nvml                    NVML, through nvidia-ml-py, in a child process
    amd                     amdgpu by sysfs, and libamd_smi where it is, in a child process;
                            amd:/host reads another root's sysfs, as a container may have it; else
                            that of `host_root`
    nvml+amd                both
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
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from collector.config import CollectorConfig
from collector.source import Source
from telemetry.devices import Gpu
from telemetry.errors import ConfigError, did_you_mean
from telemetry.wire.inventory import NodeRole

if TYPE_CHECKING:
    from collector.probed.source import ProbedSource

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


def has_no_gpus(config: CollectorConfig, now: float) -> bool:
    """Return whether this node has no GPU, and had none of late: by its PCI bus, not by the driver. A node
    whose role is set to `gpu` must have some; one with another role may have a display without a driver."""
    from collector.host.role import may_have_gpus  # noqa: PLC0415 - simulations need neither
    from collector.sampling.known_devices import recall  # noqa: PLC0415

    if config.role is NodeRole.GPU or recall(config.state_dir, int(now * 1e9)).gpus:
        return False
    if config.role is not None and not has_driver(config.host_root) and not shutil.which("nvidia-smi"):
        return True  # a display, which nobody wants to read
    return not may_have_gpus(config.host_root)


def has_amd(root: Path = Path("/")) -> bool:
    """Return whether amdgpu drives a GPU of a node, whose files are below `root`. Looking touches no GPU."""
    from collector.amd.files import drives_gpus  # noqa: PLC0415

    return drives_gpus(root)


def drivers_of(config: CollectorConfig, now: float) -> tuple[bool, bool]:
    """Return whether NVML and whether amdgpu is to be read: where the driver is there, where it has been, and where
    the PCI bus has its GPUs alone. A driver that is gone is then a state of the node, and is waited for; a GPU of
    AMD beside others of NVIDIA may be a display that nobody wants to read."""
    from collector.host.role import AMD, NVIDIA, PCI, gpus_on_the_bus  # noqa: PLC0415 - simulations need neither
    from collector.sampling.known_devices import recall  # noqa: PLC0415

    nvidia, amd, bus = has_nvml(), has_amd(config.host_root), config.host_root / PCI
    known = recall(config.state_dir, int(now * 1e9)).gpus
    on_bus = bool(gpus_on_the_bus(bus, vendors=(NVIDIA,)))
    amd = amd or any(map(is_amd, known)) or (bool(gpus_on_the_bus(bus, vendors=(AMD,))) and not on_bus)
    gone = on_bus or any(not is_amd(gpu) for gpu in known)
    return nvidia or (amd and gone), amd


def is_amd(gpu: Gpu) -> bool:
    """Return whether `collector.amd` reads a GPU: it names each so."""
    return gpu.name.startswith("AMD ")


def has_driver(root: Path = Path("/")) -> bool:
    """Return whether a node, whose files are below `root`, has a GPU driver that a source reads."""
    return has_nvml() or has_amd(root)


def real_source(config: CollectorConfig, now: float) -> str:
    """Return the source that reads the drivers of this machine: that of the settings where it does, else by what
    is there."""
    if config.source.partition(":")[0] in REAL:
        return config.source
    nvidia, amd = drivers_of(config, now)
    return "nvml+amd" if nvidia and amd else "amd" if amd else "nvml"


def _none(rest: str, config: CollectorConfig, now: float) -> Source:
    _no_rest("none", rest)
    from collector.host.no_gpus import NoGpuSource  # noqa: PLC0415

    return NoGpuSource(config.host_root)


def _auto(rest: str, config: CollectorConfig, now: float) -> Source:
    if has_no_gpus(config, now):
        return _none(rest, config, now)
    nvidia, amd = drivers_of(config, now)
    if nvidia and amd:
        return _both(rest, config, now)
    if amd:
        return _amd(rest, config, now)
    if not nvidia and shutil.which("nvidia-smi"):
        return _smi(rest, config, now)
    return _nvml(rest, config, now)


def _nvml(rest: str, config: CollectorConfig, now: float) -> ProbedSource:
    _no_rest("nvml", rest)
    from collector.nvml import NvmlSource  # noqa: PLC0415

    return NvmlSource(**_probed(config, now, amd=False))


def _amd(rest: str, config: CollectorConfig, now: float) -> ProbedSource:
    from collector.amd import AmdSource  # noqa: PLC0415

    root = rest or str(config.host_root)
    return AmdSource(_folder(f"amd:{root}", root), **_probed(config, now, amd=True))


def _both(rest: str, config: CollectorConfig, now: float) -> Source:
    from collector.combined.source import CombinedSource  # noqa: PLC0415

    return CombinedSource([_nvml("", config, now), _amd(rest, config, now)])


def _probed(config: CollectorConfig, now: float, *, amd: bool) -> dict[str, Any]:
    """Return the settings of a source whose driver is read in a child process, with the GPUs of its maker that
    the node had before."""
    from collector.sampling.known_devices import recall  # noqa: PLC0415 - only who reads a driver loads it

    known = recall(config.state_dir, int(now * 1e9))
    gpus = [gpu for gpu in known.gpus if is_amd(gpu) is amd]
    ours = {gpu.uuid for gpu in gpus}
    return {
        "interval": config.interval,
        "open_wait": OPEN_WAIT,
        "command_wait": min(COMMAND_SHARE * config.interval, COMMAND_WAIT),
        "expected": gpus,
        "expected_links": [link for link in known.links if link.gpu in ours],
    }


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
    "none": _none,
    "nvml": _nvml,
    "amd": _amd,
    "nvml+amd": _both,
    "nvidia-smi": _smi,
    "simulated": _simulated,
    "recording": _recording,
}
"""Factories by the word before the colon."""
REAL = frozenset({"nvml", "amd", "nvml+amd"})
"""Sources that read drivers of this machine in child processes."""


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
    return word in {"simulated", "recording"} or (bool(rest) and word not in REAL)


def is_probed(source: Source) -> bool:
    """Return whether a source reads drivers of this machine in child processes, and so knows its GPUs."""
    return source.inventory.source in REAL


def _no_rest(word: str, rest: str) -> None:
    if rest:
        raise ConfigError(WHERE, f"{word} accepts nothing after a colon", f"Write {word!r} alone.")


def _folder(spec: str, text: str) -> Path:
    path = Path(text).expanduser()
    if not (path / "sys").is_dir():
        raise ConfigError(WHERE, f"{spec!r}: {path} has no folder sys", "Write amd:ROOT.")
    return path


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
