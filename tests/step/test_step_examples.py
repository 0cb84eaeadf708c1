"""The examples of steps, from the config of each task, are those that its pipeline reads."""

import dataclasses
import gzip
import json

import pytest

from orbit_runner.serving.loader import make_task
from orbit_runner.step.examples import TrainingOrder
from tests.support.batches import batches_of
from tests.support.digits import digits_config
from tests.support.images import write_records
from tests.support.problems import raises
from tests.support.ratings import ratings_config, write_100k
from tests.support.translations import translation_config, write_set

_WORKERS = {"runtime__distribution_strategy": "multi_worker_mirrored", "runtime__num_workers": 2}


pytestmark = pytest.mark.usefixtures("own_cache")


def _rows(config, step, **options):
    examples = TrainingOrder(config, None).step(step, **options)
    json.dumps(dataclasses.asdict(examples))
    return examples.chosen


@pytest.mark.slow
def test_records_of_images(tmp_path):
    sizes = (70, 5, 0, 64)
    paths = write_records(tmp_path / "set", sizes, classes=1000, offset=1)
    config = digits_config(
        task__train_data__source="tfrecord",
        task__train_data__data_dir=str(tmp_path / "set"),
        task__train_data__input_path="train-*",
        task__train_data__label_offset=1,
        task__train_data__global_batch_size=12,
        task__train_data__shuffle_buffer_size=20,
        task__model__input_size=[8, 8, 3],
        task__model__num_classes=1000,
        **_WORKERS,
    )
    firsts = dict(zip(map(str, paths), (0, 70, 75, 75), strict=True))
    every = []
    for step, (_, labels) in enumerate(batches_of(config, 9, 14), 9):
        rows = _rows(config, step)
        every += rows
        # Labels are numbers of records, counted through all files.
        assert [row["label"] for row in rows] == labels.tolist()
        assert [row["example"] for row in rows] == labels.tolist()
        assert [firsts[row["file"]] + row["record"] for row in rows] == labels.tolist()
    row = next(row for row in every if row["file"] == str(paths[0]))
    content = paths[0].read_bytes()
    assert content[row["offset"] :].count(b"image/encoded") == 70 - row["record"]
    examples = TrainingOrder(config, None).examples()
    assert examples.find("train-00003-of-00004:7") == 82
    assert examples.find(f"{paths[1]}:4") == 74
    with raises("unknown-example", "--example"):
        examples.find("train-00003-of-00004:64")


@pytest.mark.slow
@pytest.mark.parametrize("batching", [{}, {"batch_tokens": 0, "global_batch_size": 16}])
def test_parallel_text(batching, tmp_path):
    folder = write_set(tmp_path / "set")
    changes = {f"task__train_data__{name}": value for name, value in batching.items()}
    # Some pairs are too long, so that numbers of pairs and of lines differ.
    config = translation_config(folder, task__train_data__max_seq_length=7, **changes, **_WORKERS)
    words = make_task(config, None).vocabulary
    for step, (features, _) in enumerate(batches_of(config, 30, 12), 30):
        for row, inputs, targets in zip(
            _rows(config, step, text=True), features["inputs"], features["targets"], strict=True
        ):
            if row["example"] is None:
                assert not inputs.any()
                continue
            assert row["text"]["inputs"] == words.decode([inputs.tolist()])[0]
            assert row["tokens"] == [(inputs > 0).sum(), (targets > 0).sum()]
    lines = gzip.decompress((folder / "train.de.gz").read_bytes()).decode().splitlines()
    examples = TrainingOrder(config, None).examples()
    row = next(row for row in _rows(config, 30, text=True) if row["example"] is not None)
    file, _, number = row["targets"].rpartition(":")
    assert file == str(folder / "train.de.gz")
    assert lines[int(number) - 1] == row["text"]["targets"]
    assert examples.find(row["targets"]) == row["example"] == examples.find(row["inputs"])
    long = next(n for n, line in enumerate(lines, 1) if len(line.split()) == 6)
    with raises("unknown-example", "--example"):
        examples.find(f"train.de.gz:{long}")


def test_ratings_and_their_negatives(tmp_path):
    path = write_100k(tmp_path)
    config = ratings_config(
        task__train_data__source="movielens",
        task__train_data__data_dir=str(tmp_path),
        task__validation_data__source="movielens",
        task__validation_data__data_dir=str(tmp_path),
        **_WORKERS,
    )
    lines = path.read_text().splitlines()
    for step, (features, labels) in enumerate(batches_of(config, 99, 60), 99):
        rows = _rows(config, step)
        # The published ids are ten times one plus the number of the user or the item.
        assert [row["user"] for row in rows] == (10 * features["user"] + 10).tolist()
        assert [row["item"] for row in rows] == (10 * features["item"] + 10).tolist()
        assert [row["label"] for row in rows] == labels.tolist()
        for row in rows:
            item = row.get("negative_for", row["item"])
            assert any(line.startswith(f"{row['user']}\t{item}\t") for line in lines)
    examples = TrainingOrder(config, None).examples()
    row = next(row for row in rows if row["label"])
    for text in (f"{row['user']}/{row['item']}", str(row["example"])):
        assert examples.find(text) == row["example"]
    last = [line.split("\t")[1] for line in lines if line.startswith("10\t")][-1]
    with raises("unknown-example", "--example"):
        examples.find(f"10/{last}")


def test_occurrences_name_the_row_and_the_epoch():
    config = digits_config(**_WORKERS)
    order = TrainingOrder(config, None)

    occurrences = order.occurrences(17, 60)

    assert [occurrence["epoch"] for occurrence in occurrences] == [1, 2, 3]
    for occurrence in occurrences:
        row = order.step(occurrence["step"]).chosen[occurrence["row"]]
        assert row["example"] == 17
        assert {name: row[name] for name in occurrence if name != "step"} == {
            name: value for name, value in occurrence.items() if name != "step"
        }


def test_recoveries_change_the_order(tmp_path):
    events = [{"event": "recovered", "split": "event", "step": 20, "recoveries": 1}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    config = digits_config()
    order = TrainingOrder(config, tmp_path)
    seeded = digits_config(task__train_data__seed=17 + 1_000_003)
    before, after = TrainingOrder(config, None), TrainingOrder(seeded, None)

    assert order.step(20).chosen == before.step(20).chosen
    assert order.step(21).chosen == after.step(21).chosen != before.step(21).chosen
    assert (order.step(21).seed, order.step(21).recoveries) == (17 + 1_000_003, 1)
    for step in (1, 20, 21, 60):
        example = order.step(step).chosen[3]["example"]
        assert step in [event["step"] for event in order.occurrences(example, 60)]
    assert order.occurrences(5, 60) == before.occurrences(5, 20) + [
        event for event in after.occurrences(5, 60) if event["step"] > 20
    ]
