"""Evaluations of other data than the run's own validation data are recorded apart."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.serialize import to_yaml
from orbit_runner.run_directory.evaluations import find_other_data
from orbit_runner.run_directory.metric_records import read_curves
from orbit_runner.run_directory.run_summary import read_summary
from orbit_runner.sweep.run_state import RunStates
from tests.support.keras_models import BASE, keras_config
from tests.support.problems import raises
from tests.support.tables import make_rows, table_config, write_csv
from tests.support.toy import Notes, config_of, run, toy_config

_KEEPS_BEST = {
    "task__metrics": "[sparse_categorical_accuracy]",
    "trainer__best_checkpoint_export_subdir": "best",
    "trainer__best_checkpoint_eval_metric": "sparse_categorical_accuracy",
    "trainer__best_checkpoint_metric_comp": "higher",
}
_WORST = '{"sparse_categorical_accuracy": 0.0, "best_ckpt_global_step": 10}'
_TEST_DATA = {"task__validation_data__arguments": "{count: 41, seed: 5}"}


def _trained(folder: Path, **changes: Any) -> Any:
    config = keras_config(**{**_KEEPS_BEST, **changes})
    run(config, folder)
    (folder / "config.yaml").write_text(to_yaml(config))
    return config


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("metrics.jsonl", ".lock")
    }


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["eval", "continuous_eval"])
def test_evaluation_of_other_data_counts_nowhere(tmp_path: Path, mode: str) -> None:
    _trained(tmp_path)
    (tmp_path / "best" / "info.json").write_text(
        '{"sparse_categorical_accuracy": 0.0, "best_ckpt_global_step": 10}'
    )
    curves, files = read_curves(tmp_path / "metrics.jsonl"), _files(tmp_path)
    summary, state = read_summary(tmp_path), RunStates().read(tmp_path, tmp_path / "no_failure")
    notes = Notes()

    _, logs = run(keras_config(**_KEEPS_BEST, **_TEST_DATA), tmp_path, mode, notes=notes)

    assert read_curves(tmp_path / "metrics.jsonl") == curves
    assert _files(tmp_path) == files  # Neither the best checkpoint nor event files.
    assert read_summary(tmp_path) == summary
    assert RunStates().read(tmp_path, tmp_path / "no_failure").metrics == state.metrics
    last = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["split"], last["step"], last["validation_examples"]) == ("evaluation", 20, 41)
    assert last["data"] == {
        "task.validation_data.arguments.count": 41,
        "task.validation_data.arguments.seed": 5,
    }
    assert last["validation_loss"] == pytest.approx(logs["validation_loss"])
    (note,) = (text for text in notes.notes if "is not of the validation data" in text)
    assert "task.validation_data.arguments.count: 41, in the run 37" in note


@pytest.mark.slow
def test_evaluation_of_the_own_data_counts_as_before(tmp_path: Path) -> None:
    config = _trained(tmp_path)
    (tmp_path / "best" / "info.json").write_text(
        '{"sparse_categorical_accuracy": 0.0, "best_ckpt_global_step": 10}'
    )
    notes = Notes()
    _, logs = run(config, tmp_path, "eval", notes=notes)
    last = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["split"], "data" in last) == ("validation", False)
    best = json.loads((tmp_path / "best" / "info.json").read_text())
    assert best["sparse_categorical_accuracy"] == pytest.approx(logs["sparse_categorical_accuracy"])
    assert not any("is not of the validation data" in text for text in notes.notes)


@pytest.mark.slow
def test_resumed_run_keeps_evaluations_of_other_data_apart(tmp_path: Path) -> None:
    _trained(tmp_path)
    run(keras_config(**_KEEPS_BEST, **_TEST_DATA), tmp_path, "eval")
    run(keras_config(**_KEEPS_BEST, trainer__train_steps=30), tmp_path)
    curves = read_curves(tmp_path / "metrics.jsonl")
    assert [*curves["validation", "sparse_categorical_accuracy"]] == [10, 20, 30]
    assert set(curves["validation", "validation_examples"].values()) == {37}


def test_continuous_evaluation_that_starts_first_waits_for_the_config(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = toy_config(trainer__continuous_eval_timeout=1)
    with caplog.at_level(logging.INFO, logger="orbit_runner"), raises("no-checkpoint"):
        run(config, tmp_path, "continuous_eval")
    (message,) = [record.getMessage() for record in caplog.records]
    assert message == f"waiting for a checkpoint in {tmp_path / 'checkpoints'} …"


@pytest.mark.parametrize(
    ("changes", "is_other"),
    [
        ({}, False),
        ({"task__validation_data__prefetch_buffer_size": 3}, False),
        ({"task__validation_data__cache": "false"}, False),
        ({"task__validation_data__global_batch_size": 8}, False),
        ({"runtime__distribution_strategy": "off"}, False),
        ({"trainer__train_steps": 99}, False),
        ({"task__train_data__global_batch_size": 8}, False),
        ({"task__train_data__arguments": "{count: 50}"}, False),
        ({"task__metrics": "[mean_squared_error]"}, False),
        ({"trainer__validation_steps": 1}, True),
        ({"task__validation_data__drop_remainder": "true"}, True),
        (_TEST_DATA, True),
        ({"task__loss": "sparse_categorical_crossentropy"}, True),
    ],
)
def test_settings_that_change_what_is_evaluated(
    tmp_path: Path, changes: dict[str, Any], is_other: bool
) -> None:
    (tmp_path / "config.yaml").write_text(to_yaml(keras_config()))
    assert bool(find_other_data(tmp_path, keras_config(**changes))) == is_other


@pytest.mark.parametrize(
    ("setting", "is_other"),
    [
        (("task.model.dropout_rate", "0.4"), False),
        (("task.train_data.augment", "none"), False),
        (("task.losses.label_smoothing", "0.2"), True),
        (("task.validation_data.split", "train"), True),
    ],
)
def test_settings_of_the_network_do_not_change_what_is_evaluated(
    tmp_path: Path, setting: tuple[str, str], is_other: bool
) -> None:
    (tmp_path / "config.yaml").write_text(to_yaml(resolve(Request(experiment="digits")).config))
    name, text = setting
    request = Request(experiment="digits", flags=((f"--{name}", name, text),))
    assert bool(find_other_data(tmp_path, resolve(request).config)) == is_other


def test_batch_size_counts_if_it_decides_how_many_examples_are_evaluated(tmp_path: Path) -> None:
    steps = {"trainer__validation_steps": 2}
    (tmp_path / "config.yaml").write_text(to_yaml(keras_config(**steps)))
    other = find_other_data(
        tmp_path, keras_config(**steps, task__validation_data__global_batch_size=8)
    )
    assert other.settings == {"task.validation_data.global_batch_size": 8}


def test_held_out_part_of_the_training_data(tmp_path: Path) -> None:
    base = {path: value for path, value in BASE.items() if "validation_data" not in path}
    base |= {"task.validation_split": 0.2, "task.validation_data.global_batch_size": 8}
    (tmp_path / "config.yaml").write_text(to_yaml(config_of(base)))
    assert find_other_data(tmp_path, config_of(base, task__validation_split=0.3))
    assert find_other_data(tmp_path, config_of(base, task__train_data__arguments="{count: 50}"))
    larger_batches = config_of(base, task__train_data__global_batch_size=8)
    assert not find_other_data(tmp_path, larger_batches)
    # The examples that are left out of training stay in the part that is held out.
    for name, value in {"exclude": "[3]", "class_sampling": "balanced"}.items():
        config = config_of(base, **{f"task__train_data__{name}": value})
        assert not find_other_data(tmp_path, config)


def test_part_of_the_training_table_changes_with_the_table(tmp_path: Path) -> None:
    base = {
        "task.name": "keras",
        "task.split": "{fractions: {train: 0.8, validation: 0.2}}",
        "task.train_data": "{source: csv, input_path: a.csv, global_batch_size: 4}",
        "task.outputs": "{y: {column: y}}",
        "task.validation_data.global_batch_size": 4,
    }
    base = {**{path: value for path, value in BASE.items() if "_data" not in path}, **base}
    (tmp_path / "config.yaml").write_text(to_yaml(config_of(base)))
    excluding = config_of(base, task__train_data__exclude="[3]")
    assert not find_other_data(tmp_path, excluding)
    other = find_other_data(tmp_path, config_of(base, task__train_data__input_path="b.csv"))
    assert [*other.settings] == ["task.train_data.input_path"]


def test_files_that_changed_are_other_data(tmp_path: Path) -> None:
    from orbit_runner.run_directory.data_record import DataRecord, fingerprint_of

    class Step:
        step = 0

    path = write_csv(tmp_path / "rows.csv", make_rows(50))
    config = table_config(path)
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    DataRecord(tmp_path, fingerprint_of(config.task)).on_run_begin(Step())
    assert not find_other_data(tmp_path, config)
    write_csv(path, make_rows(51))
    other = find_other_data(tmp_path, config)
    assert other.settings == {}
    assert "rows.csv: " in other.as_dict()["files"][0]


def test_directory_without_a_config_has_nothing_to_compare_with(tmp_path: Path) -> None:
    assert not find_other_data(tmp_path, keras_config(**_TEST_DATA))


@pytest.mark.slow
def test_resume_with_other_validation_data_starts_comparisons_anew(tmp_path: Path) -> None:
    """Earlier results are neither the best nor a limit for early stopping any more."""
    stopping = {
        "trainer__early_stopping": "{metric: sparse_categorical_accuracy, patience: 3}",
        "trainer__best_checkpoints_to_keep": 2,
    }
    _trained(tmp_path, **stopping)
    notes = Notes()
    resumed = keras_config(**_KEEPS_BEST, **_TEST_DATA, **stopping, trainer__train_steps=30)
    run(resumed, tmp_path, notes=notes, resume="override")
    curves = read_curves(tmp_path / "metrics.jsonl")
    assert [*curves["validation", "validation_examples"].items()] == [(30, 41)]
    info = json.loads((tmp_path / "best" / "info.json").read_text())
    assert info["best_ckpt_global_step"] == 30
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    apart = [one for one in map(json.loads, lines) if one["split"] == "evaluation"]
    assert [one["step"] for one in apart] == [10, 20]
    assert apart[0]["data"]["task.validation_data.arguments.count"] == 37
    assert any("are of other data or losses than before" in text for text in notes.notes)


@pytest.mark.slow
def test_resume_at_the_last_step_records_the_evaluation_of_the_new_data(tmp_path: Path) -> None:
    _trained(tmp_path)
    run(keras_config(**_KEEPS_BEST, **_TEST_DATA), tmp_path, resume="override")
    curves = read_curves(tmp_path / "metrics.jsonl")
    assert curves["validation", "validation_examples"] == {20: 41}


@pytest.mark.slow
def test_resume_with_another_best_metric_forgets_the_best_result(tmp_path: Path) -> None:
    _trained(tmp_path)
    loss = {
        "trainer__best_checkpoint_eval_metric": "validation_loss",
        "trainer__best_checkpoint_metric_comp": "lower",
    }
    run(keras_config(**{**_KEEPS_BEST, **loss}, trainer__train_steps=30), tmp_path)
    info = json.loads((tmp_path / "best" / "info.json").read_text())
    assert info["best_ckpt_global_step"] == 30
    assert [*read_curves(tmp_path / "metrics.jsonl")["validation", "validation_loss"]] == [
        10,
        20,
        30,
    ]


@pytest.mark.slow
def test_resume_with_the_same_data_keeps_the_best_result(tmp_path: Path) -> None:
    _trained(tmp_path)
    best = json.loads((tmp_path / "best" / "info.json").read_text())
    run(keras_config(**_KEEPS_BEST, trainer__train_steps=30), tmp_path)
    after = json.loads((tmp_path / "best" / "info.json").read_text())
    name = "sparse_categorical_accuracy"
    assert after == best or after[name] > best[name]
