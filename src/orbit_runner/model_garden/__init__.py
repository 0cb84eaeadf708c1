"""Everything that knows Model Garden: its experiments, its tasks, its drivers' API."""
