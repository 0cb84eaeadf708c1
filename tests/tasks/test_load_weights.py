"""`task.init_checkpoint` reads checkpoints and runs; `init_ignore` leaves variables out."""

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.errors import SettingError
from orbit_runner.tasks.initial_weights import load_weights
from tests.support.configs import keep_best
from tests.support.problems import raises
from tests.support.toy import Notes, run, weights
from tests.support.tuned import TunedConfig, TunedTask, tuned_config

_BEST = keep_best("validation_loss")


def _model(**settings):
    return TunedTask(TunedConfig(**settings)).build_model()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model, and the directory of the run that has trained it."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    return run(tuned_config(**_BEST), folder)[0], folder


@pytest.mark.slow
@pytest.mark.parametrize("place", ["", "checkpoints/ckpt-20"])
def test_latest_checkpoint_of_a_run_is_loaded(trained, place):
    expected, folder = trained
    model = _model()
    loaded = load_weights(model, str(folder / place))

    assert loaded.source == str(folder / "checkpoints/ckpt-20")
    assert loaded.variables == {id(variable) for variable in model.variables}
    assert [a.tobytes() for a in weights(model)] == [b.tobytes() for b in weights(expected)]


def test_ignored_layers_keep_their_values(trained):
    model = _model(outputs=2)
    before = weights(model)
    loaded = load_weights(model, str(trained[1]), ["w"])
    names = [weight.name for weight in model.variables if id(weight) not in loaded.variables]

    assert names == ["w/kernel:0", "w/bias:0"]
    pairs = zip(model.variables, before, weights(model), weights(trained[0]), strict=True)
    for variable, old, new, saved in pairs:
        kept = variable.name.startswith("w/")
        assert new.tobytes() == (old if kept else saved).tobytes(), variable.name


def test_other_shapes_are_an_error_with_both_shapes_and_the_pattern(trained):
    model = _model(outputs=2)
    before = weights(model)
    with pytest.raises(SettingError) as caught:
        load_weights(model, str(trained[1]))

    assert caught.value.path == "task.init_checkpoint"
    first, *rest = caught.value.reason.splitlines()
    assert first.endswith("does not fit the model:")
    assert rest == [
        "  w/kernel: [4, 2] in the model, [4, 1] in the checkpoint",
        "  w/bias: [2] in the model, [1] in the checkpoint",
        "to keep the initial values of these layers, set task.init_ignore: [w]",
    ]
    assert [a.tobytes() for a in weights(model)] == [b.tobytes() for b in before]


def test_pattern_that_matches_no_variable_is_an_error(trained):
    with raises("unknown-name", "task.init_ignore"):
        load_weights(_model(), str(trained[1]), ["w", "frist/*"])


def test_checkpoint_without_a_model_is_an_error(tmp_path):
    path = tf.train.Checkpoint(backbone=_model()).save(str(tmp_path / "ckpt"))
    with raises("damaged-checkpoint", "task.init_checkpoint"):
        load_weights(_model(), path)


def test_ignored_patterns_without_a_checkpoint_are_an_error():
    with raises("no-effect", "task.init_ignore"):
        tuned_config(task__init_ignore=["w"])


@pytest.mark.slow
def test_replicas_of_a_model_in_float16_are_initialized(trained, tmp_path):
    notes = Notes()
    settings = {"task__init_checkpoint": trained[1], "runtime__mixed_precision_dtype": "float16"}
    _, logs = run(tuned_config(**settings), tmp_path / "a", "eval", "mirrored2", notes=notes)
    plain = tuned_config(task__init_checkpoint=trained[1])
    _, expected = run(plain, tmp_path / "b", "eval")

    assert f"loaded 10 of the model's 10 variables from {trained[1]}" in notes.notes
    np.testing.assert_allclose(logs["validation_loss"], expected["validation_loss"], rtol=1e-2)
