"""Builds per-example losses from the names of Keras, and checks that they fit the labels."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import tensorflow as tf
import tf_keras

from orbit_runner.errors import SettingError, first_line
from orbit_runner.tasks.keras.keras_3 import base_classes
from orbit_runner.tasks.keras.keras_names import find_class, split_item
from orbit_runner.tasks.keras.outputs import (
    CALL_ERRORS,
    Outputs,
    match_labels,
    reason_of,
)
from orbit_runner.tasks.keras.passed_objects import load_function
from orbit_runner.tasks.keras.trained_arrays import Labels
from orbit_runner.tf_internals import autograph_convert, autograph_status, keras_mask
from orbit_runner.utils.log import note

_PATH = "task.loss"
_SPARSE = "SparseCategoricalCrossentropy"
_CATEGORICAL = ("CategoricalCrossentropy", "CategoricalFocalCrossentropy")
_BINARY = ("BinaryCrossentropy", "BinaryFocalCrossentropy")
_REGRESSION_LOSSES = "mse, mae, huber, log_cosh"


class FunctionLoss(tf_keras.losses.Loss):
    """A function of labels and outputs as a loss of Keras, which AutoGraph converts."""

    def __init__(self, function: Callable[..., tf.Tensor], arguments: Mapping[str, object]) -> None:
        super().__init__(reduction="none", name=getattr(function, "__name__", "loss"))
        self._function = function
        self._arguments = dict(arguments)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns the values of the function."""
        return self._function(y_true, y_pred, **self._arguments)


class ExampleLoss:
    """A loss of Keras, as one value for each example.

    Attributes:
        kind: `sparse`, `categorical`, `binary`, or "" for all other losses.
        from_logits: Whether the outputs of the model are logits.
        is_of_user: Whether it is a function or class of the user.
        path: The setting that names it, for messages.
    """

    def __init__(
        self,
        loss: tf_keras.losses.Loss,
        from_logits: bool,
        *,
        is_of_user: bool = False,
        path: str = _PATH,
    ) -> None:
        self._loss = loss
        self.path = path
        self.from_logits = from_logits
        self.is_of_user = is_of_user
        name = type(loss).__name__
        self.kind = "sparse" if name == _SPARSE else "categorical" if name in _CATEGORICAL else ""
        self.kind = "binary" if name in _BINARY else self.kind

    @property
    def name(self) -> str:
        """The name of the class of the loss, or of the function."""
        is_function = isinstance(self._loss, FunctionLoss)
        return str(self._loss.name) if is_function else type(self._loss).__name__

    def __call__(
        self, labels: tf.Tensor, outputs: tf.Tensor, counts: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Returns what each example adds to the loss of the batch, float32 [batch].

        Their mean is the loss of Keras. If an example has several values, such as one for each step
        of a sequence, each value that the mask does not exclude has the same weight, so that an
        example with more of them adds more. If a loss has one value for the whole batch, all
        examples have it. `counts`, float32 [batch], is 0 for rows that are no examples; the mean is
        then over the others. Raises `SettingError` if the loss cannot be computed.
        """
        mask = keras_mask(outputs)
        outputs = tf.cast(outputs, tf.float32)
        try:
            losses = self._values(labels, outputs)
        except CALL_ERRORS as error:
            raise SettingError(
                self.path, f"{self.name}: {reason_of(error)}", code="model-mismatch"
            ) from error
        mask = _both(mask, keras_mask(losses))
        losses = tf.cast(losses, tf.float32)
        rank = losses.shape.rank
        if rank == 0:
            return self._spread(losses, outputs, counts)
        if mask is None:
            return losses if rank == 1 else tf.reduce_mean(losses, axis=list(range(1, rank)))
        return _masked_means(losses, self._fit_mask(mask, losses), counts)

    def _values(self, labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        # Not by calling the loss, because its result does not have the mask of `ignore_class`.
        call = self._loss.call
        if not tf.executing_eagerly():
            call = autograph_convert(call, autograph_status())
        if self.kind == "sparse":
            return call(labels, outputs)
        as_numbers = _match_rank(tf.cast(labels, outputs.dtype), outputs)
        if not self.is_of_user:
            return call(as_numbers, outputs)
        # Code that Keras can train with gets the labels as Keras passes them.
        try:
            return call(_match_rank(match_labels(labels, outputs), outputs), outputs)
        except CALL_ERRORS:
            if not labels.dtype.is_integer:
                raise
            return call(_match_rank(match_labels(as_numbers, outputs), outputs), outputs)

    def _spread(self, loss: tf.Tensor, outputs: tf.Tensor, counts: tf.Tensor | None) -> tf.Tensor:
        if counts is not None:
            raise SettingError(
                self.path,
                f"{self.name} returns one number for the whole batch, which may have rows that are "
                "no examples\nreturn one number per example, such as a mean over axis -1",
                code="model-mismatch",
            )
        return tf.fill(tf.shape(outputs)[:1], loss)

    def _fit_mask(self, mask: tf.Tensor, losses: tf.Tensor) -> tf.Tensor:
        """Returns a mask with the shape of the losses."""
        rank = mask.shape.rank
        if rank > losses.shape.rank or not mask.shape.is_compatible_with(losses.shape[:rank]):
            raise SettingError(
                self.path,
                f"{self.name} returns values {losses.shape}, but the outputs of the model have a "
                f"mask {mask.shape}\nreturn one value for each step of a sequence",
                code="model-mismatch",
            )
        for _ in range(losses.shape.rank - rank):
            mask = mask[..., tf.newaxis]
        return tf.broadcast_to(tf.cast(mask, tf.float32), tf.shape(losses))


def _both(mask: tf.Tensor | None, other_mask: tf.Tensor | None) -> tf.Tensor | None:
    if mask is None or other_mask is None:
        return other_mask if mask is None else mask
    return tf.logical_and(tf.cast(mask, tf.bool), tf.cast(other_mask, tf.bool))


def _masked_means(losses: tf.Tensor, mask: tf.Tensor, counts: tf.Tensor | None) -> tf.Tensor:
    """Returns the values of each example, scaled so that their mean is that of all values.

    It is 0 if the mask excludes everything.
    """
    axes = list(range(1, losses.shape.rank))
    values = tf.reduce_sum(losses * mask, axis=axes)
    included = tf.reduce_sum(mask, axis=axes)
    if counts is None:
        examples = tf.cast(tf.size(included), tf.float32)
    else:
        included *= counts
        examples = tf.reduce_sum(counts)
    return tf.math.divide_no_nan(values * examples, tf.reduce_sum(included))


def make_loss(
    item: str | Mapping[str, object], labels: Labels, outputs: Outputs, path: str = _PATH
) -> ExampleLoss:
    """Returns the loss of a config, which the setting `path` names.

    Raises `SettingError` if it does not fit labels and outputs.
    """
    name, arguments = split_item(item or _default_loss(labels, outputs, path))
    loss = _build_loss(name, arguments, path)
    from_logits = bool(arguments.get("from_logits", False))
    example_loss = ExampleLoss(loss, from_logits, is_of_user=":" in name, path=path)
    if ":" not in name:
        _check_axis(name, arguments, outputs, path)
    check_fit(example_loss, labels, outputs)
    return example_loss


def check_fit(loss: ExampleLoss, labels: Labels, outputs: Outputs) -> None:
    """Raises `SettingError` if a loss does not fit the labels and the outputs of the model."""
    problem = ""
    if loss.kind == "sparse":
        problem = _sparse_problem(labels, outputs)
    elif not loss.kind and loss.is_of_user:
        return  # Only the code of the user knows which shapes it takes.
    elif not _same_shape(labels, outputs):
        problem = f"got labels {labels} and outputs {outputs}, expected the same shape"
        if labels.are_integers and labels.shape == outputs.shape[:-1] and outputs.width != 1:
            problem += "\nfor class numbers, use sparse_categorical_crossentropy"
    elif loss.kind == "binary" and labels.high is not None:
        low = labels.low if labels.low is not None else 0.0
        if low < 0 or labels.high > 1:
            problem = f"got labels {labels}, expected 0 to 1"
    if problem:
        raise SettingError(loss.path, f"{loss.name} does not fit: {problem}", code="model-mismatch")
    if loss.kind and not loss.from_logits and outputs.activation == "linear":
        note(
            f"warning: {loss.path}: {loss.name} expects probabilities, but the last layer of the "
            "model has no activation; set from_logits: true, or add a softmax or sigmoid"
        )


def _check_axis(name: str, arguments: Mapping[str, object], outputs: Outputs, path: str) -> None:
    axis = arguments.get("axis", -1)
    rank = len(outputs.shape) + 1
    if isinstance(axis, int) and not (0 < axis < rank or -rank < axis < 0):
        raise SettingError(
            path,
            f"{name}: got axis: {axis}, expected an axis of one example: outputs are {outputs}\n"
            f"allowed: 1 to {rank - 1}, -{rank - 1} to -1",
            code="out-of-range",
        )


def _sparse_problem(labels: Labels, outputs: Outputs) -> str:
    expected = tuple(outputs.shape[:-1])
    if _matches(labels.shape, outputs.shape) and outputs.width != 1:
        return (
            f"got labels {labels} of the same shape as the outputs, expected class numbers\n"
            "for one-hot labels, use categorical_crossentropy"
        )
    if not labels.are_integers:
        return (
            f"got labels {labels}, expected integers\nconvert them, or use a loss for numbers: "
            f"{_REGRESSION_LOSSES}"
        )
    if not (_matches(labels.shape, expected) or _matches(labels.shape, (*expected, 1))):
        return f"got labels {labels} and outputs {outputs}, expected one class number per output"
    width = outputs.width
    if labels.low is not None and labels.low < 0:
        return f"got labels {labels}, expected class numbers starting at 0"
    if width is not None and labels.high is not None and labels.high >= width:
        return (
            f"got labels {labels}, but the model has {width} outputs, for classes 0 to "
            f"{width - 1}\n"
            f"change the width of the last layer to {labels.high + 1:g}, or the labels"
        )
    return ""


def _same_shape(labels: Labels, outputs: Outputs) -> bool:
    shape = outputs.shape
    return (
        _matches(labels.shape, shape)
        or (outputs.width == 1 and _matches(labels.shape, shape[:-1]))
        or _matches(labels.shape, (*shape, 1))
    )


def _matches(shape: tuple[int, ...], other_shape: tuple[int | None, ...]) -> bool:
    if len(shape) != len(other_shape):
        return False
    return all(size is None or size == own for own, size in zip(shape, other_shape, strict=True))


def _default_loss(labels: Labels, outputs: Outputs, path: str) -> str | dict[str, str | bool]:
    """Returns the loss that labels and outputs require."""
    activation = outputs.activation
    if labels.are_integers and not _sparse_problem(labels, outputs) and (outputs.width or 0) > 1:
        if activation in ("softmax", "linear"):
            logits = activation == "linear"
            return {"name": "sparse_categorical_crossentropy", "from_logits": logits}
        candidates = "sparse_categorical_crossentropy, and the same with from_logits: true"
    elif activation == "sigmoid" and labels.are_integers and labels.high == 1:
        return "binary_crossentropy"
    elif labels.are_integers and labels.high is not None and labels.high <= 1:
        candidates = "binary_crossentropy, {name: binary_crossentropy, from_logits: true}, mse"
    else:
        candidates = f"{_REGRESSION_LOSSES}, binary_crossentropy, categorical_crossentropy"
    raise SettingError(
        path,
        f"is not set, and labels {labels} with outputs {outputs} do not determine it\n"
        f"candidates: {candidates}",
        code="not-set",
    )


def _build_loss(name: str, arguments: Mapping[str, object], path: str) -> tf_keras.losses.Loss:
    if ":" in name:
        return _build_user_loss(name, arguments, path)
    reference = find_class("losses", name)
    cls = getattr(tf_keras.losses, (reference or "").partition(":")[2], None)
    if cls is None:
        raise SettingError(path, f"unknown loss {name!r}", code="unknown-name")
    try:
        return cls(**arguments, reduction="none")
    except (TypeError, ValueError) as error:
        raise SettingError(path, f"{name}: {first_line(error)}", code="model-mismatch") from error


def _build_user_loss(
    reference: str, arguments: Mapping[str, object], path: str
) -> tf_keras.losses.Loss:
    loaded = load_function(reference, path)
    loss: tf_keras.losses.Loss
    if isinstance(loaded, base_classes("losses", "Loss")):
        loss = copy.copy(loaded)
    elif not isinstance(loaded, type):
        return FunctionLoss(loaded, arguments)
    elif not issubclass(loaded, base_classes("losses", "Loss")):
        raise SettingError(
            path, f"{reference} is not a subclass of keras.losses.Loss", code="import-failed"
        )
    else:
        try:
            loss = loaded(**arguments)
        except TypeError as error:
            raise SettingError(
                path, f"{reference}: {first_line(error)}", code="model-mismatch"
            ) from error
    if loss.reduction == "sum":
        raise SettingError(
            path,
            f"{reference} adds the losses of a batch (reduction: sum), so that the loss depends on "
            "the batch size; only means are supported\nleave its reduction at the default",
            code="model-mismatch",
        )
    loss.reduction = "none"  # The task reduces, so that each example counts once.
    return loss


def _match_rank(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """Returns labels [batch] as [batch, 1] if the outputs have that shape, and vice versa."""
    ranks = labels.shape.rank, outputs.shape.rank
    if None in ranks:
        return labels
    if ranks[0] == ranks[1] - 1 and outputs.shape[-1] == 1:
        return tf.expand_dims(labels, -1)
    if ranks[0] == ranks[1] + 1 and labels.shape[-1] == 1:
        return tf.squeeze(labels, -1)
    return labels
