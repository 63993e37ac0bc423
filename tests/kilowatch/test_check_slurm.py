"""`kilowatch check --plugin slurm` on a real Slurm: it drains a node that is unfit, and resumes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster, needs_slurm, running

ROOT = Path(__file__).parents[2]
XID_79 = "[12.5] NVRM: Xid (PCI:0000:18:00): 79, pid=7, name=a, GPU has fallen off the bus.\n"


@needs_slurm
@pytest.mark.systems
def test_an_unfit_node_is_drained_and_resumed_once_it_is_fit(tmp_path: Path) -> None:
    log, settings = tmp_path / "kern.log", tmp_path / "kilowatch.toml"
    settings.write_text(f'[collector]\nnode_readings = false\nkernel_log = "{log}"\nstate_dir = "{tmp_path}/state"\n')
    log.write_text("")
    (tmp_path / "slurm").mkdir()
    with running(tmp_path / "slurm", nodes=("n1", "n2")) as cluster:

        def check(code: int) -> str:
            """As slurmd runs it, which names the node."""
            done = subprocess.run(
                [sys.executable, "-m", "kilowatch", "check", "--plugin", "slurm", "--config", settings],
                env={**cluster.environment, "SLURMD_NODENAME": "n2", "PYTHONPATH": str(ROOT)},
                capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
            )  # fmt: skip
            assert done.returncode == code, done.stdout + done.stderr
            return done.stderr.strip().splitlines()[-1]

        assert check(0) == "n2 stays idle"
        log.write_text(XID_79)
        assert check(2).startswith("n2 is drained: kilowatch: kernel log: ")
        cluster.until(lambda: state(cluster, "n2") == "drained")
        assert "79" in cluster.state("n2")
        assert check(2).startswith("n2 is drained already")
        assert state(cluster, "n1") == "idle"
        log.unlink()
        assert check(3) == "n2 stays drained", "what is not known changes nothing"
        log.write_text("")
        assert check(0).startswith("n2 is resumed")
        cluster.until(lambda: state(cluster, "n2") == "idle")
        cluster.text("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=a person's")
        assert check(0) == "n2 stays drained", "somebody else has drained it"
        log.write_text(XID_79)
        assert check(2).startswith("n2 is drained already: a person's")


def state(cluster: SlurmCluster, node: str) -> str:
    """The state of a node without its reason."""
    return cluster.state(node).partition("|")[0]
