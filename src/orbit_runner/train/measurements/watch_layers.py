"""Groups variables by layer, in a number of groups that fits into a record and a chart."""

from __future__ import annotations

from collections.abc import Sequence

MAX_LAYERS = 32
# Fewer groups than this say little about a network that has more than `MAX_LAYERS` layers.
_FEW = 8


def layers_by_variable(names: Sequence[str]) -> dict[str, str]:
    """Returns the layer of each variable, by the names of the variables.

    The layer is the name without its last part: `block/dense` for `block/dense/kernel:0`. If there
    are more than `MAX_LAYERS` layers, those with a common prefix count as one. If that leaves only
    a few, consecutive layers count as one, which is named `first..last`.
    """
    paths = {name: _path(name) for name in names}
    deepest = max((len(path) for path in paths.values()), default=1)
    prefixes = [
        {name: "/".join(path[:depth]) for name, path in paths.items()}
        for depth in range(1, deepest + 1)
    ]
    # A longer prefix never gives fewer groups.
    fitting = [found for found in prefixes if len(set(found.values())) <= MAX_LAYERS]
    if len(fitting) == len(prefixes):
        return prefixes[-1]
    if fitting and len(set(fitting[-1].values())) >= _FEW:
        return fitting[-1]
    return _join_consecutive_layers(prefixes[len(fitting)])


def _path(name: str) -> list[str]:
    parts = name.partition(":")[0].split("/")
    return parts[:-1] or parts


def _join_consecutive_layers(layers: dict[str, str]) -> dict[str, str]:
    """Returns the layers with consecutive ones joined, so that at most `MAX_LAYERS` are left."""
    found = list(dict.fromkeys(layers.values()))
    size = -(-len(found) // MAX_LAYERS)
    names = {}
    for start in range(0, len(found), size):
        group = found[start : start + size]
        name = group[0] if len(group) == 1 else f"{group[0]}..{group[-1]}"
        names.update(dict.fromkeys(group, name))
    return {variable: names[layer] for variable, layer in layers.items()}
