"""The open files of a simulated fleet: raised as far as this user may, else said in one line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kilowatch.stack.open_files import FILES_A_NODE, SPARE_FILES, processes_of

TRY = """
import resource, sys
soft, hard, nodes = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from kilowatch.stack.open_files import allow_open_files
from telemetry.errors import ConfigError
try:
    allow_open_files(nodes)
except ConfigError as error:
    print(error)
else:
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def tried(soft: int, hard: int, nodes: int) -> str:
    """What a process of these limits says of so many nodes, or the limit that it then has."""
    done = subprocess.run(
        [sys.executable, "-c", TRY, str(soft), str(hard), str(nodes)], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or done.stderr


def test_the_limit_of_a_shell_is_raised_to_what_the_nodes_need() -> None:
    assert tried(256, 6000, 1250) == str(SPARE_FILES + 1250 * FILES_A_NODE)
    assert tried(1024, 6000, 60) == "1024", "it is enough"
    if processes_of(1250) > 1:  # each has but its part of the nodes
        assert tried(256, 4096, 1250) == "4096"


@pytest.mark.parametrize("nodes", [60, 1250])
def test_nodes_that_need_more_files_than_this_user_may_have_are_refused(nodes: int) -> None:
    words = tried(150, 150, nodes)
    assert f"{nodes:,} nodes need more open files than the 150 of this user" in words
    assert "ulimit -n" in words
