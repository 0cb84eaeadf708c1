"""The tables inside scikit-learn, compared with what scikit-learn itself returns."""

import numpy as np
from sklearn import datasets

from orbit_runner.data.tables.build import read_table
from orbit_runner.datasets import scikit_learn
from tests.support.problems import raises

LOADERS = {"breast_cancer": scikit_learn.BREAST_CANCER, "diabetes": scikit_learn.DIABETES}


def _open(name):
    return LOADERS[name].load()


def test_breast_cancer_is_that_of_sklearn():
    expected = datasets.load_breast_cancer()
    reader = _open("breast_cancer")
    assert reader.name == "breast_cancer"
    names = [
        f"error_{name[:-6]}" if name.endswith(" error") else name for name in expected.feature_names
    ]
    names = [name.replace(" ", "_") for name in names]
    assert list(reader.kinds) == [*names, "diagnosis"]
    table = read_table(reader, {**dict.fromkeys(names, "number"), "diagnosis": "category"})
    for place, name in enumerate(names):
        np.testing.assert_array_equal(
            table.columns[name].values, expected.data[:, place].astype(np.float32)
        )
    texts = [table.columns["diagnosis"].text(row) for row in range(table.size)]
    assert texts == [str(expected.target_names[label]) for label in expected.target]


def test_diabetes_is_that_of_sklearn():
    expected = datasets.load_diabetes(scaled=False)
    names = list(expected.feature_names)
    reader = _open("diabetes")
    assert reader.name == "diabetes"
    assert list(reader.kinds) == [*names, "progression"]
    dataset = read_table(reader, dict.fromkeys(reader.kinds, "number"))
    table = np.column_stack([expected.data, expected.target]).astype(np.float32)
    for place, name in enumerate(reader.kinds):
        np.testing.assert_array_equal(dataset.columns[name].values, table[:, place])


def test_missing_and_damaged_files_are_reported(tmp_path):
    (tmp_path / "a.csv").write_text("1,x\n")
    for name in ("a.csv", "absent.csv"):
        with raises("unreadable-file"):
            scikit_learn._read_table(tmp_path / name, ",")
