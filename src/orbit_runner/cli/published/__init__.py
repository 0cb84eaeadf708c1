"""Published fingerprints: `runner reproduce EXPERIMENT`."""
