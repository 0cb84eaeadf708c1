"""Exported models give the same answers as the trained ones.

`tests/contracts/test_tasks.py` asks the exports of each task in a process with TensorFlow alone.
"""

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
from tests.support.digits import digits_config, resnet_config
from tests.support.images import write_folder
from tests.support.problems import raises
from tests.support.toy import Notes, run, toy_config

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
def test_run_on_replicas_exports_its_model_at_the_end_and_again(tmp_path):
    # Each replica keeps moving averages of its own.
    config = resnet_config(trainer__export_subdir="served", trainer__train_steps=4)
    notes = Notes()
    model, _ = run(config, tmp_path, "train", "mirrored2", notes=notes)
    folder = tmp_path / "served/4"
    assert any("exported step 4" in note for note in notes.notes)
    record = json.loads((folder / "assets.extra" / "export.json").read_text())
    assert (record["fingerprint"], record["step"]) == (weights_fingerprint(model), 4)
    assert record["weights"] == "plain"
    expected = logits(model)
    check(folder, expected)
    served = tf.saved_model.load(str(folder)).signatures["serving_default"]
    outputs = served(images=tf.constant(pngs(IMAGES)))
    np.testing.assert_allclose(outputs["logits"], expected, atol=1e-5)
    np.testing.assert_allclose(outputs["probabilities"], tf.nn.softmax(expected), atol=1e-5)
    _check_that_ops_have_no_device(folder)

    (folder / "marker").touch()
    run(config, tmp_path, "train")
    assert find_export(tmp_path / "served") == folder
    assert [path.name for path in (tmp_path / "served").iterdir()] == ["4"]
    assert not (folder / "marker").exists()


def _check_that_ops_have_no_device(folder: Path) -> None:
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((folder / "saved_model.pb").read_bytes())
    (graph,) = saved.meta_graphs
    nodes = [node for each in graph.graph_def.library.function for node in each.node_def]
    assert "MatMul" in {node.op for node in nodes}
    # Saving itself assigns the CPU to the ops that read files and strings.
    looked_at = ("MatMul", "ReadVariableOp", "Softmax")
    assert {node.device for node in nodes if node.op in looked_at} == {""}


def test_image_files_are_preprocessed_as_in_evaluation(tmp_path):
    write_folder(tmp_path / "train", {"cat": 6, "dog": 6})
    files = sorted(write_folder(tmp_path / "val", {"cat": 6, "dog": 6}, first=50))
    changes: dict[str, Any] = {
        f"task__{section}__{name}": value
        for section in ("train_data", "validation_data")
        for name, value in (("source", "image_folder"), ("data_dir", str(tmp_path)))
    }
    config = digits_config(
        **changes,
        task__model__input_size=[16, 16, 3],
        task__validation_data__global_batch_size=12,
        task__validation_data__center_crop_fraction=0.5,
    )
    task = TASKS.get("image_classification").load()(config.task)
    model = task.build_model()
    images, _, weights = next(iter(task.build_inputs(config.task.validation_data)))
    assert weights.numpy().tolist() == [1.0] * 12

    signatures = task.serving(model).signatures

    assert signatures["class_names"]()["names"].numpy().tolist() == [b"cat", b"dog"]
    content = tf.constant([path.read_bytes() for path in files])
    logits_of_files = signatures["image_bytes"](images=content)["logits"].numpy()
    np.testing.assert_allclose(logits_of_files, logits(model, images), atol=1e-5)
    assert np.abs(logits_of_files[0] - logits_of_files[1]).max() > 1e-3


def _averages(run_folder: Path, step: int, model: tf_keras.Model) -> None:
    """Copies the averages of a checkpoint into a model by hand."""
    content = CheckpointContent(run_folder / "checkpoints" / f"ckpt-{step}")
    stored = (attribute for node in content.graph.nodes for attribute in node.attributes)
    keys = {attribute.full_name: attribute.checkpoint_key for attribute in stored}
    for weight in model.trainable_variables:
        weight.assign(content.tensor(keys[f"{variable_name(weight)}/average"]))


@pytest.mark.slow
def test_export_uses_the_selected_kind_of_weights_and_checkpoint(tmp_path):
    config = digits_config(**EMA, **BEST)
    model, _ = run(config, tmp_path / "run")
    plain = logits(model)
    _averages(tmp_path / "run", 60, model)
    average = logits(model)
    assert np.abs(plain - average).max() > 0.01
    for kind, expected in (("plain", plain), ("average", average), (None, average)):
        to = tmp_path / str(kind)
        check(exported(config, tmp_path / "run", to, checkpoint="newest", weights=kind), expected)

    best = json.loads((tmp_path / "run/best/info.json").read_text())["best_ckpt_global_step"]
    _averages(tmp_path / "run", best, model)
    folder = exported(config, tmp_path / "run", tmp_path / "export", checkpoint="best")
    assert folder.name == str(best)
    check(folder, logits(model))
    with raises("not-allowed", "--weights"):
        exported(config, tmp_path / "run", tmp_path / "b", checkpoint="best", weights="plain")


@pytest.mark.slow
def test_eager_run_exports_its_model_at_the_end(tmp_path):
    changes = {"trainer__export_subdir": "served", "trainer__train_steps": 5}
    model, _ = run(digits_config(**changes, runtime__run_eagerly=True), tmp_path, "train")
    check(tmp_path / "served/5", logits(model))


def test_task_that_cannot_be_exported_is_rejected_before_training(tmp_path):
    with raises("missing-method", "trainer.export_subdir"):
        run(toy_config(trainer__export_subdir="served"), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """A run with checkpoints of steps 10, 20 and 30."""
    folder = tmp_path_factory.mktemp("three")
    run(digits_config(trainer__train_steps=30, trainer__checkpoint_interval=10), folder, "train")
    return folder


def test_failed_export_leaves_no_files_behind(three, tmp_path, monkeypatch):
    def fails(root: Any, path: str, **unused: Any) -> None:
        Path(path).mkdir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", fails)
    with raises("not-writable"):
        exported(digits_config(), three, tmp_path / "export")
    assert not list((tmp_path / "export").iterdir())


def test_checkpoint_is_chosen_by_step_and_a_damaged_one_is_skipped(three, tmp_path):
    for asked, step in ((None, 30), ("newest", 30), ("20", 20)):
        choice = choose_checkpoint(three, asked, "", pytest.fail)
        assert (choice.step, choice.is_best, choice.record().step) == (step, False, step)

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
def test_export_keeps_the_compute_precision(tmp_path):
    config = digits_config(trainer__train_steps=5, runtime__mixed_precision_dtype="bfloat16")
    model, _ = run(config, tmp_path / "run", "train")
    folder = exported(config, tmp_path / "run", tmp_path / "export")
    loaded = tf.saved_model.load(str(folder))
    types = {op.get_attr("T").name for function in [loaded.signatures["image_tensor"]]
             for op in _all_ops(function.graph) if op.type == "MatMul"}  # fmt: skip
    assert types == {"bfloat16", "float32"}  # The logits are float32.
    assert all(each.dtype == tf.float32 for each in loaded.signatures["image_tensor"].variables)
    # With 8 bits, since a graph and single ops round in different places.
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
