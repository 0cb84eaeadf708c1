"""Synchronous workers as real processes give the same numbers as one process."""

import json
import shutil
import signal

import pytest
import tensorflow as tf

from orbit_runner.run_directory.run_reader import RunReader
from tests.clusters.members import (
    EXPERIMENT,
    MULTI_WORKER,
    ONE_DEVICE,
    alone,
    cluster,
    content,
    finish,
    mirrored,
    records,
    run_workers,
)
from tests.support import warm_runner
from tests.support.problems import output_of

STEPS = "--train_steps=20"
LONG = (
    *EXPERIMENT, "--train_steps=400", "--trainer.checkpoint_interval=50",
    "--trainer.steps_per_loop=10", "--trainer.validation_interval=100",
    "--task.model.dropout_rate=0.3",
)  # fmt: skip


@pytest.fixture(scope="module")
def one_device(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    alone(folder, *EXPERIMENT, STEPS, ONE_DEVICE)
    return folder


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workers")
    run_workers(folder, *EXPERIMENT, STEPS, count=3)
    return folder


@pytest.mark.slow
def test_figures_of_a_cluster_are_those_of_all_workers(one_device, workers):
    (ours,), (theirs,) = records(workers, "validation"), records(one_device, "validation")
    assert ours["validation_examples"] == theirs["validation_examples"] == 359
    assert ours["accuracy"] == pytest.approx(theirs["accuracy"], abs=1e-6)
    assert ours["validation_loss"] == pytest.approx(theirs["validation_loss"], abs=1e-5)
    operations, expected = (
        [record["tflops_per_second"] / record["steps_per_second"] for record in split_records]
        for split_records in (records(workers, "train"), records(one_device, "train"))
    )
    assert operations == pytest.approx(expected)
    assert RunReader(workers / "run").devices.endswith(" (worker 0 of 3 members)")


@pytest.mark.slow
def test_only_the_chief_writes_files_and_prints_results(workers):
    lines = (workers / "run" / "metrics.jsonl").read_text().splitlines()
    left = {p.relative_to(workers / "run").parts[0] for p in (workers / "run").rglob("*")}

    assert len(lines) == 21
    assert left == {
        ".cluster",
        ".lock", "assets", "checkpoint", "checkpoints", "config.yaml", "data.json", "metrics.jsonl",
        "operative_config.gin", "report.html", "report_data", "run.json", "train",
        "validation",
    }  # fmt: skip
    report = workers / "run" / "report_data"
    evaluation = json.loads((report / "evaluation.json").read_text())
    assert evaluation["problem"].endswith(" processes train together")
    layers = json.loads((report / "model.json").read_text())["layers"]
    assert sum(row["parameters"] for row in layers) > 0
    assert len([*(workers / "run" / "train").iterdir()]) == 1
    assert "accuracy" not in (workers / "worker1.log").read_text()


@pytest.mark.slow
def test_one_process_reproduces_the_run(workers):
    completed = warm_runner.run("reproduce", str(workers / "run"), "--json")

    assert completed.returncode == 0, completed.stderr
    output = json.loads(completed.stdout)
    assert output["equal"]
    assert "→ MirroredStrategy × " in " ".join(output["notes"])


@pytest.mark.promise("weights", "two workers give the weights of two replicas in one process")
@pytest.mark.slow
def test_two_workers_are_bit_identical_to_two_replicas(undisturbed, tmp_path):
    alone(tmp_path, *LONG, *mirrored(2))

    assert content(tmp_path) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode", ["eval", pytest.param("continuous_eval", marks=pytest.mark.matrix)]
)
def test_evaluation_modes_match_one_device(workers, one_device, mode):
    run_workers(workers, *EXPERIMENT, STEPS, f"--mode={mode}")

    *_, ours = records(workers, "validation")
    assert ours["accuracy"] == pytest.approx(records(one_device, "validation")[0]["accuracy"])


@pytest.mark.slow
def test_cluster_with_separate_chief_and_evaluator_trains_and_evaluates(tmp_path):
    best = "--trainer.best_checkpoint_export_subdir=best"
    metric = "--trainer.best_checkpoint_eval_metric=accuracy"
    flags = (*EXPERIMENT, STEPS, MULTI_WORKER, best, metric)
    with cluster(tmp_path, *flags, chief=1, worker=1, evaluator=1) as members:
        assert finish(members) == {"chief0": 0, "worker0": 0, "evaluator0": 0}

    assert [r["step"] for r in records(tmp_path, "validation")][-1] == 20
    assert (tmp_path / "run" / "best" / "best-20.index").exists()
    assert (tmp_path / "run" / "run.continuous_eval.json").exists()
    assert "evaluating" not in members["chief0"].text


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What two workers end with that nothing disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run_workers(folder, *LONG)
    return content(folder)


_LOSSES = [
    pytest.param("worker1", signal.SIGKILL, 138),
    pytest.param("worker0", signal.SIGTERM, 143),
    pytest.param("worker0", signal.SIGKILL, 138, marks=pytest.mark.matrix),
    pytest.param("worker0", signal.SIGSTOP, 138, marks=pytest.mark.matrix),
    pytest.param("worker1", signal.SIGSTOP, 138, marks=pytest.mark.matrix),
    pytest.param("worker1", signal.SIGTERM, 143, marks=pytest.mark.matrix),
]


@pytest.mark.promise(
    "faults",
    "a lost member of a cluster is noticed and named; if TensorFlow does not say which of several "
    "it was, all others are named",
)
@pytest.mark.slow
@pytest.mark.parametrize(("lost", "number", "code"), _LOSSES)
def test_lost_worker_is_detected_and_the_run_resumes(tmp_path, undisturbed, number, code, lost):
    with cluster(
        tmp_path, *LONG, MULTI_WORKER, "--runtime.heartbeat_timeout=4", worker=2
    ) as members:
        other = members["worker1" if lost == "worker0" else "worker0"]
        members["worker0"].until("evaluation at step 100")
        members[lost].send(number)
        assert other.wait() == code
        if code == 138:
            assert f"{lost[:-1]} {lost[-1]} (" in other.text
            assert "was lost" in other.text
            assert "Traceback" not in other.text
        else:
            assert members[lost].wait() == code
            saved = [line for line in other.text.splitlines() if "SIGTERM: saved" in line]
            assert saved[0] in members[lost].text
    assert "restored step" in run_workers(tmp_path, *LONG)["worker1"]

    assert content(tmp_path) == undisturbed


@pytest.mark.slow
def test_workers_roll_back_and_exit_when_weights_are_not_finite(tmp_path):
    flags = (
        "--import=tests.clusters.nan_gradient_task",
        "--trainer.checkpoint_interval=1",
        "--trainer.recovery_max_trials=1",
    )
    outputs = run_workers(tmp_path, *EXPERIMENT, STEPS, *flags, code=3)
    assert "the weights of step 1 are not finite" in outputs["worker0"]
    for text in outputs.values():
        assert "returned to step 0 (recovery 1 of 1)" in text
    assert [path.name for path in (tmp_path / "run/checkpoints").glob("*.index")] == [
        "ckpt-0.index"
    ]


@pytest.mark.promise(
    "commands",
    "`runner replay --find` finds the step, the layer and the example that made a run diverge",
)
@pytest.mark.slow
def test_step_at_which_workers_diverged_is_found(tmp_path):
    flags = (
        "--trainer.optimizer_config.learning_rate.type=constant",
        "--trainer.optimizer_config.learning_rate.constant.learning_rate=1e30",
        "--trainer.loss_upper_bound=.inf",
        "--trainer.checkpoint_interval=0",
    )
    for text in run_workers(tmp_path, *EXPERIMENT, STEPS, *flags, code=3).values():
        assert " --find` finds the step, its layer and its examples" in text
    assert [*(tmp_path / "run/checkpoints").glob("*.index")] == []
    output = json.loads(output_of(["replay", str(tmp_path / "run"), "--find", "--json"]))
    assert output["step"] == 2
    assert output["first_bad"] is not None


@pytest.mark.slow
def test_workers_end_together_and_sum_a_variable_that_is_summed_on_read(tmp_path):
    """A worker that exits earlier closes connections on which others may still wait."""
    (tmp_path / "slow.yaml").write_text("callbacks: [tests.clusters.slow_chief.SlowChief]\n")
    slow = (f"--config_file={tmp_path / 'slow.yaml'}", "--import=tests.clusters.joint_task")
    with cluster(tmp_path, *EXPERIMENT, STEPS, MULTI_WORKER, *slow, worker=2) as members:
        assert members["worker1"].wait() == 0, members["worker1"].text
        assert "the chief is done" in members["worker0"].text
        assert members["worker0"].wait() == 0, members["worker0"].text

    reader = tf.train.load_checkpoint(str(tmp_path / "run" / "checkpoints" / "ckpt-20"))
    assert reader.get_tensor("model/summed/.ATTRIBUTES/VARIABLE_VALUE") == 2.0


@pytest.mark.slow
def test_workers_with_different_flags_are_rejected(tmp_path):
    own = {"worker1": ["--trainer.validation_interval=7"]}
    outputs = run_workers(tmp_path, *EXPERIMENT, STEPS, own=own, code=2)

    assert "runs a different experiment, mode or config" in outputs["worker0"]
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.slow
def test_workers_that_do_not_share_a_run_directory_are_rejected(workers, tmp_path):
    shutil.copytree(workers / "run", tmp_path / "run")
    own = {"worker1": [f"--model_dir={tmp_path / 'elsewhere'}"]}
    outputs = run_workers(tmp_path, *EXPERIMENT, "--train_steps=30", own=own, code=2)

    assert "use a directory that all workers share" in outputs["worker1"]
