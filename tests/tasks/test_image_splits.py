"""`task.split` of image classification: settings, both sections, a run, and what looks at it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.tasks.image_classification.data import ImageData
from orbit_runner.tasks.image_classification.sources import section_source
from orbit_runner.train.run_warnings import find_shared_examples
from tests.support.array_records import write_array_file
from tests.support.digits import digits_config
from tests.support.hugging_face import class_label, image_table, save_to_disk
from tests.support.images import (
    png,
    refused_problems,
    write_folder,
    write_listed,
    write_records,
    write_tfds,
)
from tests.support.problems import pairs
from tests.support.toy import run, run_and_resume

FRACTIONS = {"train": 0.7, "validation": 0.3}
SECTIONS = ("train_data", "validation_data")
Make = Callable[..., ExperimentConfig]


@pytest.fixture
def make_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_folder(tmp_path / "image_folder", {"ant": 20, "bee": 12, "cat": 9})
    write_listed(tmp_path / "image_csv", {"ant": 20, "bee": 12, "cat": 9})
    write_records(tmp_path / "array_record", [25, 16], classes=3, write=write_array_file)
    write_records(tmp_path / "tfrecord", [25, 16], classes=3)
    names = ["ant", "bee", "cat"]
    write_tfds(tmp_path, "tfds", {"train": (41,)}, names, file_format="array_record")
    settings: dict[str, dict[str, Any]] = {
        "image_csv": {"input_path": "images", "labels_file": "labels.csv"},
        "array_record": {"input_path": "train*"},
        "tfrecord": {"input_path": "train*"},
        "tfds": {"tfds_name": "tfds", "tfds_data_dir": str(tmp_path), "data_dir": ""},
    }

    def make(source: str, **changes: Any) -> ExperimentConfig:
        if source == "hugging_face" and not (tmp_path / source).exists():
            table = image_table([png(n) for n in range(41)], kind=[n % 3 for n in range(41)])
            features = {"image": {"_type": "Image"}, "kind": class_label(*names)}
            save_to_disk(tmp_path / source, table, features)
        given: dict[str, Any] = {
            "task__model__input_size": [12, 10, 3],
            "task__model__num_classes": 3,
            "task__split__fractions": FRACTIONS,
            "trainer__train_steps": 4,
            "trainer__validation_interval": 4,
        }
        directory = {} if source == "digits" else {"data_dir": str(tmp_path / source)}
        for section in SECTIONS:
            own = {"source": source, "global_batch_size": 8, **directory}
            own |= settings.get(source, {})
            values = {k: v for k, v in own.items() if v}
            given |= {f"task__{section}__{name}": value for name, value in values.items()}
        return digits_config(**{**given, **changes})

    return make


def places_of(config: ExperimentConfig, section: str) -> list[str]:
    source = section_source(config.task, getattr(config.task, section))
    return [str(source.place(number).names) for number in range(source.size)]


@pytest.mark.parametrize(
    "source", ["image_folder", "image_csv", "array_record", "hugging_face", "tfds"]
)
def test_the_sections_read_separate_parts_of_the_same_images(
    make_config: Make, source: str
) -> None:
    config = make_config(source)
    assert [*ImageData(config.task).problems()] == []
    train, validation = (places_of(config, section) for section in SECTIONS)
    assert len(set(train) | set(validation)) == len(train) + len(validation) == 41
    assert 5 <= len(validation) <= 20
    assert find_shared_examples(config) is None
    whole = make_config(source, task__split=None)
    shared = find_shared_examples(whole)
    if source != "tfds":  # Without a split, evaluation reads another split of the dataset.
        assert shared is not None
        assert shared.count == shared.size == 41
        assert "task.split" in shared.advice


def test_settings_that_contradict_each_other_are_errors(make_config: Make) -> None:
    for source, changes, path, message in (
        ("image_folder", {"task__train_data__split": "trian"}, "task.train_data.split", "'trian'"),
        ("image_folder", {"task__split": None, "task__train_data__split": "trian"},
         "task.train_data.split", "unknown value 'trian'"),
        ("image_csv", {"task__split": {"column": "part", "stratified": True}},
         "task.split.stratified", "cannot be combined with column"),
        ("image_csv", {"task__split": {"fractions": FRACTIONS, "column": "part"}},
         "task.split.column", "got both of column and fractions"),
    ):  # fmt: skip
        assert message in refused_problems(lambda s=source, c=changes: make_config(s, **c))[path]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("source", "split", "path", "message"),
    [
        ("tfrecord", {}, "train_data.source", "TFRecord files are read in blocks"),
        ("array_record", {"stratified": True}, "split.stratified", "labels are in the records"),
        ("array_record", {"hash_of": ["id"]}, "split.hash_of", "the images have no columns"),
        ("image_csv", {"hash_of": ["persn"]}, "split.hash_of", "unknown column 'persn'"),
        ("hugging_face", {"hash_of": ["kid"]}, "split.hash_of", "unknown column 'kid'"),
        ("image_folder", {"fractions": {"train": 0.9, "validation": 1e-6}},
         "validation_data.split", "part 'validation' has no rows of 41"),
    ],
)  # fmt: skip
def test_what_cannot_be_split_is_named(
    make_config: Make, source: str, split: dict[str, Any], path: str, message: str
) -> None:
    config = make_config(source, task__split={"fractions": FRACTIONS, **split})
    assert message in dict(pairs(ImageData(config.task).problems()))[path]


def test_sources_of_a_mixture_are_split(make_config: Make, tmp_path: Path) -> None:
    mixture = [{"weight": 1.0}, {"weight": 1.0, "data_dir": str(tmp_path / "more")}]
    write_folder(tmp_path / "more", {"ant": 10, "bee": 10, "cat": 10}, first=200)
    config = make_config("image_folder", task__train_data__mixture=mixture)
    mixed = places_of(config, "train_data")
    alone = places_of(make_config("image_folder"), "train_data")
    assert mixed[: len(alone)] == alone
    assert 10 < len(mixed) - len(alone) < 30


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize("source", ["image_folder", "hugging_face", "array_record"])
def test_resumed_runs_on_parts_and_more_replicas_end_with_the_same_weights(
    make_config: Make, tmp_path: Path, source: str
) -> None:
    settings = {
        "task__split__stratified": source != "array_record",
        "trainer__validation_interval": 2,
        "trainer__checkpoint_interval": 2,
        "trainer__summary_interval": 2,
        "runtime__logical_replicas": 2,
    }
    whole = make_config(source, **settings)
    runs = run_and_resume(whole, tmp_path / "runs", at=2)
    assert runs.logs["validation_examples"] == len(places_of(whole, "validation_data"))
    replicated, _ = run(whole, tmp_path / "replicated", "train", "mirrored2")
    assert weights_fingerprint(replicated) == weights_fingerprint(runs.model)
