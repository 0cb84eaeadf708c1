"""The notes with which a chief and its servers coordinate their shutdown."""

import shutil
from pathlib import Path

import pytest

from orbit_runner.distribute.cluster.description import Member
from orbit_runner.distribute.cluster.shutdown import ChiefShutdown, ServerShutdown


@pytest.mark.parametrize("code", [0, 3, 143])
def test_servers_get_the_exit_code_of_the_chief(code: int, tmp_path: Path) -> None:
    host = ChiefShutdown(tmp_path)
    host.begin()
    guests = [ServerShutdown(tmp_path, Member(role, 0)) for role in ("worker", "ps")]
    assert [guest.run_exit_code() for guest in guests] == [None, None]
    host.end(code)
    assert [guest.run_exit_code() for guest in guests] == [code, code]


def test_note_of_an_earlier_run_is_ignored(tmp_path: Path) -> None:
    host = ChiefShutdown(tmp_path)
    host.begin()
    host.end(0)
    guest = ServerShutdown(tmp_path, Member("worker", 1))
    assert guest.run_exit_code() is None
    host.begin()
    assert guest.run_exit_code() is None
    host.end(0)
    assert guest.run_exit_code() == 0


def test_server_may_start_before_the_chief(tmp_path: Path) -> None:
    guest = ServerShutdown(tmp_path / "run", Member("ps", 0))
    assert guest.run_exit_code() is None
    ChiefShutdown(tmp_path / "run").begin()
    assert guest.run_exit_code() is None


def test_removed_run_directory_is_not_created_again(tmp_path: Path) -> None:
    host = ChiefShutdown(tmp_path / "run")
    host.begin()
    guest = ServerShutdown(tmp_path / "run", Member("worker", 0))
    shutil.rmtree(tmp_path / "run")

    host.end(1)
    guest.announce()
    assert not (tmp_path / "run").exists()


def test_chief_sees_which_servers_announced_their_exit(tmp_path: Path) -> None:
    host = ChiefShutdown(tmp_path)
    host.begin()
    assert host.leaving_members() == []
    ServerShutdown(tmp_path, Member("worker", 12)).announce()
    ServerShutdown(tmp_path, Member("ps", 0)).announce()
    assert host.leaving_members() == ["ps 0", "worker 12"]


def test_restarted_server_is_no_longer_leaving(tmp_path: Path) -> None:
    host = ChiefShutdown(tmp_path)
    ServerShutdown(tmp_path, Member("worker", 1)).announce()
    ServerShutdown(tmp_path, Member("worker", 0)).announce()
    ServerShutdown(tmp_path, Member("worker", 1))
    assert host.leaving_members() == ["worker 0"]
    host.begin()
    assert host.leaving_members() == []
