"""Two workers train on a table like two devices of one process."""

import pytest

from orbit_runner.config.serialize import to_yaml
from tests.clusters.members import alone, content, mirrored, run_workers
from tests.support.tables import make_rows, table_config, write_csv


@pytest.mark.slow
def test_workers_end_with_the_weights_of_one_process(tmp_path):
    table = write_csv(tmp_path / "table.csv", make_rows())
    path = tmp_path / "experiment.yaml"
    path.write_text(to_yaml(table_config(table, trainer__train_steps=40)), encoding="utf-8")
    flags = (f"--experiment={path}", "--runtime.num_gpus=0")
    alone(tmp_path / "one", *flags, *mirrored(2))
    run_workers(tmp_path / "two", *flags)

    assert content(tmp_path / "two") == content(tmp_path / "one")
