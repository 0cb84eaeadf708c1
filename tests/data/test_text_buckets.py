import numpy as np
import pytest

from orbit_runner.data.text.order import PairBatching, bucket_widths, plan_batches
from orbit_runner.data.text.source import EOS, PairSource, Ragged
from tests.support.problems import raises
from tests.support.sentences import token_pairs


@pytest.mark.parametrize("size", [1, 7, 8, 9, 500, 1003])
@pytest.mark.parametrize(("tokens", "multiple"), [(480, 8), (2000, 8), (333, 1), (900, 3)])
def test_batches_cover_all_pairs_within_the_token_budget(size, tokens, multiple):
    source = token_pairs(size)
    plan = plan_batches(source, batch_tokens=tokens, rows_multiple=multiple)
    assert sorted(plan.members) == list(range(size))
    assert plan.batch_starts[0] == 0
    ends = plan.batch_starts + plan.batch_rows
    np.testing.assert_array_equal(plan.batch_starts[1:], ends[:-1])
    assert size <= ends[-1] < size + multiple
    assert plan.batch_rows.min() >= 1
    assert not (plan.batch_rows % multiple).any()
    widths = bucket_widths(int(source.lengths.max()))
    bounds = widths[np.searchsorted(widths, source.lengths)][plan.members]
    for start, rows in zip(plan.batch_starts, plan.batch_rows, strict=True):
        # This holds for whichever pairs of a bucket an epoch puts there.
        assert bounds[start : start + rows].max() * rows <= tokens
    np.testing.assert_array_equal(np.diff(plan.bucket_offsets), np.bincount(
        np.searchsorted(widths, source.lengths), minlength=len(widths)))  # fmt: skip


def test_only_batches_at_bucket_boundaries_are_not_full():
    rows = Ragged.from_rows([[5] * (length - 1) + [EOS] for length in [8] * 100 + [16] * 100])
    source = PairSource("made", rows, rows, 6)
    plan = plan_batches(source, batch_tokens=320, rows_multiple=8)
    # Twice 40 rows of 8 tokens. Of the other 20, a batch has 16 rows: 24 would include longer
    # pairs and exceed the budget.
    assert plan.batch_rows.tolist() == [40, 40, 16, *[16] * 6, 8]
    assert plan.steps_per_epoch == 10


def test_steps_per_epoch_is_correct_in_each_batching_mode():
    source = token_pairs(1003)
    plan = plan_batches(source, batch_tokens=600)

    def steps_per_epoch(**settings):
        return (
            PairBatching(source=source, max_length=60, seed=0, **settings).order().steps_per_epoch
        )

    assert steps_per_epoch(batch_tokens=600) == plan.steps_per_epoch
    assert steps_per_epoch(batch_tokens=600, static_shapes=True) == 1003 / 8
    assert steps_per_epoch(global_batch_size=16) == 1003 / 16


def test_ragged_rows_can_be_joined_selected_and_cut():
    rows = Ragged.from_rows([[3, 4, 1], [1], [5, 6, 7, 1]])
    assert rows.offsets.tolist() == [0, 3, 4, 8]
    assert [rows.row(k).tolist() for k in range(3)] == [[3, 4, 1], [1], [5, 6, 7, 1]]
    both = Ragged.concatenate([rows, Ragged.from_rows([]), rows])
    assert both.size == 6
    assert both.row(5).tolist() == [5, 6, 7, 1]
    kept = rows.select(np.array([True, False, True]))
    assert [kept.row(k).tolist() for k in range(2)] == [[3, 4, 1], [5, 6, 7, 1]]
    cut = rows.cut(3)
    assert [cut.row(k).tolist() for k in range(3)] == [[3, 4, 1], [1], [5, 6, 1]]
    assert rows.row(2).tolist() == [5, 6, 7, 1]


def test_empty_or_differently_sized_sides_are_rejected():
    with raises("data-mismatch"):
        PairSource("made", Ragged.from_rows([[1], [1]]), Ragged.from_rows([[1]]), 5)
    with raises("data-mismatch"):
        PairSource("made", Ragged.from_rows([]), Ragged.from_rows([]), 5)
