"""Exports of every task predict, in a process with only tensorflow, what the model predicts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.cli.main import main
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import to_yaml
from orbit_runner.datasets.scikit_learn import load_digits
from orbit_runner.registry import TASKS
from orbit_runner.train_lib import run_experiment
from tests.support.exported import ask_elsewhere

_WORDS = {"ein": "a", "hund": "dog", "mann": "man", "kind": "child", "rennt": "runs",
          "sitzt": "sits", "schnell": "quickly", "dort": "there"}  # fmt: skip

# Computed by the trained model, without any signature: the inputs, and the expected outputs.
Asked = Callable[[Any, Any], list[tuple[str, Mapping[str, Any], Mapping[str, np.ndarray]]]]


@dataclasses.dataclass(frozen=True)
class Case:
    """A scaled-down experiment with data in real files."""

    experiment: str
    settings: Mapping[str, Any]
    write: Callable[[Path], None]
    asked: Asked
    items: tuple[str, ...]
    labels: tuple[str, ...] = ()


def _write_images(folder: Path) -> None:
    for index, image in enumerate(load_digits(split="test").arrays["image"][:3]):
        (folder / f"{index}.png").write_bytes(tf.io.encode_png(image).numpy())


def _write_ratings(folder: Path) -> None:
    lines = [
        f"{user}\t{(5 * user + place) % 60 + 1}\t4\t{880000000 + place}\n"
        for user in range(1, 13)
        for place in range(22)
    ]
    (folder / "u.data").write_text("".join(lines))


def _ask_ratings(model: Any, task: Any) -> Any:
    users, items = np.repeat(np.arange(12), 60), np.tile(np.arange(60), 12)
    logits = model({"user": tf.constant(users), "item": tf.constant(items)}, training=False)
    scores = 1 / (1 + np.exp(-np.asarray(logits).reshape(-1)))
    pairs = {"user": users.astype(np.int64) + 1, "item": items.astype(np.int64) + 1}
    return [("pairs", pairs, {"score": scores})]


def _write_sentences(folder: Path) -> None:
    rng = np.random.default_rng(2)
    for split, count in (("train", 200), ("val", 12)):
        rows = [rng.choice(list(_WORDS), rng.integers(2, 6)) for _ in range(count)]
        (folder / f"{split}.de").write_text("".join(" ".join(row) + "\n" for row in rows))
        english = (" ".join(_WORDS[word] for word in row) for row in rows)
        (folder / f"{split}.en").write_text("".join(f"{line}\n" for line in english))


def _ask_sentences(model: Any, task: Any) -> Any:
    lines = ["a dog runs", "the man sits there quickly", "Kind?", "a"]
    found = task.vocabulary.encode(lines)  # Each ends with EOS.
    ids = np.split(found.values, found.offsets[1:-1])
    rows = np.zeros([len(lines), max(map(len, ids))], np.int32)
    for row, own in zip(rows, ids, strict=True):
        row[: len(own)] = own
    found = model({"inputs": tf.constant(rows)}, training=False)
    texts = task.vocabulary.decode(found["outputs"].numpy())
    wanted = {"translations": np.array([text.encode() for text in texts], object)}
    scores = {"scores": found["scores"].numpy()}
    tokens = {"outputs": found["outputs"].numpy(), **scores}
    return [("text", {"text": lines}, wanted | scores), ("tokens", {"inputs": rows}, tokens)]


def _ask_images(model: Any, task: Any) -> Any:
    images = load_digits(split="test").arrays["image"][:10]
    logits = model(images, training=False).numpy()
    encoded = [tf.io.encode_png(image).numpy() for image in images]
    names = np.array([str(n).encode() for n in range(10)], object)
    return [
        ("serving_default", {"images": encoded}, {"logits": logits}),
        ("image_tensor", {"images": images}, {"logits": logits}),
        ("class_names", {}, {"names": names}),
    ]


CASES = {
    "images": Case(
        "digits",
        {"trainer.train_steps": 5},
        _write_images,
        _ask_images,
        ("data/0.png", "data/1.png", "data/2.png"),
        tuple("0123456789"),
    ),
    "ratings": Case(
        "ncf_movielens",
        {
            "trainer.train_epochs": 0,
            "trainer.train_steps": 5,
            "task.train_data.data_dir": "data",
            "task.validation_data.data_dir": "data",
            "task.train_data.global_batch_size": 20,
            "task.validation_data.num_eval_negatives": 15,
        },
        _write_ratings,
        _ask_ratings,
        ("1", "7", "99"),
    ),
    "sentences": Case(
        "transformer_multi30k",
        {
            "trainer.train_steps": 5,
            "task.vocab_size": 36,
            "task.train_data.data_dir": "data",
            "task.validation_data.data_dir": "data",
            "task.train_data.batch_tokens": 128,
            "task.train_data.max_seq_length": 16,
            "task.model.embedding_width": 16,
            "task.model.encoder.num_layers": 1,
            "task.model.decoder.num_layers": 1,
            "task.model.encoder.intermediate_size": 32,
            "task.model.decoder.intermediate_size": 32,
            "task.model.extra_decode_length": 4,
            "trainer.optimizer_config.ema": None,  # So that the trained model itself is exported.
        },
        _write_sentences,
        _ask_sentences,
        ("a dog runs", "the man"),
    ),
}


@dataclasses.dataclass(frozen=True)
class Made:
    """A run, its export, and its trained model."""

    run: Path
    model: Any
    task: Any


def _config(case: Case, folder: Path) -> ExperimentConfig:
    (folder / "data").mkdir(parents=True)
    case.write(folder / "data")
    settings = {path: _place(folder, value) for path, value in case.settings.items()}
    flags = tuple(
        (f"--{path}", path, "null" if value is None else str(value))
        for path, value in settings.items()
    )
    return resolve(Request(experiment=case.experiment, flags=flags)).config


def _place(folder: Path, value: Any) -> Any:
    return folder / value if str(value).split("/")[0] == "data" else value


@pytest.fixture(scope="module", params=list(CASES))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Trains a model, and exports it with `runner export`."""
    case, folder = CASES[request.param], tmp_path_factory.mktemp(request.param)
    config, run = _config(case, folder), folder / "run"
    task = TASKS.get(config.task.name).load()(config.task, logging_dir=str(run))
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    model, _ = run_experiment(strategy, task, "train", config, str(run))
    (run / "config.yaml").write_text(to_yaml(config))
    assert main(["export", str(run)]) == 0
    return case, Made(run, model, task)


@pytest.mark.sample(1)
def test_export_predicts_the_same_as_the_trained_model(
    made: tuple[Case, Made], tmp_path: Path
) -> None:
    case, trained = made
    asked = case.asked(trained.model, trained.task)
    questions = [(trained.run / "export/5", name, feeds) for name, feeds, _ in asked]
    for found, (name, _, wanted) in zip(ask_elsewhere(questions, tmp_path), asked, strict=True):
        for key, value in wanted.items():
            if value.dtype.kind == "f":
                np.testing.assert_allclose(found[key], value, atol=1e-5, err_msg=f"{name} {key}")
            else:
                assert found[key].tolist() == value.tolist(), (name, key)


@pytest.mark.sample(1)
def test_predict_gives_equal_results_for_run_and_export(
    made: tuple[Case, Made], capsys: pytest.CaptureFixture[str]
) -> None:
    case, trained = made
    items = [str(_place(trained.run.parent, item)) for item in case.items]
    said = []
    for where in (trained.run, trained.run / "export"):
        capsys.readouterr()
        code = main(["predict", str(where), *items, "--json"])
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == len(items)
        assert code == (5 if any("error" in json.loads(line) for line in lines) else 0)
        said.append(lines)
    assert said[0] == said[1]


@pytest.mark.sample(1)
def test_network_is_exported_in_other_formats_or_refused_with_the_reason(
    made: tuple[Case, Made], capsys: pytest.CaptureFixture[str]
) -> None:
    case, trained = made
    capsys.readouterr()
    # After five steps, only the outputs say whether int8 is good.
    flags = ["--format=litert,litert_int8", "--tolerance=0.2", "--check_examples=64", "--json"]
    code = main(["export", str(trained.run), *flags])
    printed = capsys.readouterr()
    if case.experiment.startswith("transformer"):
        assert code == 2
        assert "runner: litert: translation is a beam search" in printed.err
        assert not [*trained.run.glob("export/*litert*")]
        return
    assert code == 0, printed.err
    records = json.loads(printed.out)
    assert [one["format"] for one in records] == ["litert", "litert_int8"]
    for one in records:
        check = one["check"]
        assert check["examples"] >= min(64, 12)
        assert check["metrics"].keys() == check["model_metrics"].keys() != set()
    assert records[0]["check"]["relative"] < 1e-4
    assert records[0]["check"]["metrics"] == pytest.approx(records[0]["check"]["model_metrics"])
    labels = Path(records[0]["path"], "labels.txt")
    assert labels.exists() == bool(case.labels)
    assert not case.labels or labels.read_text() == "".join(f"{one}\n" for one in case.labels)
    _check_predictions(case, trained, Path(records[0]["path"]), capsys)


def _check_predictions(
    case: Case, trained: Made, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compares the predictions of a network in a file with those of the run."""
    items = [str(_place(trained.run.parent, item)) for item in case.items]
    answers = []
    for where in (trained.run, place):
        capsys.readouterr()
        main(["predict", str(where), *items, "--json"])
        answers.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    assert len(answers[0]) == len(items)
    for expected, answer in zip(*answers, strict=True):
        assert _rounded(answer) == _rounded(expected)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return round(value, 3) if isinstance(value, float) else value
