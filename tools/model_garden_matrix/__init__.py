"""Small configs and synthetic data for every experiment that Model Garden registers."""
