"""Which depths the residual networks for small images can have; needs no tensorflow."""

from __future__ import annotations

# Weighted layers that one more block in each of the three stages adds: two a basic block (He et
# al. 2015, section 4.2), three a bottleneck (He et al. 2016, appendix).
_LAYERS_PER_ROUND = {1: 6, 2: 9}
# The first convolution and the classifier.
_ENDS = 2


def valid_depth(depth: int, version: int) -> bool:
    """Tells whether a network of this depth exists.

    Args:
        depth: The number of layers with weights on the longest path.
        version: 1 (basic blocks, 6n+2) or 2 (pre-activation bottlenecks, 9n+2).

    Returns:
        Whether it does; False for every depth of an unknown version.
    """
    return nearest_depths(depth, version) == (depth,)


def nearest_depths(depth: int, version: int) -> tuple[int, ...]:
    """Finds the depths that exist around a given one.

    Args:
        depth: The depth that was asked for.
        version: 1 (basic blocks, 6n+2) or 2 (pre-activation bottlenecks, 9n+2).

    Returns:
        The depth alone if it exists, else its neighbours below and above (only the smallest depth
        if there is none below); nothing for an unknown version.
    """
    if version not in _LAYERS_PER_ROUND:
        return ()
    step = _LAYERS_PER_ROUND[version]
    rounds, rest = divmod(depth - _ENDS, step)
    if rounds < 1:
        return (step + _ENDS,)
    below = rounds * step + _ENDS
    return (below, below + step) if rest else (below,)


def blocks_per_stage(depth: int, version: int) -> int:
    """Computes n, the number of residual blocks in each of the three stages.

    Args:
        depth: The number of layers with weights, 6n+2 or 9n+2.
        version: 1 or 2.

    Returns:
        n, at least 1.

    Raises:
        ValueError: If the version is unknown or the depth does not exist in it.
    """
    if version not in _LAYERS_PER_ROUND:
        raise ValueError(f"`version` ({version}) must be 1 or 2.")
    step = _LAYERS_PER_ROUND[version]
    if not valid_depth(depth, version):
        near = " and ".join(str(value) for value in nearest_depths(depth, version))
        raise ValueError(
            f"`depth` ({depth}) must be {step}n+{_ENDS} with n >= 1 in version {version}; "
            f"nearest: {near}."
        )
    return (depth - _ENDS) // step
