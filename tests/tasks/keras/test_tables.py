"""The task `keras` on tables: columns become arrays, and rows are split as by `tabular`."""

import numpy as np
import pandas
import pytest

from orbit_runner.config.errors import ConfigError
from orbit_runner.data.tables.columns import KEY, Column
from orbit_runner.data.tables.hashing import hash_rows, hash_texts
from orbit_runner.data.tables.split import positions, rows_of_fraction
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.keras.data import KerasData
from orbit_runner.tasks.keras.sources import section_source, trained_arrays
from orbit_runner.tasks.tabular.config import FeaturesConfig, TabularConfig, TargetConfig
from orbit_runner.tasks.tabular.data_config import TableDataConfig
from orbit_runner.tasks.tabular.sources import table_query
from tests.support.keras_models import NO_ARRAYS, keras_config
from tests.support.problems import pairs, raises


def _people(count=90):
    rng = np.random.default_rng(0)
    return pandas.DataFrame(
        {
            "age": rng.integers(18, 80, count),
            "city": rng.choice(["Rome", "Oslo", "Bonn"], count),
            "income": rng.normal(3, 1, count).round(3),
            "kind": rng.choice(["buyer", "guest", "visitor"], count),
        }
    )


def _config(path, **changes):
    settings = {"task__outputs": "kind", "task__train_data__source": "csv", **changes}
    return keras_config(**NO_ARRAYS | settings, task__train_data__input_path=str(path)).task


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "people.csv"
    _people().to_csv(path, index=False)
    return path


def test_columns_of_a_table_are_inputs_by_their_names(table):
    people, config = _people(), _config(table)
    source = section_source(config, "train_data")

    assert source.specs == {
        "x.age": ((), "float32"),
        "x.city": ((), "string"),
        "x.income": ((), "float32"),
        "y": ((), "int32"),
    }
    np.testing.assert_array_equal(source.arrays["x"]["age"], people.age)
    assert np.asarray(source.arrays["x"]["city"]).tolist() == people.city.tolist()
    assert trained_arrays(config, Assets()).classes == {"y": ("buyer", "guest", "visitor")}
    names = np.array(["buyer", "guest", "visitor"])[source.arrays["y"]]
    assert names.tolist() == people.kind.tolist()


@pytest.mark.parametrize(
    ("changes", "specs"),
    [
        ({"task__inputs": "[income, age]"}, {"x": ((2,), "float32"), "y": ((), "int32")}),
        ({"task__inputs": "[city]"}, {"x": ((), "string"), "y": ((), "int32")}),
        (
            {
                "task__inputs": "{numbers: [age, income], place: city}",
                "task__outputs": "{kind: kind, income: income, age: age}",
                "task__weight_column": "age",
            },
            {
                "x.numbers": ((2,), "float32"),
                "x.place": ((), "string"),
                "y.kind": ((), "int32"),
                "y.income": ((), "float32"),
                "y.age": ((), "int32"),
                "w": ((), "float32"),
            },
        ),
    ],
)
def test_inputs_and_outputs_choose_columns(table, changes, specs):
    source = section_source(_config(table, **changes), "train_data")
    assert source.specs == specs
    if changes["task__inputs"] == "[income, age]":
        expected = _people()[["income", "age"]].to_numpy(np.float32)
        np.testing.assert_array_equal(source.arrays["x"], expected)


def test_names_of_columns_and_of_arrays_may_have_dots(tmp_path):
    names = {"age": "person", "city": "person.city", "income": "person.income"}
    _people().rename(columns=names).to_csv(tmp_path / "people.csv", index=False)
    table = section_source(_config(tmp_path / "people.csv"), "train_data")
    assert {*table.arrays["x"]} == {*names.values()}

    arrays = {"a.b": np.ones([4, 2]), "a": np.ones([4, 1]), "y.kind": np.zeros(4)}
    np.savez(tmp_path / "a.npz", **arrays)
    config = keras_config(
        **NO_ARRAYS,
        task__train_data__source="npz",
        task__train_data__input_path=str(tmp_path / "a.npz"),
    )
    source = section_source(config.task, "train_data")
    assert ({*source.arrays["x"]}, {*source.arrays["y"]}) == ({"a.b", "a"}, {"kind"})


_FRACTIONS = "fractions: {train: .6, validation: .2, test: .2}"
_AGE = "age"  # The column that decides.


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"task__inputs": "[age, income]"}, {"features": FeaturesConfig(numeric=[_AGE, "income"])}),
        ({"task__outputs": _AGE}, {"target": TargetConfig(column=_AGE, type="regression")}),
        ({"task__weight_column": _AGE}, {"weight_column": _AGE}),
    ],
)
def test_a_split_does_not_depend_on_what_its_column_is_used_for(tmp_path, changes, fields):
    # Numbers of 32 bits do not tell these ages apart.
    people, path = _people().assign(age=_people().age + 2.0**24), tmp_path / "people.csv"
    people.to_csv(path, index=False)
    config = _config(path, task__split=f"{{{_FRACTIONS}, hash_of: [age]}}", **changes)
    sections = {
        name: TableDataConfig(source="csv", input_path=str(path), is_training=name == "train_data")
        for name in ("train_data", "validation_data")
    }
    table = {"target": TargetConfig(column="kind"), "split": config.split, **sections}
    key = Column(_AGE, KEY, hash_texts([f"{age:.0f}" for age in people.age]))
    places = positions(hash_rows([key]), 0)

    for section, part in zip(sections, ("train", "validation"), strict=True):
        rows = section_source(config, section).places.all_rows()
        other = table_query(TabularConfig(**table | fields)).part(section).places.all_rows()
        np.testing.assert_array_equal(other, rows)
        expected = rows_of_fraction(places, config.split.fractions, part)
        np.testing.assert_array_equal(rows, expected)


def test_split_column_names_the_parts_also_if_it_is_a_number_and_an_input(tmp_path):
    people, path = _people(), tmp_path / "people.csv"
    people["part"] = [1] * 50 + [2] * 30 + [3] * 10
    people.to_csv(path, index=False)
    parts = {"task__train_data__split": "'1'", "task__validation_data__split": "'2'"}
    for inputs in ("null", "[age, part]"):
        config = _config(path, task__split="{column: part}", task__inputs=inputs, **parts)

        assert section_source(config, "train_data").size == 50
        assert section_source(config, "validation_data").size == 30
        assert ("x" in section_source(config, "train_data").specs) == (inputs != "null")


@pytest.mark.parametrize(
    ("changes", "code", "setting"),
    [
        ({"task__outputs": "knd"}, "unknown-column", "outputs"),
        ({"task__inputs": "[age, plce]"}, "unknown-column", "inputs"),
        ({"task__inputs": "{a: [city, age]}"}, "bad-record", "inputs"),
        ({"task__weight_column": "city"}, "bad-record", "weight_column"),
    ],
)
def test_wrong_column_is_reported_with_its_setting(table, changes, code, setting):
    problems = KerasData(_config(table, task__validation_split=0.2, **changes)).problems()
    assert {(problem.code, problem.path) for problem in problems} == {(code, setting)}


def test_missing_number_and_class_without_training_row_are_errors(tmp_path):
    people, path = _people(), tmp_path / "people.csv"
    people.loc[7, "income"] = np.nan
    people.to_csv(path, index=False)
    for changes, setting in (({}, "inputs"), ({"task__outputs": "income"}, "outputs")):
        problems = dict(pairs(KerasData(_config(path, **changes)).problems()))
        assert f"column 'income' has no value in {path}, row 8" in problems[setting]

    _people().to_csv(tmp_path / "train.csv", index=False)
    other = _people(5)
    other.loc[3, "kind"] = "gest"
    other.to_csv(tmp_path / "other.csv", index=False)
    config = _config(
        tmp_path / "train.csv",
        task__validation_data__source="csv",
        task__validation_data__input_path=str(tmp_path / "other.csv"),
    )
    with raises("unknown-class"):
        section_source(config, "validation_data")


def test_text_among_numbers_is_an_error_unless_inputs_lists_the_column(tmp_path):
    people, path = _people().astype({"age": str}), tmp_path / "people.csv"
    people.loc[7, "age"] = "?"
    people.to_csv(path, index=False)

    problems = dict(pairs(KerasData(_config(path)).problems()))
    assert f"{path}, row 8: column 'age': got '?' in a column of texts" in problems["inputs"]
    listed = _config(path, task__inputs="[age, city]")
    assert not [*KerasData(listed).problems()]
    assert section_source(listed, "train_data").specs["x.age"] == ((), "string")


def test_inspection_shows_the_columns_and_the_rows_of_both_sections(table):
    both = {"task__validation_data__source": "csv", "task__validation_data__input_path": str(table)}
    data = KerasData(_config(table, task__inputs="[age]", **both))

    summary, shared = data.summary(), data.shared_examples()
    assert [(c.name, c.role) for c in summary.columns["validation_data"]] == [
        ("age", "feature"), ("kind", "target")
    ]  # fmt: skip
    assert summary.left_out == ["columns that are not used: city, income"]
    assert (shared.count, shared.places[0]) == (90, f"{table}, row 1")


@pytest.mark.parametrize(
    ("changes", "path"),
    [({"task__outputs": "''"}, "task.outputs"), ({"task__inputs": "{a: 3}"}, "task.inputs")],
)
def test_columns_in_another_form_are_an_error(table, changes, path):
    with pytest.raises(ConfigError) as caught:
        _config(table, **changes)
    assert [problem.path for problem in caught.value.problems] == [path]
