"""The depths of the residual networks for small images; does not import TensorFlow."""

from __future__ import annotations

# The number of layers that one more block in each of the three stages adds: two per basic block (He
# et al. 2015, section 4.2), three per bottleneck (He et al. 2016, appendix).
_LAYERS_PER_ROUND = {1: 6, 2: 9}
# The first convolution and the classifier.
_STEM_AND_HEAD = 2


def is_valid_depth(depth: int, version: int) -> bool:
    """Returns whether a network of this depth exists; False if the version is unknown.

    The depth is the number of layers with weights on the longest path: 6n+2 in version 1 (basic
    blocks), and 9n+2 in version 2 (pre-activation bottlenecks).
    """
    return nearest_depths(depth, version) == (depth,)


def nearest_depths(depth: int, version: int) -> tuple[int, ...]:
    """Returns the depth alone if it exists, otherwise the nearest valid depths below and above it.

    Returns only the smallest valid depth if `depth` is below it, and an empty tuple if the version
    is unknown.
    """
    if version not in _LAYERS_PER_ROUND:
        return ()
    step = _LAYERS_PER_ROUND[version]
    rounds, rest = divmod(depth - _STEM_AND_HEAD, step)
    if rounds < 1:
        return (step + _STEM_AND_HEAD,)
    below = rounds * step + _STEM_AND_HEAD
    return (below, below + step) if rest else (below,)


def blocks_per_stage(depth: int, version: int) -> int:
    """Returns n, the number of residual blocks in each of the three stages.

    Raises `ValueError` if the version is unknown or does not have the depth.
    """
    if version not in _LAYERS_PER_ROUND:
        raise ValueError(f"`version` ({version}) must be 1 or 2.")
    step = _LAYERS_PER_ROUND[version]
    if not is_valid_depth(depth, version):
        near = " and ".join(str(value) for value in nearest_depths(depth, version))
        raise ValueError(
            f"`depth` ({depth}) must be {step}n+{_STEM_AND_HEAD} with n >= 1 in version {version}; "
            f"nearest: {near}."
        )
    return (depth - _STEM_AND_HEAD) // step
