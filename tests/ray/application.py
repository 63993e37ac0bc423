"""An application of Ray: two actors with a GPU each and two tasks with half of one, on four logical GPUs.

Run by `tests.ray.runtime`: says on its output which processes these are, and obeys the lines of its input.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import ray


@ray.remote(num_gpus=1, num_cpus=0)
class Trainer:
    """An actor."""

    def where(self) -> tuple[int, list[str]]:
        """Return its process and its GPUs."""
        return os.getpid(), [str(each) for each in ray.get_gpu_ids()]

    def train(self, folder: str) -> None:
        """Work until the end of the test."""
        while Path(folder).exists():
            time.sleep(0.05)


@ray.remote(num_gpus=0.5, num_cpus=0)
def half(folder: str) -> None:
    """Work on half of a GPU until the end of the test."""
    file = Path(folder, f"{os.getpid()}.half")
    file.with_suffix(".new").write_text(json.dumps([str(each) for each in ray.get_gpu_ids()]))
    file.with_suffix(".new").rename(file)
    while Path(folder).exists():
        time.sleep(0.05)


def main(temporary: str, port: int, folder: str) -> None:
    """Start Ray, actors and tasks; end with the input."""
    ray.init(
        num_cpus=2,
        num_gpus=4,
        include_dashboard=True,
        dashboard_host="127.0.0.1",
        dashboard_port=port,
        _temp_dir=temporary,
        log_to_driver=False,
        logging_level="error",
        object_store_memory=80 * 1024 * 1024,
    )
    actors: list[Any] = [Trainer.options(name="rank-0").remote(), Trainer.remote()]
    at = ray.get([actor.where.remote() for actor in actors])
    actors[0].train.remote(folder)
    tasks = [half.remote(folder) for _ in range(2)]
    while len(files := sorted(Path(folder).glob("*.half"))) < len(tasks):
        time.sleep(0.05)
    halves = [(int(file.stem), json.loads(file.read_text())) for file in files]
    print(json.dumps({"actors": at, "tasks": halves}), flush=True)
    for line in sys.stdin:
        if line.strip() == "kill":
            ray.kill(actors[0])
            print("{}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
