"""Tokens and batches of text classification, and the examples of its steps."""

from __future__ import annotations

from pathlib import Path

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.data.text.lines import read_lines
from orbit_runner.tasks.tabular.preprocessing import PREPROCESSING_FILE
from orbit_runner.tasks.text_classification.task import TextClassificationTask
from tests.support.batches import without_autotuning
from tests.support.problems import raises
from tests.support.texts import text_config
from tests.support.translations import WORDS


def _task(config: ExperimentConfig, run: Path | None = None) -> TextClassificationTask:
    return TextClassificationTask(config.task, logging_dir=run and str(run))  # type: ignore[arg-type]


def _rows(folder: Path) -> list[tuple[str, str]]:
    """The validation texts with their class."""
    return [
        (line, name)
        for name, suffix in (("english", "en"), ("german", "de"))
        for line in read_lines(folder / f"val.{suffix}")
    ]


def test_evaluation_batches_are_the_first_words_of_each_line(folder: Path) -> None:
    config = text_config(folder)
    task, rows = _task(config), _rows(folder)
    found = []
    for features, targets, weights in without_autotuning(
        task.build_inputs(config.task.validation_data)
    ):
        inside = weights.numpy() > 0
        texts = task.vocabulary.decode(features["tokens"].numpy()[inside])
        names = [task.class_names[label] for label in targets["label"].numpy()[inside]]
        found += [*zip(texts, names, strict=True)]
    assert found == [(" ".join(line.split()[:4]), name) for line, name in rows]
    assert task.num_examples(config.task.validation_data) == len(rows) == 18


def test_words_are_those_of_the_training_texts(folder: Path, tmp_path: Path) -> None:
    whole = _task(text_config(folder)).vocabulary
    assert sorted(whole.words) == sorted([*WORDS, *WORDS.values()])
    assert whole.size == 22
    few = _task(text_config(folder, task__text__vocab_size=8)).vocabulary
    assert list(few.words) == list(whole.words[:6])
    part = text_config(
        folder, task__split__fractions={"few": 0.1, "all": 0.9}, task__train_data__split="few",
        task__validation_data__split="all",
    )  # fmt: skip
    task = _task(part)
    lines = task.part(part.task.train_data).column("text").text_counts()
    assert set(task.vocabulary.words) == {word for line in lines for word in line.split()}
    assert 2 <= len(lines) < 20


def test_subwords_are_built_from_the_training_texts(folder: Path, tmp_path: Path) -> None:
    config = text_config(
        folder, task__text__tokenizer="subwords", task__text__vocab_size=40,
        task__text__max_length=30,
    )  # fmt: skip
    task = _task(config, tmp_path)
    tokens = task.arrays(config.task.validation_data).arrays["features"]["tokens"]
    assert task.vocabulary.size == 40
    assert task.vocabulary.decode(tokens.tolist()) == [line for line, _ in _rows(folder)]
    task.assets.write()
    assert (tmp_path / "assets" / PREPROCESSING_FILE).is_file()
    assert _task(config, tmp_path).vocabulary == task.vocabulary


def test_too_many_subwords_name_the_setting(folder: Path) -> None:
    config = text_config(folder, task__text__tokenizer="subwords", task__text__vocab_size=900)
    with raises("out-of-range", "task.text") as caught:
        _ = _task(config).vocabulary
    assert getattr(caught.value, "path", "task.text") == "task.text"
