"""Downloads, verifies and unpacks public datasets."""
