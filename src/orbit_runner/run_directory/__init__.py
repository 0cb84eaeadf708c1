"""The files of a run beside its checkpoints.

Lock, config, data, code; their checks; copies in object stores. `RunReader` reads them.
"""
