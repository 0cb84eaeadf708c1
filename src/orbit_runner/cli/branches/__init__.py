"""Runs that continue another run from one of its steps: `runner branch`."""
