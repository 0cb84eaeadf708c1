"""Decides in which graph the key of a draw is made, and passes it to the graph of the draw."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from orbit_runner.determinism.keys import Calls
from orbit_runner.tf_internals import FuncGraph, WhileBodyFuncGraph, WhileCondFuncGraph

_CAPTURE = "orbit_runner_key"
_SPEC = tf.TensorSpec([1], tf.uint64)


class Stream:
    """A sequence of draws, in the graph in which it started and in the graphs nested in it.

    It starts in the graph that is being built, or eagerly. `make_key` makes the key (uint64 [1]);
    it is called at the first draw, in that graph. `call_key` returns the key (uint64 [1]) for one
    call of a function.
    """

    def __init__(
        self, make_key: Callable[[], tf.Tensor], call_key: Callable[[], tf.Tensor]
    ) -> None:
        self._home = _current_graph()
        self._make_key, self._call_key = make_key, call_key
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
        key = graph.capture_call_time_value(self._call_key, _SPEC, key=_CAPTURE)
        graph.function_captures.by_ref_external[_CAPTURE] = self._call_key
        return key


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
