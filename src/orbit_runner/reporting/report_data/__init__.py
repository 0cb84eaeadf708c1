"""Collects and stores what the report shows of the model, its inputs and its mistakes."""
