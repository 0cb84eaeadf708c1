"""Devices, strategies, precision, threads, seeds, and the environment."""

import json
import os
import random

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.config.schema.strategies import STRATEGIES
from orbit_runner.determinism.numerics import configure_numerics, seed_everything
from orbit_runner.distribute import devices, strategies
from orbit_runner.distribute.devices import DeviceError, select_devices
from orbit_runner.distribute.strategies import CROSS_DEVICE_OPS, build_strategy
from orbit_runner.distribute.tf_environment import prepare_environment, required_variables
from orbit_runner.tasks.adapter import adapt
from orbit_runner.tf_internals import disable_op_determinism, is_op_determinism_enabled
from orbit_runner.train.build_state import build_state
from orbit_runner.utils.log import PlainMessages, log_scope
from tests.support.digits import cnn_config
from tests.support.problems import raises
from tests.support.processes import printed_by
from tests.support.toy import make_strategy, toy_config, toy_task


@pytest.mark.parametrize(
    ("changes", "kind", "replicas"),
    [
        ({"distribution_strategy": "one_device"}, tf.distribute.OneDeviceStrategy, 1),
        ({"num_virtual_devices": 2}, tf.distribute.MirroredStrategy, 2),
        ({"num_virtual_devices": 4}, tf.distribute.MirroredStrategy, 4),
        ({"num_virtual_devices": 1}, tf.distribute.MirroredStrategy, 1),
        ({"num_gpus": -1}, tf.distribute.MirroredStrategy, 1),
    ],
)
def test_build_strategy_returns_the_configured_type_and_replica_count(changes, kind, replicas):
    strategy = build_strategy(RuntimeConfig(**changes))
    assert type(strategy) is kind
    assert strategy.num_replicas_in_sync == replicas
    assert all("CPU" in device for device in strategy.extended.worker_devices)


def test_strategy_off_returns_the_current_strategy():
    runtime = RuntimeConfig(distribution_strategy="off")
    assert build_strategy(runtime) is tf.distribute.get_strategy()


def test_every_all_reduce_algorithm_has_an_implementation():
    assert {*CROSS_DEVICE_OPS} == {*STRATEGIES["mirrored"].all_reduce}
    names = STRATEGIES["multi_worker_mirrored"].all_reduce
    kinds = tf.distribute.experimental.CommunicationImplementation
    assert {name.upper() for name in names} <= {kind.name for kind in kinds}


def test_mirrored_strategies_of_one_process_share_no_keys_of_all_reduces():
    strategies = [build_strategy(RuntimeConfig(num_virtual_devices=2)) for _ in range(3)]
    keys = [s.extended._collective_keys.get_group_key(["CPU:0", "CPU:1"]) for s in strategies]
    assert len({*keys}) == 3
    assert tf.distribute.MirroredStrategy._collective_key_base == 0


@pytest.mark.parametrize("too_many", [1, 4])
def test_requesting_more_gpus_than_present_is_rejected(too_many):
    num_gpus = len(tf.config.list_physical_devices("GPU")) + too_many
    # The message depends on the machine.
    with pytest.raises(DeviceError, match=f"got {num_gpus}, but this machine has") as caught:
        select_devices(RuntimeConfig(num_gpus=num_gpus))
    assert caught.value.path == "runtime.num_gpus"


def test_more_virtual_devices_than_already_created_are_rejected():
    tf.constant(0.0)  # Starts TensorFlow, with the four devices of the tests.
    with raises("too-late", "runtime.num_virtual_devices"):
        select_devices(RuntimeConfig(num_virtual_devices=5))
    assert select_devices(RuntimeConfig(num_virtual_devices=3)) == ("CPU:0", "CPU:1", "CPU:2")


@pytest.mark.slow
def test_new_process_gets_the_configured_virtual_devices_and_threads():
    lines = printed_by("""
import json
from orbit_runner.config.schema.runtime import RuntimeConfig
runtime = RuntimeConfig(num_virtual_devices=3, intra_op_threads=3, inter_op_threads=2)
import tensorflow as tf
from orbit_runner.determinism.numerics import configure_numerics
from orbit_runner.distribute.strategies import build_strategy
configure_numerics(runtime)
strategy = build_strategy(runtime)
tf.constant(1.0)
print(json.dumps([strategy.num_replicas_in_sync, len(tf.config.list_logical_devices("CPU")),
    tf.config.threading.get_intra_op_parallelism_threads(),
    tf.config.threading.get_inter_op_parallelism_threads()]))
""")
    assert json.loads(lines[-1]) == [3, 3, 3, 2]


@pytest.mark.parametrize("kind", ["intra_op", "inter_op"])
def test_threads_cannot_change_once_tensorflow_has_started(kind):
    tf.constant(0.0)
    started = getattr(tf.config.threading, f"get_{kind}_parallelism_threads")()
    with raises("too-late", f"runtime.{kind}_threads"):
        configure_numerics(RuntimeConfig(**{f"{kind}_threads": started + 3}))
    configure_numerics(RuntimeConfig(**{f"{kind}_threads": started + 3}), require_threads=False)


def test_prepare_environment_sets_the_configured_variables(monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "")
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
    assert not dict(required_variables(RuntimeConfig()))
    prepare_environment(RuntimeConfig())
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "3"
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    prepare_environment(RuntimeConfig())
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0"


@pytest.mark.parametrize(
    ("name", "compute"),
    [(None, "float32"), ("float32", "float32"), ("float16", "float16"), ("bfloat16", "bfloat16")],
)
def test_mixed_precision_sets_the_compute_dtype_and_keeps_float32_variables(name, compute):
    config = cnn_config(runtime__mixed_precision_dtype=name)
    configure_numerics(config.runtime)
    from orbit_runner.tasks.image_classification.task import ImageClassificationTask

    task = ImageClassificationTask(config.task)
    state = build_state(config, adapt(task), make_strategy("one_device"))
    layers = {layer.name: layer for layer in state.model.layers}
    assert layers["conv1"].compute_dtype == compute
    assert layers["conv1"].output.dtype == compute
    assert layers["logits"].compute_dtype == "float32"
    assert {variable.dtype.name for variable in state.model.variables} == {"float32"}
    scaled = isinstance(state.optimizer, tf_keras.mixed_precision.LossScaleOptimizer)
    assert scaled is (name == "float16")


@pytest.mark.parametrize(
    ("scale", "dynamic", "start"),
    [(None, True, 2.0**15), ("dynamic", True, 2.0**15), (64, False, 64)],
)
def test_loss_scale_is_dynamic_or_fixed_as_configured(scale, dynamic, start):
    config = toy_config(runtime__mixed_precision_dtype="float16", runtime__loss_scale=scale)
    configure_numerics(config.runtime)
    optimizer = build_state(config, adapt(toy_task(config)), make_strategy("one_device")).optimizer
    assert optimizer.dynamic is dynamic
    assert float(optimizer.loss_scale) == start


@pytest.mark.parametrize("deterministic", [True, False])
def test_configure_numerics_sets_op_determinism_and_eager_mode(deterministic):
    disable_op_determinism()
    configure_numerics(RuntimeConfig(deterministic=deterministic, run_eagerly=True))
    assert is_op_determinism_enabled() is deterministic
    assert tf.config.functions_run_eagerly()
    configure_numerics(RuntimeConfig())
    assert not tf.config.functions_run_eagerly()


def test_equal_seeds_give_equal_random_draws():
    def drawn():
        layer = tf_keras.layers.Dense(3)
        layer.build([None, 2])
        return (
            random.random(),
            float(np.random.rand()),
            layer.get_weights()[0].ravel().tolist(),
            layer.name,
        )

    seed_everything(5)
    first = drawn()
    assert drawn() != first
    seed_everything(5)
    assert drawn() == first
    seed_everything(6)
    assert drawn() != first


@pytest.mark.parametrize(
    ("gpus", "settings", "text"),
    [
        (1, {}, "is not used, because runtime.num_gpus is 0; use --num_gpus=1"),
        (4, {}, "use --num_gpus=1, or --num_gpus=4 --distribution_strategy=mirrored for all"),
        (4, {"distribution_strategy": "mirrored"}, "is 0; use --num_gpus=4"),
        (4, {"num_gpus": 1}, ""),
        (4, {"num_gpus": -1}, ""),
        (0, {}, ""),
    ],
)  # fmt: skip
def test_gpus_that_are_not_used_are_named_once(gpus, settings, text, monkeypatch, capsys):
    devices.note_once.cache_clear()
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU"] * gpus)
    monkeypatch.setattr(strategies, "select_devices", lambda runtime: ("CPU:0",))
    runtime = RuntimeConfig(**{"distribution_strategy": "one_device", **settings})
    with log_scope(PlainMessages()):
        build_strategy(runtime)
        build_strategy(runtime)
    stderr = capsys.readouterr().err

    assert stderr.count("note: ") == bool(text)
    assert stderr.strip().endswith(text)
