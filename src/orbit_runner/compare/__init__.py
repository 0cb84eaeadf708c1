"""Two runs or more: settings, records, weights, metrics; why they differ, and where first."""
