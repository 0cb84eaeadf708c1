"""Run directories of any name, and names in a run directory that belong to the run."""

import contextlib
import shutil

import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.checkpoint.fingerprint import CheckpointContent
from orbit_runner.cli.main import main
from orbit_runner.run_directory.run_lock import refusal, refused_start_scope
from orbit_runner.serving.formats.saved_model import load_signatures
from orbit_runner.tasks.initial_weights import load_weights
from tests.support.problems import fails, raises
from tests.support.toy import run, toy_config

FREEZE = "trainer.fine_tuning.freeze"
NAMES = (
    *("version[2]", "a]b[c", "[!x]", "x\\[y", "\\n", "any*?", "{a,b}", "100%s", "~", "quote'\""),
    *(" spaces ", "dots...", "line\nfeed", "-leading", "\x1b[31m", "n" * 200, "名前", "a@4"),
)


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_tensorflow_reads_what_is_in_a_directory_of_any_name(name, tmp_path):
    model = tf_keras.Sequential([tf_keras.layers.Input([2]), tf_keras.layers.Dense(1)])
    other = tf_keras.models.clone_model(model)
    place = tmp_path / name / "ckpt-7"
    tf.train.Checkpoint(model=model).write(str(place))
    module = tf.Module()
    module.value = tf.Variable(2.0)
    serve = tf.function(lambda: {"value": module.value}, input_signature=[])
    tf.saved_model.save(module, str(tmp_path / name), signatures={"serve": serve})

    assert load_weights(other, str(place)).source == str(place)
    assert other.get_weights()[0].tolist() == model.get_weights()[0].tolist()
    assert len(CheckpointContent(place).weights()) == 2
    assert float(load_signatures(tmp_path / name)["serve"]()["value"]) == 2.0


@pytest.mark.slow
def test_run_resumes_in_a_directory_of_any_name_and_stays_intact_when_renamed(tmp_path):
    name = "model[v2]\\b\nfeed{0}%s*?"
    for steps in (10, 20):
        model, _ = run(toy_config(trainer__train_steps=steps), tmp_path / name)
    expected, _ = run(toy_config(), tmp_path / "plain")
    (tmp_path / "plain").rename(tmp_path / f"copy {name}")

    assert model.get_weights()[0].tolist() == expected.get_weights()[0].tolist()
    assert main(["verify", str(tmp_path / name)]) == 0
    assert main(["verify", str(tmp_path / f"copy {name}")]) == 0


@pytest.fixture
def begun(tmp_path):
    """A run directory with a config and the directories of checkpoints."""
    for directory in ("checkpoints", "best"):
        (tmp_path / "run" / directory).mkdir(parents=True)
        (tmp_path / "run" / directory / "checkpoint").touch()
    (tmp_path / "run" / "config.yaml").touch()
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (["export", "RUN", "--to=RUN/assets"], "--to"),
        (["export", "RUN", "--to=RUN/best/new"], "--to"),
        (["predict", "RUN", "rows.csv", "--to=RUN/checkpoints/a.csv"], "--to"),
        (["report", "RUN", "--html=RUN/metrics.jsonl"], "--html"),
        (["compare", "RUN", "RUN", "--html=RUN/run.eval.json"], "--html"),
        (["--experiment=digits", "--model_dir=RUN/evaluations"], "--model_dir"),
        (["--experiment=digits", "--model_dir=latin-\udce9"], "--model_dir"),  # not UTF-8
        (["export", "RUN", "--to=latin-\udce9"], "--to"),
    ],
)
def test_command_writes_neither_into_the_files_of_a_run_nor_where_tensorflow_cannot(
    begun, arguments, path, monkeypatch
):
    monkeypatch.chdir(begun.parent)
    before = sorted(begun.rglob("*"))

    fails([argument.replace("RUN", "run") for argument in arguments], "bad-path", path)

    assert sorted(begun.rglob("*")) == before


@pytest.mark.slow
def test_refused_start_leaves_no_directory_and_a_lost_one_is_named(tmp_path, capsys):
    place = tmp_path / "new" / "run"
    command = ["--experiment=digits_mlp", f"--model_dir={place}", "--trainer.train_steps=2"]

    fails([*command, "--trainer.fine_tuning={freeze: [nolayer]}"], "unknown-name", FREEZE)

    assert not [*tmp_path.rglob("*")]
    with contextlib.suppress(SystemExit):
        main(command)
    for name in ("checkpoints", "best"):
        shutil.rmtree(place / name, ignore_errors=True)
    (place / "checkpoint").unlink()
    capsys.readouterr()
    main(command)
    assert f"{place} was started before, but has no checkpoint" in capsys.readouterr().err


def test_refused_start_leaves_the_directory_of_another_process(tmp_path):
    with raises("run-locked", "--model_dir"), refused_start_scope(tmp_path / "run"):
        (tmp_path / "run").mkdir()  # As the process that has the lock does.
        raise refusal("run", {})

    assert (tmp_path / "run").is_dir()
