"""Writers of synthetic data in the file formats that the experiments read."""
