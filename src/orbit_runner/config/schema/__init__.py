"""The settings of an experiment: dataclasses with their own checks. Imports no tensorflow."""
