"""The module that the forkserver of a sweep imports before it forks trials."""

from orbit_runner.sweep.trial_process import prepare_server

prepare_server()
