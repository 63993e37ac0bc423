"""A single aggregator has nothing of a cluster: neither modules nor NATS."""

from __future__ import annotations

import subprocess
import sys


def test_a_single_aggregator_imports_nothing_of_a_cluster() -> None:
    """Memory and start-up of everybody who needs one aggregator stay as they were."""
    code = (
        "import sys, aggregator.service\n"
        "found = [name for name in sys.modules if name.partition('.')[0] == 'nats' or "
        "name.startswith(('aggregator.cluster.', 'aggregator.store.shared.', 'alerts.rules.peers_elsewhere'))]\n"
        "print(*found)"
    )
    assert not subprocess.check_output([sys.executable, "-c", code], text=True).split()
