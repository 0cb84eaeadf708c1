"""Whether a server answers at an address, and whether a port is in use."""

from __future__ import annotations

import contextlib
import random
import socket

import pytest

from orbit_runner.distribute.cluster.addresses import (
    Liveness,
    listening_socket,
    port_problem,
    probe,
)

NOWHERE = "nowhere.invalid"  # RFC 2606 reserves the domain, so nobody can register it.


@pytest.fixture
def free() -> int:
    """A port on which nothing listened a moment ago."""
    while True:
        # Below the range from which the system assigns ports to other processes.
        port = random.SystemRandom().randrange(10_000, 30_000)
        with contextlib.suppress(OSError), listening_socket(port):
            return port


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
@pytest.mark.parametrize("own", ["localhost", "any"])
def test_port_in_use_by_another_process_is_reported(family: int, own: str) -> None:
    host = {"any": "", "localhost": "127.0.0.1" if family == socket.AF_INET else "::1"}[own]
    with socket.create_server((host, 0), family=family) as other:
        port = other.getsockname()[1]

        said = port_problem(f"somewhere:{port}")

    assert said == f"port {port} of somewhere:{port} is in use by another process"


def test_port_opened_with_reuse_port_counts_as_in_use() -> None:
    # The servers of TensorFlow set this, so two of them could listen without an error.
    with socket.create_server(("", 0), reuse_port=True) as other:
        assert "is in use" in port_problem(f"localhost:{other.getsockname()[1]}")


def test_checking_a_free_port_leaves_it_free(free: int) -> None:
    assert port_problem(f"localhost:{free}") == ""
    assert port_problem(f"localhost:{free}") == ""


def test_probe_finds_no_server_at_a_free_port_and_an_unknown_host(free: int) -> None:
    found = [probe(there) for there in (f"127.0.0.1:{free}", f"{NOWHERE}:1", "a..b:1")]

    assert found == [Liveness.GONE] * 3


def test_probe_of_a_listener_that_says_nothing_is_silent() -> None:
    with listening_socket(0) as other:
        assert probe(f"127.0.0.1:{other.getsockname()[1]}", 0.2) is Liveness.SILENT
