"""What every strategy promises: its traits, its settings, and its replicas."""

from pathlib import Path

import pytest
import tensorflow as tf

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.config.schema.strategies import STRATEGIES
from orbit_runner.distribute.process_group import traits_of
from orbit_runner.distribute.strategies import FACTORIES, StrategySpec
from tests.clusters.test_every_strategy import _STRATEGIES as IN_CLUSTER_TESTS

_ROOT = Path(__file__).parents[2]
_LOCAL = [n for n, traits in STRATEGIES.items() if not (traits.is_clustered or traits.uses_tpu)]
_CLASSES = {type(tf.distribute.get_strategy()).__name__} | {
    value.__name__
    for module in (tf.distribute, tf.distribute.experimental)
    for value in vars(module).values()
    if isinstance(value, type)
}
# NCCL needs GPUs.
_ALGORITHMS = {name for traits in STRATEGIES.values() for name in traits.all_reduce} - {"nccl"}


@pytest.fixture(params=STRATEGIES)
def name(request):
    return request.param


def problems(name, **settings):
    """Returns the settings that are refused, or have no effect."""
    runtime = RuntimeConfig(distribution_strategy=name, **settings)
    return {problem.path for problem in (*runtime.inert(), *runtime.problems())}


def test_strategy_is_built_documented_and_run_on_clusters(name):
    assert name in FACTORIES
    pages = [path for path in (_ROOT / "docs").glob("*.md") if path.stem != "settings"]
    assert any(f"`{name}`" in path.read_text(encoding="utf-8") for path in pages)
    assert STRATEGIES[name].class_name in _CLASSES
    # A TPU cannot be run here.
    assert STRATEGIES[name].uses_tpu or name in IN_CLUSTER_TESTS


def test_settings_are_accepted_as_the_traits_say(name):
    traits = STRATEGIES[name]

    assert problems(name) == set()
    for algorithm in sorted(_ALGORITHMS):
        refused = "all_reduce_alg" in problems(name, all_reduce_alg=algorithm)
        assert refused == (algorithm not in traits.all_reduce)
    refused = "logical_replicas" in problems(name, logical_replicas=4)
    assert refused == (not traits.logical_replicas)


@pytest.mark.parametrize("local", _LOCAL)
def test_strategy_has_the_traits_of_its_name_and_a_replica_on_each_device(local):
    traits = STRATEGIES[local]
    devices = ("CPU:0", "CPU:1") if traits.several_devices else ("CPU:0",)
    algorithm = "reduction_to_one_device" if traits.several_devices else None
    runtime = RuntimeConfig(distribution_strategy=local, all_reduce_alg=algorithm)
    strategy = FACTORIES[local](StrategySpec(runtime, devices))

    assert traits_of(strategy) == traits
    assert strategy.num_replicas_in_sync == len(devices)
