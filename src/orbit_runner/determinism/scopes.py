"""Random draws inside a step as a function of (seed, step, replica, piece, call number).

So a run that is stopped and resumed draws the same dropout masks as a run that never stopped.

    with keyed_draws_scope(seed, step, replica):
        outputs = model(inputs, training=True)

TensorFlow's stateful random ops are replaced once per process, by those of `stateless_ops.py`. They
do nothing else unless a scope is open in their thread. A `Stream` decides in which graph the key of
a draw is made, and `unkeyed_draws` finds draws without a key.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import FunctionType
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.determinism.patches import install, set_scope
from orbit_runner.determinism.stateless_ops import (
    KERAS_3_REPLACEMENTS,
    REPLACEMENTS,
    Calls,
    Draw,
    step_key,
)
from orbit_runner.tf_internals import (
    FuncGraph,
    WhileBodyFuncGraph,
    WhileCondFuncGraph,
    replace_functions,
    takes_pfor_config,
)

if TYPE_CHECKING:
    from tensorflow.compat.v1 import NodeDef

    from orbit_runner.utils.types import Tensors


@contextlib.contextmanager
def keyed_draws_scope(
    seed: int,
    step: tf.Tensor | int | Callable[[], tf.Tensor],
    replica: tf.Tensor | int,
    purpose: str = "train",
) -> Iterator[None]:
    """Makes each random draw of TensorFlow in a `with` block a function of its key.

    The key is (seed, purpose, step, replica, number of the call in the block), and the iteration
    for draws in a loop. `step` and `replica` are integer scalars of the graph in which the block is
    entered. `step` can also be a function that returns one; it is called in that graph at the first
    draw. Neither is read before the first draw, and nothing is done if there are no draws.
    `purpose` separates draws for different uses, such as training and evaluation. Raises
    `RuntimeError` if the random ops of this TensorFlow cannot be replaced.
    """
    install("scopes", _install_patches)

    def make_key() -> tf.Tensor:
        # A variable is also callable, but it is not a function that returns a step.
        current_step = step() if isinstance(step, FunctionType) else step
        return step_key(seed, purpose, current_step, replica)

    with set_scope(_stream, Stream(make_key)):
        yield


@contextlib.contextmanager
def keyed_piece_scope(index: tf.Tensor | int) -> Iterator[None]:
    """Adds an index to the keys of the draws in a `with` block, and restarts the call numbers at 0.

    Does nothing outside of `keyed_draws_scope`. Two blocks with the same index draw the same
    values. `index` is an integer scalar, such as the number of a piece of a batch in gradient
    accumulation.
    """
    with _nested_scope(lambda outer: outer.piece_key(index)):
        yield


@contextlib.contextmanager
def _nested_scope(make_key: Callable[[Stream], tf.Tensor]) -> Iterator[None]:
    """Opens a stream whose key is made from that of the current one, if there is one."""
    outer = _current_stream()
    if outer is None:
        yield
        return
    with set_scope(_stream, Stream(lambda: make_key(outer))):
        yield


def _current_stream() -> Stream | None:
    stream = _stream.get()
    return stream if stream is not None and stream.contains_current_graph() else None


def _next_draw() -> Draw | None:
    stream = _current_stream()
    if stream is None:
        return None
    calls = stream.calls()
    return Draw(calls.key, calls.next(), calls)


def _call_key() -> tf.Tensor:
    """Returns the key (uint64 [1]) for one call of a function."""
    stream = _current_stream()
    if stream is not None:
        return stream.calls().child_key()
    # A function that was traced in a scope is called outside of one: draw a random key.
    drawn = tf.random.uniform([1], tf.int64.min, tf.int64.max, tf.int64)
    return tf.bitcast(drawn, tf.uint64)


_CAPTURE = "orbit_runner_key"
_SPEC = tf.TensorSpec([1], tf.uint64)


class Stream:
    """A sequence of draws, in the graph in which it started and in the graphs nested in it.

    It starts in the graph that is being built, or eagerly. `make_key` makes the key (uint64 [1]);
    it is called at the first draw, in that graph.
    """

    def __init__(self, make_key: Callable[[], tf.Tensor]) -> None:
        self._home = _current_graph()
        self._make_key = make_key
        self._calls: dict[FuncGraph | None, Calls] = {}

    def contains_current_graph(self) -> bool:
        """Returns whether the graph that is being built is the stream's graph or nested in it.

        An initializer of a variable that TensorFlow lifts out of the graph is outside.
        """
        graph = _current_graph()
        while graph is not self._home:
            if not isinstance(graph, FuncGraph):
                return False
            graph = _outer_graph(graph)
        return True

    def calls(self) -> Calls:
        """Returns the key and the call counter for draws in the graph that is being built."""
        return self._get_calls(_current_graph())

    def piece_key(self, index: tf.Tensor | int) -> tf.Tensor:
        """Returns the key of a piece (uint64 [1]), the same for pieces in a loop and unrolled ones.

        `index` is an integer scalar of the graph that is being built.
        """
        graph = _current_graph()
        while graph is not self._home and _is_control_flow(graph):
            graph = _outer_graph(graph)
        return self._get_calls(graph).piece_key(index)

    def _get_calls(self, graph: FuncGraph | None) -> Calls:
        if graph not in self._calls:
            self._calls[graph] = self._create_calls(graph)
        return self._calls[graph]

    def _create_calls(self, graph: FuncGraph | None) -> Calls:
        if graph is self._home:
            return Calls(_build_key(graph, self._make_key))
        assert graph is not None, "a stream created eagerly belongs outside all graphs"
        if not _is_control_flow(graph):
            return Calls(self._capture_key(graph))
        outer = self._get_calls(_outer_graph(graph))
        if not isinstance(graph, (WhileBodyFuncGraph, WhileCondFuncGraph)):
            return outer
        # Its first input counts the iterations; TensorFlow adds it for the gradient.
        return Calls(_build_key(graph, lambda: outer.child_key(graph.inputs[0])))

    def _capture_key(self, graph: FuncGraph) -> tf.Tensor:
        # A function is traced once and called from many graphs, so each call passes it a key. By
        # default, TensorFlow would get the key at the outermost call, outside of all graphs.
        key = graph.capture_call_time_value(_call_key, _SPEC, key=_CAPTURE)
        graph.function_captures.by_ref_external[_CAPTURE] = _call_key
        return key


_stream: ContextVar[Stream | None] = ContextVar("stream", default=None)


def _current_graph() -> FuncGraph | None:
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def _outer_graph(graph: FuncGraph) -> FuncGraph | None:
    # The outermost graph is TensorFlow's default graph, which represents eager mode.
    return graph.outer_graph if isinstance(graph.outer_graph, FuncGraph) else None


def _is_control_flow(graph: FuncGraph | None) -> bool:
    return isinstance(graph, FuncGraph) and graph.is_control_flow_graph


def _build_key(graph: FuncGraph | None, build: Callable[[], tf.Tensor]) -> tf.Tensor:
    if graph is _current_graph():
        return build()
    assert graph is not None
    with graph.as_default():
        return build()


def install_keras_3_patches() -> None:
    """Installs the replacements in Keras 3, which must be imported; only once."""
    install("scopes of Keras 3", lambda: replace_functions(_wrappers(KERAS_3_REPLACEMENTS)))


def _install_patches() -> None:
    replace_functions({**_wrappers(REPLACEMENTS), "vectorized_loop": _patch_vectorized})


def _wrappers(ops: Mapping[str, Callable[..., object]]) -> dict[str, Callable[..., object]]:
    return {
        name: functools.partial(_patch_op, replacement=replacement)
        for name, replacement in ops.items()
    }


def _patch_op(
    original: Callable[..., Tensors], replacement: Callable[..., tf.Tensor]
) -> Callable[..., Tensors]:
    @functools.wraps(original)
    def draw_or_call(*args: object, **kwargs: object) -> Tensors:
        this = _next_draw()
        return original(*args, **kwargs) if this is None else replacement(this, *args, **kwargs)

    return draw_or_call


def _patch_vectorized(original: Callable[..., Tensors]) -> Callable[..., Tensors]:
    @functools.wraps(original)
    def patched_pfor(loop_fn: Callable[..., Tensors], *args: object, **kwargs: object) -> Tensors:
        # `index` is the number of an iteration of `tf.vectorized_map`, int32 scalar.
        def body(index: tf.Tensor) -> Tensors:
            with _nested_scope(lambda outer: outer.calls().child_key(index)):
                return loop_fn(index)

        def body_with_config(index: tf.Tensor, pfor_config: object) -> Tensors:
            with _nested_scope(lambda outer: outer.calls().child_key(index)):
                return loop_fn(index, pfor_config=pfor_config)

        takes_config = takes_pfor_config(loop_fn)
        return original(body_with_config if takes_config else body, *args, **kwargs)

    return patched_pfor


# The registered names of the ops that keep the state of a generator, in the op or in a variable.
# `FractionalMaxPool` is not declared as stateful, but draws its regions in the same way.
_KEEP_STATE = {
    "AllCandidateSampler",
    "FixedUnigramCandidateSampler",
    "FractionalAvgPool",
    "FractionalMaxPool",
    "LearnedUnigramCandidateSampler",
    "LogUniformCandidateSampler",
    "Multinomial",
    "NonDeterministicInts",
    "ParameterizedTruncatedNormal",
    "RandomCrop",
    "RandomGamma",
    "RandomPoisson",
    "RandomPoissonV2",
    "RandomShuffle",
    "RandomStandardNormal",
    "RandomUniform",
    "RandomUniformInt",
    "RngReadAndSkip",
    "RngSkip",
    "SampleDistortedBoundingBox",
    "SampleDistortedBoundingBoxV2",
    "StatefulRandomBinomial",
    "StatefulStandardNormal",
    "StatefulStandardNormalV2",
    "StatefulTruncatedNormal",
    "StatefulUniform",
    "StatefulUniformFullInt",
    "StatefulUniformInt",
    "ThreadUnsafeUnigramCandidateSampler",
    "TruncatedNormal",
    "UniformCandidateSampler",
}


def unkeyed_draws(function: tf.types.experimental.ConcreteFunction | tf.Graph) -> list[str]:
    """Returns the draws that would differ after a restart, each as `<name> (<op>)`.

    `function` is a `tf.types.experimental.ConcreteFunction` or a graph. Draws in the functions,
    loops and branches that it calls are included; their names start with the names of the calls.
    """
    graph_def = getattr(function, "graph", function).as_graph_def()
    library = {entry.signature.name: entry.node_def for entry in graph_def.library.function}
    return [f"{path} ({op})" for path, op in _find_draws(graph_def.node, library, "", set())]


def _find_draws(
    nodes: Iterable[NodeDef], library: dict[str, Sequence[NodeDef]], path: str, seen: set[str]
) -> Iterator[tuple[str, str]]:
    for node in nodes:
        name = f"{path}{node.name}"
        if node.op in _KEEP_STATE and not node.attr["deterministic"].b:
            yield name, node.op
        for called in (node.op, *_functions(node)):
            if called in library and called not in seen:
                seen.add(called)
                yield from _find_draws(library[called], library, f"{name}/", seen)


def _functions(node: NodeDef) -> Iterator[str]:
    for value in node.attr.values():
        yield value.func.name
        yield from (function.name for function in value.list.func)
