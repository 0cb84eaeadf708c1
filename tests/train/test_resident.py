"""Datasets kept in memory: steps make the same batches as the pipeline, which starts early."""

import time
from types import SimpleNamespace

import pytest
import tensorflow as tf

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.registry import TASKS
from orbit_runner.tasks.adapter import adapt
from orbit_runner.train.inputs import batches as module
from orbit_runner.train.inputs.batches import resident_batches
from orbit_runner.train.inputs.distribute import distribute
from tests.support.digits import cnn_config, digits_config
from tests.support.problems import raises
from tests.support.ratings import ratings_config
from tests.support.toy import make_strategy, run

_SECTIONS = ("train_data", "validation_data")
# The first has more steps in a loop than one call makes batches for, 16, and an epoch's end in the
# middle of a batch.
_CASES = {
    "augmented": lambda **more: cnn_config(
        **{
            "task__model__dropout_rate": 0.3,
            "task__train_data__global_batch_size": 256,
            "trainer__steps_per_loop": 60,
            "trainer__summary_interval": 60,
            "trainer__validation_interval": 60,
            "trainer__checkpoint_interval": 60,
            **more,
        }
    ),
    "in_order": lambda **more: digits_config(task__train_data__shuffle_buffer_size=0, **more),
    "ratings": lambda **more: ratings_config(task__train_data__num_negatives=2, **more),
}


def _where(on_device):
    return {f"task__{section}__on_device": on_device for section in _SECTIONS}


def _task(config):
    return TASKS.get(config.task.name).load()(config.task)


def _chosen(config, section="train_data", strategy="off"):
    data = resolve_data_config(getattr(config.task, section), config.runtime)
    return resident_batches(config, make_strategy(strategy), adapt(_task(config)), data)


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("strategy", ["off", "one_device", "mirrored2"])
@pytest.mark.parametrize("case", _CASES)
def test_resident_data_gives_the_weights_and_results_of_the_pipeline(case, strategy, tmp_path):
    """The second run trains the first half on a pipeline, and evaluates on one at its end."""
    make, steps = _CASES[case], _CASES[case]().trainer.train_steps
    pipeline_model, logs = run(make(**_where(True)), tmp_path / "whole", strategy=strategy)
    half = make(**_where(False), trainer__train_steps=steps // 2 + 1)
    run(half, tmp_path / "two", "train", strategy)
    where = {**_where(True), "task__validation_data__on_device": False}
    other, resident_logs = run(make(**where), tmp_path / "two", strategy=strategy)
    for results in (logs, resident_logs):
        results.pop("steps_per_second", None)
    assert weights_fingerprint(other) == weights_fingerprint(pipeline_model)
    assert resident_logs == logs


@pytest.mark.parametrize("section", _SECTIONS)
def test_dataset_stays_in_memory_if_it_fits_or_is_configured(section, monkeypatch):
    chunks = _chosen(digits_config(), section)
    assert chunks.nbytes > 20_000
    monkeypatch.setattr(module, "_MAX_BYTES", chunks.nbytes - 1)
    assert _chosen(digits_config(), section) is None
    assert _chosen(digits_config(**_where(True)), section) is not None
    monkeypatch.setattr(module, "_MAX_BYTES", chunks.nbytes)
    assert _chosen(digits_config(), section) is not None
    assert _chosen(digits_config(**_where(False)), section) is None


@pytest.mark.parametrize(
    ("section", "changes"),
    [
        ("train_data", {"runtime__run_eagerly": True}),
        ("validation_data", {"runtime__run_eagerly": True}),
        ("train_data", {"runtime__distribution_strategy": "parameter_server"}),
        (
            "validation_data",
            {
                "task__validation_data__enable_tf_data_service": True,
                "task__validation_data__tf_data_service_address": "grpc://localhost:1",
            },
        ),
        ("train_data", {"task__model__input_size": [16, 16, 1]}),
    ],
)
def test_error_says_why_a_dataset_cannot_be_on_device(section, changes):
    assert _chosen(digits_config(**changes), section) is None
    with raises("not-supported", f"task.{section}.on_device"):
        _chosen(digits_config(**changes, **_where(True)), section)


def test_gpus_use_a_pipeline(monkeypatch):
    monkeypatch.setattr(module, "local_devices", lambda _: ["GPU:0"])
    assert _chosen(digits_config()) is None
    with raises("not-supported", "task.train_data.on_device"):
        _chosen(digits_config(**_where(True)))


@pytest.mark.parametrize("asked", [{}, _where(True)])
def test_batch_size_not_divisible_by_the_replicas_is_rejected(asked):
    config = digits_config(task__train_data__global_batch_size=63, **asked)
    assert _chosen(config, strategy="mirrored2") is None
    strategy = make_strategy("mirrored2")
    with raises("not-divisible", "task.train_data.global_batch_size"):
        distribute(strategy, adapt(_task(config)), config.task.train_data, config.runtime)


@pytest.mark.slow
def test_xla_compiles_whole_steps_on_a_pipeline_too(tmp_path):
    """If it compiled only gradients, the last bits of the optimizer's updates would differ."""
    weights = {}
    for name, changes in (("a", _where(True)), ("b", _where(False))):
        config = digits_config(trainer__train_steps=20, runtime__enable_xla=True, **changes)
        model, _ = run(config, tmp_path / name, strategy="one_device")
        weights[name] = weights_fingerprint(model)
    assert weights["b"] == weights["a"]


calls = []


class Slow:
    """Makes numbers, and remembers which."""

    def build_inputs(self, params, input_context=None):
        def number(index):
            calls.append(int(index))
            return index

        numbers = tf.data.Dataset.range(5).map(
            lambda index: tf.ensure_shape(tf.numpy_function(number, [index], tf.int64), [])
        )
        return numbers.batch(1).prefetch(2)


@pytest.mark.parametrize("strategy", ["off", "one_device"])
def test_first_batches_are_made_before_the_first_request(strategy):
    calls.clear()
    params = SimpleNamespace(is_training=True, seed=1)
    data = distribute(make_strategy(strategy), adapt(Slow()), params, RuntimeConfig())
    assert not calls
    iterator = iter(data)
    deadline = time.monotonic() + 600
    while not calls and time.monotonic() < deadline:
        time.sleep(0.01)
    assert calls[0] == 0
    del iterator
