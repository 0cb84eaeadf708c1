"""Training of any Keras model, as `fit` of Keras trains it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras

from orbit_runner.data.chunks import Chunks
from orbit_runner.data.images.decode import decode_for_evaluation
from orbit_runner.errors import DataError, SettingError
from orbit_runner.tasks.base import EXAMPLES, Task, WeightedLabels, section_of, training_labels
from orbit_runner.tasks.imbalance.classes import Classes
from orbit_runner.tasks.keras.compiled import (
    Compiled,
    leading_rows,
    loss_of_replica,
    scaled_loss,
    setting_scope,
    unscaled_gradients,
)
from orbit_runner.tasks.keras.config import (
    IMAGES,
    SECTIONS,
    TABLE,
    KerasConfig,
    KerasDataConfig,
)
from orbit_runner.tasks.keras.examples import Examples, ExampleUse, W, X, Y
from orbit_runner.tasks.keras.label_checks import LossKind, check_labels, default_loss, loss_kinds
from orbit_runner.tasks.keras.model_builder import build_model, check_vocabularies
from orbit_runner.tasks.keras.outputs import Output, as_passed, outputs_of, symbolic_inputs
from orbit_runner.tasks.keras.passed_objects import inexact_objects
from orbit_runner.tasks.keras.serving import ArrayPredictor, TableRowPredictor, make_serving
from orbit_runner.tasks.keras.sources import TrainedArrays, section_source
from orbit_runner.tasks.keras.user_arrays import keep_arrays
from orbit_runner.tasks.keras_items import build_item, build_items
from orbit_runner.tasks.serving import Predictor, Serving, require_no_top_k
from orbit_runner.tf_internals import adds_losses, keeps_averages, set_optimizer
from orbit_runner.utils.log import note

if TYPE_CHECKING:
    from orbit_runner.config.schema.optimizers import Optimization
    from orbit_runner.config.schema.runtime import RuntimeConfig
    from orbit_runner.tasks.metrics import TaskMetric
    from orbit_runner.utils.types import Tensors

# Settings of items of Keras, and their kinds.
_ITEMS = {
    "loss": "losses",
    "metrics": "metrics",
    "weighted_metrics": "metrics",
    "optimizer": "optimizers",
}
_NO_VALIDATION = (
    "is not set\nset it, set task.validation_split, or train without evaluations: --mode=train"
)


class KerasTask(Task):
    """Trains a model of Keras with what `compile` of the model was told, or the config tells it.

    Loss and metrics are known once `build_model` was called.
    """

    task_config: KerasConfig
    # The metrics of `build_metrics` are all of the model, also those that it has itself.
    builds_all_metrics = True

    def __init__(self, params: KerasConfig, **kwargs: Any) -> None:
        super().__init__(params, **kwargs)
        self._compiled: Compiled | None = None
        self._model: tf_keras.Model | None = None
        self._arguments: Mapping[str, Any] = {}  # of `compile`
        self._outputs: Sequence[Output] = ()
        self._returns_list = False
        self._has_default_optimizer = False

    def build_model(self) -> tf_keras.Model:
        """Builds and compiles the model, and checks that data, losses and metrics fit it."""
        for section in SECTIONS:
            if digest := getattr(self.task_config, section).digest:
                keep_arrays(digest, self.assets)
        inputs = symbolic_inputs(self._trained_arrays.specs)
        model, compiled = build_model(self.task_config.model, inputs, self.assets)
        check_vocabularies(model, self.assets)
        self._compiled = compiled
        self._model = model
        self._arguments = compiled.compile(self._settings(compiled))
        if "optimizer" not in self._arguments and "compile" not in compiled.own_methods:
            self._arguments = compiled.compile({"optimizer": "adam"})
            self._has_default_optimizer = True
        strategy = tf.distribute.get_strategy()
        if compiled.has_own_results:
            self._outputs = self._own_outputs(compiled, inputs)
            compiled.trace_steps(self._batch_spec(), strategy)
            return model
        structure, self._outputs = outputs_of(compiled.model, inputs, compiled.symbolic_outputs)
        self._returns_list = isinstance(structure, (list, tuple))
        compiled.track_states()
        labels = self._trained_arrays.labels
        batch = self._batch_spec()
        if batch[1] is None and not adds_losses(compiled.model):
            raise SettingError(
                "task.train_data",
                "has no labels y, which the losses need; only a model with a train_step of its own "
                "or with add_loss needs none",
                code="model-mismatch",
            )
        if not self._arguments.get("loss") and not adds_losses(compiled.model):
            item = default_loss(labels, self._outputs)
            loss = build_item(item, "losses", compiled.keras, "task.loss")
            self._arguments = compiled.compile({"loss": loss})
        check_labels(self._kinds(), labels if batch[1] is not None else None, self._outputs)
        compiled.build(batch, structure, strategy)
        return model

    def _settings(self, compiled: Compiled) -> dict[str, Any]:
        """Returns the arguments of `compile` that the config sets."""
        config = self.task_config
        settings = {
            name: build_items(getattr(config, name), kind, compiled.keras, f"task.{name}")
            for name, kind in _ITEMS.items()
        }
        return {**settings, "loss_weights": _plain_tree(config.loss_weights)}

    def _own_outputs(self, compiled: Compiled, inputs: Tensors) -> Sequence[Output]:
        """Returns the outputs of a model with steps of its own; () for a GAN, which has no call."""
        if "call" not in compiled.own_methods and not hasattr(compiled.model, "inputs"):
            return ()
        try:
            return outputs_of(compiled.model, inputs, compiled.symbolic_outputs)[1]
        except SettingError:
            return ()

    def _kinds(self) -> dict[str, LossKind]:
        return loss_kinds(self._arguments.get("loss"), self._outputs)

    def _batch_spec(self) -> tuple[Any, Any, Any]:
        """Returns the specs of inputs, labels and weights; None for what the data lack."""
        specs = self._trained_arrays.specs
        has_weights = any(path.partition(".")[0] == W for path in specs)
        return (
            _specs_below(specs, X),
            self._as_passed(_specs_below(specs, Y)),
            self._weights_as_passed(_specs_below(specs, W)) if has_weights else None,
        )

    def _as_passed(self, labels: Any) -> Any:
        """Returns labels as Keras takes them; None if the data have none."""
        labels = as_passed(labels)
        if isinstance(labels, (Mapping, list)) and self._names == [""]:
            labels = tf.nest.flatten(labels)[0]
        if not isinstance(labels, (Mapping, list)) and labels.shape[1:].as_list() == [0]:
            return None
        return labels

    def _weights_as_passed(self, weights: Any) -> Any:
        """Returns weights as Keras takes them: in a list, if the model returns a list."""
        weights = as_passed(weights)
        if isinstance(weights, Mapping) and self._returns_list and {*weights} == {*self._names}:
            return [weights[name] for name in self._names]
        return weights

    @property
    def _names(self) -> list[str]:
        """The names of the outputs."""
        return [output.name for output in self._outputs]

    def create_optimizer(
        self,
        optimizer_config: Optimization,
        runtime_config: RuntimeConfig | None = None,
        dp_config: Any = None,
    ) -> Any:
        """Returns the optimizer of `trainer.optimizer_config`, by default that of `compile`."""
        compiled = self._require_compiled()
        own = self._arguments.get("optimizer")
        if optimizer_config.optimizer.type is None:
            optimizer = compiled.optimizer()
            if keeps_averages(optimizer) and not self.task_config.averages_weights:
                raise SettingError(
                    "task.optimizer",
                    "is not set, but compile has an optimizer with use_ema\nset it, so that all "
                    "commands know that the model has averaged weights",
                    code="not-set",
                )
            return optimizer
        if compiled.has_own_train_step:
            raise SettingError(
                "trainer.optimizer_config",
                f"train_step of {type(compiled.model).__name__} uses its own optimizer\n"
                "set it in compile, or set task.optimizer",
                code="not-supported",
            )
        if own is not None and not self._has_default_optimizer:
            note(
                "note: the model is compiled with another optimizer, which is not used; "
                "trainer.optimizer_config has the optimizer of the run"
            )
        optimizer = super().create_optimizer(optimizer_config, runtime_config, dp_config)
        set_optimizer(compiled.model, optimizer)
        return optimizer

    @functools.cached_property
    def starts_at_step(self) -> bool:
        """Whether the training data can start at any step; tf.data datasets cannot."""
        data = self.task_config.train_data
        if not (data.function or data.digest):
            return True
        try:
            source = section_source(self.task_config, SECTIONS[0])
        except DataError:  # Of an evaluation, which does not need them.
            return True
        return source is None or source.stored is not None

    def build_inputs(
        self,
        params: KerasDataConfig,
        input_context: tf.distribute.InputContext | None = None,
        start_step: int | tf.Tensor = 0,
    ) -> tf.data.Dataset:
        """Returns the input pipeline of one section. Training starts at the batch of `start_step`.

        For training, it yields `(x, y)` or `(x, y, w)` endlessly. For evaluation, it yields each
        example once, with its count.
        """
        source = self._source(params)
        return source.dataset(self._use(params, source), input_context, start_step)

    def chunks(self, params: KerasDataConfig, replicas: int = 1) -> Chunks | None:
        """Returns the batches of a section by step."""
        source = self._source(params)
        return source.chunks(self._use(params, source), replicas)

    def _use(self, params: KerasDataConfig, source: Examples) -> ExampleUse:
        origins = None if source.stored is None else source.stored.origins
        kinds = self._kinds()
        widths = [output.width for output in self._outputs if kinds[output.name].kind == "sparse"]
        return ExampleUse(
            self._section(params),
            self.excluded_examples(params),
            functools.partial(self.mixture, params, origins),
            self.bad_images[section_of(params)],
            num_classes=widths[0] if len(widths) == 1 else None,
        )

    def num_examples(self, params: KerasDataConfig) -> int | None:
        """Returns the number of examples of a section that are used, None if it is not known."""
        dataset = self._source(params).stored
        if dataset is None:
            return self._trained_arrays.size if params.is_training else None
        return dataset.size - len(self.excluded_examples(params))

    def train_step(
        self,
        inputs: Tensors,
        model: tf_keras.Model,
        optimizer: Any,
        metrics: Sequence[TaskMetric] | None = None,
    ) -> dict[str, tf.Tensor]:
        """Trains on one batch on one replica; returns `loss`, a float32 scalar."""
        compiled = self._require_compiled()
        features, labels, weights = tf_keras.utils.unpack_x_y_sample_weight(inputs)
        labels, weights = self._weighted(labels, weights)
        batch = as_passed(features), self._as_passed(labels), self._weights_as_passed(weights)
        if compiled.has_own_train_step:
            return {self.loss: compiled.own_step("train_step", batch)}
        with tf.GradientTape() as tape:
            outputs = self._outputs_for(model, batch[0], training=True)
            with setting_scope("task.loss"):
                loss = self.build_losses(batch, outputs)
            scaled = scaled_loss(optimizer, loss)
        variables = compiled.trained_variables()
        gradients = unscaled_gradients(optimizer, tape.gradient(scaled, variables))
        optimizer.apply_gradients(list(zip(gradients, variables, strict=True)))
        with setting_scope("task.metrics"):
            compiled.update_metrics(batch, outputs)
        return {self.loss: loss_of_replica(loss)}

    def _outputs_for(self, model: tf_keras.Model, x: Tensors, *, training: bool) -> Tensors:
        """Returns the outputs of the model, or of another one, such as that of an export."""
        if model is self._model:
            return self._require_compiled().forward(x, training=training)
        return model(x, training=training)

    def _weighted(
        self, labels: Tensors, weights: tf.Tensor | None
    ) -> tuple[Tensors, tf.Tensor | None]:
        """Returns labels, and the weights of examples times those of their classes."""
        targets = training_labels(labels, weights, self.loss_by_class)
        if isinstance(targets, WeightedLabels):
            return targets.labels, targets.weights
        return labels, weights

    @property
    def applies_gradients_itself(self) -> bool:
        """Whether the model trains itself, so that its gradients are not known."""
        return self._require_compiled().has_own_train_step

    def split_counts(self, inputs: Tensors) -> tuple[Tensors, tf.Tensor]:
        """Returns `(x, y, (None, w))`, and which rows are examples, float32 [batch].

        `w` is None if examples have no weights.
        """
        features, labels, counts = inputs
        counts, weights = counts if isinstance(counts, tuple) else (counts, None)
        return (features, labels, (None, weights)), counts

    def validation_step(
        self, inputs: Tensors, model: tf_keras.Model, metrics: Sequence[TaskMetric] | None = None
    ) -> dict[str, tf.Tensor]:
        """Evaluates one batch on one replica: `loss` is the mean over the examples.

        `inputs` are those of `build_inputs` or `split_counts`.
        """
        compiled = self._require_compiled()
        features, labels, counts = inputs
        counts, weights = counts if isinstance(counts, tuple) else (counts, None)
        rows = number = tf.cast(leading_rows(features), tf.float32)
        if counts is not None:  # On a TPU, rows that are no examples have the weight 0.
            weights = counts if weights is None else weights * counts
            number = tf.reduce_sum(counts)
        batch = as_passed(features), self._as_passed(labels), self._weights_as_passed(weights)
        if compiled.has_own_test_step:
            return {self.loss: compiled.own_step("test_step", batch), EXAMPLES: number}
        compiled.rows = rows
        outputs = self._outputs_for(model, batch[0], training=False)
        with setting_scope("task.loss"):
            loss = loss_of_replica(compiled.loss(batch, outputs, training=False))
        if counts is None:
            compiled.update_metrics(batch, outputs)
        else:
            loss *= tf.math.divide_no_nan(rows, number)
            compiled.update_counted_metrics(batch, outputs, counts)
        return {self.loss: loss, EXAMPLES: number}

    def build_losses(
        self,
        labels: Tensors,
        model_outputs: Tensors,
        aux_losses: Sequence[tf.Tensor] | None = None,
        sample_weight: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns the loss of a batch that Keras computes, divided by the replicas, a scalar.

        `labels` are the batch: inputs, labels and weights. Losses that layers add are included.
        """
        if "example_losses" in vars(self):  # `runner replay` wants to see them.
            self.example_losses(labels, model_outputs)
        return self._require_compiled().loss(labels, model_outputs, training=True)

    def training_classes(self) -> Classes:
        """Returns the class of each training example, with the classes of the run."""
        return self._source(self.task_config.train_data).classes()

    def example_losses(self, labels: Tensors, model_outputs: Tensors) -> tf.Tensor:
        """Returns the loss of each example alone, float32 [batch]; see `build_losses`."""
        compiled = self._require_compiled()

        @tf.autograph.experimental.do_not_convert
        def loss_of(row: tuple[Any, Tensors]) -> tf.Tensor:
            parts, outputs = tf.nest.map_structure(lambda part: part[tf.newaxis], row)
            batch = tuple(None if isinstance(part, tuple) else part for part in parts)
            return tf.cast(compiled.loss(batch, outputs, training=True), tf.float32)

        parts = tuple(() if part is None else part for part in labels)
        rows = tf.nest.map_structure(tf.convert_to_tensor, (parts, model_outputs))
        return tf.map_fn(loss_of, rows, fn_output_signature=tf.float32)

    def process_metrics(
        self,
        metrics: Iterable[TaskMetric],
        labels: Tensors,
        model_outputs: Tensors,
        **kwargs: tf.Tensor | None,
    ) -> None:
        """Does nothing: the steps update the metrics, which are those of the model."""

    def build_metrics(self, training: bool = True) -> list[TaskMetric]:
        """Returns the metrics of the model."""
        return self._require_compiled().build_metrics(training=training)

    def kept_in_evaluation(self) -> list[tf.Variable]:
        """Returns the variables that an evaluation must leave as they are."""
        return self._require_compiled().kept_in_evaluation()

    def inexact_reasons(self) -> list[str]:
        """Returns why the config alone does not reproduce a run: code that it cannot name."""
        return inexact_objects(self.task_config, "task")

    def serving(self, model: tf_keras.Model) -> Serving:
        """Returns the signature `predict`; `image_bytes` of images, `columns` of a table."""
        if self._compiled is None:  # `model` is the network of an exported file.
            self.build_model()
        trained = self._trained_arrays
        classes = {path.partition(".")[2]: names for path, names in trained.classes.items()}
        decode = self._decoder() if self.task_config.kind == IMAGES else None
        return make_serving(model, trained.specs, self._kinds(), classes, decode, trained.columns)

    def _decoder(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """Returns the function that decodes an image as evaluation does."""
        data = self.task_config.section(SECTIONS[1]) or self.task_config.train_data
        trained = self._trained_arrays
        return functools.partial(
            decode_for_evaluation,
            shape=trained.specs[X][0],
            center_crop_fraction=data.center_crop_fraction if trained.are_cropped else None,
            method=data.tf_resize_method,
        )

    def predictor(
        self, signatures: Mapping[str, tf.types.experimental.Callable], *, top_k: int | None = None
    ) -> Predictor:
        """Returns the predictor for rows of tables, or for arrays, lines of JSON and images."""
        require_no_top_k(top_k)
        if self.task_config.kind == TABLE:
            return TableRowPredictor(signatures, self.task_config.train_data)
        return ArrayPredictor(signatures)

    def _require_compiled(self) -> Compiled:
        if self._compiled is None:
            raise RuntimeError("build_model must be called first")
        return self._compiled

    def _source(self, params: KerasDataConfig) -> Examples:
        section = section_of(params)
        with self.data_scope(section):
            source = section_source(self.task_config, section, self._trained_arrays.classes)
        if source is None:
            raise SettingError(f"task.{section}.source", _NO_VALIDATION, code="not-set")
        self._trained_arrays.check(source.specs, section)
        return source

    def _section(self, params: KerasDataConfig) -> KerasDataConfig:
        """Returns a section with the source that it reads."""
        section = self.task_config.section(section_of(params))
        assert section is not None  # `_source` reports it.
        shared = self.task_config.shared_data_settings
        return params.replace(**{name: getattr(section, name) for name in shared})

    @property
    def _trained_arrays(self) -> TrainedArrays:
        """What the run found out about its arrays, also those that only another process has."""
        arrays: TrainedArrays = self.learned
        return arrays


def _specs_below(specs: Mapping[str, tuple[tuple[int, ...], str]], top: str) -> Any:
    """Returns the specs of batches of the arrays of a tree, `x` or `y`."""
    tree = {
        path.partition(".")[2]: tf.TensorSpec([None, *shape], dtype)
        for path, (shape, dtype) in specs.items()
        if path.partition(".")[0] == top
    }
    return as_passed(tree[""] if [*tree] == [""] else tree)


def _plain_tree(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value) or None
    return [*value] or None
