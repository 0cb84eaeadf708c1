"""Trains and evaluates under `parameter_server`, with asynchronous workers."""
