"""The Orbit trainer and evaluator, checkpoints, and what happens between loops."""
