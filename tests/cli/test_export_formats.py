"""`runner export --format`, and exports in the report of a run."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_runner.cli.main import main
from orbit_runner.config.errors import ConfigError
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.jobs.clean import list_run_files

# TensorFlow fixes the thread settings of the test process at its first op.
RUN = ["run", "--experiment=digits_mlp", "--runtime.intra_op_threads=0", "--train_steps=20",
       "--task.model.hidden_units=[8]", "--trainer.export_subdir=served",
       "--trainer.export_formats=[litert]"]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that contains a run of 20 steps, which exported its network at the end."""
    folder = tmp_path_factory.mktemp("made")
    assert main([*RUN, f"--model_dir={folder / 'run'}"]) == 0
    return folder


def test_table_and_json_describe_each_format(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    formats = "--format=saved_model,litert_float16"
    assert main(["export", str(made / "run"), formats, f"--to={tmp_path / 'a'}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{tmp_path / 'a/20'}: step 20, plain weights"
    assert lines[1] == f"{tmp_path / 'a/20-litert_float16'}: step 20, plain weights"
    assert "  input   image  uint8 [1, 8, 8, 1]" in lines
    assert "  output  logits  float32 [1, 10]" in lines
    assert lines[-4] == "on 359 validation examples:"
    head, model, export = (line.split() for line in lines[-3:])
    assert head[:5] == ["step", "format", "bytes", "difference", "relative"]
    assert model[:4] == ["20", "the", "model", "itself"]
    assert export[:2] == ["20", "litert_float16"]

    assert main(["export", str(made / "run"), formats, f"--to={tmp_path / 'b'}", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert "check" not in first
    assert second["check"]["metrics"].keys() == second["check"]["model_metrics"].keys()
    record = json.loads((tmp_path / "b/20-litert_float16/export.json").read_text())
    assert {"path": second["path"], **record} == second
    written = resolve(Request(experiment=str(tmp_path / "b/20-litert_float16/config.yaml"))).config
    assert written == resolve(Request(experiment=str(made / "run"))).config


def test_report_shows_the_exports_of_the_run_directory(made: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert main(["report", str(made / "run"), f"--html={page}"]) == 0
    section = page.read_text().partition("<h2>Exports</h2>")[2].partition("</section>")[0]
    assert "Compared with the model on 359 validation examples." in section
    assert "<td>litert</td>" in section
    size = (made / "run/served/20-litert/model.tflite").stat().st_size
    assert f">{size:,}</td>" in section


def test_export_belongs_to_the_files_of_the_run(made: Path) -> None:
    found = list_run_files(made / "run")
    assert {
        f"served/20-litert/{name}" for name in ("model.tflite", "export.json", "config.yaml")
    } <= {*found.known}
    assert not found.unknown


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--format=litert_int"], "unknown format 'litert_int'; did you mean 'litert_int8'"),
        (["--format=keras,"], "--format: unknown format ''"),
        (["--format=keras", "--tolerance=-1"], "--tolerance: got -1, allowed: a number"),
        (["--format=keras", "--tolerance=nan"], "--tolerance: got nan, allowed"),
        (["--check_examples=0"], "--check_examples: got 0, allowed: 1 to 1,000,000"),
        (["--calibration_examples=-2"], "--calibration_examples: got -2, allowed: 1 to"),
        (["--format=keras,litert", "--to=served"], "--to: served/20-litert already exists"),
    ],
)  # fmt: skip
def test_invalid_flags_are_rejected_before_importing_tensorflow(
    flags: list[str],
    message: str,
    made: Path,
    without_tensorflow: dict[str, str],
    refused: Callable[..., str],
) -> None:
    assert message in refused(made / "run", "export", ".", *flags, env=without_tensorflow)


@pytest.mark.skipif(bool(importlib.util.find_spec("tf2onnx")), reason="tf2onnx is installed")
def test_missing_extra_is_named(
    made: Path, without_tensorflow: dict[str, str], refused: Callable[..., str]
) -> None:
    said = refused(made, "export", "run", "--format=onnx", env=without_tensorflow)
    assert "--format: onnx requires the package tf2onnx, which is not installed\n" in said
    assert "pip install 'orbit-runner[onnx]'" in said


@pytest.mark.parametrize(
    ("flags", "path", "message"),
    [
        (["export_formats=[litert]"], "export_subdir", "must be set, because export_formats is"),
        (["export_subdir=e", "export_formats=[kera]"], "export_formats", "did you mean 'keras'?"),
    ],
)
def test_contradictory_settings_are_rejected(flags: list[str], path: str, message: str) -> None:
    pairs = [flag.split("=") for flag in flags]
    settings = tuple((f"--trainer.{name}", f"trainer.{name}", value) for name, value in pairs)
    with pytest.raises(ConfigError) as caught:
        resolve(Request(experiment="digits_mlp", flags=settings))
    (problem,) = caught.value.problems
    assert problem.path == f"trainer.{path}"
    assert message in problem.message
