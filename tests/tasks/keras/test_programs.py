"""Kinds of programs as users of Keras 3 write them: exact after kills, and on two workers.

Models with a `train_step` of their own, such as GANs, are in `test_own_steps.py`.
"""

import pytest

from tests.support.configs import in_both_sections
from tests.support.images import write_folder
from tests.support.keras_models import NO_VALIDATION, keras_config
from tests.support.programs import check_kills, check_two_workers

_HERE = "tests.support.keras_programs"
_MOMENTS = (1, 4, 7)
_LOGITS = "{class_name: SparseCategoricalCrossentropy, config: {from_logits: true}}"
# The model, the data and the loss of each program, and other settings.
_PROGRAMS = {
    "images of a folder": ("image_classifier", "", _LOGITS, {"task__image_size": "[16, 16]"}),
    "two inputs and outputs": (
        "two_by_two",
        "tickets",
        f"{{priority: mse, department: {_LOGITS}}}",
        {"task__loss_weights": "{priority: 0.2, department: 1.0}"},
    ),
    "text vectorization": ("text_classifier", "reviews", "binary_crossentropy", {}),
    "own layer": ("of_own_layers", "points", _LOGITS, {}),
    "mixed precision": (
        "small_network",
        "points",
        _LOGITS,
        {"runtime__mixed_precision_dtype": "bfloat16"},
    ),
}


def _config(name, folder, **changes):
    model, data, loss, settings = _PROGRAMS[name]
    source = {**NO_VALIDATION, "task__validation_split": 0.25}
    if data:
        source["task__train_data__function"] = f"{_HERE}:{data}"
    else:
        for part in ("train", "test"):
            write_folder(folder / part, {"cat": 9, "dog": 8, "owl": 10})
        source = in_both_sections(source="image_folder", data_dir=str(folder), function="''")
        source |= {"task__validation_data__arguments": "{}"}
    base = {"task__model": f"{_HERE}:{model}", "task__loss": loss}
    return keras_config(
        **base, **source, **settings, trainer__train_steps=8, trainer__validation_interval=4,
        **changes,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
@pytest.mark.parametrize("name", _PROGRAMS)
def test_program_that_is_killed_ends_with_the_weights_of_an_uninterrupted_one(
    tmp_path, name, strategy
):
    config = _config(name, tmp_path / "images", trainer__steps_per_loop=1)
    check_kills(config, tmp_path, "train_and_eval", strategy, _MOMENTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["images of a folder", "text vectorization"])
def test_two_workers_have_the_weights_of_two_devices(tmp_path, name):
    check_two_workers(_config(name, tmp_path / "images"), tmp_path, "train_and_eval")
