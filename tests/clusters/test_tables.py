"""Two workers train on a table and on arrays like one process, also after they are killed."""

import time

import pytest

from orbit_runner.config.serialize import to_yaml
from tests.clusters.members import (
    MULTI_WORKER,
    alone,
    cluster,
    content,
    mirrored,
    run_workers,
)
from tests.support.keras_models import keras_config
from tests.support.tables import make_rows, table_config, write_csv

_STEPS = 400
_SHORT = {
    "trainer__train_steps": _STEPS,
    "trainer__checkpoint_interval": 20,
    "trainer__validation_interval": 200,
}


def _config(name, folder):
    if name == "keras":
        return keras_config(**_SHORT)
    return table_config(write_csv(folder / "table.csv", make_rows()), **_SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["csv", "keras"])
def test_killed_workers_end_with_the_weights_of_one_process(name, tmp_path):
    path = tmp_path / "experiment.yaml"
    path.write_text(to_yaml(_config(name, tmp_path)), encoding="utf-8")
    flags = (f"--experiment={path}", "--runtime.num_gpus=0")
    alone(tmp_path / "one", *flags, *mirrored(2))
    with cluster(tmp_path / "two", *flags, MULTI_WORKER, worker=2) as members:
        _wait_for_checkpoint(tmp_path / "two", members["worker0"])
    assert members["worker0"].process.returncode == -9, "the run ended before it was killed"
    outputs = run_workers(tmp_path / "two", *flags)

    assert "training from step 0 " not in outputs["worker0"]
    assert content(tmp_path / "two") == content(tmp_path / "one")


def _wait_for_checkpoint(folder, chief):
    end = time.monotonic() + 300.0
    while not [*(folder / "run" / "checkpoints").glob("ckpt-*.index")]:
        assert chief.process.poll() is None, chief.text
        assert time.monotonic() < end, chief.text
        time.sleep(0.02)
