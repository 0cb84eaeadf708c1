"""The files of a run beside its checkpoints.

Lock, config, data, code, history; their checks; copies in object stores.
"""
