"""The experiments of the installed Model Garden.

Their configs as configs of this runner, and their tasks.
"""
