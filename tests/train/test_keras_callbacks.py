"""Callbacks of Keras in a run: called as in `fit`, exact after a kill, or refused together."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tf_keras

import orbit_runner
from orbit_runner.checkpoint.record import read_record
from orbit_runner.config.errors import ConfigError
from orbit_runner.train.callbacks.base import Callback
from orbit_runner.train.callbacks.keras_callbacks import KerasCallbacks, sort_callbacks
from tests.support.problems import check, raises
from tests.support.toy import Notes, repeatable_records, run, toy_config

# Of Keras 3, which converts the variable of a strategy.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
PACKAGES = [pytest.param(keras, id="keras 3"), pytest.param(tf_keras, id="tf_keras")]
# 48 examples to train on: three steps of an epoch.
STEPS = 3
_X = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
_Y = _X[:, :3].argmax(axis=1)
_TRAIN, _VALIDATION = (_X[:48], _Y[:48]), (_X[48:], _Y[48:])


def _ignore(*_):
    pass


def _build_keras_3():
    dense = keras.layers.Dense(3, activation="softmax")
    return keras.Sequential([keras.layers.Input([4]), dense])


def _build_tf_keras():
    dense = tf_keras.layers.Dense(3, activation="softmax")
    return tf_keras.Sequential([tf_keras.layers.Input([4]), dense])


_BUILD = {keras: _build_keras_3, tf_keras: _build_tf_keras}


def train(
    package, folder, callbacks, *, epochs=6, evaluates=True, kill_at=0, optimizer=None, **changes
):
    """Trains a model of a package of Keras.

    `changes` are settings, with `__` for a dot in their names, and other arguments of `run`.
    """
    own = [_Kill(kill_at)] if kill_at else []
    all_callbacks = [*own, *callbacks] if isinstance(callbacks, list) else callbacks
    settings = {name.replace("__", "."): v for name, v in changes.items() if "__" in name}
    arguments = {name: value for name, value in changes.items() if "__" not in name}
    return orbit_runner.run(
        _BUILD[package],
        _TRAIN,
        validation=_VALIDATION if evaluates else None,
        metrics=["accuracy"],
        optimizer=package.optimizers.SGD(0.5) if optimizer is None else optimizer,
        epochs=epochs,
        batch_size=16,
        model_dir=folder,
        callbacks=all_callbacks,
        progress="none",
        overrides={"trainer.checkpoint_interval": 2, "trainer.summary_interval": 1, **settings},
        **arguments,
    )


class Killed(Exception):
    pass


class _Kill(Callback):
    """Ends the process, as it were, at the end of a step."""

    def __init__(self, step):
        self._step = step

    def on_loop_end(self, run, logs):
        if run.step >= self._step:
            raise Killed


def recorder(package, **methods):
    """Returns a callback that remembers its events, with some methods of its own."""

    def remember(self, name, *values):
        own = methods.get(name)
        if own is not None:
            own(self, *values)
        epochs = [value for value in values if isinstance(value, int)]
        self.events.append((name, *epochs, sorted(values[-1])))

    def event(name):
        if "epoch" in name:
            return lambda self, epoch, logs=None: remember(self, name, epoch, logs)
        return lambda self, logs=None: remember(self, name, logs)

    names = [f"on_{what}_{end}" for what in ("train", "epoch", "test") for end in ("begin", "end")]
    cls = type("Recorder", (package.callbacks.Callback,), {name: event(name) for name in names})
    callback = cls()
    callback.events = []
    return callback


def scripted(package, values, name="val_script"):
    """Returns a callback that adds a value to the logs of each epoch."""

    def add(self, epoch, logs):
        logs[name] = values[epoch]

    return recorder(package, on_epoch_end=add)


def weights_by_epoch(package, weights):
    """Returns a callback that keeps the weights of each epoch in a list."""

    class Keep(package.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            weights.append(self.model.get_weights())

    return Keep()


def equal(one, other):
    """Returns whether two lists of arrays are equal bit by bit."""
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


# What is refused, and what is not called.


def _with_method(name):
    def make(package):
        method = lambda self, batch, logs=None: None  # noqa: E731
        return type("Own", (package.callbacks.Callback,), {name: method})()

    return make


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize(
    ("make", "code"),
    [
        (_with_method("on_train_batch_end"), "not-supported"),
        (_with_method("on_test_batch_begin"), "not-supported"),
        (lambda package: package.callbacks.LambdaCallback(on_batch_end=_ignore), "not-supported"),
        (lambda package: package.callbacks.LambdaCallback, "wrong-type"),
        (lambda package: 3, "wrong-type"),
        (lambda package: type("Own", (package.callbacks.TensorBoard,), {})("a"), "not-supported"),
    ],
    ids=["train batch", "test batch", "lambda", "class", "number", "of TensorBoard"],
)
def test_callback_that_cannot_be_called_is_refused(package, make, code):
    with raises(code, "callbacks[0]", kind=ConfigError):
        sort_callbacks([make(package)], evaluates=True)


def test_one_error_lists_all_callbacks_that_cannot_work():
    callbacks = [
        _with_method("on_train_batch_end")(keras),
        orbit_runner.Callback(),
        keras.callbacks.EarlyStopping(),
        3,
        tf_keras.callbacks.ReduceLROnPlateau("val_accuracy"),
        keras.callbacks.EarlyStopping("loss"),
    ]
    with pytest.raises(ConfigError) as caught:
        sort_callbacks(callbacks, evaluates=False)
    check(
        caught.value.problems,
        ("not-supported", "callbacks[0]"),
        ("not-set", "callbacks[2]"),
        ("wrong-type", "callbacks[3]"),
        ("not-set", "callbacks[4]"),
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("package", PACKAGES)
def test_run_says_what_it_does_instead_of_callbacks_that_it_does_not_call(package, tmp_path):
    path = str(tmp_path / "saved.keras")
    callbacks = [
        package.callbacks.ModelCheckpoint(path, "val_unknown", save_best_only=True),
        package.callbacks.BackupAndRestore(path),
        package.callbacks.TensorBoard(path),
        package.callbacks.CSVLogger(path),
        package.callbacks.ProgbarLogger(),
        package.callbacks.TerminateOnNaN(),
    ]
    (remaining,), _ = sort_callbacks(callbacks, evaluates=True)
    notes = Notes()
    run(toy_config(trainer__train_steps=1), tmp_path / "run", callbacks=[remaining], notes=notes)
    messages = [text for text in notes.notes if "is not called" in text]
    for callback, text in zip(callbacks, messages, strict=True):
        assert f": {type(callback).__name__} is not called: " in text
    assert not Path(path).exists()
    assert remaining.inexact_reason == ""


@pytest.mark.parametrize("given", [None, (), keras.callbacks.History()])
def test_callbacks_may_be_none_or_a_single_object_as_in_fit(given):
    remaining, _ = sort_callbacks(given, evaluates=True)
    assert len(remaining) == bool(given)


def test_others_are_kept_and_the_run_is_not_reproducible_with_them():
    own = orbit_runner.Callback()
    queue = keras.callbacks.LambdaCallback(on_epoch_end=_ignore)
    queue.waiting = iter([])
    callbacks = [keras.callbacks.ReduceLROnPlateau(), own, queue, keras.callbacks.History()]
    remaining, settings = sort_callbacks(callbacks, evaluates=True)
    assert remaining[0] is own
    assert isinstance(remaining[1], KerasCallbacks)
    assert settings == {}
    assert [callback.inexact_reason for callback in remaining] == [
        "callbacks[1]: Callback was passed as an object, which config.yaml does not name",
        "callbacks[0]: ReduceLROnPlateau, callbacks[2]: LambdaCallback were passed as objects, "
        "which config.yaml does not name, and checkpoints do not contain callbacks[2].waiting",
    ]


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"patience": 3}, ("validation_loss", "lower", 3, 0.0)),
        ({"patience": 0}, ("validation_loss", "lower", 1, 0.0)),
        ({"monitor": "val_accuracy", "min_delta": 0.01}, ("accuracy", "higher", 1, 0.01)),
        ({"monitor": "val_x", "mode": "max"}, ("x", "higher", 1, 0.0)),
        ({"min_delta": 0.1, "patience": 2}, ("validation_loss", "lower", 2, 0.1)),
        ({"monitor": "loss"}, None),
        ({"baseline": 0.0}, None),
        ({"start_from_epoch": 1}, None),
        ({"restore_best_weights": True}, None),
    ],
)
def test_config_names_early_stopping_if_a_setting_does_the_same(package, arguments, expected):
    callbacks = [package.callbacks.History(), package.callbacks.EarlyStopping(**arguments)]
    remaining, settings = sort_callbacks(callbacks, evaluates=True)
    names = ("metric", "metric_comp", "patience", "min_delta")
    rule = expected and dict(zip(names, expected, strict=True))
    assert settings == ({"trainer.early_stopping": rule} if expected else {})
    assert [bool(callback.inexact_reason) for callback in remaining] == [expected is None]


def test_config_does_not_name_early_stopping_if_another_callback_may_add_its_value():
    callbacks = [keras.callbacks.LambdaCallback(_ignore), keras.callbacks.EarlyStopping("val_loss")]
    assert sort_callbacks(callbacks, evaluates=True)[1] == {}


@pytest.mark.slow
def test_run_of_the_config_stops_at_the_same_step(tmp_path):
    """The accuracy does not change, so the second epoch is no better."""
    rate = keras.optimizers.SGD(0.0)
    early = keras.callbacks.EarlyStopping("val_accuracy", patience=1)
    result = train(keras, tmp_path / "object", early, optimizer=rate)
    rule = {"metric": "accuracy", "metric_comp": "higher", "patience": 1}
    setting = train(keras, tmp_path / "setting", [], optimizer=rate, trainer__early_stopping=rule)
    assert early.stopped_epoch == 1
    assert result.step == setting.step == 2 * STEPS
    assert result.inexact == setting.inexact


def test_one_error_before_training_lists_all_unknown_metrics(tmp_path):
    callbacks = [
        keras.callbacks.EarlyStopping("val_acuracy", mode="max", baseline=0.5),
        keras.callbacks.ReduceLROnPlateau("val_los"),
    ]
    with pytest.raises(ConfigError) as caught:
        train(keras, tmp_path / "run", callbacks)
    check(
        caught.value.problems,
        ("unknown-name", "callbacks[0]"),
        ("unknown-name", "callbacks[1]"),
    )
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.parametrize("package", PACKAGES)
def test_learning_rate_of_a_schedule_cannot_be_set(package, tmp_path):
    schedule = package.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    scheduler = package.callbacks.LearningRateScheduler(lambda epoch, rate: rate)
    callbacks = [scheduler, package.callbacks.ReduceLROnPlateau()]
    with pytest.raises(ConfigError, match="follows a schedule") as caught:
        train(package, tmp_path / "run", callbacks, optimizer=package.optimizers.SGD(schedule))
    check(caught.value.problems, ("conflict", "callbacks[0]"), ("conflict", "callbacks[1]"))
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_callback_of_another_keras_cannot_set_the_learning_rate(tmp_path):
    callback = keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.1)
    config = "trainer__optimizer_config"
    changes = {f"{config}__optimizer__type": "sgd", f"{config}__learning_rate__type": "constant"}
    with raises("conflict", "callbacks[0]", kind=ConfigError):
        train(keras, tmp_path / "run", callback, optimizer={}, **changes)


def test_metric_that_no_epoch_has_is_an_error(tmp_path):
    early = keras.callbacks.EarlyStopping("val_other", mode="min")
    with raises("unknown-name", "callbacks[1]", kind=ConfigError):
        train(keras, tmp_path / "run", [scripted(keras, [1.0]), early])


# Events and logs.


@pytest.mark.alternating
@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("evaluates", [True, False])
def test_events_have_the_order_and_the_logs_of_fit(package, evaluates, tmp_path):
    callback = recorder(package)
    # Only the epochs end the loops.
    loops = ("checkpoint_interval", "summary_interval", "steps_per_loop")
    changes = {f"trainer__{name}": 100 for name in loops}
    train(package, tmp_path / "run", callback, epochs=2, evaluates=evaluates, **changes)
    training = ["accuracy", "loss"]
    test = [("on_test_begin", []), ("on_test_end", training)]
    both = [*training, "val_accuracy", "val_loss"]
    epochs = [
        [
            ("on_epoch_begin", epoch, []),
            *(test if evaluates else []),
            ("on_epoch_end", epoch, both if evaluates else training),
        ]
        for epoch in range(2)
    ]
    end = ("on_train_end", both if evaluates else training)
    assert callback.events == [("on_train_begin", []), *epochs[0], *epochs[1], end]
    assert callback.params == {"epochs": 2, "steps": STEPS, "verbose": 0}
    assert isinstance(callback.model, package.Model)


@pytest.mark.sample(1)
@pytest.mark.alternating
@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("event", ["on_epoch_begin", "on_epoch_end", "on_test_end"])
def test_stop_training_ends_the_run(package, event, tmp_path):
    def stop(self, *values):
        seen = sum(call[0] == event for call in self.events)
        self.model.stop_training = seen == 1

    callback = recorder(package, **{event: stop})
    result = train(package, tmp_path, [callback])
    assert result.step == 2 * STEPS  # As in `fit`, the second epoch ends first.
    assert callback.events[-1][0] == "on_train_end"
    record = read_record(tmp_path / "checkpoints" / f"ckpt-{result.step}.json")
    assert record.stopped == "Recorder set stop_training"


@pytest.mark.sample(1)
@pytest.mark.parametrize("evaluates", [True, False])
def test_epoch_ends_where_another_callback_stops_the_run(evaluates, tmp_path):
    class Stop(Callback):
        def on_log(self, run, logs):
            if run.step == 4:
                run.stop("enough")

    callback = recorder(keras)
    result = train(keras, tmp_path, [callback, Stop()], evaluates=evaluates)
    assert result.step == 4
    ends = [event[:2] for event in callback.events if event[0] == "on_epoch_end"]
    assert ends == [("on_epoch_end", 0), ("on_epoch_end", 1)]
    assert callback.events[-1][0] == "on_train_end"


# The callbacks of Keras.


@pytest.mark.sample(1)
@pytest.mark.parametrize("package", PACKAGES)
def test_callbacks_do_the_same_as_in_fit(package, tmp_path):
    """Without shuffling, the batches are the same; sums differ in the last bits.

    Records end within epochs, whose logs are averages of all their steps.
    """

    def make():
        callbacks = package.callbacks
        return [
            callbacks.LearningRateScheduler(lambda epoch, rate: rate * (0.8 if epoch % 2 else 1.0)),
            callbacks.ReduceLROnPlateau("val_loss", 0.5, patience=1, min_delta=0.1),
            callbacks.EarlyStopping(
                "loss", min_delta=0.04, patience=1, start_from_epoch=2, restore_best_weights=True
            ),
            callbacks.History(),
        ]

    model = _BUILD[package]()
    loss = "sparse_categorical_crossentropy"
    model.compile(package.optimizers.SGD(0.5), loss, metrics=["accuracy"])
    ours, theirs = make(), make()
    result = orbit_runner.run(
        model,
        _TRAIN,
        validation=_VALIDATION,
        epochs=12,
        batch_size=16,
        model_dir=tmp_path / "run",
        callbacks=ours,
        progress="none",
        overrides={"task.train_data.shuffle_buffer_size": 0, "trainer.summary_interval": 2},
    )
    model.fit(
        *_TRAIN,
        validation_data=_VALIDATION,
        epochs=12,
        batch_size=16,
        shuffle=False,
        callbacks=theirs,
        verbose=0,
    )
    expected = theirs[-1].history
    assert ours[-1].history.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(ours[-1].history[name], values, rtol=1e-4, err_msg=name)
    epochs = len(expected["loss"])
    assert 3 < epochs < 12
    assert result.step == epochs * STEPS
    rates = expected["learning_rate" if package is keras else "lr"]
    assert len(set(rates)) > epochs // 2
    for one, other in zip(result.model.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


_VALLEY = [5.0, 3.0, 4.0, 2.5, 4.0, 5.0]


@pytest.mark.sample(1)
@pytest.mark.parametrize("package", PACKAGES)
def test_callbacks_see_the_averaged_weights_that_are_evaluated(package, tmp_path):
    """With `use_ema`, a run does what `SwapEMAWeights` does, and restores averages."""
    epoch_weights = []
    history = package.callbacks.History()
    early = package.callbacks.EarlyStopping(
        "val_script", patience=1, mode="min", restore_best_weights=True
    )
    swap = [keras.callbacks.SwapEMAWeights(swap_on_epoch=True)] if package is keras else []
    callbacks = [
        weights_by_epoch(package, epoch_weights),
        scripted(package, _VALLEY),
        *swap,
        early,
        history,
    ]
    optimizer = package.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.9)
    result = train(package, tmp_path, callbacks, optimizer=optimizer)
    output = np.asarray(result.model(_VALIDATION[0]))
    loss = -np.log(output[np.arange(16), _VALIDATION[1]]).mean()
    assert equal(result.model.get_weights(), epoch_weights[1])
    np.testing.assert_allclose(loss, history.history["val_loss"][1], rtol=1e-6)
    np.testing.assert_allclose(loss, result.metrics["validation_loss"], rtol=1e-6)
    assert result.step == 3 * STEPS


def test_finished_run_keeps_the_best_weights_and_their_metrics(tmp_path):
    epoch_weights = []
    calls = []

    def make():
        return [
            weights_by_epoch(keras, epoch_weights),
            scripted(keras, _VALLEY),
            keras.callbacks.EarlyStopping(
                "val_script", patience=1, mode="min", restore_best_weights=True
            ),
            keras.callbacks.LambdaCallback(on_train_end=lambda logs: calls.append("end")),
        ]

    first = train(keras, tmp_path / "run", make())
    callbacks = make()
    second = train(keras, tmp_path / "run", callbacks)
    assert equal(first.model.get_weights(), epoch_weights[1])
    assert second.weights == first.weights
    assert second.metrics == first.metrics
    assert calls == ["end"]
    assert callbacks[2].stopped_epoch == 2
    # What a process that only knows the run directory finds.
    loaded = orbit_runner.load(tmp_path / "run")
    assert loaded.weights == first.weights
    assert len(first.history["validation_loss"]) == 3


# Exactness.


def kill_and_resume(make, steps):
    """Starts a run, kills it at each of some steps, and returns the result of the last start."""
    for step in steps:
        with pytest.raises(Killed):
            make(step)
    return make(0)


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("evaluates", [True, False])
def test_run_that_was_killed_several_times_equals_one_that_was_not(package, evaluates, tmp_path):
    monitor = "val_script" if evaluates else "script"

    def start(kill_at, folder="parts"):
        callbacks = package.callbacks
        history = callbacks.History()
        script = scripted(package, [5.0, 4.0, 4.5, float("nan"), 3.0, float("inf")], monitor)
        given = [
            callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
            script,
            callbacks.ReduceLROnPlateau(monitor, 0.5, patience=1, mode="min"),
            callbacks.ReduceLROnPlateau("loss", 0.7, patience=1, min_delta=0.2),
            callbacks.EarlyStopping(monitor, mode="min", patience=3, restore_best_weights=True),
            history,
        ]
        run_folder = tmp_path / folder
        result = train(package, run_folder, given, kill_at=kill_at, evaluates=evaluates)
        return result, history, script

    expected, uninterrupted, _ = start(0, "whole")
    resumed, parts, script = kill_and_resume(start, [3, 7, 14])
    assert resumed.step == expected.step == 6 * STEPS
    assert resumed.weights == expected.weights
    assert resumed.metrics == expected.metrics
    assert repr(parts.history) == repr(uninterrupted.history)  # It has NaN.
    assert parts.epoch == [*range(6)]
    assert len(set(uninterrupted.history["learning_rate" if package is keras else "lr"])) == 6
    assert len([event for event in script.events if event[0] == "on_epoch_end"]) == 6
    for split in ("train", "validation"):
        expected_records = repeatable_records(tmp_path / "whole", split)
        assert repeatable_records(tmp_path / "parts", split) == expected_records


@pytest.mark.slow
def test_run_that_is_longer_after_its_end_continues_the_callbacks(tmp_path):
    def start(name, epochs):
        history = keras.callbacks.History()
        rate = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9)
        folder = tmp_path / name
        result = train(keras, folder, [rate, history], epochs=epochs, resume="override")
        return result.weights, history.history

    start("parts", 2)
    assert start("parts", 4) == start("whole", 4)


@pytest.mark.slow
def test_run_that_stopped_early_continues_with_another_config(tmp_path):
    def start(values, seed):
        early = keras.callbacks.EarlyStopping("val_script", patience=1, mode="min")
        callbacks = [scripted(keras, values), early]
        return train(keras, tmp_path, callbacks, epochs=5, resume="override", seed=seed)

    assert start([3.0, 2.0, 4.0, 5.0], 0).step == 3 * STEPS
    assert start([9.0, 9.0, 9.0, 1.0, 0.5], 0).step == 3 * STEPS
    assert start([9.0, 9.0, 9.0, 1.0, 0.5], 1).step == 5 * STEPS


@pytest.mark.slow
def test_run_on_two_replicas_with_an_optimizer_of_model_garden_is_exact(tmp_path):
    """Each replica has its own metrics, and the config sets the learning rate at each start."""

    def start(kill_at, folder="parts"):
        history = tf_keras.callbacks.History()
        rate = tf_keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9)
        remaining, _ = sort_callbacks([rate, history], evaluates=True)
        config = toy_config(trainer__checkpoint_interval=3, trainer__summary_interval=1)
        own = [_Kill(kill_at)] if kill_at else []
        run(config, tmp_path / folder, strategy="mirrored2", callbacks=[*own, *remaining])
        return history.history

    uninterrupted = start(0, "whole")
    assert len(uninterrupted["loss"]) == 4
    np.testing.assert_allclose(uninterrupted["lr"], 0.1 * 0.9 ** np.arange(1, 5), rtol=1e-6)
    assert kill_and_resume(start, [4, 14]) == uninterrupted


@pytest.mark.slow
def test_run_that_returns_to_a_checkpoint_restores_the_callbacks(tmp_path):
    history = tf_keras.callbacks.History()
    callbacks = [
        tf_keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        history,
    ]
    remaining, _ = sort_callbacks(callbacks, evaluates=True)
    notes = Notes()
    config = toy_config(
        task__nan_from=13,
        trainer__checkpoint_interval=7,
        trainer__recovery_max_trials=1,
        trainer__summary_interval=1,
    )
    run(config, tmp_path / "run", callbacks=remaining, notes=notes)
    assert any("returned to step 7" in text for text in notes.notes)
    assert history.epoch == [0, 1, 2, 3]
    np.testing.assert_allclose(history.history["lr"], 0.1 * 0.9 ** np.arange(1, 5), rtol=1e-6)
