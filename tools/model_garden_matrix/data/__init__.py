"""Writers of generated data in the file formats that the experiments read."""
