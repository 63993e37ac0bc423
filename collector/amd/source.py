"""amdgpu as a source: what the states of AMD's driver are called; the rest is `collector.probed`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collector.probed.source import ProbedSource
from collector.probed.states import DriverState, Wording

WORDING = Wording(
    source="amd",
    library="amdgpu",
    by_code={
        34: DriverState(
            "missing",
            "The amdgpu kernel module is not loaded: run `modprobe amdgpu`, and see the kernel log if that fails.",
        )
    },
    links="xgmi",
    reset_hint="`amd-smi reset --gpureset`, which resets all GPUs that xGMI links",
)


class AmdSource(ProbedSource):
    """Source `amd`; `root` is the folder that holds `sys`, the other settings are those of `ProbedSource`."""

    def __init__(self, root: Path = Path("/"), **settings: Any) -> None:
        super().__init__(f"amd:{root}", WORDING, **settings)
