"""The command line: flags, and a module per command in `commands/`.

A command calls the jobs and prints their results.
"""
