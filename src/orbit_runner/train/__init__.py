"""The run and its loop: trainer, evaluator, state, schedule."""
