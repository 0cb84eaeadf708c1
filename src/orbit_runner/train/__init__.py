"""The run and its loop: trainer, evaluator, schedule.

Also `callbacks/`, `loops/` and `inputs/`.
"""
