"""The run in the shapes of Model Garden's drivers: `OrbitExperimentRunner` and its parts."""
