"""The task on TFRecord files: runs that stop and resume, and settings that do not fit."""

import numpy as np
import pytest

from orbit_runner.data.augment import CropFlip
from orbit_runner.tasks.image_classification.sources import load_source
from orbit_runner.tasks.image_classification.task import ImageClassificationTask
from tests.support.digits import digits_config
from tests.support.problems import pairs
from tests.support.tfrecords import (
    train_records,
    write_set,
)

_CLASSES = 7
_TRAIN = "task__train_data__"


@pytest.fixture
def records_config(tmp_path, own_cache):
    folder = tmp_path / "set"
    folder.mkdir()
    write_set(folder, classes=_CLASSES)

    def config(**changes):
        settings = {"task__model__num_classes": _CLASSES}
        for section, pattern in (("train_data", "train-*"), ("validation_data", "train-0[0-3]")):
            settings |= {
                f"task__{section}__source": "tfrecord",
                f"task__{section}__data_dir": str(folder),
                f"task__{section}__input_path": pattern,
            }
        return digits_config(**{**settings, "task__train_data__global_batch_size": 32, **changes})

    return config


@pytest.mark.slow
def test_training_inputs_reflect_every_setting(records_config):
    source = load_source(records_config().task.train_data)
    cases = [
        ({"seed": 3}, {"seed": 3}),
        ({"shuffle_buffer_size": 9}, {"shuffle_buffer_size": 9}),
        ({"augment": "crop"}, {"augmentation": CropFlip(4, flip=False)}),
        ({"augment": "crop_flip", "augment_padding": 1}, {"augmentation": CropFlip(1)}),
    ]
    seen = set()
    for changes, options in cases:
        config = records_config(**{f"{_TRAIN}{name}": value for name, value in changes.items()})
        task = ImageClassificationTask(config.task)
        inputs = task.build_inputs(config.task.train_data, start_step=5)
        usual = {"seed": 0, "shuffle_buffer_size": 100, "start_step": 5}
        expected = train_records(source, global_batch_size=32, **{**usual, **options})
        image, label = next(iter(inputs))
        other = next(iter(expected))
        np.testing.assert_array_equal(image, other["image"])
        np.testing.assert_array_equal(label, other["label"])
        seen.add(image.numpy().tobytes())
    assert len(seen) == len(cases)


def test_preflight_reports_unusable_files_and_mismatched_datasets(records_config, tmp_path):
    (tmp_path / "set" / "train-01").write_bytes(b"no record")
    other = tmp_path / "other"
    other.mkdir()
    write_set(other, [3], (7, 5, 3))
    changes = [
        ({f"{_TRAIN}input_path": "train-00", "task__validation_data__input_path": "train-03"}, []),
        ({}, [("train_data.input_path", "train-01: "), ("validation_data.input_path", "train-01")]),
        ({f"{_TRAIN}input_path": "train-00", "task__validation_data__input_path": "'*'",
          "task__validation_data__data_dir": str(other)},
         [("validation_data.source", "got images [7, 5, 3] of uint8, expected [6, 5, 3]")]),
        ({f"{_TRAIN}input_path": "train-00", "task__validation_data__source": "digits",
          "task__validation_data__data_dir": "''", "task__validation_data__input_path": "[]"},
         [("model.num_classes", "got 7, expected at least 10, the classes of validation_data"),
          ("validation_data.source", "got images [8, 8, 1]")]),
    ]  # fmt: skip
    for settings, expected in changes:
        problems = pairs(records_config(**settings).data.problems())
        assert [field for field, _ in problems] == [field for field, _ in expected]
        for (_, message), (_, part) in zip(problems, expected, strict=True):
            assert part in message
