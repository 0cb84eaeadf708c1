"""Random draws, seeds and numerics as functions of the config: the same bits each time."""
