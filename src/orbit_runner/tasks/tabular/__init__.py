"""Classification and regression of the rows of a table."""
