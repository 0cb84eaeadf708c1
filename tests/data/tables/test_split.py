"""Parts of a table by hash: known values, stable when rows are added, equal rows together."""

import dataclasses

import numpy as np

from orbit_runner.data.tables.cell_texts import parse_date
from orbit_runner.data.tables.columns import DATE, MISSING_DATE, Column
from orbit_runner.data.tables.hashing import hash_rows, hash_texts, value_bits
from orbit_runner.data.tables.split import positions, rows_of_fraction, rows_with_value
from tests.support.problems import raises

FRACTIONS = {"train": 0.8, "validation": 0.1, "test": 0.1}


def _category(texts):
    vocabulary = tuple(sorted(set(texts) - {""}))
    codes = [vocabulary.index(text) if text else -1 for text in texts]
    return Column("c", "category", np.array(codes, np.int32), vocabulary)


def _number(values):
    return Column("n", "number", np.array(values, np.float32))


def test_hashes_do_not_change():
    # Rows would move to other parts if these changed.
    texts = ["", "a", "ab", "ba", "é"]
    assert hash_texts(texts).tolist() == [
        16294208416658607535, 9024088986618521057, 743717416582756027, 17022488092571038771,
        1500992736397569888,
    ]  # fmt: skip
    rows = hash_rows([_number([1, -2.5]), _category(["a", ""])])
    assert rows.tolist() == [18415512980676956798, 11102067731739420783]
    np.testing.assert_allclose(
        positions(rows, 7), [0.821727848557354, 0.24178436348056276], rtol=1e-12
    )


def test_hash_of_a_value_does_not_depend_on_other_rows():
    few, many = _category(["b", "c", ""]), _category(["a", "b", "", "c", "d"])
    assert value_bits(few).tolist() == value_bits(many)[[1, 3, 2]].tolist()
    zeros = value_bits(_number([0.0, -0.0, np.nan, np.nan, 1.0]))
    assert zeros[0] == zeros[1] != zeros[2] == zeros[3] != zeros[4]
    assert len({*zeros.tolist()}) == 3


def test_hash_of_rows_ignores_the_order_of_columns():
    number, category = _number([1, 2, 1]), _category(["a", "a", "b"])
    assert hash_rows([number, category]).tolist() == hash_rows([category, number]).tolist()
    assert len(set(hash_rows([number, category]).tolist())) == 3


def test_a_value_has_one_hash_whatever_the_kind_of_its_column():
    numbers = _hashes(_number([7, -2.5, 0, 1, 0, 1e5, np.nan]))
    texts = ["7.0", "-2.50", "-0", "true", "false", "1e5", ""]
    assert _hashes(_category(texts)) == numbers
    assert _hashes(_category(["7", "-2.5", "0.0", "True", "FALSE", "+100000", "nan"])) == numbers
    assert len({*numbers}) == 6

    dates = ["2024-01-31T10:30", "2024-01-31", ""]
    seconds = [parse_date(text) for text in dates[:2]] + [MISSING_DATE]
    hashes = _hashes(Column("n", DATE, np.array(seconds)))
    assert _hashes(_category(dates)) == hashes
    other_forms = ["2024-01-31 11:30:00.5+01:00", "2024-01-31T00:00:00Z", ""]
    assert _hashes(_category(other_forms)) == hashes
    words = ["grün", "7 kg", "2024-01-32", "1_000"]
    assert len({*_hashes(_category(words))} - {*numbers, *hashes}) == 4
    (composed, decomposed) = _hashes(_category(["gr\u00fcn", "gru\u0308n"]))
    assert composed == decomposed


def test_exact_hashes_of_different_categories_are_different():
    codes = ["7", "007", "123456789", "123456790", "nan", ""]
    assert len({*hash_rows([_category(codes)], exact=True).tolist()}) == len(codes)


def _hashes(column):
    return hash_rows([dataclasses.replace(column, name="n")]).tolist()


def test_parts_are_disjoint_and_have_their_shares():
    hashes = hash_texts([f"row {n}" for n in range(20_000)])
    places = positions(hashes, 0)
    parts = {name: rows_of_fraction(places, FRACTIONS, name) for name in FRACTIONS}
    joined = np.concatenate([*parts.values()])
    assert sorted(joined.tolist()) == list(range(20_000))
    for name, share in FRACTIONS.items():
        # Four standard deviations of a binomial distribution.
        assert abs(len(parts[name]) - 20_000 * share) < 4 * np.sqrt(20_000 * share * (1 - share))
    other = rows_of_fraction(positions(hashes, 1), FRACTIONS, "test")
    assert other.tolist() != parts["test"].tolist()


def test_rows_stay_in_their_part_when_rows_are_added():
    hashes = hash_texts([f"row {n}" for n in range(3000)])
    before = rows_of_fraction(positions(hashes[:1000], 0), FRACTIONS, "train")
    after = rows_of_fraction(positions(hashes, 0), FRACTIONS, "train")
    assert before.tolist() == after[after < 1000].tolist()
    assert len(after) > len(before)


def test_fractions_below_one_leave_rows_out():
    places = positions(hash_texts([f"row {n}" for n in range(1000)]), 0)
    small = rows_of_fraction(places, {"train": 0.25}, "train")
    assert 150 < len(small) < 350


def test_parts_without_rows_are_reported():
    with raises("unknown-part"):
        rows_of_fraction(np.zeros(1), FRACTIONS, "tests")
    with raises("empty-data"):
        rows_of_fraction(np.full(2, 0.5), {"no": 0.1, "yes": 0.9}, "no")


def test_rows_with_a_value_of_a_column():
    column = _category(["train", "test", "", "train"])
    assert rows_with_value(column, "train").tolist() == [0, 3]
    with raises("unknown-part"):
        rows_with_value(column, "tran")
