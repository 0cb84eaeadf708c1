"""The API of Model Garden's drivers: `OrbitExperimentRunner` and its parts."""
