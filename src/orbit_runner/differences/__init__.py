"""Why two runs differ: what their records say, and the first tensor that differs."""
