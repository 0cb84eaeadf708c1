"""Finds the random draws of a traced graph that are not keyed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

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


def unkeyed_draws(function: Any) -> list[str]:
    """Returns the draws that would differ after a restart, each as `<name> (<op>)`.

    `function` is a `tf.types.experimental.ConcreteFunction` or a graph. Draws in the functions,
    loops and branches that it calls are included; their names start with the names of the calls.
    """
    graph_def = getattr(function, "graph", function).as_graph_def()
    library = {entry.signature.name: entry.node_def for entry in graph_def.library.function}
    return [f"{path} ({op})" for path, op in _find_draws(graph_def.node, library, "", set())]


def _find_draws(
    nodes: Iterable[Any], library: dict[str, Any], path: str, seen: set[str]
) -> Iterator[tuple[str, str]]:
    for node in nodes:
        name = f"{path}{node.name}"
        if node.op in _KEEP_STATE and not node.attr["deterministic"].b:
            yield name, node.op
        for called in (node.op, *_functions(node)):
            if called in library and called not in seen:
                seen.add(called)
                yield from _find_draws(library[called], library, f"{name}/", seen)


def _functions(node: Any) -> Iterator[str]:
    for value in node.attr.values():
        yield value.func.name
        yield from (function.name for function in value.list.func)
