"""`runner export --format`, and exports in the report of a run."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from orbit_runner.cli.main import main
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.jobs.clean import list_run_files
from tests.support.problems import fails, raises

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


@pytest.mark.slow
def test_table_and_json_describe_each_format(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--format=saved_model,litert_float16", "--check_examples=32"]
    assert main(["export", str(made / "run"), *flags, f"--to={tmp_path / 'a'}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{tmp_path / 'a/20'}: step 20, plain weights"
    assert lines[1] == f"{tmp_path / 'a/20-litert_float16'}: step 20, plain weights"
    assert "  input   image  uint8 [1, 8, 8, 1]" in lines
    assert "  output  logits  float32 [1, 10]" in lines
    assert lines[-4] == "on 32 validation examples:"
    head, model, export = (line.split() for line in lines[-3:])
    assert head[:5] == ["step", "format", "bytes", "difference", "relative"]
    assert model[:4] == ["20", "the", "model", "itself"]
    assert export[:2] == ["20", "litert_float16"]

    assert main(["export", str(made / "run"), *flags, f"--to={tmp_path / 'b'}", "--json"]) == 0
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


@pytest.mark.parametrize(
    ("flags", "code", "path"),
    [
        (["--format=litert_int"], "not-allowed", "--format"),
        (["--format=keras,"], "not-allowed", "--format"),
        (["--format=keras", "--tolerance=-1"], "out-of-range", "--tolerance"),
        (["--format=keras", "--tolerance=nan"], "out-of-range", "--tolerance"),
        (["--check_examples=0"], "out-of-range", "--check_examples"),
        (["--calibration_examples=-2"], "out-of-range", "--calibration_examples"),
        (["--format=keras,litert", "--to=served"], "already-exists", "--to"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("no_tensorflow")
def test_invalid_flags_are_rejected_before_importing_tensorflow(
    flags: list[str], code: str, path: str, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made / "run")
    fails(["export", ".", *flags], code, path)


@pytest.mark.skipif(bool(importlib.util.find_spec("tf2onnx")), reason="tf2onnx is installed")
@pytest.mark.usefixtures("no_tensorflow")
def test_missing_extra_is_named(made: Path) -> None:
    fails(["export", str(made / "run"), "--format=onnx"], "not-supported", "--format")


@pytest.mark.parametrize(
    ("flags", "code", "path"),
    [
        (["export_formats=[litert]"], "not-set", "export_subdir"),
        (["export_subdir=e", "export_formats=[kera]"], "not-allowed", "export_formats"),
    ],
)
def test_contradictory_settings_are_rejected(flags: list[str], code: str, path: str) -> None:
    pairs = [flag.split("=") for flag in flags]
    settings = tuple((f"--trainer.{name}", f"trainer.{name}", value) for name, value in pairs)
    with raises(code, f"trainer.{path}"):
        resolve(Request(experiment="digits_mlp", flags=settings))
