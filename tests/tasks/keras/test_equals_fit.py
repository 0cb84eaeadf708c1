"""Every loss and metric of Keras 3 and Keras 2 in a run, beside `fit`.

Both train 50 steps on the same batches from the same weights. Then the weights, the loss and the
metrics of the training, and those of an evaluation are equal up to the rounding of sums: see
`tests/support/fit.py`. What `fit` refuses, a run refuses with a reason, and it refuses nothing else
but what `reason_of` of `tests/support/fit_table.py` has a reason for.
"""

import dataclasses

import pytest
import tensorflow as tf

from orbit_runner.errors import RunnerError
from tests.support import fit as fits
from tests.support.fit import BATCH, PACKAGES, assert_equal
from tests.support.fit_table import (
    CELLS,
    LABELS,
    VALIDATION,
    Cell,
    accepts,
    case_of,
    check,
    items,
    loss_of,
    reason_of,
)

# Losses.

_NOT_LOSSES = ("Loss", "Reduction")
# Arguments that a run reads, too, by class; `test_keras_items.py` tests the settings of all others.
_LOSS_ARGUMENTS = {
    "CategoricalCrossentropy": [{"from_logits": True, "label_smoothing": 0.1}],
    "MeanSquaredError": [{"reduction": "sum"}, {"reduction": "none"}],
    "SparseCategoricalCrossentropy": [
        {"from_logits": True},
        {"ignore_class": 0},
        {"ignore_class": -1},
        {"reduction": "sum"},
    ],
}
_KERAS_3_LOSS_ARGUMENTS = {
    "MeanSquaredError": [{"reduction": "mean_with_sample_weight"}],
    "SparseCategoricalCrossentropy": [{"reduction": "mean_with_sample_weight"}],
    "Dice": [{"axis": 0}],
}


# CTC compares sequences of other lengths than those of the outputs.
LOSSES = [
    item
    for item in items("losses", _NOT_LOSSES, _LOSS_ARGUMENTS, _KERAS_3_LOSS_ARGUMENTS)
    if item.name != "CTC"
]


def _loss_case(item, cell):
    # Values without a reduction count less in a partial batch, in `evaluate` of Keras 2.
    is_reduced = ("reduction", "none") not in item.arguments
    case = case_of(
        item.version,
        cell,
        lambda package: {"loss": item.make(package.losses)},
        validation=VALIDATION if is_reduced else 7 * BATCH,
    )
    return dataclasses.replace(case, is_deterministic=_has_two_gradients(item, cell))


def _has_two_gradients(item, cell):
    """Returns whether deterministic ops have another gradient. Keras often finds the logits."""
    return item.name == "CategoricalCrossentropy" and not cell.labels.startswith("one-hot")


@pytest.mark.sample(1)
@pytest.mark.alternating
@pytest.mark.parametrize("cell", CELLS, ids=str)
@pytest.mark.parametrize("item", LOSSES, ids=str)
def test_loss_is_that_of_fit(tmp_path, item, cell):
    check(_loss_case(item, cell), tmp_path, reason=reason_of(item, cell))


@pytest.mark.slow
def test_ctc_is_that_of_fit(tmp_path):
    cell = Cell("classes of steps")

    def shortened(part):
        return part._replace(y=1 + part.y[:, :2] % 2)

    case = case_of("3", cell, lambda package: {"loss": package.losses.CTC()})
    case = dataclasses.replace(
        case, data=shortened(case.data), validation=shortened(case.validation)
    )
    check(case, tmp_path)


# Metrics.

_NOT_METRICS = ("Metric", "Mean", "Sum", "MeanTensor", "MeanMetricWrapper")
_METRIC_REQUIRED = {
    "IoU": {"num_classes": 3, "target_class_ids": (0, 2)},
    "MeanIoU": {"num_classes": 3},
    "MeanRelativeError": {"normalizer": (2.0,)},
    "OneHotIoU": {"num_classes": 3, "target_class_ids": (0, 2)},
    "OneHotMeanIoU": {"num_classes": 3},
    "PrecisionAtRecall": {"recall": 0.5},
    "RecallAtPrecision": {"precision": 0.5},
    "SensitivityAtSpecificity": {"specificity": 0.5},
    "SpecificityAtSensitivity": {"sensitivity": 0.5},
}
_METRIC_ARGUMENTS = {
    "F1Score": [{"average": "macro"}, {"average": "micro", "threshold": 0.4}],
    "FBetaScore": [{"average": "weighted", "beta": 2.0}],
    "MeanIoU": [{"num_classes": 3, "sparse_y_pred": False}],
}


def _metric_items():
    for item in items("metrics", _NOT_METRICS, _METRIC_ARGUMENTS):
        required = _METRIC_REQUIRED.get(item.name, {})
        yield item._replace(arguments=tuple({**required, **dict(item.arguments)}.items()))


METRICS = [*_metric_items()]
_GROUPS = 7
# The columns of the table with one Keras; those with the other one are `wide`. An odd number of
# groups has all of them with both.
_COLUMNS = [
    pytest.param(
        (version, cell),
        id=f"{version} {cell}",
        marks=pytest.mark.wide if (number + int(version)) % 2 else (),
    )
    for version in PACKAGES
    for number, cell in enumerate(CELLS)
]


def _metrics_of(version, group, labels):
    """Returns the metrics of a group, which are tested together."""
    items = [item for item in METRICS if item.version == version][group::_GROUPS]
    return [item for item in items if not _clips(version, labels, item.name)]


def _clips(version, labels, name):
    """Returns whether a metric is that of probabilities, but outputs are above 1.

    Keras 2 clips these to 1 - 1e-7. For a label 0, the crossentropy is then 15.33, but 15.25 if
    TensorFlow optimizes the graph, as in `fit`. The run has the value that Keras has eagerly.
    """
    is_probability = name in ("BinaryCrossentropy", "crossentropy", "ce")
    return version == "2" and is_probability and LABELS[labels].activation == "softplus"


def _metric_case(cell, version, items):
    """Returns a training with metrics: items by the argument of `compile` that has them."""

    def compiled(package):
        built = {
            kind: [item.make(package.metrics, name=f"{kind}_{n}") for n, item in enumerate(of_kind)]
            for kind, of_kind in items.items()
        }
        return {"loss": loss_of(package, cell), **built}

    return case_of(version, cell, compiled)


@pytest.mark.sample(1)
@pytest.mark.alternating
@pytest.mark.parametrize("group", range(_GROUPS))
@pytest.mark.parametrize("column", _COLUMNS)
def test_metric_is_that_of_fit(tmp_path, column, group):
    """Metrics that `fit` accepts are trained together, and another one is refused."""
    version, cell = column
    if not accepts(_metric_case(cell, version, {}), cell):
        pytest.skip("`fit` refuses the weights, and so does a run with the same loss")
    # Without weights, weighted metrics are metrics.
    kinds = ("metrics", "weighted_metrics") if cell.weights else ("metrics",)
    computed = {kind: [] for kind in kinds}
    refused = []
    for number, item in enumerate(_metrics_of(version, group, cell.labels)):
        kind = kinds[number % len(kinds)]
        case = _metric_case(cell, version, {kind: [item]})
        if not reason_of(item) and accepts(case, cell):
            computed[kind].append(item)
        else:
            refused.append(case)
    if any(computed.values()):
        case = _metric_case(cell, version, computed)
        assert_equal(fits.train(case, tmp_path / "run"), fits.fit(case))
    for case in refused[:1]:
        # An op of a metric raises the latter.
        with pytest.raises((RunnerError, tf.errors.InvalidArgumentError)):
            fits.train(case, tmp_path / "refused")


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("version", PACKAGES)
def test_names_that_stand_for_several_metrics_are_those_of_fit(tmp_path, version, labels):
    cell = Cell(labels)
    has_name = version == "3" and LABELS[labels].activation != "softplus"
    names = [name for name in ("accuracy", "crossentropy") if not _clips(version, labels, name)]

    def compiled(package):
        loss = "crossentropy" if has_name else loss_of(package, cell)
        return {"loss": loss, "metrics": names}

    case = case_of(version, cell, compiled)
    # It is the crossentropy of labels that do not sum up to 1.
    is_deterministic = has_name and labels == "several of three"
    check(dataclasses.replace(case, is_deterministic=is_deterministic), tmp_path)


def test_table_has_each_class_of_keras():
    """A new class that needs arguments has to be added to the table."""
    for item in LOSSES:
        assert item.make(PACKAGES[item.version].losses) is not None
    for item in METRICS:
        assert item.make(PACKAGES[item.version].metrics) is not None
