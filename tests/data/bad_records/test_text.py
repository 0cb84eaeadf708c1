"""Lines that are not UTF-8 are left out up to `max_bad_records`."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.task_data import task_data
from orbit_runner.data.text import lines
from orbit_runner.data.text.source import PairSource
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.text_classification.task import TextClassificationTask
from orbit_runner.tasks.translation.data import load_vocabulary, open_pairs
from orbit_runner.utils.log import PlainMessages, log_scope
from tests.support.problems import pairs, raises
from tests.support.texts import text_config, write_texts
from tests.support.translations import translation_config, write_set

# Line numbers of the bad lines, from 0: the first, and two that are one pair.
BAD = {"en": (0, 7), "de": (7, 90)}
LEFT_OUT = (0, 7, 90)
LIMIT = "task__train_data__max_bad_records"
_RUBBISH = b"\xff\xfe rubbish"


pytestmark = pytest.mark.usefixtures("own_cache")


def _rewrite(path: Path, bad: tuple[int, ...], *, remove: bool) -> None:
    """Replaces lines of a gzipped file by bad ones, or removes them."""
    content = gzip.decompress(path.read_bytes()).split(b"\n")
    for number in sorted(bad, reverse=True):
        content[number : number + 1] = [] if remove else [_RUBBISH]
    path.write_bytes(gzip.compress(b"\n".join(content), mtime=0))


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Parallel text with bad lines, and the same without these pairs."""
    damaged = write_set(tmp_path / "damaged")
    clean = tmp_path / "clean"
    shutil.copytree(damaged, clean)
    for language, bad in BAD.items():
        _rewrite(damaged / f"train.{language}.gz", bad, remove=False)
        _rewrite(clean / f"train.{language}.gz", LEFT_OUT, remove=True)
    return damaged, clean


def _pairs(config: ExperimentConfig) -> tuple[PairSource, bytes]:
    task: Any = config.task
    assert not dict(pairs(task_data(task).problems()))
    words = load_vocabulary(task, Assets())
    return open_pairs(task.train_data).read(words.size, words), words.model


def test_pairs_and_vocabulary_are_those_of_text_without_the_bad_pairs(
    folders: tuple[Path, Path],
) -> None:
    damaged, clean = folders
    notes: list[str] = []
    with log_scope(PlainMessages(notes.append)):
        found, words = _pairs(translation_config(damaged, **{LIMIT: 3}))
    expected, other_words = _pairs(translation_config(clean))
    assert words == other_words
    for one, two in ((found.sources, expected.sources), (found.targets, expected.targets)):
        np.testing.assert_array_equal(one.values, two.values)
        np.testing.assert_array_equal(one.offsets, two.offsets)
    (text,) = [note for note in notes if "max_bad_records" in note]
    assert "3 of 200 pairs cannot be read and are left out, at most 3" in text
    assert f"{damaged / 'train.en.gz'}:1: is not valid UTF-8" in text
    assert f"{damaged / 'train.de.gz'}:91: is not valid UTF-8" in text


def test_pairs_are_named_by_their_lines_in_the_files(folders: tuple[Path, Path]) -> None:
    config = translation_config(folders[0], **{LIMIT: 3})
    examples = config.data.training_examples(config.task.train_data, None)
    assert examples.find("train.en.gz:2") == 0
    assert examples.find("train.de.gz:92") == 88
    with raises("unknown-example", "--example"):
        examples.find("train.en.gz:8")


def test_references_of_evaluation_lack_the_bad_pairs(folders: tuple[Path, Path]) -> None:
    found = []
    for folder, limit in zip(folders, (3, 0), strict=True):
        changes = {
            "task__validation_data__split": "train",
            "task__validation_data__max_bad_records": limit,
        }
        task: Any = translation_config(folder, **{LIMIT: limit}, **changes).task
        words = load_vocabulary(task, Assets())
        found.append(open_pairs(task.validation_data).read(words.size, words))
    assert found[0].references == found[1].references
    assert found[0].size == found[1].size == 197


def test_files_are_searched_once(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [folders[0] / "train.en.gz"]
    first = lines.find_bad_lines(files)
    assert sorted(first) == [*BAD["en"]]

    def fail(path: Path) -> Any:
        raise AssertionError(f"{path} was read again")

    monkeypatch.setattr(lines, "read_lines_or_problems", fail)
    assert lines.find_bad_lines(files) == first


def test_more_bad_pairs_than_the_limit_are_an_error_with_a_list(
    folders: tuple[Path, Path],
) -> None:
    damaged, _ = folders
    problems = dict(pairs(translation_config(damaged, **{LIMIT: 2}).data.problems()))
    text = problems["train_data.max_bad_records"]
    assert "3 of 200 pairs cannot be read, more than max_bad_records=2" in text
    assert f"{damaged / 'train.de.gz'}:91: is not valid UTF-8" in text


def test_different_numbers_of_lines_are_always_an_error(folders: tuple[Path, Path]) -> None:
    damaged, _ = folders
    _rewrite(damaged / "train.de.gz", (100,), remove=True)
    problems = dict(pairs(translation_config(damaged, **{LIMIT: 9}).data.problems()))
    assert "200 lines in" in problems["train_data.input_path"]


def test_limit_of_pairs_keeps_the_fingerprint(
    folders: tuple[Path, Path],
) -> None:
    config = translation_config(folders[0])
    assert config_fingerprint(config) == config_fingerprint(
        translation_config(folders[0], **{LIMIT: 3})
    )


def test_lines_of_text_files_are_left_out_as_if_they_did_not_exist(tmp_path: Path) -> None:
    damaged = write_texts(tmp_path / "damaged")
    clean = tmp_path / "clean"
    shutil.copytree(damaged, clean)
    for language in ("en", "de"):
        _rewrite(damaged / f"train.{language}.gz", (0, 7), remove=False)
        _rewrite(clean / f"train.{language}.gz", (0, 7), remove=True)
    found, expected = text_config(damaged, **{LIMIT: 4}), text_config(clean)

    tasks: list[Any] = [TextClassificationTask(one.task) for one in (found, expected)]  # type: ignore[arg-type]
    one, two = (task.vocabulary for task in tasks)
    assert one.decode(np.arange(one.size)[np.newaxis]) == two.decode(
        np.arange(two.size)[np.newaxis]
    )
    batches = [iter(t.build_inputs(t.task_config.train_data)) for t in tasks]
    for _ in range(12):
        pair = (tf.nest.flatten(next(b)) for b in batches)
        for got, wanted in zip(*pair, strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_more_bad_lines_than_the_limit_are_an_error(tmp_path: Path) -> None:
    folder = write_texts(tmp_path / "texts")
    _rewrite(folder / "train.en.gz", (0, 7), remove=False)
    problems = dict(pairs(text_config(folder, **{LIMIT: 1}).data.problems()))
    text = problems["train_data.max_bad_records"]
    assert "2 of 80 rows cannot be read, more than max_bad_records=1" in text
    assert f"{folder / 'train.en.gz'}:8: is not valid UTF-8" in text
