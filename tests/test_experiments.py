"""Every file in experiments/ on small datasets in the formats that it is written for.

One of them without files and one in float16, too, by fragments of the config.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.config.parsing.search_path import experiment_files
from orbit_runner.config.resolve import Request, resolve
from tests.support.images import write_records
from tests.support.small_experiments import SMALLER, overrides
from tests.support.toy import Notes, run
from tests.support.translations import sentences, write_pairs

_TRAIN, _VALIDATION = 40, 12


def _nothing(folder: Path) -> dict[str, Any]:
    return {}


def _idx(folder: Path) -> dict[str, Any]:
    for name, size in (("train", _TRAIN), ("t10k", _VALIDATION)):
        random = np.random.default_rng(size)
        for kind, array in (
            ("images-idx3", random.integers(0, 256, (size, 28, 28))),
            ("labels-idx1", random.integers(0, 10, size)),
        ):
            head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            content = head + array.astype(np.uint8).tobytes()
            (folder / f"{name}-{kind}-ubyte").write_bytes(content)
    return _both("data_dir", folder)


def _cifar(folder: Path) -> dict[str, Any]:
    sizes = {f"data_batch_{number}": _TRAIN // 5 for number in range(1, 6)}
    for name, size in (sizes | {"test_batch": _VALIDATION}).items():
        records = np.random.default_rng(size).integers(0, 256, (size, 3073)).astype(np.uint8)
        records[:, 0] %= 10
        records.tofile(folder / f"{name}.bin")
    return _both("data_dir", folder)


def _imagenet(folder: Path) -> dict[str, Any]:
    write_records(folder, [_TRAIN // 2] * 2, classes=9, offset=1)
    write_records(folder, [_VALIDATION], classes=9, offset=1, name="validation")
    return {
        "task.train_data.input_path": str(folder / "train*"),
        "task.validation_data.input_path": str(folder / "valid*"),
    }


def _multi30k(folder: Path) -> dict[str, Any]:
    return _languages(folder) | {"task.vocab_size": 40}


def _languages(folder: Path) -> dict[str, Any]:
    write_pairs(folder, "train", sentences(_TRAIN, 0), packed=True)
    write_pairs(folder, "val", sentences(_VALIDATION, 1), packed=True)
    return _both("data_dir", folder)


def _wmt(folder: Path) -> dict[str, Any]:
    for number, name in enumerate(("europarl-v7", "commoncrawl")):
        write_pairs(folder, f"{name}.de-en", sentences(_TRAIN // 2, number), packed=False)
    write_pairs(folder, "newstest2013", sentences(_VALIDATION, 9), packed=False)
    return _both("data_dir", folder) | {"task.vocab_size": 40}


def _movielens(folder: Path) -> dict[str, Any]:
    random = np.random.default_rng(0)
    lines = [
        f"{user}::{item}::{item % 5 + 1}::{978300000 + place}\n"
        for user in range(1, _VALIDATION + 1)
        for place, item in enumerate(random.permutation(150)[:25] + 1)
    ]
    (folder / "ratings.dat").write_text("".join(lines), encoding="utf-8")
    return _both("data_dir", folder)


def _both(setting: str, folder: Path) -> dict[str, Any]:
    return {
        f"task.{section}.{setting}": str(folder) for section in ("train_data", "validation_data")
    }


FILES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "breast_cancer": _nothing,
    "diabetes": _nothing,
    "digits": _nothing,
    "digits_mlp": _nothing,
    "efficientnet_imagenet": _imagenet,
    "fashion_mnist": _idx,
    "mnist": _idx,
    "ncf_movielens": _movielens,
    "resnet50_imagenet": _imagenet,
    "resnet_cifar": _cifar,
    "resnet_cifar_v2": _cifar,
    "text_language": _languages,
    "transformer_multi30k": _multi30k,
    "transformer_wmt_ende": _wmt,
    "vit_base_imagenet": _imagenet,
}
_SHORT = {
    "task.train_data.global_batch_size": 8,
    "task.validation_data.global_batch_size": 8,
    "trainer.train_epochs": 0,
    "trainer.train_steps": 3,
    "trainer.validation_interval": 3,
    # The first op of the test process has already fixed its number of threads.
    "runtime.intra_op_threads": 0,
}


def test_every_experiment_has_a_dataset_writer():
    assert set(FILES) == set(experiment_files())
    assert set(SMALLER) <= set(FILES)


@pytest.mark.promise("commands", "every experiment trains and evaluates")
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FILES))
def test_experiment_trains_and_evaluates_on_small_files(name, tmp_path):
    (tmp_path / "data").mkdir()
    changes = FILES[name](tmp_path / "data") | _SHORT
    overrides_of_files = tuple(f"{path}={value}" for path, value in changes.items())
    config = resolve(
        Request(experiment=name, params_overrides=(*overrides(name), *overrides_of_files))
    ).config
    assert list(config.data.problems()) == []
    notes = Notes()

    _, logs = run(config, tmp_path / "run", notes=notes)

    assert [step for step, _ in notes.evaluations] == [3]
    if not name.startswith("digits"):
        assert logs["validation_examples"] >= _VALIDATION
    assert all(math.isfinite(value) for value in logs.values() if isinstance(value, float)), logs
    assert (tmp_path / "run" / "best" / "info.json").exists() == bool(
        config.trainer.best_checkpoint_export_subdir
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fragments"),
    [("digits", ()), ("transformer_wmt_ende", ("configs/runtime/float16.yaml",))],
)
def test_experiment_trains_and_evaluates_with_the_smoke_fragment(name, fragments, here):
    # The current directory has no files of any data set.
    files = ("configs/trainer/smoke.yaml", *fragments)
    changes = (*overrides(name), "runtime.intra_op_threads=0")
    request = Request(experiment=name, config_files=files, params_overrides=changes)
    notes = Notes()

    model, logs = run(resolve(request).config, here / "run", notes=notes)

    assert [step for step, _ in notes.evaluations] == [3]
    assert notes.reasons == []
    assert logs["validation_examples"] > 0
    assert all(math.isfinite(value) for value in logs.values() if isinstance(value, float)), logs
    assert {variable.dtype for variable in model.trainable_variables} == {tf.float32}
    assert [*(here / "run" / "checkpoints").glob("ckpt-3.*")]
