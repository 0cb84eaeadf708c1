"""Which values of `runtime.logical_replicas` are allowed, and what identifies a run with them."""

from __future__ import annotations

from typing import Any

import pytest

from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.partitioning import batch_problems
from orbit_runner.config.serialize import to_yaml
from orbit_runner.jobs.preflight import check_same_config
from tests.support.problems import check, raises

_FOUR = "runtime.logical_replicas=4"
_MIRRORED = "runtime.distribution_strategy=mirrored,runtime.num_virtual_devices=2"


def test_rows_of_translation_batches_must_be_divided_equally():
    overrides = (_FOUR, "task.train_data.batch_rows_multiple=6")
    request = Request(experiment="transformer_multi30k", params_overrides=overrides)
    problems = batch_problems(resolve(request).config, 1)

    check(problems, ("not-divisible", "task.train_data.batch_rows_multiple"))


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
def test_devices_identify_a_run_only_without_logical_replicas(over_digits, said):
    plain, cut = over_digits(), over_digits(params_overrides=(_FOUR,))

    assert config_fingerprint(over_digits(params_overrides=(said,))) != config_fingerprint(plain)
    changed = over_digits(params_overrides=(_FOUR, said))
    assert config_fingerprint(changed) == config_fingerprint(cut) != config_fingerprint(plain)


def _resolved(*overrides: str) -> Any:
    return resolve(Request(experiment="digits", params_overrides=overrides))


def test_run_continues_on_other_devices_but_not_with_another_number(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "checkpoint").write_text('model_checkpoint_path: "ckpt-4"\n')
    (tmp_path / "checkpoints" / "ckpt-4.index").write_text("")
    (tmp_path / "config.yaml").write_text(to_yaml(_resolved(_FOUR).config))

    check_same_config(_resolved(_FOUR, _MIRRORED), tmp_path)
    with raises("other-config", "runtime.logical_replicas"):
        check_same_config(_resolved("runtime.logical_replicas=2"), tmp_path)
