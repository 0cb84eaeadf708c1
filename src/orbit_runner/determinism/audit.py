"""Finds the random draws of a traced graph that no key reaches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

# The ops that keep the state of a generator, in the op or in a variable, by the names they are
# registered with. `FractionalMaxPool` is not declared as one, but draws its regions as they do.
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
    """Lists the draws which a run that goes on after a restart would make differently.

    Args:
        function: A `tf.types.experimental.ConcreteFunction`, or a graph.

    Returns:
        `<name> (<op>)` of each, also in the functions, loops and branches that the graph calls; the
        name begins with those of the calls that lead to it.
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
