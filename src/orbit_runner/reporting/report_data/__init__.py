"""What the report shows of the model, its inputs and its mistakes: collected, kept as files."""
