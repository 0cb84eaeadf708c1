"""Two runs or more: settings, weights, metrics, and where they differ first."""
