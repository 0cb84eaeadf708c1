"""Places in an epoch from which some examples are left out, by NumPy. Does not import TensorFlow.

Let s_0 < s_1 < … be the places that the excluded examples have in the epoch of all examples. The
other examples keep their order and move up. Below s_j, there are s_j - j of them. So the example at
place q without the excluded ones is at place q + k of the whole epoch, where k is the number of
excluded examples for which s_j - j ≤ q.
"""

from __future__ import annotations

import numpy as np

NO_EXAMPLES = np.zeros(0, np.int64)


def skip_gaps(places: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """Returns the places in the whole epoch of places in the epoch without the gaps: int64 [b].

    `gaps`, int64 [k], are the places of the excluded examples in the whole epoch, ascending.
    """
    return places + np.searchsorted(gaps - np.arange(len(gaps)), places, side="right")
