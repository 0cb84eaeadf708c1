"""The status, progress and results of runs, read from their files."""

import json
import os
import socket

import pytest

from orbit_runner.run_directory.run_reader import RunReader, find_runs, read_runs
from tests.support.run_directories import lock_holder, write_best, write_run


@pytest.mark.parametrize(
    ("outcome", "status", "reason"),
    [
        ("done", "finished", ""),
        ("left", "finished", ""),
        (None, "lost", ""),
        ("Diverged: training diverged: loss is nan at step 4\nlower it", "diverged",
         "training diverged: loss is nan at step 4"),
        ("Interrupted: SIGTERM: saved at step 5, exiting", "preempted",
         "SIGTERM: saved at step 5, exiting"),
        ("Interrupted: SIGHUP: saved at step 5, exiting", "preempted",
         "SIGHUP: saved at step 5, exiting"),
        ("Interrupted: SIGINT: saved at step 5, exiting", "interrupted",
         "SIGINT: saved at step 5, exiting"),
        ("LeftAtOnce: SIGTERM again, nothing has been saved", "preempted",
         "SIGTERM again, nothing has been saved"),
        ("KeyboardInterrupt: nothing has been saved", "interrupted", "nothing has been saved"),
        ("MemberLost: worker 1", "lost", "worker 1"),
        ("ValueError: shapes\ndo not match", "failed", "shapes"),
        ("MemoryError: ", "failed", "MemoryError"),
    ],
)  # fmt: skip
def test_status_follows_from_the_outcome(tmp_path, outcome, status, reason):
    summary = RunReader(write_run(tmp_path / "a", outcome=outcome))
    assert (summary.status, summary.reason) == (status, reason)


def test_run_is_running_while_a_process_holds_its_lock(tmp_path):
    run = write_run(tmp_path / "a", outcome=None)
    with lock_holder(run):
        assert RunReader(run).status == "running"
    assert RunReader(run).status == "lost"


@pytest.mark.parametrize(("seconds_ago", "status"), [(60.0, "running"), (7200.0, "lost")])
def test_run_on_another_machine_is_running_if_it_wrote_recently(
    tmp_path, monkeypatch, seconds_ago, status
):
    path = write_run(tmp_path / "a", outcome=None)
    (path / ".lock").write_text('{"process": 1, "host": "elsewhere"}\n')
    last = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])["time"]
    monkeypatch.setattr("time.time", lambda: last + seconds_ago)
    summary = RunReader(path)
    assert (summary.status, summary.reason) == (status, "on elsewhere")


def test_process_id_that_was_reused_does_not_make_a_run_running(tmp_path):
    path = write_run(tmp_path / "a", outcome=None)
    (path / ".lock").write_text(
        json.dumps({"process": os.getpid(), "host": socket.gethostname()}) + "\n"
    )
    assert RunReader(path).status == "lost"


def test_summary_has_progress_metrics_and_changes(tmp_path):
    path = write_run(
        tmp_path / "a", accuracies={100: 0.7, 200: 0.9, 300: 0.8}, flags=[("runtime.seed", "3")]
    )
    write_best(path, 200, accuracy=0.9)
    reader = RunReader(path)
    assert (reader.experiment, reader.last_mode, reader.step, reader.train_steps) == (
        "digits", "train_and_eval", 300, 300,
    )  # fmt: skip
    assert reader.metrics == {"accuracy": 0.8, "training_loss": 0.5, "steps_per_second": 30.0}
    assert (reader.best, reader.best_step, reader.main_metric) == (
        {"accuracy": 0.9},
        200,
        "accuracy",
    )
    assert reader.metric("accuracy") == 0.9
    assert reader.metric("training_loss") == 0.5
    assert reader.changes == {"runtime.seed": 3}


_OF_EVALUATION = 0.76


@pytest.mark.parametrize(
    ("losses", "record", "speed"),
    [
        ([2.0, 1.0], {"metrics": {"accuracy": 0.8}}, 20.0),
        ([], {"metrics": {"accuracy": 0.8}, "steps_per_second": 8.05}, 8.05),
        ([], {"metrics": {"accuracy": 0.8}, "steps_per_second": None}, None),
    ],
)
def test_speed_of_a_run_is_that_of_training(tmp_path, losses, record, speed):
    path = write_run(tmp_path / "a", losses=losses, **record)
    with (path / "metrics.jsonl").open("a") as file:
        evaluated = {"step": 200, "split": "validation", "accuracy": 0.8}
        print(json.dumps({**evaluated, "steps_per_second": _OF_EVALUATION}), file=file)
    assert RunReader(path).metrics.get("steps_per_second") == speed
    (path / "metrics.jsonl").write_text("")
    assert RunReader(path).metrics.get("steps_per_second") != _OF_EVALUATION


def test_evaluation_far_from_the_end_of_the_records_is_found(tmp_path):
    path = write_run(tmp_path / "a", outcome=None, losses=[0.1] * 5000, accuracies={100: 0.7})
    reader = RunReader(path)
    assert reader.metrics["accuracy"] == 0.7
    assert reader.step == 500_000


def test_step_of_a_run_without_records_is_that_of_its_checkpoint(tmp_path):
    path = write_run(tmp_path / "a", outcome=None, losses=[])
    (path / "checkpoints" / "ckpt-40.index").touch()
    (path / "checkpoints" / "ckpt-70.json").touch()  # Not complete yet.
    assert RunReader(path).step == 40


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json", ""),
        ("run.json", "[]"),
        ("run.json", '{"attempts": 3}'),
        ("run.json", '{"attempts": [3, {"mode": 4, "step": "x", "metrics": [], "best": 7}]}'),
        ("metrics.jsonl", '{"step": 400, "split": "train", "training_lo'),
        ("metrics.jsonl", '7\n[]\n{"step": true, "split": "train"}\n\x00\xff\n'),
        ("metrics.jsonl", '{"step": 1, "split": "train", "time": "x", "training_loss": [1]}\n'),
        ("best/info.json", "{"),
    ],
)
def test_damaged_file_leaves_its_part_of_the_summary_empty(tmp_path, name, content):
    path = write_run(tmp_path / "a")
    write_best(path, 200, accuracy=0.9)
    (path / name).write_text(content, encoding="latin-1")
    reader = RunReader(path)
    assert reader.path == path
    if name == "run.json":
        assert (reader.status, reader.metrics["training_loss"]) == ("lost", 0.5)
    elif name == "best/info.json":
        assert reader.best == {}
    else:
        assert (reader.status, reader.step, "accuracy" in reader.best) == ("finished", 300, True)


def test_runs_are_found_at_any_depth_but_not_inside_runs(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b/c/d", tmp_path / "b/e"]
    for path in paths:
        write_run(path)
    write_run(tmp_path / "a" / "best" / "inside")
    write_run(tmp_path / ".hidden" / "f")
    (tmp_path / "link").symlink_to(tmp_path / "b")
    assert list(find_runs(tmp_path)) == paths
    assert [run.path for run in read_runs([tmp_path, tmp_path / "a"])] == paths


def test_runs_inside_runs_are_found_on_request(tmp_path):
    paths = [tmp_path / "a", tmp_path / "a/b", tmp_path / "a/b/c", tmp_path / "a/sweep/trials/0000"]
    for path in paths:
        write_run(path)
    write_run(tmp_path / "a" / "checkpoints" / "copy")
    assert list(find_runs(tmp_path, inside_runs=True)) == paths
    assert list(find_runs(tmp_path / "a", inside_runs=True)) == paths
    assert list(find_runs(tmp_path / "a")) == paths[:1]


def test_directory_of_an_evaluation_is_a_run(tmp_path):
    path = write_run(tmp_path / "a", mode="eval")
    (path / "run.json").rename(path / "run.eval.json")
    assert list(find_runs(tmp_path)) == [path]
    assert RunReader(path).last_mode == "eval"
