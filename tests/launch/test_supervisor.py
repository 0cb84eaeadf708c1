"""How the launcher reacts when members end, and what it shows: real processes, real signals."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.launches import SECONDS, Launch, alive, wait_for

Start = Callable[..., Launch]
PS = "parameter_server"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts launchers, and kills the processes that are left."""
    launches: list[Launch] = []

    def run(
        plan: dict[str, list[str]], strategy: str = "multi_worker_mirrored", **limits: float
    ) -> Launch:
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        roles = [name.split()[0] for name in plan]
        settings = {
            "folder": str(tmp_path),
            "strategy": strategy,
            "counts": {role: roles.count(role) for role in roles},
            "limits": {"restarts": 2, "grace": 60.0, "settle": 30.0, **limits},
        }
        launches.append(Launch(tmp_path, settings))
        return launches[-1]

    yield run
    for launch in launches:
        if launch.process.poll() is None:
            launch.process.kill()
            launch.process.communicate()
        for pid in launch.pids():
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


def ports(launch: Launch, name: str) -> list[list[str]]:
    role, index = name.split()
    configs = [life["tf_config"] for life in launch.lives(name)]
    assert all(c["task"] == {"type": role, "index": int(index)} for c in configs)
    return [sorted(a for there in c["cluster"].values() for a in there) for c in configs]


def test_members_get_the_same_cluster_and_the_launcher_ends_afterwards(start):
    launch = start({"worker 0": ["exit(0)"], "worker 1": ["exit(0)"], "evaluator 0": ["exit(0)"]})
    assert launch.end() == 0
    addresses = [ports(launch, name) for name in ("worker 0", "worker 1", "evaluator 0")]
    assert addresses[0] == addresses[1] == addresses[2]
    assert len(set(addresses[0][0])) == 3


@pytest.mark.parametrize("code", [1, 3])
def test_failed_member_ends_all_members_and_sets_the_exit_code(start, code):
    launch = start(
        {
            "worker 0": ["save_when_asked()"],
            "worker 1": [f"wait_lives(1, 'worker 0'); exit({code})"],
        },
        settle=0.3,
    )
    assert launch.end() == code
    assert [len(launch.lives(name)) for name in ("worker 0", "worker 1")] == [1, 1]
    assert launch.notes == [f"worker 1 exited with code {code}; all members have ended"]


def test_killed_worker_restarts_all_members_on_other_ports(start):
    launch = start(
        {"worker 0": ["notice('worker 1')", "exit(0)"], "worker 1": ["serve()", "exit(0)"]}
    )
    os.kill(launch.pid("worker 1"), signal.SIGKILL)
    assert launch.end() == 0
    first, second = ports(launch, "worker 0")
    assert ports(launch, "worker 1") == [first, second]
    assert not set(first) & set(second)
    assert (
        "worker 1 was killed by SIGKILL; restarting all members from the last checkpoint (1 of 2)"
        in launch.notes
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT])
def test_members_that_do_not_notice_a_loss_are_killed(start, number):
    launch = start(
        {"worker 0": ["deaf()", "exit(0)"], "worker 1": [f"die({int(number)})", "exit(0)"]},
        settle=0.3,
        grace=0.3,
    )
    assert launch.end() == 0
    assert not alive(launch.pid("worker 0"))
    assert any(f"worker 1 was killed by {number.name}; restarting" in n for n in launch.notes)


def test_suspended_member_is_killed_and_reported(start):
    launch = start(
        {"worker 0": ["notice('worker 1')", "exit(0)"], "worker 1": ["serve()", "exit(0)"]},
        settle=0.5,
    )
    os.kill(launch.pid("worker 1"), signal.SIGSTOP)
    assert launch.end() == 0
    assert not alive(launch.pid("worker 1"))
    assert any("worker 0 exited with code 138; restarting" in note for note in launch.notes)


@pytest.mark.slow
def test_launcher_gives_up_after_the_maximum_number_of_restarts(start):
    launch = start({"worker 0": ["notice('worker 1')"], "worker 1": ["die(9)"]})
    assert launch.end() == 137
    assert len(launch.lives("worker 1")) == 3
    assert len([note for note in launch.notes if "restarting all members" in note]) == 2


def test_exit_code_is_that_of_the_failure_behind_the_loss(start):
    # A member that fails notifies the others before its process has ended.
    launch = start(
        {"worker 0": ["exit(138)"], "worker 1": ["time.sleep(0.7); exit(3)"]}, settle=10.0
    )
    assert launch.end() == 3
    assert len(launch.lives("worker 0")) == 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_reaches_each_member_once(start, number):
    plan = {key: ["save_when_asked(0.5)"] for key in ("worker 0", "worker 1", "evaluator 0")}
    launch = start(plan)
    launch.waits(*plan)
    # As a terminal does: to the foreground process group.
    os.killpg(launch.process.pid, number)
    assert launch.end() == 128 + number
    assert launch.err.count("saved, told 1 times") == 3
    assert launch.notes[0].startswith(f"{number.name}: waiting up to 60 s for worker 0, worker 1")


@pytest.mark.slow
def test_members_that_do_not_exit_in_time_are_killed(start):
    launch = start({"worker 0": ["save_when_asked()"], "worker 1": ["deaf()"]}, grace=1.0)
    launch.waits("worker 0", "worker 1")
    launch.process.send_signal(signal.SIGTERM)
    assert launch.end() == 143
    assert not alive(launch.pid("worker 1"))
    assert any("killed without saving: worker 1" in note for note in launch.notes)


def test_second_ctrl_c_kills_all_members_immediately(start):
    launch = start({"worker 0": ["deaf()"], "worker 1": ["deaf()"]}, grace=600.0)
    launch.waits("worker 0", "worker 1")
    launch.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert launch.process.poll() is None
    launch.process.send_signal(signal.SIGINT)
    assert launch.end() == 130
    assert not any(alive(pid) for pid in launch.pids())


def test_members_die_when_the_launcher_is_killed(start):
    launch = start({"worker 0": ["deaf()"], "worker 1": ["deaf()"]})
    launch.waits("worker 0", "worker 1")
    launch.process.kill()
    wait_for(lambda: not any(alive(pid) for pid in launch.pids()))


def test_child_processes_of_a_killed_member_are_killed(start):
    child = "import subprocess; p = subprocess.Popen(['sleep', '600']); say(f'child {p.pid}'); "
    launch = start({"worker 0": [child + "time.sleep(0.5); die(9)"]}, restarts=0)
    assert launch.end() == 137
    (pid,) = (int(line.split()[-1]) for line in launch.err.splitlines() if " child " in line)
    wait_for(lambda: not alive(pid), 5.0)


def test_training_ends_before_the_evaluator(start):
    launch = start({"worker 0": ["exit(0)"], "evaluator 0": ["notice('worker 0', 0, after=0.5)"]})
    assert launch.end() == 0
    assert launch.notes == []


def servers(**plans: list[str]) -> dict[str, list[str]]:
    plan = {"chief 0": ["exit(0)"], "worker 0": ["serve()"], "worker 1": ["serve()"],
            "ps 0": ["serve()"]}  # fmt: skip
    return plan | {name.replace("_", " "): lives for name, lives in plans.items()}


@pytest.mark.parametrize("code", [0, 3])
def test_servers_are_stopped_when_the_chief_ends(start, code):
    launch = start(servers(chief_0=[f"wait_lives(1, *SERVERS); exit({code})"]), PS)
    assert launch.end() == code
    assert [len(launch.lives(name)) for name in ("worker 0", "worker 1", "ps 0")] == [1, 1, 1]
    assert not any(alive(pid) for pid in launch.pids())


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("name", "number"), [("ps 0", signal.SIGKILL), ("worker 1", signal.SIGTERM)]
)
def test_lost_server_restarts_all_members(start, name, number):
    chief = [f"notice({name!r})", "wait_lives(2, *SERVERS); exit(0)"]
    launch = start(servers(chief_0=chief), PS)
    os.kill(launch.pid(name), number)
    assert launch.end() == 0
    assert [len(launch.lives(n)) for n in ("chief 0", "worker 0", "worker 1", "ps 0")] == [2] * 4


@pytest.mark.slow
def test_servers_keep_running_until_the_chief_has_saved(start):
    chief = """
try: save_when_asked(1.0)
except SystemExit:
    say(f"served: {state('ps 0') in ('R', 'S')}")
    raise
"""
    launch = start(servers(chief_0=[chief]), PS)
    launch.waits("chief 0")
    launch.process.send_signal(signal.SIGTERM)
    assert launch.end() == 143
    assert "served: True" in launch.err


def test_chief_output_is_passed_to_stdout_unchanged(start):
    say = "say('to stderr'); os.write(1, b'{\"a\": 1}\\n\\xff no newline'); exit(0)"
    launch = start({"worker 0": [say], "worker 1": ["print('of no account'); exit(0)"]})
    out, err = _bytes(launch)
    assert out == b'{"a": 1}\n\xff no newline'
    lines = sorted(err.decode().splitlines())
    assert lines == ["worker 0 │ to stderr", "worker 1 │ of no account"]


def _bytes(launch: Launch) -> tuple[bytes, bytes]:
    out = launch.process.stdout.buffer.read()
    err = launch.process.stderr.buffer.read()
    assert launch.process.wait() == 0
    return out, err


def test_members_continue_when_nobody_reads_their_output(start):
    flood = "for _ in range(20000): print('x' * 50)\nexit(0)"
    launch = start({"worker 0": [flood], "worker 1": [flood]})
    launch.process.stdout.close()
    launch.process.stderr.close()
    assert launch.process.wait(SECONDS) == 0


def test_lines_of_several_processes_are_not_mixed(start):
    shout = "for i in range(300): say(f'{ME} ' + 'y' * 200)\nexit(0)"
    launch = start({name: [shout] for name in ("worker 0", "worker 1", "worker 2")})
    assert launch.end() == 0
    lines = launch.err.splitlines()
    assert len(lines) == 900
    assert {line.partition(" │ ")[0] for line in lines} == {f"worker {i}" for i in range(3)}
    assert all(line == f"{line[:8]} │ {line[:8]} " + "y" * 200 for line in lines)
