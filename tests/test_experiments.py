"""Every file in experiments/ with the smoke fragment on top: builds, trains and evaluates.

A sample of them does so with other fragments of the runtime, too.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import tensorflow as tf

from orbit_runner.config.parsing.search_path import shipped_root
from orbit_runner.config.resolve import Request, resolve
from tests.support.small_experiments import SMALLER, overrides, sampled
from tests.support.toy import Notes, run

_SMOKE = "configs/trainer/smoke.yaml"
_NAMES = sorted(path.stem for path in (shipped_root() / "experiments").iterdir())


def _config(name: str, *more: str) -> Any:
    """Returns the config of a short run; `more` are fragments and settings."""
    files = tuple(text for text in more if text.endswith(".yaml"))
    settings = tuple(text for text in more if text not in files)
    # The first op of the test process has already fixed its number of threads.
    changes = (*overrides(name), "runtime.intra_op_threads=0", *settings)
    request = Request(experiment=name, config_files=(_SMOKE, *files), params_overrides=changes)
    return resolve(request).config


def test_every_shrunk_experiment_exists():
    assert set(SMALLER) <= set(_NAMES)


@pytest.mark.promise("commands", "every experiment trains and evaluates")
@pytest.mark.sample(1)
@pytest.mark.parametrize("name", sampled(_NAMES))
def test_experiment_trains_and_evaluates_with_the_smoke_fragment(name, here):
    # The current directory has no files of any data set.
    config = _config(name)
    assert config.runtime.deterministic
    notes = Notes()

    model, logs = run(config, here / "run", notes=notes)

    assert notes.reasons == []
    assert [step for step, _ in notes.evaluations] == [3]
    assert logs["validation_examples"] > 0
    if config.task.name == "image_classification":
        assert logs["validation_examples"] == 12
    assert all(math.isfinite(value) for value in logs.values() if isinstance(value, float)), logs
    assert {variable.dtype for variable in model.trainable_variables} == {tf.float32}
    assert [*(here / "run" / "checkpoints").glob("ckpt-3.*")]


# One pair for each task, and for each kind of network.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "runtime"),
    [
        ("transformer_wmt_ende", "configs/runtime/bfloat16.yaml"),
        ("transformer_wmt_ende", "configs/runtime/float16.yaml"),
        ("digits", "runtime.enable_xla=true"),
        ("vit_base_imagenet", "trainer.gradient_accumulation_steps=2"),
        ("ncf_movielens", "runtime.logical_replicas=2"),
    ],
)
def test_experiment_trains_and_evaluates_with_another_runtime(name, runtime, here):
    model, logs = run(_config(name, runtime), here / "run")

    assert all(math.isfinite(value) for value in logs.values() if isinstance(value, float)), logs
    assert {variable.dtype for variable in model.trainable_variables} == {tf.float32}
    assert [*(here / "run" / "checkpoints").glob("ckpt-3.*")]
