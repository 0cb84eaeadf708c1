"""FLOPs of a step against counts by hand, and the peak FLOPs of devices."""

import pytest
import tensorflow as tf

from orbit_runner.train import trainer
from orbit_runner.utils.flops import peak_flops, peak_of, step_flops, throughput_logs
from tests.support.digits import cnn_config, digits_config
from tests.support.toy import run


def _count(function, *shapes, pieces=1):
    specs = [tf.TensorSpec(shape, tf.float32) for shape in shapes]
    return step_flops(tf.function(function).get_concrete_function(*specs).graph, pieces)


_CASES = [
    (tf.matmul, [[3, 5], [5, 7]], 2 * 3 * 5 * 7),
    (lambda a, b: tf.matmul(a, b, transpose_a=True), [[5, 3], [5, 7]], 2 * 3 * 5 * 7),
    (lambda a, b: tf.matmul(a, b, transpose_b=True), [[4, 3, 5], [4, 7, 5]], 4 * 2 * 3 * 5 * 7),
    (lambda a, b: tf.matmul(a, b, adjoint_a=True), [[4, 5, 3], [4, 5, 7]], 4 * 2 * 3 * 5 * 7),
    (lambda a, b: tf.einsum("bqhd,bkhd->bhqk", a, b), [[2, 6, 3, 4], [2, 5, 3, 4]],
     2 * 2 * 6 * 3 * 4 * 5),
    (lambda a, b: tf.nn.conv2d(a, b, 1, "SAME"), [[2, 8, 8, 3], [5, 5, 3, 6]],
     2 * 2 * 8 * 8 * 6 * 5 * 5 * 3),
    (lambda a, b: tf.nn.conv2d(a, b, 2, "SAME"), [[2, 8, 8, 3], [5, 5, 3, 6]],
     2 * 2 * 4 * 4 * 6 * 5 * 5 * 3),
    (lambda a, b: tf.nn.depthwise_conv2d(a, b, [1, 1, 1, 1], "SAME"), [[2, 8, 8, 3], [5, 5, 3, 2]],
     2 * 2 * 8 * 8 * 6 * 5 * 5),
    (lambda a, b: tf.nn.conv3d(a, b, [1] * 5, "SAME"), [[2, 4, 8, 8, 3], [3, 5, 5, 3, 6]],
     2 * 2 * 4 * 8 * 8 * 6 * 3 * 5 * 5 * 3),
    (lambda a, b: tf.nn.relu(a) + tf.reduce_sum(b), [[3, 5], [5, 7]], 0),
]  # fmt: skip


@pytest.mark.parametrize(("function", "shapes", "flops"), _CASES)
def test_flops_of_an_operation_match_the_count_by_hand(function, shapes, flops):
    assert _count(function, *shapes) == flops


def test_flops_of_a_product_of_unknown_size_are_unknown():
    assert _count(tf.matmul, [None, 5], [5, 7]) is None
    assert _count(lambda a: tf.nn.relu(a), [None, 5]) == 0


def test_flops_inside_functions_and_loops_are_counted():
    inner = tf.function(tf.matmul)
    assert _count(lambda a, b: inner(a, b) + tf.matmul(a, b), [3, 5], [5, 5]) == 2 * 150

    def in_pieces(a):
        return tf.while_loop(lambda n, _: n < 4, lambda n, x: (n + 1, x @ x), [1, a @ a])

    assert _count(in_pieces, [5, 5], pieces=4) == 4 * 250


def _flops(monkeypatch, folder, **how):
    figures = set()

    class Kept(trainer.Trainer):
        def train(self, num_steps):
            logs = super().train(num_steps)
            figures.add((self.flops, logs["tflops_per_second"] * 1e12 / logs["steps_per_second"]))
            return logs

    monkeypatch.setattr("orbit_runner.train.engine.Trainer", Kept)
    run(mode="train", model_dir=folder, **how)
    return {round(value) for pair in figures for value in pair}


# Forward, and backward to the weights and to what is below: 64 examples, 64 → 16 → 10.
_DIGITS = 2 * 64 * (64 * 16 * 2 + 16 * 10 * 3)


@pytest.mark.sample(1)
@pytest.mark.alternating
@pytest.mark.parametrize("strategy", ["off", "one_device", "mirrored2"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"task__train_data__on_device": False},
        {"trainer__gradient_accumulation_steps": 4},
        {"runtime__enable_xla": True},
    ],
)
def test_flops_of_a_run_include_all_replicas(changes, strategy, monkeypatch, tmp_path):
    config = digits_config(trainer__train_steps=4, **changes)
    assert _flops(monkeypatch, tmp_path, config=config, strategy=strategy) == {_DIGITS}


def test_flops_of_a_run_include_convolutions(monkeypatch, tmp_path):
    config = cnn_config(trainer__train_steps=2)
    # 8 × 8 × 1 → 4 channels, halved → 8 channels, halved to 2 × 2 × 8 → 16 → 10.
    convolutions = 8 * 8 * 9 * 1 * 4 * 2 + 4 * 4 * 9 * 4 * 8 * 3
    expected = 2 * 64 * (convolutions + 2 * 2 * 8 * 16 * 3 + 16 * 10 * 3)
    assert _flops(monkeypatch, tmp_path, config=config) == {expected}


def test_peak_flops_depend_on_device_and_dtype():
    for device, dtype, peak in (
        ("NVIDIA H200", "bfloat16", 989.4e12),
        ("NVIDIA H100 80GB HBM3", "float16", 989.4e12),
        ("NVIDIA H100 PCIe", "bfloat16", 756.5e12),
        ("NVIDIA H100 NVL", "bfloat16", 835.5e12),
        ("NVIDIA H200 NVL", "float32", 417.5e12),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "bfloat16", None),
        ("Tesla V100-SXM2-16GB", "float16", 125e12),
        ("Tesla V100-PCIE-16GB", "float16", 112e12),
        ("Tesla T4", "bfloat16", None),
        ("NVIDIA L40S", "float32", None),
    ):
        assert peak_flops(device, dtype) == peak, device
    assert peak_of(["NVIDIA H200", "NVIDIA H200"], "float32") == 2 * 494.7e12
    assert peak_of(["NVIDIA H200", "Unheard of"], "float32") is None
    assert peak_of([], "float32") is None


def test_logs_contain_tflops_and_utilization():
    assert throughput_logs(6e12, 10e12) == {"tflops_per_second": 6.0, "mfu": 0.6}
    assert throughput_logs(6e12, None) == {"tflops_per_second": 6.0}
