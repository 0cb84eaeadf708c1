"""`runner export`, and the export at the end of `runner run`."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.cli.main import main
from orbit_runner.config.errors import ConfigError
from orbit_runner.config.resolve import Request, resolve

EMA = "--trainer.optimizer_config.ema.average_decay=0.9"
# The threads of the process that runs the tests are settled by its first op.
RUN = ["run", "--experiment=digits_mlp", "--runtime.intra_op_threads=0",
       "--train_steps=20", "--task.model.hidden_units=[8]",
       "--trainer.checkpoint_interval=10", "--trainer.max_to_keep=2", EMA]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds a run of 20 steps."""
    folder = tmp_path_factory.mktemp("made")
    assert main([*RUN, f"--model_dir={folder / 'run'}"]) == 0
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy of the run."""
    return Path(shutil.copytree(made / "run", tmp_path / "run"))


@pytest.fixture
def exported(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Runs the command, which has to end in 0, and returns its JSON."""

    def run(*arguments: object) -> dict[str, Any]:
        capsys.readouterr()
        assert main(["export", *map(str, arguments), "--json"]) == 0
        return dict(json.loads(capsys.readouterr().out))

    return run


Exported = Callable[..., dict[str, Any]]


def test_the_newest_checkpoint_and_its_average(run: Path, exported: Exported) -> None:
    record = exported(run)
    assert record.pop("path") == str(run / "export/20")
    extra = run / "export/20/assets.extra"
    assert json.loads((extra / "export.json").read_text()) == record
    assert record["step"] == 20
    assert record["weights"] == "average"
    assert record["experiment"] == "digits_mlp"
    assert record["task"] == "image_classification"
    assert record["run"] == str(run.resolve())
    assert record["checkpoint"] == "checkpoints/ckpt-20"
    assert record["precision"] == "float32"
    assert record["versions"]["tensorflow"].startswith("2.20")
    assert record["default"] == "image_bytes"
    assert record["signatures"]["image_tensor"] == {
        "inputs": {"images": "uint8 [?, 8, 8, 1]"},
        "outputs": {"logits": "float32 [?, 10]", "probabilities": "float32 [?, 10]"},
    }
    assert record["signatures"]["image_bytes"]["inputs"] == {"images": "string [?]"}
    assert record["signatures"]["class_names"]["outputs"] == {"names": "string [10]"}
    assert (run / "export/20/saved_model.pb").is_file()
    written = resolve(Request(experiment=str(extra / "config.yaml"))).config
    assert written == resolve(Request(experiment=str(run))).config


def test_what_was_asked_for(run: Path, tmp_path: Path, exported: Exported) -> None:
    plain = exported(run, "--weights=plain", "--checkpoint=10", f"--to={tmp_path / 'to'}")
    assert plain["path"] == str(tmp_path / "to/10")
    assert plain["weights"] == "plain"
    noted = json.loads((run / "checkpoints/ckpt-10.json").read_text())
    assert plain["fingerprint"] == noted["weights"]
    assert not (run / "export").exists()
    average = exported(run, "--checkpoint=checkpoints/ckpt-10", f"--to={tmp_path / 'b'}")
    assert average["fingerprint"] != plain["fingerprint"]


def test_what_is_printed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run)]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == f"{run / 'export/20'}: step 20, average weights"
    assert "image_bytes  (serving_default)" in out
    assert "  output  probabilities  float32 [?, 10]" in out
    assert "building the model" in err


def test_a_config_that_was_changed_is_told(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("seed: 17", "seed: 18"))
    assert main(["export", str(run)]) == 0
    assert "ckpt-20 was made with another config than" in capsys.readouterr().err


def test_data_that_has_moved_is_told(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("source: digits", "source: mnist"))
    assert main(["export", str(run), "--data_dir=/nowhere"]) == 2
    err = capsys.readouterr().err
    assert "/nowhere" in err
    assert "--data_dir" in err
    assert not (run / "export").exists()


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "the following arguments are required: RUN"),
        (("nope",), "RUN: nope is no directory\ngive a run directory"),
        ((".",), "RUN: . has no config.yaml"),
        (("bare",), "RUN: there is no checkpoint in bare/checkpoints\ntrain first"),
        (("run", "--checkpoint=11"), "has none of it\nthere are those of steps 10, 20"),
        (("run", "--checkpoint=x/ckpt-1"), "--checkpoint: there is none at 'x/ckpt-1'"),
        (("run", "--checkpoint=best"), "there is no best checkpoint in run/best"),
        (("run", "--weights=mean"), "argument --weights: invalid choice: 'mean'"),
        (("run", "--wieghts=plain"), "unknown flag --wieghts; did you mean '--weights'?"),
        (("run", "--to=full"), "--to: there is full/20 already"),
        (("run", "--to=file"), "--to: file is a file, expected a folder"),
        (("run", "b"), "unknown argument b"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_before_tensorflow_is_imported(
    arguments: tuple[str, ...],
    message: str,
    made: Path,
    without_tensorflow: dict[str, str],
    refused: Callable[..., str],
) -> None:
    (made / "bare").mkdir(exist_ok=True)
    shutil.copy(made / "run/config.yaml", made / "bare")
    (made / "full/20").mkdir(parents=True, exist_ok=True)
    (made / "file").touch()
    assert message in refused(made, "export", *arguments, env=without_tensorflow)


@pytest.mark.parametrize(
    ("flags", "path", "message"),
    [
        (["export_weights=plain"], "export_subdir", "has to be set too"),
        (["export_checkpoint=best"], "export_subdir", "has to be set too"),
        (["export_subdir=e", "export_checkpoint=best"], "export_checkpoint", "subdir is not"),
        (["export_subdir=e", "export_weights=average"], "export_weights", "ema is not set"),
        (["export_subdir=checkpoints"], "export_subdir", "where checkpoints are"),
        (["export_subdir=b", "best_checkpoint_export_subdir=b", "best_checkpoint_eval_metric=m"],
         "export_subdir", "where checkpoints are"),
        (["export_subdir=e", "export_checkpoint=best", "export_weights=plain",
          "best_checkpoint_export_subdir=b", "best_checkpoint_eval_metric=m",
          "optimizer_config.ema.average_decay=0.9"], "export_weights", "holds averaged weights"),
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other(flags: list[str], path: str, message: str) -> None:
    pairs = [flag.split("=") for flag in flags]
    settings = tuple((f"--trainer.{name}", f"trainer.{name}", value) for name, value in pairs)
    with pytest.raises(ConfigError) as caught:
        resolve(Request(experiment="digits_mlp", flags=settings))
    (problem,) = caught.value.problems
    assert problem.path == f"trainer.{path}"
    assert message in problem.message


def test_a_run_exports_at_its_end(
    tmp_path: Path, exported: Exported, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    end = ["--trainer.export_subdir=served", "--trainer.export_weights=plain"]
    assert main([*RUN, *end, f"--model_dir={run}", "--json"]) == 0
    out, err = capsys.readouterr()
    assert f"exported step 20 to {run / 'served/20'}" in err
    record = json.loads((run / "served/20/assets.extra/export.json").read_text())
    assert record["fingerprint"] == json.loads(out)["fingerprint"]
    later = exported(run, "--weights=plain")
    assert later.pop("path") == str(run / "export/20")
    assert later == record
