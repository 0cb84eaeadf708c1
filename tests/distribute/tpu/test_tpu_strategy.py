"""The strategy over a TPU; the calls that need a TPU are answered by a fake."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from official.core import base_trainer, config_definitions
from tensorflow.compiler.xla import xla_data_pb2

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.devices import DeviceError
from orbit_runner.distribute.tpu_strategy import (
    assign_devices,
    build_tpu_strategy,
    computation_shape,
    find_tpu,
    run_options,
    split_inputs,
)
from tests.support.problems import raises
from tests.support.processes import printed_by
from tests.support.tpu_topologies import MESHES, make_topology

PATH = "runtime.train_input_partition_dims"


class _FakeTpu:
    """A fake TPU that lists its devices, and does nothing else."""

    def __init__(self, platform):
        self.topology = make_topology(platform)
        tasks, cores = self.topology.num_tasks, self.topology.num_tpus_per_task
        names = [f"/job:worker/replica:0/task:{task}/device:TPU:{core}"
                 for task in range(tasks) for core in range(cores)]  # fmt: skip
        self._metadata = SimpleNamespace(
            devices=[SimpleNamespace(name=name) for name in names],
            num_hosts=tasks,
            num_of_cores_per_host=cores,
            num_cores=len(names),
        )

    def get_tpu_system_metadata(self):
        return self._metadata

    def cluster_spec(self):
        return None


def runtime(**changes):
    return RuntimeConfig(**{"distribution_strategy": "tpu", "tpu": "local"} | changes)


@pytest.fixture
def started(monkeypatch):
    """Builds the strategy on a type of TPU; returns it and the calls that a TPU would get."""

    def build(platform, **changes):
        there, calls = _FakeTpu(platform), list[Any]()

        def find(**arguments):
            calls.append(("find", arguments))
            return there

        def initialize(given):
            calls.append(("initialize", given is there))
            return there.topology

        monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", find)
        monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", initialize)
        monkeypatch.setattr(
            tf.config,
            "experimental_connect_to_cluster",
            lambda given: calls.append(("connect", given is there)),
        )
        return build_tpu_strategy(runtime(**changes)), calls

    return build


@pytest.mark.parametrize(
    ("platform", "dims", "replicas", "devices"),
    [
        ("v3-8", None, 8, 1),
        ("v3-8", [1, 1, 1, 1], 8, 1),
        ("v3-8", [1, 2, 2, 1], 2, 4),
        ("v3-32", [1, 4, 2, 1], 4, 8),
        ("v4-8", [1, 2, 2, 1], 1, 4),
        ("v5e-8", [1, 2, 1, 1], 4, 2),
        ("v5p-16", None, 8, 1),
    ],
)
def test_each_replica_has_one_device_per_part(started, platform, dims, replicas, devices):
    strategy, calls = started(platform, train_input_partition_dims=dims)

    assert isinstance(strategy, tf.distribute.TPUStrategy)
    assert strategy.num_replicas_in_sync == replicas
    devices_of_replicas = strategy.extended._tpu_devices
    assert devices_of_replicas.shape == (replicas, devices)
    assert len(set(devices_of_replicas.flat)) == replicas * devices
    assert strategy.extended._device_assignment is not None
    assert [name for name, _ in calls] == ["find", "initialize"]


def test_eval_partition_dims_apply_when_train_dims_are_not_set(started):
    strategy, _ = started("v3-8", eval_input_partition_dims=[1, 2, 2, 1])

    assert strategy.num_replicas_in_sync == 2


def test_remote_tpu_is_connected(started):
    strategy, calls = started("v3-8", tpu="mine")

    assert strategy.num_replicas_in_sync == 8
    assert calls == [
        ("find", {"tpu": "mine"}),
        ("connect", True),
        ("initialize", True),
    ]


@pytest.mark.parametrize(
    ("device", "environ", "expected"),
    [
        ("accel0", {}, "local"),
        ("vfio/0", {}, "local"),
        ("accel0", {"TPU_NAME": "mine"}, "mine"),
        ("", {"TPU_NAME": "mine", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS": "grpc://a:1"}, "grpc://a:1"),
    ],
)
def test_tpu_is_that_of_the_setting_the_environment_or_the_machine(
    device, environ, expected, tmp_path
):
    if device:
        (tmp_path / device).parent.mkdir(exist_ok=True)
        (tmp_path / device).touch()

    assert find_tpu(runtime(tpu=""), environ, tmp_path) == expected
    assert find_tpu(runtime(tpu="given"), environ, tmp_path) == "given"


@pytest.mark.parametrize("device", ["", "vfio/vfio"])
def test_machine_without_a_tpu_is_an_error(device, tmp_path):
    if device:
        (tmp_path / device).parent.mkdir(exist_ok=True)
        (tmp_path / device).touch()

    with raises("not-set", "runtime.tpu"):
        find_tpu(runtime(tpu=""), {}, tmp_path)


# Run options.


@pytest.mark.parametrize("dims", [None, [1, 2, 2, 1]])
def test_run_options_match_those_of_model_garden(dims):
    options = run_options(runtime(train_input_partition_dims=dims))

    theirs = base_trainer.get_runtime_options(
        config_definitions.ExperimentConfig()
    ).experimental_xla_options
    ours = options.experimental_xla_options
    assert ours.enable_xla_dynamic_padder is theirs.enable_xla_dynamic_padder is True
    assert ours.use_spmd_for_xla_partitioning is (dims is not None)
    if dims:
        assert ours == theirs


# Splitting inputs.


@pytest.fixture
def strategy():
    there = _FakeTpu("v3-8")
    assignment = assign_devices(there.topology, 4)
    return tf.distribute.TPUStrategy(there, experimental_device_assignment=assignment)


def shardings(strategy, inputs, dims):
    """Traces a step; returns the shardings for XLA, and the inputs as the step gets them."""
    results = []

    @tf.function(autograph=False)
    def step(given):
        results.append(split_inputs(strategy, given, dims))
        return results[0]

    graph = step.get_concrete_function(inputs).graph
    shardings_of_inputs = []
    for operation in graph.get_operations():
        if operation.type == "XlaSharding":
            sharding = xla_data_pb2.OpSharding()
            sharding.ParseFromString(operation.get_attr("_XlaSharding"))
            shardings_of_inputs.append((operation.inputs[0].shape.as_list(), sharding))
    return shardings_of_inputs, results[0]


IMAGE = tf.TensorSpec([8, 32, 16, 3])
LABEL = tf.TensorSpec([8], tf.int32)


def test_images_are_split_and_labels_are_not(strategy):
    shardings_of_inputs, back = shardings(
        strategy, ({"image": IMAGE, "more": [IMAGE]}, LABEL, LABEL), (1, 2, 2, 1)
    )

    assert [shape for shape, _ in shardings_of_inputs] == [[8, 32, 16, 3]] * 2
    for _, sharding in shardings_of_inputs:
        assert list(sharding.tile_assignment_dimensions) == [1, 2, 2, 1]
        assert list(sharding.tile_assignment_devices) == [0, 1, 2, 3]
    images, label, weight = back
    assert [images["image"].shape, images["more"][0].shape] == [IMAGE.shape] * 2
    assert (label.shape, weight.shape) == (LABEL.shape, LABEL.shape)


def test_batches_of_unknown_size_are_split(strategy):
    shardings_of_inputs, _ = shardings(strategy, tf.TensorSpec([None, 32, 32, 3]), (2, 2, 1, 1))

    assert [list(s.tile_assignment_dimensions) for _, s in shardings_of_inputs] == [[2, 2, 1, 1]]


def test_inputs_are_unchanged_without_partition_dims(strategy):
    inputs = (object(), np.zeros(3))

    assert split_inputs(strategy, inputs, None) is inputs


@pytest.mark.parametrize(
    ("spec", "dims", "code"),
    [
        (tf.TensorSpec([8, 32, 33, 3]), (1, 2, 2, 1), "not-divisible"),
        (tf.TensorSpec([7, 32, 32, 3]), (2, 2, 1, 1), "not-divisible"),
        (tf.TensorSpec([8, 32, 3]), (1, 2, 2, 1), "wrong-type"),
    ],
)
def test_inputs_that_cannot_be_split_are_rejected(strategy, spec, dims, code):
    with raises(code, PATH):
        shardings(strategy, spec, dims)


# Real attempts on a machine without a TPU.


@pytest.mark.parametrize(
    ("changes", "path", "said"),
    [
        ({"tpu": "mine"}, "tpu", "cannot look up 'mine': "),
        ({"tpu": "10.0.0.2:8470"}, "tpu", "cannot look up '10.0.0.2:8470': "),
    ],
)
def test_tpu_that_cannot_be_found_is_reported(changes, path, said, monkeypatch):
    monkeypatch.setenv("GCE_METADATA_IP", "127.0.0.1:1")
    monkeypatch.setenv("NO_GCE_CHECK", "True")

    with pytest.raises(DeviceError) as caught:
        build_tpu_strategy(runtime(**changes))
    assert caught.value.path == f"runtime.{path}"
    assert caught.value.reason.startswith(said)


# Run in a separate process, because TensorFlow is not usable afterwards.
ATTEMPT = """
import json, sys
import tensorflow as tf
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.devices import DeviceError
from orbit_runner.distribute.tpu_strategy import build_tpu_strategy
kept = []
def address():
    server = tf.distribute.Server({"worker": ["localhost:0"]}, job_name="worker", task_index=0)
    kept.append(server)
    return server.target
name = address() if sys.argv[1] == "server" else sys.argv[1]
try:
    build_tpu_strategy(RuntimeConfig(distribution_strategy="tpu", tpu=name))
except DeviceError as error:
    print(json.dumps([error.path, error.reason.replace(name, "NAME")]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("local", "got 'NAME', but this machine has no TPU"),
        ("server", "got 'NAME', but the machine at that address has no TPU"),
    ],
)
def test_machine_without_a_tpu_is_rejected(name, said):
    blamed, reason = json.loads(printed_by(ATTEMPT, name)[-1])
    assert blamed == "runtime.tpu"
    assert reason == said


# The geometry of TPUs: types, topologies, and which devices share a replica.

SPLITS = [
    (name, parts)
    for name, mesh in MESHES.items()
    for parts in (1, 2, 4, 8, 16)
    if np.prod(mesh) % parts == 0
]


def test_v4_32_devices_are_numbered_as_on_a_real_tpu():
    # As printed in github.com/huggingface/transformers/issues/20252.
    listed = [[(x, y, z, 0) for y in (0, 1) for x in (0, 1)] for z in range(4)]

    assert make_topology("v4-32").device_coordinates.tolist() == np.array(listed).tolist()


@pytest.mark.parametrize(("name", "parts"), SPLITS)
def test_each_device_is_in_one_replica_and_replicas_are_blocks(name, parts):
    topology = make_topology(name)
    shape = computation_shape(topology.mesh_shape.tolist(), parts)

    cores = assign_devices(topology, parts).core_assignment

    assert cores.shape == (np.prod(topology.mesh_shape) // parts, parts, 4)
    assert len(np.unique(cores.reshape(-1, 4), axis=0)) == np.prod(topology.mesh_shape)
    extents = cores.max(axis=1) - cores.min(axis=1) + 1
    assert (extents == shape).all()


@pytest.mark.parametrize(
    ("mesh", "parts", "expected"),
    [
        ((2, 2, 1, 2), 2, (1, 1, 1, 2)),
        ((2, 2, 1, 2), 4, (1, 2, 1, 2)),
        ((4, 4, 1, 2), 8, (2, 2, 1, 2)),
        ((2, 2, 4, 1), 4, (2, 2, 1, 1)),
        ((2, 2, 4, 1), 8, (2, 2, 2, 1)),
        ((16, 16, 24, 1), 3, (1, 1, 3, 1)),
        ((16, 16, 24, 1), 6, (1, 2, 3, 1)),
    ],
)
def test_computation_shape_fits_the_mesh_and_the_number_of_parts(mesh, parts, expected):
    assert computation_shape(mesh, parts) == expected


@pytest.mark.parametrize(("name", "parts"), [("v3-8", 3), ("v3-8", 16), ("v4-8", 8), ("v5e-1", 2)])
def test_parts_that_do_not_divide_the_devices_are_rejected(name, parts):
    with raises("not-divisible", "runtime.tpu"):
        assign_devices(make_topology(name), parts)
