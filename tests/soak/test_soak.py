"""Long runs hold no more at their end than at their beginning.

`make soak SUITE=long` trains for 100,000 steps and restarts a run 1,000 times; these tests are a
sample.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.soak.harness import between, command, least, middle, speed, watch
from tests.support import warm_runner

_OFTEN = [
    "--mode=train_and_eval",
    "--trainer.train_epochs=0",
    "--trainer.validation_interval=500",
    "--trainer.checkpoint_interval=500",
    "--trainer.report_interval=2",
    "--trainer.best_checkpoint_export_subdir=best",
    "--trainer.best_checkpoint_eval_metric=accuracy",
]
_RUNS = {
    "mlp": ["--experiment=digits_mlp", *_OFTEN],
    "cnn and tf.data": [
        "--experiment=digits",
        "--task.model.filters=[8, 16]",
        "--task.model.dense_units=32",
        "--task.train_data.on_device=false",
        *_OFTEN,
    ],
}
# The sample of the test suite. It compares neither memory nor the directory: both still grow
# in the first seconds.
_SAMPLE_STEPS, _SAMPLE_RESTARTS = 10_000, 4
_SECONDS_PER_STEP, _SECONDS_TO_START = 0.02, 300
_STEPS_PER_START = 10


@pytest.mark.promise(
    "faults",
    "over 100,000 steps, memory grows by less than 1 %, and open files, threads and checkpoints "
    "do not",
)
@pytest.mark.slow
@pytest.mark.parametrize("name", _RUNS)
def test_a_long_run_holds_no_more_at_its_end(name, pytestconfig, tmp_path):
    requested = pytestconfig.getoption("--soak-steps", default=0)
    steps = requested or _SAMPLE_STEPS
    samples = watch(
        [*_RUNS[name], f"--train_steps={steps}"],
        tmp_path / "run",
        seconds=_SECONDS_TO_START + steps * _SECONDS_PER_STEP,
    )
    early, late = between(samples, 0.1, 0.3), between(samples, 0.8, 1.0)
    assert min(len(early), len(late)) > 0, f"too few samples: {samples}"
    resources = {
        attribute: (middle(early, attribute), middle(late, attribute))
        for attribute in ("memory", "open_files", "threads", "records")
    }
    for attribute in ("files", "directory"):  # Without those of a checkpoint that is being written.
        resources[attribute] = (least(early, attribute), least(late, attribute))
    speeds = [round(speed(tmp_path / "run", *part)) for part in ((0.1, 0.3), (0.8, 1.0))]
    print(
        f"\n{name}, {steps} steps, early and late: {resources}, steps/s {speeds}", file=sys.stderr
    )
    for attribute in ("open_files", "threads"):
        assert resources[attribute][1] <= resources[attribute][0], (attribute, resources)
    if requested:
        for attribute in ("memory", "files", "directory"):
            assert resources[attribute][1] <= 1.01 * resources[attribute][0], (attribute, resources)


@pytest.mark.promise(
    "faults", "a run that is restarted a thousand times ends with the same weights"
)
@pytest.mark.slow
def test_a_run_that_restarts_many_times_ends_with_the_same_weights(pytestconfig, tmp_path):
    restarts = pytestconfig.getoption("--restarts", default=0) or _SAMPLE_RESTARTS
    steps = _STEPS_PER_START * (restarts + 1)
    flags = [*_RUNS["mlp"], "--trainer.max_to_keep=1", f"--train_steps={steps}"]
    model_dir, seconds, files = tmp_path / "restarted", list[float](), list[int]()
    for start in range(1, restarts + 1):
        before = time.monotonic()
        _run([*flags, f"--stop_at_step={start * _STEPS_PER_START}"], model_dir)
        seconds.append(time.monotonic() - before)
        files.append(_number_of_files(model_dir))
    _run(flags, model_dir)
    _run(flags, tmp_path / "whole")
    first, last = (sum(part) / len(part) for part in (seconds[1:21] or seconds, seconds[-20:]))
    print(f"\n{restarts} restarts: {first:.2f} s at first, {last:.2f} s at last", file=sys.stderr)
    assert _weights(model_dir) == _weights(tmp_path / "whole")
    assert files[-1] <= files[len(files) // 2 - 1], files


def _run(flags: Sequence[str], model_dir: Path) -> None:
    # In a fork of a process that has imported TensorFlow, which saves an hour of imports.
    warm_runner.run(*command(flags, model_dir)[3:], check=True)


def _number_of_files(model_dir: Path) -> int:
    """Counts all files but event files, of which each start has its own, and those of records."""
    paths = [path for path in model_dir.rglob("*") if path.is_file()]
    # The first record, which is made at step 50 or after two seconds, adds files.
    first = {"metrics.jsonl", "inputs.json", "model.json"}
    names = [path.name for path in paths]
    return sum(not name.startswith("events.") and name not in first for name in names)


def _weights(model_dir: Path) -> str:
    return json.loads((model_dir / "run.json").read_text())["attempts"][-1]["weights"]
