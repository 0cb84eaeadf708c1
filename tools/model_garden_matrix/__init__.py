"""Small recipes and data for every experiment that Model Garden registers."""
