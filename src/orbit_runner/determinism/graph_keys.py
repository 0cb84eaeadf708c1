"""Which graph the key of a draw is made in, and how it comes to the graph where the draw is."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

# None of these has a public name, and how graphs are nested is known to nothing else.
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops.control_flow_v2_func_graphs import (
    WhileBodyFuncGraph,
    WhileCondFuncGraph,
)

from orbit_runner.determinism.keys import Calls

_CAPTURE = "orbit_runner_key"
_SPEC = tf.TensorSpec([1], tf.uint64)


class Stream:
    """A sequence of draws, which may reach into graphs inside of the one where it started."""

    def __init__(
        self, make_key: Callable[[], tf.Tensor], call_key: Callable[[], tf.Tensor]
    ) -> None:
        """Starts in the graph that is being built, or eagerly.

        Args:
            make_key: Makes the key, uint64 [1]; called at the first draw, in that graph.
            call_key: Gives the key for one call of a function, uint64 [1].
        """
        self._home = _graph()
        self._make_key, self._call_key = make_key, call_key
        self._calls: dict[FuncGraph | None, Calls] = {}

    def reaches_here(self) -> bool:
        """Returns whether the graph that is being built is the stream's or inside of it.

        It is not where a variable is initialised.
        """
        graph = _graph()
        while graph is not self._home:
            if not isinstance(graph, FuncGraph):
                return False
            graph = _outer(graph)
        return True

    def calls(self) -> Calls:
        """Returns the key for draws in the graph that is being built."""
        return self._calls_in(_graph())

    def piece(self, index: tf.Tensor | int) -> tf.Tensor:
        """Makes the key of a piece, the same whether a loop or a row of calls goes through them.

        Args:
            index: Integer scalar, of the graph that is being built.

        Returns:
            uint64 [1].
        """
        graph = _graph()
        while graph is not self._home and _in_control_flow(graph):
            graph = _outer(graph)
        return self._calls_in(graph).piece(index)

    def _calls_in(self, graph: FuncGraph | None) -> Calls:
        if graph not in self._calls:
            self._calls[graph] = self._new_calls(graph)
        return self._calls[graph]

    def _new_calls(self, graph: FuncGraph | None) -> Calls:
        if graph is self._home:
            return Calls(_build_key(graph, self._make_key))
        assert graph is not None, "a stream that started eagerly is at home outside of graphs"
        if not _in_control_flow(graph):
            return Calls(self._pass_in(graph))
        outer = self._calls_in(_outer(graph))
        if not isinstance(graph, (WhileBodyFuncGraph, WhileCondFuncGraph)):
            return outer
        # Its first input counts the turns; TensorFlow adds it for the gradient.
        return Calls(_build_key(graph, lambda: outer.below(graph.inputs[0])))

    def _pass_in(self, graph: FuncGraph) -> tf.Tensor:
        # A function is traced once and called from many graphs, so each call hands it a key. By
        # itself TensorFlow would ask for it in the outermost call, outside of all graphs.
        key = graph.capture_call_time_value(self._call_key, _SPEC, key=_CAPTURE)
        graph.function_captures.by_ref_external[_CAPTURE] = self._call_key
        return key


def _graph() -> FuncGraph | None:
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def _outer(graph: FuncGraph) -> FuncGraph | None:
    # Outermost is TensorFlow's default graph, which stands for eager mode.
    return graph.outer_graph if isinstance(graph.outer_graph, FuncGraph) else None


def _in_control_flow(graph: FuncGraph | None) -> bool:
    return getattr(graph, "is_control_flow_graph", False)


def _build_key(graph: FuncGraph | None, build: Callable[[], tf.Tensor]) -> tf.Tensor:
    if graph is _graph():
        return build()
    assert graph is not None
    with graph.as_default():
        return build()
