"""Every loss and metric of Keras 3 and Keras 2 in a run, beside `fit`.

Both train 50 steps on the same batches from the same weights. Then the weights, the loss and the
metrics of the training, and those of an evaluation are equal up to the rounding of sums: see
`tests/support/fit.py`. What `fit` refuses, a run refuses with a reason, and it refuses nothing else
but what `reason_of` of `tests/support/fit_table.py` has a reason for.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from orbit_runner.errors import RunnerError
from tests.support import fit as fits
from tests.support.fit import BATCH, PACKAGES, Arrays, Case, assert_equal
from tests.support.fit_table import (
    CELLS,
    LABELS,
    VALIDATION,
    Cell,
    Item,
    accepts,
    case_of,
    check,
    items,
    loss_of,
    reason_of,
)

# Losses.

_NOT_LOSSES = ("Loss", "Reduction")
# Arguments beside the defaults, by class.
_LOSS_ARGUMENTS: Mapping[str, list[dict[str, Any]]] = {
    "BinaryCrossentropy": [{"from_logits": True, "label_smoothing": 0.1}],
    "BinaryFocalCrossentropy": [{"apply_class_balancing": True, "alpha": 0.3, "gamma": 1.0}],
    "CategoricalCrossentropy": [{"from_logits": True, "label_smoothing": 0.1}, {"axis": 1}],
    "CategoricalFocalCrossentropy": [{"alpha": 0.3, "gamma": 1.0}],
    "CosineSimilarity": [{"axis": 1}],
    "Huber": [{"delta": 0.2}],
    "MeanSquaredError": [{"reduction": "sum"}, {"reduction": "none"}],
    "SparseCategoricalCrossentropy": [
        {"from_logits": True},
        {"ignore_class": 0},
        {"ignore_class": -1},
        {"reduction": "sum"},
    ],
}
_KERAS_3_LOSS_ARGUMENTS: Mapping[str, list[dict[str, Any]]] = {
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


def _groups(items: list[Item], count: int) -> dict[str, list[Item]]:
    """Returns the rows of each version in some groups, which are tested together."""
    rows = {version: [item for item in items if item.version == version] for version in PACKAGES}
    return {
        f"{version} group {number}": rows[version][number::count]
        for number in range(count)
        for version in PACKAGES
    }


_LOSS_GROUPS = _groups(LOSSES, 4)


def _loss_case(item: Item, cell: Cell) -> Case:
    # Values without a reduction count less in a partial batch, in `evaluate` of Keras 2.
    is_reduced = ("reduction", "none") not in item.arguments
    case = case_of(
        item.version,
        cell,
        lambda package: {"loss": item.make(package.losses)},
        validation=VALIDATION if is_reduced else 7 * BATCH,
    )
    return dataclasses.replace(case, is_deterministic=_has_two_gradients(item, cell))


def _has_two_gradients(item: Item, cell: Cell) -> bool:
    """Returns whether deterministic ops have another gradient. Keras often finds the logits."""
    return item.name == "CategoricalCrossentropy" and not cell.labels.startswith("one-hot")


@pytest.mark.sample(1)
@pytest.mark.alternating
@pytest.mark.parametrize("cell", CELLS, ids=str)
@pytest.mark.parametrize("item", LOSSES, ids=str)
def test_loss_is_that_of_fit(tmp_path: Path, item: Item, cell: Cell) -> None:
    check(_loss_case(item, cell), tmp_path, reason=reason_of(item, cell))


def _is_computed(item: Item, cell: Cell) -> bool:
    return not reason_of(item, cell) and accepts(_loss_case(item, cell), cell)


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell.weights != "classes"], ids=str)
@pytest.mark.parametrize("group", _LOSS_GROUPS)
def test_loss_of_an_output_is_that_of_fit(tmp_path: Path, group: str, cell: Cell) -> None:
    items = {
        f"loss_{index}": item
        for index, item in enumerate(_LOSS_GROUPS[group])
        if ("reduction", "none") not in item.arguments  # It cannot be added to others.
        and _is_computed(item, cell)
    }

    def compiled(package: Any) -> Mapping[str, Any]:
        return {"loss": {name: item.make(package.losses) for name, item in items.items()}}

    # `fit` averages the losses of outputs over batches, also if the last one is partial.
    case = case_of(group[0], cell, compiled, names=[*items], validation=7 * BATCH)
    is_deterministic = any(_has_two_gradients(item, cell) for item in items.values())
    case = dataclasses.replace(case, is_deterministic=is_deterministic)
    if items:
        assert_equal(fits.train(case, tmp_path), fits.fit(case))


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("cell", CELLS, ids=str)
@pytest.mark.parametrize("group", _LOSS_GROUPS)
def test_run_refuses_losses_that_fit_refuses(tmp_path: Path, group: str, cell: Cell) -> None:
    items = [item for item in _LOSS_GROUPS[group] if not _is_computed(item, cell)]
    trained = _trained([_loss_case(item, cell) for item in items], tmp_path)

    assert not trained, f"fit refuses {trained}"


def _trained(cases: list[Case], folder: Path) -> list[str]:
    """Returns the losses and metrics of the cases that a run accepts."""
    trained = []
    for index, case in enumerate(cases):
        try:
            fits.train(case, folder / str(index))
        except (RunnerError, tf.errors.InvalidArgumentError):  # The latter is of an op of a metric.
            continue
        trained.append(str({**case.compiled(case.package)}))
    return trained


@pytest.mark.slow
def test_ctc_is_that_of_fit(tmp_path: Path) -> None:
    cell = Cell("classes of steps")

    def shortened(part: Arrays) -> Arrays:
        return part._replace(y=1 + part.y[:, :2] % 2)

    case = case_of("3", cell, lambda package: {"loss": package.losses.CTC()})
    assert case.validation is not None
    case = dataclasses.replace(
        case, data=shortened(case.data), validation=shortened(case.validation)
    )
    check(case, tmp_path)


# Metrics.

_NOT_METRICS = ("Metric", "Mean", "Sum", "MeanTensor", "MeanMetricWrapper")
_METRIC_REQUIRED: Mapping[str, dict[str, Any]] = {
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
_METRIC_ARGUMENTS: Mapping[str, list[dict[str, Any]]] = {
    "AUC": [
        {"curve": "PR", "summation_method": "majoring", "num_thresholds": 20},
        {"multi_label": True, "num_labels": 3},
        {"from_logits": True},
    ],
    "BinaryAccuracy": [{"threshold": 0.3}],
    "BinaryIoU": [{"target_class_ids": (1,), "threshold": 0.4}],
    "F1Score": [{"average": "macro"}, {"average": "micro", "threshold": 0.4}],
    "FBetaScore": [{"average": "weighted", "beta": 2.0}],
    "IoU": [
        {"num_classes": 3, "target_class_ids": (1,), "sparse_y_pred": False},
        {"num_classes": 3, "target_class_ids": (1,), "sparse_y_true": False,
         "sparse_y_pred": False},
    ],
    "MeanIoU": [
        {"num_classes": 3, "sparse_y_pred": False},
        {"num_classes": 3, "sparse_y_pred": False, "ignore_class": 0},
    ],
    "Precision": [{"class_id": 1, "top_k": 2}],
    "Recall": [{"thresholds": 0.3}],
    "CategoricalCrossentropy": [{"label_smoothing": 0.1, "from_logits": True}],
    "SparseTopKCategoricalAccuracy": [{"k": 2}],
    "TopKCategoricalAccuracy": [{"k": 2}],
    "R2Score": [{"class_aggregation": "variance_weighted_average"}],
    "CosineSimilarity": [{"axis": 1}],
}  # fmt: skip


def _metric_items() -> Iterator[Item]:
    for item in items("metrics", _NOT_METRICS, _METRIC_ARGUMENTS):
        required = _METRIC_REQUIRED.get(item.name, {})
        yield item._replace(arguments=tuple({**required, **dict(item.arguments)}.items()))


METRICS = [*_metric_items()]


def _metric_case(cell: Cell, version: str, items: list[Item], kind: str = "metrics") -> Case:
    def compiled(package: Any) -> Mapping[str, Any]:
        names = [f"metric_{index}" for index in range(len(items))]
        made = [
            item.make(package.metrics, name=name) for item, name in zip(items, names, strict=True)
        ]
        return {"loss": loss_of(package, cell), kind: made}

    return case_of(version, cell, compiled)


def _metric_cases(group: str, cell: Cell, kind: str) -> tuple[Case | None, list[Case]]:
    """Returns a training with the metrics that `fit` accepts, and one with each of the others.

    The first is None if it accepts none, such as if it refuses the weights.
    """
    singles = {
        item: _metric_case(cell, item.version, [item], kind) for item in _METRIC_GROUPS[group]
    }
    computed = [
        item for item, case in singles.items() if not reason_of(item) and accepts(case, cell)
    ]
    refused = [case for item, case in singles.items() if item not in computed]
    return _metric_case(cell, group[0], computed, kind) if computed else None, refused


_METRIC_GROUPS = _groups(METRICS, 8)
_WEIGHTED = [cell for cell in CELLS if cell.weights]


@pytest.mark.sample(1)
@pytest.mark.alternating
@pytest.mark.parametrize("cell", CELLS, ids=str)
@pytest.mark.parametrize("group", _METRIC_GROUPS)
def test_metric_is_that_of_fit(tmp_path: Path, group: str, cell: Cell) -> None:
    computed, refused = _metric_cases(group, cell, "metrics")
    if computed is not None:
        assert_equal(fits.train(computed, tmp_path / "run"), fits.fit(computed))

    trained = _trained(refused, tmp_path)
    assert not trained, f"fit refuses {trained}"


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("cell", _WEIGHTED, ids=str)
@pytest.mark.parametrize("group", _METRIC_GROUPS)
def test_weighted_metric_is_that_of_fit(tmp_path: Path, group: str, cell: Cell) -> None:
    computed, _ = _metric_cases(group, cell, "weighted_metrics")
    if computed is not None:
        assert_equal(fits.train(computed, tmp_path), fits.fit(computed))


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("version", PACKAGES)
def test_name_that_stands_for_several_metrics_is_that_of_fit(
    tmp_path: Path, version: str, labels: str
) -> None:
    """Each name is the metric of an output of its own."""
    cell = Cell(labels)

    def case(names: list[str]) -> Case:
        def compiled(package: Any) -> Mapping[str, Any]:
            is_class = version == "3" and LABELS[labels].activation != "softplus"
            loss = "crossentropy" if is_class else loss_of(package, cell)
            metrics = {f"of_{name}": [name] for name in names}
            return {"loss": dict.fromkeys(metrics, loss), "metrics": metrics}

        return case_of(
            version, cell, compiled, names=[f"of_{name}" for name in names], validation=7 * BATCH
        )

    def single(name: str) -> Case:
        loss = functools.partial(loss_of, cell=cell)
        return case_of(version, cell, lambda package: {"loss": loss(package), "metrics": [name]})

    names = ["accuracy", "acc", "crossentropy", "ce"]
    if version == "2" and LABELS[labels].activation == "softplus":
        names = names[:2]  # Near 1, log(1 - output) magnifies the rounding of the weights.
    computed = [name for name in names if accepts(single(name), cell)]
    assert_equal(fits.train(case(computed), tmp_path / "run"), fits.fit(case(computed)))

    trained = _trained([single(name) for name in names if name not in computed], tmp_path)
    assert not trained, f"fit refuses {trained}"


def test_table_has_each_class_of_keras() -> None:
    """A new class that needs arguments has to be added to the table."""
    for item in LOSSES:
        assert item.make(PACKAGES[item.version].losses) is not None
    for item in METRICS:
        assert item.make(PACKAGES[item.version].metrics) is not None
