"""Progress, results and the record of a run."""
