"""Model Garden tasks in this trainer: what they return and what they require."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.core import config_definitions as cfg
from official.modeling import optimization
from official.modeling.privacy import configs as privacy
from official.utils.testing import mock_task

from orbit_runner.errors import SettingError
from orbit_runner.state.learning_rates import learning_rates
from orbit_runner.train.gradients import GradientRecorder
from orbit_runner.train.inputs.distribute import leading_size
from tests.support.official_runs import run_official
from tests.support.official_toys import LineConfig, LineTask, line, trainer_settings
from tests.support.problems import raises
from tests.support.toy import records


def _lines(trainer=None, **task):
    settings = cfg.TrainerConfig(**trainer_settings(**(trainer or {})))
    return cfg.ExperimentConfig(task=LineConfig(**task), trainer=settings)


def _events(folder):
    for path in sorted(map(str, folder.glob("events*"))):
        for event in tf.compat.v1.train.summary_iterator(path):
            yield from event.summary.value


@pytest.mark.slow
def test_aggregated_results_and_images_are_written(tmp_path):
    _, logs = run_official(_lines(gathers=True), tmp_path)

    np.testing.assert_allclose(logs["label_sum"], 69.0)  # 2 · (0 + … + 23) / 8
    assert logs["image/labels"].shape == (2, 4, 4, 3)
    (record,) = records(tmp_path, "validation")
    assert record["label_sum"] == 69.0
    assert "image/labels" not in record
    written = {value.tag: value for value in _events(tmp_path / "validation")}
    assert written["image/labels"].metadata.plugin_data.plugin_name == "images"
    # The images' width and height come first.
    assert len(written["image/labels"].tensor.string_val) == 2 + 2
    assert written["label_sum"].metadata.plugin_data.plugin_name == "scalars"


def test_train_step_may_return_extra_outputs_and_write_summaries(tmp_path):
    run_official(_lines(), tmp_path, mode="train")

    tags = [value.tag for value in _events(tmp_path / "train")]
    assert tags.count("seen_in_the_step") == 2
    (first, _) = records(tmp_path, "train")
    assert "passed_through" not in first
    assert {"training_loss", "error", "learning_rate"} < set(first)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["vector", "constant"])
def test_validation_loss_may_be_a_vector_or_a_constant(kind, tmp_path):
    model, logs = run_official(_lines(loss_is=kind), tmp_path, strategy="mirrored2")

    x = np.arange(24, dtype=np.float32)[:, None] / 8
    expected = np.mean((2 * x - model(x).numpy()) ** 2) if kind == "vector" else 0.0
    np.testing.assert_allclose(logs["validation_loss"], expected, rtol=1e-2)
    assert logs["validation_examples"] == 24


@pytest.mark.slow
def test_build_inputs_without_an_input_context_is_supported(tmp_path):
    params = mock_task.mock_experiment()
    params.override({"trainer": trainer_settings(validation_steps=3)}, is_strict=False)
    _, logs = run_official(params, tmp_path, strategy="off")

    # Without a context, the inputs are not sharded; each batch counts once.
    assert logs["counter"] == 3
    assert "acc" in logs


def test_evaluating_an_infinite_dataset_to_its_end_is_rejected(tmp_path):
    params = mock_task.mock_experiment()
    params.override({"trainer": trainer_settings()}, is_strict=False)
    with raises("not-set", "trainer.validation_steps"):
        run_official(params, tmp_path)


@pytest.mark.slow
def test_differential_privacy_settings_reach_the_task(tmp_path):
    optimizer = {"optimizer": {"type": "sgd"}, "learning_rate": {"type": "constant"}}
    config = optimization.OptimizationConfig(optimizer)
    noise = privacy.DifferentialPrivacyConfig(clipping_norm=1e-12, noise_multiplier=0.0)
    start, _ = run_official(_lines({"train_steps": 1}), tmp_path / "1", mode="train")
    moved, _ = run_official(
        _lines({"optimizer_config": config}, differential_privacy_config=noise),
        tmp_path / "2",
        mode="train",
    )
    still = moved.get_weights()[0]
    assert abs(float(still[0, 0] - start.get_weights()[0][0, 0])) > 1e-3
    np.testing.assert_allclose(moved.get_weights()[1], 0.0, atol=1e-9)


class _WithoutPrivacy(LineTask):
    @classmethod
    def create_optimizer(cls, optimizer_config, runtime_config=None):
        return LineTask.create_optimizer(optimizer_config, runtime_config)


def test_differential_privacy_is_rejected_if_the_task_does_not_support_it(tmp_path):
    noise = privacy.DifferentialPrivacyConfig(clipping_norm=1.0, noise_multiplier=1.0)
    params = _lines(differential_privacy_config=noise)
    with raises("not-supported", "task.differential_privacy_config"):
        run_official(params, tmp_path, task_class=_WithoutPrivacy)

    params = _lines()
    run_official(params, tmp_path, mode="train", task_class=_WithoutPrivacy)


class _Averaging(LineTask):
    @classmethod
    def create_optimizer(cls, *args, **kwargs):
        inner = LineTask.create_optimizer(*args, **kwargs)
        return optimization.ExponentialMovingAverage(inner, average_decay=1.0, dynamic_decay=False)


@pytest.mark.slow
def test_weight_average_of_a_custom_optimizer_is_evaluated(tmp_path):
    # With a decay of 1, the average stays at the initial weights.
    begin, _ = run_official(_lines({"train_steps": 1}), tmp_path / "one", mode="train")
    model, logs = run_official(_lines(), tmp_path / "own", task_class=_Averaging)

    saved = tf.train.load_checkpoint(str(tmp_path / "own" / "checkpoints" / "ckpt-6"))
    shapes = saved.get_variable_to_shape_map()
    (name,) = (n for n, shape in shapes.items() if n.startswith("ema/") and len(shape) == 2)
    kernel = saved.get_tensor(name)
    x = np.arange(24, dtype=np.float32)[:, None] / 8
    np.testing.assert_allclose(logs["validation_loss"], np.mean((2 * x - x * kernel) ** 2), 1e-5)
    assert abs(float(kernel[0, 0] - model.get_weights()[0][0, 0])) > 1e-2
    assert begin.get_weights()[0].shape == kernel.shape


@dataclasses.dataclass
class _PrunedConfig(LineConfig):
    pruning: bool = True


class _Pruned(LineTask):
    def build_model(self):
        from tensorflow_model_optimization.sparsity import keras as sparsity

        return sparsity.prune_low_magnitude(super().build_model())


@pytest.mark.slow
def test_pruning_step_counts_every_training_step(tmp_path):
    trainer = cfg.TrainerConfig(**trainer_settings())
    params = cfg.ExperimentConfig(task=_PrunedConfig(), trainer=trainer)
    model, _ = run_official(params, tmp_path, mode="train", task_class=_Pruned)
    (step,) = (each for each in model.variables if "pruning_step" in each.name)
    assert int(step) == 6


class _FiniteTask(LineTask):
    def build_inputs(self, params, input_context=None):
        return super().build_inputs(params, input_context).take(self.task_config.size)


def test_training_data_that_runs_out_is_an_error(tmp_path):
    params = _lines(size=4)
    with raises("empty-data", "task.train_data"):
        run_official(params, tmp_path, mode="train", task_class=_FiniteTask)


def test_an_empty_validation_set_is_an_error(tmp_path):
    class Empty(LineTask):
        def build_inputs(self, params, input_context=None):
            data = super().build_inputs(params, input_context)
            return data if params.is_training else data.take(0)

    with raises("empty-data", "task.validation_data"):
        run_official(_lines(), tmp_path, task_class=Empty)


def test_task_without_validation_data_can_only_be_trained(tmp_path):
    params = line()
    params.task.validation_data = None
    run_official(params, tmp_path, mode="train")
    with pytest.raises(SettingError) as caught:
        run_official(params, tmp_path / "2", mode="train_and_eval")
    assert caught.value.path == "task.validation_data"


@pytest.mark.parametrize(
    ("inputs", "rows"),
    [
        (lambda: {"a": tf.constant(7), "b": tf.zeros([5, 2])}, 5),
        (lambda: tf.ragged.constant([[1], [2, 3], []]), 3),
        (lambda: (tf.sparse.from_dense(tf.eye(4)), tf.zeros([9])), 4),
        (lambda: tf.constant(7), 1),
    ],
)
def test_leading_size_counts_the_rows_of_any_kind_of_tensor(inputs, rows):
    assert float(leading_size(inputs())) == rows


def test_composite_optimizer_reports_a_learning_rate_for_each_part():
    class Several:
        def __init__(self, *optimizers):
            self.optimizers = optimizers

    falling = tf_keras.optimizers.schedules.PolynomialDecay(0.5, 10, 0.0)
    kind = tf_keras.optimizers.legacy.SGD
    rates = learning_rates(Several(kind(0.25), kind(falling)))
    assert rates == {"SGD_0_learning_rate": 0.25, "SGD_1_learning_rate": 0.5}


@pytest.mark.slow
def test_applying_gradients_twice_in_a_step_is_rejected():
    tap, weight = GradientRecorder(None), tf.Variable(1.0)
    tap.apply_gradients([(tf.constant(1.0), weight)])
    with raises("not-supported"):
        tap.apply_gradients([(tf.constant(1.0), weight)])


class _Several:
    """A metric like that of Model Garden's YOLO: several values, and only `reset_states`."""

    name = "several"

    def __init__(self):
        self._mean = tf_keras.metrics.Mean()

    def update_state(self, labels, outputs):
        self._mean.update_state(labels)

    def reset_states(self):
        self._mean.reset_state()

    def result(self):
        return {"once": self._mean.result(), "twice": 2.0 * self._mean.result()}


class _SeveralTask(LineTask):
    def build_metrics(self, training=True):
        return [_Several()]

    def process_metrics(self, metrics, labels, model_outputs):
        for metric in metrics:
            metric.update_state(labels, model_outputs)


@pytest.mark.slow
def test_metric_with_several_values_and_only_reset_states_works(tmp_path):
    _, logs = run_official(_lines(), tmp_path, task_class=_SeveralTask)

    np.testing.assert_allclose(logs["several"]["once"], 2.875)  # 2 · (0 + … + 23) / 8 / 24
    np.testing.assert_allclose(logs["several"]["twice"], 5.75)
    (record,) = records(tmp_path, "validation")
    assert record["several/twice"] == pytest.approx(5.75)
    first, second = records(tmp_path, "train")
    assert first["several/once"] != second["several/once"]  # reset in between
