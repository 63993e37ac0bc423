"""Ports that are chosen for programs which listen on them later."""

from __future__ import annotations

from pathlib import Path

import pytest

from kilowatch.stack.ports import free_port, is_free
from tests.brokers import free_port as another


def test_a_chosen_port_is_one_that_the_kernel_gives_to_no_connection() -> None:
    lowest, _ = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    for _ in range(50):
        port = free_port()
        assert 1024 < port < lowest
        assert is_free("127.0.0.1", port)


def test_a_host_that_is_not_this_one_is_the_kernels_error() -> None:
    with pytest.raises(OSError, match="Cannot assign"):
        free_port("192.0.2.1")
    assert not is_free("192.0.2.1", another())
