"""The export at the end of a run on several processes: by the chief, from the checkpoint."""

import json

import pytest

from orbit_runner.cli.main import main
from tests.clusters.members import EXPERIMENT, MULTI_WORKER, cluster, finish

END = (
    *EXPERIMENT,
    "--train_steps=5",
    "--trainer.validation_interval=5",
    "--trainer.export_subdir=export",
    "--trainer.optimizer_config.ema.average_decay=0.9",
    "--config_file=no_best.yaml",
)
SERVED = ("--runtime.distribution_strategy=parameter_server",)


def _record(export):
    text = (export / "5/assets.extra/export.json").read_text()
    return dict(json.loads(text))


@pytest.fixture
def later(capsys):
    """Exports a run again, in a single process."""

    def export(run):
        assert main(["export", str(run), f"--to={run / 'later'}"]) == 0
        return _record(run / "later")

    return export


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "counts"),
    [
        pytest.param((MULTI_WORKER,), {"worker": 2}, id="workers"),
        pytest.param(
            SERVED, {"chief": 1, "worker": 1, "ps": 2}, id="served", marks=pytest.mark.matrix
        ),
    ],
)
def test_export_by_the_chief_equals_an_export_by_one_process(flags, counts, tmp_path, later):
    none = "trainer: {best_checkpoint_export_subdir: '', best_checkpoint_eval_metric: ''}\n"
    (tmp_path / "no_best.yaml").write_text(none)
    with cluster(tmp_path, *END, *flags, **counts) as members:
        codes = finish(members, timeout=600)
        outputs = {name: member.text for name, member in members.items()}
    assert set(codes.values()) == {0}, outputs
    chief = "chief0" if "chief" in counts else "worker0"
    assert [name for name, text in outputs.items() if "exported step 5" in text] == [chief]
    record = _record(tmp_path / "run/export")
    assert record["weights"] == "average"
    assert later(tmp_path / "run") == record
