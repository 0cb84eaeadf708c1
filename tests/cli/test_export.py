"""`runner export`, and the export at the end of `runner run`."""

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.cli.main import main
from orbit_runner.config.resolve import Request, resolve
from tests.support.problems import fails, output_of, raises

EMA = "--trainer.optimizer_config.ema.average_decay=0.9"
# TensorFlow fixes the thread settings of the test process at its first op.
RUN = [
    "run",
    "--experiment=digits_mlp",
    "--runtime.intra_op_threads=0",
    "--train_steps=20",
    "--task.model.hidden_units=[8]",
    "--trainer.checkpoint_interval=10",
    "--trainer.max_to_keep=2",
    EMA,
]
SERVED = ["--trainer.export_subdir=served", "--trainer.export_formats=[litert]"]  # fmt: skip


@pytest.fixture(scope="module")
def exported_run(tmp_path_factory):
    """The directory that contains a run of 20 steps, which exported its network at the end."""
    folder = tmp_path_factory.mktemp("made")
    assert main([*RUN, *SERVED, f"--model_dir={folder / 'run'}"]) == 0
    return folder


@pytest.fixture
def run(exported_run, tmp_path):
    """A copy of the run."""
    return Path(shutil.copytree(exported_run / "run", tmp_path / "run"))


def exported(*arguments: object) -> Any:
    """Runs the command, which must succeed, and returns its JSON."""
    return json.loads(output_of(["export", *map(str, arguments), "--json"]))


@pytest.mark.slow
def test_export_uses_newest_checkpoint_and_average_weights_by_default(run):
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


@pytest.mark.slow
def test_export_warns_if_config_changed_since_checkpoint(run, capsys):
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("seed: 17", "seed: 18"))
    assert main(["export", str(run)]) == 0
    assert "ckpt-20 was made with a different config than" in capsys.readouterr().err


@pytest.mark.slow
def test_export_of_a_run_without_assets_needs_its_data(run):
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("source: digits", "source: mnist"))
    assert main(["export", str(run), "--data_dir=/nowhere", f"--to={run / 'moved'}"]) == 0
    shutil.rmtree(run / "assets")
    fails(["export", str(run), "--data_dir=/nowhere"], "missing-file", "task.train_data.data_dir")
    assert not (run / "export").exists()


@pytest.mark.slow
def test_table_and_json_describe_each_format(exported_run, tmp_path):
    flags = ["--format=saved_model,litert_float16"]
    lines = output_of(
        ["export", str(exported_run / "run"), *flags, f"--to={tmp_path / 'a'}"]
    ).splitlines()
    assert lines[0] == f"{tmp_path / 'a/20'}: step 20, average weights"
    assert lines[1] == f"{tmp_path / 'a/20-litert_float16'}: step 20, average weights"
    assert "  input   image  uint8 [1, 8, 8, 1]" in lines
    assert "  output  logits  float32 [1, 10]" in lines
    assert lines[-4] == "on 359 validation examples:"
    head, model, export = (line.split() for line in lines[-3:])
    assert head[:5] == ["step", "format", "bytes", "difference", "relative"]
    assert model[:4] == ["20", "the", "model", "itself"]
    assert export[:2] == ["20", "litert_float16"]

    first, second = exported(exported_run / "run", *flags, f"--to={tmp_path / 'b'}")
    assert "check" not in first
    assert second["check"]["metrics"].keys() == second["check"]["model_metrics"].keys()
    record = json.loads((tmp_path / "b/20-litert_float16/export.json").read_text())
    assert {"path": second["path"], **record} == second
    written = resolve(Request(experiment=str(tmp_path / "b/20-litert_float16/config.yaml"))).config
    assert written == resolve(Request(experiment=str(exported_run / "run"))).config


@pytest.mark.slow
def test_report_shows_the_exports_of_the_run_directory(exported_run, tmp_path):
    page = tmp_path / "report.html"
    assert main(["report", str(exported_run / "run"), f"--html={page}"]) == 0
    section = page.read_text().partition("<h2>Exports</h2>")[2].partition("</section>")[0]
    assert "Compared with the model on 359 validation examples." in section
    assert "<td>litert</td>" in section
    size = (exported_run / "run/served/20-litert/model.tflite").stat().st_size
    assert f">{size:,}</td>" in section


@pytest.mark.skipif(bool(importlib.util.find_spec("tf2onnx")), reason="tf2onnx is installed")
@pytest.mark.usefixtures("no_tensorflow")
def test_missing_extra_is_named(finished_run):
    fails(["export", str(finished_run), "--format=onnx"], "not-supported", "--format")


@pytest.mark.parametrize(
    ("arguments", "code", "path"),
    [
        ((), "wrong-usage", ""),
        (("nope",), "not-a-run", "RUN"),
        ((".",), "not-a-run", "RUN"),
        (("bare",), "no-checkpoint", "RUN"),
        (("run", "--checkpoint=11"), "unknown-step", "--checkpoint"),
        (("run", "--checkpoint=best-10"), "unknown-step", "--checkpoint"),
        (("few", "--checkpoint=best"), "no-checkpoint", "--checkpoint"),
        (("run", "--weights=mean"), "wrong-usage", ""),
        (("run", "--to=full"), "already-exists", "--to"),
        (("run", "--to=file"), "bad-path", "--to"),
        (("run", "b"), "unknown-flag", ""),
        (("run", "--format=litert_int"), "not-allowed", "--format"),
        (("run", "--format=keras,"), "not-allowed", "--format"),
        (("run", "--format=keras", "--tolerance=-1"), "out-of-range", "--tolerance"),
        (("run", "--format=keras", "--tolerance=nan"), "out-of-range", "--tolerance"),
        (("run", "--format=keras,litert", "--to=served"), "already-exists", "--to"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("no_tensorflow")
def test_invalid_arguments_are_rejected_before_importing_tensorflow(
    arguments, code, path, finished_run, here
):
    Path("run").symlink_to(finished_run)
    shutil.copytree(finished_run, "few", ignore=shutil.ignore_patterns("best"))
    Path("bare").mkdir()
    shutil.copy("run/config.yaml", "bare")
    Path("full/30").mkdir(parents=True)
    Path("served/30-litert").mkdir(parents=True)
    Path("file").touch()
    fails(["export", *arguments], code, path)


@pytest.mark.parametrize(
    ("flags", "code", "path"),
    [
        (["export_formats=[litert]"], "not-set", "export_subdir"),
        (["export_subdir=e", "export_formats=[kera]"], "not-allowed", "export_formats"),
        (["export_subdir=b", "best_checkpoint_export_subdir=b", "best_checkpoint_eval_metric=m"],
         "conflict", "export_subdir"),
    ],
)  # fmt: skip
def test_contradictory_export_settings_are_rejected(flags, code, path):
    pairs = [flag.split("=") for flag in flags]
    settings = tuple((f"--trainer.{name}", f"trainer.{name}", value) for name, value in pairs)
    with raises(code, f"trainer.{path}"):
        resolve(Request(experiment="digits_mlp", flags=settings))


@pytest.mark.slow
def test_run_whose_export_fails_is_finished(tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    (run / "served").write_text("in the way")
    flags = ["--train_steps=2", "--trainer.export_subdir=served", f"--model_dir={run}", "--json"]
    assert main([*RUN, *flags]) == 1
    out, err = capsys.readouterr()
    reason = "cannot write the export: "
    assert (
        "runner: trainer.export_subdir: the run is complete and saved, but the export failed" in err
    )
    assert f"to try again, run `runner export {run}`" in err
    assert json.loads(out)["export_problem"].startswith(reason)
    (start,) = json.loads((run / "run.json").read_text())["attempts"]
    assert start["outcome"] == "done"
    assert start["weights"] == json.loads(out)["fingerprint"]
    assert start["export_problem"].startswith(reason)

    assert "finished, not exported" in output_of(["runs", str(tmp_path)])
    (listed,) = json.loads(output_of(["runs", str(tmp_path), "--json"]))
    assert listed["status"] == "finished"
    assert listed["reason"].startswith(f"the export failed: {reason}")
    (run / "served").unlink()
    assert main([*RUN, *flags]) == 0
    assert "not exported" not in output_of(["runs", str(tmp_path)])
