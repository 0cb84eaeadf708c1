"""Explains why two runs differ, by their records and the first tensor that differs."""
