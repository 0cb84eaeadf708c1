"""Which values of `runtime.logical_replicas` are allowed, and what identifies a run with them."""
# ruff: noqa: E501 (one line a case)

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.partitioning import batch_problems, run_problems
from orbit_runner.config.serialize import to_yaml
from orbit_runner.jobs.preflight import check_same_config

_FOUR = "runtime.logical_replicas=4"
_MIRRORED = "runtime.distribution_strategy=mirrored,runtime.num_virtual_devices=2"


@pytest.mark.parametrize(
    ("said", "devices", "expected"),
    [
        ("", 1, []),
        ("", 4, []),
        ("", 3, [("runtime.logical_replicas", "got 4, which is not a multiple of 3, the number of devices that share a batch\nnearest: 3 and 6")]),
        ("", 8, [("runtime.logical_replicas", "got 4, which is not a multiple of 8, the number of devices that share a batch\nnearest: 8")]),
        ("task.train_data.global_batch_size=66", 2,
         [("task.train_data.global_batch_size", "got 66, which is not a multiple of 4 (4 logical replicas)\nnearest: 64 and 68")]),
        ("task.validation_data.global_batch_size=3", 1,
         [("task.validation_data.global_batch_size", "got 3, which is not a multiple of 4 (4 logical replicas)\nnearest: 4")]),
        ("trainer.gradient_accumulation_steps=32", 2,
         [("task.train_data.global_batch_size", "got 64, which is not a multiple of 128 (4 logical replicas × 32 accumulation steps)\nnearest: 128")]),
        ("trainer.eval_tf_function=false", 1,
         [("trainer.eval_tf_function", "got false, but runtime.logical_replicas is 4, which needs graphs\nallowed: true")]),
    ],
)  # fmt: skip
def test_devices_and_batches_must_be_divided_equally(
    over_digits: Callable[..., Any], said: str, devices: int, expected: list[tuple[str, str]]
) -> None:
    config = over_digits(params_overrides=(_FOUR, *([said] if said else [])))

    assert [*batch_problems(config, devices)] == expected


def test_rows_of_translation_batches_must_be_divided_equally() -> None:
    said = (_FOUR, "task.train_data.batch_rows_multiple=6")
    request = Request(experiment="transformer_multi30k", params_overrides=said)
    problems = dict(batch_problems(resolve(request).config, 1))

    assert problems["task.train_data.batch_rows_multiple"].endswith("nearest: 4 and 8")


@pytest.mark.parametrize(
    ("said", "path", "message"),
    [
        ("runtime.distribution_strategy=parameter_server", "runtime.logical_replicas", "no two workers share a batch"),
        ("runtime.distribution_strategy=tpu,runtime.tpu=local", "runtime.logical_replicas", "`tpu` itself divides the batches"),
        ("runtime.run_eagerly=true", "runtime.run_eagerly", "which needs graphs"),
    ],
)  # fmt: skip
def test_settings_that_exclude_logical_replicas_are_rejected(
    over_digits: Callable[..., Any], said: str, path: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        over_digits(params_overrides=(_FOUR, said))

    messages = {problem.path: problem.message for problem in caught.value.problems}
    assert message in messages[path]


def test_images_that_are_split_exclude_logical_replicas(over_digits: Callable[..., Any]) -> None:
    split = "runtime.train_input_partition_dims=[1,2,1,1]"
    config = over_digits(params_overrides=(_FOUR, _MIRRORED, split))
    problems = dict(run_problems(config, "train"))

    assert "only one of them can divide a batch" in problems["runtime.logical_replicas"]


@pytest.mark.parametrize(
    "said",
    [
        _MIRRORED,
        "runtime.distribution_strategy=off",
        "runtime.distribution_strategy=multi_worker_mirrored,runtime.num_workers=2",
        "runtime.num_gpus=1",
        "runtime.distribution_strategy=mirrored,runtime.num_gpus=2,runtime.all_reduce_alg=nccl",
    ],
)
def test_devices_identify_a_run_only_without_logical_replicas(
    over_digits: Callable[..., Any], said: str
) -> None:
    plain, cut = over_digits(), over_digits(params_overrides=(_FOUR,))

    assert config_fingerprint(over_digits(params_overrides=(said,))) != config_fingerprint(plain)
    changed = over_digits(params_overrides=(_FOUR, said))
    assert config_fingerprint(changed) == config_fingerprint(cut) != config_fingerprint(plain)


def test_number_of_logical_replicas_identifies_a_run(over_digits: Callable[..., Any]) -> None:
    four = over_digits(params_overrides=(_FOUR,))
    eight = over_digits(params_overrides=("runtime.logical_replicas=8",))

    assert config_fingerprint(four) != config_fingerprint(eight)


def _resolved(*said: str) -> Any:
    return resolve(Request(experiment="digits", params_overrides=said))


def test_run_continues_on_other_devices_but_not_with_another_number(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "checkpoint").write_text('model_checkpoint_path: "ckpt-4"\n')
    (tmp_path / "checkpoints" / "ckpt-4.index").write_text("")
    (tmp_path / "config.yaml").write_text(to_yaml(_resolved(_FOUR).config))

    check_same_config(_resolved(_FOUR, _MIRRORED), tmp_path)
    with pytest.raises(ConfigError, match=r"got 2, but .* contains a run with 4\n.*allowed: 4"):
        check_same_config(_resolved("runtime.logical_replicas=2"), tmp_path)
