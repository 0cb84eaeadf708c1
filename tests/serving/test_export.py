"""Exported models give the same answers as the trained ones, under every strategy."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.core.protobuf import saved_model_pb2

from orbit_runner.checkpoint.fingerprint import CheckpointContent, weights_fingerprint
from orbit_runner.checkpoint.latest_checkpoint import choose_checkpoint, choose_weights
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.trainer import SAVED_MODEL
from orbit_runner.datasets.scikit_learn import load_digits
from orbit_runner.registry import TASKS
from orbit_runner.serving.export import export_all
from orbit_runner.serving.export_directory import find_export
from orbit_runner.serving.loader import load_scope
from orbit_runner.tasks.adapter import adapt
from orbit_runner.utils.variables import variable_name
from tests.support.damage import DATA, flip
from tests.support.digits import _BASE, digits_config, resnet_config
from tests.support.exported import ask_elsewhere
from tests.support.problems import raises
from tests.support.toy import Notes, config_of, run, toy_config

IMAGES: np.ndarray = load_digits(split="test").arrays["image"][:20]
EMA: dict[str, Any] = {"trainer__optimizer_config__ema__average_decay": 0.9}
BEST: dict[str, Any] = {
    "trainer__best_checkpoint_export_subdir": "best",
    "trainer__best_checkpoint_eval_metric": "accuracy",
}


def exported(
    config: ExperimentConfig,
    run_folder: Path,
    to: Path,
    *,
    checkpoint: str | None = None,
    weights: str | None = None,
) -> Path:
    """Exports a run as the command does, in this process."""
    task = TASKS.get(config.task.name).load()(config.task)
    subdir = config.trainer.best_checkpoint_export_subdir
    choice = choose_checkpoint(run_folder, checkpoint, subdir, print)
    averages = config.trainer.optimizer_config.ema is not None
    kind = choose_weights(weights, averages=averages, choice=choice)
    with load_scope(config, task, choice, kind) as model:
        (record,) = export_all([SAVED_MODEL], model, adapt(task), config, run_folder, to)
        return Path(record["path"])


def pngs(images: np.ndarray) -> list[bytes]:
    return [tf.io.encode_png(image).numpy() for image in images]


def logits(model: tf_keras.Model, images: np.ndarray = IMAGES) -> np.ndarray:
    return np.asarray(model(images, training=False))


def check(folder: Path, expected: np.ndarray, atol: float = 1e-5) -> None:
    """Compares an export with the trained model's logits, in this process."""
    loaded = tf.saved_model.load(str(folder))
    outputs = loaded.signatures["image_tensor"](images=tf.constant(IMAGES))
    np.testing.assert_allclose(outputs["logits"], expected, atol=atol)


@pytest.mark.slow
def test_exports_match_plain_and_mirrored_models_in_a_tensorflow_only_process(tmp_path):
    # Each replica keeps moving averages of its own.
    config = resnet_config(trainer__train_steps=4)
    questions: list[Any] = []
    expected = []
    for strategy in ("off", "one_device", "mirrored2"):
        model, _ = run(config, tmp_path / strategy, "train", strategy)
        expected += [logits(model)] * 2
        weights = weights_fingerprint(model)
        folder = exported(config, tmp_path / strategy, tmp_path / f"export_{strategy}")
        assert folder.name == "4"
        record = json.loads((folder / "assets.extra" / "export.json").read_text())
        assert (record["fingerprint"], record["step"]) == (weights, 4)
        assert record["weights"] == "plain"
        questions += [
            (folder, "serving_default", {"images": pngs(IMAGES)}),
            (folder, "image_tensor", {"images": IMAGES}),
        ]
    assert np.abs(expected[0] - expected[-1]).max() > 1e-3  # Batch norm sees smaller batches.
    for outputs, expected_logits in zip(ask_elsewhere(questions, tmp_path), expected, strict=True):
        np.testing.assert_allclose(outputs["logits"], expected_logits, atol=1e-5)
        odds = np.exp(expected_logits - expected_logits.max(axis=1, keepdims=True))
        chances = odds / odds.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(outputs["probabilities"], chances, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("fraction", ["0.5", "null"])
def test_export_preprocesses_image_files_like_evaluation(fraction, tmp_path):
    rng = np.random.default_rng(3)
    for index in range(12):
        image = rng.integers(0, 256, [rng.integers(20, 50), rng.integers(20, 50), 3], np.uint8)
        path = tmp_path / "data/val" / ("cat", "dog")[index % 2] / f"{index:02}"
        encode, suffix = [(tf.io.encode_jpeg, ".jpg"), (tf.io.encode_png, ".png")][index % 3 == 0]
        for folder in (path.parent, tmp_path / "data/train" / path.parent.name):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{path.name}{suffix}").write_bytes(encode(image).numpy())
    base = {key: value for key, value in _BASE.items() if not key.startswith("task.model.")}
    base |= {"task.model.name": "mlp", "task.model.hidden_units": [8], "trainer.train_steps": 2}
    base |= {"task.model.input_size": [16, 16, 3], "task.train_data.global_batch_size": 4}
    for section in ("train_data", "validation_data"):
        base |= {f"task.{section}.source": "image_folder"}
        base |= {f"task.{section}.data_dir": tmp_path / "data"}
    base |= {"task.validation_data.global_batch_size": 12}
    base |= {"task.validation_data.center_crop_fraction": fraction}
    config = config_of(base)
    model, _ = run(config, tmp_path / "run", "train")
    task = TASKS.get("image_classification").load()(config.task)
    images, _, weights = next(iter(task.build_inputs(config.task.validation_data)))
    assert weights.numpy().tolist() == [1.0] * 12
    files = [path.read_bytes() for path in sorted((tmp_path / "data/val").glob("*/*"))]
    folder = exported(config, tmp_path / "run", tmp_path / "export")
    loaded = tf.saved_model.load(str(folder))
    assert loaded.signatures["class_names"]()["names"].numpy().tolist() == [b"cat", b"dog"]
    logits_of_files = loaded.signatures["image_bytes"](images=tf.constant(files))["logits"].numpy()
    np.testing.assert_allclose(logits_of_files, logits(model, images), atol=1e-5)
    assert np.abs(logits_of_files[0] - logits_of_files[1]).max() > 1e-3


@pytest.mark.slow
def test_exported_ops_are_not_assigned_to_a_device(tmp_path):
    config = digits_config(trainer__export_subdir="served", trainer__train_steps=5)
    run(config, tmp_path, "train", "mirrored2")
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((tmp_path / "served/5/saved_model.pb").read_bytes())
    (graph,) = saved.meta_graphs
    functions = [node for each in graph.graph_def.library.function for node in each.node_def]
    ops = {node.op for node in functions}
    assert "MatMul" in ops
    # Saving itself assigns the CPU to the ops that read files and strings.
    looked_at = ("MatMul", "ReadVariableOp", "Softmax")
    devices = {node.device for node in functions if node.op in looked_at}
    assert devices == {""}


def _averages(run_folder: Path, step: int, model: tf_keras.Model) -> None:
    """Copies the averages of a checkpoint into a model by hand."""
    content = CheckpointContent(run_folder / "checkpoints" / f"ckpt-{step}")
    stored = (attribute for node in content.graph.nodes for attribute in node.attributes)
    keys = {attribute.full_name: attribute.checkpoint_key for attribute in stored}
    for weight in model.trainable_variables:
        weight.assign(content.tensor(keys[f"{variable_name(weight)}/average"]))


@pytest.mark.slow
def test_export_uses_the_selected_kind_of_weights(tmp_path):
    config = digits_config(**EMA)
    model, _ = run(config, tmp_path / "run", "train")
    plain = logits(model)
    _averages(tmp_path / "run", 60, model)
    average = logits(model)
    assert np.abs(plain - average).max() > 0.01
    exports = {
        kind: exported(config, tmp_path / "run", tmp_path / str(kind), weights=kind)
        for kind in ("plain", "average", None)
    }
    for kind, expected in (("plain", plain), ("average", average), (None, average)):
        check(exports[kind], expected)


@pytest.mark.slow
def test_export_of_the_best_checkpoint_uses_the_average(tmp_path):
    config = digits_config(**EMA, **BEST)
    model, _ = run(config, tmp_path / "run")
    step = json.loads((tmp_path / "run/best/info.json").read_text())["best_ckpt_global_step"]
    _averages(tmp_path / "run", step, model)
    folder = exported(config, tmp_path / "run", tmp_path / "export", checkpoint="best")
    assert folder.name == str(step)
    check(folder, logits(model))
    with raises("not-allowed", "--weights"):
        exported(config, tmp_path / "run", tmp_path / "b", checkpoint="best", weights="plain")


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"runtime__run_eagerly": True},
        BEST,
    ],
    ids=["newest", "eager", "best"],
)
def test_run_exports_its_model_at_the_end(changes, tmp_path):
    config = digits_config(trainer__export_subdir="served", trainer__train_steps=30, **changes)
    notes = Notes()
    model, _ = run(config, tmp_path / "run", notes=notes)
    assert find_export(tmp_path / "run" / "served") == tmp_path / "run/served/30"
    assert any("exported step 30" in note for note in notes.notes)
    check(tmp_path / "run/served/30", logits(model))
    assert [path.name for path in (tmp_path / "run/served").iterdir()] == ["30"]


@pytest.mark.slow
def test_rerun_of_a_finished_run_exports_again(tmp_path):
    config = digits_config(trainer__export_subdir="served", trainer__train_steps=5)
    run(config, tmp_path, "train", "mirrored2")
    marker = tmp_path / "served/5/marker"
    marker.touch()
    run(config, tmp_path, "train")
    assert find_export(tmp_path / "served") == tmp_path / "served/5"
    assert not marker.exists()
    assert [path.name for path in (tmp_path / "served").iterdir()] == ["5"]


def test_task_that_cannot_be_exported_is_rejected_before_training(tmp_path):
    with raises("missing-method", "trainer.export_subdir"):
        run(toy_config(trainer__export_subdir="served"), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_failed_export_leaves_no_files_behind(tmp_path, monkeypatch):
    config = digits_config(trainer__train_steps=5)
    run(config, tmp_path / "run", "train")

    def fails(root: Any, path: str, **unused: Any) -> None:
        Path(path).mkdir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", fails)
    with raises("not-writable"):
        exported(config, tmp_path / "run", tmp_path / "export")
    assert not list((tmp_path / "export").iterdir())


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """A run with checkpoints of steps 10, 20 and 30."""
    folder = tmp_path_factory.mktemp("three")
    run(digits_config(trainer__train_steps=30, trainer__checkpoint_interval=10), folder, "train")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "step"), [(None, 30), ("newest", 30), ("20", 20)])
def test_checkpoint_is_chosen_by_step(asked, step, three):
    choice = choose_checkpoint(three, asked, "", pytest.fail)
    assert (choice.step, choice.is_best) == (step, False)
    assert choice.record().step == step


@pytest.mark.slow
def test_damaged_checkpoint_is_skipped_unless_requested(three, tmp_path):
    folder = Path(shutil.copytree(three, tmp_path / "run"))
    newest, *others = (folder / "checkpoints" / f"ckpt-{step}.{DATA}" for step in (30, 20, 10))
    flip(newest)
    notes: list[str] = []
    assert choose_checkpoint(folder, None, "", notes.append).step == 20
    (note,) = notes
    assert "checkpoints/ckpt-30 is damaged and ignored" in note
    with raises("damaged-checkpoint", "--checkpoint"):
        choose_checkpoint(folder, "30", "", notes.append)
    for path in others:
        flip(path)
    with raises("damaged-checkpoint", "RUN"):
        choose_checkpoint(folder, None, "", notes.append)


def test_export_of_a_checkpoint_of_another_model_is_rejected(three, tmp_path):
    other = digits_config(task__model__hidden_units=[17])
    with raises("checkpoint-mismatch"):
        exported(other, three, tmp_path / "export")
    assert not (tmp_path / "export").exists()


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_export_keeps_the_compute_precision(precision, tmp_path):
    config = digits_config(trainer__train_steps=5, runtime__mixed_precision_dtype=precision)
    model, _ = run(config, tmp_path / "run", "train")
    folder = exported(config, tmp_path / "run", tmp_path / "export")
    loaded = tf.saved_model.load(str(folder))
    types = {op.get_attr("T").name for function in [loaded.signatures["image_tensor"]]
             for op in _all_ops(function.graph) if op.type == "MatMul"}  # fmt: skip
    assert types == {precision, "float32"}  # The logits are float32.
    assert all(each.dtype == tf.float32 for each in loaded.signatures["image_tensor"].variables)
    # With 8 or 11 bits, since a graph and single ops round in different places.
    check(folder, logits(model), atol=0.02)


def _all_ops(graph: Any) -> Any:
    yield from graph.get_operations()
    for name in graph._functions:
        yield from graph._get_function(name).graph.get_operations()


@pytest.mark.parametrize(
    ("exports", "expected"),
    [(["100", "20", "300-keras"], "100"), (["20-litert"], None)],
)
def test_saved_model_of_the_last_step_is_found(exports, expected, tmp_path):
    for name in exports:
        (tmp_path / name).mkdir()
        file = "model.keras" if "-" in name else "saved_model.pb"
        (tmp_path / name / file).touch()
    assert find_export(tmp_path) == (expected and tmp_path / expected)
