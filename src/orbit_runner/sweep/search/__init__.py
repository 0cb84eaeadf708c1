"""The space of a sweep, and the searches that choose the settings of its trials."""
