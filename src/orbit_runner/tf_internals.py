"""Private parts of TensorFlow, Keras, Orbit, Model Garden and others: only this module uses them.

`from orbit_runner.tf_internals import FuncGraph` imports a private function, class or object that
`NAMES` lists, and the functions below reach private attributes. Each raises `MissingInternal` if
the installed version has no such part. After an update of a library, run
`tests/test_tf_internals.py`, which looks up all names.

No library is imported before one of its parts is used.
"""

from __future__ import annotations

import contextlib
import copy
import pkgutil
import random
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orbit_runner.errors import RunnerError

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras
    from official.modeling import optimization
    from official.modeling.hyperparams import base_config

# The key in a checkpoint of its graph of objects, which checkpoints of TensorFlow 1 lack.
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"

# The private parts by the module that has them: names, or `ours=theirs` if ours is another one.
_PARTS = {
    # The eager context, and what only it can do.
    "tensorflow.python.eager.context": "eager_context=context",
    "tensorflow.python.framework.config": "is_op_determinism_enabled disable_op_determinism",
    # Functions that see each op and each gradient of an eager step.
    "tensorflow.python.framework.op_callbacks": "add_op_callback remove_op_callback",
    "tensorflow.python.pywrap_tfe": "set_gradient_function=TFE_Py_RegisterGradientFunction",
    "tensorflow.python.eager.backprop": "gradient_function=_gradient_function",
    # Graphs: op type -> {"type": gradient function}.
    "tensorflow.python.framework.ops": "gradients_by_op=gradient_registry._registry",
    "tensorflow.python.ops.control_flow_v2_func_graphs": "WhileBodyFuncGraph WhileCondFuncGraph",
    "tensorflow.python.ops.parallel_for.control_flow_ops": (
        "takes_pfor_config=_loop_fn_has_config vectorized_loop=_pfor_impl"
    ),
    # The functions that create ops. Public functions, and so Keras and Model Garden, look them up
    # in their modules at each call.
    "tensorflow.python.ops.gen_random_ops": (
        "random_uniform random_uniform_int random_standard_normal truncated_normal "
        "parameterized_truncated_normal multinomial random_gamma random_poisson=random_poisson_v2 "
        "random_shuffle"
    ),
    "tensorflow.python.ops.gen_stateful_random_ops": "generator_binomial=stateful_random_binomial",
    "tensorflow.python.ops.stateful_random_ops": "generator_skip=Generator.skip",
    "tensorflow.python.ops.gen_math_ops": "rsqrt",
    "tensorflow.python.ops.math_ops": "reciprocal_of_gradients=reciprocal",
    "tensorflow.python.ops.gen_nn_ops": "softmax fused_batch_norm=fused_batch_norm_v3",
    "tensorflow.python.ops.resource_variable_ops": (
        "variable_sparse_read=BaseResourceVariable.sparse_read "
        "variable_gather_nd=BaseResourceVariable.gather_nd"
    ),
    # AutoGraph.
    "tensorflow.python.autograph.core.ag_ctx": (
        "AutographControl=ControlStatusCtx AutographStatus=Status"
    ),
    # What TensorFlow exports for Keras, besides an op.
    "tensorflow": (
        "FuncGraph=__internal__.FuncGraph reciprocal=math.reciprocal "
        "autograph_convert=__internal__.autograph.tf_convert "
        "autograph_status=__internal__.autograph.control_status_ctx "
        "supports_no_merge_call=__internal__.distribute.strategy_supports_no_merge_call "
        "Trackable=__internal__.tracking.Trackable "
        "CheckpointInitialValueCallable=__internal__.tracking.CheckpointInitialValueCallable"
    ),
    # Distribution.
    "tensorflow.python.distribute.distribute_lib": (
        "default_strategy=_get_default_strategy replica_count=StrategyBase.num_replicas_in_sync"
    ),
    "tensorflow.python.distribute.multi_worker_util": "normalize_cluster_spec coordination_leader",
    "tensorflow.compiler.xla.tsl.protobuf.coordination_config_pb2": "CoordinatedJob",
    "tensorflow.python.distribute.coordinator.values": "PerWorkerDistributedIterator",
    # The files of the profiler, checkpoints and event files.
    "tensorflow.tsl.profiler.protobuf.xplane_pb2": "XSpace",
    "tensorflow.core.protobuf.trackable_object_graph_pb2": "TrackableObjectGraph",
    "tensorflow.python.checkpoint.graph_view": "ObjectGraphView",
    "tensorflow.core.framework.summary_pb2": "DATA_CLASS_SCALAR",
    # Keras: the mask of a tensor (None if it has none), as Keras' own losses get it.
    "tf_keras.src.utils.losses_utils": "keras_mask=get_mask",
    # Keras 3: how it draws seeds, creates variables and names layers.
    "keras.src.random.seed_generator": (
        "keras_3_seed=SeedGenerator.next keras_3_generator=global_seed_generator"
    ),
    "keras.src.backend.tensorflow.core": "keras_3_create_variable=Variable._initialize",
    "keras.src.utils.naming": "keras_3_reset_names=reset_uids",
    "keras.src.backend.common.global_state": (
        "keras_3_set_global=set_global_attribute keras_3_get_global=get_global_attribute"
    ),
    # Model Garden: experiments by name, nested by "/"; classes of tasks by those of their configs.
    "official.core.exp_factory": "registered_experiments=_REGISTERED_CONFIGS",
    "official.core.task_factory": "registered_tasks=_REGISTERED_TASK_CLS",
    "official.modeling.hyperparams.base_config": "config_annotations=Config._get_annotations",
    "gin.config": "gin_bindings=_CONFIG gin_operative_bindings=_OPERATIVE_CONFIG",
}
# Where each part is, as `module:name`.
NAMES = {
    part.partition("=")[0]: f"{module}:{part.rpartition('=')[2]}"
    for module, parts in _PARTS.items()
    for part in parts.split()
}


class MissingInternal(RunnerError):
    """The installed version of a library lacks a private part that this package uses."""

    code = "unsupported-version"

    def __init__(self, part: str) -> None:
        super().__init__(
            f"the installed packages lack {part}, a private part that orbit_runner uses\n"
            "install the versions in requirements.lock, or report this error"
        )


# Without types: in a circle of imports, mypy would not know yet what `Any` is.
def __getattr__(name):  # type: ignore[no-untyped-def]
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _find(NAMES[name])


def _find(path: str) -> Any:
    """Returns what a path `module:name` refers to."""
    __import__(path.partition(":")[0].partition(".")[0])  # Not having the library is another error.
    try:
        return pkgutil.resolve_name(path)
    except (ImportError, AttributeError) as error:
        raise MissingInternal(path.strip(":").replace(":", ".")) from error


def _get(owner: object, name: str) -> Any:
    """Returns a private attribute."""
    try:
        return getattr(owner, name)
    except AttributeError as error:
        cls = owner if isinstance(owner, (type, types.ModuleType)) else type(owner)
        raise MissingInternal(f"{cls.__name__}.{name}") from error


def _set(owner: object, name: str, value: object) -> None:
    """Sets a private attribute, which must exist: nothing would read a new one."""
    _get(owner, name)
    setattr(owner, name, value)


@contextlib.contextmanager
def _replaced_scope(owner: object, name: str, value: object) -> Iterator[None]:
    before = _get(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def replace_functions(wrappers: Mapping[str, Callable[[Any], Any]]) -> None:
    """Replaces functions or methods, by their keys in `NAMES`, with what the wrappers return.

    Nothing is replaced if one of them is missing.
    """
    originals = {key: _find(NAMES[key]) for key in wrappers}
    for key, wrap in wrappers.items():
        module, _, path = NAMES[key].partition(":")
        owner, _, name = path.rpartition(".")
        setattr(_find(f"{module}:{owner}"), name, wrap(originals[key]))


# Random generators


def eager_generator() -> tuple[int | None, random.Random | None]:
    """Returns TensorFlow's seed and its generator of op seeds; both are None if it has no seed."""
    context = _find(NAMES["eager_context"])()
    return _get(context, "_seed"), getattr(context, "_rng", None)


def set_eager_generator(seed: int | None, generator: random.Random | None) -> None:
    """Sets what `eager_generator` returns. Unlike `tf.random.set_seed`, it keeps the kernels."""
    context = _find(NAMES["eager_context"])()
    context._seed = seed
    if generator is None:
        vars(context).pop("_rng", None)
    else:
        context._rng = generator


def keras_generator() -> random.Random | None:
    """Returns the generator of the seeds of Keras layers in this thread; None if it has no seed."""
    return getattr(_find("tf_keras.src.backend:_SEED_GENERATOR"), "generator", None)


def set_keras_generator(generator: random.Random | None) -> None:
    """Sets what `keras_generator` returns."""
    _find("tf_keras.src.backend:_SEED_GENERATOR").generator = generator


def keras_3_generator_key() -> str:
    """Returns the key of Keras 3's own generator of seeds among its global attributes.

    Keras 3.12, the newest version for Python 3.10, has no constant for it.
    """
    module = _find("keras.src.random.seed_generator")
    key = getattr(module, "GLOBAL_SEED_GENERATOR", "global_seed_generator")
    return str(key)


def keras_3_initial_seed(generator: object) -> int | None:
    """Returns the seed that a generator of Keras 3 was created with, None if it is no generator."""
    keras = sys.modules.get("keras")
    if keras is None or not isinstance(generator, keras.random.SeedGenerator):
        return None
    seed = _get(generator, "_initial_seed")
    return None if seed is None else int(seed)


# Eager execution and graphs


def function_graph(graph: tf.Graph, name: str) -> tf.Graph | None:
    """Returns the graph of a function that an op of `graph` calls; None if it is not known."""
    return getattr(_get(graph, "_get_function")(name), "graph", None)


# Checkpoints and event files


def take_async_save_error(checkpoint: tf.train.Checkpoint) -> Exception | None:
    """Returns and clears the error of the thread that saves a checkpoint, None if there is none."""
    helper = _get(checkpoint, "_async_checkpointer_impl")  # None before the first such save.
    if helper is None:
        return None
    error = _get(helper, "_async_error")
    helper._async_error = None
    return error


def object_graph(checkpoint: tf.train.Checkpoint) -> Any:
    """Returns the graph of objects that TensorFlow would save, a `TrackableObjectGraph`."""
    view = _find(NAMES["ObjectGraphView"])(checkpoint)
    return _get(view, "serialize_object_graph")()[1]


def track(owner: object, part: object, name: str) -> None:
    """Saves an object with its owner, which is a `Trackable`, under a name."""
    _get(owner, "_track_trackable")(part, name)


def restore_id(variable: tf.Variable) -> int:
    """Returns a number that changes when a variable is restored."""
    _get(type(variable), "_update_uid")
    return getattr(variable, "_update_uid", -1)  # Some are not initialized before a restore.


def summary_resource(writer: tf.summary.SummaryWriter) -> tf.Tensor | None:
    """Returns the resource of a summary writer, None if it writes nothing."""
    import tensorflow as tf

    is_noop = isinstance(writer, type(tf.summary.create_noop_writer()))
    return None if is_noop else _get(writer, "_resource")


# Distribution


def collective_keys_scope(first: int) -> contextlib.AbstractContextManager[None]:
    """Numbers the collectives of mirrored strategies that are created in a block from `first`."""
    import tensorflow as tf

    return _replaced_scope(tf.distribute.MirroredStrategy, "_collective_key_base", first)


def worker_count(strategy: tf.distribute.MultiWorkerMirroredStrategy) -> int:
    """Returns the number of workers of a `MultiWorkerMirroredStrategy`."""
    return int(_get(strategy.extended, "_num_workers"))


def cluster_of(strategy: tf.distribute.ParameterServerStrategy) -> Any:
    """Returns the addresses of the members of a `ParameterServerStrategy`, by their jobs."""
    return _get(strategy, "_cluster_resolver").cluster_spec().as_dict()


def coordinator_workers(coordinator: tf.distribute.coordinator.ClusterCoordinator) -> Sequence[Any]:
    """Returns the workers of a `ClusterCoordinator`."""
    workers: Sequence[Any] = _get(_get(coordinator, "_cluster"), "workers")
    return workers


def set_type_spec(value: object, spec: tf.TypeSpec) -> None:
    """Sets the type of a value on a worker."""
    _set(value, "_type_spec", spec)


def read_first_replica(variable: tf.Variable) -> None:
    """Makes a distributed variable read and save the value of the first replica."""
    import tensorflow as tf

    _set(variable, "_aggregation", tf.VariableAggregation.ONLY_FIRST_REPLICA)


# Keras


def is_keras_layer(value: object) -> bool:
    """Returns whether a value is a layer or a model of Keras."""
    import tf_keras

    return isinstance(value, tf_keras.layers.Layer) or is_keras_3_layer(value)


def is_keras_3_layer(value: object) -> bool:
    """Returns whether a value is a layer or a model of Keras 3."""
    return isinstance(value, getattr(sys.modules.get("keras"), "Layer", ()))


def _keras_3_layer(layer: object) -> Any:
    """Returns a layer of Keras 3, or the model that a `Keras3Model` wraps; None for others."""
    return layer if is_keras_3_layer(layer) else getattr(layer, "keras_3_model", None)


def all_layers(
    layer: tf_keras.layers.Layer, *, include_self: bool = True
) -> list[tf_keras.layers.Layer]:
    """Returns a layer of Keras and those inside it, at any depth."""
    if _keras_3_layer(layer) is None:
        return list(_get(layer, "_flatten_layers")(recursive=True, include_self=include_self))
    below = [part for inner in inner_layers(layer) for part in all_layers(inner)]
    return [layer, *below] if include_self else below


def inner_layers(layer: tf_keras.layers.Layer) -> list[tf_keras.layers.Layer]:
    """Returns the layers that are directly inside a layer of Keras."""
    keras_3_layer = _keras_3_layer(layer)
    if keras_3_layer is not None:
        return list(_get(keras_3_layer, "_layers"))
    return list(_get(layer, "_flatten_layers")(recursive=False, include_self=False))


def layer_weights(layer: tf_keras.layers.Layer, *, trained: bool = False) -> list[tf.Variable]:
    """Returns the variables of a layer of Keras and of those inside it, all or those trained."""
    weights = layer.trainable_weights if trained else layer.weights
    return [weight.value for weight in weights] if is_keras_3_layer(layer) else list(weights)


def own_weights(layer: tf_keras.layers.Layer, *, trainable: bool) -> list[tf.Variable]:
    """Returns a layer's weights that can be trained, or those that cannot, without inner layers."""
    kind = "_trainable" if trainable else "_non_trainable"
    keras_3_layer = _keras_3_layer(layer)
    if keras_3_layer is not None:
        return [weight.value for weight in _get(keras_3_layer, f"{kind}_variables")]
    return list(_get(layer, f"{kind}_weights"))


def set_other_weights(layer: tf_keras.layers.Layer, weights: Sequence[tf.Variable]) -> None:
    """Sets which weights of a layer of Keras 2 cannot be trained."""
    _set(layer, "_non_trainable_weights", list(weights))


def set_keras_mask(tensor: tf.Tensor, mask: tf.Tensor) -> None:
    """Sets the mask of a tensor."""
    tensor._keras_mask = mask
    if _find(NAMES["keras_mask"])(tensor) is not mask:
        raise MissingInternal("_keras_mask of a tensor")


def is_functional(model: object) -> bool:
    """Returns whether a value is a Keras model made of inputs and outputs, or `Sequential`."""
    import tf_keras

    keras_3_model = _keras_3_layer(model)
    if keras_3_model is not None:
        classes = {cls.__name__ for cls in type(keras_3_model).__mro__}
        return not classes.isdisjoint(("Functional", "Sequential"))
    return isinstance(model, tf_keras.Model) and bool(_get(model, "_is_graph_network"))


def is_compiled(model: tf_keras.Model) -> bool:
    """Returns whether `compile` of a Keras model was called."""
    keras_3_model = _keras_3_layer(model)
    if keras_3_model is not None:
        return bool(keras_3_model.compiled)
    return bool(_get(model, "_is_compiled"))


def compile_arguments(model: tf_keras.Model) -> dict[str, Any]:
    """Returns the arguments that `compile` of a Keras model was called with."""
    keras_3_model = _keras_3_layer(model)
    compiled = _get(model if keras_3_model is None else keras_3_model, "_compile_config")
    return dict(_get(compiled, "config"))


def untrack(model: tf_keras.Model, names: Sequence[str]) -> None:
    """Keeps attributes of a model of Keras 2 out of its checkpoints."""
    tracked = _get(model, "_self_unconditional_dependency_names")
    for name in names:
        if name in tracked:
            _get(model, "_delete_tracking")(name)


@contextlib.contextmanager
def uncompiled_scope(model: tf_keras.Model) -> Iterator[None]:
    """Makes a Keras model one that was never compiled in a `with` block, in which it is saved."""
    name = "_is_compiled" if _keras_3_layer(model) is None else "compiled"
    before = {key: vars(model).get(key) for key in (name, "optimizer") if key in vars(model)}
    vars(model).update({name: False, **({"optimizer": None} if "optimizer" in before else {})})
    try:
        yield
    finally:
        vars(model).update(before)


def set_optimizer(model: tf_keras.Model, optimizer: object) -> None:
    """Sets the optimizer that callbacks see, without tracking it."""
    keras_3_model = _keras_3_layer(model)
    vars(model if keras_3_model is None else keras_3_model)["optimizer"] = optimizer


def takes_training(model: Any) -> bool:
    """Returns whether a model of Keras 3 takes the argument `training`."""
    return bool(_get(model, "_call_has_training_arg"))


def compiled_metrics_of(model: Any) -> Any:
    """Returns the metrics that `compile` of a model of Keras 3 has built; None for none."""
    return _get(model, "_compile_metrics")


@contextlib.contextmanager
def all_weighted_scope(container: Any, plain: str, weighted: str) -> Iterator[None]:
    """Lets the metrics of `compile` get the weights of examples in a `with` block.

    `plain` and `weighted` are the attributes of the container with the metrics of both kinds; those
    that are weighted anyway are left out where there are others.
    """
    metrics = _get(container, plain)
    others = _get(container, weighted)
    # Keras 2 has a list of metrics for each output, Keras 3 an object; either may be empty.
    none = [[None] if isinstance(own, (list, tuple)) else None for own in metrics]
    functions = [
        other if own in (None, [None], (None,)) else own
        for own, other in zip(metrics, others, strict=True)
    ]
    with (
        _replaced_scope(container, plain, none),
        _replaced_scope(container, weighted, functions),
    ):
        yield


def compute_keras_3_loss(
    model: Any, x: Any, y: Any, w: Any, outputs: Any, *, training: bool
) -> tf.Tensor:
    """Returns the loss of a batch of a model of Keras 3, a scalar."""
    return _get(model, "_compute_loss")(x, y, outputs, w, training=training)


def adds_losses(model: tf_keras.Model) -> bool:
    """Returns whether layers of a Keras model, which was called, add losses beside regularizers."""
    return any(
        getattr(layer, "_losses", ()) and getattr(layer, "activity_regularizer", None) is None
        for layer in all_layers(model)
    )


def clear_losses(model: tf_keras.Model) -> None:
    """Forgets the losses that the layers of a Keras model added when they were called."""
    _get(model, "_clear_losses")()


def function_arguments(item: object) -> dict[str, object]:
    """Returns the arguments of the function that a loss or metric of Keras calls; {} if none.

    The configs of some losses of Keras 3, such as `Huber`, lack them.
    """
    return dict(getattr(item, "_fn_kwargs", {}))


def output_layers(model: tf_keras.Model) -> list[Any]:
    """Returns the layer that computes each output of a `Functional`, of Keras 2 or Keras 3.

    Their order is that of `tf.nest.flatten`.
    """
    keras_3_model = _keras_3_layer(model)
    name = "layer" if keras_3_model is None else "operation"
    tensors = (model if keras_3_model is None else keras_3_model).outputs
    return [_get(_get(tensor, "_keras_history"), name) for tensor in tensors]


def is_legacy_optimizer(optimizer: object) -> bool:
    """Returns whether an optimizer is one of `tf_keras.optimizers.legacy`."""
    import tf_keras

    return isinstance(optimizer, tf_keras.optimizers.legacy.Optimizer)


def set_constraint(variable: tf.Variable, constraint: Callable[[tf.Tensor], tf.Tensor]) -> None:
    """Sets the constraint that optimizers apply to a variable after each update."""
    for part in (variable, *getattr(variable, "values", ())):
        if "_constraint" in vars(part):
            _set(part, "_constraint", constraint)
    if variable.constraint is not constraint:
        raise MissingInternal("_constraint of a variable")


class _SingleReplica:
    """Updates variables directly, in place of a strategy with a single replica.

    A strategy would leave the replica for an update, which TensorFlow does not allow in a branch,
    such as that of gradient accumulation or loss scaling.
    """

    def __init__(self) -> None:
        self.extended = self

    def update(self, variable: Any, update: Any, args: Any = (), **options: Any) -> Any:
        return update(variable, *args)


@contextlib.contextmanager
def keras_3_update_scope(optimizer: Any, *, sums: bool) -> Iterator[None]:
    """Prepares an optimizer of Keras 3 for an update in a `with` block.

    Args:
        optimizer: The optimizer.
        sums: Whether it sums the gradients over the replicas; False if they are summed already.
    """
    import tensorflow as tf

    strategy = tf.distribute.get_strategy()
    is_single = strategy.num_replicas_in_sync == 1
    parts = [optimizer, *filter(None, [getattr(optimizer, "inner_optimizer", None)])]
    parts += inner_optimizers(optimizer)
    with contextlib.ExitStack() as stack:
        for part in parts:
            if is_single or not sums:
                stack.enter_context(_replaced_scope(part, "_all_reduce_sum_gradients", list))
            if is_single:
                single = _SingleReplica()
                stack.enter_context(_replaced_scope(part, "_distribution_strategy", single))
        if is_single:
            extended = strategy.extended
            stack.enter_context(_replaced_scope(extended, "_use_merge_call", lambda: False))
        yield


def inner_optimizers(optimizer: Any) -> list[Any]:
    """Returns the optimizers that a `MultiOptimizer` of Keras 3 consists of; [] for others."""
    if type(optimizer).__name__ != "MultiOptimizer":
        return []
    return list(_get(optimizer, "_inner_optimizers"))


def optimizer_settings(optimizer: object) -> dict[str, object]:
    """Returns the settings of an optimizer of Keras that can be variables; {} for others."""
    import tf_keras

    if is_legacy_optimizer(optimizer):
        return dict(_get(optimizer, "_hyper"))
    if isinstance(optimizer, tf_keras.optimizers.Optimizer):
        return {"learning_rate": _get(optimizer, "_learning_rate")}
    if hasattr(optimizer, "keras_3_optimizer"):
        keras_3: Any = optimizer
        return {} if keras_3.optimizers else {"learning_rate": keras_3.learning_rate}
    return {}


def _innermost(optimizer: Any) -> Any:
    inner = getattr(optimizer, "keras_3_optimizer", optimizer)
    return getattr(inner, "inner_optimizer", inner)


def keeps_averages(optimizer: Any) -> bool:
    """Returns whether an optimizer of Keras keeps a moving average of the weights."""
    return bool(getattr(_innermost(optimizer), "use_ema", False))


def averages_of(optimizer: Any) -> list[tf.Variable]:
    """Returns these averages, in the order of the weights; the optimizer must be built."""
    averages = _get(_innermost(optimizer), "_model_variables_moving_average")
    is_keras_3 = hasattr(optimizer, "keras_3_optimizer")
    return [average.value if is_keras_3 else average for average in averages]


def is_built(optimizer: tf_keras.optimizers.Optimizer) -> bool:
    """Returns whether an optimizer of Keras 2 has created the variables of its updates."""
    if is_legacy_optimizer(optimizer):
        return bool(optimizer.weights)
    return bool(getattr(optimizer, "_built", False))


def build_slots(
    optimizer: tf_keras.optimizers.Optimizer | tf_keras.optimizers.legacy.Optimizer,
    variables: Sequence[tf.Variable],
) -> None:
    """Creates the slot variables of an optimizer of Keras."""
    if hasattr(optimizer, "build"):
        optimizer.build(variables)
    else:
        _get(optimizer, "_create_all_weights")(variables)


# Orbit


def orbit_log_scope(log: Callable[[str], None]) -> contextlib.AbstractContextManager[None]:
    """Passes the messages of Orbit's controller to a function, in a `with` block."""
    import orbit

    return _replaced_scope(orbit.controller, "_log", log)


# Model Garden


def unlock(config: base_config.Config) -> None:
    """Allows assignments to a config of Model Garden."""
    _set(config, "_locked", False)


def section_class(cls: type, name: str) -> type:
    """Returns the class of a section of a config class of Model Garden."""
    return _get(cls, "_get_subconfig_type")(name)


def restrictions(config: base_config.Config) -> Iterator[tuple[str, base_config.Config]]:
    """Yields each restriction of a Model Garden config, and a copy with only that restriction."""
    for rule in _get(config, "_restrictions"):
        single = copy.copy(config)
        vars(single)["_restrictions"] = [rule]
        yield rule, single


def averaged_optimizer(
    optimizer: optimization.ExponentialMovingAverage,
) -> tuple[tf_keras.optimizers.Optimizer | tf_keras.optimizers.legacy.Optimizer, dict[str, Any]]:
    """Returns the optimizer in an `ExponentialMovingAverage`, and the settings of the average."""
    names = ("average_decay", "trainable_weights_only", "start_step", "dynamic_decay")
    return _get(optimizer, "_optimizer"), {name: _get(optimizer, f"_{name}") for name in names}


def set_block_drop_rates(layers: Sequence[tf_keras.layers.Layer], rate: float) -> None:
    """Sets the drop rate of each block of an EfficientNet by its position, up to `rate`."""
    from official.vision.modeling.layers import nn_blocks

    blocks = [layer for layer in layers if isinstance(layer, nn_blocks.InvertedBottleneckBlock)]
    for index, block in enumerate(blocks):
        drop = _get(block, "_stochastic_depth")
        if drop is not None:
            _set(drop, "_drop_rate", rate * index / len(blocks))


def unpadded_decoding_scope(model: tf_keras.Model) -> contextlib.AbstractContextManager[None]:
    """Lets a `Seq2SeqTransformer` decode without fixed shapes, in a `with` block."""
    return _replaced_scope(model, "_padded_decode", False)
