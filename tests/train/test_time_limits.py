"""`trainer.max_time` ends a start in good order."""

import json
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.run_directory.run_reader import RunReader
from orbit_runner.train.callbacks.base import Callback
from tests.support.digits import cnn_config
from tests.support.problems import output_of
from tests.support.toy import Notes, records, run, toy_config

# Each start trains one piece of one loop: at first, one step.
AT_ONCE = {"trainer__max_time": "0.000001s"}


class CountEnds(Callback):
    """Counts the calls of `on_train_end`."""

    def __init__(self) -> None:
        self.ends = 0

    def on_train_end(self, run: Any) -> None:
        self.ends += 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"trainer__summary_interval": 5},
        {"trainer__early_stopping__metric": "validation_loss",
         "trainer__early_stopping__patience": 1,
         "trainer__early_stopping__min_delta": 1e9},
    ],
    ids=["in the graph", "records in the graph", "early stopping"],
)  # fmt: skip
def test_run_that_was_stopped_three_times_has_the_weights_of_one_that_was_not(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    best = {
        "trainer__best_checkpoint_export_subdir": "best",
        "trainer__best_checkpoint_eval_metric": "accuracy",
    }
    settings = {"trainer__steps_per_loop": 20, **best, **changes}
    whole, _ = run(cnn_config(**settings), tmp_path / "whole")
    for step in (1, 2, 3):
        run(cnn_config(**settings, **AT_ONCE), tmp_path / "parts")
        assert CheckpointFolder(tmp_path / "parts" / "checkpoints").steps()[-1] == step
    resumed, _ = run(cnn_config(**settings), tmp_path / "parts")

    assert weights_fingerprint(resumed) == weights_fingerprint(whole)
    evaluations = [
        [(record["step"], record["accuracy"]) for record in records(tmp_path / name, "validation")]
        for name in ("whole", "parts")
    ]
    assert evaluations[0] == evaluations[1] != []
    info = [(tmp_path / name / "best" / "info.json").read_text() for name in ("whole", "parts")]
    assert info[0] == info[1]


@pytest.mark.slow
def test_stopped_run_saves_and_is_continued_by_the_next_start(tmp_path: Path) -> None:
    notes, counter = Notes(), CountEnds()
    for _ in range(2):
        run(toy_config(**AT_ONCE), tmp_path, notes=notes, callbacks=[counter])
    said = [note for note in notes.notes if note.startswith("stopped")]
    assert said == [
        f"stopped after 0.000001s at step {step} of 20 (trainer.max_time)" for step in (1, 2)
    ]
    assert CheckpointFolder(tmp_path / "checkpoints").steps() == [1, 2]
    assert not (tmp_path / "metrics.jsonl").exists()  # No record or evaluation is due there.
    assert counter.ends == 0
    run(toy_config(), tmp_path, callbacks=[counter])
    assert [record["step"] for record in records(tmp_path, "validation")] == [5, 10, 15, 20]
    assert counter.ends == 1


def test_time_that_is_over_at_the_last_step_does_not_matter(tmp_path: Path) -> None:
    notes, counter = Notes(), CountEnds()
    config = toy_config(trainer__train_steps=1, **AT_ONCE)
    _, logs = run(config, tmp_path, notes=notes, callbacks=[counter])
    assert "error" in logs
    assert counter.ends == 1
    assert not [note for note in notes.notes if note.startswith("stopped")]


@pytest.mark.parametrize("mode", ["train", "train_and_post_eval"])
def test_stopped_run_is_not_evaluated(mode: str, tmp_path: Path) -> None:
    _, logs = run(toy_config(**AT_ONCE), tmp_path, mode, run_post_eval=True)
    assert logs == {}
    assert not (tmp_path / "metrics.jsonl").exists()


@pytest.mark.slow
def test_time_counts_from_the_given_start(tmp_path: Path) -> None:
    run(toy_config(trainer__max_time="1h"), tmp_path / "whole", started=None)
    run(toy_config(trainer__max_time="1h"), tmp_path / "parts", started=-3600.0)
    assert CheckpointFolder(tmp_path / "whole" / "checkpoints").steps()[-1] == 20
    assert CheckpointFolder(tmp_path / "parts" / "checkpoints").steps()[-1] == 1


@pytest.mark.slow
def test_command_ends_with_success_and_says_how_to_continue(here: Path) -> None:
    flags = ["--experiment=digits_mlp", "--train_steps=30", "--model_dir=a"]
    stopping = [*flags, "--trainer.max_time=0.001s", "--trainer.export_subdir=export"]
    last = output_of(["run", *stopping]).splitlines()[-1]
    assert last.split(maxsplit=2)[:2] == ["not", "complete"]
    assert "at step 1 of 30 (trainer.max_time); to continue: " in last
    assert not (here / "a" / "export").exists()
    summary = RunReader(here / "a")
    assert (summary.status, summary.step) == ("stopped", 1)
    assert summary.reason == "after 0.001s at step 1 of 30 (trainer.max_time)"

    found = json.loads(output_of(["run", *flags, "--json"]))
    assert (found["step"], found["stopped"]) == (30, "")
    assert RunReader(here / "a").status == "finished"
