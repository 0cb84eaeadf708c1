"""What `fit` of Keras does with a model, for models of Keras 3 and of Keras 2.

`compile` of the model builds its losses, metrics and optimizer, and its own code computes them, so
that a run computes what `fit` computes. What differs between the two versions is in `Keras2` and
`Keras3`. A model with a `train_step` of its own is trained by it.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras

from orbit_runner.errors import SettingError
from orbit_runner.tasks.keras.keras_3 import Keras3Optimizer, keras_3_inputs, owned_states
from orbit_runner.tasks.keras.outputs import Output, reason_of
from orbit_runner.tasks.keras_items import is_keras_class
from orbit_runner.tasks.metrics import Ratio
from orbit_runner.tf_internals import (
    Trackable,
    all_layers,
    all_weighted_scope,
    compile_arguments,
    compiled_metrics_of,
    compute_keras_3_loss,
    is_built,
    is_compiled,
    is_functional,
    set_keras_mask,
    takes_training,
    track,
    untrack,
)
from orbit_runner.utils.autograph import convert
from orbit_runner.utils.metrics import name_problem

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors

# What a loss or metric raises if labels or outputs do not fit.
CALL_ERRORS = (TypeError, ValueError, KeyError, AttributeError, tf.errors.InvalidArgumentError)
LOSS = "loss"
# Methods of a model that replace the loop of `fit`, of which a run has its own.
_LOOPS = ("make_train_function", "make_test_function", "fit")
_ARGUMENTS = ("loss", "loss_weights", "metrics", "weighted_metrics", "optimizer")
# The settings that the items of `compile` come from.
_PATH = "task.{}"

Batch = tuple[Any, ...]  # `(x, y, w)`: inputs, labels or None, and weights or None


class KerasMetric:
    """A metric of a model, or one of its results, by the name of its record."""

    reads_in_graph = True

    def __init__(self, name: str, metric: Any, key: str = "") -> None:
        self.name = name
        self._metric = metric
        self._key = key  # of the result, if it is a mapping

    @property
    def variables(self) -> list[tf.Variable]:
        """The variables of a metric of Keras, all of which are sums; [] for classes of users."""
        return self.all_variables if is_keras_class(type(self._metric)) else []

    @property
    def all_variables(self) -> list[tf.Variable]:
        """The variables of the metric, whatever its class."""
        return _tf_variables(self._metric.variables)

    @tf.autograph.experimental.do_not_convert
    def result(self) -> tf.Tensor:
        """Returns the value, a scalar."""
        value = self._metric.result()
        return value[self._key] if self._key else value

    def reset_state(self) -> None:
        """Forgets all batches."""
        self._metric.reset_state()


class LogValue(Ratio):
    """The last value that a step of the model returned, the mean over the replicas, as in `fit`."""

    @tf.autograph.experimental.do_not_convert
    def update_state(self, value: tf.Tensor) -> None:
        """Sets the value of this replica."""
        value = tf.reduce_mean(tf.cast(value, tf.float32))
        self.totals.assign(tf.stack([value, 1.0]))


class Compiled(abc.ABC):
    """A model that is compiled, and the parts of a step of `fit`.

    Attributes:
        model: The model, of Keras 2 or Keras 3.
        rows: The number of examples of the batch that is evaluated.
        keras: The package of the model.
    """

    keras: ModuleType

    def __init__(self, model: Any) -> None:
        self.model = model
        self._train_logs: Mapping[str, Any] = {}
        self._test_logs: Mapping[str, Any] = {}
        self._log_values: dict[str, LogValue] = {}
        self.rows: tf.Tensor | None = None  # the examples of the batch that is evaluated

    @functools.cached_property
    def own_methods(self) -> frozenset[str]:
        """The names of methods that the class of the model defines."""
        names: set[str] = set()
        for cls in type(self.model).__mro__:
            if is_keras_class(cls):
                break
            names |= vars(cls).keys()
        return frozenset(names)

    @property
    def has_own_train_step(self) -> bool:
        """Whether the model defines how a batch is trained on."""
        return "train_step" in self.own_methods

    @property
    def has_own_test_step(self) -> bool:
        """Whether the model defines how a batch is evaluated."""
        return "test_step" in self.own_methods

    @property
    def has_own_results(self) -> bool:
        """Whether the model computes losses or metrics itself, so that its steps must be traced."""
        own = {"train_step", "test_step", "compute_loss", "compute_metrics", "get_metrics_result"}
        return bool(own & self.own_methods)

    def compile(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Compiles the model with settings, and those of an earlier `compile` that these lack.

        Must be called in the strategy's scope. Returns what it is compiled with.
        """
        own = [name for name in _LOOPS if name in self.own_methods]
        if own:
            raise SettingError(
                "task.model",
                f"{type(self.model).__name__} defines {own[0]}, which a run does not call\n"
                "define train_step, test_step or compute_loss instead",
                code="not-supported",
            )
        passed = {name: value for name, value in settings.items() if value is not None}
        before = compile_arguments(self.model) if is_compiled(self.model) else {}
        if "compile" in self.own_methods:
            if passed:
                name = next(iter(passed))
                raise SettingError(
                    _PATH.format(name),
                    f"{type(self.model).__name__} defines compile, so what it is compiled with "
                    "is set there\nremove this setting",
                    code="not-supported",
                )
            if not is_compiled(self.model):
                raise SettingError(
                    "task.model",
                    f"{type(self.model).__name__} defines compile, but is not compiled\n"
                    "call compile in the function that builds the model",
                    code="bad-model",
                )
            self.untrack_compiled()
            return before
        arguments = {name: passed.get(name, before.get(name)) for name in _ARGUMENTS}
        arguments = {name: value for name, value in arguments.items() if value is not None}
        if passed or not is_compiled(self.model):
            try:
                self._compile(arguments)
            except CALL_ERRORS as error:
                raise SettingError(
                    "task.model", f"compile: {reason_of(error)}", code="bad-model"
                ) from error
        self.untrack_compiled()
        return arguments

    @abc.abstractmethod
    def untrack_compiled(self) -> None:
        """Keeps what `compile` has built, and metrics, out of the checkpoints of the model."""

    @abc.abstractmethod
    def _compile(self, arguments: Mapping[str, Any]) -> None:
        """Calls `compile` of the model."""

    @abc.abstractmethod
    def symbolic_outputs(self, inputs: Tensors) -> Any:
        """Returns the outputs for symbolic inputs of Keras 2, without computing them."""

    @abc.abstractmethod
    def forward(self, x: Tensors, *, training: bool) -> Tensors:
        """Returns the outputs of the model."""

    @abc.abstractmethod
    def loss(self, batch: Batch, outputs: Tensors, *, training: bool) -> tf.Tensor:
        """Returns the loss of a batch, divided by the number of replicas, a scalar."""

    @abc.abstractmethod
    def update_metrics(self, batch: Batch, outputs: Tensors) -> None:
        """Updates the metrics of `compile`."""

    @abc.abstractmethod
    def update_counted_metrics(self, batch: Batch, outputs: Tensors, counts: tf.Tensor) -> None:
        """Updates the metrics with a batch, some of whose rows count for nothing.

        `counts` are float32 [batch], 0 for these rows. On a TPU, all metrics are unweighted.
        """

    def optimizer(self) -> Any:
        """Returns the optimizer of the model, or all that its `train_step` uses as one."""
        optimizers = self._optimizers()
        if len(optimizers) == 1:
            return next(iter(optimizers.values()))
        return OwnOptimizers(optimizers)

    @abc.abstractmethod
    def _optimizers(self) -> dict[str, Any]:
        """Returns the optimizers of the model by attribute, with the interface of Keras 2."""

    def kept_in_evaluation(self) -> list[tf.Variable]:
        """Returns the variables that an evaluation must leave as they are.

        They are those of metrics, and the states of layers, such as those of a stateful RNN.
        """
        return self.metric_variables()

    @abc.abstractmethod
    def track_states(self) -> None:
        """Puts the states of layers into checkpoints."""

    @abc.abstractmethod
    def _loss_of_outputs(self, batch: Batch, outputs: Tensors) -> None:
        """Computes the losses of `compile`, which creates their metrics."""

    @abc.abstractmethod
    def _all_metrics(self) -> Iterator[tuple[str, Any]]:
        """Yields the name and the object of each metric of the model."""

    def metric_variables(self) -> list[tf.Variable]:
        """Returns the variables of all metrics, which an evaluation must not change."""
        metrics = [*(metric for _, metric in self._all_metrics()), *self._log_values.values()]
        variables = [v for metric in metrics for v in _tf_variables(metric.variables)]
        return list({id(variable): variable for variable in variables}.values())

    def build(self, batch: Batch, outputs: Any, strategy: tf.distribute.Strategy) -> None:
        """Creates the metrics, by computing losses and metrics without a model.

        `batch` has the specs of a batch, whose inputs are not used; `outputs` has an `Output` for
        each tensor. Must be called in the strategy's scope. Raises `SettingError` if labels and
        outputs do not fit the losses or the metrics.
        """
        structure = outputs

        def compute(labels: Tensors, weights: Tensors, outputs: Tensors) -> None:
            batch = (None, labels, weights)
            tf.nest.map_structure(_add_mask, outputs, structure)
            with setting_scope("task.loss"):
                self._loss_of_outputs(batch, outputs)
            with setting_scope("task.metrics"):
                self.update_metrics(batch, outputs)
                self._check_results()

        specs = tf.nest.map_structure(lambda output: output.spec, structure)
        self._trace(compute, (*batch[1:], specs), strategy)

    def trace_steps(self, batch: Batch, strategy: tf.distribute.Strategy) -> None:
        """Creates all variables of a model with steps of its own, and finds the logs of its steps.

        `batch` are the specs of a batch. Nothing is computed.
        """

        def compute(x: Tensors, y: Tensors, w: tf.Tensor | None) -> None:
            if self.has_own_train_step:
                self._train_logs = self._call_own("train_step", (x, y, w))
            else:
                outputs = self.forward(x, training=True)
                self.loss((x, y, w), outputs, training=True)
                self.update_metrics((x, y, w), outputs)
            if self.has_own_test_step:
                self._test_logs = self._call_own("test_step", (x, y, w))
            self._check_results()

        with setting_scope("task.model"):
            self._trace(compute, batch, strategy)
        for name in {**self._train_logs, **self._test_logs}:
            if name not in self._named_metrics():
                self._log_values[name] = LogValue(name)

    def _trace(
        self,
        function: Callable[..., None],
        arguments: Sequence[Any],
        strategy: tf.distribute.Strategy,
    ) -> None:
        @tf.function(autograph=False)
        def traced(*values: Tensors) -> None:
            strategy.run(function, args=values)

        traced.get_concrete_function(*arguments)

    def _check_results(self) -> None:
        """Raises `SettingError` for metrics whose name is taken, or whose result is no number."""
        names = [name for name, _ in self._all_metrics()]
        values = {**self._named_metrics(), **self._train_logs, **self._test_logs}
        problems = [*filter(None, map(name_problem, values))]
        if not self.has_own_results and names.count(LOSS) > 1:
            problems.append(f"the name {LOSS!r} is taken")
        if problems:
            raise SettingError(
                "task.metrics",
                f"{problems[0]}\nrename the metric, or the output of the model",
                code="set-twice",
            )
        for name, metric in self._named_metrics().items():
            shape = tf.convert_to_tensor(metric.result()).shape
            if shape.rank:
                raise SettingError(
                    "task.metrics",
                    f"{name} returns {shape.as_list()} numbers, expected one\n"
                    "set average: macro, micro or weighted in its config if it has this argument",
                    code="wrong-type",
                )

    def _named_metrics(self) -> dict[str, KerasMetric]:
        """Returns the metrics of the model by the names that the logs of `fit` have."""
        named: dict[str, KerasMetric] = {}
        for name, metric in self._all_metrics():
            result = metric.result()
            if isinstance(result, Mapping):
                named |= {str(key): KerasMetric(str(key), metric, str(key)) for key in result}
            else:
                named[name] = KerasMetric(name, metric)
        return named

    def build_metrics(self, *, training: bool) -> list[Any]:
        """Returns the metrics of a record of training, or of an evaluation.

        The loss is one only if a step of the model computes it.
        """
        is_own = self.has_own_train_step if training else self.has_own_test_step
        named: dict[str, Any] = self._named_metrics()
        if not is_own:
            return [metric for name, metric in named.items() if name != LOSS]
        record = f"{'training' if training else 'validation'}_{LOSS}"
        logs = self._train_logs if training else self._test_logs
        metrics = []
        for name in logs:
            metric = named.get(name) or KerasMetric(name, self._log_values[name])
            if name == LOSS:
                metric.name = record
            metrics.append(metric)
        return metrics

    def own_step(self, name: str, batch: Batch) -> tf.Tensor:
        """Calls `train_step` or `test_step` of the model. Returns its loss, a scalar.

        If it returns no `loss`, it is the sum of those that end with `_loss`.
        """
        return _loss_of_logs(self._call_own(name, batch))

    def trained_variables(self) -> list[tf.Variable]:
        """Returns the variables that are trained."""
        return _tf_variables(self.model.trainable_weights)

    def _call_own(self, name: str, batch: Batch) -> Mapping[str, tf.Tensor]:
        x, y, w = batch
        data: Any = (x,) if y is None else (x, y) if w is None else (x, y, w)
        step = self._converted(getattr(self.model, name))
        logs = step(x if len(data) == 1 else data)
        if not isinstance(logs, Mapping):
            raise SettingError(
                "task.model",
                f"{type(self.model).__name__}.{name} returns a {type(logs).__name__}, expected a "
                "dict of numbers by name",
                code="wrong-type",
            )
        flat = dict(_flat_logs(logs))
        for key, value in flat.items():
            if key in self._log_values:
                self._log_values[key].update_state(value)
        return flat

    def _converted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a method of the user as Keras calls it in a graph."""
        return method


class Keras2(Compiled):
    """A model of Keras 2."""

    keras = tf_keras

    def _compile(self, arguments: Mapping[str, Any]) -> None:
        # The optimizer of a config is made later; `compile` of Keras 2 requires one.
        self.model.compile(**{"optimizer": tf_keras.optimizers.SGD(), **arguments})

    def untrack_compiled(self) -> None:
        """Keeps containers, optimizers and metrics out of the checkpoints of the model."""
        optimizers = (tf_keras.optimizers.Optimizer, tf_keras.optimizers.legacy.Optimizer)
        classes = (tf_keras.metrics.Metric, *optimizers)
        own = [name for name, value in vars(self.model).items() if isinstance(value, classes)]
        untrack(self.model, ["compiled_loss", "compiled_metrics", "optimizer", *own])

    def _converted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        return convert(method, self.model)

    def symbolic_outputs(self, inputs: Tensors) -> Any:
        """Calls the model with Keras inputs."""
        return self.model(inputs, training=False)

    def forward(self, x: Tensors, *, training: bool) -> Tensors:
        """Calls the model."""
        return self.model(x, training=training)

    def loss(self, batch: Batch, outputs: Tensors, *, training: bool) -> tf.Tensor:
        """Calls `compute_loss` of the model."""
        x, y, w = batch
        loss = self.model.compute_loss(x, y, outputs, w)
        if loss is None:
            raise _no_loss_error()
        return loss

    def update_metrics(self, batch: Batch, outputs: Tensors) -> None:
        """Updates the metrics of `compile`."""
        x, y, w = batch
        if "compute_metrics" in self.own_methods:
            self.model.compute_metrics(x, y, outputs, w)
        else:
            self.model.compiled_metrics.update_state(y, outputs, w)

    def update_counted_metrics(self, batch: Batch, outputs: Tensors, counts: tf.Tensor) -> None:
        """Updates the metrics of `compile`."""
        container = self.model.compiled_metrics
        with all_weighted_scope(container, "_metrics", "_weighted_metrics"):
            container.update_state(batch[1], outputs, counts)

    def _optimizers(self) -> dict[str, Any]:
        classes = (tf_keras.optimizers.Optimizer, tf_keras.optimizers.legacy.Optimizer)
        return {
            name: value
            for name, value in vars(self.model).items()
            if isinstance(value, classes) and (not self.has_own_train_step or is_built(value))
        }

    def kept_in_evaluation(self) -> list[tf.Variable]:
        """Returns also the states of recurrent layers."""
        return [*super().kept_in_evaluation(), *self._states()]

    def track_states(self) -> None:
        """Puts the states of recurrent layers into checkpoints, which Keras 2 leaves out."""
        for number, state in enumerate(self._states()):
            track(self.model, state, f"rnn_state_{number}")

    def _states(self) -> list[tf.Variable]:
        layers = [layer for layer in all_layers(self.model) if getattr(layer, "stateful", False)]
        states = tf.nest.flatten([getattr(layer, "states", None) or () for layer in layers])
        return [state for state in states if isinstance(state, tf.Variable)]

    def _loss_of_outputs(self, batch: Batch, outputs: Tensors) -> None:
        if self.model.compiled_loss(batch[1], outputs, batch[2]) is None:
            raise _no_loss_error()

    def _all_metrics(self) -> Iterator[tuple[str, Any]]:
        yield from ((metric.name, metric) for metric in self.model.metrics)


class Keras3(Compiled):
    """A model of Keras 3. Its code is never converted by AutoGraph."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        import keras

        self.keras = keras

    def _compile(self, arguments: Mapping[str, Any]) -> None:
        self.model.compile(**{"optimizer": None, **arguments})

    def untrack_compiled(self) -> None:
        """Does nothing, because a `Keras3Model` tracks only weights and states."""

    track_states = untrack_compiled

    def symbolic_outputs(self, inputs: Tensors) -> Any:
        """Returns what the model returns for Keras inputs."""
        inputs = keras_3_inputs(inputs)
        if is_functional(self.model) and self.model.built:
            return self.model.compute_output_spec(inputs)
        return self.model(inputs)

    @tf.autograph.experimental.do_not_convert
    def forward(self, x: Tensors, *, training: bool) -> Tensors:
        """Calls the model."""
        return self.model(x, training=training) if takes_training(self.model) else self.model(x)

    @tf.autograph.experimental.do_not_convert
    def loss(self, batch: Batch, outputs: Tensors, *, training: bool) -> tf.Tensor:
        """Calls `compute_loss` of the model."""
        x, y, w = batch
        return compute_keras_3_loss(self.model, x, y, w, outputs, training=training)

    @tf.autograph.experimental.do_not_convert
    def update_metrics(self, batch: Batch, outputs: Tensors) -> None:
        """Updates the metrics of `compile`."""
        x, y, w = batch
        if "compute_metrics" in self.own_methods:
            self.model.compute_metrics(x, y, outputs, sample_weight=w)
        elif (metrics := compiled_metrics_of(self.model)) is not None:
            metrics.update_state(y, outputs, w)

    @tf.autograph.experimental.do_not_convert
    def update_counted_metrics(self, batch: Batch, outputs: Tensors, counts: tf.Tensor) -> None:
        """Updates the metrics of `compile`."""
        container = compiled_metrics_of(self.model)
        if container is not None:
            with all_weighted_scope(container, "_flat_metrics", "_flat_weighted_metrics"):
                container.update_state(batch[1], outputs, counts)

    def _optimizers(self) -> dict[str, Any]:
        cls = self.keras.optimizers.Optimizer
        return {
            name.lstrip("_"): Keras3Optimizer(value, self.model.weights)
            for name, value in vars(self.model).items()
            if isinstance(value, cls) and (not self.has_own_train_step or value.built)
        }

    def kept_in_evaluation(self) -> list[tf.Variable]:
        """Returns also the states of layers."""
        return [*super().kept_in_evaluation(), *_tf_variables(owned_states(self.model))]

    @tf.autograph.experimental.do_not_convert
    def _loss_of_outputs(self, batch: Batch, outputs: Tensors) -> None:
        self.loss(batch, outputs, training=True)
        for metric in self.model.metrics:
            if metric.name.endswith("_loss") and "update_state" not in vars(metric):
                self._count_rows(metric)

    def _count_rows(self, metric: Any) -> None:
        """Lets the loss of an output count each example of a last batch, which Keras 3 does not."""
        update = metric.update_state

        def counted(value: tf.Tensor, sample_weight: tf.Tensor | None = None) -> None:
            update(value, sample_weight=self.rows if sample_weight is None else sample_weight)

        vars(metric)["update_state"] = counted

    def _all_metrics(self) -> Iterator[tuple[str, Any]]:
        compiled = compiled_metrics_of(self.model)
        for metric in self.model.metrics:
            if metric is not compiled:
                yield metric.name, metric
            elif compiled.built:
                yield from zip(compiled.result(), compiled.metrics, strict=True)

    # Not converted by AutoGraph, as in `fit`.
    _call_own = tf.autograph.experimental.do_not_convert(Compiled._call_own)


class OwnOptimizers(Trackable):
    """The optimizers that the `train_step` of a model applies itself, as one.

    Attributes:
        names: The names of their attributes.
        optimizers: The optimizers.
    """

    name = "several"
    kind = "optimizers of the model"

    def __init__(self, optimizers: Mapping[str, Any]) -> None:
        self.names = list(optimizers)
        self.optimizers = list(optimizers.values())
        for name, optimizer in optimizers.items():
            track(self, optimizer, name)

    def build(self, variables: Sequence[tf.Variable]) -> None:
        """Does nothing: the variables of each were created when the step was traced."""
        for optimizer in self.optimizers:
            if isinstance(optimizer, Keras3Optimizer):
                optimizer.build(())

    @property
    def variables(self) -> list[tf.Variable]:
        """All variables."""
        lists = (o.variables() if callable(o.variables) else o.variables for o in self.optimizers)
        return [variable for variables in lists for variable in variables]

    @property
    def iterations(self) -> tf.Variable:
        """The number of updates of the first optimizer."""
        return self.optimizers[0].iterations

    def apply_gradients(self, *args: object, **kwargs: object) -> None:
        """Is never called, because the model applies its gradients itself."""
        raise NotImplementedError


def compiled_model(model: Any) -> Compiled:
    """Returns the interface of a model of Keras 2, or of a `Keras3Model`."""
    wrapped = getattr(model, "keras_3_model", None)
    return Keras2(model) if wrapped is None else Keras3(wrapped)


def leading_rows(x: Tensors) -> tf.Tensor:
    """Returns the number of examples of a batch, an int32 scalar."""
    return tf.shape(tf.nest.flatten(x)[0])[0]


def _add_mask(tensor: tf.Tensor, output: Output) -> None:
    """Adds the mask that the layers of a model add to this output."""
    if output.mask_rank:
        set_keras_mask(tensor, tf.ones(tf.shape(tensor)[: output.mask_rank], tf.bool))


def _flat_logs(logs: Mapping[str, Any]) -> Iterator[tuple[str, tf.Tensor]]:
    for name, value in logs.items():
        if isinstance(value, Mapping):  # Such as the results of the metrics of `compile`.
            yield from _flat_logs(value)
        else:
            yield str(name), value


def _loss_of_logs(logs: Mapping[str, tf.Tensor]) -> tf.Tensor:
    if LOSS in logs:
        return tf.reduce_mean(tf.cast(logs[LOSS], tf.float32))
    parts = [value for name, value in logs.items() if name.endswith(f"_{LOSS}")]
    parts = [tf.reduce_mean(tf.cast(part, tf.float32)) for part in parts]
    return tf.add_n(parts) if parts else tf.zeros([])


def scaled_loss(optimizer: Any, loss: tf.Tensor) -> tf.Tensor:
    """Returns the loss times the factor of an optimizer for float16, if it has one."""
    if hasattr(optimizer, "get_scaled_loss"):
        return optimizer.get_scaled_loss(loss)
    return optimizer.scale_loss(loss) if hasattr(optimizer, "scale_loss") else loss


def unscaled_gradients(optimizer: Any, gradients: list[Any]) -> list[Any]:
    """Returns the gradients without that factor; optimizers of Keras 3 divide by it themselves."""
    if hasattr(optimizer, "get_unscaled_gradients"):
        return optimizer.get_unscaled_gradients(gradients)
    return gradients


def loss_of_replica(loss: tf.Tensor) -> tf.Tensor:
    """Returns the mean over a replica's examples, of a loss that Keras divided by the replicas."""
    count = tf.distribute.get_strategy().num_replicas_in_sync
    return loss * tf.cast(count, loss.dtype) if count > 1 else loss


def _tf_variables(variables: Iterable[Any]) -> list[tf.Variable]:
    keras = sys.modules.get("keras")
    cls = getattr(keras, "Variable", ())
    return [variable.value if isinstance(variable, cls) else variable for variable in variables]


def _no_loss_error() -> SettingError:
    return SettingError("task.loss", "is not set, and the model has no loss", code="not-set")


@contextlib.contextmanager
def setting_scope(path: str) -> Iterator[None]:
    """Turns what Keras raises into an error about a setting."""
    try:
        yield
    except CALL_ERRORS as error:
        reason = reason_of(error)
        if isinstance(error, KeyError):  # Of a name, or of Keras with a sentence.
            text = str(error.args[0])
            reason = text if " " in text else f"there is no {text!r}"
        raise SettingError(path, reason, code="model-mismatch") from error
