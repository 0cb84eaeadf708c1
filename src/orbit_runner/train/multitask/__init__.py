"""Several tasks in one run, trained and evaluated on one model."""
