"""Read what `nvidia-smi nvlink -s` says of the links, where a capture holds it beside the log."""

from __future__ import annotations

import re

from collector.smi.document import Document
from collector.smi.values import quantity
from telemetry.gap import reason_of
from telemetry.metric import Unit

_GPU = re.compile(r"GPU (\d{1,4}): .*\(UUID: ([^)]*)\)\s*")
_LINK = re.compile(r"\s+Link (\d{1,3}): (.*)")


def add_links(text: str, document: Document) -> None:
    """Give a document the links that `text` lists, for GPUs whose index and UUID agree.

    `nvidia-smi topo` and `-L` print GPU lines of the same form; without link lines they add none.
    """
    index = -1
    found: dict[int, dict[int, float | None]] = {}
    for line in text.split("\n"):
        if (gpu := _GPU.fullmatch(line.rstrip())) is not None:
            index = int(gpu[1])
            known = index < len(document.gpus) and gpu[2] in {
                document.gpus[index].values.get("uuid"),
                document.gpus[index].values.get("gpu_uuid"),
            }
            index = index if known else -1
        elif (link := _LINK.fullmatch(line.rstrip())) is not None and index >= 0:
            speed = quantity(link[2].strip(), Unit.BYTES_PER_SECOND)
            inactive = "inactive" in link[2].lower()
            if inactive or reason_of(speed) is None:
                found.setdefault(index, {}).setdefault(int(link[1]), None if inactive else speed)
        elif line and not line[0].isspace():
            index = -1
    document.links = {number: sorted(links.items()) for number, links in found.items()}
