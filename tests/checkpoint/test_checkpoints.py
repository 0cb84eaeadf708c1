"""Saving, bit-exact resuming, starting from other weights, and checkpoints that do not fit."""

import threading

import pytest

from tests.support.digits import digits_config
from tests.support.problems import raises
from tests.support.run_directories import saved_steps
from tests.support.toy import Notes, records, run, toy_config, weights


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"trainer__optimizer_config__optimizer__type": "adam_experimental"},
        {
            "trainer__optimizer_config__optimizer__type": "sgd",
            "trainer__optimizer_config__optimizer__sgd__momentum": 0.9,
            "trainer__optimizer_config__ema__average_decay": 0.9,
        },
        {"runtime__mixed_precision_dtype": "float16"},
        {"runtime__distribution_strategy": "mirrored", "runtime__num_virtual_devices": 2},
        {
            "trainer__optimizer_config__learning_rate__type": "cosine",
            "trainer__optimizer_config__learning_rate__cosine__initial_learning_rate": 0.01,
            "trainer__optimizer_config__learning_rate__cosine__decay_steps": 60,
            "trainer__optimizer_config__learning_rate__constant__learning_rate": 0.1,
            "trainer__optimizer_config__warmup__type": "linear",
            "trainer__optimizer_config__warmup__linear__warmup_steps": 10,
        },
    ],
    ids=["adam", "new adam", "momentum and average", "float16", "mirrored2", "schedule"],
)
@pytest.mark.alternating
@pytest.mark.parametrize("asynchronous", [False, True])
def test_resumed_run_has_bit_identical_weights(changes, asynchronous, tmp_path):
    config = digits_config(task__train_data__augment="crop", **changes)
    name = "mirrored2" if "runtime__num_virtual_devices" in changes else "one_device"
    options = {"strategy": name, "enable_async_checkpointing": asynchronous}
    uninterrupted, _ = run(config, tmp_path / "whole", **options)
    half = config.replace(trainer=config.trainer.replace(train_steps=37))
    first, _ = run(half, tmp_path / "parts", **options)
    notes = Notes()
    second, _ = run(config, tmp_path / "parts", notes=notes, **options)
    assert notes.started_at == [37]
    for one, other in zip(weights(uninterrupted), weights(second), strict=True):
        assert one.tobytes() == other.tobytes()
    assert weights(first)[0].tobytes() != weights(second)[0].tobytes()


def test_evaluation_without_a_checkpoint_is_rejected(tmp_path):
    with raises("no-checkpoint", "--model_dir"):
        run(toy_config(), tmp_path, "eval")


@pytest.mark.sample(1)
@pytest.mark.alternating
@pytest.mark.parametrize("given", ["folder", "file"])
@pytest.mark.parametrize("mode", ["eval", "train_and_eval"])
def test_init_checkpoint_loads_weights_from_another_run(given, mode, tmp_path):
    _, logs = run(toy_config(), tmp_path / "a")
    path = tmp_path / "a" / "checkpoints" / ("" if given == "folder" else "ckpt-20")
    notes = Notes()
    config = toy_config(task__init_checkpoint=path)
    _, results = run(config, tmp_path / "b", mode, notes=notes)
    if mode == "eval":
        assert results["validation_loss"] == logs["validation_loss"]
    else:
        assert notes.started_at == [0]
        assert results["validation_loss"] < 0.01 * logs["validation_loss"]


def test_init_checkpoint_initializes_the_weight_average_too(tmp_path):
    _, logs = run(toy_config(), tmp_path / "a")
    config = toy_config(
        task__init_checkpoint=tmp_path / "a" / "checkpoints",
        trainer__optimizer_config__ema__average_decay=0.9,
    )
    _, results = run(config, tmp_path / "b", "eval")
    assert results["validation_loss"] == logs["validation_loss"]


@pytest.mark.slow
def test_evaluation_without_an_intact_checkpoint_is_rejected(tmp_path):
    run(toy_config(), tmp_path)
    for data in (tmp_path / "checkpoints").glob("*.data*"):
        data.write_bytes(data.read_bytes()[:10])
    notes = Notes()
    with raises("no-checkpoint", "--model_dir"):
        run(toy_config(), tmp_path, "eval", notes=notes)
    assert "ckpt-20.data-00000-of-00001 has 10 bytes" in notes.notes[0]
    assert saved_steps(tmp_path) == [5, 10, 15, 20]


@pytest.mark.slow
@pytest.mark.parametrize("timeout", [3600, 0])
def test_continuous_eval_ends_after_the_last_training_step(timeout, tmp_path):
    config = toy_config(
        trainer__train_steps=900,
        trainer__checkpoint_interval=30,
        trainer__max_to_keep=1,
        trainer__continuous_eval_timeout=timeout,
    )
    notes, results = Notes(), {}

    def evaluate():
        results.update(run(config, tmp_path, "continuous_eval", notes=notes, save_summary=False)[1])

    beside = threading.Thread(target=evaluate)
    beside.start()
    run(config, tmp_path, "train")
    beside.join(timeout=600)
    assert not beside.is_alive()
    assert notes.evaluations[-1][0] == 900
    _, logs = run(config, tmp_path, "eval", save_summary=False)
    assert results["validation_loss"] == logs["validation_loss"]
    assert not records(tmp_path, "validation")


@pytest.mark.slow
def test_continuous_eval_times_out_without_new_checkpoints(tmp_path):
    run(toy_config(trainer__train_steps=5), tmp_path, "train")
    config = toy_config(trainer__continuous_eval_timeout=1)
    notes = Notes()
    with raises("no-checkpoint"):
        run(config, tmp_path, "continuous_eval", notes=notes)
    assert [step for step, _ in notes.evaluations] == [5]


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "known"), [("continuous_eval", True), ("eval", False)])
def test_run_with_train_epochs_can_be_evaluated(mode, known, tmp_path):
    size, epochs = {"task__knows_its_size": known}, {"trainer__train_epochs": 4.0}
    # Without the size of the dataset, epochs cannot be trained.
    trains = toy_config(**size, **(epochs if known else {}))
    _, trained = run(trains, tmp_path, "train_and_eval")
    _, results = run(toy_config(**size, **epochs), tmp_path, mode)
    assert results["validation_loss"] == trained["validation_loss"]
