"""What every data source promises, for each of them; imports no TensorFlow.

The cases come from the registries of the tasks. See `tests/support/samples.py` for the files.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from orbit_runner.config.schema.task_data import task_data
from orbit_runner.data.fingerprint import (
    DataDifference,
    compare,
)
from orbit_runner.data.source_cache import source_cache_scope
from orbit_runner.errors import DataError
from orbit_runner.run_directory.data_record import fingerprint_of
from orbit_runner.tasks.examples import TrainingExamples
from tests.support.samples import Member, config_of_section, is_stored, members, write_sample

# Each source once, and images by the second task that reads them. How a source orders and splits
# its examples does not depend on the task.
_BY_TARGET = {str(member.source.target): member for member in reversed([*members()])}
_MEMBERS = [
    member
    for member in members()
    if member in _BY_TARGET.values() or member.name in ("keras-image_folder", "keras-tfrecord")
]
_PARTS = ("train", "validation")
# Sources that read files or call functions.
_STORED = [member for member in _BY_TARGET.values() if is_stored(member)]


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


class Sample(NamedTuple):
    """A data source, the settings of a section that reads its files, and all its examples."""

    member: Member
    section: dict[str, Any]
    seed: int
    whole: TrainingExamples

    def read(self, **changes):
        """Returns the training examples under other settings."""
        return read(config_of_section(self.member, self.section, **changes).data)


@pytest.fixture(scope="module", params=_MEMBERS, ids=lambda member: member.name)
def sample(request, tmp_path_factory):
    """Each data source, whose files are written once."""
    member = request.param
    with source_cache_scope():
        section = write_sample(member, tmp_path_factory.mktemp("data"))
        data = config_of_section(member, section).data
        yield Sample(member, section, data.config.train_data.seed or 0, read(data))


def read(data):
    """Returns the training examples of data that must have no problems."""
    assert [problem.message for problem in data.problems()] == []
    return data.training_examples(data.config.train_data, None)


def last_step(examples, epochs=2):
    return int(np.ceil(epochs * examples.order.steps_per_epoch)) + 2


def epoch_of(examples, epoch):
    """Returns the examples of an epoch in reading order, without padding."""
    rows = [examples.order.rows(step) for step in range(last_step(examples))]
    chosen = [step.examples[(step.epochs == epoch) & (step.examples >= 0)] for step in rows]
    return np.concatenate(chosen)


def describe(examples, steps=5):
    """Returns the descriptions of the training examples of the first steps by their numbers."""
    described = {}
    for step in range(steps):
        rows = examples.order.rows(step)
        texts = examples.describe(rows, np.arange(len(rows.examples)))
        described |= dict(zip(rows.examples.tolist(), texts, strict=True))
    return {number: text for number, text in described.items() if number >= 0}


def id_of(description):
    """Returns the ID of an example that its description contains, or "" if it has no place."""
    if "negative_for" in description:
        return ""
    if "user" in description:
        return f"{description['user']}/{description['item']}"
    if "file" in description:
        return ":".join(str(description[k]) for k in ("file", "record") if k in description)
    place = str(description.get("place", description.get("inputs", description.get("record", ""))))
    return re.sub(", (row|index) ", ":", place)


def test_batches_do_not_depend_on_earlier_ones(sample):
    steps = [*range(last_step(sample.whole))]
    expected = [sample.whole.order.rows(step) for step in steps]

    resumed = sample.read().order
    for step in [steps[-1], *np.random.default_rng(0).permutation(steps)[:20]]:
        for column, expected_column in zip(resumed.rows(int(step)), expected[step], strict=True):
            np.testing.assert_array_equal(column, expected_column)


def test_epoch_has_each_example_once(sample):
    epochs = [epoch_of(sample.whole, epoch) for epoch in (0, 1)]

    for epoch in epochs:
        np.testing.assert_array_equal(np.sort(epoch), np.arange(sample.whole.order.size))
    assert epochs[0].tolist() != epochs[1].tolist()


def test_steps_of_an_example_are_those_that_read_it(sample):
    order = sample.whole.order
    last = last_step(sample.whole)
    batches = [order.rows(step).examples for step in range(last)]

    for example in (0, 1, order.size - 1):
        occurrences = order.occurrences(example, 1, last)
        pairs = [
            (step, int(row))
            for step in range(1, last)
            for row in np.flatnonzero(batches[step] == example)
        ]
        got = zip(occurrences.steps.tolist(), occurrences.rows.tolist(), strict=True)
        assert sorted(got) == pairs


def test_description_is_json_and_its_place_names_the_example(sample):
    described = describe(sample.whole)

    assert described
    for number, description in described.items():
        assert json.loads(json.dumps(description)) == description
        assert description
        assert sample.whole.find(str(number)) == number
        if place := id_of(description):
            assert sample.whole.find(place) == number


def test_excluded_examples_are_left_out_and_the_others_keep_their_order(sample):
    whole = sample.whole
    numbers = epoch_of(whole, 0)[[0, 3, 7]]
    described = describe(whole)
    ids = [id_of(described[number]) or str(number) for number in numbers.tolist()]

    examples = sample.read(train_data__exclude=json.dumps(ids))

    assert examples.excluded.tolist() == sorted(numbers.tolist())
    assert examples.order.size == whole.order.size - 3
    for number in numbers.tolist():
        assert not len(examples.order.occurrences(number, 0, last_step(examples)).steps)
    for epoch in (0, 1):
        others = epoch_of(whole, epoch)
        others = others[~np.isin(others, numbers)]
        np.testing.assert_array_equal(epoch_of(examples, epoch), others)


def test_unknown_or_missing_examples_are_an_error_of_exclude(sample):
    everything = json.dumps([*range(sample.whole.order.size)])
    for ids, code in (("[no_such_example]", "unknown-example"), (everything, "empty-data")):
        with pytest.raises(DataError) as caught:
            sample.read(train_data__exclude=ids)
        assert (caught.value.field, caught.value.code) == ("exclude", code)


def test_parts_have_each_example_once(sample):
    settings = sample.member.task.load_config().__dataclass_fields__
    if "split" not in settings or sample.member.source.traits.is_generated:
        pytest.skip("the task splits nothing, or each section draws examples of its own")
    split = {"split__fractions": '{"train": 0.6, "validation": 0.4}'}
    if "validation_split" in settings:
        split = {"validation_split": 0.4, "validation_data__source": "''"}
    parts = [sample.read(train_data__split=part, **split) for part in _PARTS]

    assert sum(part.order.size for part in parts) == sample.whole.order.size
    assert all(part.order.size for part in parts)
    ids = [
        {id_of(text) for text in describe(part, last_step(part, 1)).values()}
        for part in (*parts, sample.whole)
    ]
    assert ids[0] | ids[1] == ids[2]
    assert ids[2] == {""} or not ids[0] & ids[1]


_DAMAGE = {
    "missing": lambda path: path.unlink(),
    "renamed": lambda path: path.rename(path.with_name(f"x{path.name}")),
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "noise": lambda path: path.write_bytes(np.random.default_rng(0).bytes(path.stat().st_size)),
}


def files_of(data):
    """Returns the files of all sections, as a run records them."""
    return [row for rows in (data.files() or {}).values() for row in rows]


@pytest.fixture(params=_STORED, ids=lambda member: member.name)
def stored(request):
    """A source that reads files, or calls a function."""
    return request.param


def sample_files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("damage", _DAMAGE)
def test_damaged_file_is_a_problem_that_names_it_or_a_change_of_the_data(damage, stored, tmp_path):
    folder = tmp_path / "data"
    section = write_sample(stored, folder)
    with source_cache_scope():
        task = config_of_section(stored, section).task
        before = files_of(task_data(task))
    unclear = []
    recorded = {Path(row.path) for row in before}
    for path in sample_files(folder)[:6]:
        if damage in ("missing", "renamed") and path not in recorded:
            continue  # A description of the data that need not exist.
        content = path.read_bytes()
        _DAMAGE[damage](path)
        with source_cache_scope():
            data = task_data(task)
            problems = [problem.message for problem in data.problems()]
            if not problems and files_of(data) == before:
                unclear.append(f"{path.name}: no problem")
            elif problems and not any(
                str(name) in message for message in problems for name in (path, path.name, folder)
            ):
                unclear.append(f"{path.name}: {problems}")
        path.with_name(f"x{path.name}").unlink(missing_ok=True)
        path.write_bytes(content)
    assert unclear == []


def test_source_without_examples_is_a_problem(stored, tmp_path):
    section = write_sample(stored, tmp_path / "data")
    with source_cache_scope():
        task = config_of_section(stored, section).task
    paths = sample_files(tmp_path / "data")
    for path in paths:
        path.write_bytes(b"")

    assert [*task_data(task).problems()] or not paths


def fingerprint(task):
    """Returns the fingerprint of the data as another process would compute it."""
    with source_cache_scope():
        return fingerprint_of(task)


def test_record_of_the_data_changes_with_the_contents_of_a_file(stored, tmp_path):
    folder = tmp_path / "data"
    section = write_sample(stored, folder)
    task = config_of_section(stored, section).task
    before = fingerprint(task)
    rows = before["train_data"]
    assert rows
    assert compare(before, fingerprint(task)) == DataDifference()
    by_path = {Path(row.path): row for row in rows if row.path}

    for path in [path for path in sample_files(folder) if path in by_path][:3]:
        content = path.read_bytes()
        later = path.stat().st_mtime + 10
        os.utime(path, (later, later))
        assert compare(before, fingerprint(task)).changes == ()

        for changed in (content[:-1] + bytes([content[-1] ^ 1]), content[:-1]):
            path.write_bytes(changed)
            later += 10
            os.utime(path, (later, later))
            with contextlib.suppress(DataError):  # Some formats have checksums.
                difference = compare(before, fingerprint(task))
                # Of a directory, the digest is that of names and sizes.
                is_equal = by_path[path].files > 1 and len(changed) == len(content)
                assert difference.changes or is_equal, path
        path.write_bytes(content)


@pytest.mark.slow
def test_no_source_imports_tensorflow(tmp_path):
    code = """
import sys
from pathlib import Path
import numpy as np
from orbit_runner.registry import TASKS
from tests.support.samples import members, sample_config

for task in TASKS.registered():
    assert task.load_data()
for number, member in enumerate(members()):
    config = sample_config(member, Path(sys.argv[1]) / str(number))
    assert not [*config.data.problems()]
    config.data.files()
    examples = config.data.training_examples(config.task.train_data, None)
    examples.describe(examples.order.rows(0), np.arange(4))
    assert not {"tensorflow", "tf_keras", "sklearn"} & set(sys.modules), member.name
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)

    assert completed.returncode == 0, completed.stderr
